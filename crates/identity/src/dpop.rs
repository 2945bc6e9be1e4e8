//! Proofs of possession of requests (RFC 9449): whose key, for this request,
//! now, and for the first time.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::{digest, hmac};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::Value;
use subtle::ConstantTimeEq;
use url::Url;

use super::clients::LiveClient;
use super::error::{Challenge, OAuthError};
use super::password::Busy;
use super::{Call, bearer, request_path};
use doorward_core::jose::claims::{CLOCK_SKEW, time};
use doorward_core::jose::dpop;
use doorward_core::model::client::SignAlg;
use doorward_core::model::grant::TokenHash;
use doorward_store::StoreError;

/// Seconds that a proof is good for after it was made.
const PAST: i64 = 60;

/// Seconds that a nonce is good for.
const NONCE_LIFE: i64 = 300;

/// Seconds of a window of remembered proofs: longer than any proof is good for,
/// by as much as requests may be overtaken by later ones.
const WINDOW: i64 = 2 * (PAST + CLOCK_SKEW);

/// Most proofs of a window: a few thousand a second, all the time. Beyond them
/// proofs are refused, as nobody could tell any more whether they are new.
const REMEMBERED: usize = 500_000;

/// The refusal of an algorithm that the profile of the client excludes.
const WEAK: &str = "The DPoP proof is signed with a weak algorithm";

/// The proofs of the current window and of the one before it.
#[derive(Default)]
struct ProofWindows {
    /// Number of the current window.
    window: i64,
    current: HashSet<TokenHash>,
    previous: HashSet<TokenHash>,
}

/// What the provider remembers of proofs.
pub(super) struct Dpop {
    windows: Mutex<ProofWindows>,
    /// Nonces of one node are good at all that share its store.
    nonces: hmac::Key,
}

/// Why a proof is refused.
#[derive(Debug)]
enum Refusal {
    Invalid(&'static str),
    /// It must carry a nonce of ours.
    Nonce,
    /// It can't be remembered now.
    Full,
    /// The store does not say whether it was used.
    Store(StoreError),
}

impl Dpop {
    pub(super) fn new(nonces: hmac::Key) -> Self {
        Self {
            windows: Mutex::default(),
            nonces,
        }
    }

    /// Whether nobody has brought this here before; of two at once, one is the
    /// first. What was brought is remembered for [`WINDOW`] at least. The store
    /// has the last word: this keeps floods of one proof from it.
    fn is_first(&self, what: TokenHash, now: i64) -> Result<bool, Refusal> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        windows.turn_to(now.div_euclid(WINDOW));
        if windows.current.contains(&what) || windows.previous.contains(&what) {
            return Ok(false);
        }
        if windows.current.len() >= REMEMBERED {
            return Err(Refusal::Full);
        }
        Ok(windows.current.insert(what))
    }

