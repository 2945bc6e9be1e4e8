//! Bodies of answers, which end with what were trailers. Messages may be told in JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, StatusCode};
use serde_json::json;

use super::json::{Frames, JsonAnswer};
use doorward_plugin_api::filter::BodyFilter;

/// The first byte of a frame that holds trailers.
const TRAILERS: u8 = 0x80;
/// Bytes before what a frame holds: the first one, and the length.
pub(super) const FRAME_HEAD: usize = 5;
/// The status of a call whose answer can't be told: the gateway's fault, or the
/// description's.
const INTERNAL: &str = "13";
/// Longest text of a frame: fields that find no room are left out.
const MAX_TEXT: usize = 32 << 10;

pub(super) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(super) const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Fields of a head that are about HTTP and not about the call.
const OF_HTTP: [&str; 14] = [
    "alt-svc",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "date",
    "grpc-message",
    "grpc-status",
    "keep-alive",
    "server",
    "set-cookie",
    "trailer",
    "transfer-encoding",
    "via",
];

/// The frame that ends a body.
pub(super) struct TrailersFrame(Bytes);

impl TrailersFrame {
    /// That of an answer whose head is all there is.
    pub(super) fn of_head(head: &HeaderMap) -> Option<Self> {
        head.contains_key(GRPC_STATUS).then(|| Self::of(head))
    }

    /// What these fields say: status and message first, and each once.
    fn of(fields: &HeaderMap) -> Self {
        let mut text = BytesMut::with_capacity(256);
        let empty = |name| fields.get(name).map_or(&b""[..], |value| value.as_bytes());
        let status = fields.get(GRPC_STATUS).map(|value| value.as_bytes());
        line(&mut text, GRPC_STATUS.as_str(), status.unwrap_or(b"2"));
        line(&mut text, GRPC_MESSAGE.as_str(), empty(GRPC_MESSAGE));
        let others = fields
            .iter()
            .filter(|(name, _)| !OF_HTTP.contains(&name.as_str()));
        for (name, value) in others {
            line(&mut text, name.as_str(), value.as_bytes());
        }
        Self(framed(&text))
    }

    /// That of an answer without trailers, which says nothing of how the call went.
    fn missing(status: StatusCode) -> Self {
        let code = match status.as_u16() {
            400 => "13",
            401 => "16",
            403 => "7",
            404 => "12",
            429 | 502 | 503 | 504 => "14",
            _ => "2",
        };
        let mut text = BytesMut::new();
        line(&mut text, GRPC_STATUS.as_str(), code.as_bytes());
        let message = b"the upstream has told no status";
        line(&mut text, GRPC_MESSAGE.as_str(), message);
        Self(framed(&text))
    }

    /// That of an answer that can't be told, of which `message` says why.
    fn of_failure(message: &str) -> Self {
        let mut text = BytesMut::new();
        line(&mut text, GRPC_STATUS.as_str(), INTERNAL.as_bytes());
        line(&mut text, GRPC_MESSAGE.as_str(), message.as_bytes());
        Self(framed(&text))
    }

    /// As it is sent.
    pub(super) fn encoded(self, text: bool) -> Bytes {
        if text {
            STANDARD.encode(&self.0).into()
        } else {
            self.0
        }
    }
}

/// Writes a field. No value has a line break: it was one of a message.
fn line(text: &mut BytesMut, name: &str, value: &[u8]) {
    if text.len() + name.len() + value.len() > MAX_TEXT {
        return;
    }
    text.extend_from_slice(name.as_bytes());
    text.put_u8(b':');
    text.extend_from_slice(value);
    text.extend_from_slice(b"\r\n");
}

fn framed(text: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(FRAME_HEAD + text.len());
    frame.put_u8(TRAILERS);
    frame.put_u32(u32::try_from(text.len()).unwrap_or(0));
    frame.extend_from_slice(text);
    frame.freeze()
}

/// Writes the body of one answer as the client reads it.
pub(super) struct AnswerBody {
    text: bool,
    status: StatusCode,
    /// What tells messages in JSON, where the client wants it.
    json: Option<JsonAnswer>,
    frame: Option<TrailersFrame>,
    ended: bool,
}

impl AnswerBody {
    pub(super) fn new(text: bool, status: StatusCode, json: Option<JsonAnswer>) -> Self {
        Self {
            text,
            status,
            json,
            frame: None,
            ended: false,
        }
    }

    /// What ends the body; nothing, where bare messages in JSON do.
    fn end(&mut self) -> Option<Bytes> {
        let frame = self.frame.take();
        let failure = self.json.as_ref().and_then(JsonAnswer::failure);
        if self.json.as_ref().map(JsonAnswer::frames) == Some(Frames::Bare) {
            let told = |message| json!({"code": 13, "message": message}).to_string().into();
            return failure.map(told);
        }
        let frame = match failure {
            Some(message) => TrailersFrame::of_failure(message),
            None => frame.unwrap_or_else(|| TrailersFrame::missing(self.status)),
        };
        Some(frame.encoded(self.text))
    }
}

impl BodyFilter for AnswerBody {
    fn piece(&mut self, body: &mut Option<Bytes>, end: bool) {
        if let Some(json) = &mut self.json {
            let told = json.take(body.take(), end);
            // An empty piece would be the end of the body.
            *body = Some(told).filter(|told| !told.is_empty());
        }
        if self.text
            && let Some(piece) = body
        {
            // Padded: a message that is whole does not wait for the next one.
            *piece = STANDARD.encode(&piece).into();
        }
        if !end || std::mem::replace(&mut self.ended, true) {
            return;
        }
        let piece = body.take().filter(|piece| !piece.is_empty());
        *body = match (piece, self.end()) {
            (Some(piece), Some(frame)) => Some([piece, frame].concat().into()),
            (piece, frame) => piece.or(frame),
        };
    }

    fn trailers(&mut self, trailers: &HeaderMap) {
        self.frame = Some(TrailersFrame::of(trailers));
    }
}
