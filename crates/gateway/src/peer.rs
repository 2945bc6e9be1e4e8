//! How a service's upstream is spoken to: timeouts, protocol, certificates.
//!
//! Compiled once for each version of a service. Connections are shared only
//! between services that would make the same ones: whatever decides whom an
//! upstream is taken for is part of the pool's key.

use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use pingora::protocols::TcpKeepalive;
use pingora::protocols::l4::socket::SocketAddr as PeerAddress;
use pingora::protocols::tls::CaType;
use pingora::upstreams::peer::HttpPeer;
use pingora::utils::tls::{CertKey, WrappedX509, parse_x509};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;

use super::entities::{Entities, Record};
use doorward_core::model::ca_certificate::CaCertificate;
use doorward_core::model::certificate::Certificate;
use doorward_core::model::service::{Protocol, ProxyProtocol, Service};
use doorward_core::model::upstream::Upstream;
use doorward_core::x509;
use doorward_net::http::proxy_header::ProxyHeaderConnector;

/// Upstream connections are closed after this much idleness: below what
/// common servers allow, so that we are the side that closes.
pub(super) const IDLE: Duration = Duration::from_secs(50);
/// The same for connections that belong to one client: there is one for each of its
/// own.
const IDLE_OF_CLIENT: Duration = Duration::from_secs(10);
/// Most requests at once over one HTTP/2 connection to an upstream.
const STREAMS: usize = 100;
/// How much later than its limit the system gives up a connection: it looks again
/// in growing intervals.
const PROBES: Duration = Duration::from_millis(450);
/// Certificates that the library follows from an upstream's to a trusted one.
const LIBRARY_DEPTH: u8 = 6;

/// What of a service can't be used to connect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct DialError {
    /// The service's field.
    pub field: &'static str,
    /// What is wrong.
    pub message: String,
}

/// What of other records a service is connected with: certificates, and how clients
/// are named. Equal ones make equal connections.
#[derive(Debug, Default, Clone)]
pub struct UpstreamCredentials {
    client: Option<Arc<Record<Certificate>>>,
    authorities: Option<Box<[Arc<Record<CaCertificate>>]>>,
    /// How clients are named to the upstream.
    proxy_protocol: Option<ProxyProtocol>,
}

/// Makes peers of a service's addresses.
#[derive(Debug)]
pub struct Dialer {
    template: HttpPeer,
    tls: bool,
    http2: bool,
    proxy_protocol: Option<ProxyProtocol>,
    /// Where it is connected to, whatever address is asked for.
    socket: Option<PeerAddress>,
}

impl UpstreamCredentials {
    /// What `service` refers to, or else the upstream that it is balanced by.
    ///
    /// # Errors
    /// [`DialError`] if it isn't there.
    pub fn of(
        service: &Service,
        upstream: Option<&Upstream>,
        entities: &Entities,
    ) -> Result<Self, DialError> {
        let missing = |field, entity, id| DialError {
            field,
            message: format!(
                "the foreign key '{{id=\"{id}\"}}' does not reference an existing '{entity}' entity."
            ),
        };
        let inherited = upstream.and_then(|upstream| upstream.client_certificate);
        let client = match service.client_certificate.or(inherited) {
            None => None,
            Some(reference) => Some(
                entities
                    .certificates
                    .get(reference.id)
                    .cloned()
                    .ok_or_else(|| missing("client_certificate", "certificates", reference.id))?,
            ),
        };
        let find = |id: &uuid::Uuid| {
            let found = entities.ca_certificates.get(*id).cloned();
            found.ok_or_else(|| missing("ca_certificates", "ca_certificates", *id))
        };
        let authorities = match &service.ca_certificates {
            // An empty list would trust nobody; it means that nothing is said.
            Some(ids) if !ids.is_empty() => Some(ids.iter().map(find).collect::<Result<_, _>>()?),
            _ => None,
        };
        let inherited = upstream.and_then(|upstream| upstream.proxy_protocol);
        Ok(Self {
            client,
            authorities,
            proxy_protocol: service.proxy_protocol.or(inherited),
        })
    }

    /// Whether both hold the same certificates.
    pub fn is_same(&self, other: &Self) -> bool {
        let pem = |credentials: &Self| {
            let client = credentials.client.as_ref();
            client.map(|c| (c.value.cert.clone(), c.value.key.expose().to_owned()))
        };
        let same_client = match (&self.client, &other.client) {
            (Some(a), Some(b)) if Arc::ptr_eq(a, b) => true,
            _ => pem(self) == pem(other),
        };
        let (ours, theirs) = (&self.authorities, &other.authorities);
        let mut ours = ours.iter().flatten().map(|ca| &ca.value.cert);
        let mut theirs = theirs.iter().flatten().map(|ca| &ca.value.cert);
        let same_protocol = self.proxy_protocol == other.proxy_protocol;
        same_protocol && same_client && ours.by_ref().eq(theirs.by_ref())
    }
}

