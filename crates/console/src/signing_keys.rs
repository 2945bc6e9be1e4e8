//! The provider's signing keys: their age and use, and their rotation.

use axum::response::Response;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::accounts::{RecordPage, has_identity};
use super::difference::{self, Confirmation, Line};
use super::error::PageError;
use super::fact_table::cell;
use super::frame::{self, Frame};
use super::record;
use super::session::Role;
use super::table::{Button, Cell, Mark, Row, Table};
use super::trail::Trail;
use super::visit::Visit;

/// Where the list is.
const LIST: &str = "/console/identity/keys";
const ROTATE: &str = "/console/identity/keys/rotate";
const APPLY: &str = "/console/identity/keys/apply";
/// What the seal of a rotation is for.
const CONTEXT: &str = "keys";
/// Who rotates them: a key that is dropped ends every token.
pub(crate) const KEYS_CHANGED_BY: Role = Role::Owner;

/// Most keys that are shown.
const TARGET: &str = "/identity/keys?size=1000";

/// How keys follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Rotation {
    /// The successors are published, and sign when everybody has seen them.
    Announce,
    /// The successors sign at once.
    Switch,
    /// The successors sign at once, and the older keys are withdrawn.
    Replace,
}

/// A rotation that waits for a yes.
#[derive(Debug, Serialize, Deserialize)]
struct KeyChange {
    rotation: Rotation,
    /// The keys that it was shown for.
    seen: Vec<String>,
}

impl Rotation {
    fn of(name: &str) -> Option<Self> {
        match name {
            "announce" => Some(Self::Announce),
            "switch" => Some(Self::Switch),
            "replace" => Some(Self::Replace),
            _ => None,
        }
    }

    fn body(self) -> Value {
        json!({"now": self != Self::Announce, "drop_old": self == Self::Replace})
    }
}

async fn keys(visit: &Visit) -> Result<Vec<Value>, PageError> {
    let body = visit.api().get(TARGET).await?;
    Ok(body["data"].as_array().cloned().unwrap_or_default())
}

/// What is said of the state of a key.
fn state(visit: &Visit, key: &Value) -> (&'static str, Mark) {
    let t = visit.texts;
    match key["state"].as_str() {
        Some("active") => (t.key_active, Mark::Good),
        Some("next") => (t.key_next, Mark::Plain),
        _ => (t.key_old, Mark::Muted),
    }
}

/// `GET /identity/keys`.
pub(crate) async fn list(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let t = visit.texts;
    let now = visit.now_ms().div_euclid(1000);
    let mut keys = keys(&visit).await?;
    // The newest of each algorithm first.
    keys.sort_by_key(|key| {
        let created = key["created_at"].as_i64().unwrap_or_default();
        (record::text(&key["alg"]), std::cmp::Reverse(created))
    });
    let rows = keys.iter().map(|key| {
        let created = key["created_at"].as_i64().unwrap_or(now);
        let (use_of, mark) = state(&visit, key);
        let days = now.saturating_sub(created).div_euclid(86_400);
        Row::new(vec![
            Cell::code(record::text(&key["kid"])),
            Cell::new(record::text(&key["alg"])),
            Cell::new(use_of).marked(mark),
            Cell::new(format!("{days} {}", t.days)),
            cell("created_at", &key["created_at"]),
            cell("active_from", &key["active_from"]),
            cell("expires_at", &key["expires_at"]),
        ])
    });
    let columns = [
        "kid",
        "alg",
        t.key_use,
        t.age,
        "created_at",
        "active_from",
        "expires_at",
    ];
    let table = Table {
        caption: t.keys.to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows.collect(),
        empty: t.nothing,
        ..Table::default()
    };
    let has_successor = keys.iter().any(|key| key["state"] == "next");
    frame::show(&RecordPage {
        frame: Frame::of(&visit, t.keys, LIST),
        list: (t.realms, "/console/identity/realms".to_owned()),
        links: Vec::new(),
        buttons: if visit.may(KEYS_CHANGED_BY) && !keys.is_empty() {
            buttons(&visit, has_successor)
        } else {
            Vec::new()
        },
        done: if visit.query("done").is_empty() {
            ""
        } else {
            t.done
        },
        notes: vec![t.keys_lead.to_owned()],
        ask: None,
        tables: vec![table],
    })
}

