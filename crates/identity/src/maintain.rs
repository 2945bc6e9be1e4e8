//! The provider's background task.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::State;
use super::config::RegistrationMode;
use super::error::Fault;
use super::login::settle;
use doorward_core::model::client::{ClientMetadata, SignAlg};

/// How often another process's changes are looked for.
const POLL: Duration = Duration::from_millis(200);

/// How long to wait for more changes once one was told of.
const TOGETHER: Duration = Duration::from_millis(20);

/// Polls between two beginnings of sweeping, and looks at the keys: a minute.
const ROUND: u32 = 300;

/// Records swept of each kind at once: writers must not wait long.
const SWEPT: u32 = 5_000;

/// How clients that register themselves have their tokens signed, as a rule: they
/// read the published keys before they say so.
const USUAL_ALGS: [SignAlg; 3] = [SignAlg::PS256, SignAlg::ES256, SignAlg::EdDSA];

/// Starts the task; it ends when the provider does.
pub(super) fn start(state: &Arc<State>) {
    let weak = Arc::downgrade(state);
    tokio::spawn(async move { run(weak).await });
    hash_declared(state);
    make_keys(state);
}

/// Makes the keys that realms and declared clients name, ahead of their first
/// use: a client may hold the published ones for a while, and takes no token
/// whose key is not among them.
pub(super) fn make_keys(state: &Arc<State>) {
    let live = state.live.load_full();
    // ID tokens are RS256 by default.
    let mut algs = BTreeSet::from([SignAlg::RS256]);
    for realm in live.realms() {
        algs.insert(realm.settings.access_token_signed_response_alg);
        algs.insert(realm.settings.id_token_signed_response_alg);
        if realm.settings.registration.mode != RegistrationMode::Disabled {
            algs.extend(USUAL_ALGS);
        }
    }
    for client in live.config.realms.values().flat_map(|realm| &realm.clients) {
        algs.extend(client.own_algs());
    }
    state.keys.want(algs);
    let weak = Arc::downgrade(state);
    tokio::spawn(async move {
        if let Some(state) = weak.upgrade()
            && let Err(error) = state.keys.make_wanted().await
        {
            tracing::error!(%error, "a key is missing; the next request tries again");
        }
    });
}

/// As [`make_keys`], for a client that was made or changed just now.
pub(super) fn make_keys_for(state: &Arc<State>, client: &ClientMetadata) {
    state.keys.want(client.own_algs());
    let state = Arc::clone(state);
    tokio::spawn(async move {
        if let Err(error) = state.keys.make_wanted().await {
            tracing::error!(%error, "a key is missing; the next request tries again");
        }
    });
}

/// Looks at the declared passwords one by one, ahead of their first use.
pub(super) fn hash_declared(state: &Arc<State>) {
    let state = Arc::clone(state);
    tokio::spawn(async move {
        let live = state.live.load_full();
        for realm in live.realms() {
            for name in realm.declared_users() {
                let user = state.store.user_by_name(&realm.path, name).await;
                let Ok(Some(user)) = user else { continue };
                if settle(&state, realm, &user).await.is_err() {
                    // The pool is busy with people; first use will do it.
                    return;
                }
            }
        }
    });
}

async fn run(weak: Weak<State>) {
    let mut seen = None;
    let mut healthy = true;
    let mut tick = 0_u32;
    let mut more_to_sweep = false;
    let Some(mut changes) = weak.upgrade().map(|state| state.store.changes()) else {
        return;
    };
    loop {
        let Some(state) = weak.upgrade() else { return };
        let result = poll(&state, &mut seen).await;
        if result.is_ok() {
            if tick.is_multiple_of(ROUND) {
                rotate_keys(&state).await;
                end_lapsed(&state).await;
                sweep_clients(&state, SWEPT).await;
                state.revocations.prune(state.clock.now_ms());
                more_to_sweep = true;
            }
            // The next poll goes on: no flood of records outruns that.
            more_to_sweep = more_to_sweep && sweep(&state, SWEPT).await;
        }
        if healthy != result.is_ok() {
            healthy = result.is_ok();
            match result {
                Ok(()) => tracing::info!("store answers again"),
                Err(error) => tracing::error!(%error, "store does not answer"),
            }
        }
        drop(state);
        tick = tick.wrapping_add(1);
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            // Of many that come together, one look takes in all.
            Ok(()) = changes.changed() => tokio::time::sleep(TOGETHER).await,
        }
    }
}

