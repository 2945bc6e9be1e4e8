//! A user chooses another password.
//!
//! The one in force is asked for, and counted like a sign-in when it is wrong.
//! Everything that was begun with it ends; whoever asked gets a new session.

use super::error::Fault;
use super::login::{LoginError, login};
use super::password::NewPasswordError;
use super::password_policy::{Violation, own_texts};
use super::{Call, audit, ldap};
use crate::model::audit::{Actor, Kind};
use crate::model::secret::Secret;
use crate::model::user::{Owner, User};
use crate::store::StoreError;

/// Why the password stays.
#[derive(Debug)]
pub(super) enum ChangeError {
    /// The password in force is another one, or can't be tried now.
    Wrong,
    /// The new one can't be chosen.
    Refused(Vec<Violation>),
    /// It is kept elsewhere: in the configuration file, or in a directory.
    Elsewhere,
    /// It could not be done.
    Fault(Fault),
}

impl<F: Into<Fault>> From<F> for ChangeError {
    fn from(fault: F) -> Self {
        Self::Fault(fault.into())
    }
}

impl From<NewPasswordError> for ChangeError {
    fn from(error: NewPasswordError) -> Self {
        match error {
            NewPasswordError::Refused(wrong) => Self::Refused(wrong),
            NewPasswordError::Busy(busy) => Self::Fault(busy.into()),
        }
    }
}

/// Gives `user` the password `new`, if `current` is the one in force. Sessions
/// and refresh tokens of the user have ended when it returns; the user as it is
/// then may begin a session.
pub(super) async fn change(
    call: &Call,
    user: &User,
    current: &str,
    new: &str,
) -> Result<User, ChangeError> {
    let name = &user.user_name;
    let known = login(call, name, current).await;
    let known = known.map_err(|error| match error {
        LoginError::Failed | LoginError::Locked | LoginError::Deactivated => ChangeError::Wrong,
        LoginError::Fault(fault) => ChangeError::Fault(fault),
    })?;
    if known.id != user.id {
        return Err(ChangeError::Wrong);
    }
    let (state, realm) = (&call.state, &call.realm);
    let here = known.owner != Owner::File && known.password_hash.is_some();
    if !here || ldap::source(state, realm, Some(&known)).await?.is_some() {
        return Err(ChangeError::Elsewhere);
    }
    set(call, &known, &Secret::new(new)).await
}

/// Gives `user` the password `new`, if the realm's rules allow it.
async fn set(call: &Call, user: &User, new: &Secret) -> Result<User, ChangeError> {
    let (state, realm) = (&call.state, &call.realm);
    let place = state.hasher.enter()?;
    let rules = realm.password_rules().clone();
    let hash = state.hasher.hash_new(&place, new, rules, own_texts(user));
    let hash = hash.await?;
    drop(place);
    audit::user(user);
    audit::actor(Actor::User(user.id));
    let set = state.store.set_password(user.id, &hash, call.now_ms);
    let set = audit::with(state, Kind::PasswordChange, audit::as_it_is, set);
    match set.await {
        Err(StoreError::FileOwned(_)) => return Err(ChangeError::Elsewhere),
        Err(StoreError::Conflict(_)) => return Err(ChangeError::Wrong),
        set => set?,
    }
    state.read_revocations().await?;
    state.logouts.wake();
    let user = state.store.user(&realm.path, user.id).await?;
    user.ok_or(ChangeError::Wrong)
}
