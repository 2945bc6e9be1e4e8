//! Filters by themselves, for tests.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use pingora::proxy::Session;
use serde_json::Value;
use tokio::io::{AsyncWriteExt, DuplexStream};

use super::chain::{Named, chain_kind};
use super::{ConfigError, Parts};
use crate::clock::Clock;
use crate::filter::{Exchange, Filter, Flow, Verdict};
use crate::http::outbound::Outbound;
use crate::http::reply::Reply;

/// A request as Pingora hands it to filters, and the client's end.
pub(crate) async fn session(request: &str) -> (Session, DuplexStream) {
    let (mut client, server) = tokio::io::duplex(128 * 1024);
    client.write_all(request.as_bytes()).await.unwrap();
    let mut session = Session::new_h1(Box::new(server));
    assert!(session.read_request().await.unwrap());
    (session, client)
}

/// The filter's answer; `None`: the request goes on.
pub(crate) async fn decide(
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

/// The filter of a route file's declaration.
pub(crate) fn chain_filter(
    parts: &Parts,
    type_name: &str,
    config: &Value,
    named: Named<'_>,
) -> Result<Arc<dyn Filter>, ConfigError> {
    let kind = chain_kind(type_name).unwrap();
    (kind.build)(config.as_object().unwrap(), parts, named)
}

/// Parts of a process at the epoch.
pub(crate) fn parts() -> Parts {
    let outbound = Arc::new(Outbound::new());
    Parts::new(Clock::manual(0), outbound, Arc::default())
}
