//! The `grpc-web` plugin: programs in browsers call services of gRPC. Their requests
//! reach the upstream as gRPC, and its trailers end the bodies of answers. Where a
//! description of the services is at hand, messages may be JSON.

mod answer;
mod bounds;
mod description;
mod json;
#[cfg(test)]
mod tests;
mod text;

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    CONTENT_LENGTH, CONTENT_TYPE, TE, TRAILER,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use pingora::http::{RequestHeader, ResponseHeader};
use prost_reflect::MethodDescriptor;
use serde_json::{Map, Value};

use crate::settings::wrong;
use doorward_core::model::schema::{Schema, Type};
use doorward_net::http::bridge;
use doorward_net::http::form;
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_net::http::session::Session;
use doorward_net::telemetry::metrics::Counter;
use doorward_plugin_api::filter::{
    BodyDecoder, Code, Exchange, Filter, FilterExplanation, Flow, ResponseFlow, Verdict,
};
use doorward_plugin_api::{ConfigError, Kind, Parts, config};

use answer::{AnswerBody, GRPC_MESSAGE, GRPC_STATUS, TrailersFrame};
use description::Description;
use json::{Frames, JsonAnswer};
use text::Base64Decoder;

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "grpc-web",
    priority: 3,
    of_consumers: true,
    schema,
    codes: || vec![PREFLIGHT, NO_GRPC_WEB, NO_METHOD, BAD_MESSAGE, UNREADABLE],
    build,
};

const PREFLIGHT: Code = Code::new(
    "grpc_web_preflight",
    200,
    "grpc-web has told a browser what it may send",
);
const NO_GRPC_WEB: Code = Code::new(
    "no_grpc_web",
    400,
    "the media type of the request is none of gRPC-Web, or is JSON without a description",
);
const NO_METHOD: Code = Code::new(
    "no_grpc_method",
    400,
    "the description of the services has no method at the path of the request",
);
const BAD_MESSAGE: Code = Code::new(
    "bad_grpc_message",
    400,
    "the body of the request is no message of its method in JSON",
);
const UNREADABLE: Code = Code::new(
    "unreadable_grpc_message",
    400,
    "the body of the request is too long to be translated, or has not come whole (or 408, 413)",
);

/// Letters of the longest path that clients are told of.
const MAX_PATH: usize = 1024;
/// Bytes of the longest body that is translated.
const MAX_BODY: usize = 1 << 20;
/// For how long such a body is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// What clients are told whose messages would have to be translated.
const NEEDS_PROTO: &str = "transcoding requests require a .proto file defining the service";

config! {
    /// The fields of `config`.
    struct Config {
        /// The file of the gateway's machine that describes the services, by which JSON is
        /// translated. It ends in .proto, and imports from its folder alone.
        #[field(kind(Type::checked(check_proto)))]
        proto: Option<String>,
        /// Whether the upstream gets the path without that of the route.
        pass_stripped_path: bool,
        /// The origin that may call, or an asterisk for all.
        #[field(kind(Type::checked(check_origin)), default("*"))]
        allow_origin_header: Option<String>,
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(Config::fields()));
    &SCHEMA
}

fn check_proto(text: &str) -> Result<(), String> {
    if text.ends_with(".proto") {
        Ok(())
    } else {
        Err("must name a file that ends in .proto".to_owned())
    }
}

fn check_origin(text: &str) -> Result<(), String> {
    let value = HeaderValue::from_str(text);
    value
        .map(drop)
        .map_err(|_| format!("invalid value: {text}"))
}

/// How a client sends messages, and gets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MessageForm {
    /// The media type of answers.
    kind: &'static str,
    /// Whether bodies are Base64.
    text: bool,
    /// How messages stand in bodies, if they are JSON.
    json: Option<Frames>,
}

impl MessageForm {
    const ALL: [Self; 7] = [
        Self::new("application/grpc-web", false, None),
        Self::new("application/grpc-web+proto", false, None),
        Self::new("application/grpc-web-text", true, None),
        Self::new("application/grpc-web-text+proto", true, None),
        Self::new("application/grpc-web+json", false, Some(Frames::Lengths)),
        Self::new(
            "application/grpc-web-text+json",
            true,
            Some(Frames::Lengths),
        ),
        Self::new("application/json", false, Some(Frames::Bare)),
    ];

    const fn new(kind: &'static str, text: bool, json: Option<Frames>) -> Self {
        Self { kind, text, json }
    }

