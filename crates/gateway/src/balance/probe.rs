//! One active check: a connection, a request or a gRPC health call.

use std::net::SocketAddr;
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Uri, header};
use pingora::connectors::ConnectorOptions;
use pingora::connectors::http::Connector;
use pingora::http::RequestHeader;
use pingora::prelude::{Error, ErrorType, HttpPeer};
use pingora::protocols::http::client::HttpSession;
use pingora::utils::tls::CertKey;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Semaphore;

use super::endpoint::Endpoint;
use super::health::Outcome;
use crate::peer::client_key;
use doorward_core::model::certificate::Certificate;
use doorward_core::model::service::ProxyProtocol;
use doorward_core::model::upstream::{ActiveCheck, CheckType, Upstream};
use doorward_net::http::proxy_header::ProxyHeaderConnector;
use doorward_net::http::system_authorities;

/// Most probes of all upstreams at once.
const AT_ONCE: usize = 256;
/// Idle connections that may be kept; probes keep none for long.
const POOL: usize = 16;
/// What a gRPC answer is read up to.
const MAX_ANSWER: usize = 1 << 10;
/// Sent as `User-Agent`.
const AGENT: &str = concat!("doorward/", env!("CARGO_PKG_VERSION"), " (health check)");

/// Makes probes, a bounded number at once.
pub(super) struct Prober {
    /// `None` if authorities can't be read: then only TCP is probed.
    connector: Option<Connector>,
    room: Semaphore,
}

/// How the targets of an upstream are probed: its active check, prepared.
#[derive(Debug)]
pub(super) struct Plan {
    kind: CheckType,
    timeout: Duration,
    path: PathAndQuery,
    server_name: Option<String>,
    verify: bool,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The certificate that is shown, and the key of such connections' pool.
    shown: Option<(Arc<CertKey>, u64)>,
    /// The header that connections begin with: the gateway speaks for itself.
    proxy_protocol: Option<ProxyProtocol>,
}

/// What a gRPC server says of its health when it knows the question.
const SERVING: &[u8] = &[0x08, 0x01];
const GRPC_PATH: PathAndQuery = PathAndQuery::from_static("/grpc.health.v1.Health/Check");

impl Plan {
    /// The plan of the active check of `upstream`; over TLS `certificate` is shown.
    pub(super) fn of(upstream: &Upstream, certificate: Option<&Certificate>) -> Self {
        let check: &ActiveCheck = &upstream.healthchecks.active;
        let tls = matches!(check.kind, CheckType::Https | CheckType::Grpcs);
        let shown = certificate.filter(|_| tls).and_then(|certificate| {
            let shown = client_key(certificate);
            let warn = |error| tracing::warn!(%error, "probes go without certificate");
            shown.map_err(warn).ok()
        });
        let headers = check.headers.iter().flatten().flat_map(|(name, values)| {
            values
                .iter()
                .filter_map(|value| Some((name.parse().ok()?, HeaderValue::from_str(value).ok()?)))
        });
        Self {
            kind: check.kind,
            timeout: Duration::try_from_secs_f64(check.timeout)
                .unwrap_or(Duration::from_secs(1))
                .max(Duration::from_millis(1)),
            path: check
                .http_path
                .parse()
                .unwrap_or(PathAndQuery::from_static("/")),
            server_name: check.https_sni.clone(),
            verify: check.https_verify_certificate,
            headers: headers.collect(),
            shown,
            proxy_protocol: upstream.proxy_protocol,
        }
    }

    fn is_tls(&self) -> bool {
        matches!(self.kind, CheckType::Https | CheckType::Grpcs)
    }

    fn is_grpc(&self) -> bool {
        matches!(self.kind, CheckType::Grpc | CheckType::Grpcs)
    }

    fn peer(&self, endpoint: &Endpoint, address: SocketAddr) -> HttpPeer {
        let name = self.server_name.as_deref();
        let name = name.unwrap_or(endpoint.server_name());
        let mut peer = HttpPeer::new(address, self.is_tls(), name.to_owned());
        let options = &mut peer.options;
        options.verify_cert = self.verify;
        options.verify_hostname = self.verify;
        for limit in [
            &mut options.connection_timeout,
            &mut options.total_connection_timeout,
            &mut options.read_timeout,
            &mut options.write_timeout,
        ] {
            *limit = Some(self.timeout);
        }
        if self.is_grpc() {
            options.set_http_version(2, 2);
        }
        if let Some(header) = self.header() {
            peer.options.custom_l4 = Some(Arc::new(header));
        }
        if let Some((certificate, pool)) = &self.shown {
            peer.client_cert_key = Some(certificate.clone());
            peer.group_key = *pool;
        }
        peer
    }

    /// What a connection begins with.
    fn header(&self) -> Option<ProxyHeaderConnector> {
        let version = self.proxy_protocol?;
        Some(ProxyHeaderConnector::new(version, None))
    }

