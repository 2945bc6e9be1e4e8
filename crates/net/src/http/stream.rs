//! Requests of HTTP/2, each a stream of its own.

use http::header::{CONTENT_LENGTH, TE};
use http::{HeaderMap, Method};
use pingora::Result;
use pingora::prelude::{Error, ErrorType};
use pingora::protocols::http::{HttpTask, ServerSession};

use super::bridge::{self, BUFFERED_MAX};
use super::framing;
use super::session::{self, RelaySession};

/// Whether `session` is a stream of HTTP/2 with a plain request.
///
/// As in HTTP/1.1 ([`awaits_plain_request`](framing::FramedStream::awaits_plain_request)),
/// such a request has no body, or one of [`BUFFERED_MAX`] bytes at most whose length it
/// says. It has no expectation and no field for one connection alone but `TE`, which says
/// no more than `trailers` there (RFC 9113 §8.2.2).
pub fn is_plain(session: &ServerSession) -> bool {
    let ServerSession::H2(stream) = session else {
        return false;
    };
    let head = stream.req_header();
    head.method != Method::CONNECT
        && (stream.is_body_empty() || is_short(&head.headers))
        && !has_special(&head.headers)
}

fn is_short(headers: &HeaderMap) -> bool {
    let several = headers.get_all(CONTENT_LENGTH).iter().nth(1).is_some();
    let length = bridge::announced_length(headers).filter(|_| !several);
    length.is_some_and(|length| length <= BUFFERED_MAX)
}

fn has_special(headers: &HeaderMap) -> bool {
    let mut names = headers.keys();
    names.any(|name| *name != TE && framing::is_special(name.as_str()))
}

/// A stream of HTTP/2; the loop relays no other request of the engine's session.
impl RelaySession for ServerSession {
    async fn queue(&mut self, part: HttpTask) -> Result<bool> {
        let ServerSession::H2(stream) = self else {
            let why = "only streams of HTTP/2 are relayed by the engine's session";
            return Error::e_explain(ErrorType::InternalError, why);
        };
        let end = match part {
            HttpTask::Header(head, end) => {
                stream.write_response_header(head, end)?;
                end
            }
            HttpTask::Body(Some(piece), end) if !piece.is_empty() => {
                stream.write_body(piece, end).await?;
                end
            }
            HttpTask::Body(_, end) => end,
            HttpTask::Trailer(Some(trailers)) => {
                stream.write_trailers(*trailers)?;
                true
            }
            HttpTask::Trailer(None) | HttpTask::Done => true,
            HttpTask::UpgradedBody(..) => return session::no_tunnel(),
            HttpTask::Failed(error) => return Err(error),
        };
        if end {
            stream.finish()?;
        }
        Ok(end)
    }

    /// The connection's task sends it.
    async fn send(&mut self) -> Result<()> {
        Ok(())
    }

    async fn left(&mut self) -> Box<Error> {
        let ServerSession::H2(stream) = self else {
            return std::future::pending().await;
        };
        match stream.idle().await {
            Ok(reason) => {
                let context = format!("Client closed H2, reason: {reason}");
                Error::explain(ErrorType::H2Error, context)
            }
            Err(error) => error,
        }
    }
}
