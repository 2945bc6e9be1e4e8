//! Filters by themselves, for tests.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use pingora::protocols::http::ServerSession;
use tokio::io::{AsyncWriteExt, DuplexStream};

use super::Parts;
use crate::filter::{Exchange, Filter, Flow, Verdict};
use doorward_core::clock::Clock;
use doorward_net::http::outbound::Outbound;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;

/// A request as Pingora hands it to filters, and the client's end.
pub async fn session(request: &str) -> (ServerSession, DuplexStream) {
    let (mut client, server) = tokio::io::duplex(128 * 1024);
    client.write_all(request.as_bytes()).await.unwrap();
    let mut session = ServerSession::new_http1(Box::new(server));
    assert!(session.read_request().await.unwrap());
    (session, client)
}

/// The filter's answer; `None`: the request goes on.
pub async fn decide(
    filter: &dyn Filter,
    session: &mut Session,
    exchange: &mut Exchange,
) -> Option<Reply> {
    let flow = match filter.on_request(session, exchange) {
        Verdict::Now(flow) => flow,
        Verdict::Wait => filter.on_request_slow(session, exchange).await,
    };
    match flow {
        Flow::Continue => None,
        Flow::Respond(reply) => Some(reply),
    }
}

/// Parts of a process at the epoch.
pub fn parts() -> Parts {
    let outbound = Arc::new(Outbound::new());
    Parts::new(Clock::manual(0), outbound, Arc::default())
}
