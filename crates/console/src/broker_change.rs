//! Changes of products, developers and applications of the token broker: the difference
//! first, then the change, and for an hour the way back.

use axum::response::Response;
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::api::ApiAnswer;
use super::broker::{self, BrokerKind};
use super::change::{self, Change};
use super::difference::{self, Conflict, Line, removal};
use super::error::PageError;
use super::registry_change::{Act, number, of_members, patched, reversal, version_of};
use super::session::Role;
use super::trail::Trail;
use super::visit::Visit;
use super::{broker_form, entities, form_base, frame, path, record};

/// Who changes records of the broker: they say which tokens reach what.
pub(crate) const BROKER_CHANGED_BY: Role = Role::Owner;

/// Members that the broker sets itself.
const STAMPS: [&str; 7] = [
    "owner",
    "created_at",
    "updated_at",
    "version",
    "declared_in",
    "declared_line",
    "tokens_revoked_ms",
];

/// A change of a record of the token broker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BrokerChange {
    /// The kind: its part of the Admin API's paths.
    plural: String,
    /// What the record is known by; "" of one that is to be made.
    key: String,
    act: Act,
    /// The change that this one takes back.
    pub(crate) undoes: Option<String>,
}

/// What is known of a change before it is made.
type Outlook = change::Outlook<Act>;

/// What of a record a person may change. A text that is empty is none.
pub(crate) fn own(record: &Value) -> Value {
    let mut record = record.clone();
    if let Value::Object(members) = &mut record {
        members.retain(|name, value| !STAMPS.contains(&name.as_str()) && *value != json!(""));
    }
    record
}

impl BrokerChange {
    pub(crate) fn new(kind: &BrokerKind, key: &str, act: Act) -> Self {
        Self {
            plural: kind.plural.to_owned(),
            key: key.to_owned(),
            act,
            undoes: None,
        }
    }

    fn kind(&self) -> Result<&'static BrokerKind, PageError> {
        BrokerKind::named(&self.plural)
    }

    fn target(&self, below: &[&str]) -> String {
        let own = (!self.key.is_empty()).then_some(self.key.as_str());
        let parts = [self.plural.as_str()].into_iter().chain(own);
        path::join("/broker", parts.chain(below.iter().copied()))
    }

    fn page(&self) -> String {
        path::join(&broker::address(&self.plural), [self.key.as_str()])
    }

    fn trail(&self) -> Trail {
        Trail::of_entity(vec![self.target(&[])])
    }

    /// The record, if it is still of this version.
    async fn of_version(&self, visit: &Visit, version: &str) -> Result<Value, PageError> {
        let record = current(visit, self.kind()?, &self.key).await?;
        if version_of(&record) == version {
            Ok(record)
        } else {
            Err(self.changed())
        }
    }

    /// The end of a save: the difference that it makes of the record, which is `now`, or
    /// the form again with what is wrong. Where somebody else has changed it meanwhile,
    /// that is shown as well.
    pub(crate) async fn save(
        visit: &Visit,
        (kind, key): (&BrokerKind, &str),
        now: &Value,
    ) -> Result<Response, PageError> {
        let version = version_of(now);
        let is_late = visit.field("version") != version;
        let base = form_base::of(visit);
        let mut change = Self::new(
            kind,
            key,
            Act::Delete {
                version: version.clone(),
            },
        );
        if is_late && base.is_null() {
            return Err(change.changed());
        }
        let seen = if is_late { base } else { own(now) };
        let patch = match broker_form::patch(visit, kind, &seen) {
            Ok(patch) if visit.field("view") == "json" => of_members(&seen, patch),
            Ok(patch) => patch.as_object().cloned().unwrap_or_default(),
            Err(errors) => {
                let form = broker_form::form(visit, kind, (key, &seen), visit.field("version"));
                return form.typed(visit).refused(errors);
            }
        };
        if is_late {
            let patch = difference::onto(&seen, &own(now), patch);
            change.act = Act::Patch { version, patch };
            let conflict = Conflict::find(visit, change.trail(), &seen, &own(now)).await;
            return change.ask_after(visit, conflict).await;
        }
        change.act = Act::Patch { version, patch };
        change.ask(visit).await
    }
}

/// The record, if it may be changed here.
pub(crate) async fn current(
    visit: &Visit,
    kind: &BrokerKind,
    key: &str,
) -> Result<Value, PageError> {
    let record = broker::record(visit, kind, key).await?;
    match record::declared_in(&record) {
        Some(file) => Err(PageError::FileOwned(file)),
        None => Ok(record),
    }
}

impl Change for BrokerChange {
    const CONTEXT: &'static str = "broker";
    const KIND: &'static str = "Broker";
    const APPLY: &'static str = "/console/broker-apply";
    const ROLE: Role = BROKER_CHANGED_BY;
    type Reversal = Act;

    fn undoes(&self) -> Option<&str> {
        self.undoes.as_deref()
    }

    fn request(&self) -> (Method, String, Option<Value>) {
        match &self.act {
            Act::Create { body } => {
                let body = Value::Object(body.clone());
                (Method::POST, self.target(&[]), Some(body))
            }
            Act::Patch { patch, version } => {
                let mut body = Value::Object(patch.clone());
                body["version"] = number(version);
                (Method::PATCH, self.target(&[]), Some(body))
            }
            Act::Delete { version } => {
                let query = [("version", version.as_str())];
                let target = path::with_query(&self.target(&[]), query);
                (Method::DELETE, target, None)
            }
            Act::Secret { version } => {
                let body = json!({"version": number(version)});
                (Method::POST, self.target(&["secret"]), Some(body))
            }
        }
    }

