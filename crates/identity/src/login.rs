//! Checking a user's name and password: the one way in for every surface.

use super::error::Fault;
use super::locks::counted_address;
use super::password::{PASSWORD_MAX, QueueSlot};
use super::password_policy::prepared_secret;
use super::realm::Realm;
use super::{Call, State};
use super::{audit, ldap};
use doorward_core::model::audit::Kind;
use doorward_core::model::secret::Secret;
use doorward_core::model::user::User;
use doorward_core::model::user::name as user_name;
use doorward_core::model::user::name_place::SignInName;
use doorward_net::http::ClientInfo;

/// The user whom an address rule may confine (interface 5.5).
const ADMIN: &str = "amadmin";

/// Whether this is the administrator, who may name sessions of others: the
/// user of that name in the top-level realm.
pub(super) fn is_admin(user: &User) -> bool {
    user.realm == "/" && user_name::key(&user.user_name) == ADMIN
}

/// Whether this name is the administrator's, however it is spelt.
pub(super) fn is_admin_name(name: &str) -> bool {
    user_name::key(name) == ADMIN
}

/// Whether this name is the administrator's and the request comes from an
/// address that the administrator may not use.
pub(super) fn is_confined(call: &Call, name: &str) -> bool {
    let Some(networks) = call.realm.admin_networks() else {
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
    !allowed && user_name::key(name) == ADMIN
}

/// Why nobody is signed in.
#[derive(Debug)]
pub(super) enum LoginError {
    /// Unknown name or wrong password: nobody is told which.
    Failed,
    /// Too many wrong passwords; said of unknown names alike.
    Locked,
    /// The administrator may not sign in from this address.
    Confined,
    /// The password is right and the user deactivated.
    Deactivated,
    /// It could not be checked.
    Fault(Fault),
}

impl LoginError {
    /// What the audit log calls it.
    fn reason(&self) -> &'static str {
        match self {
            Self::Failed => "credentials",
            Self::Locked => "locked",
            Self::Confined => "address",
            Self::Deactivated => "deactivated",
            Self::Fault(Fault::Busy(_)) => "busy",
            Self::Fault(Fault::Directory) => "directory",
            Self::Fault(_) => "server_error",
        }
    }
}

impl<F: Into<Fault>> From<F> for LoginError {
    fn from(fault: F) -> Self {
        Self::Fault(fault.into())
    }
}

/// The user with this name and password.
///
/// Unknown names cost as much as known ones, and count towards their lock.
/// The administrator is refused from other addresses before the password is
/// looked at, and also where a directory knows them by another name.
pub(super) async fn login(
    call: &Call,
    name: &SignInName,
    password: &str,
) -> Result<User, LoginError> {
    let state = &call.state;
    let done = if is_confined(call, name.as_str()) {
        Err(LoginError::Confined)
    } else {
        check(call, name.as_str(), password).await
    };
    let done = match done {
        Ok(user) if is_confined(call, &user.user_name) => Err(LoginError::Confined),
        done => done,
    };
    if let Some(metrics) = state.metrics.get() {
        let outcome = done.as_ref().map_or_else(LoginError::reason, |_| "success");
        metrics.sign_ins(outcome).inc();
    }
    if let Err(error) = &done {
        let reason = error.reason();
        audit::because(reason);
        audit::note(state, Kind::SessionBegin, |event| event.failed(reason));
    }
    done
}

async fn check(call: &Call, name: &str, password: &str) -> Result<User, LoginError> {
    let (state, realm, now_ms) = (&call.state, &call.realm, call.now_ms);
    if name.len() > user_name::MAX || password.len() > PASSWORD_MAX {
        return Err(LoginError::Failed);
    }
    let key = user_name::key(name);
    let who = (&*realm.path, &*key);
    let address = counted_address(call);
    if state.is_locked(who, address, now_ms) {
        return Err(LoginError::Locked);
    }
    // First a place in the queue: names that are not even looked at must not
    // crowd out those that are counted.
    let slot = state.hasher.enter()?;
    let attempts = state.begin_attempts(who, address, now_ms);
    let Ok(attempts) = slot.wait(attempts).await? else {
        return Err(LoginError::Locked);
    };
    let user = state.store.user_by_name(&realm.path, name).await?;
    if let Some(user) = &user {
        audit::user(user);
    }
    let found = user.as_ref().map(|user| user.id);
    let password = Secret::new(password);
    let user = match ldap::source(state, realm, user.as_ref()).await? {
        Some(directory) => {
            let asked = (name, user.as_ref());
            // Nobody learns by the clock whose password is known where.
            let nobodys = state.hasher.verify(&slot, password.clone(), None);
            let there = ldap::user(state, (realm, directory), asked, &password, now_ms);
            let (there, nobodys) = tokio::join!(there, nobodys);
            nobodys?;
            there?
        }
        None => {
            let hash = match &user {
                Some(user) => known_hash(state, realm, user, &slot).await?,
                None => None,
            };
            let right = state
                .hasher
                .verify_user(&slot, who, password.clone(), hash)
                .await?;
            user.filter(|_| right)
        }
    };
    let Some(mut user) = user else {
        let known = found.map(|id| id.to_string());
        state.failed(attempts, known, state.clock.now_ms()).await;
        return Err(LoginError::Failed);
    };
    attempts.succeeded();
    if !user.active {
        return Err(LoginError::Deactivated);
    }
    if let Some(new) = bring_to_cost(state, realm, &user, &password, &slot).await {
        user.password_hash = Some(new);
    }
    Ok(user)
}

