//! Lists of tools, prompts and resources on their way to the client: what may not be
//! called is not in them.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use http::StatusCode;
use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderName,
};
use pingora::http::ResponseHeader;
use serde_json::Value;

use super::list_text::{self, ListKind};
use super::message::{self, Fault, INTERNAL_ERROR};
use super::rules::{Decision, Rules};
use doorward_net::http::reply::Reply;
use doorward_plugin_api::filter::{BodyFilter, ResponseFlow};

/// Longest list, or event of a stream, that is held back.
const MAX_HELD: usize = 4 << 20;

/// Digests of a body, which is another one afterwards.
const DIGESTS: [HeaderName; 3] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
];

/// Whether a method asks for a list.
pub(super) fn is_list(method: &str) -> bool {
    matches!(
        method,
        "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list"
    )
}

/// What one caller may see.
#[derive(Clone)]
pub(super) struct Listing {
    /// The rules.
    pub(super) rules: Arc<Rules>,
    /// What each says of the caller.
    pub(super) decisions: Arc<[Decision]>,
    /// Whether what further scopes would open is shown.
    pub(super) shows_step_up: bool,
    /// Whether a stream goes on that began with another request.
    pub(super) resumed: bool,
}

impl Listing {
    fn shows(&self, kind: &ListKind, name: &str) -> bool {
        let call = Some((kind.subject, name));
        let of_rule = |rule: usize| {
            let decision = self.decisions.get(rule);
            decision.cloned().unwrap_or(Decision::Denied)
        };
        match self.rules.choose(of_rule, kind.method, call) {
            Decision::Allowed => true,
            Decision::NeedsScopes(_) => self.shows_step_up,
            Decision::Denied => false,
        }
    }

    /// What becomes of the answer: only a list that can be read goes on.
    pub(super) fn flow(self, response: &mut ResponseHeader) -> ResponseFlow {
        if !response.status.is_success() {
            return ResponseFlow::Continue;
        }
        let media_type = response.headers.get(CONTENT_TYPE);
        let media_type = media_type.and_then(|value| value.to_str().ok());
        let essence = media_type.and_then(|text| text.split(';').next());
        let essence = essence.unwrap_or_default().trim().to_ascii_lowercase();
        let encodings = response.headers.get_all(CONTENT_ENCODING);
        let mut encodings = encodings.iter();
        let is_plain = encodings.all(|value| value.as_bytes().eq_ignore_ascii_case(b"identity"));
        let filter: Box<dyn BodyFilter> = match (&*essence, is_plain) {
            ("application/json", true) => Box::new(Whole {
                listing: self,
                held: BytesMut::new(),
                too_long: false,
            }),
            ("text/event-stream", true) => Box::new(Events::new(self)),
            _ if self.resumed && essence != "text/event-stream" => return ResponseFlow::Continue,
            _ => {
                let message = "The list of the upstream can't be read";
                return ResponseFlow::Replace(Reply::message(StatusCode::BAD_GATEWAY, message));
            }
        };
        for name in [&CONTENT_LENGTH, &ACCEPT_RANGES, &ETAG]
            .into_iter()
            .chain(&DIGESTS)
        {
            response.remove_header(name);
        }
        ResponseFlow::Filter(filter)
    }

    /// A message, or a batch, with what may be seen; `None`: it is none.
    fn filter<'t>(&self, text: &'t str) -> Option<Cow<'t, str>> {
        list_text::filter(text, |kind, name| self.shows(kind, name))
    }
}

/// What takes the place of a list that can't be shown.
fn unreadable() -> String {
    let fault = Fault::new(INTERNAL_ERROR, "the list can't be read");
    message::error(&Value::Null, fault).to_string()
}

/// Holds a list back until it is whole.
struct Whole {
    listing: Listing,
    held: BytesMut,
    too_long: bool,
}

