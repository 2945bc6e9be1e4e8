//! TLS clients that say exactly what they offer and tell what they were shown.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, HandshakeKind, ProtocolVersion,
    SignatureScheme, StreamOwned, SupportedProtocolVersion,
};

use super::DEADLINE;

/// A certificate and its key as PEM and DER.
pub(crate) struct Pair {
    /// The certificate in PEM.
    pub(crate) cert: String,
    /// Its key in PEM.
    pub(crate) key: String,
    /// The certificate in DER.
    pub(crate) der: CertificateDer<'static>,
    key_der: Vec<u8>,
}

impl Pair {
    /// A self-signed certificate for `name` with a key of the usual kind.
    pub(crate) fn new(name: &str) -> Self {
        Self::with(name, &rcgen::PKCS_ECDSA_P256_SHA256, |_| {})
    }

    /// A self-signed certificate for `name` with an RSA key.
    pub(crate) fn rsa(name: &str) -> Self {
        Self::with(name, &rcgen::PKCS_RSA_SHA256, |_| {})
    }

    /// A self-signed certificate for `name` that was valid long ago.
    pub(crate) fn expired(name: &str) -> Self {
        Self::with(name, &rcgen::PKCS_ECDSA_P256_SHA256, |params| {
            params.not_before = rcgen::date_time_ymd(2000, 1, 1);
            params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        })
    }

    fn with(
        name: &str,
        algorithm: &'static rcgen::SignatureAlgorithm,
        change: impl Fn(&mut CertificateParams),
    ) -> Self {
        let key = KeyPair::generate_for(algorithm).expect("a key");
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        change(&mut params);
        let certificate = params.self_signed(&key).expect("a certificate");
        Self {
            cert: certificate.pem(),
            key: key.serialize_pem(),
            der: certificate.der().clone(),
            key_der: key.serialize_der(),
        }
    }

    /// What `POST /certificates` takes.
    pub(crate) fn json(&self, names: &[&str]) -> serde_json::Value {
        serde_json::json!({"cert": self.cert, "key": self.key, "snis": names})
    }
}

/// An authority that signs certificates of clients.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// A new one.
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    /// Its certificate in PEM.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for the client `name`.
    pub(crate) fn client(&self, name: &str) -> Pair {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        Pair {
            cert: certificate.pem(),
            key: key.serialize_pem(),
            der: certificate.der().clone(),
            key_der: key.serialize_der(),
        }
    }
}

/// What a client offers.
#[derive(Clone)]
pub(crate) struct Offer(Arc<ClientConfig>);

impl Offer {
    /// Everything, trusting anybody.
    pub(crate) fn new() -> Self {
        Self::versions(rustls::ALL_VERSIONS)
    }

    /// Some versions only.
    pub(crate) fn versions(versions: &[&'static SupportedProtocolVersion]) -> Self {
        Self::with(
            rustls::crypto::aws_lc_rs::default_provider(),
            versions,
            None,
        )
    }

    /// With a certificate of the client.
    pub(crate) fn certificate(pair: &Pair) -> Self {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        Self::with(provider, rustls::ALL_VERSIONS, Some(pair))
    }

    /// Only what old clients verify: RSA.
    pub(crate) fn rsa_only() -> Self {
        use rustls::crypto::aws_lc_rs::cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256;
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        provider.cipher_suites = vec![TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256];
        Self::with(provider, &[&rustls::version::TLS12], None)
    }

    /// What this provider has of these versions, with this certificate if any.
    pub(crate) fn with(
        provider: CryptoProvider,
        versions: &[&'static SupportedProtocolVersion],
        pair: Option<&Pair>,
    ) -> Self {
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(versions)
            .expect("versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody));
        let mut config = match pair {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let key = PrivateKeyDer::try_from(pair.key_der.clone()).expect("a key");
                builder
                    .with_client_auth_cert(vec![pair.der.clone()], key)
                    .expect("a certificate")
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self(Arc::new(config))
    }

    /// The same with other protocols.
    pub(crate) fn protocols(&self, protocols: &[&str]) -> Self {
        let mut config = (*self.0).clone();
        config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
        Self(Arc::new(config))
    }

    /// Connects to `port` of this machine and names the server `name`.
    pub(crate) fn connect(&self, port: u16, name: &str) -> std::io::Result<Connection> {
        self.connect_behind(b"", port, name)
    }

    /// The same behind bytes that a proxy sends first.
    pub(crate) fn connect_behind(
        &self,
        header: &[u8],
        port: u16,
        name: &str,
    ) -> std::io::Result<Connection> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.write_all(header)?;
        let name = ServerName::try_from(name.to_owned()).expect("a server name");
        let client = ClientConnection::new(self.0.clone(), name).expect("a client");
        let mut stream = StreamOwned::new(client, stream);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Connection(stream))
    }
}

/// A connection after its handshake.
pub(crate) struct Connection(StreamOwned<ClientConnection, TcpStream>);

impl Connection {
    /// The certificate that was shown.
    pub(crate) fn shown(&self) -> CertificateDer<'static> {
        self.0.conn.peer_certificates().expect("certificates")[0].clone()
    }

    /// The version that was agreed on.
    pub(crate) fn version(&self) -> ProtocolVersion {
        self.0.conn.protocol_version().expect("a version")
    }

    /// The protocol that was agreed on.
    pub(crate) fn protocol(&self) -> String {
        let protocol = self.0.conn.alpn_protocol().unwrap_or_default();
        String::from_utf8_lossy(protocol).into_owned()
    }

    /// Whether a former session was resumed.
    pub(crate) fn is_resumed(&self) -> bool {
        self.0.conn.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all(bytes)?;
        self.0.flush()
    }

    /// One request for `host` with further header lines; the whole answer.
    pub(crate) fn get(&mut self, host: &str, lines: &str) -> std::io::Result<String> {
        let request =
            format!("GET /x HTTP/1.1\r\nHost: {host}\r\n{lines}Connection: close\r\n\r\n");
        self.send(request.as_bytes())?;
        Ok(String::from_utf8_lossy(&self.rest()?).into_owned())
    }

    /// Everything until the server closes.
    pub(crate) fn rest(&mut self) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match self.0.read_to_end(&mut bytes) {
            Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => Err(error),
            _ => Ok(bytes),
        }
    }

    /// Whether the server closes within `limit`, whatever it sends before.
    pub(crate) fn closes_within(&mut self, limit: Duration) -> bool {
        self.0.sock.set_read_timeout(Some(limit)).expect("a limit");
        let mut rest = [0; 4096];
        loop {
            match self.0.sock.read(&mut rest) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        }
    }
}

/// Trusts anybody.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
