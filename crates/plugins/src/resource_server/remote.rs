//! `TokenIntrospectionAccessTokenResolver` (RFC 7662) and
//! `OpenAmAccessTokenResolver` (`/tokeninfo`): an endpoint is asked what a
//! token says.

mod answer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use url::Url;

use super::client::Client;
use answer::ProviderResponses;
use doorward_core::clock::Clock;
use doorward_core::jose::verify::TOKEN_MAX;
use doorward_net::http::outbound::{Answer, Outbound, OutboundError};
use doorward_net::telemetry::Counter;
use doorward_openid_connect::provider::revocation::{RevocationStatus, Status};
use doorward_openid_connect::provider::single_flight::{REFUSED_MS, SingleFlight, digest_of};
use doorward_openid_connect::provider::token_cache::{TokenCache, VerifiedToken};
use doorward_openid_connect::provider::verifier::Verification;
use doorward_openid_connect::refusal::Refusal;
use doorward_plugin_api::Parts;

/// What was found out about a token.
type Outcome = Result<Arc<VerifiedToken>, Refusal>;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// A form is posted: `token` (RFC 7662 §2.1).
    Introspection,
    /// The token is in the query: `access_token`.
    TokenInfo,
}

/// For how long answers are believed, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lifetime {
    /// For a token that does not tell its end; `None`: for ever.
    pub(super) unknown: Option<i64>,
    /// For any token; `None`: until its end.
    pub(super) most: Option<i64>,
}

/// An endpoint that knows tokens.
pub(super) struct Remote {
    protocol: Protocol,
    url: Url,
    client: Client,
    outbound: Arc<Outbound>,
    clock: Clock,
    /// Tokens that are known to be good, if answers may be believed for a
    /// while.
    known: Option<(TokenCache, Lifetime)>,
    flights: SingleFlight<Arc<VerifiedToken>>,
    /// Whether the endpoint failed the last time: it is said once.
    down: AtomicBool,
    hits: Counter,
    misses: Counter,
}

impl Remote {
    pub(super) fn new(
        protocol: Protocol,
        url: Url,
        client: Client,
        lifetime: Option<Lifetime>,
        parts: &Parts,
    ) -> Self {
        Self {
            flights: SingleFlight::new(REFUSED_MS, client.options.timeout),
            protocol,
            url,
            client,
            outbound: Arc::clone(&parts.outbound),
            clock: parts.clock.clone(),
            known: lifetime.map(|lifetime| (TokenCache::new(), lifetime)),
            down: AtomicBool::new(false),
            hits: parts.metrics.token_cache("hit"),
            misses: parts.metrics.token_cache("miss"),
        }
    }

    /// Judges a token with what is remembered.
    pub(super) fn judge(&self, token: &str) -> Verification {
        let now_ms = self.clock.now_ms();
        let is_current = |held: &VerifiedToken| {
            now_ms < held.ends_at && held.revocation.status() == Status::Active
        };
        let known = self.known.as_ref();
        if let Some(held) = known.and_then(|(cache, _)| cache.get(token, is_current)) {
            if is_current(&held) {
                self.hits.inc();
                return Verification::Valid(held);
            }
            if now_ms >= held.ends_at && held.ends_for_good {
                return Verification::Refused(Refusal::TokenExpired);
            }
        }
        if token.len() > TOKEN_MAX {
            return Verification::Refused(Refusal::TokenTooLong);
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Verification::Refused(Refusal::MalformedToken);
        }
        match self.flights.refused(&digest_of([token.as_bytes()]), now_ms) {
            Some(refusal) => Verification::Refused(refusal),
            None => Verification::Pending,
        }
    }

    /// As [`Self::judge`], asking the endpoint if need be.
    pub(super) async fn verify_or_fetch(self: &Arc<Self>, token: &str) -> Outcome {
        self.misses.inc();
        let (remote, clock) = (Arc::clone(self), self.clock.clone());
        let text = token.to_owned();
        let question = move || async move { remote.ask(&text).await };
        let about = digest_of([token.as_bytes()]);
        self.flights
            .ask(about, question, move || clock.now_ms())
            .await
    }

    async fn ask(&self, token: &str) -> Outcome {
        let token_status = self.outbound.token_status(&self.url);
        // From before the question: what ends meanwhile is asked about again.
        let version = token_status
            .as_ref()
            .map_or(0, |token_status| token_status.version());
        let answer = match self.protocol {
            Protocol::Introspection => self.introspect(token).await,
            Protocol::TokenInfo => self.token_info(token).await,
        };
        let now_ms = self.clock.now_ms();
        let length = answer.as_ref().map_or(0, |answer| answer.body.len());
        let said = answer
            .map_err(|error| error.to_string())
            .and_then(|answer| answer::read(self.protocol, &answer, now_ms));
        match said {
            Ok(ProviderResponses::Good(checked)) => {
                self.is_up();
                let mut checked = *checked;
                if let Some((_, lifetime)) = &self.known {
                    lifetime.limit(&mut checked.ends_at, &mut checked.ends_for_good, now_ms);
                }
                let revocation = RevocationStatus::active_at(token_status, version);
                let verified = checked.verified(token, length, 0, revocation);
                self.remember(&verified);
                Ok(verified)
            }
            Ok(ProviderResponses::Bad(refusal)) => {
                self.is_up();
                Err(refusal)
            }
            Ok(ProviderResponses::Incomplete(member)) => {
                self.complain(&format!("answered without a usable `{member}`"));
                Err(Refusal::InactiveToken)
            }
            Err(reason) => {
                self.complain(&reason);
                Err(Refusal::ProviderUnavailable)
            }
        }
    }

    /// Says that the endpoint is of no use, once until it is again.
    fn complain(&self, reason: &str) {
        if !self.down.swap(true, Ordering::Relaxed) {
            tracing::warn!(endpoint = %self.url, reason, "can't ask about tokens");
        }
    }

    fn remember(&self, verified: &Arc<VerifiedToken>) {
        if let Some((cache, _)) = &self.known {
            cache.insert(verified);
        }
    }

    fn is_up(&self) {
        if self.down.load(Ordering::Relaxed) && self.down.swap(false, Ordering::Relaxed) {
            tracing::info!(endpoint = %self.url, "tokens can be asked about again");
        }
    }

    async fn introspect(&self, token: &str) -> Result<Answer, OutboundError> {
        let mut form = vec![("token", token), ("token_type_hint", "access_token")];
        let credentials = self.client.form.iter();
        form.extend(credentials.map(|(name, secret)| (*name, secret.expose())));
        let (headers, options) = (self.client.headers.clone(), self.client.options);
        self.outbound
            .post_form(&self.url, &form, headers, options)
            .await
    }

    async fn token_info(&self, token: &str) -> Result<Answer, OutboundError> {
        let mut url = self.url.clone();
        url.query_pairs_mut().append_pair("access_token", token);
        let (headers, options) = (self.client.headers.clone(), self.client.options);
        self.outbound.get(&url, headers, options).await
    }
}

impl Lifetime {
    /// Brings the time until which a token may pass down to what is allowed.
    fn limit(self, ends_at: &mut i64, for_good: &mut bool, now_ms: i64) {
        let unknown = (!*for_good).then_some(self.unknown).flatten();
        for most in [unknown, self.most].into_iter().flatten() {
            let limit = now_ms.saturating_add(most);
            if limit < *ends_at {
                (*ends_at, *for_good) = (limit, false);
            }
        }
    }
}

/// Whether an endpoint's status says that it does not take the token.
fn refuses(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
    )
}
