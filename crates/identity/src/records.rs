//! Users and clients as people declare them: checked and brought into the form
//! of the store.

use serde_json::{Map, Value};
use url::{Host, Url};
use uuid::Uuid;

use super::config::DeclaredUser;
use super::cors::is_origin;
use super::settings::GRACE_MAX;
use super::{discovery, pairwise, profile};
use doorward_core::clock::ordered_uuid;
use doorward_core::jose::jwks::KeySet;
use doorward_core::model::client::{
    AuthMethod, Client, ClientMetadata, ClientSecret, RequestAlg, SignAlg,
};
use doorward_core::model::grant::MAX_TOKEN_LIFE_MS;
use doorward_core::model::secret::Secret;
use doorward_core::model::user::schema::{self, RecordError};
use doorward_core::model::user::{Owner, User, fold, name};

/// The user that the file declares.
pub(super) fn declared_user(realm: &str, user: &DeclaredUser) -> Result<User, RecordError> {
    Ok(User {
        owner: Owner::File,
        ..new_user(realm, &user.record)?
    })
}

/// The client that the file declares; its secret stays with the realm.
pub(super) fn declared_client(
    realm: &str,
    metadata: &ClientMetadata,
) -> Result<Client, RecordError> {
    check_metadata(metadata, metadata.client_secret.as_ref())?;
    let mut metadata = metadata.clone();
    metadata.client_secret = None;
    Ok(Client {
        realm: realm.to_owned(),
        metadata,
        secret: ClientSecret::None,
        owner: Owner::File,
        registration: None,
        created_ms: 0,
        updated_ms: 0,
    })
}

/// A new user of `realm` from a SCIM record. The caller sets owner, password
/// and times.
///
/// # Errors
/// What in the record is wrong.
pub fn new_user(realm: &str, record: &Map<String, Value>) -> Result<User, RecordError> {
    let wrong = RecordError::new;
    let mut profile = schema::canonical(record)?;
    let user_name = match profile.remove("userName") {
        Some(Value::String(name)) => name,
        _ => return Err(wrong("userName", "is required")),
    };
    name::check(&user_name).map_err(|error| RecordError::new("userName", error.to_string()))?;
    let id = match record.get("id").and_then(Value::as_str) {
        Some(id) => id.parse::<Uuid>().map_err(|_| wrong("id", "is no UUID"))?,
        None => ordered_uuid(),
    };
    let by_flag = profile.remove("active").and_then(|flag| flag.as_bool());
    let by_status = match profile.remove("accountStatus") {
        None => None,
        Some(status) => match status.as_str().map(fold).as_deref() {
            Some("active") => Some(true),
            Some("deactivated") => Some(false),
            _ => return Err(wrong("accountStatus", "must be Active or Deactivated")),
        },
    };
    if by_status.is_some() && by_flag.is_some() && by_status != by_flag {
        return Err(wrong("active", "contradicts accountStatus"));
    }
    Ok(User {
        id,
        realm: realm.to_owned(),
        user_name,
        name_reused: false,
        password_hash: None,
        active: by_status.or(by_flag).unwrap_or(true),
        owner: Owner::Store,
        version: 1,
        created_ms: 0,
        updated_ms: 0,
        profile,
    })
}

/// Checks what the types of the metadata can't, and that the secret fits it.
///
/// # Errors
/// The first member that can't be.
pub fn check_metadata(
    metadata: &ClientMetadata,
    secret: Option<&Secret>,
) -> Result<(), RecordError> {
    check_record(metadata)?;
    check_secret(metadata, secret)
}

/// Checks what the types of the metadata can't.
pub(super) fn check_record(metadata: &ClientMetadata) -> Result<(), RecordError> {
    let visible = |text: &str| text.bytes().all(|byte| matches!(byte, 0x20..=0x7e));
    let id = &metadata.client_id;
    if id.is_empty() || id.len() > 255 || !visible(id) {
        let text = "must be 1 to 255 printable ASCII characters";
        return Err(RecordError::new("client_id", text));
    }
    check_grants(metadata)?;
    check_keys(metadata)?;
    check_scopes(metadata)?;
    check_uris(metadata)?;
    check_requests(metadata)?;
    pairwise::check(metadata)?;
    check_tokens(metadata)?;
    profile::check(metadata)
}