impl BodyFilter for Whole {
    fn piece(&mut self, body: &mut Option<Bytes>, end: bool) {
        if let Some(piece) = body.take() {
            self.too_long |= self.held.len() + piece.len() > MAX_HELD;
            if self.too_long {
                self.held = BytesMut::new();
            } else {
                self.held.extend_from_slice(&piece);
            }
        }
        if !end {
            return;
        }
        let held = std::mem::take(&mut self.held);
        if held.is_empty() && !self.too_long {
            return;
        }
        let text = std::str::from_utf8(&held).ok();
        let filtered = text.and_then(|text| self.listing.filter(text));
        let filtered = filtered.map(Cow::into_owned);
        *body = Some(filtered.unwrap_or_else(unreadable).into());
    }
}

/// Holds one event of a stream back until it is whole (HTML, server-sent events).
struct Events {
    listing: Listing,
    held: BytesMut,
    /// Where the line begins that is not whole yet, and how much of it was looked at.
    line: usize,
    looked: usize,
    /// Whether the event has turned out too long: its rest is dropped.
    drops: bool,
}

impl Events {
    fn new(listing: Listing) -> Self {
        Self {
            listing,
            held: BytesMut::new(),
            line: 0,
            looked: 0,
            drops: false,
        }
    }

    /// The end of the next line, and where the one behind it begins.
    fn line_end(&mut self, end: bool) -> Option<(usize, usize)> {
        let rest = self.held.get(self.looked..)?;
        let Some(at) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
            self.looked = self.held.len();
            return None;
        };
        let at = self.looked + at;
        match (self.held[at], self.held.get(at + 1)) {
            // The other half of the line's end may come.
            (b'\r', None) if !end => {
                self.looked = at;
                None
            }
            (b'\r', Some(b'\n')) => Some((at, at + 2)),
            _ => Some((at, at + 1)),
        }
    }

    fn event(&self, event: &[u8], out: &mut BytesMut) {
        let text = String::from_utf8_lossy(event);
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let lines = || text.split(['\n', '\r']).filter(|line| !line.is_empty());
        let data = lines().filter_map(|line| match line.strip_prefix("data") {
            Some("") => Some(""),
            Some(rest) => rest
                .strip_prefix(':')
                .map(|rest| rest.strip_prefix(' ').unwrap_or(rest)),
            None => None,
        });
        let data = data.collect::<Vec<_>>().join("\n");
        if data.trim().is_empty() {
            out.extend_from_slice(event);
            return;
        }
        let filtered = self.listing.filter(&data);
        let filtered = filtered.unwrap_or_else(|| unreadable().into());
        if filtered == data {
            out.extend_from_slice(event);
            return;
        }
        for line in lines().filter(|line| !is_data(line)) {
            out.extend_from_slice(line.as_bytes());
            out.extend_from_slice(b"\n");
        }
        // JSON may have ends of lines between its members.
        for line in filtered.split(['\n', '\r']) {
            out.extend_from_slice(format!("data: {line}\n").as_bytes());
        }
        out.extend_from_slice(b"\n");
    }
}

fn is_data(line: &str) -> bool {
    line == "data" || line.starts_with("data:")
}

impl BodyFilter for Events {
    fn piece(&mut self, body: &mut Option<Bytes>, end: bool) {
        if let Some(piece) = body.take() {
            self.held.extend_from_slice(&piece);
        }
        let mut out = BytesMut::new();
        while let Some((at, next)) = self.line_end(end) {
            let is_blank = at == self.line;
            self.line = next;
            self.looked = next;
            if is_blank {
                let event = self.held.copy_to_bytes(next);
                if !std::mem::take(&mut self.drops) {
                    self.event(&event, &mut out);
                }
                self.line = 0;
                self.looked = 0;
            } else if self.drops {
                self.held.advance(next);
                self.line = 0;
                self.looked = 0;
            }
        }
        if self.held.len() > MAX_HELD {
            // What is left of the line is not blank.
            self.held = BytesMut::from(&b"x"[..]);
            self.line = 0;
            self.looked = 1;
            self.drops = true;
        }
        if end && !self.held.is_empty() && !self.drops {
            let rest = std::mem::take(&mut self.held);
            self.event(&rest, &mut out);
        }
        *body = (!out.is_empty()).then(|| out.freeze());
    }
}
