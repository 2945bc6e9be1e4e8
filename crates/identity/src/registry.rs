//! Making and changing the records of clients: from what somebody sent to what
//! the store keeps.
//!
//! The command line, the admin listener and registration all come through
//! here, so that a client is the same whoever made it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::clients::stored_secret;
use super::records::{check_metadata, check_record};
use doorward_core::clock::random_bytes;
use doorward_core::model::client::{Client, ClientMetadata, ClientSecret};
use doorward_core::model::grant::TokenHash;
use doorward_core::model::registration::InitialToken;
use doorward_core::model::secret::Secret;
use doorward_core::model::serde_message;
use doorward_core::model::user::Owner;
use doorward_core::model::user::schema::RecordError;

/// What a record shows besides its metadata. Sent back they are no change.
const READ_ONLY: [&str; 7] = [
    "realm",
    "owner",
    "version",
    "declared_in",
    "declared_line",
    "created_at",
    "updated_at",
];

/// A client to be stored, and the secret to show if one was made for it.
#[derive(Debug)]
pub struct NewClient {
    /// The record.
    pub client: Client,
    /// Its new secret, which nobody can ask for later.
    pub secret: Option<Secret>,
}

/// The length of secrets that [`new_secret`] makes.
pub(super) const SECRET_BYTES: usize = 43;

/// A new random secret: 256 bits, in letters, digits, `-` and `_`.
pub fn new_secret() -> Secret {
    Secret::new(URL_SAFE_NO_PAD.encode(random_bytes::<32>()))
}

/// A new random secret for a client, long enough for what its record signs by.
fn new_key(metadata: &ClientMetadata) -> Secret {
    match metadata.key_bytes() {
        0..=SECRET_BYTES => new_secret(),
        _ => Secret::new(URL_SAFE_NO_PAD.encode(random_bytes::<64>())),
    }
}

/// The metadata that `members` are.
///
/// # Errors
/// The member that is none, or has another type.
pub fn metadata(mut members: Map<String, Value>) -> Result<ClientMetadata, RecordError> {
    for name in READ_ONLY {
        members.remove(name);
    }
    // What is null is as absent (RFC 7591 §2).
    members.retain(|_, value| !value.is_null());
    serde_path_to_error::deserialize(Value::Object(members)).map_err(|error| {
        let path = error.path().to_string();
        let message = error.into_inner().to_string();
        if let Some((name, _)) = named(&message, "missing field `") {
            return RecordError::new(name, "is required");
        }
        if let Some((name, _)) = named(&message, "unknown field `") {
            return RecordError::new(name, "unknown field");
        }
        RecordError::new(path, serde_message::plain(&message))
    })
}

fn named<'a>(message: &'a str, before: &str) -> Option<(&'a str, &'a str)> {
    message.strip_prefix(before)?.split_once('`')
}

/// A new client of the operator's; without an identifier or a secret of its
/// own it gets them.
///
/// # Errors
/// The member that can't be.
pub fn create(
    realm: &str,
    mut members: Map<String, Value>,
    now_ms: i64,
) -> Result<NewClient, RecordError> {
    if members.get("client_id").is_none_or(Value::is_null) {
        let id = doorward_core::clock::random_uuid().to_string();
        members.insert("client_id".to_owned(), id.into());
    }
    let mut metadata = metadata(members)?;
    let given = metadata.client_secret.take();
    let (stored, made) = first_secret(&metadata, given)?;
    let client = Client {
        realm: realm.to_owned(),
        metadata,
        secret: stored,
        owner: Owner::Store,
        registration: None,
        created_ms: now_ms,
        updated_ms: now_ms,
    };
    Ok(NewClient {
        client,
        secret: made,
    })
}

/// The same client with other metadata, all of it. Its secret stays unless
/// another is given or none is needed any more.
///
/// # Errors
/// The member that can't be.
pub fn replace(
    old: &Client,
    mut members: Map<String, Value>,
    now_ms: i64,
) -> Result<NewClient, RecordError> {
    let id = old.metadata.client_id.as_str();
    let named = members.get("client_id").filter(|named| !named.is_null());
    if named.is_some_and(|named| named != id) {
        return Err(RecordError::new("client_id", "can't be changed"));
    }
    members.insert("client_id".to_owned(), id.into());
    let mut metadata = metadata(members)?;
    let given = metadata.client_secret.take();
    let (stored, made) = match (given, &old.secret) {
        (None, _) if !metadata.has_use_for_secret() => {
            check_metadata(&metadata, None)?;
            (ClientSecret::None, None)
        }
        (None, ClientSecret::Plain(kept)) => {
            check_metadata(&metadata, Some(kept))?;
            (stored_secret(&metadata, Some(kept)), None)
        }
        (None, kept @ ClientSecret::Digest { .. }) => {
            check_record(&metadata)?;
            if metadata.needs_plain_secret() {
                let text = "must be given anew: from now on it is needed itself, and only a \
                            digest of it was kept";
                return Err(RecordError::new("client_secret", text));
            }
            (kept.clone(), None)
        }
        (given, _) => first_secret(&metadata, given)?,
    };
    let client = Client {
        metadata,
        secret: stored,
        updated_ms: now_ms.max(old.updated_ms + 1),
        ..old.clone()
    };
    Ok(NewClient {
        client,
        secret: made,
    })
}

