//! From what was sent or declared to records: the one way in, for the Admin
//! API and for declarative files alike.

mod any;
mod credentials;

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::entities::{Entities, Entity, Item, Kind, Origin, Record, Scheme};
use super::schemas;
use doorward_core::model::ca_certificate::CaCertificate;
use doorward_core::model::certificate::Certificate;
use doorward_core::model::consumer::Consumer;
use doorward_core::model::consumer_group::{ConsumerGroup, GroupMembership};
use doorward_core::model::credential::{
    Acl, BasicAuth, Credential, HmacAuth, Jwt, KeyAuth, MASK, OAuth2,
};
use doorward_core::model::key::{Key, KeySet, PRIVATE_MEMBERS};
use doorward_core::model::plugin::Plugin;
use doorward_core::model::route::Route;
use doorward_core::model::schema::{Schema, Violations};
use doorward_core::model::serde_message;
use doorward_core::model::service::Service;
use doorward_core::model::sni::Sni;
use doorward_core::model::target::Target;
use doorward_core::model::upstream::Upstream;
use doorward_core::model::vault::{Vault, is_reference};

pub use any::{AnyResource, Unresolved, any};
pub use credentials::Disclosure;

/// A kind of record that can be made and changed from outside.
pub trait Resource: Entity + DeserializeOwned {
    /// Whether lists of it also follow the older dialect: a `total`, and query
    /// parameters as equality filters.
    const LEGACY_LIST: bool = false;

    /// The schema of this record.
    ///
    /// # Errors
    /// If the record is of no kind that there is a schema for.
    fn schema(record: &Map<String, Value>) -> Result<&'static Schema, Violations>;

    /// What `created_at` is at this time: seconds, except for plugins, whose
    /// creation time is in milliseconds (interface 2.7).
    fn creation_time(now_ms: i64) -> Value {
        now_ms.div_euclid(1000).into()
    }

    /// What `updated_at` is at this time; null where records have no such field.
    fn update_time(now_ms: i64) -> Value {
        now_ms.div_euclid(1000).into()
    }

    /// The record that a path calls so, besides by its id.
    fn find<'a>(entities: &'a Entities, name: &str) -> Option<&'a Arc<Record<Self>>> {
        Self::table(entities).by_key(name)
    }

    /// The record as the Admin API shows it.
    fn show(record: &Record<Self>, _: &Entities, _: Disclosure) -> Map<String, Value> {
        record.doc()
    }

    /// Makes up what is absent, besides id and times, and works out what stands for
    /// something else.
    fn settle(_record: &mut Map<String, Value>, _now_ms: i64) {}

    /// Whether the record counts for nothing any more.
    fn is_over(&self, _now_ms: i64) -> bool {
        false
    }
}

impl Resource for Service {
    fn schema(_: &Map<String, Value>) -> Result<&'static Schema, Violations> {
        Ok(schemas::service())
    }
}

impl Resource for Route {
    fn schema(_: &Map<String, Value>) -> Result<&'static Schema, Violations> {
        Ok(schemas::route())
    }
}

impl Resource for Consumer {
    const LEGACY_LIST: bool = true;

    fn schema(_: &Map<String, Value>) -> Result<&'static Schema, Violations> {
        Ok(schemas::consumer())
    }
}

impl Resource for ConsumerGroup {
    fn schema(_: &Map<String, Value>) -> Result<&'static Schema, Violations> {
        Ok(schemas::consumer_group())
    }
}

impl Resource for GroupMembership {
    fn schema(_: &Map<String, Value>) -> Result<&'static Schema, Violations> {
        Ok(schemas::group_membership())
    }
}

impl Resource for Upstream {
    const LEGACY_LIST: bool = true;

    fn schema(_: &Map<String, Value>) -> Result<&'static Schema, Violations> {
        Ok(schemas::upstream())
    }
}

impl Resource for Target {
    const LEGACY_LIST: bool = true;

    fn schema(_: &Map<String, Value>) -> Result<&'static Schema, Violations> {
        Ok(schemas::target())
    }

    fn creation_time(now_ms: i64) -> Value {
        in_seconds(now_ms)
    }

    fn update_time(now_ms: i64) -> Value {
        in_seconds(now_ms)
    }
}

/// With milliseconds, as a number.
fn in_seconds(ms: i64) -> Value {
    if ms % 1000 == 0 {
        return (ms / 1000).into();
    }
    #[expect(clippy::cast_precision_loss, reason = "times are small")]
    let seconds = ms as f64 / 1000.0;
    seconds.into()
}

impl Resource for KeySet {
    fn schema(_: &Map<String, Value>) -> Result<&'static Schema, Violations> {
        Ok(schemas::key_set())
    }
}