/// Each grant type is one that the token endpoint knows, or that needs none.
fn check_grants(metadata: &ClientMetadata) -> Result<(), RecordError> {
    for (index, grant) in metadata.grant_types.iter().enumerate() {
        if let Err(message) = discovery::check_grant(grant) {
            return Err(RecordError::new(format!("grant_types[{index}]"), message));
        }
    }
    Ok(())
}

fn check_secret(metadata: &ClientMetadata, secret: Option<&Secret>) -> Result<(), RecordError> {
    let wrong = |message: &str| Err(RecordError::new("client_secret", message));
    let method = metadata.token_endpoint_auth_method;
    match secret.map(|secret| secret.expose().len()) {
        Some(_) if method == Some(AuthMethod::None) => wrong("a public client has none"),
        None if metadata.authenticates_by_secret() => {
            wrong("is required unless token_endpoint_auth_method is none or private_key_jwt")
        }
        None if metadata.shared_algs().next().is_some() => {
            wrong("is required: tokens are to be signed with it")
        }
        Some(0 | 1025..) => wrong("must have from 1 to 1024 bytes"),
        Some(..32) if method == Some(AuthMethod::ClientSecretJwt) => {
            wrong("must have 32 bytes or more to sign with it")
        }
        None if metadata.request_secret_alg().is_some() => {
            wrong("is required: request objects are to be signed with it")
        }
        _ => Ok(()),
    }
}

fn check_keys(metadata: &ClientMetadata) -> Result<(), RecordError> {
    let wrong = |path: &str, message: &str| Err(RecordError::new(path, message));
    key_set(metadata.jwks.as_ref(), metadata.jwks_uri.as_deref())?;
    let method = metadata.token_endpoint_auth_method;
    if method == Some(AuthMethod::PrivateKeyJwt)
        && metadata.jwks.is_none()
        && metadata.jwks_uri.is_none()
    {
        return wrong("jwks", "or jwks_uri is required for private_key_jwt");
    }
    let fits = metadata
        .token_endpoint_auth_signing_alg
        .is_none_or(|alg| match method {
            Some(AuthMethod::PrivateKeyJwt) => !alg.is_shared(),
            Some(AuthMethod::ClientSecretJwt) => alg.is_shared(),
            _ => true,
        });
    if !fits {
        let text = "does not fit token_endpoint_auth_method";
        return wrong("token_endpoint_auth_signing_alg", text);
    }
    Ok(())
}

/// The keys of a record, which gives them or says where they are, not both.
pub(super) fn key_set(
    jwks: Option<&Value>,
    jwks_uri: Option<&str>,
) -> Result<Option<KeySet>, RecordError> {
    let wrong = |path: &str, message: &str| Err(RecordError::new(path, message));
    if jwks.is_some() && jwks_uri.is_some() {
        let text = "can't be given together with jwks_uri (RFC 7591 section 2)";
        return wrong("jwks", text);
    }
    if let Some(uri) = jwks_uri
        && !Url::parse(uri).is_ok_and(|url| is_safe_source(&url))
    {
        return wrong("jwks_uri", "must be an https URL, or http on this machine");
    }
    let Some(jwks) = jwks else {
        return Ok(None);
    };
    let keys = jwks.get("keys").and_then(Value::as_array);
    // Any of these gives a private key away.
    let secrets = ["d", "k", "p", "q", "dp", "dq", "qi", "oth"];
    let secret = |key: &Value| secrets.iter().any(|name| key.get(name).is_some());
    if keys.is_some_and(|keys| keys.iter().any(secret)) {
        return wrong("jwks", "must hold public keys only");
    }
    match KeySet::parse(jwks.to_string().as_bytes()) {
        Ok(keys) if !keys.is_empty() => Ok(Some(keys)),
        _ => wrong("jwks", "holds no public key that can be used"),
    }
}

/// Whether keys may be fetched from there: nobody on the way can change them.
pub(super) fn is_safe_source(url: &Url) -> bool {
    let local = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => return false,
    };
    url.fragment().is_none() && (url.scheme() == "https" || (url.scheme() == "http" && local))
}

