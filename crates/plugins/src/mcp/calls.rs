//! Decisions on calls: the message in the body, read within bounds once the token is
//! known to be good.

use std::borrow::Cow;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use pingora::http::RequestHeader;
use serde_json::Value;

use super::Mcp;
use super::lists::{Listing, is_list};
use super::message::{
    self, FORBIDDEN, Fault, HEADER_MISMATCH, INVALID_REQUEST, Message, PARSE_ERROR,
};
use super::rules::Decision;
use doorward_net::http::bridge;
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_net::http::session::Session;
use doorward_plugin_api::filter::{Code, Exchange, Flow, McpCall, Verdict};

/// What refusals of calls are called.
pub(super) const CODES: [Code; 6] = [
    CALL_DENIED,
    CALL_NEEDS_SCOPE,
    UPGRADE_DENIED,
    BAD_MESSAGE,
    MESSAGE_TOO_LONG,
    UNREADABLE_MESSAGE,
];

const CALL_DENIED: Code = Code::new("call_denied", 200, "mcp: the rules deny the call");
const CALL_NEEDS_SCOPE: Code = Code::new(
    "call_needs_scope",
    403,
    "mcp: the token lacks a scope that the rules want for the call",
);
const UPGRADE_DENIED: Code = Code::new(
    "upgrade_denied",
    403,
    "mcp: what follows an upgrade of the connection could not be read",
);
const BAD_MESSAGE: Code = Code::new(
    "bad_message",
    400,
    "mcp: the body is no message of the protocol, or says two things",
);
const MESSAGE_TOO_LONG: Code = Code::new(
    "message_too_long",
    413,
    "mcp: the body is longer than max_body, or than 64 KiB without Content-Length",
);
const UNREADABLE_MESSAGE: Code = Code::new(
    "unreadable_message",
    400,
    "mcp: the body did not come whole or in time",
);

/// Answers of upstreams that are read must not be compressed.
pub(super) const IDENTITY: HeaderValue = HeaderValue::from_static("identity");

const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(super) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The only revision with batches: what a request without a version has, too.
const WITH_BATCHES: &str = "2025-03-26";
/// The first revision whose headers repeat what the body says.
const WITH_HEADERS: &str = "2026-07-28";

/// Longest time that a client may take to send a message.
const PATIENCE: Duration = Duration::from_secs(30);

/// The token is good, and the message is yet to be read.
struct Admitted;

/// Whether the token was found good before.
pub(super) fn is_admitted(exchange: &Exchange) -> bool {
    exchange.notes.iter().any(|note| note.is::<Admitted>())
}

/// What the caller may see of the list that was asked for, if one was.
pub(super) fn listing(exchange: &Exchange) -> Option<&Listing> {
    let mut notes = exchange.notes.iter();
    notes.find_map(|note| note.downcast_ref::<Listing>())
}

/// Why a request goes no further.
struct Refused {
    code: &'static Code,
    fault: Fault,
    id: Value,
    /// All scopes of the call, where a token with them would do.
    scopes: Vec<String>,
    /// What gets an answer of its own, where the message was understood.
    answer: CallAnswer,
}

/// What of a message is answered by the protocol itself, not by the transport.
enum CallAnswer {
    /// Nothing: the transport says that the message was not taken.
    Nothing,
    /// One request, whose `id` the refusal has.
    Request,
    /// The requests of a batch.
    Batch(Vec<Value>),
}

impl CallAnswer {
    /// Notifications have no answer (JSON-RPC 2.0 section 4.1), and answers have none.
    fn of(messages: &[Message], batch: bool) -> Self {
        let requests = messages.iter().filter(|message| message.method.is_some());
        let ids = requests.map(|message| &message.id);
        let ids: Vec<_> = ids.filter(|id| !id.is_null()).cloned().collect();
        match (ids.is_empty(), batch) {
            (true, _) => Self::Nothing,
            (false, false) => Self::Request,
            (false, true) => Self::Batch(ids),
        }
    }
}

impl Refused {
    fn new(code: &'static Code, fault: Fault) -> Self {
        Self {
            code,
            fault,
            id: Value::Null,
            scopes: Vec::new(),
            answer: CallAnswer::Nothing,
        }
    }

    /// A denied request is answered as the protocol answers requests, by an error in
    /// a 200: a client may end its session for any other status, and no other token
    /// would help. The transport's status is left for what a client can act on, and
    /// for what has no answer.
    fn status(&self) -> StatusCode {
        let status = match self.answer {
            CallAnswer::Nothing if self.code.status == StatusCode::OK => 403,
            _ => self.code.status,
        };
        StatusCode::from_u16(status).unwrap_or(StatusCode::FORBIDDEN)
    }

    fn body(&self) -> String {
        let error = |id| message::error(id, self.fault);
        match &self.answer {
            CallAnswer::Nothing | CallAnswer::Request => error(&self.id).to_string(),
            CallAnswer::Batch(ids) => Value::from_iter(ids.iter().map(error)).to_string(),
        }
    }
}

