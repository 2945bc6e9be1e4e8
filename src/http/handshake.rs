//! What a TLS handshake has settled, for all requests of its connection.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::HeaderValue;
use pingora::listeners::TlsAccept;
use pingora::protocols::tls::{SslDigest, TlsRef};

use crate::x509;

/// Facts of one TLS connection.
#[derive(Debug, Default)]
pub struct Handshake {
    /// The server name that the client asked for: lower case, without a final
    /// dot.
    pub server_name: Option<Box<str>>,
    /// The client's certificate, verified.
    pub client_certificate: Option<ClientCertificate>,
    /// Whether a request has come.
    used: AtomicBool,
}

/// A client's certificate that was verified in the handshake.
#[derive(Debug)]
pub struct ClientCertificate {
    /// The subject, as RFC 4514 writes it.
    pub subject: String,
    /// Subject alternative names: host names, addresses, URIs, mailboxes.
    pub names: Vec<String>,
    /// The same in one text, with commas in between.
    pub joined_names: String,
    /// The serial number in lower-case hexadecimal.
    pub serial: String,
    /// SHA-256 of the certificate in lower-case hexadecimal.
    pub fingerprint: String,
    /// SHA-256 of the certificate in base64url, as tokens that are bound to it
    /// have it (`x5t#S256`, RFC 8705 §3.1).
    pub thumbprint: String,
    /// Valid until, in seconds since the epoch.
    pub not_after: i64,
    /// The whole certificate as the header `Client-Cert` (RFC 9440 §2.1).
    pub header: HeaderValue,
}

impl Handshake {
    /// The handshake of a connection whose digest is `tls`, if our listeners
    /// made it.
    pub fn of(tls: &SslDigest) -> Option<&Arc<Self>> {
        tls.extension.get::<Arc<Self>>()
    }

    /// Notes that a request has come.
    pub fn note_request(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a request has come.
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }
}

impl ClientCertificate {
    /// Reads the certificate `der`; nothing if it can't be read.
    fn read(der: &[u8]) -> Option<Self> {
        let facts = x509::facts(der).ok()?;
        let digest = digest(&SHA256, der);
        let header = format!(":{}:", STANDARD.encode(der));
        // A comma inside a name must not make two of it.
        let joined: Vec<_> = facts.names.iter().map(|n| n.replace(',', "%2C")).collect();
        Some(Self {
            subject: facts.subject,
            joined_names: joined.join(","),
            names: facts.names,
            serial: facts.serial,
            fingerprint: x509::hex(digest.as_ref()),
            thumbprint: URL_SAFE_NO_PAD.encode(digest.as_ref()),
            not_after: facts.not_after,
            header: HeaderValue::try_from(header).ok()?,
        })
    }
}

/// Keeps what a handshake has settled with its connection.
pub(super) struct Remember;

#[async_trait]
impl TlsAccept for Remember {
    async fn handshake_complete_callback(
        &self,
        tls: &TlsRef,
    ) -> Option<Arc<dyn Any + Send + Sync>> {
        let name = tls.server_name().map(|name| {
            let name = name.strip_suffix('.').unwrap_or(name);
            name.to_ascii_lowercase().into_boxed_str()
        });
        let handshake = Arc::new(Handshake {
            server_name: name,
            client_certificate: tls.peer_certificate_der().and_then(ClientCertificate::read),
            used: AtomicBool::new(false),
        });
        Some(Arc::new(handshake))
    }
}