/// Notices what another process (the command line) changed. Only what was taken
/// in counts as seen: what could not be read is read again.
async fn poll(state: &State, seen: &mut Option<i64>) -> Result<(), Fault> {
    let version = state.store.data_version().await?;
    // The first time, too: something may have changed since the provider opened.
    if *seen != Some(version) {
        state.forget();
        state.read_realms().await?;
        state.read_revocations().await?;
        state.read_locks().await?;
        state.backchannel_logout.wake();
        match state.keys.reload().await {
            // It would not become usable by being read again.
            Err(Fault::Key(error)) => tracing::error!(%error, "keys of the store are not used"),
            outcome => outcome?,
        }
        *seen = Some(version);
    }
    Ok(())
}

/// Removes expired records, some of them; says whether there may be more.
async fn sweep(state: &State, limit: u32) -> bool {
    match state.store.sweep(state.clock.now_ms(), limit).await {
        Ok(gone) => gone >= u64::from(limit),
        Err(error) => {
            tracing::warn!(%error, "expired records stay for now");
            false
        }
    }
}

async fn end_lapsed(state: &State) {
    if let Err(error) = state.end_lapsed(state.clock.now_ms()).await {
        tracing::warn!(%error, "lapsed sessions stay for now");
    }
}

/// Notes which registered clients were used, and removes those that were not
/// for as long as their realm says. The other rounds take what is left.
pub(super) async fn sweep_clients(state: &State, limit: u32) {
    let now_ms = state.clock.now_ms();
    if let Err(error) = try_sweep_clients(state, now_ms, limit).await {
        tracing::warn!(%error, "unused clients stay for now");
    }
}

async fn try_sweep_clients(state: &State, now_ms: i64, limit: u32) -> Result<(), Fault> {
    let used = state.clients.take_used();
    if !used.is_empty() {
        state.store.touch_clients(&used, now_ms).await?;
    }
    let live = state.live.load_full();
    for realm in live.realms() {
        let settings = &realm.settings.registration;
        let life_ms = i64::from(settings.unused_lifetime) * 1000;
        if settings.mode == RegistrationMode::Disabled || life_ms == 0 {
            continue;
        }
        let before_ms = now_ms - life_ms;
        let store = &state.store;
        let gone = store.sweep_unused_clients(&realm.path, before_ms, limit);
        let gone = gone.await?;
        if gone > 0 {
            tracing::info!(realm = realm.path, gone, "unused clients were removed");
        }
    }
    Ok(())
}

async fn rotate_keys(state: &State) {
    let config = state.live().config.keys.clone();
    if let Err(error) = state.keys.rotate_due(&config).await {
        tracing::error!(%error, "signing keys could not be rotated");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::revocations::TokenDigests;
    use crate::testing::{Provider, START_MS};
    use doorward_core::model::grant::{StoredAccess, TokenHash};

    #[tokio::test]
    async fn what_could_not_be_read_is_read_again() {
        let provider = Provider::new().await;
        let state = &provider.identity.state;
        let mut seen = None;
        poll(state, &mut seen).await.expect("read");
        let first = seen;
        let damage = "INSERT INTO realms (path, owner, settings) VALUES ('/x', 'store', '?')";
        provider.damage(damage).await;
        let other = provider.other_process().await;
        other
            .revoke_grant("g", i64::MAX, None)
            .await
            .expect("revoked");
        poll(state, &mut seen).await.expect_err("a damaged realm");
        assert_eq!(seen, first, "what was not taken in counts as seen");
        let mend = "DELETE FROM realms WHERE path = '/x'";
        provider.damage(mend).await;
        poll(state, &mut seen).await.expect("read");
        assert!(state.revocations.has(&TokenDigests::of("g", "")));
    }

    #[tokio::test]
    async fn what_changed_before_the_first_look_is_seen() {
        let provider = Provider::new().await;
        let other = provider.other_process().await;
        other
            .revoke_grant("g", i64::MAX, None)
            .await
            .expect("revoked");
        let state = &provider.identity.state;
        poll(state, &mut None).await.expect("read");
        assert!(state.revocations.has(&TokenDigests::of("g", "")));
    }

    #[tokio::test]
    async fn sweeping_goes_on_until_nothing_is_left() {
        let provider = Provider::new().await;
        let expired = |number: u32| StoredAccess {
            hash: TokenHash::of(&number.to_string()),
            grant_id: String::new(),
            claims: Map::new(),
            expires_ms: START_MS - 1,
        };
        for number in 0..7 {
            let token = expired(number);
            let stored = provider.store.record_tokens(None, Some(&token), None);
            stored.await.expect("stored");
        }
        let mut sweeps = 1;
        while sweep(&provider.identity.state, 3).await {
            sweeps += 1;
        }
        // The background sweeps too, when it starts.
        assert!(sweeps <= 3, "{sweeps}");
        for number in 0..7 {
            let held = provider.store.access_token(expired(number).hash).await;
            assert_eq!(held.expect("a store"), None);
        }
    }
}