impl Mcp {
    /// Whether anything depends on messages.
    pub(super) fn looks_at_calls(&self) -> bool {
        self.config.rules.decide_anything()
    }

    /// Whether a message may be in the body of such a request.
    pub(super) fn may_have_calls(&self, request: &RequestHeader) -> bool {
        let bodiless = [Method::GET, Method::HEAD, Method::DELETE, Method::OPTIONS];
        self.looks_at_calls() && !bodiless.contains(&request.method)
    }

    /// Begins with a request whose token is good.
    pub(super) fn begin_calls(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        // What follows an upgrade is read by nobody here.
        if session.req_header().headers.contains_key(UPGRADE) {
            let fault = Fault::new(FORBIDDEN, "the protocol has no upgrade");
            let refused = Refused::new(&UPGRADE_DENIED, fault);
            return Verdict::Now(Flow::Respond(self.refuse_call(refused, exchange)));
        }
        if self.may_have_calls(session.req_header()) || !session.is_body_empty() {
            exchange.notes.push(Box::new(Admitted));
            return Verdict::Wait;
        }
        let request = session.req_header();
        // Only such a stream has answers to what was asked before.
        if request.headers.contains_key(LAST_EVENT_ID)
            && let Some(listing) = self.listing_for(request, exchange, true)
        {
            exchange.notes.push(Box::new(listing));
        }
        Verdict::Now(Flow::Continue)
    }

    fn listing_for(
        &self,
        request: &RequestHeader,
        exchange: &Exchange,
        resumed: bool,
    ) -> Option<Listing> {
        let token = exchange.token.as_deref()?;
        let decided = self.config.rules.of(token, &exchange.scope(request));
        Some(Listing {
            rules: self.config.rules.clone(),
            decisions: decided.into_decisions().into(),
            shows_step_up: self.config.shows_step_up,
            resumed,
        })
    }

