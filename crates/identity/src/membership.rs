//! The groups of a user as tokens tell them: the claim `groups`, for clients
//! that were granted the scope of that name.

use uuid::Uuid;

use super::State;
use super::error::Fault;

/// The scope, and the claim.
pub(super) const GROUPS: &str = "groups";

/// Most groups that are told. Who is in more is told none: some of them would
/// look like all.
const MAX: usize = 200;

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
