//! Versions of records: a change may name the one that it was made for, and is refused
//! if the record is another by then.

use aws_lc_rs::hmac::{HMAC_SHA256, Key as HmacKey, sign};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

use super::error::ApiError;
use doorward_core::model::schema::Violations;
use doorward_gateway::entities::{Entities, Kind, Record};
use doorward_gateway::records::Resource;

/// The member of a record, and the query parameter of a change.
pub(super) const VERSION: &str = "version";
/// Bytes of the digest that a version shows.
const BYTES: usize = 16;

/// Makes versions. They tell of secrets, too, and are keyed: nobody can try secrets
/// against one.
pub(super) struct Versions(HmacKey);

impl Versions {
    /// Those of a store: all of its nodes have the same `secret`.
    pub(super) fn new(secret: &[u8]) -> Self {
        Self(HmacKey::new(HMAC_SHA256, secret))
    }

    /// The version of a record among `entities`.
    pub(super) fn of<T: Resource>(&self, record: &Record<T>, entities: &Entities) -> String {
        let names = (T::KIND == Kind::Certificate).then(|| {
            let id = record.value.id();
            let snis = entities.snis.referring("certificate", id, None);
            let mut names: Vec<_> = snis.map(|sni| sni.value.name.clone()).collect();
            names.sort_unstable();
            names
        });
        self.of_document(T::KIND, &record.doc(), &json!(names))
    }

    /// The version of a record that is being written, and that is `shown` to its writer:
    /// of a certificate with its server names.
    pub(super) fn of_written<T: Resource>(
        &self,
        record: &Record<T>,
        shown: &Map<String, Value>,
    ) -> String {
        let names = (T::KIND == Kind::Certificate).then(|| shown.get("snis"));
        self.of_document(T::KIND, &record.doc(), &json!(names.flatten()))
    }

    fn of_document(&self, kind: Kind, record: &Map<String, Value>, names: &Value) -> String {
        let text = json!(["entity version", kind.plural(), record, names]).to_string();
        let digest = sign(&self.0, text.as_bytes());
        URL_SAFE_NO_PAD.encode(&digest.as_ref()[..BYTES])
    }
}

/// What a change says that it was made for.
pub(super) struct Expected<'a> {
    pub(super) versions: &'a Versions,
    /// Each that is named has to be that of the record.
    pub(super) named: Vec<&'a str>,
}

/// Takes the version out of a body.
///
/// # Errors
/// If it is no text.
pub(super) fn take(body: &mut Map<String, Value>) -> Result<Option<String>, ApiError> {
    match body.remove(VERSION) {
        None => Ok(None),
        Some(Value::String(version)) => Ok(Some(version)),
        Some(_) => Err(Violations::of(VERSION, "expected a string").into()),
    }
}

/// The versions that a query says the change was made for; none: of any.
pub(super) fn in_query(query: &[(String, String)]) -> impl Iterator<Item = &str> {
    let named = query.iter().filter(|(name, _)| name == VERSION);
    named.map(|(_, version)| version.as_str())
}

/// Refuses a change that was made for another version than that of `old`, which is
/// looked at while nobody else can change it.
///
/// # Errors
/// [`ApiError::Changed`].
pub(super) fn check<T: Resource>(
    expected: &Expected<'_>,
    old: Option<&Record<T>>,
    entities: &Entities,
) -> Result<(), ApiError> {
    let versions = expected.versions;
    let is_other = |expected: &&str| old.is_none_or(|old| versions.of(old, entities) != *expected);
    if expected.named.iter().any(is_other) {
        return Err(ApiError::Changed);
    }
    Ok(())
}
