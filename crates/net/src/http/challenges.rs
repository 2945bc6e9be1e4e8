//! What certificate authorities ask a server before they vouch for its names: the
//! listeners ask whoever orders certificates.

use std::sync::Arc;

use async_trait::async_trait;
use rustls::ServerConfig;

/// What an authority speaks that asks for the answer to a challenge in a handshake
/// (RFC 8737 §6.2).
pub const ACME_TLS: &[u8] = b"acme-tls/1";

/// Answers to challenges over plain HTTP (RFC 8555 §8.3).
#[async_trait]
pub trait HttpChallenges: Send + Sync {
    /// The key authorization of this token; `None`: no order waits for it.
    async fn answer(&self, token: &str) -> Option<String>;
}

/// Looks at the greeting of a handshake before it is answered.
#[async_trait]
pub trait HandshakeGuide: Send + Sync {
    /// What the handshake is made with, where it only answers a challenge (RFC 8737);
    /// `None`: it goes on as any other. `is_challenge`: the client speaks `acme-tls/1`
    /// and nothing else. May wait until there is a certificate for `name`.
    async fn advise(&self, name: &str, is_challenge: bool) -> Option<Arc<ServerConfig>>;
}
