//! Requests that turn out not to be for the forwarding loop once they are decided: the
//! engine goes on where it stopped.
//!
//! Of a plain request nothing is read but its head, until its whole body is gathered.
//! So what the session has read is the head, or all of the request.

use bytes::BytesMut;
use pingora::apps::HttpPersistentSettings;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;

use super::{Forwarder, Idle};
use crate::context::{Ctx, DecidedRequest};

impl Forwarder {
    /// Lets the engine send a decided request to its upstream. It reads once more what
    /// was read, and takes the decision for its own.
    pub(super) async fn hand_over(
        &self,
        session: ServerSession,
        ctx: Box<Ctx>,
        shutdown: &ShutdownWatch,
    ) -> Option<Idle> {
        let mut ctx = ctx;
        ctx.decided = Some(Box::new(session.req_header().clone()));
        let settings = HttpPersistentSettings::for_session(&session);
        let ServerSession::H1(http1) = session else {
            return None;
        };
        let mut raw = BytesMut::from(&http1.get_headers_raw_bytes()[..]);
        if let Some(gathered) = http1.get_retry_buffer() {
            raw.extend_from_slice(&gathered);
        }
        let mut again = ServerSession::new_http1(http1.into_inner());
        settings.apply_to_session(&mut again);
        again.set_pipelined_prefix(raw);
        again.set_connection_user_context(Some(Box::new(DecidedRequest(ctx))));
        self.run_engine(again, shutdown).await
    }
}