impl Dialer {
    /// How `service`, which is not an internal one, is spoken to. `verify`:
    /// whether its certificate is verified if it does not say itself.
    ///
    /// # Errors
    /// [`DialError`] if a certificate or key can't be used.
    pub fn new(
        service: &Service,
        credentials: &UpstreamCredentials,
        verify: bool,
    ) -> Result<Self, DialError> {
        let tls = matches!(service.protocol, Protocol::Https | Protocol::Grpcs);
        let http2 = matches!(service.protocol, Protocol::Grpc | Protocol::Grpcs);
        if http2 && credentials.proxy_protocol.is_some() {
            // Its connections are shared by requests of many clients.
            return Err(DialError {
                field: "protocol",
                message: "gRPC can't be spoken to an upstream with proxy_protocol".to_owned(),
            });
        }
        let host = service.host.trim_matches(['[', ']']);
        let nowhere = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), service.port);
        // The server name is always set: an empty one switches verification off.
        let mut peer = HttpPeer::new(nowhere, tls, host.to_owned());
        let millis = |ms| Some(Duration::from_millis(ms));
        let options = &mut peer.options;
        options.connection_timeout = millis(service.connect_timeout);
        options.total_connection_timeout = millis(service.connect_timeout);
        options.read_timeout = millis(service.read_timeout);
        options.write_timeout = millis(service.write_timeout);
        options.idle_timeout = Some(IDLE);
        options.tcp_keepalive = Some(liveness(service.write_timeout));
        if http2 {
            options.set_http_version(2, 2);
            options.max_h2_streams = STREAMS;
        }
        let verify = service.tls_verify.unwrap_or(verify);
        options.verify_cert = verify;
        options.verify_hostname = verify;
        if tls {
            set_credentials(&mut peer, credentials)?;
        }
        if let Some(depth) = service.tls_verify_depth
            && depth < LIBRARY_DEPTH
        {
            let service = service.name.as_deref().unwrap_or("");
            tracing::warn!(
                service,
                depth,
                "tls_verify_depth: chains of up to {LIBRARY_DEPTH} certificates are followed"
            );
        }
        // A connection keeps the limit that it was opened with.
        let mut key = fixed_hasher();
        key.write_u64(peer.group_key);
        key.write_u64(service.write_timeout);
        // One pool for both would hand HTTP/2 connections to HTTP/1 requests.
        peer.group_key = (key.finish() << 1) | u64::from(http2);
        Ok(Self {
            template: peer,
            tls,
            http2,
            proxy_protocol: credentials.proxy_protocol,
            socket: service.socket.as_deref().map(socket).transpose()?,
        })
    }

    /// Has a new connection to `peer` begin with whose it is, if the upstream wants to
    /// know: `client` has connected to `local`. Only requests of the same client share
    /// such a connection.
    pub(super) fn name_client(
        &self,
        peer: &mut HttpPeer,
        client: SocketAddr,
        local: impl FnOnce() -> Option<SocketAddr>,
    ) {
        let Some(version) = self.proxy_protocol else {
            return;
        };
        // Clients of a Unix socket have no address.
        let local = local().filter(|_| !client.ip().is_unspecified());
        let connector = ProxyHeaderConnector::new(version, local.map(|local| (client, local)));
        // Clients choose their addresses: nobody is to find two with the same key.
        static STATE: LazyLock<ahash::RandomState> = LazyLock::new(ahash::RandomState::new);
        let key = STATE.hash_one((peer.group_key, connector.header()));
        // Not one of HTTP/2.
        peer.group_key = key << 1;
        peer.options.idle_timeout = Some(IDLE_OF_CLIENT);
        peer.options.custom_l4 = Some(Arc::new(connector));
    }

    /// Takes a certificate that is trusted for what it is, whatever host it is
    /// for.
    pub(super) fn accept_any_host(&mut self) {
        self.template.options.verify_hostname = false;
    }

    /// The peer at `address`; `name`, without a port, is the host that it is
    /// asked to be, if that is not the service's own.
    pub fn peer(&self, address: SocketAddr, name: Option<&str>) -> Box<HttpPeer> {
        let mut peer = Box::new(self.template.clone());
        peer._address = match &self.socket {
            Some(socket) => socket.clone(),
            None => address.into(),
        };
        if let Some(name) = name.filter(|name| self.tls && !name.is_empty()) {
            peer.sni = name.to_owned();
        }
        peer
    }

    /// Whether the upstream is spoken to over TLS.
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// Whether the upstream is spoken to in HTTP/2.
    pub fn is_http2(&self) -> bool {
        self.http2
    }

    /// Longest time to wait for a connection, and for an address to connect to.
    pub fn patience(&self) -> Duration {
        let patience = self.template.options.connection_timeout;
        patience.unwrap_or(Duration::from_secs(60))
    }
}