fn buttons(visit: &Visit, has_successor: bool) -> Vec<Button> {
    let t = visit.texts;
    let all = [
        ("announce", t.key_announce, false),
        ("switch", t.key_switch, true),
        ("replace", t.key_replace, true),
    ];
    let offered = all
        .into_iter()
        .filter(|(name, ..)| *name != "announce" || !has_successor);
    let button = |(name, text, danger): (&str, &str, bool)| Button {
        text: text.to_owned(),
        label: text.to_owned(),
        address: ROTATE.to_owned(),
        fields: vec![("rotation".to_owned(), name.to_owned())],
        danger,
    };
    offered.map(button).collect()
}

/// `POST /identity/keys/rotate`: shows which keys will follow which.
pub(crate) async fn ask(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let rotation = Rotation::of(visit.field("rotation")).ok_or(PageError::Form)?;
    let t = visit.texts;
    let keys = keys(&visit).await?;
    let mut lines = Vec::new();
    let mut algorithms: Vec<String> = Vec::new();
    for key in &keys {
        let alg = record::text(&key["alg"]);
        let (use_of, _) = state(&visit, key);
        let after = match (rotation, key["state"].as_str()) {
            (Rotation::Announce, _) => use_of,
            (Rotation::Switch, Some("active" | "old")) => t.key_old,
            // It was to come, and another one comes in its place.
            (Rotation::Switch, _) | (Rotation::Replace, _) => t.key_withdrawn,
        };
        if after != use_of {
            lines.push(Line {
                name: format!("{alg} {}", record::text(&key["kid"])),
                before: use_of.to_owned(),
                after: after.to_owned(),
            });
        }
        let has_next = rotation == Rotation::Announce && key["state"] == "next";
        if !algorithms.contains(&alg) && !has_next {
            algorithms.push(alg);
        }
    }
    for alg in algorithms {
        let after = if rotation == Rotation::Announce {
            t.key_next
        } else {
            t.key_active
        };
        lines.push(Line {
            name: format!("{alg}: {}", t.key_new),
            before: record::text(&Value::Null),
            after: after.to_owned(),
        });
    }
    let change = KeyChange {
        rotation,
        seen: identifiers(&keys),
    };
    let confirmation = Confirmation {
        subject: t.keys.to_owned(),
        section: LIST.to_owned(),
        lines,
        address: APPLY.to_owned(),
        context: CONTEXT.to_owned(),
        back: LIST.to_owned(),
        is_deletion: false,
        note: match rotation {
            Rotation::Announce => t.key_announce_note,
            Rotation::Switch => t.key_switch_note,
            Rotation::Replace => t.key_replace_note,
        },
        conflict: None,
    };
    confirmation.show(&visit, &change, None)
}

fn identifiers(keys: &[Value]) -> Vec<String> {
    let mut all: Vec<_> = keys.iter().map(|key| record::text(&key["kid"])).collect();
    all.sort_unstable();
    all
}

/// `POST /identity/keys/apply`: rotates, if the keys are those that were shown.
pub(crate) async fn apply(visit: Visit) -> Result<Response, PageError> {
    has_identity(&visit)?;
    let change: KeyChange = difference::confirmed(&visit, CONTEXT)?;
    if identifiers(&keys(&visit).await?) != change.seen {
        return Err(PageError::changed(Trail::of_keys()));
    }
    let body = change.rotation.body();
    let target = "/identity/keys/rotate";
    let answer = visit.api().send(Method::POST, target, Some(&body)).await?;
    if !answer.status.is_success() {
        return Err(PageError::Api(answer));
    }
    Ok(frame::lead(&format!("{LIST}?done=rotation")))
}
