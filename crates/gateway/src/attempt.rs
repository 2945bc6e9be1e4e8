//! A request's tries at the targets of an upstream: what is picked, and what
//! the balancer is told of how it went.

use http::HeaderValue;
use pingora::ErrorSource;
use pingora::prelude::{Error, ErrorType};

use super::balance::endpoint::Endpoint;
use super::balance::{Balancer, NoTarget, Outcome, Pick, Tried};
use doorward_core::clock;

/// The tries so far.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// The current one.
    pick: Option<Pick>,
    tried: Tried,
    /// What the request is balanced by; computed for the first try.
    hash: Option<Option<u64>>,
}

impl Attempts {
    /// Picks an endpoint for the next try.
    pub(super) fn next(
        &mut self,
        balancer: &Balancer,
        hash: impl FnOnce() -> Option<u64>,
    ) -> Result<&Endpoint, NoTarget> {
        // The last one is over, and must not count against the next.
        self.pick = None;
        let hash = *self.hash.get_or_insert_with(|| {
            let wanted = balancer.hashes();
            wanted.then(hash).flatten()
        });
        let pick = balancer.pick(hash, &mut self.tried, clock::monotonic_ns())?;
        Ok(self.pick.insert(pick).endpoint())
    }

    /// The Host header for the current target.
    pub(super) fn authority(&self, tls: bool) -> Option<&HeaderValue> {
        self.pick.as_ref().map(|pick| pick.authority(tls))
    }

    /// The name that the current target has to show a certificate for.
    pub(super) fn server_name(&self) -> Option<&str> {
        self.pick.as_ref().map(|pick| pick.endpoint().server_name())
    }

    /// Tells how the current try ended; the first report counts.
    pub(super) fn report(&mut self, outcome: Outcome) {
        if let Some(pick) = &mut self.pick {
            pick.report(outcome, clock::monotonic_ns());
        }
    }

    /// Tells of a failure of the current try, if it is the target's.
    ///
    /// A kept connection that is found closed says nothing about the target.
    pub(super) fn report_error(&mut self, error: &Error, reused: bool) {
        if self.pick.is_some()
            && *error.esource() == ErrorSource::Upstream
            && let Some(outcome) = outcome(error.etype(), reused)
        {
            self.report(outcome);
        }
    }
}

fn outcome(kind: &ErrorType, reused: bool) -> Option<Outcome> {
    use ErrorType as E;
    match kind {
        E::ConnectTimedout | E::TLSHandshakeTimedout | E::ReadTimedout | E::WriteTimedout => {
            Some(Outcome::Timeout)
        }
        E::InvalidHTTPHeader | E::H1Error | E::H2Error | E::InvalidH2 => Some(Outcome::HttpFailure),
        E::ConnectionClosed | E::ReadError | E::WriteError if reused => None,
        _ => Some(Outcome::TcpFailure),
    }
}