    async fn outlook(&self, visit: &Visit) -> Result<Outlook, PageError> {
        let (t, kind) = (visit.texts, self.kind()?);
        let name = self.key.clone();
        match &self.act {
            Act::Create { body } => {
                let shown = record::masked(&Value::Object(body.clone()), false);
                Ok(Outlook {
                    name: record::text(&shown[kind.columns[0]]),
                    lines: difference::lines(&Value::Null, &shown),
                    reversal: Some(Act::Delete {
                        version: String::new(),
                    }),
                    note: "",
                })
            }
            Act::Patch { version, patch } => {
                let own = own(&self.of_version(visit, version).await?);
                let shown = difference::patch(&own, &patched(&own, patch));
                let [before, after] = [&own, &shown].map(|one| record::masked(one, false));
                Ok(Outlook {
                    name,
                    lines: difference::lines(&before, &after),
                    reversal: Some(Act::Patch {
                        version: String::new(),
                        patch: reversal(&own, patch),
                    }),
                    note: "",
                })
            }
            Act::Delete { version } => {
                let own = own(&self.of_version(visit, version).await?);
                let is_application = kind.plural == "applications";
                let shown = record::masked(&own, false);
                let mut body = own.as_object().cloned().unwrap_or_default();
                // A key without a secret would stand for an application without one, whose
                // tokens anybody may renew: both are made anew.
                body.remove("consumer_key");
                Ok(Outlook {
                    name,
                    lines: difference::lines(&shown, &removal(&shown)),
                    reversal: Some(Act::Create { body }),
                    note: if is_application {
                        t.application_comes_back
                    } else {
                        ""
                    },
                })
            }
            Act::Secret { version } => {
                self.of_version(visit, version).await?;
                Ok(Outlook {
                    name,
                    lines: vec![Line {
                        name: "consumer_secret".to_owned(),
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
        self.kind().map_or("", |kind| kind.section)
    }

    fn back(&self) -> String {
        if self.key.is_empty() {
            broker::address(&self.plural)
        } else {
            self.page()
        }
    }

    fn is_deletion(&self) -> bool {
        matches!(self.act, Act::Delete { .. })
    }

    fn changed(&self) -> PageError {
        PageError::changed(self.trail())
    }

    async fn rebased(&self, visit: &Visit) -> Result<Option<Self>, PageError> {
        let mut change = self.clone();
        let Act::Patch { version, patch } = &mut change.act else {
            return Ok(None);
        };
        if difference::has_whole_members(patch) {
            return Ok(None);
        }
        *version = version_of(&current(visit, self.kind()?, &self.key).await?);
        Ok(Some(change))
    }

    fn reversed(&self, mut act: Act, answer: &ApiAnswer) -> Option<Self> {
        let kind = self.kind().ok()?;
        let key = match &act {
            Act::Create { .. } => String::new(),
            _ => record::text(&answer.body[kind.key]),
        };
        if let Act::Patch { version, .. } | Act::Delete { version } = &mut act {
            *version = version_of(&answer.body);
        }
        Some(Self::new(kind, &key, act))
    }

    async fn again(
        &self,
        visit: &Visit,
        answer: &ApiAnswer,
    ) -> Result<Option<Response>, PageError> {
        let is_wrong = matches!(
            answer.status,
            StatusCode::BAD_REQUEST | StatusCode::CONFLICT
        );
        if !is_wrong || self.undoes.is_some() {
            return Ok(None);
        }
        let kind = self.kind()?;
        let form = match &self.act {
            Act::Create { body } => {
                let typed = Value::Object(body.clone());
                broker_form::form(visit, kind, ("", &typed), "")
            }
            Act::Patch { patch, .. } => {
                let now = current(visit, kind, &self.key).await?;
                let own = own(&now);
                let typed = patched(&own, patch);
                let version = version_of(&now);
                broker_form::form(visit, kind, (&self.key, &typed), &version).of(&own)
            }
            _ => return Ok(None),
        };
        let mut errors = answer.violations();
        if errors.is_empty() {
            errors.push((String::new(), answer.message().to_owned()));
        }
        form.refused(errors).map(Some)
    }

    /// A secret that was made is shown once.
    fn done(&self, visit: &Visit, answer: &ApiAnswer) -> Result<Response, PageError> {
        if self.is_deletion() {
            return Ok(frame::lead(&broker::address(&self.plural)));
        }
        let kind = self.kind()?;
        let key = record::text(&answer.body[kind.key]);
        let page = Self::new(kind, &key, self.act.clone()).page();
        if let Some(secret) = answer.body["consumer_secret"].as_str() {
            let name = record::text(&answer.body["name"]);
            let id = record::text(&answer.body["consumer_key"]);
            let rows = [("consumer_key", id.as_str()), ("consumer_secret", secret)];
            return entities::shown_once(visit, kind.section, &name, &rows, page);
        }
        Ok(frame::lead(&path::with_query(&page, [("done", "change")])))
    }
}

/// `POST /broker-apply`: makes the change that was shown.
pub(crate) async fn apply(visit: Visit) -> Result<Response, PageError> {
    change::apply::<BrokerChange>(&visit).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_broker_sets_itself_is_none_of_a_persons() {
        let record = json!({"name": "a", "description": "", "owner": "store", "created_at": 1,
            "updated_at": 2, "version": 2000});
        assert_eq!(own(&record), json!({"name": "a"}));
    }

    #[test]
    fn a_key_is_one_part_of_its_path() {
        let kind = BrokerKind::named("products").expect("a kind");
        let act = Act::Create {
            body: serde_json::Map::new(),
        };
        let change = BrokerChange::new(kind, "../developers/x", act);
        assert_eq!(change.target(&[]), "/broker/products/..%2Fdevelopers%2Fx");
    }
}