/// The same client with some members changed: null removes one (RFC 7396).
///
/// # Errors
/// The member that can't be.
pub fn patch(
    old: &Client,
    change: Map<String, Value>,
    now_ms: i64,
) -> Result<NewClient, RecordError> {
    let mut members = members(&old.metadata);
    for (name, value) in change {
        members.insert(name, value);
    }
    replace(old, members, now_ms)
}

/// The same client with another secret: `given`, or a new one.
///
/// # Errors
/// The client has no use for one, or this can't be one.
pub fn rotate(old: &Client, given: Option<Secret>, now_ms: i64) -> Result<NewClient, RecordError> {
    if !old.metadata.has_use_for_secret() {
        let text = "the client has no use for one (token_endpoint_auth_method)";
        return Err(RecordError::new("client_secret", text));
    }
    let (stored, made) = first_secret(&old.metadata, given)?;
    let client = Client {
        secret: stored,
        updated_ms: now_ms.max(old.updated_ms + 1),
        ..old.clone()
    };
    Ok(NewClient {
        client,
        secret: made,
    })
}

/// What an initial access token is to be good for.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InitialTokenRequest {
    /// How many clients may be registered with it; null: any number.
    pub uses: Option<u32>,
    /// Seconds that it lives; null: until it is deleted.
    pub expires_in: Option<u32>,
    /// What it is made for.
    pub note: String,
}

impl Default for InitialTokenRequest {
    /// One client, within a day.
    fn default() -> Self {
        Self {
            uses: Some(1),
            expires_in: Some(24 * 3600),
            note: String::new(),
        }
    }
}

/// A new initial access token of `realm`, and the text that its holder shows:
/// only a hash of that is kept.
///
/// # Errors
/// The member that can't be.
pub fn initial_token(
    realm: &str,
    wish: InitialTokenRequest,
    now_ms: i64,
) -> Result<(InitialToken, Secret), RecordError> {
    for (name, value) in [("uses", wish.uses), ("expires_in", wish.expires_in)] {
        if value == Some(0) {
            return Err(RecordError::new(name, "must be 1 or more, or null"));
        }
    }
    if wish.note.len() > 200 {
        return Err(RecordError::new("note", "must have 200 bytes at most"));
    }
    let text = new_secret();
    let token = InitialToken {
        id: doorward_core::clock::random_uuid().to_string(),
        realm: realm.to_owned(),
        hash: TokenHash::of(text.expose()),
        note: wish.note,
        uses_left: wish.uses,
        created_ms: now_ms,
        expires_ms: wish.expires_in.map(|life| now_ms + i64::from(life) * 1000),
    };
    Ok((token, text))
}

/// An initial access token as it is shown to operators: not itself.
pub fn token_record(token: &InitialToken) -> Value {
    json!({
        "id": token.id,
        "realm": token.realm,
        "note": token.note,
        "uses_left": token.uses_left,
        "created_at": token.created_ms.div_euclid(1000),
        "expires_at": token.expires_ms.map(|end| end.div_euclid(1000)),
    })
}

/// What is kept of the secret given, or of one that is made if the client needs
/// one; and that one.
fn first_secret(
    metadata: &ClientMetadata,
    given: Option<Secret>,
) -> Result<(ClientSecret, Option<Secret>), RecordError> {
    let made = (given.is_none() && metadata.has_use_for_secret()).then(|| new_key(metadata));
    let secret = given.as_ref().or(made.as_ref());
    check_metadata(metadata, secret)?;
    Ok((stored_secret(metadata, secret), made))
}

