//! Products, developers and applications: from what somebody sent, or a file
//! declares, to what the store keeps.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::path_pattern::PathPattern;
use crate::throttling::rate::Rate;
use doorward_core::clock::{random_alphanumeric, random_uuid};
use doorward_core::model::broker::{Application, Developer, Kind, Product, Record};
use doorward_core::model::client::ClientSecret;
use doorward_core::model::secret::Secret;
use doorward_core::model::serde_message;
use doorward_core::model::user::Owner;
use doorward_core::model::user::schema::RecordError;

/// What a record shows besides its members. Sent back it is no change.
const READ_ONLY: [&str; 5] = [
    "owner",
    "created_at",
    "updated_at",
    "version",
    "tokens_revoked_ms",
];
/// Longest name, in bytes.
const MAX_NAME: usize = 255;
/// Most elements of a list.
const MAX_LIST: usize = 1000;
/// Letters and digits of a consumer key or secret that is made: 190 bits.
const MADE: usize = 32;

/// A record to be stored, and the secret to show if one was made for it.
#[derive(Debug)]
pub struct NewRecord {
    /// The record.
    pub record: Record,
    /// Its new secret, which nobody can ask for later.
    pub secret: Option<Secret>,
}

/// The record of this kind that `members` are; `old` is the one that it
/// replaces.
///
/// # Errors
/// The member that can't be.
pub fn made(
    kind: Kind,
    mut members: Map<String, Value>,
    old: Option<&Record>,
    now_ms: i64,
) -> Result<NewRecord, RecordError> {
    for name in READ_ONLY {
        members.remove(name);
    }
    // What is null is as absent.
    members.retain(|_, value| !value.is_null());
    let mut made = match kind {
        Kind::Product => of_product(parsed(members)?)?,
        Kind::Developer => of_developer(parsed(members)?)?,
        Kind::Application => of_application(parsed(members)?, old)?,
    };
    let record = &mut made.record;
    (record.created_ms, record.updated_ms) = (now_ms, now_ms);
    if let Some(old) = old {
        record.keep_identifiers(old);
        if record.id != old.id {
            return Err(RecordError::new(known_by(kind), "can't be changed"));
        }
        record.created_ms = old.created_ms;
        record.updated_ms = now_ms.max(old.updated_ms + 1);
        if let Some(revoked) = old.doc.get("tokens_revoked_ms") {
            let name = "tokens_revoked_ms".to_owned();
            record.doc.insert(name, revoked.clone());
        }
    }
    Ok(made)
}

/// The member that a record is known by.
pub fn known_by(kind: Kind) -> &'static str {
    match kind {
        Kind::Product => "name",
        Kind::Developer => "email",
        Kind::Application => "id",
    }
}

/// The same application with another secret: `given`, or a new one.
///
/// # Errors
/// This can't be one.
pub fn rotated(old: &Record, given: Option<Secret>, now_ms: i64) -> Result<NewRecord, RecordError> {
    let (kept, made) = match given {
        Some(secret) => (digested(&secret)?, None),
        None => {
            let secret = Secret::new(random_alphanumeric::<MADE>());
            (ClientSecret::digested(&secret), Some(secret))
        }
    };
    let record = Record {
        secret: kept,
        updated_ms: now_ms.max(old.updated_ms + 1),
        ..old.clone()
    };
    Ok(NewRecord {
        record,
        secret: made,
    })
}

/// A record as it is shown: without its secret.
pub fn shown(record: &Record) -> Map<String, Value> {
    let mut shown = record.doc.clone();
    let mut add = |name: &str, value: Value| shown.insert(name.to_owned(), value);
    add("owner", record.owner.as_str().into());
    add("created_at", record.created_ms.div_euclid(1000).into());
    add("updated_at", record.updated_ms.div_euclid(1000).into());
    add("version", record.updated_ms.into());
    shown
}

/// What a developer is known by: addresses differ in more than case.
pub fn developer_id(email: &str) -> String {
    email.trim().to_lowercase()
}