    fn nonce(&self, now: i64) -> String {
        let mut bytes = now.to_be_bytes().to_vec();
        let tag = hmac::sign(&self.nonces, &bytes);
        bytes.extend_from_slice(&tag.as_ref()[..16]);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn is_nonce(&self, nonce: &str, now: i64) -> bool {
        let mut bytes = [0; 24];
        if URL_SAFE_NO_PAD.decode_slice(nonce, &mut bytes) != Ok(24) {
            return false;
        }
        let mut time = [0; 8];
        time.copy_from_slice(&bytes[..8]);
        let tag = hmac::sign(&self.nonces, &time);
        let ours: bool = tag.as_ref()[..16].ct_eq(&bytes[8..]).into();
        let made = i64::from_be_bytes(time);
        // A node that is ahead may have made it.
        let begins = made.saturating_sub(CLOCK_SKEW);
        ours && (begins..made.saturating_add(NONCE_LIFE)).contains(&now)
    }
}

impl ProofWindows {
    /// Forgets what is older than the window before this one. Requests of an
    /// earlier time than the last count to the current window.
    fn turn_to(&mut self, window: i64) {
        if window <= self.window {
            return;
        }
        let last = std::mem::take(&mut self.current);
        self.previous = match window - self.window {
            1 => last,
            _ => HashSet::new(),
        };
        self.window = window;
    }
}

/// The key that tokens of this request are to be bound to, if it proves one.
///
/// # Errors
/// The responses of RFC 9449 §5 and §8, also where the client registered
/// `dpop_bound_access_tokens`, or a profile that means it, and proves none.
pub(super) async fn binding(
    call: &Call,
    client: &LiveClient,
) -> Result<Option<String>, OAuthError> {
    let proven_key = proven_key(call, client).await?;
    if client.must_prove_possession() && proven_key.is_none() {
        let text = "A DPoP proof is required";
        return Err(OAuthError::bad("invalid_dpop_proof", text));
    }
    Ok(proven_key)
}

/// The key that the request proves, whether one is demanded or not.
///
/// # Errors
/// As [`binding`], for a proof that is none.
pub(super) async fn proven_key(
    call: &Call,
    client: &LiveClient,
) -> Result<Option<String>, OAuthError> {
    let proven_key = prove(call, None).await.map_err(|refusal| match refusal {
        Refusal::Invalid(text) => OAuthError::bad("invalid_dpop_proof", text),
        Refusal::Nonce => OAuthError {
            headers: nonce_header(call),
            ..OAuthError::bad(
                "use_dpop_nonce",
                "Authorization server requires nonce in DPoP proof",
            )
        },
        Refusal::Full => Busy.into(),
        Refusal::Store(error) => error.into(),
    })?;
    match proven_key {
        Some((_, alg)) if !client.may_sign_by(alg) => {
            Err(OAuthError::bad("invalid_dpop_proof", WEAK))
        }
        proven_key => Ok(proven_key.map(|(key, _)| key)),
    }
}

/// Whether a protected resource takes `token` of `client`: one that is bound comes with
/// a proof of its key, and so does one of the scheme `DPoP`.
///
/// # Errors
/// The responses of RFC 9449 §7.1 and §9.
pub(super) async fn check(
    call: &Call,
    client: &LiveClient,
    token: &str,
    bound_to: Option<&str>,
) -> Result<(), OAuthError> {
    if bearer::with_proof(call.headers()).is_none() {
        return match bound_to {
            Some(_) => Err(not_bound(client)),
            None => Ok(()),
        };
    }
    let challenge = |error: &'static str, text: &str| challenge(client, error, text);
    let proven_key = prove(call, Some(token))
        .await
        .map_err(|refusal| match refusal {
            Refusal::Invalid(text) => challenge("invalid_dpop_proof", text),
            Refusal::Nonce => {
                let text = "Resource server requires nonce in DPoP proof";
                let mut error = challenge("use_dpop_nonce", text);
                error.headers.extend(nonce_header(call));
                error
            }
            Refusal::Full => Busy.into(),
            Refusal::Store(error) => error.into(),
        })?;
    match (proven_key, bound_to) {
        (None, _) => Err(challenge("invalid_dpop_proof", "A DPoP proof is required")),
        (Some((_, alg)), _) if !client.may_sign_by(alg) => {
            Err(challenge("invalid_dpop_proof", WEAK))
        }
        (Some((proven_key, _)), Some(bound_to)) if proven_key == bound_to => Ok(()),
        _ => Err(not_bound(client)),
    }
}

/// The token of `client` is bound, and was not shown with a proof of its key.
fn not_bound(client: &LiveClient) -> OAuthError {
    let text = "The access token is bound to another key";
    challenge(client, "invalid_token", text)
}

/// The challenge names the algorithms of proofs that count for the client.
fn challenge(client: &LiveClient, error: &'static str, text: &str) -> OAuthError {
    let algs = algorithms(|alg| client.may_sign_by(alg));
    let parameters = format!("error=\"{error}\", algs=\"{algs}\"");
    OAuthError {
        status: StatusCode::UNAUTHORIZED,
        challenge: Some(Challenge::new("DPoP", parameters)),
        ..OAuthError::bad(error, text)
    }
}

/// The algorithms of proofs that `count`, as challenges name them.
pub(super) fn algorithms(count: impl Fn(SignAlg) -> bool) -> String {
    let algs = SignAlg::OWN.into_iter().filter(|alg| count(*alg));
    let algs: Vec<_> = algs.map(SignAlg::as_str).collect();
    algs.join(" ")
}

/// What the next proof must carry (RFC 9449 §8).
fn nonce_header(call: &Call) -> Vec<(HeaderName, HeaderValue)> {
    let nonce = call.state.dpop.nonce(call.now_ms.div_euclid(1000));
    let value = HeaderValue::from_str(&nonce).ok();
    let name = HeaderName::from_static("dpop-nonce");
    value.map(|value| (name, value)).into_iter().collect()
}

/// The thumbprint of the key that the request proves, and how; `None`: no proof.
async fn prove(call: &Call, token: Option<&str>) -> Result<Option<(String, SignAlg)>, Refusal> {
    let mut headers = call.headers().get_all("dpop").iter();
    let Some(header) = headers.next() else {
        return Ok(None);
    };
    let wrong = || Refusal::Invalid("The DPoP proof is not valid");
    if headers.next().is_some() {
        return Err(Refusal::Invalid("There is more than one DPoP proof"));
    }
    let proof = dpop::read(header.to_str().map_err(|_| wrong())?).map_err(|_| wrong())?;
    let text = |name: &str| proof.claims.get(name).and_then(Value::as_str);
    let now = call.now_ms.div_euclid(1000);
    let made = time(&proof.claims, "iat")
        .map_err(|_| wrong())?
        .ok_or_else(wrong)?;
    let is_fresh = (now - PAST..=now + CLOCK_SKEW).contains(&made);
    if !is_fresh || !proof.is_within_its_bounds(now) {
        return Err(Refusal::Invalid("The DPoP proof is out of its time"));
    }
    if text("htm") != Some(call.parts.method.as_str()) || !is_called(call, text("htu")) {
        return Err(Refusal::Invalid("The DPoP proof is for another request"));
    }
    if let Some(token) = token {
        let hash = digest::digest(&digest::SHA256, token.as_bytes());
        if text("ath") != Some(&URL_SAFE_NO_PAD.encode(hash)) {
            return Err(Refusal::Invalid("The DPoP proof is for another token"));
        }
    }
    let dpop = &call.state.dpop;
    let has_nonce = text("nonce").is_some_and(|nonce| dpop.is_nonce(nonce, now));
    if call.realm.settings.dpop_nonce && !has_nonce {
        return Err(Refusal::Nonce);
    }
    let id = text("jti").filter(|id| !id.is_empty());
    let id = id.ok_or_else(wrong)?;
    let used = || Refusal::Invalid("The DPoP proof was used before");
    let what = TokenHash::of(&format!("dpop proof\n{}\n{id}", proof.thumbprint));
    if !dpop.is_first(what, now)? {
        return Err(used());
    }
    // Also at the other nodes, and before a restart.
    let until_ms = (made + PAST + CLOCK_SKEW) * 1000;
    let store = &call.state.store;
    let is_new = store.remember(what, until_ms, call.now_ms).await;
    if !is_new.map_err(Refusal::Store)? {
        return Err(used());
    }
    Ok(Some((proof.thumbprint, proof.algorithm.as_sign_alg())))
}

/// Whether `htu` is the address of this request, spelt in any equal way
/// (RFC 9449 §4.3), without its query.
fn is_called(call: &Call, htu: Option<&str>) -> bool {
    let Some(mut claimed) = htu.and_then(|htu| Url::parse(htu).ok()) else {
        return false;
    };
    claimed.set_query(None);
    claimed.set_fragment(None);
    request_path::is_called(call, &claimed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(key: u8) -> Dpop {
        Dpop::new(hmac::Key::new(hmac::HMAC_SHA256, &[key; 32]))
    }

    #[test]
    fn a_nonce_is_good_for_its_time_and_its_store() {
        let (dpop, node, other) = (new(1), new(1), new(2));
        let nonce = dpop.nonce(1000);
        assert!(dpop.is_nonce(&nonce, 1000));
        assert!(dpop.is_nonce(&nonce, 1000 + NONCE_LIFE - 1));
        assert!(!dpop.is_nonce(&nonce, 1000 + NONCE_LIFE));
        assert!(dpop.is_nonce(&nonce, 1000 - CLOCK_SKEW));
        assert!(!dpop.is_nonce(&nonce, 999 - CLOCK_SKEW));
        assert!(node.is_nonce(&nonce, 1000), "of a node with the same store");
        assert!(!other.is_nonce(&nonce, 1000));
        for junk in ["", "x", &"A".repeat(32), &nonce[1..]] {
            assert!(!dpop.is_nonce(junk, 1000), "{junk}");
        }
    }

    #[test]
    fn a_proof_is_new_once() {
        let dpop = new(1);
        assert!(matches!(dpop.is_first(TokenHash::of("a"), 1000), Ok(true)));
        assert!(matches!(dpop.is_first(TokenHash::of("a"), 1000), Ok(false)));
        assert!(matches!(dpop.is_first(TokenHash::of("b"), 1000), Ok(true)));
    }

    #[test]
    fn a_replay_behind_a_flood_of_other_proofs_is_noticed() {
        let dpop = new(1);
        let number = |number: u32| {
            let mut bytes = [0; 32];
            bytes[..4].copy_from_slice(&number.to_be_bytes());
            TokenHash(bytes)
        };
        // From the end of one window to the next.
        let time = |n: u32| WINDOW - 30 + i64::from(n) / 2000;
        for n in 0..110_000 {
            assert!(matches!(dpop.is_first(number(n), time(n)), Ok(true)), "{n}");
        }
        for replayed in [0, 50_000, 105_000, 109_999] {
            let again = dpop.is_first(number(replayed), time(110_000));
            assert!(matches!(again, Ok(false)), "{replayed}");
        }
        // Nor does a request that was overtaken find the door open.
        assert!(matches!(dpop.is_first(number(0), WINDOW - 30), Ok(false)));
    }

    #[test]
    fn a_full_memory_refuses_rather_than_forgets() {
        let dpop = new(1);
        let full = (0..REMEMBERED).map(|n| {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&n.to_be_bytes());
            TokenHash(bytes)
        });
        dpop.windows.lock().expect("the memory").current = full.collect();
        let new = TokenHash::of("new");
        assert!(matches!(dpop.is_first(new, 10), Err(Refusal::Full)));
        assert!(matches!(dpop.is_first(new, 10 + WINDOW), Ok(true)));
        let again = dpop.is_first(TokenHash([0; 32]), 10 + WINDOW);
        assert!(matches!(again, Ok(false)));
    }
}