fn check_scopes(metadata: &ClientMetadata) -> Result<(), RecordError> {
    let legal = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
    let registered: Vec<_> = metadata.scope.split_ascii_whitespace().collect();
    if !registered.iter().all(|scope| scope.bytes().all(legal)) {
        let text = "has a character that no scope can have (RFC 6749 section 3.3)";
        return Err(RecordError::new("scope", text));
    }
    let defaults = metadata.default_scope.as_deref().unwrap_or_default();
    let known = |scope| registered.contains(&scope);
    if !defaults.split_ascii_whitespace().all(known) {
        return Err(RecordError::new(
            "default_scope",
            "must be scopes of `scope`",
        ));
    }
    Ok(())
}

fn check_uris(metadata: &ClientMetadata) -> Result<(), RecordError> {
    let usable = |uri: &String| {
        let visible = uri.bytes().all(|byte| matches!(byte, 0x21..=0x7e));
        visible
            && Url::parse(uri).is_ok_and(|url| {
                url.fragment().is_none()
                    && !matches!(url.scheme(), "javascript" | "data" | "vbscript")
            })
    };
    for (name, uris) in [
        ("redirect_uris", &metadata.redirect_uris),
        (
            "post_logout_redirect_uris",
            &metadata.post_logout_redirect_uris,
        ),
    ] {
        if let Some(index) = uris.iter().position(|uri| !usable(uri)) {
            let text = "must be an absolute URI without fragment, in visible ASCII";
            return Err(RecordError::new(format!("{name}[{index}]"), text));
        }
        // It would never match, and its owner would look for the reason elsewhere.
        if let Some(index) = uris.iter().position(|uri| uri.contains('*')) {
            let text = "must hold no `*`: URIs are compared byte by byte, with no wildcards \
                        (RFC 9700 section 2.1); write `%2A` for the character itself";
            return Err(RecordError::new(format!("{name}[{index}]"), text));
        }
    }
    let wrong = |one: &String| !is_origin(one);
    if let Some(index) = metadata.allowed_origins.iter().position(wrong) {
        let text = "must be an origin such as https://app.example";
        return Err(RecordError::new(format!("allowed_origins[{index}]"), text));
    }
    // They become links and pictures of our own pages.
    let web = |uri: &str| Url::parse(uri).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
    let links = [
        ("client_uri", &metadata.client_uri),
        ("policy_uri", &metadata.policy_uri),
        ("tos_uri", &metadata.tos_uri),
        ("logo_uri", &metadata.logo_uri),
    ];
    let links = links.map(|(name, uri)| Some((name, uri.as_ref()?)));
    let localized = metadata.localized.iter();
    let localized = localized.map(|(name, uri)| (name.as_str(), uri));
    let localized = localized.filter(|(name, _)| !name.starts_with("client_name"));
    for (name, uri) in links.into_iter().flatten().chain(localized) {
        let picture = name.starts_with("logo_uri") && uri.starts_with("data:image/");
        if !web(uri) && !picture {
            return Err(RecordError::new(
                name,
                "must begin with http:// or https://",
            ));
        }
    }
    for (name, uri) in [
        ("initiate_login_uri", &metadata.initiate_login_uri),
        ("sector_identifier_uri", &metadata.sector_identifier_uri),
    ] {
        let secure = |uri: &str| {
            Url::parse(uri).is_ok_and(|url| url.scheme() == "https" && url.fragment().is_none())
        };
        if uri.as_deref().is_some_and(|uri| !secure(uri)) {
            return Err(RecordError::new(
                name,
                "must be an https URL without fragment",
            ));
        }
    }
    check_logout_uris(metadata)?;
    check_response_types(metadata)
}

