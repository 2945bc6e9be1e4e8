//! The groups of a user as tokens tell them: the claim `groups`, for clients
//! that were granted the scope of that name; and the scopes that are for users of
//! certain groups alone (`scope_groups` of a realm).

use std::borrow::Cow;

use uuid::Uuid;

use super::State;
use super::clients::LiveClient;
use super::error::Fault;
use super::realm::Realm;
use doorward_core::model::user::Owner;

/// The scope, and the claim.
pub(super) const GROUPS: &str = "groups";

/// Most groups that are told. Who is in more is told none: some of them would
/// look like all.
const MAX: usize = 200;

/// Most bytes of their names: tokens travel in headers, which servers bound.
const BYTES_MAX: usize = 4 * 1024;

/// The names of the groups of a user, in ascending order, if the scopes allow
/// it. Read from the store at each time: nobody keeps what has been left.
pub(super) async fn groups_claim<'s>(
    state: &State,
    user: Option<Uuid>,
    mut scopes: impl Iterator<Item = &'s str>,
) -> Result<Option<Vec<String>>, Fault> {
    let Some(user) = user.filter(|_| scopes.any(|scope| scope == GROUPS)) else {
        return Ok(None);
    };
    let groups = state.store.memberships(&[user]).await?;
    if groups.len() > MAX {
        tracing::debug!(%user, groups = groups.len(), "too many groups to tell");
        return Ok(None);
    }
    Ok(Some(
        groups.into_iter().map(|(_, group)| group.name).collect(),
    ))
}

/// As [`groups_claim`], for a token that travels in a header: names that are too
/// long together are left out.
pub(super) async fn short_groups_claim<'s>(
    state: &State,
    user: Option<Uuid>,
    scopes: impl Iterator<Item = &'s str>,
) -> Result<Option<Vec<String>>, Fault> {
    let names = groups_claim(state, user, scopes).await?;
    if names.as_ref().is_none_or(|names| is_short(names)) {
        return Ok(names);
    }
    tracing::warn!(
        user = user.map(tracing::field::display),
        "the names of the user's groups are too long for an access token"
    );
    Ok(None)
}

/// Those of the scopes that may be granted now: to this user, or to the client itself.
/// Groups are read from the store at each time. A client that registered itself has no
/// such scope on its own behalf: an operator's client has those of its record.
pub(super) async fn permitted_scopes<'s>(
    state: &State,
    realm: &Realm,
    client: &LiveClient,
    user: Option<Uuid>,
    scopes: &'s [String],
) -> Result<Cow<'s, [String]>, Fault> {
    let wanted = &realm.settings.scope_groups;
    if !scopes.iter().any(|scope| wanted.contains_key(scope)) {
        return Ok(Cow::Borrowed(scopes));
    }
    let groups = match user {
        Some(user) => state.store.memberships(&[user]).await?,
        None if client.client.owner != Owner::Client => return Ok(Cow::Borrowed(scopes)),
        None => Vec::new(),
    };
    let is_in = |name: &String| groups.iter().any(|(_, group)| group.name == *name);
    let may = |scope: &&String| {
        let wanted = wanted.get(*scope);
        wanted.is_none_or(|names| names.iter().any(is_in))
    };
    Ok(scopes.iter().filter(may).cloned().collect())
}

fn is_short(names: &[String]) -> bool {
    names.iter().map(String::len).sum::<usize>() <= BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_more_than_four_kibibytes_are_in_no_access_token() {
        let names = |count, length| vec!["x".repeat(length); count];
        assert!(is_short(&names(0, 0)));
        assert!(is_short(&names(32, 128)));
        assert!(!is_short(&names(33, 128)));
        assert!(!is_short(&names(1, 4097)));
    }
}
