//! What the audit log tells: kinds of events, events, records.
//!
//! An [`Event`] is built from names of things alone. There is no place in it
//! for a token, a password or a value that somebody typed.

mod kind;
mod pending;
mod query;

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use serde_json::{Map, Value, json};
use uuid::Uuid;

pub use kind::Kind;
pub use pending::PendingAudit;
pub use query::{AuditQuery, AuditUser};

/// Longest text in an event, in characters; the rest is left out.
const TEXT_MAX: usize = 256;
/// Most elements of a list in an event; the rest is left out.
const LIST_MAX: usize = 50;

/// A user who administers, by the name at that time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Person {
    /// The user's identifier.
    pub id: Uuid,
    /// The user's name.
    pub name: String,
    /// The path of the user's realm.
    pub realm: String,
}

/// On whose behalf a part of the process changes something.
#[derive(Clone, Debug)]
pub struct Operator {
    /// Whom the audit log names.
    pub actor: Actor,
    /// The part that let the operator in: `details.via` of audit records.
    pub via: &'static str,
    /// What that part calls the change: `details.change` of audit records.
    pub change: Option<String>,
}

impl Operator {
    /// The event with what it tells of the way that the operator came.
    #[must_use]
    pub fn mark(&self, event: Event) -> Event {
        let event = event.with("via", self.via);
        match &self.change {
            Some(change) => event.with("change", change.as_str()),
            None => event,
        }
    }
}

/// Who did it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Actor {
    /// Nobody who is known.
    Anonymous,
    /// A user, by identifier.
    User(Uuid),
    /// A user who administers.
    Person(Person),
    /// A client on its own behalf, by identifier.
    Client(String),
    /// Whoever may use the admin listener.
    Admin,
    /// The command line, by the name of the system's user.
    Cli(String),
    /// The configuration files.
    File,
    /// Doorward itself.
    System,
}

impl Actor {
    fn kind(&self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::User(_) | Self::Person(_) => "user",
            Self::Client(_) => "client",
            Self::Admin => "admin",
            Self::Cli(_) => "cli",
            Self::File => "file",
            Self::System => "system",
        }
    }

    fn to_json(&self) -> Value {
        let mut shown = json!({"type": self.kind()});
        match self {
            Self::User(id) => shown["id"] = id.to_string().into(),
            Self::Person(person) => {
                shown["id"] = person.id.to_string().into();
                shown["name"] = bounded(&person.name).into();
                shown["realm"] = bounded(&person.realm).into();
            }
            Self::Client(id) | Self::Cli(id) => shown["id"] = id.as_str().into(),
            Self::Anonymous | Self::Admin | Self::File | Self::System => {}
        }
        shown
    }
}

/// A fact that only some kinds of events have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Detail {
    /// A text, bounded.
    Text(String),
    /// A number.
    Number(i64),
    /// Names, bounded in number and length.
    Names(Vec<String>),
}

impl From<&str> for Detail {
    fn from(text: &str) -> Self {
        Self::Text(bounded(text))
    }
}

impl From<i64> for Detail {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl<'a> FromIterator<&'a str> for Detail {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        Self::Names(names.into_iter().take(LIST_MAX).map(bounded).collect())
    }
}

impl Detail {
    fn to_json(&self) -> Value {
        match self {
            Self::Text(text) => text.as_str().into(),
            Self::Number(number) => (*number).into(),
            Self::Names(names) => names.as_slice().into(),
        }
    }
}

fn bounded(text: &str) -> String {
    text.chars().take(TEXT_MAX).collect()
}

/// Something that has happened, but for the time.
///
/// Two that are equal within a second may be told as one record that counts.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Event {
    /// What.
    pub kind: Kind,
    /// Who.
    pub actor: Actor,
    realm: Option<String>,
    user: Option<(Uuid, String)>,
    client_id: Option<String>,
    target: Option<String>,
    address: Option<IpAddr>,
    failure: Option<Cow<'static, str>>,
    details: Vec<(&'static str, Detail)>,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failure = self.failure.as_deref().unwrap_or("success");
        write!(f, "{} by {:?}: {failure}", self.kind.as_str(), self.actor)
    }
}

impl Event {
    /// Something that succeeded, of which nothing else is known yet.
    pub fn new(kind: Kind, actor: Actor) -> Self {
        Self {
            kind,
            actor,
            realm: None,
            user: None,
            client_id: None,
            target: None,
            address: None,
            failure: None,
            details: Vec::new(),
        }
    }