/// Addresses that are told of the end of a session (OpenID Connect Back-Channel
/// Logout 1.0 §2.2, Front-Channel Logout 1.0 §2).
fn check_logout_uris(metadata: &ClientMetadata) -> Result<(), RecordError> {
    let wrong = |path: &str, message: &str| Err(RecordError::new(path, message));
    let public = metadata.token_endpoint_auth_method == Some(AuthMethod::None);
    let web = |uri: &str| {
        let visible = uri.bytes().all(|byte| matches!(byte, 0x21..=0x7e));
        let url = Url::parse(uri).ok().filter(|_| visible)?;
        let plain = matches!(url.scheme(), "https" | "http") && url.username().is_empty();
        (plain && url.fragment().is_none() && url.password().is_none()).then_some(url)
    };
    if let Some(uri) = &metadata.backchannel_logout_uri {
        match web(uri) {
            Some(url) if url.scheme() == "https" || !public => {}
            _ => {
                let text = "must be an https URL without fragment, or http for a client that \
                            authenticates";
                return wrong("backchannel_logout_uri", text);
            }
        }
    }
    if let Some(uri) = &metadata.frontchannel_logout_uri {
        let own = |url: &Url| {
            let redirects = metadata.redirect_uris.iter();
            let mut redirects = redirects.filter_map(|uri| Url::parse(uri).ok());
            redirects.any(|redirect| redirect.origin() == url.origin())
        };
        if !web(uri).is_some_and(|url| own(&url)) {
            let text = "must be an http or https URL without fragment, of the origin of one of \
                        the redirect_uris";
            return wrong("frontchannel_logout_uri", text);
        }
    }
    Ok(())
}

/// Most addresses of request objects that a client can have.
const REQUEST_URIS_MAX: usize = 100;

fn check_requests(metadata: &ClientMetadata) -> Result<(), RecordError> {
    let wrong = |path: &str, message: &str| Err(RecordError::new(path, message));
    let usable = |uri: &String| {
        let address = uri.split('#').next().unwrap_or_default();
        let visible = uri.bytes().all(|byte| matches!(byte, 0x21..=0x7e));
        visible
            && uri.len() <= 512
            && Url::parse(address).is_ok_and(|address| is_safe_source(&address))
    };
    let uris = &metadata.request_uris;
    if uris.len() > REQUEST_URIS_MAX {
        return wrong("request_uris", "must be at most 100");
    }
    if let Some(index) = uris.iter().position(|uri| !usable(uri)) {
        let text = "must be an https URL of at most 512 characters, or http on this machine";
        return wrong(&format!("request_uris[{index}]"), text);
    }
    let has_keys = metadata.jwks.is_some() || metadata.jwks_uri.is_some();
    match metadata.request_object_signing_alg {
        Some(RequestAlg::None) if metadata.require_signed_request_object => wrong(
            "request_object_signing_alg",
            "can't be none where require_signed_request_object is true",
        ),
        Some(RequestAlg::Signed(alg)) if !alg.is_shared() && !has_keys => wrong(
            "request_object_signing_alg",
            "needs jwks or jwks_uri to be verified with",
        ),
        None if metadata.require_signed_request_object && !has_keys => wrong(
            "require_signed_request_object",
            "needs jwks or jwks_uri, or another request_object_signing_alg",
        ),
        _ => Ok(()),
    }
}

fn check_response_types(metadata: &ClientMetadata) -> Result<(), RecordError> {
    let known = |text: &String| {
        let mut words: Vec<_> = text.split(' ').collect();
        words.sort_unstable();
        let all = words.len();
        words.dedup();
        let legal = |word: &&str| matches!(*word, "code" | "id_token" | "token");
        words.len() == all && words.iter().all(legal)
    };
    match metadata.response_types.iter().position(|text| !known(text)) {
        Some(index) => Err(RecordError::new(
            format!("response_types[{index}]"),
            "must be of the words code, id_token and token, separated by blanks",
        )),
        None => Ok(()),
    }
}

fn check_tokens(metadata: &ClientMetadata) -> Result<(), RecordError> {
    let wrong = |path: &str, message: &str| Err(RecordError::new(path, message));
    if metadata
        .access_token_signed_response_alg
        .is_some_and(SignAlg::is_shared)
    {
        let text = "must be signed with a key of the provider: no HS256, HS384 or HS512";
        return wrong("access_token_signed_response_alg", text);
    }
    if metadata.refresh_token_grace > Some(GRACE_MAX) {
        return wrong("refresh_token_grace", "must be at most 300 seconds");
    }
    let too_long =
        |life: Option<u32>| life.is_some_and(|s| i64::from(s) * 1000 > MAX_TOKEN_LIFE_MS);
    if too_long(metadata.access_token_lifetime) {
        return wrong("access_token_lifetime", "must be at most 30 days");
    }
    if too_long(metadata.id_token_lifetime) {
        return wrong("id_token_lifetime", "must be at most 30 days");
    }
    Ok(())
}
