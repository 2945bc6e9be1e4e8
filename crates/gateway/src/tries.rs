//! The tries of one request: what may be tried again, and how often
//! (gateway-admin-api §10).
//!
//! A failed connection may always be tried again, whatever the method: nothing
//! was sent. Once something was, only methods that do no harm twice are. An
//! answer that has begun is never begun anew, and a status is an answer.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::Method;
use pingora::prelude::{Error, ErrorType};
use pingora::{ErrorSource, RetryType};

use super::upstream::TriedAddresses;
use doorward_net::telemetry::upstreams::Failure;

/// The error for a host without an address.
pub(super) const NAME_RESOLUTION: ErrorType = ErrorType::Custom("NameResolution");

/// Further tries that each request adds to what may be spent on all of them.
const DEPOSIT: u32 = 2;
/// Most further tries that can be saved up.
const SAVINGS: u32 = 10_000;
/// Pause before an address is tried again that failed for this request.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// Most tries of a request; a service's own `retries` are what counts.
pub const MAX_TRIES: usize = 1 << 15;

/// Keeps further tries from multiplying the load on upstreams that fail under
/// it: over time, at most [`DEPOSIT`] for each request. One for each worker.
#[derive(Debug)]
pub struct RetryBudget(AtomicU32);

impl Default for RetryBudget {
    fn default() -> Self {
        Self(AtomicU32::new(SAVINGS))
    }
}

impl RetryBudget {
    /// A request has come. Only the worker's thread writes, so that load and
    /// store do.
    pub(super) fn deposit(&self) {
        let savings = self.0.load(Ordering::Relaxed);
        if savings < SAVINGS {
            self.0.store(savings + DEPOSIT, Ordering::Relaxed);
        }
    }

    fn take(&self) -> bool {
        let savings = self.0.load(Ordering::Relaxed);
        let enough = savings > 0;
        self.0.store(savings.saturating_sub(1), Ordering::Relaxed);
        enough
    }
}

/// What one request has tried.
#[derive(Debug, Default)]
pub(super) struct Tries {
    /// How many there were.
    pub(super) made: usize,
    /// The addresses.
    pub(super) tried: TriedAddresses,
    /// The address that is being tried.
    pub(super) address: Option<SocketAddr>,
    /// Tries that don't count: other addresses of the same host, and one for
    /// a kept connection that was dead.
    free: usize,
    /// Whether a dead kept connection was made up for.
    revived: bool,
}

/// How a further try came to be allowed, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// It is.
    Yes,
    /// The failure stands.
    No,
    /// It would be, but too many are under way.
    Refused,
}

impl Tries {
    /// Begins a try at `address`.
    pub(super) fn begin(&mut self, address: SocketAddr) {
        self.made += 1;
        self.address = Some(address);
        if !self.tried.contains(&address) {
            self.tried.push(address);
        }
    }

    /// How long to wait before `address` is tried, so that a host that is
    /// restarting is not asked thousands of times a second.
    pub(super) fn pause(&self, address: SocketAddr) -> Option<Duration> {
        // The first further try is made at once.
        if self.made < 2 || !self.tried.contains(&address) {
            return None;
        }
        let doublings = u32::try_from(self.made - 2).unwrap_or(u32::MAX).min(8);
        Some((PAUSE * (1 << doublings)).min(PAUSE_MAX))
    }

    /// After a connection could not be opened. `others`: the host has an
    /// address that was not tried; it is, even if `retries` is 0, once.
    pub(super) fn on_connect_error(
        &mut self,
        retries: usize,
        others: bool,
        budget: &RetryBudget,
    ) -> Again {
        if self.made > retries + self.free {
            if !others || self.free > usize::from(self.revived) {
                return Again::No;
            }
            self.free += 1;
        }
        spend(budget)
    }

    /// After something failed on a connection; `kept`: one that was used
    /// before. The caller has made sure that the request can be sent again.
    pub(super) fn on_proxy_error(
        &mut self,
        retries: usize,
        method: &Method,
        kept: bool,
        budget: &RetryBudget,
    ) -> Again {
        if !is_repeatable(method) {
            return Again::No;
        }
        if self.made > retries + self.free {
            // The upstream closed it while we were taking it.
            if !kept || self.revived {
                return Again::No;
            }
            self.revived = true;
            self.free += 1;
        }
        spend(budget)
    }
}

fn spend(budget: &RetryBudget) -> Again {
    if budget.take() {
        Again::Yes
    } else {
        Again::Refused
    }
}

/// Whether a request may be sent again that may have arrived.
fn is_repeatable(method: &Method) -> bool {
    *method != Method::POST && *method != Method::PATCH && method.as_str() != "LOCK"
}

