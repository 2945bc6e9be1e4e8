//! The provider's background task.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::State;
use super::error::Fault;
use super::login::settle;
use crate::model::client::SignAlg;

/// How often another process's changes are looked for.
const POLL: Duration = Duration::from_millis(200);

/// Polls between two rounds of sweeping and key rotation: a minute.
const ROUND: u32 = 300;

/// Records swept of each kind in a round.
const SWEPT: u32 = 10_000;

/// Starts the task; it ends when the provider does.
pub(super) fn start(state: &Arc<State>) {
    let weak = Arc::downgrade(state);
    tokio::spawn(async move { run(weak).await });
    hash_declared(state);
    let weak = Arc::downgrade(state);
    tokio::spawn(async move {
        // ID tokens are RS256 by default: have the key before it is asked for.
        if let Some(state) = weak.upgrade()
            && let Err(error) = state.keys.signer(SignAlg::RS256).await
        {
            tracing::error!(%error, "no RSA key yet; the next request tries again");
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
    loop {
        let Some(state) = weak.upgrade() else { return };
        let result = poll(&state, &mut seen).await;
        if tick.is_multiple_of(ROUND) && result.is_ok() {
            round(&state).await;
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
        tokio::time::sleep(POLL).await;
    }
}

/// Notices what another process (the command line) changed.
async fn poll(state: &State, seen: &mut Option<i64>) -> Result<(), Fault> {
    let version = state.store.data_version().await?;
    if seen.replace(version).is_some_and(|seen| seen != version) {
        state.clients.forget();
        state.keys.reload().await?;
    }
    Ok(())
}

async fn round(state: &State) {
    let now_ms = state.clock.now_ms();
    if let Err(error) = state.store.sweep(now_ms, SWEPT).await {
        tracing::warn!(%error, "expired records stay for now");
    }
    let config = state.live().config.keys.clone();
    if let Err(error) = state.keys.rotate_due(&config).await {
        tracing::error!(%error, "signing keys could not be rotated");
    }
}