/// The record of a product.
///
/// # Errors
/// The member that can't be.
pub fn of_product(mut product: Product) -> Result<NewRecord, RecordError> {
    check_name("name", &product.name)?;
    // A client that splits the list of its products would see others.
    if product.name.contains([',', '[', ']']) {
        return Err(RecordError::new(
            "name",
            "must not hold a comma or brackets",
        ));
    }
    for (index, pattern) in product.api_resources.iter().enumerate() {
        let compiled = PathPattern::compile(pattern);
        compiled.map_err(|error| RecordError::new(format!("api_resources[{index}]"), error))?;
    }
    for (index, scope) in product.scopes.iter().enumerate() {
        let legal = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
        if scope.is_empty() || !scope.bytes().all(legal) {
            let message = "must be one scope: visible ASCII without blanks";
            return Err(RecordError::new(format!("scopes[{index}]"), message));
        }
    }
    for (name, list) in [
        ("api_resources", &product.api_resources),
        ("scopes", &product.scopes),
        ("proxies", &product.proxies),
        ("environments", &product.environments),
    ] {
        check_length(name, list.len())?;
    }
    if product.quota_interval == 0 {
        product.quota_interval = 1;
    }
    if let Err(error) = rate(&product) {
        return Err(RecordError::new("quota", error));
    }
    record(Kind::Product, product.name.clone(), &product)
}

/// The rate of a product's quota, if it has one.
pub(super) fn rate(product: &Product) -> Result<Option<Rate>, String> {
    let Some(requests) = product.quota else {
        return Ok(None);
    };
    let seconds = u64::from(product.quota_interval.max(1));
    let seconds = seconds.saturating_mul(product.quota_time_unit.seconds());
    let rate = Rate::new(requests, std::time::Duration::from_secs(seconds));
    rate.map(Some).map_err(|error| error.to_string())
}

/// The record of a developer.
///
/// # Errors
/// The member that can't be.
pub fn of_developer(mut developer: Developer) -> Result<NewRecord, RecordError> {
    check_name("email", &developer.email)?;
    let at = developer.email.find('@');
    if at.is_none_or(|at| at == 0 || at + 1 == developer.email.len())
        || developer.email.contains(char::is_whitespace)
    {
        return Err(RecordError::new("email", "must be an address of mail"));
    }
    let made_up = developer.developer_id.is_empty();
    if made_up {
        developer.developer_id = random_uuid().to_string();
    }
    let mut made = record(Kind::Developer, developer_id(&developer.email), &developer)?;
    made.record.made_up = made_up;
    Ok(made)
}

/// The record of an application, which replaces `old`.
///
/// # Errors
/// The member that can't be.
pub fn of_application(
    mut application: Application,
    old: Option<&Record>,
) -> Result<NewRecord, RecordError> {
    check_name("name", &application.name)?;
    check_name("developer", &application.developer)?;
    check_length("products", application.products.len())?;
    let made_up = application.id.is_empty();
    if made_up {
        application.id = random_uuid().to_string();
    }
    match application.id.parse::<Uuid>() {
        Ok(id) => application.id = id.to_string(),
        Err(_) => return Err(RecordError::new("id", "must be a UUID")),
    }
    let given = application.consumer_secret.take();
    let mut made = None;
    let secret = match (&given, old) {
        (Some(secret), _) => digested(secret)?,
        (None, Some(old)) => old.secret.clone(),
        // One with a key of its own is known elsewhere, and so is its secret.
        (None, None) if !application.consumer_key.is_empty() => ClientSecret::None,
        (None, None) => {
            let secret = Secret::new(random_alphanumeric::<MADE>());
            let kept = ClientSecret::digested(&secret);
            made = Some(secret);
            kept
        }
    };
    if application.consumer_key.is_empty() {
        application.consumer_key = match old.and_then(|old| old.key.clone()) {
            Some(key) => key,
            None => random_alphanumeric::<MADE>(),
        };
    }
    check_visible("consumer_key", &application.consumer_key)?;
    let key = application.consumer_key.clone();
    let parent = developer_id(&application.developer);
    let mut one = record(Kind::Application, application.id.clone(), &application)?;
    one.record.key = Some(key);
    one.record.parent = Some(parent);
    one.record.secret = secret;
    one.record.made_up = made_up;
    one.secret = made;
    Ok(one)
}

fn digested(secret: &Secret) -> Result<ClientSecret, RecordError> {
    check_visible("consumer_secret", secret.expose())?;
    Ok(ClientSecret::digested(secret))
}

fn record(kind: Kind, id: String, members: &impl Serialize) -> Result<NewRecord, RecordError> {
    let Value::Object(doc) = json!(members) else {
        return Err(RecordError::new("", "is no object"));
    };
    Ok(NewRecord {
        record: Record {
            kind,
            id,
            key: None,
            parent: None,
            doc,
            secret: ClientSecret::None,
            owner: Owner::Store,
            created_ms: 0,
            updated_ms: 0,
            made_up: false,
        },
        secret: None,
    })
}