    /// That of a request with these headers; `None`: it is none that could go on.
    fn of(headers: &HeaderMap) -> Option<Self> {
        let mut kinds = headers.get_all(CONTENT_TYPE).iter();
        let kind = kinds.next()?.to_str().ok()?;
        if kinds.next().is_some() {
            return None;
        }
        let essence = kind.split(';').next().unwrap_or_default().trim();
        let mut all = Self::ALL.into_iter();
        all.find(|form| form.kind.eq_ignore_ascii_case(essence))
    }
}

/// The method whose messages are translated for a request.
struct TranslatedCall(MethodDescriptor);

/// Why a request is refused, and what the client is told.
struct Refusal {
    code: &'static Code,
    status: StatusCode,
    told: String,
}

impl Refusal {
    fn new(code: &'static Code, told: impl Into<String>) -> Self {
        Self {
            code,
            status: StatusCode::BAD_REQUEST,
            told: told.into(),
        }
    }
}

/// A running filter.
struct GrpcWeb {
    origin: Option<HeaderValue>,
    description: Option<Description>,
    whole_path: bool,
    passed: Counter,
    preflights: Counter,
    refused: Counter,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Config::read(config)?;
    let description = config.proto.as_deref().map(Description::read);
    let description = description.transpose();
    let description = description.map_err(|error| wrong("proto", error.to_string()))?;
    let origin = config.allow_origin_header.map(HeaderValue::try_from);
    let origin = origin.transpose();
    let decision = |name| parts.metrics.decision(KIND.name, name);
    Ok(Arc::new(GrpcWeb {
        origin: origin.map_err(|_| wrong("allow_origin_header", "is no value of a header"))?,
        description,
        whole_path: !config.pass_stripped_path,
        passed: decision("pass"),
        preflights: decision("preflight"),
        refused: decision("refuse"),
    }))
}

impl GrpcWeb {
    /// How the messages of a request are, and the method of those that are translated.
    fn call(
        &self,
        request: &RequestHeader,
    ) -> Result<(MessageForm, Option<&MethodDescriptor>), Refusal> {
        let needs_proto = || Refusal::new(&NO_GRPC_WEB, NEEDS_PROTO);
        let form = MessageForm::of(&request.headers).ok_or_else(needs_proto)?;
        if form.json.is_none() {
            return Ok((form, None));
        }
        let description = self.description.as_ref().ok_or_else(needs_proto)?;
        let path = match request.uri.path() {
            path if self.whole_path => path,
            path => method_path(path),
        };
        let method = description.method(path).ok_or_else(|| {
            let told: String = path.chars().take(MAX_PATH).collect();
            Refusal::new(&NO_METHOD, format!("Unknown path \"{told}\""))
        })?;
        Ok((form, Some(method)))
    }

    fn refuse(&self, refusal: Refusal, exchange: &mut Exchange) -> Flow {
        self.refused.inc();
        exchange.refusal = Some(Cow::Borrowed(refusal.code.code));
        let mut reply = Reply::empty(refusal.status);
        reply.body = ReplyBody::Own(refusal.told.into());
        Flow::Respond(reply)
    }

    /// Has the upstream get a message that is JSON in protobuf.
    async fn translate(
        &self,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Result<(), Refusal> {
        let (form, method) = self.call(session.req_header())?;
        let Some((method, frames)) = method.zip(form.json) else {
            return Ok(());
        };
        let method = method.clone();
        let body = exchange.replacement.as_ref().or(exchange.body.as_ref());
        let mut body = match body.cloned() {
            Some(body) => body,
            None => {
                let read = bridge::take_body(session, MAX_BODY, PATIENCE).await;
                read.map_err(|error| Refusal {
                    code: &UNREADABLE,
                    status: error.status(),
                    told: error.to_string(),
                })?
            }
        };
        let bad = |told: String| Refusal::new(&BAD_MESSAGE, told);
        if form.text {
            let mut piece = Some(body);
            let decoded = Base64Decoder::default().piece(&mut piece, true);
            decoded.map_err(|_| bad("the body is no Base64".to_owned()))?;
            body = piece.unwrap_or_default();
        }
        let message = json::request(&method, frames, &body).map_err(bad)?;
        exchange.replacement = Some(message);
        exchange.notes.push(Box::new(TranslatedCall(method)));
        self.passed.inc();
        exchange.whole_path = self.whole_path;
        Ok(())
    }

    fn preflight(&self) -> Reply {
        let fields = [
            (CONTENT_TYPE, "application/grpc-web-text+proto"),
            (ACCESS_CONTROL_ALLOW_METHODS, "POST"),
            (
                ACCESS_CONTROL_ALLOW_HEADERS,
                "content-type,x-grpc-web,x-user-agent",
            ),
        ];
        let fields = fields.map(|(name, value)| (name, HeaderValue::from_static(value)));
        let mut reply = Reply::empty(StatusCode::OK);
        reply.headers.extend(fields);
        reply.body = ReplyBody::Own(Bytes::from_static(b"OK"));
        reply
    }
}

/// The end of a path that names a method of gRPC: what is before it is the route's.
fn method_path(path: &str) -> &str {
    let mut slashes = path.rmatch_indices('/');
    slashes.nth(1).map_or(path, |(at, _)| &path[at..])
}

/// The method whose messages were translated for a request.
fn translated(exchange: &Exchange) -> Option<&MethodDescriptor> {
    let mut notes = exchange.notes.iter();
    let note = notes.find_map(|note| note.downcast_ref::<TranslatedCall>());
    note.map(|call| &call.0)
}

#[async_trait]
impl Filter for GrpcWeb {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        if let Some(origin) = &self.origin {
            let told = (ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            exchange.response_headers.push(told);
        }
        let request = session.req_header();
        if request.method == Method::OPTIONS {
            self.preflights.inc();
            exchange.refusal = Some(Cow::Borrowed(PREFLIGHT.code));
            return Verdict::Now(Flow::Respond(self.preflight()));
        }
        let form = match self.call(request) {
            Ok((_, Some(_))) => return Verdict::Wait,
            Ok((form, None)) => form,
            Err(refusal) => return Verdict::Now(self.refuse(refusal, exchange)),
        };
        self.passed.inc();
        exchange.whole_path = self.whole_path;
        if form.text {
            exchange.decoder = Some(Box::new(Base64Decoder::default()));
        }
        Verdict::Now(Flow::Continue)
    }

