//! Changes of clients and realms: the difference first, then the change, and for an
//! hour the way back.

use axum::response::Response;
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::accounts::has_identity;
use super::api::ApiAnswer;
use super::change::{self, Change};
use super::difference::{self, Conflict, Line, removal};
use super::error::PageError;
use super::form::FormPage;
use super::session::Role;
use super::trail::Trail;
use super::visit::Visit;
use super::{client_page, entities, form_base, frame, path, realm_page, record};

/// Who changes clients and realms: a client may get tokens for everybody, and a realm
/// says who signs in how.
pub(crate) const REGISTRY_CHANGED_BY: Role = Role::Owner;

/// A client or a realm.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Subject {
    Client {
        /// The path of its realm; "": `/`.
        realm: String,
        /// Its `client_id`; "" of one that is to be made.
        id: String,
    },
    Realm {
        path: String,
    },
}

/// What is done to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Act {
    Create {
        body: Map<String, Value>,
    },
    /// Members of a client, or settings of a realm; null removes one.
    Patch {
        version: String,
        patch: Map<String, Value>,
    },
    Delete {
        version: String,
    },
    /// A client gets another secret.
    Secret {
        version: String,
    },
}

/// A change of a client or a realm.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RegistryChange {
    subject: Subject,
    act: Act,
    /// The change that this one takes back.
    pub(crate) undoes: Option<String>,
}

/// What is known of a change before it is made.
type Outlook = change::Outlook<Act>;

/// The version of a client's or a realm's record, as the Admin API counts them; "": it
/// tells none.
pub(crate) fn version_of(record: &Value) -> String {
    let version = record["version"].as_i64();
    version.map_or_else(String::new, |version| version.to_string())
}

impl Subject {
    /// The Admin API's path of its list, or of itself and below it.
    fn target(&self, below: &[&str], is_list: bool) -> String {
        match self {
            Self::Client { realm, id } => {
                let own = (!is_list).then_some(id.as_str());
                let parts = own.into_iter().chain(below.iter().copied());
                let target = path::join("/identity/clients", parts);
                path::with_query(&target, [("realm", realm.as_str())])
            }
            Self::Realm { .. } if is_list => "/identity/realms".to_owned(),
            Self::Realm { path } => realm_page::target(path),
        }
    }

    /// Its page in the console.
    pub(crate) fn page(&self) -> String {
        match self {
            Self::Client { realm, id } => client_page::address(id, realm),
            Self::Realm { path } => realm_page::address(path),
        }
    }

    /// The list that it is of.
    pub(crate) fn list(&self) -> String {
        match self {
            Self::Client { realm, .. } => {
                path::with_query(client_page::LIST, [("realm", realm.as_str())])
            }
            Self::Realm { .. } => realm_page::LIST.to_owned(),
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Client { id, .. } => id,
            Self::Realm { path } => path,
        }
    }

    /// What of a record a person may change; it names no secret.
    pub(crate) fn own(&self, record: &Value) -> Value {
        match self {
            Self::Client { .. } => client_page::metadata(record),
            Self::Realm { .. } => record["settings"].clone(),
        }
    }

    /// What its record is compared by while a form waits: what a person may
    /// change.
    pub(crate) fn comparable(&self, record: &Value) -> Value {
        match self {
            Self::Client { .. } => client_page::metadata(record),
            Self::Realm { .. } => realm_page::shown(&record["settings"]),
        }
    }

    /// Its record, as it is now.
    pub(crate) async fn record(&self, visit: &Visit) -> Result<Value, PageError> {
        let target = self.target(&[], false);
        let target = path::with_query(&target, [("declared", "true")]);
        visit.api().get(&target).await
    }

    /// Its record, if it may be changed here.
    pub(crate) async fn current(&self, visit: &Visit) -> Result<Value, PageError> {
        let record = self.record(visit).await?;
        match record::declared_in(&record) {
            Some(file) => Err(PageError::FileOwned(file)),
            None => Ok(record),
        }
    }

    /// The refusal of a change to a version of before.
    pub(crate) fn changed(&self) -> PageError {
        PageError::changed(self.trail())
    }

    /// Where the audit log has its changes.
    fn trail(&self) -> Trail {
        match self {
            Self::Client { realm, id } if realm.is_empty() => Trail::of_client(id, "/"),
            Self::Client { realm, id } => Trail::of_client(id, realm),
            Self::Realm { path } => Trail::of_realm(path),
        }
    }

    /// The same, if it is still of this version.
    async fn of_version(&self, visit: &Visit, version: &str) -> Result<Value, PageError> {
        let record = self.current(visit).await?;
        if version_of(&record) == version {
            Ok(record)
        } else {
            Err(self.changed())
        }
    }
}

