//! Groups here that follow groups at another provider: who signs in comes into those
//! that it names for the user, and leaves the others.

use std::borrow::Cow;

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::config::LinkRules;
use crate::{State, audit, scim};
use doorward_core::clock::random_uuid;
use doorward_core::jose::claims::{find, scalar};
use doorward_core::model::audit::{Event, Kind, PendingAudit};
use doorward_core::model::group::{Group, MemberChange};
use doorward_core::model::query::{Filter, Op, Operand, UserQuery};
use doorward_core::model::user::schema::{GROUP, RecordError};
use doorward_core::model::user::{User, fold};
use doorward_store::{GroupChange, GroupOutcome, StoreError};

/// Most groups that follow those of one provider.
const MOST: usize = 200;

/// Groups here, by the names of groups there.
#[derive(Debug)]
pub(super) struct GroupMapping {
    claim: Vec<String>,
    /// The name there, and the one here.
    pairs: Vec<(String, String)>,
}

impl GroupMapping {
    /// The mapping that is written.
    ///
    /// # Errors
    /// The name that no group can have, or the claim that there can't be.
    pub(super) fn compile(rules: &LinkRules) -> Result<Self, RecordError> {
        let claim: Vec<_> = rules.groups_claim.split('.').map(str::to_owned).collect();
        if claim.iter().any(String::is_empty) {
            return Err(RecordError::new("groups_claim", "must name a claim"));
        }
        if rules.groups.len() > MOST {
            let text = format!("at most {MOST} groups");
            return Err(RecordError::new("groups", text));
        }
        let pair = |(there, here): (&String, &String)| {
            let record = Map::from_iter([("displayName".to_owned(), here.as_str().into())]);
            let named = scim::group_names(&record);
            let (here, _) = named.map_err(|error| error.below(&format!("groups.{there}")))?;
            Ok((there.clone(), here))
        };
        let pairs = rules.groups.iter().map(pair);
        let pairs = pairs.collect::<Result<_, RecordError>>()?;
        Ok(Self { claim, pairs })
    }

