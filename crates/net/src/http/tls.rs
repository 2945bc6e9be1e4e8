//! The server's side of TLS handshakes: bounded in time, with failures that
//! are counted by what went wrong, and settings that can be replaced.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use pingora::listeners::tls::{Acceptor, TlsSettings};
use pingora::protocols::l4::stream::Stream as Socket;
use pingora::protocols::{Peek as _, Stream};
use rustls::ServerConfig;
use rustls::server::Acceptor as Greeting;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::challenges::{ACME_TLS, HandshakeGuide};
use super::handshake::Remember;
use crate::telemetry::listeners::HandshakeFailure;
use doorward_core::clock::random_uuid;

/// Bytes before the contents of a record (RFC 8446 §5.1).
const RECORD_HEAD: usize = 5;
/// The longest record in the clear.
const RECORD_MAX: usize = 1 << 14;
/// First byte of a handshake (RFC 8446 §5.1); no method of HTTP begins so.
const HANDSHAKE: u8 = 0x16;
/// How long the rest of a mistaken request is read, so that the answer to it
/// arrives.
const LINGER: Duration = Duration::from_secs(1);
/// Makes TLS connections of accepted sockets.
pub struct TlsAcceptor {
    current: ArcSwap<Acceptor>,
    guide: Option<Arc<dyn HandshakeGuide>>,
}

impl TlsAcceptor {
    /// Handshakes by `config`.
    pub fn new(config: ServerConfig) -> Result<Self, pingora::BError> {
        Ok(Self {
            current: ArcSwap::from_pointee(acceptor(config)?),
            guide: None,
        })
    }

    /// Asks `guide` about each handshake before it is made.
    #[must_use]
    pub fn guided(mut self, guide: Option<Arc<dyn HandshakeGuide>>) -> Self {
        self.guide = guide;
        self
    }

    /// Lets later handshakes go by `config`; connections stay.
    ///
    /// # Errors
    /// As [`TlsAcceptor::new`]; nothing changes then.
    pub fn replace(&self, config: ServerConfig) -> Result<(), pingora::BError> {
        self.current.store(Arc::new(acceptor(config)?));
        Ok(())
    }

    /// The handshake on `stream`, which may take `limit` in all; nothing, if it only
    /// answered an authority's challenge.
    ///
    /// # Errors
    /// What went wrong, and its details; the connection is closed then.
    pub(super) async fn accept(
        &self,
        stream: Stream,
        limit: Duration,
    ) -> Result<Option<Stream>, (HandshakeFailure, String)> {
        let shake = async {
            let Some(mut socket) = socket(stream) else {
                return Err((HandshakeFailure::Other, "not a socket".to_owned()));
            };
            let mut first = [0_u8];
            let peeked = socket.try_peek(&mut first).await;
            peeked.map_err(|error| (HandshakeFailure::Closed, error.to_string()))?;
            if first[0] != HANDSHAKE && first[0].is_ascii_uppercase() {
                let id = random_uuid().simple().to_string();
                explain(*socket, &id).await;
                let details = format!("plain HTTP, request_id {id}");
                return Err((HandshakeFailure::PlainHttp, details));
            }
            if let Some(guide) = &self.guide
                && let Some(config) = advised(guide.as_ref(), &mut socket).await
            {
                let shaken = Acceptor::from_server_config(config)
                    .acceptor
                    .accept(*socket);
                let mut stream = shaken.await.map_err(|error| classify(&error.to_string()))?;
                // The authority has seen the certificate, and wants nothing else.
                let _ = stream.shutdown().await;
                return Ok(None);
            }
            let acceptor = self.current.load_full();
            let shaken = acceptor.tls_handshake(*socket).await;
            let stream = shaken.map_err(|error| classify(&error.to_string()))?;
            Ok(Some(Box::new(stream) as Stream))
        };
        timeout(limit, shake)
            .await
            .unwrap_or_else(|_| Err((HandshakeFailure::Timeout, "timed out".to_owned())))
    }
}

