//! Requests with long bodies go over connections that take them without delay; see
//! [`doorward_net::http::upload`].

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use http::header::{CONTENT_LENGTH, UPGRADE};
use pingora::connectors::{ConnectorOptions, TransportConnector};
use pingora::prelude::HttpPeer;
use pingora::upstreams::peer::Scheme;

use super::context::Ctx;
use doorward_core::clock::random_bytes;
use doorward_net::http::framing;
use doorward_net::http::session::Session;
use doorward_net::http::system_authorities;
use doorward_net::http::upload::{Upload, UploadConnector};

/// Longest body that needs no such connection: the buffers of the two systems take
/// it from the engine even if the origin reads nothing.
const SHORT: usize = 64 << 10;

/// Makes the connections of one worker's uploads, and keeps them.
pub struct Uploads {
    authorities: Option<PathBuf>,
    pool: usize,
    transport: OnceLock<Arc<TransportConnector>>,
}

impl fmt::Debug for Uploads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uploads").finish_non_exhaustive()
    }
}

impl Uploads {
    /// Keeps `pool` connections at most. Over TLS the authorities in the file `ca`
    /// are trusted, without one those of the system.
    #[must_use]
    pub fn new(ca: Option<&Path>, pool: usize) -> Self {
        Self {
            authorities: ca.map(Path::to_owned),
            pool,
            transport: OnceLock::new(),
        }
    }

    /// Gives a request with a long body, or one of unknown length, its connection.
    pub(super) fn bind(&self, peer: &mut HttpPeer, session: &mut Session, ctx: &mut Ctx) {
        let is_http1 = peer.options.alpn.get_max_http_version() == 1;
        // Flow control of HTTP/2 is above the connection.
        if !is_http1 || !has_long_body(session, ctx) {
            return;
        }
        let upload = Upload::new(ctx.is_http2());
        framing::hold_back(session, &upload);
        let transport = self
            .transport
            .get_or_init(|| transport(self.authorities.as_deref(), self.pool));
        let connector = UploadConnector::new(upload.clone(), peer.clone(), transport.clone());
        // The engine neither encrypts nor keeps what the connector makes.
        peer.scheme = Scheme::HTTP;
        peer.group_key = u64::from_be_bytes(random_bytes());
        peer.options.custom_l4 = Some(Arc::new(connector));
        ctx.upload = Some(upload);
    }
}

/// Makes connections as the engine does, and keeps `pool` of them at most.
pub(super) fn transport(ca: Option<&Path>, pool: usize) -> Arc<TransportConnector> {
    let mut options = ConnectorOptions::new(pool);
    options.ca_file = system_authorities::of_engine(ca);
    Arc::new(TransportConnector::new(Some(options)))
}

fn has_long_body(session: &mut Session, ctx: &Ctx) -> bool {
    if let Some(other) = &ctx.exchange.replacement {
        return other.len() > SHORT;
    }
    let headers = &session.req_header().headers;
    let long = match headers.get(CONTENT_LENGTH) {
        // What is no number was refused.
        Some(length) => {
            let length = length.to_str().ok().and_then(|text| text.parse().ok());
            length.is_none_or(|length: u64| length > SHORT as u64)
        }
        // The cheaper question first: nearly all requests have no body.
        None => !session.is_body_done() && !session.is_body_empty(),
    };
    long && !session.req_header().headers.contains_key(UPGRADE)
}
