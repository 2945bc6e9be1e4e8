//! A user chooses another password.
//!
//! The one in force is asked for, and counted like a sign-in when it is wrong.
//! Everything that was begun with it ends; whoever asked gets a new session.

use super::error::Fault;
use super::login::{LoginError, login};
use super::password::NewPasswordError;
use super::password_policy::{Violation, own_texts};
use super::{Call, audit, ldap};
use doorward_core::model::audit::{Actor, Kind, PendingAudit};
use doorward_core::model::secret::Secret;
use doorward_core::model::user::name_place::SignInName;
use doorward_core::model::user::{Owner, User};
use doorward_store::StoreError;

/// Why the password stays.
#[derive(Debug)]
pub(super) enum ChangeError {
    /// The password in force is another one, or can't be tried now.
    Wrong,
    /// The new one can't be chosen.
    Refused(Vec<Violation>),
    /// It is kept elsewhere: in the configuration file, or in a directory.
    NotLocal,
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
    let name = SignInName::signed(&user.user_name);
    let known = login(call, &name, current).await;
    let known = known.map_err(|error| match error {
        LoginError::Failed
        | LoginError::Locked
        | LoginError::Confined
        | LoginError::Deactivated => ChangeError::Wrong,
        LoginError::Fault(fault) => ChangeError::Fault(fault),
    })?;
    if known.id != user.id {
        return Err(ChangeError::Wrong);
    }
    let (state, realm) = (&call.state, &call.realm);
    let here = known.owner != Owner::File && known.password_hash.is_some();
    if !here || ldap::source(state, realm, Some(&known)).await?.is_some() {
        return Err(ChangeError::NotLocal);
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
    // Hashing takes its time: the password may be another one by now, which the
    // one that was shown must not replace.
    let seen = user.password_hash.as_ref();
    let set = async |audit: Option<&PendingAudit>| {
        let store = &state.store;
        store
            .set_password(user.id, &hash, seen, call.now_ms, audit)
            .await
    };
    let set = audit::with(state, Kind::PasswordChange, audit::as_it_is, set);
    match set.await {
        Err(StoreError::FileOwned(_)) => return Err(ChangeError::NotLocal),
        Err(StoreError::Conflict(_)) => return Err(ChangeError::Wrong),
        set => set?,
    }
    state.read_revocations().await?;
    state.backchannel_logout.wake();
    let user = state.store.user(&realm.path, user.id).await?;
    user.ok_or(ChangeError::Wrong)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::HashingConfig;
    use crate::testing::{Provider, call, config};

    fn hash(password: &str, memory_kib: u32) -> Secret {
        let cheap = HashingConfig {
            memory_kib,
            passes: 1,
            ..HashingConfig::default()
        };
        super::super::hash_blocking(&Secret::new(password), &cheap).expect("a hash")
    }

    async fn provider(memory_kib: u32) -> Provider {
        let mut config = config();
        config["realms"]["/"]["settings"] = json!({"password_policy": {"min_score": 0}});
        let provider = Provider::with(config).await;
        let record = json!({"userName": "carol"});
        let record = record.as_object().expect("an object");
        let mut carol = super::super::new_user("/", record).expect("a user");
        carol.password_hash = Some(hash("correct horse", memory_kib));
        provider
            .store
            .insert_user(&carol, None)
            .await
            .expect("inserted");
        provider
    }

    #[tokio::test]
    async fn a_thiefs_change_does_not_undo_the_reset_that_came_between() {
        let provider = provider(8).await;
        let call = call(&provider);
        let name = SignInName::signed("carol");
        let known = login(&call, &name, "correct horse").await;
        let known = known.expect("the right password");
        let reset = hash("battery staple", 8);
        let store = &provider.store;
        let done = store.set_password(known.id, &reset, None, 1, None).await;
        done.expect("set");
        let late = set(&call, &known, &Secret::new("the thief's own")).await;
        assert!(matches!(late, Err(ChangeError::Wrong)), "{late:?}");
        let now = store.user("/", known.id).await.expect("read");
        assert_eq!(now.expect("carol").password_hash, Some(reset));
    }

    #[tokio::test]
    async fn a_password_is_changed_whose_hash_is_made_anew_on_the_way() {
        let provider = provider(64).await;
        let call = call(&provider);
        let carol = provider.store.user_by_name("/", "carol").await;
        let carol = carol.expect("read").expect("carol");
        let changed = change(&call, &carol, "correct horse", "battery staple").await;
        assert!(changed.is_ok(), "{changed:?}");
    }
}