/// What `guide` has this handshake made with. A greeting that is not in one record is
/// nobody's challenge.
async fn advised(guide: &dyn HandshakeGuide, socket: &mut Socket) -> Option<Arc<ServerConfig>> {
    let mut head = [0_u8; RECORD_HEAD];
    socket.try_peek(&mut head).await.ok()?;
    let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
    if head[0] != HANDSHAKE || length > RECORD_MAX {
        return None;
    }
    let mut record = vec![0_u8; RECORD_HEAD + length];
    socket.try_peek(&mut record).await.ok()?;
    let mut greeting = Greeting::default();
    greeting.read_tls(&mut record.as_slice()).ok()?;
    let accepted = greeting.accept().ok()??;
    let hello = accepted.client_hello();
    let name = hello.server_name()?.to_owned();
    let is_challenge = hello.alpn().is_some_and(|mut protocols| {
        protocols.next() == Some(ACME_TLS) && protocols.next().is_none()
    });
    drop(accepted);
    guide.advise(&name, is_challenge).await
}

/// The socket beneath a stream that is nothing else yet.
pub(super) fn socket(stream: Stream) -> Option<Box<Socket>> {
    stream.into_any().downcast::<Socket>().ok()
}

/// The engine's acceptor for `config`, with what it lacks when it is made of a
/// configuration: a place for the connection's facts.
fn acceptor(config: ServerConfig) -> Result<Acceptor, pingora::BError> {
    let config = Arc::new(config);
    let mut settings = TlsSettings::with_callbacks(Box::new(Remember))?;
    settings.set_cert_resolver(config.cert_resolver.clone());
    let mut acceptor = settings.build();
    acceptor.acceptor = Acceptor::from_server_config(config).acceptor;
    Ok(acceptor)
}

/// Tells a client that forgot the `s`.
async fn explain(mut socket: Socket, id: &str) {
    let body = format!(
        "{{\"message\":\"The plain HTTP request was sent to an HTTPS port\",\
         \"request_id\":\"{id}\"}}"
    );
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json; charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    let said = async {
        socket.write_all(answer.as_bytes()).await?;
        socket.shutdown().await?;
        let mut rest = [0_u8; 4096];
        while socket.read(&mut rest).await? > 0 {}
        std::io::Result::Ok(())
    };
    // Whether it arrives is the client's concern.
    let _ = timeout(LINGER, said).await;
}

/// What went wrong, by the words of the TLS library.
fn classify(error: &str) -> (HandshakeFailure, String) {
    const WORDS: &[(&str, HandshakeFailure)] = &[
        (
            "invalid peer certificate",
            HandshakeFailure::ClientCertificate,
        ),
        (
            "peer sent no certificates",
            HandshakeFailure::ClientCertificate,
        ),
        ("received fatal alert", HandshakeFailure::RefusedByClient),
        ("peer is incompatible", HandshakeFailure::Incompatible),
        ("received corrupt message", HandshakeFailure::Malformed),
        ("peer misbehaved", HandshakeFailure::Malformed),
        ("received unexpected", HandshakeFailure::Malformed),
        ("eof", HandshakeFailure::Closed),
        ("reset by peer", HandshakeFailure::Closed),
        ("Broken pipe", HandshakeFailure::Closed),
    ];
    let known = WORDS.iter().find(|(words, _)| error.contains(words));
    let failure = known.map_or(HandshakeFailure::Other, |(_, failure)| *failure);
    (failure, error.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};

    #[test]
    fn failures_are_told_apart_by_the_librarys_words() {
        for (error, failure) in [
            (
                Error::InvalidCertificate(CertificateError::UnknownIssuer),
                HandshakeFailure::ClientCertificate,
            ),
            (
                Error::NoCertificatesPresented,
                HandshakeFailure::ClientCertificate,
            ),
            (
                Error::AlertReceived(AlertDescription::UnknownCA),
                HandshakeFailure::RefusedByClient,
            ),
            (
                Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon),
                HandshakeFailure::Incompatible,
            ),
            (
                Error::InvalidMessage(InvalidMessage::InvalidContentType),
                HandshakeFailure::Malformed,
            ),
            (Error::HandshakeNotComplete, HandshakeFailure::Other),
        ] {
            assert_eq!(classify(&error.to_string()).0, failure, "{error}");
        }
    }
}
