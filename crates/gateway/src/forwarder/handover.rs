//! Requests that turn out not to be for the forwarding loop once they are decided: the
//! engine goes on where it stopped.
//!
//! Of a plain request nothing is read but its head, until its whole body is gathered.
//! So what the session has read is the head, or all of the request.

use pingora::apps::HttpServerApp as _;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;

use super::{Forwarder, Idle, prepare};
use crate::context::{Ctx, DecidedRequest};
use doorward_net::http::plain_session::PlainSession;
use doorward_net::http::session::HttpSession;

impl Forwarder {
    /// Lets the engine send a decided request to its upstream. It reads once more what
    /// was read, and takes the decision for its own.
    pub(super) async fn hand_over(
        &self,
        session: PlainSession,
        ctx: Box<Ctx>,
        shutdown: &ShutdownWatch,
    ) -> Option<Idle> {
        let decided = decided(&session, ctx);
        let (stream, read) = session.into_parts();
        let mut again = ServerSession::new_http1(stream);
        prepare(&mut again);
        again.set_pipelined_prefix(read);
        again.set_connection_user_context(Some(Box::new(decided)));
        self.run_engine(again, shutdown).await
    }

    /// As [`Forwarder::hand_over`], for a stream of HTTP/2: the session that has read it
    /// is the engine's.
    pub(super) async fn hand_over_stream(
        &self,
        stream: ServerSession,
        ctx: Box<Ctx>,
        shutdown: &ShutdownWatch,
    ) {
        let mut stream = stream;
        decided(&stream, ctx).put(stream.req_header_mut());
        self.engine.process_new_http(stream, shutdown).await;
    }
}

/// What is decided of the request in `session`.
fn decided(session: &impl HttpSession, ctx: Box<Ctx>) -> DecidedRequest {
    let mut ctx = ctx;
    ctx.decided = Some(Box::new(session.req_header().clone()));
    DecidedRequest(ctx)
}
