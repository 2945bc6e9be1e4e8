//! Decisions on calls: the message in the body, read within bounds once the token is
//! known to be good.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use pingora::http::RequestHeader;
use serde_json::Value;

use super::Mcp;
use super::fields::{LaterFields, MessageFields};
use super::labels::CallOutcome;
use super::lists::{Listing, is_list};
use super::message::{self, FORBIDDEN, Fault, INVALID_REQUEST, Message, Messages};
use super::rules::Decision;
use doorward_net::http::bridge;
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_net::http::session::Session;
use doorward_plugin_api::filter::{Code, Exchange, Flow, Verdict};

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

/// Why a body goes no further.
enum Refusal {
    Refused(Refused),
    /// The rules do not allow the message of this place.
    Judged(usize, Decision),
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
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
    fn of(messages: &Messages<'_>) -> Self {
        let requests = (messages.all().iter()).filter(|message| message.method.is_some());
        let ids: Vec<_> = requests
            .map(Message::id)
            .filter(|id| !id.is_null())
            .collect();
        match (ids.is_empty(), messages.is_batch()) {
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

/// A call that is denied whatever the token.
fn denied(messages: &Messages<'_>) -> Refused {
    let fault = Fault::new(FORBIDDEN, "the caller may not do this");
    Refused {
        answer: CallAnswer::of(messages),
        ..Refused::new(&CALL_DENIED, fault)
    }
}

/// A call that needs scopes which the client can never have: it is denied.
fn impossible(messages: &Messages<'_>) -> Refused {
    let fault = Fault::new(FORBIDDEN, "the client can't have a scope for this");
    Refused {
        answer: CallAnswer::of(messages),
        ..Refused::new(&CALL_DENIED, fault)
    }
}

/// The body that was read before, or what takes its place.
fn known_body(exchange: &Exchange) -> Option<Bytes> {
    let known = exchange.replacement.as_ref().or(exchange.body.as_ref());
    known.cloned()
}

/// Whether such a request has no message.
fn is_bodiless(request: &RequestHeader) -> bool {
    [Method::GET, Method::HEAD, Method::DELETE, Method::OPTIONS].contains(&request.method)
}

impl Mcp {
    /// Whether anything depends on messages.
    pub(super) fn looks_at_calls(&self) -> bool {
        self.config.rules.decide_anything()
    }

    /// Whether a message may be in the body of such a request.
    pub(super) fn may_have_calls(&self, request: &RequestHeader) -> bool {
        self.looks_at_calls() && !is_bodiless(request)
    }

    /// Begins with a request whose token is good.
    pub(super) fn begin_calls(
        &self,
        fields: LaterFields,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Verdict {
        // What follows an upgrade is read by nobody here.
        if fields.upgrades {
            let fault = Fault::new(FORBIDDEN, "the protocol has no upgrade");
            let refused = Refused::new(&UPGRADE_DENIED, fault);
            let reply = self.refuse_call(refused, session.req_header(), exchange);
            return Verdict::Now(Flow::Respond(reply));
        }
        if !session.is_body_empty() || self.may_have_calls(session.req_header()) {
            return self.decide_ready_calls(fields.message, session, exchange);
        }
        let request = session.req_header();
        // Only such a stream has answers to what was asked before.
        if fields.resumes
            && let Some(listing) = self.listing_for(request, exchange, true)
        {
            exchange.notes.push(Box::new(listing));
        }
        Verdict::Now(Flow::Continue)
    }

    /// Decides on what is called if the body has come with the head, as nearly always.
    fn decide_ready_calls(
        &self,
        fields: MessageFields,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Verdict {
        let body = known_body(exchange).or_else(|| {
            let body = session.take_ready_body(self.config.max_body.min(bridge::BUFFERED_MAX))?;
            exchange.body = Some(body.clone());
            Some(body)
        });
        let Some(body) = body else {
            exchange.notes.push(Box::new(Admitted));
            return Verdict::Wait;
        };
        let decided = self
            .check_length(&body)
            .map_err(Refusal::from)
            .and_then(|()| self.decide_body(fields, session.req_header(), exchange, &body));
        match decided {
            Ok(()) => Verdict::Now(Flow::Continue),
            Err(Refusal::Refused(refused)) => {
                let reply = self.refuse_call(refused, session.req_header(), exchange);
                Verdict::Now(Flow::Respond(reply))
            }
            // The provider may have to be asked what the client can have.
            Err(Refusal::Judged(..)) => {
                exchange.notes.push(Box::new(Admitted));
                Verdict::Wait
            }
        }
    }

    fn listing_for(
        &self,
        request: &RequestHeader,
        exchange: &Exchange,
        resumed: bool,
    ) -> Option<Listing> {
        let token = exchange.token.as_deref()?;
        let decided = self.config.rules.of(token, request, exchange);
        Some(Listing {
            rules: self.config.rules.clone(),
            decisions: decided.decisions().into(),
            shows_step_up: self.config.shows_step_up,
            resumed,
        })
    }

    /// Reads the message and decides on what it calls.
    pub(super) async fn decide_calls(
        &self,
        fields: MessageFields,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Flow {
        let refused = match self.read_body(session, exchange).await {
            Ok(body) => {
                let request = session.req_header();
                match self.decide_body(fields, request, exchange, &body) {
                    Ok(()) => return Flow::Continue,
                    Err(Refusal::Refused(refused)) => refused,
                    // Boxed: calls that are allowed need not carry about what it needs.
                    Err(Refusal::Judged(at, decision)) => {
                        Box::pin(self.judged(at, decision, request, exchange, &body)).await
                    }
                }
            }
            Err(refused) => refused,
        };
        Flow::Respond(self.refuse_call(refused, session.req_header(), exchange))
    }

    async fn read_body(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Result<Bytes, Refused> {
        let body = if let Some(body) = known_body(exchange) {
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
        self.check_length(&body)?;
        Ok(body)
    }

    fn check_length(&self, body: &Bytes) -> Result<(), Refused> {
        if body.len() > self.config.max_body {
            let fault = Fault::new(INVALID_REQUEST, "the message is too long");
            return Err(Refused::new(&MESSAGE_TOO_LONG, fault));
        }
        Ok(())
    }

    fn decide_body(
        &self,
        fields: MessageFields,
        request: &RequestHeader,
        exchange: &mut Exchange,
        body: &[u8],
    ) -> Result<(), Refusal> {
        let bad = |fault| Refused::new(&BAD_MESSAGE, fault);
        fields.check_encoding().map_err(bad)?;
        let messages = message::read(body).map_err(bad)?;
        let checked = fields.check_messages(&request.headers, &messages);
        checked.map_err(|fault| {
            let id = match &messages {
                Messages::Single(message) => message.id(),
                Messages::Batch(_) => Value::Null,
            };
            Refused { id, ..bad(fault) }
        })?;
        let judged = self.judge(request, exchange, &messages);
        judged.map_err(|(at, decision)| Refusal::Judged(at, decision))
    }

    /// What comes of the messages of a body of which one is not allowed.
    async fn judged(
        &self,
        at: usize,
        decision: Decision,
        request: &RequestHeader,
        exchange: &mut Exchange,
        body: &[u8],
    ) -> Refused {
        let messages = match message::read(body) {
            Ok(messages) => messages,
            Err(fault) => return Refused::new(&BAD_MESSAGE, fault),
        };
        let (outcome, refused) = match decision {
            Decision::NeedsScopes(more) => {
                let refused = self.needs_scopes(more);
                if self.may_step_up(&refused.scopes, request, exchange).await {
                    (CallOutcome::StepUp, refused)
                } else {
                    (CallOutcome::ImpossibleStepUp, impossible(&messages))
                }
            }
            _ => (CallOutcome::Denied, denied(&messages)),
        };
        let Some(message) = messages.all().get(at) else {
            return refused;
        };
        self.count(message, outcome, exchange);
        let id = message.id();
        Refused { id, ..refused }
    }

    fn count(&self, message: &Message<'_>, outcome: CallOutcome, exchange: &mut Exchange) {
        if let Some(call) = self.labels.count(message, outcome) {
            exchange.mcp_call = Some(call);
        }
    }

    /// What the rules say of the messages: the first that is refused, and why. One denial
    /// refuses all of a batch.
    fn judge(
        &self,
        request: &RequestHeader,
        exchange: &mut Exchange,
        messages: &Messages<'_>,
    ) -> Result<(), (usize, Decision)> {
        let Some(token) = exchange.token.clone() else {
            return Err((0, Decision::Denied));
        };
        for (at, message) in messages.all().iter().enumerate() {
            let decided = self.config.rules.of(&token, request, exchange);
            match decided.decide(message) {
                Decision::Allowed => {}
                decision => return Err((at, decision)),
            }
        }
        for message in messages.all() {
            self.count(message, CallOutcome::Allowed, exchange);
        }
        let methods = messages.all().iter();
        let mut methods = methods.filter_map(|message| message.method.as_deref());
        if methods.any(is_list)
            && let Some(listing) = self.listing_for(request, exchange, false)
        {
            exchange.notes.push(Box::new(listing));
        }
        Ok(())
    }

    fn needs_scopes(&self, more: Vec<String>) -> Refused {
        let fault = Fault::new(FORBIDDEN, "the token lacks a scope for this");
        let known = &self.config.scopes;
        let mut scopes = known.clone();
        scopes.extend(more.into_iter().filter(|one| !known.contains(one)));
        Refused {
            scopes,
            ..Refused::new(&CALL_NEEDS_SCOPE, fault)
        }
    }

    /// The answer to a request whose token lacks a scope that every call needs and that
    /// the client can't have. A call is denied, and anything else gets `refusal`.
    pub(super) async fn deny_for_scope(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
        refusal: Reply,
    ) -> Reply {
        if is_bodiless(session.req_header()) || session.is_body_empty() {
            return refusal;
        }
        let Ok(body) = self.read_body(session, exchange).await else {
            return refusal;
        };
        let Ok(messages) = message::read(&body) else {
            return refusal;
        };
        let mut refused = impossible(&messages);
        if let Some(message) = messages.all().first() {
            self.count(message, CallOutcome::ImpossibleStepUp, exchange);
            refused.id = message.id();
        }
        self.refuse_call(refused, session.req_header(), exchange)
    }

    fn refuse_call(
        &self,
        refused: Refused,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Reply {
        self.refused.inc();
        exchange.refusal = Some(Cow::Borrowed(refused.code.code));
        let mut reply = Reply::empty(refused.status());
        reply.body = ReplyBody::Raw("application/json", refused.body().into());
        if refused.scopes.is_empty() {
            return reply;
        }
        let why = Some(refused.fault.message);
        let error = Some("insufficient_scope");
        self.challenged_for(&refused.scopes, request, reply, error, why)
    }
}