    /// The path of the realm that it concerns.
    #[must_use]
    pub fn realm(mut self, path: &str) -> Self {
        self.realm = Some(bounded(path));
        self
    }

    /// The user whom it concerns: one that exists or did. A name that somebody
    /// typed is not told; people type passwords there.
    #[must_use]
    pub fn user(mut self, id: Uuid, name: &str) -> Self {
        self.user = Some((id, bounded(name)));
        self
    }

    /// The client that it concerns, by the identifier of one that exists or did.
    #[must_use]
    pub fn client(mut self, id: &str) -> Self {
        self.client_id = Some(bounded(id));
        self
    }

    /// What it was done to, as a path: `routes/5f0a…`.
    #[must_use]
    pub fn target(mut self, path: &str) -> Self {
        self.target = Some(bounded(path));
        self
    }

    /// The address that it was asked for from.
    #[must_use]
    pub fn address(mut self, address: Option<IpAddr>) -> Self {
        self.address = address.map(|address| address.to_canonical());
        self
    }

    /// That it was refused or went wrong, and why, as a code.
    #[must_use]
    pub fn failed(mut self, reason: impl Into<Cow<'static, str>>) -> Self {
        self.failure = Some(reason.into());
        self
    }

    /// Another fact.
    #[must_use]
    pub fn with(mut self, name: &'static str, detail: impl Into<Detail>) -> Self {
        self.details.push((name, detail.into()));
        self
    }

    /// The record of it, as it is kept and shown.
    pub fn record(self, told: &Occurrence) -> AuditRecord {
        let mut doc = Map::new();
        let mut set = |name: &str, value: Value| doc.insert(name.to_owned(), value);
        set("id", told.id.to_string().into());
        set("time", instant(told.at_ms).into());
        set("event", self.kind.as_str().into());
        set("realm", self.realm.as_deref().into());
        set("actor", self.actor.to_json());
        let user = self.user.as_ref();
        set(
            "user",
            user.map_or(Value::Null, |(id, name)| json!({"id": id, "name": name})),
        );
        set("client", self.client_id.as_deref().into());
        set("target", self.target.as_deref().into());
        let address = self.address.map(|address| address.to_string());
        set("address", address.as_deref().into());
        set("outcome", outcome(self.failure.is_some()).into());
        set("reason", self.failure.as_deref().into());
        set("request_id", told.trace.request_id.as_deref().into());
        set("tracking_id", told.trace.tracking_id.as_deref().into());
        set("count", told.count.into());
        let mut details: Map<String, Value> = self
            .details
            .iter()
            .map(|(name, detail)| ((*name).to_owned(), detail.to_json()))
            .collect();
        if told.count > 1 {
            details.insert("last".to_owned(), instant(told.last_ms).into());
        }
        set("details", Value::Object(details));
        AuditRecord {
            id: told.id,
            kind: self.kind,
            realm: self.realm,
            user_id: user.map(|(id, _)| *id),
            user_name: user.map(|(_, name)| super::user::name::key(name)),
            client_id: self.client_id,
            address,
            failed: self.failure.is_some(),
            doc,
        }
    }
}

fn outcome(failed: bool) -> &'static str {
    if failed { "failure" } else { "success" }
}

/// A time in milliseconds since the epoch, as RFC 3339 writes it.
pub fn instant(ms: i64) -> String {
    let time = chrono::DateTime::from_timestamp_millis(ms).unwrap_or_default();
    time.to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}

/// When an event happened, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// The record's identifier: [`audit_id`] of `at_ms`.
    pub id: Uuid,
    /// When it happened first, in milliseconds since the epoch.
    pub at_ms: i64,
    /// When it happened last.
    pub last_ms: i64,
    /// How often.
    pub count: u64,
    /// Of the first time.
    pub trace: Trace,
}

/// By what a single event is found elsewhere. Events that differ in nothing
/// else are told as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// What the access log calls the request.
    pub request_id: Option<String>,
    /// `auditTrackingId` of the token that came of it.
    pub tracking_id: Option<String>,
}

/// A version 7 UUID (RFC 9562 §5.7): in order of time, by `turn` within a
/// millisecond.
pub fn audit_id(at_ms: i64, turn: u16, random: [u8; 8]) -> Uuid {
    let millis = u64::try_from(at_ms).unwrap_or(0);
    let [high, low] = (turn & 0x0fff).to_be_bytes();
    let mut bytes = [0; 10];
    bytes[0] = high;
    bytes[1] = low;
    bytes[2..].copy_from_slice(&random);
    uuid::Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid()
}