/// The members of a client's metadata.
pub fn members(metadata: &ClientMetadata) -> Map<String, Value> {
    match json!(metadata) {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// A client as it is shown to its operator: without its secret.
pub fn record(client: &Client) -> Map<String, Value> {
    let mut shown = members(&client.metadata);
    let mut add = |name: &str, value: Value| shown.insert(name.to_owned(), value);
    add("realm", client.realm.clone().into());
    add("owner", client.owner.as_str().into());
    add("created_at", client.created_ms.div_euclid(1000).into());
    add("updated_at", client.updated_ms.div_euclid(1000).into());
    // Each change is later than the one before it.
    add("version", client.updated_ms.into());
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(members) => members,
            _ => panic!("an object"),
        }
    }

    fn made(members: Value) -> NewClient {
        create("/", object(members), 1_000).expect("a client")
    }

    fn refused(outcome: Result<NewClient, RecordError>) -> String {
        outcome.expect_err("refused").to_string()
    }

    #[test]
    fn a_client_without_identifier_and_secret_gets_them() {
        let one = made(json!({"grant_types": ["client_credentials"], "scope": "a"}));
        assert_eq!(one.client.metadata.client_id.len(), 36);
        assert_eq!(one.secret.expect("a secret").expose().len(), 43);
        assert!(matches!(one.client.secret, ClientSecret::Digest { .. }));
        let public = made(json!({"client_id": "p", "token_endpoint_auth_method": "none"}));
        assert!(public.secret.is_none());
        let given = made(json!({"client_id": "g", "client_secret": "s"}));
        assert!(given.secret.is_none());
    }

    #[test]
    fn a_secret_that_is_made_is_as_long_as_the_macs_that_it_is_the_key_of() {
        let asserted = |alg: &str| {
            json!({"token_endpoint_auth_method": "client_secret_jwt",
                "token_endpoint_auth_signing_alg": alg})
        };
        for (alg, least) in [("HS256", 32), ("HS384", 48), ("HS512", 64)] {
            for members in [
                json!({"id_token_signed_response_alg": alg}),
                json!({"userinfo_signed_response_alg": alg}),
                json!({"request_object_signing_alg": alg}),
                asserted(alg),
            ] {
                let secret = made(members.clone()).secret.expect("a secret");
                assert!(secret.expose().len() >= least, "{members}");
            }
        }
    }

    #[test]
    fn a_short_secret_is_refused_where_assertions_are_signed_with_it_and_not_elsewhere() {
        let with = |mut members: Map<String, Value>, length: usize| {
            members.insert("client_secret".to_owned(), "s".repeat(length).into());
            create("/", members, 1)
        };
        let asserts = object(json!({"token_endpoint_auth_method": "client_secret_jwt"}));
        let text = "client_secret: must have 32 bytes or more to sign with it";
        assert_eq!(refused(with(asserts.clone(), 31)), text);
        with(asserts, 32).expect("long enough");
        // Records from before, and of the imitated service, have such.
        let id_tokens = object(json!({"id_token_signed_response_alg": "HS256"}));
        with(id_tokens, 8).expect("as short as its operator wants");
    }

    #[test]
    fn a_wrong_member_is_named() {
        for (members, error) in [
            (json!({"surprise": 1}), "surprise: unknown field"),
            (
                json!({"scope": 1}),
                "scope: expected a string, not a number",
            ),
            (
                json!({"redirect_uris": ["https://a/#b"]}),
                "redirect_uris[0]: must be an absolute URI without fragment, in visible ASCII",
            ),
        ] {
            assert_eq!(refused(create("/", object(members), 1)), error);
        }
        let nested = refused(create("/", object(json!({"contacts": ["a", 5]})), 1));
        assert!(nested.starts_with("contacts[1]: "), "{nested}");
    }

    #[test]
    fn replacing_keeps_the_secret_while_there_is_use_for_it() {
        let one = made(json!({"client_id": "a", "client_secret": "s", "client_name": "A"})).client;
        let shown = record(&one);
        let same = replace(&one, shown, 500).expect("what was shown can be sent back");
        assert!(matches!(same.client.secret, ClientSecret::Digest { .. }));
        assert_eq!(
            same.client.updated_ms, 1_001,
            "it must be told from the old one"
        );
        let other = refused(replace(&one, object(json!({"client_id": "b"})), 2_000));
        assert_eq!(other, "client_id: can't be changed");
        let public = object(json!({"token_endpoint_auth_method": "none"}));
        let public = replace(&one, public, 2_000)
            .expect("a public client")
            .client;
        assert!(matches!(public.secret, ClientSecret::None));
        let again = replace(&public, Map::new(), 3_000).expect("confidential again");
        assert!(again.secret.is_some());
        let signed = object(json!({"id_token_signed_response_alg": "HS256"}));
        let text = refused(replace(&one, signed.clone(), 2_000));
        assert!(
            text.starts_with("client_secret: must be given anew"),
            "{text}"
        );
        let rotated = rotate(&one, None, 2_000).expect("rotated").client;
        assert!(replace(&rotated, signed, 3_000).is_err());
    }

    #[test]
    fn a_patch_changes_what_it_names_and_null_removes() {
        let one = made(json!({"client_id": "a", "client_name": "A", "scope": "x y"})).client;
        let change = object(json!({"client_name": null, "scope": "x"}));
        let changed = patch(&one, change, 2_000).expect("changed").client.metadata;
        assert_eq!((changed.client_name, changed.scope.as_str()), (None, "x"));
    }

    #[test]
    fn a_public_client_has_no_secret_to_rotate() {
        let public = made(json!({"token_endpoint_auth_method": "none"})).client;
        assert!(rotate(&public, None, 2_000).is_err());
    }
}