impl Resource for Key {
    fn schema(_: &Map<String, Value>) -> Result<&'static Schema, Violations> {
        Ok(schemas::key())
    }

    /// Without private halves; references are shown.
    fn show(record: &Record<Self>, _: &Entities, disclosure: Disclosure) -> Map<String, Value> {
        let mut doc = record.doc();
        if disclosure.secrets {
            return doc;
        }
        if let Some(Value::String(text)) = doc.get_mut("jwk")
            && !is_reference(text)
        {
            *text = masked_jwk(text);
        }
        let private = doc
            .get_mut("pem")
            .and_then(|pem| pem.get_mut("private_key"));
        if let Some(Value::String(text)) = private
            && !is_reference(text)
        {
            *text = MASK.to_owned();
        }
        doc
    }
}

/// The text of a JWK without what only its owner may know.
fn masked_jwk(text: &str) -> String {
    let mut jwk: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
    for member in PRIVATE_MEMBERS {
        if let Some(value) = jwk.get_mut(member) {
            *value = MASK.into();
        }
    }
    Value::Object(jwk).to_string()
}

impl Resource for Vault {
    fn schema(_: &Map<String, Value>) -> Result<&'static Schema, Violations> {
        Ok(schemas::vault())
    }
}

impl Resource for Certificate {
    fn schema(_: &Map<String, Value>) -> Result<&'static Schema, Violations> {
        Ok(schemas::certificate())
    }

    /// A certificate may be called by any of its server names.
    fn find<'a>(entities: &'a Entities, name: &str) -> Option<&'a Arc<Record<Self>>> {
        let sni = entities.snis.by_key(name)?;
        entities.certificates.get(sni.value.certificate.id)
    }

    /// With the names of its SNIs, sorted.
    fn show(record: &Record<Self>, entities: &Entities, _: Disclosure) -> Map<String, Value> {
        let mut doc = record.doc();
        let snis = entities
            .snis
            .referring("certificate", record.value.id, None);
        let mut names: Vec<&str> = snis.map(|sni| sni.value.name.as_str()).collect();
        names.sort_unstable();
        doc.insert("snis".to_owned(), names.into());
        doc
    }
}

impl Resource for Sni {
    fn schema(_: &Map<String, Value>) -> Result<&'static Schema, Violations> {
        Ok(schemas::sni())
    }
}

impl Resource for CaCertificate {
    fn schema(_: &Map<String, Value>) -> Result<&'static Schema, Violations> {
        Ok(schemas::ca_certificate())
    }
}

impl Resource for Plugin {
    const LEGACY_LIST: bool = true;

    fn schema(record: &Map<String, Value>) -> Result<&'static Schema, Violations> {
        schemas::plugin(record.get("name"))
    }

    fn creation_time(now_ms: i64) -> Value {
        now_ms.into()
    }

    /// A null that was given stays one.
    fn settle(record: &mut Map<String, Value>, _: i64) {
        let kind = record.get("name").and_then(Value::as_str);
        let kind = kind.and_then(doorward_plugins::kind);
        let config = record.get_mut("config").and_then(Value::as_object_mut);
        if let (Some(kind), Some(config)) = (kind, config) {
            for field in (kind.schema)().fields.iter().filter(|field| field.auto) {
                let slot = config.entry(field.name);
                slot.or_insert_with(|| credentials::random_text().into());
            }
        }
    }

    /// With both dialects' references: `service: {id}` and `service_id`.
    fn show(record: &Record<Self>, _: &Entities, _: Disclosure) -> Map<String, Value> {
        let mut doc = record.doc();
        for link in Self::KIND.links() {
            if let Some(id) = doc
                .get(link.field)
                .and_then(|reference| reference.get("id"))
            {
                let id = id.clone();
                doc.insert(format!("{}_id", link.field), id);
            }
        }
        doc
    }
}

/// Makes up what is absent or null: id and times.
pub fn stamp<T: Resource>(record: &mut Map<String, Value>, id: Uuid, now_ms: i64) {
    if let Some(Value::String(id)) = record.get_mut("id") {
        id.make_ascii_lowercase();
    }
    put_absent(record, "id", id.to_string().into());
    put_absent(record, "created_at", T::creation_time(now_ms));
    match T::update_time(now_ms) {
        Value::Null => drop(record.remove("updated_at")),
        time => put_absent(record, "updated_at", time),
    }
    T::settle(record, now_ms);
}

fn put_absent(record: &mut Map<String, Value>, field: &str, value: Value) {
    let slot = record.entry(field).or_insert(Value::Null);
    if slot.is_null() {
        *slot = value;
    }
}

