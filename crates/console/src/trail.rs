//! Who changed a record, as the audit log tells: for those whose form is out of date.

use serde_json::Value;

use super::{path, record};

/// Records of the log that are looked through.
const LOOKED_AT: &str = "200";
/// Changes that are told.
const TOLD: usize = 3;

/// Where the audit log has the changes of a record.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trail {
    /// Which kinds of events they are.
    kinds: &'static str,
    realm: String,
    user: String,
    client: String,
    /// What they were done to; none: all that fit the rest.
    targets: Vec<String>,
    /// The newest changes: when, and who did what.
    pub(crate) found: Vec<(String, String)>,
}

impl Trail {
    /// Of an entity, by the paths that the Admin API has for it.
    pub(crate) fn of_entity(targets: Vec<String>) -> Self {
        let bare = |target: String| target.trim_start_matches('/').to_owned();
        Self {
            kinds: "entity.update,entity.create,entity.delete,entity.import",
            targets: targets.into_iter().map(bare).collect(),
            ..Self::default()
        }
    }

    pub(crate) fn of_user(id: &str) -> Self {
        Self {
            kinds: "user.update,user.create,user.delete,user.import,password.change",
            user: id.to_owned(),
            ..Self::default()
        }
    }

    pub(crate) fn of_group(id: &str) -> Self {
        Self {
            kinds: "group.update,group.create,group.delete",
            targets: vec![format!("groups/{id}")],
            ..Self::default()
        }
    }

    pub(crate) fn of_client(id: &str, realm: &str) -> Self {
        Self {
            kinds: "client.update,client.secret,client.create,client.delete",
            client: id.to_owned(),
            realm: realm.to_owned(),
            ..Self::default()
        }
    }

    pub(crate) fn of_realm(path: &str) -> Self {
        Self {
            kinds: "realm.update,realm.create,realm.delete",
            realm: path.to_owned(),
            ..Self::default()
        }
    }

    pub(crate) fn of_keys() -> Self {
        Self {
            kinds: "key.rotate",
            ..Self::default()
        }
    }

    /// What the audit log is asked; `None`: nothing is known of the record.
    pub(crate) fn target(&self) -> Option<String> {
        let query = [
            ("kind", self.kinds),
            ("outcome", "success"),
            ("size", LOOKED_AT),
            ("realm", &self.realm),
            ("user", &self.user),
            ("client", &self.client),
        ];
        (!self.kinds.is_empty()).then(|| path::with_query("/audit", query))
    }

    /// Finds the newest changes in what the audit log answers.
    pub(crate) fn read(&mut self, body: &Value) {
        let records = body["data"].as_array().into_iter().flatten();
        let found = records.filter(|one| self.leads_to(one)).take(TOLD);
        self.found = found.map(told).collect();
    }

    /// Whether a record of the audit log is of a change that is looked for.
    fn leads_to(&self, one: &Value) -> bool {
        let target = one["target"].as_str();
        // An import may have changed anything.
        self.targets.is_empty()
            || one["event"] == "entity.import"
            || target.is_some_and(|target| self.targets.iter().any(|own| own == target))
    }
}

/// Who did what a record tells of.
pub(crate) fn who(one: &Value) -> String {
    let (actor, details) = (&one["actor"], &one["details"]);
    let mut who = record::text(&actor["type"]);
    // Of a person the name says more than the identifier.
    let whom = match &actor["name"] {
        Value::Null => [&actor["id"], &Value::Null],
        name => [name, &actor["realm"]],
    };
    for more in whom.into_iter().chain([&details["via"]]) {
        if let Some(more) = more.as_str() {
            who = format!("{who} {more}");
        }
    }
    who
}

/// When it was, and who did what.
fn told(one: &Value) -> (String, String) {
    let mut text = format!("{}: {}", who(one), record::text(&one["event"]));
    if let Some(members) = one["details"]["members"].as_array() {
        let names: Vec<_> = members.iter().map(record::text).collect();
        text = format!("{text} ({})", names.join(", "));
    }
    (record::text(&one["time"]), text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_is_told_by_its_record_and_of_its_record_alone() {
        let trail = Trail::of_entity(vec!["/services/web".to_owned()]);
        let event = |target: &str| json!({"event": "entity.update", "target": target});
        assert!(trail.leads_to(&event("services/web")));
        assert!(!trail.leads_to(&event("services/website")));
        assert!(trail.leads_to(&json!({"event": "entity.import"})));
        let one = json!({"time": "T", "event": "client.update",
            "actor": {"type": "user", "id": "7", "name": "olga", "realm": "/"},
            "details": {"via": "console", "members": ["scope", "redirect_uris"]}});
        let told = told(&one);
        assert_eq!(told.0, "T");
        assert_eq!(
            told.1,
            "user olga / console: client.update (scope, redirect_uris)"
        );
    }
}
