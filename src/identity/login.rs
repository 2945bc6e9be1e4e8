//! Checking a user's name and password: the one way in for every surface.

use super::error::Fault;
use super::password::{PASSWORD_MAX, Place};
use super::realm::Realm;
use super::records::USER_NAME_MAX;
use super::{Call, State};
use crate::http::ClientInfo;
use crate::model::secret::Secret;
use crate::model::user::{User, fold};

/// The user whom an address rule may confine (interface 5.5).
const ADMIN: &str = "amadmin";

/// Whether this name is the administrator's and the request comes from an
/// address that the administrator may not use.
pub(super) fn is_confined(call: &Call, name: &str) -> bool {
    let Some(networks) = &call.realm.admin_networks else {
        return false;
    };
    let allowed = call
        .parts
        .extensions
        .get::<ClientInfo>()
        .is_some_and(|client| {
            let address = client.addr.ip().to_canonical();
            networks.iter().any(|network| network.contains(&address))
        });
    !allowed && fold(name) == ADMIN
}

/// Why nobody is signed in.
#[derive(Debug)]
pub(super) enum LoginError {
    /// Unknown name or wrong password: nobody is told which.
    Failed,
    /// Too many wrong passwords; said of unknown names alike.
    Locked,
    /// The password is right and the user deactivated.
    Deactivated,
    /// It could not be checked.
    Fault(Fault),
}

impl<F: Into<Fault>> From<F> for LoginError {
    fn from(fault: F) -> Self {
        Self::Fault(fault.into())
    }
}

/// The user with this name and password.
///
/// Unknown names cost as much as known ones, and count towards their lock.
pub(super) async fn login(
    state: &State,
    realm: &Realm,
    name: &str,
    password: &str,
    now_ms: i64,
) -> Result<User, LoginError> {
    if name.len() > USER_NAME_MAX || password.len() > PASSWORD_MAX {
        return Err(LoginError::Failed);
    }
    let key = fold(name);
    if state.lockout.is_locked(&realm.path, &key, now_ms) {
        return Err(LoginError::Locked);
    }
    // First a place in the queue: names that are not even looked at must not
    // crowd out those that are counted.
    let place = state.hasher.enter()?;
    let config = state.live().config.lockout.clone();
    let attempt = state.lockout.begin(&config, &realm.path, &key, now_ms);
    let Ok(attempt) = attempt.await else {
        return Err(LoginError::Locked);
    };
    let user = state.store.user_by_name(&realm.path, name).await?;
    let hash = match &user {
        Some(user) => known_hash(state, realm, user, &key, &place).await?,
        None => None,
    };
    let right = state.hasher.verify(&place, Secret::new(password), hash);
    let right = right.await?;
    let Some(user) = user.filter(|_| right) else {
        attempt.failed(&config, state.clock.now_ms());
        return Err(LoginError::Failed);
    };
    attempt.succeeded();
    if !user.active {
        return Err(LoginError::Deactivated);
    }
    Ok(user)
}

/// The hash of the user's password: the store's, or that of the declared one,
/// which is made on first need if the background has not come to it.
async fn known_hash(
    state: &State,
    realm: &Realm,
    user: &User,
    key: &str,
    place: &Place<'_>,
) -> Result<Option<Secret>, LoginError> {
    let Some(declared) = realm.password(key) else {
        return Ok(user.password_hash.clone());
    };
    let Some(secret) = &declared.secret else {
        return Ok(None);
    };
    let made = declared
        .hash
        .get_or_try_init(|| state.hasher.hash(place, secret));
    Ok(Some(made.await?.clone()))
}