/// The complete record, if it satisfies its schema. Id and times must be there.
///
/// # Errors
/// Everything that is wrong with it.
pub fn finish<T: Resource>(
    record: Map<String, Value>,
    origin: Origin,
) -> Result<Record<T>, Violations> {
    let doc = T::schema(&record)?.complete(record)?;
    // The schema admits only what the record can hold; should they ever
    // disagree, the client learns which value it is.
    let value = serde_path_to_error::deserialize(Value::Object(doc.clone())).map_err(|error| {
        let message = serde_message::plain(&error.inner().to_string());
        Violations::of(&error.path().to_string(), message)
    })?;
    Ok(Record::new(value, &doc, origin))
}

/// The record of this kind that was stored as `doc`.
///
/// # Errors
/// If the document is no such record.
pub fn load(kind: Kind, doc: Map<String, Value>) -> Result<Arc<dyn Item>, serde_json::Error> {
    Ok(match kind {
        Kind::Vault => Arc::new(stored::<Vault>(doc)?),
        Kind::KeySet => Arc::new(stored::<KeySet>(doc)?),
        Kind::Key => Arc::new(stored::<Key>(doc)?),
        Kind::CaCertificate => Arc::new(stored::<CaCertificate>(doc)?),
        Kind::Certificate => Arc::new(stored::<Certificate>(doc)?),
        Kind::Sni => Arc::new(stored::<Sni>(doc)?),
        Kind::Consumer => Arc::new(stored::<Consumer>(doc)?),
        Kind::ConsumerGroup => Arc::new(stored::<ConsumerGroup>(doc)?),
        Kind::GroupMembership => Arc::new(stored::<GroupMembership>(doc)?),
        Kind::Credential(Scheme::KeyAuth) => Arc::new(stored::<Credential<KeyAuth>>(doc)?),
        Kind::Credential(Scheme::BasicAuth) => Arc::new(stored::<Credential<BasicAuth>>(doc)?),
        Kind::Credential(Scheme::Jwt) => Arc::new(stored::<Credential<Jwt>>(doc)?),
        Kind::Credential(Scheme::HmacAuth) => Arc::new(stored::<Credential<HmacAuth>>(doc)?),
        Kind::Credential(Scheme::OAuth2) => Arc::new(stored::<Credential<OAuth2>>(doc)?),
        Kind::Credential(Scheme::Acl) => Arc::new(stored::<Credential<Acl>>(doc)?),
        Kind::Upstream => Arc::new(stored::<Upstream>(doc)?),
        Kind::Target => Arc::new(stored::<Target>(schemas::in_full(doc))?),
        Kind::Service => Arc::new(stored::<Service>(doc)?),
        Kind::Route => Arc::new(stored::<Route>(doc)?),
        Kind::Plugin => Arc::new(stored::<Plugin>(doc)?),
    })
}

/// The record that was stored as `doc`. Fields that its schema has gained since
/// take their defaults.
fn stored<T: Resource>(mut doc: Map<String, Value>) -> Result<Record<T>, serde_json::Error> {
    if let Ok(schema) = T::schema(&doc) {
        schema.fill(&mut doc);
    }
    let value = serde_json::from_value(Value::Object(doc.clone()))?;
    Ok(Record::new(value, &doc, Origin::Store))
}

/// Replaces references by name with references by id; `find` knows the names
/// of a kind. What it does not know is returned: field, kind and
/// name.
pub fn resolve_names<T: Resource>(
    record: &mut Map<String, Value>,
    find: impl Fn(Kind, &str) -> Option<Uuid>,
) -> Result<(), (&'static str, Kind, String)> {
    for link in T::KIND.links() {
        let (field, kind) = (link.field, link.to);
        let Some(Value::Object(reference)) = record.get_mut(field) else {
            continue;
        };
        if reference.contains_key("id") {
            continue;
        }
        // A consumer's name is its `username`; tools may also say `name`.
        let name = [kind.key().unwrap_or("name"), "name"]
            .into_iter()
            .find_map(|key| reference.get(key)?.as_str())
            // The empty text of a form is null.
            .filter(|name| !name.is_empty());
        let Some(name) = name else {
            continue;
        };
        match find(kind, name) {
            Some(id) => {
                *reference = Map::from_iter([("id".to_owned(), id.to_string().into())]);
            }
            None => return Err((field, kind, name.to_owned())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_stored_record_gains_the_fields_that_its_schema_gained() {
        let doc = json!({
            "id": "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "name": "s", "protocol": "http",
            "host": "h", "port": 80, "path": null, "retries": 5, "connect_timeout": 1,
            "write_timeout": 1, "read_timeout": 1, "created_at": 1, "updated_at": 1
        });
        let Value::Object(doc) = doc else {
            return;
        };
        let record = stored::<Service>(doc).expect("is a service");
        assert_eq!(record.doc()["enabled"], true);
        assert_eq!(record.doc()["tls_verify"], Value::Null);
        assert!(record.value.enabled);
    }
}