impl RegistryChange {
    pub(crate) fn new(subject: Subject, act: Act) -> Self {
        Self {
            subject,
            act,
            undoes: None,
        }
    }

    /// The end of a client that was just made, as the Admin API shows it.
    pub(crate) fn end_of(realm: &str, made: &Value) -> Self {
        let subject = Subject::Client {
            realm: realm.to_owned(),
            id: record::text(&made["client_id"]),
        };
        let version = version_of(made);
        Self::new(subject, Act::Delete { version })
    }
}

impl Change for RegistryChange {
    const CONTEXT: &'static str = "registry";
    const KIND: &'static str = "Registry";
    const APPLY: &'static str = "/console/identity/change";
    const ROLE: Role = REGISTRY_CHANGED_BY;
    type Reversal = Act;

    fn undoes(&self) -> Option<&str> {
        self.undoes.as_deref()
    }

    fn request(&self) -> (Method, String, Option<Value>) {
        let (subject, is_realm) = (&self.subject, matches!(self.subject, Subject::Realm { .. }));
        let own = |below: &[&str]| subject.target(below, false);
        match &self.act {
            Act::Create { body } => (
                Method::POST,
                subject.target(&[], true),
                Some(Value::Object(body.clone())),
            ),
            Act::Patch { patch, version } => {
                let patch = Value::Object(patch.clone());
                let mut body = if is_realm {
                    json!({"settings": patch})
                } else {
                    patch
                };
                body["version"] = number(version);
                (Method::PATCH, own(&[]), Some(body))
            }
            Act::Delete { version } => {
                let target = path::with_query(&own(&[]), [("version", version.as_str())]);
                (Method::DELETE, target, None)
            }
            Act::Secret { version } => {
                let body = json!({"version": number(version)});
                (Method::POST, own(&["secret"]), Some(body))
            }
        }
    }

    async fn outlook(&self, visit: &Visit) -> Result<Outlook, PageError> {
        has_identity(visit)?;
        let t = visit.texts;
        let subject = &self.subject;
        let name = subject.name().to_owned();
        match &self.act {
            Act::Create { body } => {
                let shown = record::masked(&Value::Object(body.clone()), false);
                Ok(Outlook {
                    name,
                    lines: difference::lines(&Value::Null, &shown),
                    reversal: Some(Act::Delete {
                        version: String::new(),
                    }),
                    note: "",
                })
            }
            Act::Patch { version, patch } => {
                let record = subject.of_version(visit, version).await?;
                let own = subject.own(&record);
                let shown = difference::patch(&own, &patched(&own, patch));
                let mut outlook = Outlook {
                    name,
                    lines: difference::lines(
                        &record::masked(&own, false),
                        &record::masked(&shown, false),
                    ),
                    reversal: None,
                    note: "",
                };
                let keeps = keeps_secrets(subject, &own, patch);
                if !keeps {
                    outlook.note = t.no_secret_back;
                }
                if keeps || matches!(subject, Subject::Client { .. }) {
                    outlook.reversal = Some(Act::Patch {
                        version: String::new(),
                        patch: reversal(&own, patch),
                    });
                }
                Ok(outlook)
            }
            Act::Delete { version } => {
                let record = subject.of_version(visit, version).await?;
                let own = subject.own(&record);
                let shown = record::masked(&own, false);
                let mut lines = difference::lines(&shown, &removal(&shown));
                if let Subject::Realm { path } = subject {
                    // A realm need not set anything.
                    lines.insert(0, Line::gone("path", path));
                }
                let (reversal, note) = deletion(visit, subject, &record);
                Ok(Outlook {
                    name,
                    lines,
                    reversal,
                    note,
                })
            }
            Act::Secret { version } => {
                subject.of_version(visit, version).await?;
                Ok(Outlook {
                    name,
                    lines: vec![Line {
                        name: "client_secret".to_owned(),
                        before: t.secret_old.to_owned(),
                        after: t.secret_new.to_owned(),
                    }],
                    reversal: None,
                    note: t.secret_note,
                })
            }
        }
    }