fn socket(path: &str) -> Result<PeerAddress, DialError> {
    let address = std::os::unix::net::SocketAddr::from_pathname(path);
    let address = address.map_err(|error| DialError {
        field: "socket",
        message: error.to_string(),
    })?;
    Ok(PeerAddress::Unix(address))
}

/// The host of a Host header: without its port and without brackets.
pub(super) fn host_of(authority: &str) -> &str {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    };
    host.trim_start_matches('[').trim_end_matches(']')
}

/// How the system finds out that an upstream takes nothing any more.
///
/// When a write has taken too long, the engine still waits for an answer, until
/// the read timeout. A connection that the system gives up ends that wait. Probes of
/// idle connections, which come with it, are as rare as the system's own.
fn liveness(write_timeout: u64) -> TcpKeepalive {
    let limit = Duration::from_millis(write_timeout);
    TcpKeepalive {
        idle: Duration::from_secs(2 * 60 * 60),
        interval: Duration::from_secs(75),
        count: 9,
        #[cfg(target_os = "linux")]
        user_timeout: (limit.saturating_sub(PROBES)).max(limit / 2),
    }
}

fn set_credentials(
    peer: &mut HttpPeer,
    credentials: &UpstreamCredentials,
) -> Result<(), DialError> {
    let mut key = fixed_hasher();
    if let Some(record) = &credentials.client {
        peer.client_cert_key = Some(card(&record.value, &mut key)?);
    }
    if let Some(records) = &credentials.authorities {
        let mut authorities = Vec::new();
        for record in records {
            let parsed = authority(&record.value.cert).map_err(|message| DialError {
                field: "ca_certificates",
                message,
            })?;
            for der in parsed {
                key.write_u8(0);
                key.write(&der);
                authorities.push(WrappedX509::new(der, parse_x509));
            }
        }
        let authorities: Box<CaType> = authorities.into();
        peer.options.ca = Some(Arc::from(authorities));
    }
    if credentials.client.is_some() || credentials.authorities.is_some() {
        peer.group_key = key.finish();
    }
    Ok(())
}

/// What of a peer makes it show `certificate`: chain with key, and the key of
/// the pool of such connections.
///
/// # Errors
/// [`DialError`] if it can't be used.
pub(super) fn client_key(certificate: &Certificate) -> Result<(Arc<CertKey>, u64), DialError> {
    let mut key = fixed_hasher();
    let card = card(certificate, &mut key)?;
    Ok((card, key.finish()))
}

/// Chain with key, taken into the pool's `key`.
fn card(certificate: &Certificate, key: &mut impl Hasher) -> Result<Arc<CertKey>, DialError> {
    let (chain, private) = client_certificate(certificate).map_err(|message| DialError {
        field: "client_certificate",
        message,
    })?;
    for der in &chain {
        key.write(der);
    }
    key.write(&private);
    Ok(Arc::new(CertKey::new(chain, private)))
}

/// The same over all versions of the configuration, so that an unchanged
/// service keeps its connections.
fn fixed_hasher() -> impl Hasher {
    use std::sync::OnceLock;
    static STATE: OnceLock<ahash::RandomState> = OnceLock::new();
    STATE.get_or_init(ahash::RandomState::new).build_hasher()
}

/// Chain and key in DER, known to belong together.
fn client_certificate(certificate: &Certificate) -> Result<(Vec<Vec<u8>>, Vec<u8>), String> {
    let chain = pem_certificates(&certificate.cert)?;
    x509::check_client(&chain).map_err(|error| error.to_string())?;
    let key = x509::key(certificate.key.expose().as_bytes()).map_err(|error| error.to_string())?;
    x509::certified(chain.clone(), key.clone_key())
        .map_err(|error| format!("certificate and key can't be used: {error}"))?;
    let chain: Vec<Vec<u8>> = chain.iter().map(|der| der.to_vec()).collect();
    chain.iter().try_for_each(|der| readable(der))?;
    Ok((chain, key.secret_der().to_vec()))
}

fn authority(pem: &str) -> Result<Vec<Vec<u8>>, String> {
    let certificates = pem_certificates(pem)?;
    let mut store = RootCertStore::empty();
    for certificate in &certificates {
        store
            .add(certificate.clone())
            .map_err(|_| "invalid certificate: no authority can be read from it".to_owned())?;
        readable(certificate)?;
    }
    Ok(certificates.iter().map(|der| der.to_vec()).collect())
}

fn pem_certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    x509::chain(pem.as_bytes()).map_err(|error| error.to_string())
}

/// The engine's own parser panics on what it can't read.
fn readable(der: &[u8]) -> Result<(), String> {
    std::panic::catch_unwind(|| drop(parse_x509(&der)))
        .map_err(|_| "invalid certificate: not X.509".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_lose_port_and_brackets() {
        assert_eq!(host_of("a.example:8443"), "a.example");
        assert_eq!(host_of("a.example"), "a.example");
        assert_eq!(host_of("[::1]:8443"), "::1");
        assert_eq!(host_of("[::1]"), "::1");
    }
}
