//! Requests that turn out not to be for the forwarding loop once they are decided: the
//! engine goes on where it stopped.
//!
//! Of a plain request nothing is read but its head, until its whole body is gathered.
//! So what the session has read is the head, or all of the request.

use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;

use super::{Forwarder, Idle, prepare};
use crate::context::{Ctx, DecidedRequest};
use doorward_net::http::plain_session::PlainSession;
use doorward_net::http::session::HttpSession as _;

impl Forwarder {
    /// Lets the engine send a decided request to its upstream. It reads once more what
    /// was read, and takes the decision for its own.
    pub(super) async fn hand_over(
        &self,
        session: PlainSession,
        ctx: Box<Ctx>,
        shutdown: &ShutdownWatch,
    ) -> Option<Idle> {
        let mut ctx = ctx;
        ctx.decided = Some(Box::new(session.req_header().clone()));
        let (stream, read) = session.into_parts();
        let mut again = ServerSession::new_http1(stream);
        prepare(&mut again);
        again.set_pipelined_prefix(read);
        again.set_connection_user_context(Some(Box::new(DecidedRequest(ctx))));
        self.run_engine(again, shutdown).await
    }
}