    async fn on_request_slow(&self, session: &mut Session, exchange: &mut Exchange) -> Flow {
        match self.translate(session, exchange).await {
            Ok(()) => Flow::Continue,
            Err(refusal) => self.refuse(refusal, exchange),
        }
    }

    async fn explain(
        &self,
        request: &RequestHeader,
        _: &mut Exchange,
    ) -> Option<FilterExplanation> {
        if request.method == Method::OPTIONS {
            return Some(FilterExplanation::answers(&PREFLIGHT));
        }
        Some(match self.call(request) {
            Ok((_, None)) => FilterExplanation::passes("its messages go on as gRPC"),
            Ok((_, Some(_))) => FilterExplanation::depends("whether its body is a message"),
            Err(refusal) => FilterExplanation::answers(refusal.code),
        })
    }

    fn on_upstream_request(&self, exchange: &Exchange, request: &mut UpstreamRequest<'_>) {
        let fields = request.fields();
        if translated(exchange).is_some() {
            // What comes back has to be read.
            for name in ["grpc-encoding", "grpc-accept-encoding"] {
                fields.remove(name);
            }
        }
        for (name, value) in [(CONTENT_TYPE, "application/grpc"), (TE, "trailers")] {
            fields.insert(name, HeaderValue::from_static(value));
        }
    }

    fn sees_responses(&self) -> bool {
        true
    }

    async fn on_upstream_response(
        &self,
        request: &RequestHeader,
        exchange: &mut Exchange,
        response: &mut ResponseHeader,
    ) -> ResponseFlow {
        if self.origin.is_some() {
            // One of both would be one too many.
            response.remove_header(&ACCESS_CONTROL_ALLOW_ORIGIN);
        }
        let Some(form) = MessageForm::of(&request.headers) else {
            return ResponseFlow::Continue;
        };
        if !form::is_grpc(&response.headers) {
            return ResponseFlow::Continue;
        }
        let kind = HeaderValue::from_static(form.kind);
        let json = translated(exchange).zip(form.json);
        if json.is_some_and(|(_, frames)| frames == Frames::Bare)
            && response.headers.contains_key(GRPC_STATUS)
        {
            // As in the imitated gateway, headers tell it.
            let mut reply = Reply::empty(response.status).header(CONTENT_TYPE, kind);
            for name in [GRPC_STATUS, GRPC_MESSAGE] {
                let value = response.headers.get(&name).cloned();
                reply.headers.extend(value.map(|value| (name, value)));
            }
            return ResponseFlow::Replace(reply);
        }
        if let Some(frame) = TrailersFrame::of_head(&response.headers) {
            let mut reply = Reply::empty(response.status).header(CONTENT_TYPE, kind);
            reply.body = ReplyBody::Own(frame.encoded(form.text));
            return ResponseFlow::Replace(reply);
        }
        // A name and a value that are already those of a message.
        let _ = response.insert_header(CONTENT_TYPE, kind);
        response.remove_header(&CONTENT_LENGTH);
        response.remove_header(&TRAILER);
        let json = json.map(|(method, frames)| JsonAnswer::new(method, frames));
        ResponseFlow::Filter(Box::new(AnswerBody::new(form.text, response.status, json)))
    }
}