    fn section(&self) -> &'static str {
        match self.subject {
            Subject::Client { .. } => client_page::LIST,
            Subject::Realm { .. } => realm_page::LIST,
        }
    }

    fn back(&self) -> String {
        if matches!(self.act, Act::Create { .. }) {
            self.subject.list()
        } else {
            self.subject.page()
        }
    }

    fn is_deletion(&self) -> bool {
        matches!(self.act, Act::Delete { .. })
    }

    fn changed(&self) -> PageError {
        self.subject.changed()
    }

    fn reversed(&self, mut act: Act, answer: &ApiAnswer) -> Option<Self> {
        let subject = match (&self.subject, &self.act) {
            (Subject::Client { realm, .. }, Act::Create { .. }) => Subject::Client {
                realm: realm.clone(),
                id: answer.body["client_id"].as_str()?.to_owned(),
            },
            (subject, _) => subject.clone(),
        };
        match &mut act {
            Act::Patch { version, .. } | Act::Delete { version } => {
                *version = version_of(&answer.body);
            }
            Act::Create { .. } | Act::Secret { .. } => {}
        }
        Some(Self::new(subject, act))
    }

    async fn rebased(&self, visit: &Visit) -> Result<Option<Self>, PageError> {
        let mut change = self.clone();
        let Act::Patch { version, patch } = &mut change.act else {
            return Ok(None);
        };
        if difference::has_whole_members(patch) {
            return Ok(None);
        }
        *version = version_of(&self.subject.current(visit).await?);
        Ok(Some(change))
    }

    async fn again(
        &self,
        visit: &Visit,
        answer: &ApiAnswer,
    ) -> Result<Option<Response>, PageError> {
        let Act::Patch { patch, .. } = &self.act else {
            return Ok(None);
        };
        if answer.status != StatusCode::BAD_REQUEST {
            return Ok(None);
        }
        let wrong = complaints(answer);
        let form = match &self.subject {
            Subject::Client { realm, id } => {
                client_page::again(visit, (id, realm), patch, wrong).await
            }
            Subject::Realm { path } => realm_page::again(visit, path, patch, wrong).await,
        };
        form.map(Some)
    }

    /// A secret that was made is shown once.
    fn done(&self, visit: &Visit, answer: &ApiAnswer) -> Result<Response, PageError> {
        if matches!(self.act, Act::Delete { .. }) {
            return Ok(frame::lead(&self.subject.list()));
        }
        let subject = match &self.subject {
            Subject::Client { realm, .. } => Subject::Client {
                realm: realm.clone(),
                id: record::text(&answer.body["client_id"]),
            },
            realm @ Subject::Realm { .. } => realm.clone(),
        };
        let page = subject.page();
        if let Some(secret) = answer.body["client_secret"].as_str() {
            let id = subject.name();
            let rows = [("client_id", id), ("client_secret", secret)];
            return entities::shown_once(visit, client_page::LIST, id, &rows, page);
        }
        Ok(frame::lead(&path::with_query(&page, [("done", "change")])))
    }
}

/// `POST /identity/change`: makes the change that was shown.
pub(crate) async fn apply(visit: Visit) -> Result<Response, PageError> {
    change::apply::<RegistryChange>(&visit).await
}

/// The record that a form was made of, as [`Subject::comparable`] shows it: the one as
/// it is now, or an older one that the form still carries.
///
/// # Errors
/// If the form is of an older one, and does not carry it.
pub(crate) fn seen(visit: &Visit, subject: &Subject, now: &Value) -> Result<Value, PageError> {
    if visit.field("version") == version_of(now) {
        return Ok(subject.comparable(now));
    }
    match form_base::of(visit) {
        Value::Null => Err(subject.changed()),
        base => Ok(base),
    }
}

/// The end of a save: the difference that it makes, or the form again with what is
/// wrong. Where somebody else has changed the record meanwhile, that is shown as well.
pub(crate) async fn save(
    visit: &Visit,
    (subject, now, seen): (Subject, &Value, &Value),
    outcome: Result<Map<String, Value>, Vec<(String, String)>>,
    form: impl FnOnce(String) -> FormPage,
) -> Result<Response, PageError> {
    let version = version_of(now);
    match outcome {
        Ok(patch) => {
            let trail = subject.trail();
            let shown = subject.comparable(now);
            let patched = |patch| Act::Patch {
                version: version.clone(),
                patch,
            };
            if visit.field("version") == version {
                return RegistryChange::new(subject, patched(patch))
                    .ask(visit)
                    .await;
            }
            let patch = difference::onto(seen, &shown, patch);
            let change = RegistryChange::new(subject, patched(patch));
            let conflict = Conflict::find(visit, trail, seen, &shown).await;
            change.ask_after(visit, conflict).await
        }
        Err(errors) => {
            let form = form(visit.field("version").to_owned()).of(seen);
            form.typed(visit).refused(errors)
        }
    }
}

/// A version as the Admin API reads it; null: whichever it is.
pub(crate) fn number(version: &str) -> Value {
    version.parse::<i64>().map_or(Value::Null, Value::from)
}

