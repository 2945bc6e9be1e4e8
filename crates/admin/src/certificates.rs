//! The server names that certificates bring along: `snis` in their bodies.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value};
use uuid::Uuid;

use super::draft::{Draft, Key};
use super::error::ApiError;
use doorward_core::clock;
use doorward_core::model::schema::{Source, Violation, Violations};
use doorward_core::model::sni::Sni;
use doorward_gateway::control::Change;
use doorward_gateway::entities::{Entities, Kind, Origin};
use doorward_gateway::records;
use doorward_gateway::schemas::checks;

/// The server names that are to be a certificate's; all others that it has go.
#[derive(Debug, Default)]
pub(super) struct ServerNames(Vec<String>);

impl ServerNames {
    /// Takes `snis` out of the arguments for a record of this kind. `None`: the
    /// names stay as they are.
    ///
    /// # Errors
    /// What is no list of server names.
    pub(super) fn of(kind: Kind, draft: &mut Draft) -> Result<Option<Self>, ApiError> {
        if kind != Kind::Certificate {
            return Ok(None);
        }
        let names = match (draft.input.remove("snis"), draft.source) {
            (None, _) => return Ok(None),
            (Some(Value::Null), _) => Vec::new(),
            (Some(Value::Object(names)), _) if names.is_empty() => Vec::new(),
            (Some(Value::Array(names)), _) => names,
            // The older dialect: one text, with commas.
            (Some(Value::String(names)), Source::Form) => names
                .split(',')
                .map(str::trim)
                .filter(|name| !name.is_empty())
                .map(Value::from)
                .collect(),
            _ => return Err(Violations::of("snis", "expected a set").into()),
        };
        let mut checked: Vec<String> = Vec::new();
        let mut wrong = BTreeMap::new();
        for (position, name) in names.into_iter().enumerate() {
            let good = match &name {
                Value::String(name) => checks::sni(name).map(|()| name.clone()),
                _ => Err("expected a string".to_owned()),
            };
            match good {
                Ok(name) => checked.push(name),
                Err(message) => {
                    wrong.insert(position, Violation::from(message));
                }
            }
        }
        if !wrong.is_empty() {
            let mut violations = Violations::default();
            violations.put("snis", Violation::List(wrong));
            return Err(violations.into());
        }
        let mut seen = HashSet::new();
        if let Some(name) = checked
            .iter()
            .find(|name| !seen.insert(name.to_ascii_lowercase()))
        {
            return Err(Violations::of("snis", format!("{name} is duplicated")).into());
        }
        Ok(Some(Self(checked)))
    }

    /// The names of a certificate that a PUT under a server name makes or
    /// replaces: that name is one of them.
    ///
    /// # Errors
    /// If the key is no server name.
    pub(super) fn with_key(mut self, key: &Key) -> Result<Self, ApiError> {
        let Key::Name(name) = key else {
            return Ok(self);
        };
        checks::sni(name).map_err(|message| Violations::of("snis", message))?;
        if !self.0.iter().any(|other| other.eq_ignore_ascii_case(name)) {
            self.0.push(name.clone());
        }
        Ok(self)
    }

    /// The changes that give the names to a certificate, and take others from
    /// it.
    ///
    /// # Errors
    /// If a name is another certificate's.
    pub(super) fn assign(
        mut self,
        entities: &Entities,
        certificate: Uuid,
        now_ms: i64,
        shown: &mut Map<String, Value>,
        changes: &mut Vec<Change>,
    ) -> Result<(), ApiError> {
        let own = entities.snis.referring("certificate", certificate, None);
        for sni in own {
            let stays = |name: &String| name.eq_ignore_ascii_case(&sni.value.name);
            if !self.0.iter().any(stays) {
                changes.push(Change::delete::<Sni>(sni.value.id));
            }
        }
        for name in &self.0 {
            match entities.snis.by_key(name) {
                None => changes.push(made(name, certificate, now_ms)?),
                Some(sni) if sni.value.certificate.id == certificate => {}
                Some(sni) => {
                    let other = sni.value.certificate.id;
                    let message =
                        format!("{name} already associated with existing certificate '{other}'");
                    return Err(Violations::of("snis", message).into());
                }
            }
        }
        self.0.sort_unstable();
        shown.insert("snis".to_owned(), self.0.into());
        Ok(())
    }
}

fn made(name: &str, certificate: Uuid, now_ms: i64) -> Result<Change, ApiError> {
    let reference = Map::from_iter([("id".to_owned(), certificate.to_string().into())]);
    let mut record = Map::from_iter([
        ("name".to_owned(), name.into()),
        (Kind::Certificate.singular().to_owned(), reference.into()),
    ]);
    records::stamp::<Sni>(&mut record, clock::random_uuid(), now_ms);
    let sni = records::finish::<Sni>(record, Origin::Store)?;
    Ok(Change::put(sni))
}