/// The record that `members` are.
fn parsed<T: DeserializeOwned>(members: Map<String, Value>) -> Result<T, RecordError> {
    serde_path_to_error::deserialize(Value::Object(members)).map_err(|error| {
        let path = error.path().to_string();
        let message = error.into_inner().to_string();
        let unknown = message.strip_prefix("unknown field `");
        match unknown.and_then(|rest| rest.split_once('`')) {
            Some((name, _)) => RecordError::new(name, "unknown field"),
            None => RecordError::new(path, serde_message::plain(&message)),
        }
    })
}

fn check_name(member: &str, name: &str) -> Result<(), RecordError> {
    let wrong = |message: &str| Err(RecordError::new(member, message));
    if name.trim().is_empty() {
        return wrong("is required");
    }
    if name.len() > MAX_NAME || name.chars().any(char::is_control) || name.trim() != name {
        return wrong("must have 255 bytes at most, no control characters and no blanks around it");
    }
    Ok(())
}

fn check_visible(member: &str, text: &str) -> Result<(), RecordError> {
    let fits = (1..=MAX_NAME).contains(&text.len());
    if !fits || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        let message = "must have 1 to 255 visible ASCII characters";
        return Err(RecordError::new(member, message));
    }
    Ok(())
}

fn check_length(member: &str, length: usize) -> Result<(), RecordError> {
    if length > MAX_LIST {
        let message = format!("must have {MAX_LIST} elements at most");
        return Err(RecordError::new(member, message));
    }
    Ok(())
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

    fn refused(kind: Kind, members: Value) -> String {
        let outcome = made(kind, object(members), None, 1);
        outcome.expect_err("refused").path
    }

    #[test]
    fn an_application_without_key_and_secret_gets_them_and_an_imported_one_does_not() {
        let members = json!({"name": "a", "developer": "Anna@example.com", "products": ["p"]});
        let one = made(Kind::Application, object(members), None, 1).expect("made");
        assert_eq!(one.record.key.as_deref().map(str::len), Some(32));
        assert_eq!(one.record.parent.as_deref(), Some("anna@example.com"));
        let secret = one.secret.expect("a secret");
        assert!(one.record.secret.matches(secret.expose()));
        assert!(!format!("{:?}", one.record.doc).contains(secret.expose()));
        let members = json!({"name": "a", "developer": "a@b", "consumerKey": "orders"});
        let imported = made(Kind::Application, object(members), None, 1).expect("made");
        assert!(imported.secret.is_none() && !imported.record.secret.matches(""));
    }

    #[test]
    fn replacing_keeps_identifier_key_and_secret() {
        let members = json!({"name": "a", "developer": "a@b", "consumer_secret": "s"});
        let old = made(Kind::Application, object(members), None, 5)
            .expect("made")
            .record;
        let again = made(Kind::Application, shown(&old), Some(&old), 5).expect("made");
        assert_eq!((&again.record.id, &again.record.key), (&old.id, &old.key));
        assert!(again.record.secret.matches("s") && again.record.updated_ms == 6);
        let members = json!({"name": "b", "developer": "a@b"});
        let other = made(Kind::Application, object(members), Some(&old), 9).expect("made");
        assert_eq!((&other.record.id, &other.record.key), (&old.id, &old.key));
    }

    #[test]
    fn a_wrong_member_is_named() {
        for (kind, members, path) in [
            (Kind::Product, json!({}), "name"),
            (Kind::Product, json!({"name": "a, b"}), "name"),
            (Kind::Product, json!({"name": "a", "x": 1}), "x"),
            (Kind::Product, json!({"name": "a", "quota": 0}), "quota"),
            (
                Kind::Product,
                json!({"name": "a", "scopes": ["b c"]}),
                "scopes[0]",
            ),
            (
                Kind::Product,
                json!({"name": "a", "api_resources": ["b"]}),
                "api_resources[0]",
            ),
            (Kind::Developer, json!({"email": "a"}), "email"),
            (
                Kind::Developer,
                json!({"email": "a@b", "status": "x"}),
                "status",
            ),
            (Kind::Application, json!({"name": "a"}), "developer"),
            (
                Kind::Application,
                json!({"name": "a", "developer": "a@b", "id": "x"}),
                "id",
            ),
            (
                Kind::Application,
                json!({"name": "a", "developer": "a@b", "consumer_key": "x y"}),
                "consumer_key",
            ),
        ] {
            assert_eq!(refused(kind, members.clone()), path, "{members}");
        }
    }
}
