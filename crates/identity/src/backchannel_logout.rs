//! Telling clients that a session has ended (OpenID Connect Back-Channel Logout
//! 1.0).
//!
//! Whom to tell is in the store before anybody is told that the session has
//! ended; a task takes it from there. Who does not answer is tried again, with
//! growing pauses and across restarts, until it is of no use any more.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tokio::task::{self, JoinSet};
use url::Url;

use super::State;
use super::clients::LiveClient;
use super::error::Fault;
use super::issue;
use super::realm::Realm;
use doorward_core::model::session::Logout;
use doorward_net::http::outbound::{Bounds, OutboundError};
use doorward_net::telemetry::{Counter, Metrics};

/// Clients that are told at once: fewer than there are turns for requests, or
/// those that never answer would keep fetches of keys waiting.
const AT_ONCE: usize = 32;

/// A client that so many tellings are under way of gets no more.
const OF_ONE_CLIENT: usize = 8;

/// Seconds that a logout token is good for (§2.4).
const LIFE: i64 = 120;

/// What a logout token is for (§2.4).
const EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

/// Its media type (§2.4).
const TYP: &str = "logout+jwt";

/// How long to wait when the store did not answer.
const STORE_PAUSE: Duration = Duration::from_secs(10);

/// The way to the task that tells clients.
#[derive(Debug, Default)]
pub(super) struct BackchannelLogout {
    due: Arc<Notify>,
    metrics: OnceLock<Arc<Metrics>>,
}

impl BackchannelLogout {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// There may be somebody to be told.
    pub(super) fn wake(&self) {
        self.due.notify_one();
    }

    /// Counts from now on in these metrics.
    pub(super) fn report_to(&self, metrics: Arc<Metrics>) {
        // Set once, at the start.
        let _ = self.metrics.set(metrics);
    }

    fn counter(&self, outcome: &'static str) -> Counter {
        let metrics = self.metrics.get();
        metrics.map_or_else(Counter::default, |metrics| {
            metrics.backchannel_logouts(outcome)
        })
    }
}

impl Drop for BackchannelLogout {
    /// The task notices that the provider is gone.
    fn drop(&mut self) {
        self.due.notify_one();
    }
}

/// Why a client was not told.
#[derive(Debug, thiserror::Error)]
enum LogoutError {
    /// Nobody is there any more who wanted to know.
    #[error("the client wants to know no more")]
    Gone,
    /// The token could not be made, or the client not be looked up.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// It could not be reached.
    #[error(transparent)]
    Outbound(#[from] OutboundError),
    /// It answered that it did not do it.
    #[error("the client answered with status {0}")]
    Refused(StatusCode),
}

impl LogoutError {
    /// Whether the next try would end alike.
    fn is_final(&self) -> bool {
        match self {
            Self::Gone | Self::Outbound(OutboundError::Forbidden | OutboundError::Url) => true,
            Self::Refused(status) => {
                // Request Timeout, Too Early, Too Many Requests.
                status.is_client_error() && !matches!(status.as_u16(), 408 | 425 | 429)
            }
            Self::Fault(_) | Self::Outbound(_) => false,
        }
    }
}

/// Starts the task; it ends when the provider does.
pub(super) fn start(state: &Arc<State>) {
    let weak = Arc::downgrade(state);
    let due = Arc::clone(&state.backchannel_logout.due);
    tokio::spawn(run(weak, due));
}

/// What of the work is under way.
#[derive(Default)]
struct ActiveDeliveries {
    tasks: JoinSet<()>,
    /// The client of each task, by realm and identifier.
    clients_of: HashMap<task::Id, (String, String)>,
    /// How many of each client.
    clients: HashMap<(String, String), usize>,
}

impl ActiveDeliveries {
    fn free(&self) -> u32 {
        u32::try_from(AT_ONCE.saturating_sub(self.tasks.len())).unwrap_or_default()
    }

    fn busy(&self) -> Vec<(String, String)> {
        let busy = self.clients.iter();
        let busy = busy.filter(|(_, count)| **count >= OF_ONE_CLIENT);
        busy.map(|(client, _)| client.clone()).collect()
    }

    fn begin(&mut self, state: &Arc<State>, logout: Logout) {
        let key = (logout.realm.clone(), logout.client_id.clone());
        *self.clients.entry(key.clone()).or_default() += 1;
        let state = Arc::clone(state);
        let task = self
            .tasks
            .spawn(async move { deliver(&state, &logout).await });
        self.clients_of.insert(task.id(), key);
    }

    /// Waits until a task has ended, well or not; `None`: there is none.
    async fn next_ended(&mut self) -> Option<()> {
        let id = match self.tasks.join_next_with_id().await? {
            Ok((id, ())) => id,
            Err(broken) => broken.id(),
        };
        if let Some(key) = self.clients_of.remove(&id) {
            self.ended(&key);
        }
        Some(())
    }

    fn ended(&mut self, key: &(String, String)) {
        if let Some(count) = self.clients.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.clients.remove(key);
            }
        }
    }
}

async fn run(weak: Weak<State>, due: Arc<Notify>) {
    let mut under_way = ActiveDeliveries::default();
    loop {
        let Some(state) = weak.upgrade() else { return };
        let pause = take(&state, &mut under_way).await;
        drop(state);
        tokio::select! {
            () = due.notified() => {}
            Some(()) = under_way.next_ended() => {}
            () = sleep(pause) => {}
        }
    }
}

async fn sleep(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}

