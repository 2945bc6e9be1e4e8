//! The brake on guesses of clients' secrets; see [`doorward_net::http::guess_limit`].

use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};

use super::{ClientCredentials, ClientProof};
use crate::error::OAuthError;
use crate::locks::counted_address;
use crate::network::network;
use crate::{Call, State};
use doorward_core::model::client::AuthMethod;
use doorward_core::model::lockout::{LockKind, StoredLock};
use doorward_net::http::guess_limit::{GuessAttempt, Pair, TooManyGuesses};

/// Seconds after which a client whose secret was not looked at may try again.
const AGAIN_SECONDS: HeaderValue = HeaderValue::from_static("1");

impl ClientProof<'_> {
    /// Whether somebody can arrive at it by trying: a secret, or a signature with
    /// one.
    fn is_guessable(&self) -> bool {
        match self {
            Self::Basic(_) | Self::Post(_) => true,
            Self::Assertion(assertion) => assertion.method() == AuthMethod::ClientSecretJwt,
            Self::None => false,
        }
    }
}

/// Begins to look at what a request proves itself with.
pub(super) fn look<'c>(
    call: &'c Call,
    credentials: &ClientCredentials<'_>,
) -> Result<GuessAttempt<'c>, OAuthError> {
    let address = counted_address(call).filter(|_| credentials.proof.is_guessable());
    let state = &*call.state;
    let pair = address.map(|address| {
        let realm = &call.realm.path;
        state.secrets.pair(realm, &credentials.id, address)
    });
    let config = state.live().config.lockout.per_client;
    let look = state.secrets.look(config, pair, call.now_ms);
    look.map_err(|TooManyGuesses| too_many())
}

/// The secret was wrong: counts it, and answers with the brake's delay if it
/// holds. Whether this one was looked at is not said then.
pub(super) async fn wrong(
    call: &Call,
    look: GuessAttempt<'_>,
    credentials: &ClientCredentials<'_>,
    is_known: bool,
) -> Option<OAuthError> {
    let wrong = look.wrong(call.now_ms);
    if let Some(until_ms) = wrong.begun_ms {
        begun(call, credentials, is_known, until_ms).await;
    }
    let braked = wrong.braked;
    wrong.pause().await;
    braked.then(too_many)
}

fn too_many() -> OAuthError {
    let text = "Too many wrong secrets of this client came from this address";
    OAuthError {
        status: StatusCode::TOO_MANY_REQUESTS,
        headers: vec![(RETRY_AFTER, AGAIN_SECONDS)],
        ..OAuthError::bad("temporarily_unavailable", text)
    }
}

/// Tells of a brake that begins. What strangers type may be a secret, so only
/// identifiers of clients are told.
async fn begun(call: &Call, credentials: &ClientCredentials<'_>, is_known: bool, until_ms: i64) {
    let (Some(address), true) = (counted_address(call), is_known) else {
        return;
    };
    let key = format!("{}\0{}", credentials.id, network(address));
    let lock = StoredLock {
        id: LockKind::Client.id(&call.realm.path, &key),
        kind: LockKind::Client,
        realm: call.realm.path.clone(),
        subject: Some(format!("{address} {}", credentials.id)),
        until_ms,
        locks: 1,
        set_ms: call.now_ms,
    };
    call.state.tell_lock(lock).await;
}

impl State {
    /// Takes in what a node has told of a brake.
    pub(crate) fn take_in_brake(&self, lock: &StoredLock) {
        if let Some(pair) = self.pair_of(lock) {
            self.secrets.take_in(pair, lock.until_ms, lock.set_ms);
        }
    }

    fn pair_of(&self, lock: &StoredLock) -> Option<Pair> {
        let (address, client_id) = lock.subject.as_deref()?.split_once(' ')?;
        let address = address.parse().ok()?;
        Some(self.secrets.pair(&lock.realm, client_id, address))
    }
}