/// What kind of failure of the upstream `error` is.
pub(super) fn classify(error: &Error) -> Failure {
    use ErrorType as E;
    match error.etype() {
        E::Custom("NameResolution") => Failure::NameResolution,
        E::ConnectTimedout | E::TLSHandshakeTimedout => Failure::ConnectTimeout,
        E::TLSHandshakeFailure | E::InvalidCert | E::HandshakeError | E::TLSWantX509Lookup => {
            Failure::Tls
        }
        E::ConnectRefused
        | E::ConnectNoRoute
        | E::ConnectError
        | E::ConnectProxyFailure
        | E::BindError
        | E::SocketError => Failure::Connect,
        E::WriteError => Failure::Write,
        E::WriteTimedout => Failure::WriteTimeout,
        E::ReadTimedout => Failure::ReadTimeout,
        E::InvalidHTTPHeader | E::H1Error | E::H2Error | E::InvalidH2 | E::H2Downgrade => {
            Failure::InvalidResponse
        }
        _ => Failure::Read,
    }
}

/// Whether the upstream said that it has not looked at the request: it is going
/// away, or refused the stream (RFC 9113 §6.8, §8.7). Any request may be sent
/// again then, and the upstream is not to blame.
pub(super) fn is_unseen(error: &Error) -> bool {
    *error.etype() == ErrorType::H2Error && matches!(error.retry, RetryType::Decided(true))
}

/// Whether there was an answer, which can't be read.
pub(super) fn is_answered(error: &Error) -> bool {
    use ErrorType as E;
    matches!(error.etype(), E::InvalidHTTPHeader | E::H1Error)
}

/// Whether it was the upstream that failed.
pub(super) fn is_upstreams(error: &Error) -> bool {
    *error.esource() == ErrorSource::Upstream
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 80))
    }

    #[test]
    fn retries_are_further_tries() {
        let budget = RetryBudget::default();
        let mut tries = Tries::default();
        for _ in 0..3 {
            tries.begin(address(1));
            let again = tries.on_connect_error(3, false, &budget);
            assert_eq!(again, Again::Yes);
        }
        tries.begin(address(1));
        assert_eq!(tries.on_connect_error(3, false, &budget), Again::No);
    }

    #[test]
    fn another_address_is_tried_once_even_without_retries() {
        let budget = RetryBudget::default();
        let mut tries = Tries::default();
        tries.begin(address(1));
        assert_eq!(tries.on_connect_error(0, true, &budget), Again::Yes);
        tries.begin(address(2));
        assert_eq!(tries.on_connect_error(0, true, &budget), Again::No);
    }

    #[test]
    fn what_was_sent_is_not_sent_twice_unless_that_does_no_harm() {
        let budget = RetryBudget::default();
        let broken = |method: &Method, kept| {
            let mut tries = Tries::default();
            tries.begin(address(1));
            tries.on_proxy_error(5, method, kept, &budget)
        };
        assert_eq!(broken(&Method::POST, true), Again::No);
        assert_eq!(broken(&Method::PATCH, false), Again::No);
        assert_eq!(broken(&Method::PUT, false), Again::Yes);
        assert_eq!(broken(&Method::GET, false), Again::Yes);
    }

    #[test]
    fn a_kept_connection_that_was_dead_is_made_up_for_once() {
        let budget = RetryBudget::default();
        let mut tries = Tries::default();
        tries.begin(address(1));
        assert_eq!(
            tries.on_proxy_error(0, &Method::GET, true, &budget),
            Again::Yes
        );
        tries.begin(address(1));
        assert_eq!(
            tries.on_proxy_error(0, &Method::GET, true, &budget),
            Again::No
        );
    }

    #[test]
    fn a_retry_storm_ends_at_the_budget() {
        let budget = RetryBudget::default();
        let mut made = 0_u32;
        for _ in 0..20_000 {
            budget.deposit();
            let mut tries = Tries::default();
            tries.begin(address(1));
            while tries.on_connect_error(100, false, &budget) == Again::Yes {
                made += 1;
                tries.begin(address(1));
            }
        }
        assert!(made <= SAVINGS + 20_000 * DEPOSIT, "{made}");
    }

    #[test]
    fn a_request_that_a_leaving_upstream_has_not_seen_goes_elsewhere() {
        let error = |kind, retry: bool| {
            let mut error = Error::new_up(kind);
            error.set_retry(retry);
            error
        };
        assert!(is_unseen(&error(ErrorType::H2Error, true)));
        assert!(!is_unseen(&error(ErrorType::H2Error, false)));
        assert!(!is_unseen(&error(ErrorType::InvalidH2, true)));
    }
}