    /// Reads the message and decides on what it calls.
    pub(super) async fn decide_calls(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Flow {
        let decided = match self.read_message(session, exchange).await {
            Ok((messages, batch)) => self.judge(session.req_header(), exchange, &messages, batch),
            Err(refused) => Err(refused),
        };
        match decided {
            Ok(()) => Flow::Continue,
            Err(refused) => Flow::Respond(self.refuse_call(refused, exchange)),
        }
    }

    async fn read_message(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Result<(Vec<Message>, bool), Refused> {
        if let Err(fault) = check_encoding(&session.req_header().headers) {
            return Err(Refused::new(&BAD_MESSAGE, fault));
        }
        let known = exchange.replacement.as_ref().or(exchange.body.as_ref());
        let body = if let Some(body) = known.cloned() {
            body
        } else {
            let read = bridge::take_body(session, self.config.max_body, PATIENCE).await;
            let body = read.map_err(|error| {
                let code = if error.status() == StatusCode::PAYLOAD_TOO_LARGE {
                    &MESSAGE_TOO_LONG
                } else {
                    &UNREADABLE_MESSAGE
                };
                Refused::new(
                    code,
                    Fault::new(INVALID_REQUEST, "the message can't be read"),
                )
            })?;
            exchange.body = Some(body.clone());
            if body.len() > bridge::BUFFERED_MAX {
                // The engine has kept its end alone.
                exchange.replacement = Some(body.clone());
            }
            body
        };
        if body.len() > self.config.max_body {
            let fault = Fault::new(INVALID_REQUEST, "the message is too long");
            return Err(Refused::new(&MESSAGE_TOO_LONG, fault));
        }
        message::read(&body).map_err(|fault| Refused::new(&BAD_MESSAGE, fault))
    }

    fn judge(
        &self,
        request: &RequestHeader,
        exchange: &mut Exchange,
        messages: &[Message],
        batch: bool,
    ) -> Result<(), Refused> {
        check_headers(&request.headers, messages, batch).map_err(|fault| {
            let id = match messages {
                [message] => message.id.clone(),
                _ => Value::Null,
            };
            Refused {
                id,
                ..Refused::new(&BAD_MESSAGE, fault)
            }
        })?;
        let rules = &self.config.rules;
        let denied = || {
            let fault = Fault::new(FORBIDDEN, "the caller may not do this");
            Refused {
                answer: CallAnswer::of(messages, batch),
                ..Refused::new(&CALL_DENIED, fault)
            }
        };
        let Some(token) = exchange.token.clone() else {
            return Err(denied());
        };
        let decided = rules.of(&token, &exchange.scope(request));
        // One denial refuses all of a batch.
        for message in messages {
            let decision = decided.decide(message);
            self.count(message, &decision, exchange);
            let refused = match decision {
                Decision::Allowed => continue,
                Decision::Denied => denied(),
                Decision::NeedsScopes(more) => {
                    let fault = Fault::new(FORBIDDEN, "the token lacks a scope for this");
                    let mut scopes = self.config.scopes.clone();
                    scopes.extend(
                        more.into_iter()
                            .filter(|one| !self.config.scopes.contains(one)),
                    );
                    Refused {
                        scopes,
                        ..Refused::new(&CALL_NEEDS_SCOPE, fault)
                    }
                }
            };
            let id = message.id.clone();
            return Err(Refused { id, ..refused });
        }
        let mut methods = messages
            .iter()
            .filter_map(|message| message.method.as_deref());
        if methods.any(is_list)
            && let Some(listing) = self.listing_for(request, exchange, false)
        {
            exchange.notes.push(Box::new(listing));
        }
        Ok(())
    }

    /// Counts a call and has it logged, in words of the configuration alone.
    fn count(&self, message: &Message, decision: &Decision, exchange: &mut Exchange) {
        let Some(method) = message.method.as_deref() else {
            return;
        };
        let rules = &self.config.rules;
        let method = rules.method_label(method);
        let name = message
            .call()
            .map(|(subject, name)| rules.name_label(subject, name));
        let decision = match decision {
            Decision::Allowed => "allow",
            Decision::NeedsScopes(_) => "step_up",
            Decision::Denied => "deny",
        };
        let metrics = &self.metrics;
        metrics
            .mcp_calls(method, name.unwrap_or_default(), decision)
            .inc();
        exchange.mcp_call = Some(Box::new(McpCall {
            method: method.into(),
            name: name.map(Into::into),
        }));
    }

    fn refuse_call(&self, refused: Refused, exchange: &mut Exchange) -> Reply {
        self.refused.inc();
        exchange.refusal = Some(Cow::Borrowed(refused.code.code));
        let mut reply = Reply::empty(refused.status());
        reply.body = ReplyBody::Raw("application/json", refused.body().into());
        if refused.scopes.is_empty() {
            return reply;
        }
        let why = Some(refused.fault.message);
        self.challenged_for(&refused.scopes, reply, Some("insufficient_scope"), why)
    }
}

/// Refuses bodies that a server might read as another text: in another character set,
/// or after the decoding of a content coding.
fn check_encoding(headers: &HeaderMap) -> Result<(), Fault> {
    let is_identity = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    if !codings.all(is_identity) {
        return Err(Fault::new(PARSE_ERROR, "the message has a content coding"));
    }
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (first, second) = (types.next(), types.next());
    if first.is_none_or(is_utf_8) && second.is_none() {
        Ok(())
    } else {
        Err(Fault::new(PARSE_ERROR, "the message is not in UTF-8"))
    }
}

/// Whether a media type names UTF-8 wherever it names a character set. Readers differ
/// in where they allow spaces and quotes, so these count nowhere.
fn is_utf_8(media_type: &HeaderValue) -> bool {
    let Ok(text) = media_type.to_str() else {
        return false;
    };
    let text = text.to_ascii_lowercase();
    let text = text.replace([' ', '\t', '"'], "");
    let mut named = text.split("charset").skip(1);
    named.all(|rest| {
        let after = rest.strip_prefix("=utf-8");
        after.is_some_and(|after| after.is_empty() || after.starts_with([';', ',']))
    })
}

/// Refuses headers that say something else than the body, and batches where the
/// revision has none.
fn check_headers(headers: &HeaderMap, messages: &[Message], batch: bool) -> Result<(), Fault> {
    let version = single(headers, &VERSION)?;
    if batch
        && version
            .as_deref()
            .is_some_and(|version| version != WITH_BATCHES)
    {
        return Err(Fault::new(INVALID_REQUEST, "the revision has no batches"));
    }
    let (method, name) = (single(headers, &METHOD)?, single(headers, &NAME)?);
    let required = version.is_some_and(|version| {
        version.len() == WITH_HEADERS.len() && version.as_str() >= WITH_HEADERS
    });
    if method.is_none() && name.is_none() && !required {
        return Ok(());
    }
    let mismatch = Fault::new(HEADER_MISMATCH, "the headers do not say what the body says");
    let [message] = messages else {
        return Err(mismatch);
    };
    let agrees = |header: Option<String>, body: Option<&str>, required: bool| match (header, body) {
        (Some(header), Some(body)) => header == body,
        (Some(_), None) => false,
        (None, Some(_)) => !required,
        (None, None) => true,
    };
    let name = match name {
        Some(name) => Some(decoded(name).ok_or(mismatch)?),
        None => None,
    };
    let called = message.call().map(|(_, name)| name);
    let named = required && message.has_name_header();
    if agrees(method, message.method.as_deref(), required) && agrees(name, called, named) {
        Ok(())
    } else {
        Err(mismatch)
    }
}

/// The value of a header that may be there once.
fn single(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, Fault> {
    let mut values = headers.get_all(name).iter();
    let unclear = Fault::new(HEADER_MISMATCH, "a header of the protocol is unclear");
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => {
            let text = value.to_str().map_err(|_| unclear)?;
            Ok(Some(text.trim().to_owned()))
        }
        _ => Err(unclear),
    }
}

/// A name as the body has it: what no header can say is in Base64.
fn decoded(name: String) -> Option<String> {
    let inside = name
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="));
    match inside {
        Some(inside) => String::from_utf8(STANDARD.decode(inside).ok()?).ok(),
        None => Some(name),
    }
}
