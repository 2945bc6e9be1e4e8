//! What a TLS handshake has settled, for all requests of its connection.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use pingora::listeners::TlsAccept;
use pingora::protocols::tls::{SslDigest, TlsRef};

use super::server_name::normalised;

pub use doorward_core::x509::ClientCertificate;

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

/// Keeps what a handshake has settled with its connection.
pub(super) struct Remember;

#[async_trait]
impl TlsAccept for Remember {
    async fn handshake_complete_callback(
        &self,
        tls: &TlsRef,
    ) -> Option<Arc<dyn Any + Send + Sync>> {
        let handshake = Arc::new(Handshake {
            server_name: tls.server_name().map(|name| normalised(name).into()),
            client_certificate: tls.peer_certificate_der().and_then(ClientCertificate::read),
            used: AtomicBool::new(false),
        });
        Some(Arc::new(handshake))
    }
}