    /// The groups here.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.pairs.iter().map(|(_, here)| here.as_str())
    }

    /// Each group here once, and whether these claims bring the user into it. A claim
    /// that is not there names no group.
    fn read(&self, claims: &Map<String, Value>) -> Vec<(&str, bool)> {
        let said: Vec<Cow<'_, str>> = match find(claims, &self.claim) {
            Some(Value::Array(items)) => items.iter().filter_map(scalar).collect(),
            Some(single) => scalar(single).into_iter().collect(),
            None => Vec::new(),
        };
        let mut all: Vec<(&str, bool)> = Vec::new();
        for (there, here) in &self.pairs {
            let named = said.iter().any(|one| one == there);
            match all.iter_mut().find(|(known, _)| fold(known) == fold(here)) {
                Some((_, comes)) => *comes |= named,
                None => all.push((here, named)),
            }
        }
        all
    }

    /// Brings the memberships of a user to what the claims say. Groups that are not
    /// mapped stay as they are.
    pub(super) async fn follow(
        &self,
        members: &Membership<'_>,
        claims: &Map<String, Value>,
    ) -> Result<(), StoreError> {
        if self.pairs.is_empty() {
            return Ok(());
        }
        let store = &members.state.store;
        let current = store.memberships(&[members.user.id]).await?;
        for (name, comes) in self.read(claims) {
            let mut current = current.iter().map(|(_, group)| group);
            let is_in = current.find(|group| fold(&group.name) == fold(name));
            match (is_in, comes) {
                (None, true) => members.enter(name).await?,
                (Some(group), false) => members.change(group.id, false).await?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// The groups of a user, as they are changed.
#[derive(Clone, Copy)]
pub(super) struct Membership<'a> {
    pub(super) state: &'a State,
    pub(super) user: &'a User,
    pub(super) now_ms: i64,
}

impl Membership<'_> {
    /// Puts the user into the group of this name, which is made where there is none.
    async fn enter(&self, name: &str) -> Result<(), StoreError> {
        if let Some(group) = self.named(name).await? {
            return self.change(group.id, true).await;
        }
        let group = Group {
            id: random_uuid(),
            realm: self.user.realm.clone(),
            name: name.to_owned(),
            external_id: None,
            version: 1,
            created_ms: self.now_ms,
            updated_ms: self.now_ms,
        };
        let members = MemberChange {
            clear: false,
            steps: vec![(true, self.user.id)],
        };
        let insert = async |audit: Option<&PendingAudit>| {
            self.state.store.insert_group(&group, &members, audit).await
        };
        match self.write(Kind::GroupCreate, group.id, insert).await {
            // Somebody else has made it just now.
            Err(StoreError::Taken(_)) => match self.named(name).await? {
                Some(group) => self.change(group.id, true).await,
                None => Ok(()),
            },
            done => done,
        }
    }

    async fn named(&self, name: &str) -> Result<Option<Group>, StoreError> {
        let Some(path) = GROUP.find("displayName") else {
            return Ok(None);
        };
        let query = UserQuery {
            filter: Filter::Compare(path, Op::Equal, Operand::Text(fold(name))),
            sort: Vec::new(),
            after: None,
            skip: 0,
            limit: 1,
        };
        let store = &self.state.store;
        let found = store.groups_uncounted(&self.user.realm, &query).await?;
        Ok(found.into_iter().next())
    }

    /// Has the user come or go.
    async fn change(&self, id: Uuid, comes: bool) -> Result<(), StoreError> {
        let change = GroupChange {
            realm: self.user.realm.clone(),
            id,
            seen: None,
            name: None,
            external_id: None,
            members: MemberChange {
                clear: false,
                steps: vec![(comes, self.user.id)],
            },
            now_ms: self.now_ms,
        };
        let change = async |audit: Option<&PendingAudit>| {
            self.state.store.change_group(&change, audit).await
        };
        self.write(Kind::GroupUpdate, id, change).await
    }

    /// Does `act` together with the record of it. A group or user that went meanwhile
    /// needs no change.
    async fn write(
        &self,
        kind: Kind,
        id: Uuid,
        act: impl AsyncFnOnce(Option<&PendingAudit>) -> Result<GroupOutcome, StoreError>,
    ) -> Result<(), StoreError> {
        let user = self.user;
        let about = |event: Event| {
            let event = event.realm(&user.realm).user(user.id, &user.user_name);
            event.with("group", id.to_string().as_str())
        };
        let did = |outcome: &GroupOutcome| matches!(outcome, GroupOutcome::Done(_));
        audit::with_if(self.state, kind, about, act, did).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mapping(pairs: &[(&str, &str)], claim: &str) -> Result<GroupMapping, RecordError> {
        let pairs = pairs
            .iter()
            .map(|(there, here)| ((*there).to_owned(), (*here).to_owned()));
        GroupMapping::compile(&LinkRules {
            groups: pairs.collect(),
            groups_claim: claim.to_owned(),
            ..LinkRules::default()
        })
    }

    #[test]
    fn groups_there_bring_users_into_groups_here() {
        let pairs = [("a b", "staff"), ("ops", "Admins"), ("root", "admins")];
        let mapping = mapping(&pairs, "realm_access.roles").expect("a mapping");
        let read = |roles: Value| {
            let claims = json!({"realm_access": {"roles": roles}});
            let claims = claims.as_object().cloned().unwrap_or_default();
            let read = mapping.read(&claims);
            read.iter().filter(|(_, comes)| *comes).count()
        };
        assert_eq!(mapping.read(&Map::new()).len(), 2, "one name in two cases");
        assert_eq!(read(json!(["a b", "root"])), 2);
        assert_eq!(read(json!("a b")), 1, "a name may have blanks");
        for none in [
            json!(["A B", "a", "b"]),
            json!([]),
            json!(null),
            json!({"a b": 1}),
        ] {
            assert_eq!(read(none.clone()), 0, "{none}");
        }
    }

    #[test]
    fn a_name_that_no_group_can_have_is_refused() {
        assert!(mapping(&[("a", "")], "groups").is_err());
        assert!(mapping(&[("a", "b\u{202e}")], "groups").is_err());
        assert!(mapping(&[("a", "b")], "x..y").is_err());
        assert!(mapping(&[("a", "b")], "").is_err());
    }
}