/// Begins what is due; says how long to wait for the next, if there is one.
async fn take(state: &Arc<State>, under_way: &mut ActiveDeliveries) -> Option<Duration> {
    let now_ms = state.clock.now_ms();
    let free = under_way.free();
    if free == 0 {
        return None;
    }
    let busy = under_way.busy();
    let taken = state.store.take_logouts(&busy, now_ms, free);
    let (due, next_ms) = match taken.await {
        Ok(taken) => taken,
        Err(error) => {
            tracing::error!(%error, "clients are not told of logouts for now");
            return Some(STORE_PAUSE);
        }
    };
    for logout in due {
        under_way.begin(state, logout);
    }
    let wait_ms = next_ms?.saturating_sub(now_ms).clamp(1_000, 60_000);
    u64::try_from(wait_ms).ok().map(Duration::from_millis)
}

/// Tells one client; what is done, or can't be, is put aside.
async fn deliver(state: &State, logout: &Logout) {
    let outcome = tell(state, logout).await;
    let over = state.clock.now_ms() >= logout.until_ms;
    let (client_id, realm) = (&logout.client_id, &logout.realm);
    let done = match &outcome {
        Ok(()) => "delivered",
        Err(LogoutError::Gone) => "dropped",
        Err(error) if over || error.is_final() => {
            tracing::error!(
                client_id,
                realm,
                tries = logout.tries,
                %error,
                "a client was not told of a logout, and is tried no more"
            );
            "dropped"
        }
        Err(error) => {
            // Once is enough to notice.
            if logout.tries == 1 {
                tracing::warn!(client_id, realm, %error, "a client is not told of a logout yet");
            }
            "failed"
        }
    };
    state.backchannel_logout.counter(done).inc();
    if done != "failed"
        && let Err(error) = state.store.settle_logout(logout.id).await
    {
        tracing::warn!(%error, client_id, "a client will be told of a logout again");
    }
}

async fn tell(state: &State, logout: &Logout) -> Result<(), LogoutError> {
    let realm = state.live().realm(&logout.realm).cloned();
    let realm = realm.ok_or(LogoutError::Gone)?;
    let store = &*state.store;
    let client = state.clients.find(store, &realm, &logout.client_id).await;
    let client = client.map_err(Fault::from)?.ok_or(LogoutError::Gone)?;
    let uri = client.client.metadata.backchannel_logout_uri.as_deref();
    let uri = uri.and_then(|uri| Url::parse(uri).ok());
    let uri = uri.ok_or(LogoutError::Gone)?;
    let token = token(state, &realm, &client, logout).await?;
    let form = [("logout_token", token.as_str())];
    let by = client.chosen_by();
    let answer = state
        .outbound
        .post_form(&uri, &form, HeaderMap::new(), by, Bounds::default())
        .await?;
    if answer.status.is_success() {
        Ok(())
    } else {
        Err(LogoutError::Refused(answer.status))
    }
}

/// The claims of a logout token (§2.4); it never has a nonce.
#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    sub: &'a str,
    aud: &'a str,
    iat: i64,
    exp: i64,
    jti: String,
    sid: &'a str,
    events: Map<String, Value>,
}

/// The logout token, signed as the client's ID tokens are.
async fn token(
    state: &State,
    realm: &Realm,
    client: &LiveClient,
    logout: &Logout,
) -> Result<String, Fault> {
    let iat = state.clock.now_ms().div_euclid(1000);
    let subject = client.subject_of(logout.user_id, &logout.user_name);
    let claims = Claims {
        iss: &realm.issuer,
        sub: &subject,
        aud: client.id(),
        iat,
        exp: iat + LIFE,
        jti: issue::handle(),
        sid: &logout.sid,
        events: Map::from_iter([(EVENT.to_owned(), json!({}))]),
    };
    let alg = client.id_token_alg(realm);
    match client.shared_signer(alg) {
        Some(signer) => Ok(signer.sign_as(TYP, &claims)?),
        None => Ok(state.keys.signer(alg).await?.sign_as(TYP, &claims)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_refuses_is_not_sent_again() {
        for (status, is_final) in [(400, true), (404, true), (429, false), (408, false)] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(
                LogoutError::Refused(status).is_final(),
                is_final,
                "{status}"
            );
        }
        assert!(!LogoutError::Refused(StatusCode::BAD_GATEWAY).is_final());
        assert!(LogoutError::from(OutboundError::Forbidden).is_final());
        let late = OutboundError::Timeout(Duration::from_secs(5));
        assert!(!LogoutError::from(late).is_final());
    }

    #[test]
    fn a_client_that_keeps_many_waiting_is_busy() {
        let mut under_way = ActiveDeliveries::default();
        let key = ("/".to_owned(), "dead".to_owned());
        under_way.clients.insert(key.clone(), OF_ONE_CLIENT);
        assert_eq!(under_way.busy(), std::slice::from_ref(&key));
        under_way.ended(&key);
        assert!(under_way.busy().is_empty());
        for _ in 0..OF_ONE_CLIENT {
            under_way.ended(&key);
        }
        assert!(under_way.clients.is_empty(), "nothing is left of it");
    }

    #[tokio::test]
    async fn a_task_that_breaks_off_leaves_its_client_free() {
        let mut under_way = ActiveDeliveries::default();
        let key = ("/".to_owned(), "app".to_owned());
        let task = under_way.tasks.spawn(std::future::pending());
        under_way.clients_of.insert(task.id(), key.clone());
        under_way.clients.insert(key, 1);
        task.abort();
        assert_eq!(under_way.next_ended().await, Some(()));
        assert!(under_way.clients.is_empty() && under_way.clients_of.is_empty());
    }
}