/// A record of the audit log as the store keeps it: what it is looked for by,
/// and what is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditRecord {
    /// In order of time.
    pub id: Uuid,
    /// What happened.
    pub kind: Kind,
    /// Path of the realm.
    pub realm: Option<String>,
    /// The user.
    pub user_id: Option<Uuid>,
    /// The user's name then, folded.
    pub user_name: Option<String>,
    /// The client.
    pub client_id: Option<String>,
    /// Where the request came from.
    pub address: Option<String>,
    /// Whether it was refused or went wrong.
    pub failed: bool,
    /// The record as it is shown.
    pub doc: Map<String, Value>,
}

impl AuditRecord {
    /// That it was this kind after all: what was put was made.
    pub fn set_kind(&mut self, kind: Kind) {
        self.kind = kind;
        self.set("event", kind.as_str().into());
    }

    /// The realm that it turned out to concern.
    pub fn set_realm(&mut self, path: &str) {
        self.realm = Some(bounded(path));
        self.set("realm", bounded(path).into());
    }

    /// The client that it turned out to concern.
    pub fn set_client(&mut self, id: &str) {
        self.client_id = Some(bounded(id));
        self.set("client", bounded(id).into());
    }

    /// The user whom it turned out to concern.
    pub fn set_user(&mut self, id: Uuid, name: &str) {
        self.user_id = Some(id);
        self.user_name = Some(super::user::name::key(&bounded(name)));
        self.set("user", json!({"id": id, "name": bounded(name)}));
    }

    /// What it turned out to be done to.
    pub fn set_target(&mut self, path: &str) {
        self.set("target", bounded(path).into());
    }

    /// Another fact.
    pub fn set_detail(&mut self, name: &str, detail: impl Into<Detail>) {
        if let Some(Value::Object(details)) = self.doc.get_mut("details") {
            details.insert(name.to_owned(), detail.into().to_json());
        }
    }

    fn set(&mut self, name: &str, value: Value) {
        self.doc.insert(name.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_in_the_order_of_their_time() {
        let id = |ms, turn, random| audit_id(ms, turn, [random; 8]);
        let ids = [id(1, 0, 255), id(1, 1, 0), id(2, 0, 7), id(1 << 40, 0, 0)];
        let texts = ids.map(|id| id.to_string());
        assert!(ids.is_sorted() && texts.is_sorted(), "{texts:?}");
        assert_eq!(ids[0].get_version_num(), 7);
    }

    #[test]
    fn a_record_says_who_what_when_and_from_where() {
        let id = Uuid::from_u128(7);
        let event = Event::new(Kind::SessionBegin, Actor::User(id))
            .realm("/a")
            .user(id, "Demo")
            .address(Some("::ffff:192.0.2.1".parse().expect("an address")))
            .failed("credentials")
            .with("methods", Detail::from_iter(["pwd"]));
        let told = Occurrence {
            id: audit_id(1_700_000_000_123, 0, [0; 8]),
            at_ms: 1_700_000_000_123,
            last_ms: 1_700_000_000_900,
            count: 2,
            trace: Trace::default(),
        };
        let record = event.record(&told);
        assert_eq!(record.user_name.as_deref(), Some("demo"));
        let doc = Value::Object(record.doc);
        assert_eq!(doc["time"], "2023-11-14T22:13:20.123Z");
        assert_eq!(doc["address"], "192.0.2.1");
        assert_eq!(doc["outcome"], "failure");
        assert_eq!(doc["reason"], "credentials");
        assert_eq!(doc["count"], 2);
        assert_eq!(
            doc["details"],
            json!({"methods": ["pwd"], "last": "2023-11-14T22:13:20.900Z"})
        );
    }

    #[test]
    fn no_text_of_a_stranger_grows_a_record_without_bound() {
        let long = "x".repeat(100_000);
        let many = (0..10_000).map(|_| long.as_str());
        let event = Event::new(Kind::ClientCreate, Actor::Client(bounded(&long)))
            .client(&long)
            .target(&long)
            .with("members", Detail::from_iter(many));
        let told = Occurrence {
            id: Uuid::nil(),
            at_ms: 0,
            last_ms: 0,
            count: 1,
            trace: Trace::default(),
        };
        let text = Value::Object(event.record(&told).doc).to_string();
        assert!(text.len() < 20_000, "{}", text.len());
    }
}