/// The members of `own` after `patch`.
pub(crate) fn patched(own: &Value, patch: &Map<String, Value>) -> Value {
    let mut all = own.as_object().cloned().unwrap_or_default();
    for (name, value) in patch {
        if value.is_null() {
            all.remove(name);
        } else {
            all.insert(name.clone(), value.clone());
        }
    }
    Value::Object(all)
}

/// What sets the members of `patch` to what they are now.
pub(crate) fn reversal(own: &Value, patch: &Map<String, Value>) -> Map<String, Value> {
    let members = patch.keys().filter(|name| *name != "client_secret");
    members
        .map(|name| (name.clone(), own[name].clone()))
        .collect()
}

/// Whether no secret is replaced or goes by `patch`. Nobody can read one again.
fn keeps_secrets(subject: &Subject, own: &Value, patch: &Map<String, Value>) -> bool {
    match subject {
        Subject::Client { .. } => {
            let public = patch.get("token_endpoint_auth_method") == Some(&json!("none"));
            !public && !patch.contains_key("client_secret")
        }
        Subject::Realm { .. } => realm_page::HIDDEN
            .iter()
            .all(|name| own[*name].is_null() || !patch.contains_key(*name)),
    }
}

/// How a deleted record comes back, and what does not.
fn deletion(visit: &Visit, subject: &Subject, record: &Value) -> (Option<Act>, &'static str) {
    let t = visit.texts;
    let own = subject.own(record);
    match subject {
        // What a client that registered itself shows to change its record is gone.
        Subject::Client { .. } if record["owner"] == "client" => (None, t.no_client_back),
        Subject::Client { .. } => {
            let body = own.as_object().cloned().unwrap_or_default();
            (Some(Act::Create { body }), t.client_comes_back)
        }
        Subject::Realm { .. } if realm_page::HIDDEN.iter().any(|name| !own[*name].is_null()) => {
            (None, t.no_realm_back)
        }
        Subject::Realm { path } => {
            let body = Map::from_iter([
                ("path".to_owned(), path.as_str().into()),
                ("settings".to_owned(), own),
            ]);
            (Some(Act::Create { body }), "")
        }
    }
}

/// What the Admin API says is wrong, by field.
fn complaints(answer: &ApiAnswer) -> Vec<(String, String)> {
    let violations = answer.violations();
    let members = violations.into_iter().map(|(name, text)| {
        let name = name.strip_prefix("settings.").unwrap_or(&name).to_owned();
        (name, text)
    });
    let violations: Vec<_> = members.collect();
    if violations.is_empty() {
        vec![(String::new(), answer.message().to_owned())]
    } else {
        violations
    }
}

/// The patch of whole members: an object takes the place of the one before.
pub(crate) fn of_members(own: &Value, patch: Value) -> Map<String, Value> {
    let Value::Object(patch) = patch else {
        return Map::new();
    };
    let whole = |(name, value): (String, Value)| {
        let value = match (&own[&name], value) {
            (old @ Value::Object(_), value @ Value::Object(_)) => difference::merged(old, &value),
            (_, value) => value,
        };
        (name, value)
    };
    patch.into_iter().map(whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(value: Value) -> Map<String, Value> {
        value.as_object().cloned().expect("an object")
    }

    #[test]
    fn an_object_takes_the_place_of_the_one_before_with_what_stays() {
        let own = json!({"jwks": {"keys": [1], "x": 2}, "scope": "a"});
        let patch = json!({"jwks": {"keys": [3], "x": null}, "scope": null, "y": {"z": 1}});
        let patch = of_members(&own, patch);
        let expected = json!({"jwks": {"keys": [3]}, "scope": null, "y": {"z": 1}});
        assert_eq!(Value::Object(patch.clone()), expected);
        let after = json!({"jwks": {"keys": [3]}, "y": {"z": 1}});
        assert_eq!(patched(&own, &patch), after);
        let back = json!({"jwks": {"keys": [1], "x": 2}, "scope": "a", "y": null});
        assert_eq!(Value::Object(reversal(&own, &patch)), back);
    }

    #[test]
    fn what_holds_a_secret_that_nobody_can_read_is_not_undone() {
        let realm = Subject::Realm {
            path: "/a".to_owned(),
        };
        let own = json!({"ldap": {"urls": []}, "default_scope": "a"});
        let touches = |patch| keeps_secrets(&realm, &own, &members(patch));
        assert!(touches(json!({"default_scope": "b"})));
        assert!(touches(json!({"federation": []})), "there was none");
        assert!(!touches(json!({"ldap": null})));
    }
}