    fn request(&self, endpoint: &Endpoint) -> pingora::Result<Box<RequestHeader>> {
        let host = &endpoint.authority[usize::from(self.is_tls())];
        let mut request = if self.is_grpc() {
            let mut request = RequestHeader::build("POST", GRPC_PATH.as_str().as_bytes(), None)?;
            let uri = Uri::builder()
                .scheme(if self.is_tls() { "https" } else { "http" })
                .authority(host.as_bytes())
                .path_and_query(GRPC_PATH)
                .build();
            if let Ok(uri) = uri {
                request.set_uri(uri);
            }
            request.set_version(http::Version::HTTP_2);
            request.insert_header(header::CONTENT_TYPE, "application/grpc")?;
            request.insert_header(header::TE, "trailers")?;
            request
        } else {
            let mut request = RequestHeader::build("GET", self.path.as_str().as_bytes(), None)?;
            request.insert_header(header::HOST, host)?;
            request.insert_header(header::CONNECTION, "close")?;
            request
        };
        request.insert_header(header::USER_AGENT, AGENT)?;
        for (name, value) in &self.headers {
            if *name == header::HOST {
                request.insert_header(name, value)?;
            } else {
                request.append_header(name, value)?;
            }
        }
        Ok(Box::new(request))
    }
}

impl Prober {
    /// Over TLS the authorities in the file `ca` are trusted, without one
    /// those of the system.
    pub(super) fn new(ca: Option<&Path>) -> Arc<Self> {
        let ca_file = system_authorities::of_engine(ca);
        // The engine panics on what it can't read.
        let connector = catch_unwind(|| {
            let mut options = ConnectorOptions::new(POOL);
            options.ca_file = ca_file;
            Connector::new(Some(options))
        });
        if connector.is_err() {
            tracing::error!("authorities can't be read: no active checks but tcp ones");
        }
        Arc::new(Self {
            connector: connector.ok(),
            room: Semaphore::new(AT_ONCE),
        })
    }

    /// Probes `endpoint` at `address`; `None` if that can't be done.
    pub(super) async fn probe(
        &self,
        plan: &Plan,
        endpoint: &Endpoint,
        address: SocketAddr,
    ) -> Option<Outcome> {
        if self.connector.is_none() && plan.kind != CheckType::Tcp {
            return None;
        }
        let _room = self.room.acquire().await;
        let check = async {
            if plan.kind == CheckType::Tcp {
                let connected = connect(plan, address).await;
                return connected.map_or(Outcome::TcpFailure, |()| Outcome::Status(200));
            }
            let asked = self.ask(plan, endpoint, address).await;
            asked.unwrap_or_else(|error| {
                tracing::debug!(target_ = %endpoint.label(), %error, "probe failed");
                failure(&error)
            })
        };
        let outcome = tokio::time::timeout(plan.timeout, check).await;
        Some(outcome.unwrap_or(Outcome::Timeout))
    }

    async fn ask(
        &self,
        plan: &Plan,
        endpoint: &Endpoint,
        address: SocketAddr,
    ) -> pingora::Result<Outcome> {
        let peer = plan.peer(endpoint, address);
        let request = plan.request(endpoint)?;
        let Some(connector) = &self.connector else {
            return Err(Error::new(ErrorType::InternalError));
        };
        let (mut session, _) = connector.get_http_session(&peer).await?;
        session.write_request_header(request).await?;
        if plan.is_grpc() {
            // One message without fields: the server as a whole is meant.
            let message = Bytes::from_static(&[0; 5]);
            session.write_request_body(message, true).await?;
        } else {
            session.finish_request_body().await?;
        }
        session.read_response_header().await?;
        let status = session.response_header().map_or(0, |h| h.status.as_u16());
        if !plan.is_grpc() {
            return Ok(Outcome::Status(status));
        }
        if status != 200 {
            return Ok(Outcome::HttpFailure);
        }
        grpc_outcome(session).await
    }
}

/// Connects, and says whose the connection is where that is expected.
async fn connect(plan: &Plan, address: SocketAddr) -> std::io::Result<()> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    match plan.header() {
        Some(header) => stream.write_all(header.header()).await,
        None => Ok(()),
    }
}

async fn grpc_outcome(mut session: HttpSession) -> pingora::Result<Outcome> {
    let mut answer = Vec::new();
    while answer.len() < MAX_ANSWER {
        match session.read_response_body().await? {
            Some(piece) => answer.extend_from_slice(&piece),
            None => break,
        }
    }
    if answer.len() > 5 {
        let serving = &answer[5..] == SERVING;
        return Ok(if serving {
            Outcome::Status(200)
        } else {
            Outcome::HttpFailure
        });
    }
    let status = |headers: &http::HeaderMap| headers.get("grpc-status").cloned();
    let mut said = session.response_header().and_then(|h| status(&h.headers));
    if said.is_none()
        && let HttpSession::H2(session) = &mut session
    {
        said = session.read_trailers().await?.as_ref().and_then(status);
    }
    // A server that speaks gRPC but does not know the question (12) lives.
    Ok(match said.as_ref().map(HeaderValue::as_bytes) {
        Some(b"12") => Outcome::Status(200),
        _ => Outcome::HttpFailure,
    })
}

fn failure(error: &Error) -> Outcome {
    use ErrorType as E;
    match error.etype() {
        E::ConnectTimedout | E::TLSHandshakeTimedout | E::ReadTimedout | E::WriteTimedout => {
            Outcome::Timeout
        }
        E::InvalidHTTPHeader | E::H1Error | E::H2Error | E::InvalidH2 => Outcome::HttpFailure,
        _ => Outcome::TcpFailure,
    }
}