/// Whether what let `user` sign in at `realm` still does. To be asked once what
/// the sign-in gave is stored: a change of the password ends what it finds, and
/// would not find what is stored a moment later.
pub(super) async fn still_stands(state: &State, realm: &Realm, user: &User) -> Result<bool, Fault> {
    let key = user_name::key(&user.user_name);
    let live = state.live.load_full();
    let now = live
        .realm(&realm.path)
        .and_then(|realm| realm.password(&key));
    let declared = match (realm.password(&key), now) {
        (None, None) => true,
        (Some(then), Some(now)) => match (&then.secret, &now.secret) {
            (Some(then), Some(now)) => then.matches(now.expose()),
            (then, now) => then.is_none() && now.is_none(),
        },
        _ => false,
    };
    let found = state.store.user(&realm.path, user.id).await?;
    Ok(declared && found.is_some_and(|found| found.active && found.version == user.version))
}

/// Hashes the right password again where its hash has another cost than new
/// ones; gives the new hash, if it is in force. It can wait for the next time.
async fn bring_to_cost(
    state: &State,
    realm: &Realm,
    user: &User,
    password: &Secret,
    slot: &QueueSlot<'_>,
) -> Option<Secret> {
    let old = user.password_hash.as_ref();
    let old = old.filter(|old| !state.hasher.is_current(old));
    if old.is_none() || realm.password(&user_name::key(&user.user_name)).is_some() {
        return None;
    }
    let password = prepared_secret(password);
    let new = state.hasher.hash(slot, &password).await.ok()?;
    let replaced = state
        .store
        .replace_hash(user.id, old, Some(&new), false, state.clock.now_ms());
    match replaced.await {
        Ok(replaced) => replaced.then_some(new),
        Err(error) => {
            tracing::warn!(%error, "a password keeps its old hash for now");
            None
        }
    }
}

/// The hash of the user's password: the store's, or that of the declared one,
/// which is made on first need if the background has not come to it.
async fn known_hash(
    state: &State,
    realm: &Realm,
    user: &User,
    slot: &QueueSlot<'_>,
) -> Result<Option<Secret>, Fault> {
    let Some(declared) = realm.password(&user_name::key(&user.user_name)) else {
        return Ok(user.password_hash.clone());
    };
    let old = user.password_hash.as_ref();
    let Some(secret) = &declared.secret else {
        if old.is_some() {
            replace(state, user, None, true).await?;
        }
        return Ok(None);
    };
    let made = declared
        .hash
        .get_or_try_init(|| declared_hash(state, user, secret, slot));
    Ok(Some(made.await?.clone()))
}

/// The hash of a declared password. The store keeps it, to know after a restart
/// whether the password is another one: then what was begun with the old one
/// ends, as it does when the command line sets a password.
async fn declared_hash(
    state: &State,
    user: &User,
    secret: &Secret,
    slot: &QueueSlot<'_>,
) -> Result<Secret, Fault> {
    let old = user.password_hash.as_ref();
    let same = match old {
        Some(old) => {
            let verdict = state.hasher.verify(slot, secret.clone(), Some(old.clone()));
            verdict.await?
        }
        None => false,
    };
    if let Some(old) = old.filter(|old| same && state.hasher.is_current(old)) {
        return Ok(old.clone());
    }
    let prepared = prepared_secret(secret);
    let new = state.hasher.hash(slot, &prepared).await?;
    replace(state, user, Some(&new), !same).await?;
    Ok(new)
}

/// Puts a hash in the place of the one that was read; with `ends`, what was
/// begun with the old password ends, and this process knows it.
async fn replace(
    state: &State,
    user: &User,
    new: Option<&Secret>,
    ends: bool,
) -> Result<(), Fault> {
    let old = user.password_hash.as_ref();
    let now_ms = state.clock.now_ms();
    let replaced = state.store.replace_hash(user.id, old, new, ends, now_ms);
    if replaced.await? && ends && old.is_some() {
        state.read_revocations().await?;
        state.backchannel_logout.wake();
    }
    Ok(())
}

/// Makes sure that nothing is in force any more that was begun with an earlier
/// password of `user`. What was read of the store before may have ended.
pub(super) async fn settle(state: &State, realm: &Realm, user: &User) -> Result<(), Fault> {
    audit::user(user);
    let Some(declared) = realm.password(&user_name::key(&user.user_name)) else {
        return Ok(());
    };
    let settled = match declared.secret {
        Some(_) => declared.hash.initialized(),
        None => user.password_hash.is_none(),
    };
    if !settled {
        let slot = state.hasher.enter()?;
        known_hash(state, realm, user, &slot).await?;
    }
    Ok(())
}
