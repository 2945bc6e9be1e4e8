//! Tries that failed: whose fault that is, and whether there is another one.

use std::net::SocketAddr;

use pingora::Result;
use pingora::prelude::{Error, ErrorType};

use super::context::Ctx;
use super::proxy::Gateway;
use super::resolve::ResolveError;
use super::snapshot::Upstream;
use super::tries::{self, Again, NAME_RESOLUTION};
use super::{connection, observe};
use doorward_net::http::session::Session;
use doorward_net::http::upload::Upload;
use doorward_net::telemetry::upstreams::Failure;

impl Gateway {
    /// After something failed on a connection; `reused`: one that was used
    /// before.
    pub(super) fn on_proxy_error(
        &self,
        session: &mut Session,
        mut error: Box<Error>,
        ctx: &mut Ctx,
        reused: bool,
    ) -> Box<Error> {
        // The engine takes the connection of an upload for a new one.
        let upload = ctx.upload.as_deref();
        let reused = reused || upload.is_some_and(Upload::is_reused);
        let stalled = upload.is_some_and(Upload::is_stalled);
        if stalled && observe::is_given_up(&error) {
            error.etype = ErrorType::WriteTimedout;
        }
        if !stalled && connection::waits_for_client(session, &error) {
            // Neither the upstream's fault nor cured by another one.
            let mut error = error.into_down();
            error.set_retry(false);
            return error;
        }
        let unseen = tries::is_unseen(&error);
        if !unseen {
            ctx.attempts.report_error(&error, reused);
        }
        let upstreams = tries::is_upstreams(&error);
        if upstreams && !unseen {
            self.count_failure(&error);
        }
        let replayable = !session.retry_buffer_truncated();
        let unanswered = session.response_written().is_none();
        // One that answers has got the request, however it puts its answer.
        let got = tries::is_answered(&error);
        let again = if upstreams && replayable && unanswered && !got {
            let retries = ctx.service().map_or(0, |service| service.retries);
            let sent = ctx.sent_method.as_ref();
            let method = sent.unwrap_or(&session.req_header().method);
            let budget = &self.retry_budget;
            if unseen {
                ctx.tries.on_connect_error(retries, true, budget)
            } else {
                ctx.tries.on_proxy_error(retries, method, reused, budget)
            }
        } else {
            Again::No
        };
        self.set_retry(&mut error, again);
        error
    }

    /// After a connection could not be opened.
    pub(super) fn on_connect_error(
        &self,
        session: &mut Session,
        ctx: &mut Ctx,
        mut error: Box<Error>,
    ) -> Box<Error> {
        self.count_failure(&error);
        if tries::classify(&error) == Failure::Tls && connection::kept_host(session, ctx).is_some()
        {
            // The client chose the name that the upstream has no certificate
            // for: no other one has, and none of them is sick.
            self.set_retry(&mut error, Again::No);
            return error;
        }
        ctx.attempts.report_error(&error, false);
        let service = ctx.service().cloned();
        let retries = service.as_ref().map_or(0, |service| service.retries);
        let mut others = false;
        if let Some(Upstream::Peers(peers)) = service.as_ref().map(|s| &s.upstream)
            && let Some(address) = ctx.tries.address
        {
            peers.unreachable(address);
            others = peers.has_others(&ctx.tries.tried);
        }
        let again = ctx
            .tries
            .on_connect_error(retries, others, &self.retry_budget);
        self.set_retry(&mut error, again);
        error
    }

    /// The address that was found, if it was.
    pub(super) fn resolved(
        &self,
        found: std::result::Result<SocketAddr, ResolveError>,
    ) -> Result<SocketAddr> {
        let explain = |error: ResolveError| Error::explain(NAME_RESOLUTION, error.to_string());
        found
            .map_err(explain)
            .inspect_err(|error| self.count_failure(error))
    }

    fn count_failure(&self, error: &Error) {
        let failure = tries::classify(error);
        self.settings.upstreams.failures(failure).inc();
        tracing::debug!(kind = failure.as_str(), %error, "a try at an upstream failed");
    }

    fn set_retry(&self, error: &mut Error, again: Again) {
        error.set_retry(again == Again::Yes);
        let upstreams = &self.settings.upstreams;
        match again {
            Again::Yes => upstreams.retries.inc(),
            Again::Refused => upstreams.retries_refused.inc(),
            Again::No => {}
        }
    }
}
