//! What becomes of a request that can't be proxied.

use http::StatusCode;
use pingora::ErrorSource;
use pingora::prelude::{Error, HttpPeer};

use super::context::Ctx;
use super::proxy::Gateway;
use super::{log_phase, observe};
use doorward_net::http::framing;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;

/// Whether the log of the process leaves a failure out. Clients leave all the time; the
/// access log shows that they did. So does whose fault it is that a body is too long.
pub(super) fn is_clients(error: &Error) -> bool {
    *error.esource() == ErrorSource::Downstream || observe::is_too_large(error)
}

/// What is logged of a failed request: no query, it may hold a token.
pub(super) fn summary(session: &Session, ctx: &Ctx) -> String {
    let request = session.req_header();
    format!("{} {}", request.method, ctx.path(request))
}

impl Gateway {
    /// Notes that a try has failed, over a connection that had been used before or not;
    /// the error says whether another try may follow.
    pub(super) fn note_failed_try(
        &self,
        session: &mut Session,
        peer: &HttpPeer,
        error: Box<Error>,
        ctx: &mut Ctx,
        reused: bool,
    ) -> Box<Error> {
        let error = error.more_context(format!("Peer: {peer}"));
        let error = self.on_proxy_error(session, error, ctx, reused);
        log_phase::note_failure(ctx, &error);
        error
    }

    /// Notes that a peer can't be connected to.
    pub(super) fn note_failed_connection(
        &self,
        session: &mut Session,
        ctx: &mut Ctx,
        error: Box<Error>,
    ) -> Box<Error> {
        log_phase::note_failure(ctx, &error);
        self.on_connect_error(session, ctx, error)
    }

    /// Answers a request that failed, if it has no answer yet; the status, or 0 where the
    /// client has left. Where `keep` says so, the client's connection may have another.
    pub(super) async fn answer_failure(
        &self,
        session: &mut Session,
        error: &Error,
        ctx: &mut Ctx,
        keep: bool,
    ) -> u16 {
        let broken = *error.esource() == ErrorSource::Downstream && framing::is_broken(session);
        let failure = if broken {
            Some((StatusCode::BAD_REQUEST, "Invalid chunked coding".into()))
        } else {
            observe::failure(error)
        };
        let Some((status, message)) = failure else {
            return 0;
        };
        if session.answer_written().is_some() {
            return status.as_u16();
        }
        // These answers have the form of refusals, whatever the engine's have.
        let reply = if observe::is_own_refusal(error) {
            Reply::message(status, message)
        } else {
            let form = (self.settings.error_default_type, ctx.request_id.as_ref());
            observe::engine_reply(status, message, session.req_header(), form)
        };
        if !keep {
            session.set_keepalive(None);
        }
        match self.reply(session, ctx, reply).await {
            Ok(()) => ctx.answered = true,
            Err(error) => tracing::debug!(%error, "error answer not written"),
        }
        status.as_u16()
    }
}
