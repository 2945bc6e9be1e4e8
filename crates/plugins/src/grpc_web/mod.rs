//! The `grpc-web` plugin: programs in browsers call services of gRPC. Their requests
//! reach the upstream as gRPC, and its trailers end the bodies of answers.

mod answer;
#[cfg(test)]
mod tests;
mod text;

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    CONTENT_LENGTH, CONTENT_TYPE, TE, TRAILER,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use pingora::http::{RequestHeader, ResponseHeader};
use serde_json::{Map, Value};

use crate::settings::wrong;
use doorward_core::model::schema::{Schema, Type};
use doorward_net::http::form;
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_net::http::session::Session;
use doorward_net::telemetry::metrics::Counter;
use doorward_plugin_api::filter::{
    Code, Exchange, Filter, FilterExplanation, Flow, ResponseFlow, Verdict,
};
use doorward_plugin_api::{ConfigError, Kind, Parts, config};

use answer::{AnswerBody, TrailersFrame};
use text::Base64Decoder;

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "grpc-web",
    priority: 3,
    of_consumers: true,
    schema,
    codes: || vec![PREFLIGHT, NO_GRPC_WEB],
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
    "the media type of the request is none of gRPC-Web with protobuf",
);

/// What clients are told whose messages would have to be translated.
const NEEDS_PROTO: &[u8] = b"transcoding requests require a .proto file defining the service";

config! {
    /// The fields of `config`.
    struct Config {
        /// A description of services, by which JSON would be translated. It is refused.
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
}

impl MessageForm {
    /// Those of protobuf.
    const ALL: [Self; 4] = [
        Self::new("application/grpc-web", false),
        Self::new("application/grpc-web+proto", false),
        Self::new("application/grpc-web-text", true),
        Self::new("application/grpc-web-text+proto", true),
    ];

    const fn new(kind: &'static str, text: bool) -> Self {
        Self { kind, text }
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

/// A running filter.
struct GrpcWeb {
    origin: Option<HeaderValue>,
    whole_path: bool,
    passed: Counter,
    preflights: Counter,
    refused: Counter,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Config::read(config)?;
    if config.proto.is_some() {
        let message = "messages in JSON are not translated here: leave it out, and have \
                       clients send application/grpc-web+proto or application/grpc-web-text";
        return Err(wrong("proto", message));
    }
    let origin = config.allow_origin_header.map(HeaderValue::try_from);
    let origin = origin.transpose();
    let decision = |name| parts.metrics.decision(KIND.name, name);
    Ok(Arc::new(GrpcWeb {
        origin: origin.map_err(|_| wrong("allow_origin_header", "is no value of a header"))?,
        whole_path: !config.pass_stripped_path,
        passed: decision("pass"),
        preflights: decision("preflight"),
        refused: decision("refuse"),
    }))
}

impl GrpcWeb {
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
        let Some(form) = MessageForm::of(&request.headers) else {
            self.refused.inc();
            exchange.refusal = Some(Cow::Borrowed(NO_GRPC_WEB.code));
            let mut reply = Reply::empty(StatusCode::BAD_REQUEST);
            reply.body = ReplyBody::Own(Bytes::from_static(NEEDS_PROTO));
            return Verdict::Now(Flow::Respond(reply));
        };
        self.passed.inc();
        exchange.whole_path = self.whole_path;
        if form.text {
            exchange.decoder = Some(Box::new(Base64Decoder::default()));
        }
        Verdict::Now(Flow::Continue)
    }

    async fn explain(
        &self,
        request: &RequestHeader,
        _: &mut Exchange,
    ) -> Option<FilterExplanation> {
        Some(if request.method == Method::OPTIONS {
            FilterExplanation::answers(&PREFLIGHT)
        } else if MessageForm::of(&request.headers).is_none() {
            FilterExplanation::answers(&NO_GRPC_WEB)
        } else {
            FilterExplanation::passes("its messages go on as gRPC")
        })
    }

    fn on_upstream_request(&self, _: &Exchange, request: &mut RequestHeader) {
        for (name, value) in [(CONTENT_TYPE, "application/grpc"), (TE, "trailers")] {
            // A name and a value that are already those of a message.
            let _ = request.insert_header(name, HeaderValue::from_static(value));
        }
    }

    fn sees_responses(&self) -> bool {
        true
    }

    async fn on_upstream_response(
        &self,
        request: &RequestHeader,
        _: &mut Exchange,
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
        if let Some(frame) = TrailersFrame::of_head(&response.headers) {
            let mut reply = Reply::empty(response.status).header(CONTENT_TYPE, kind);
            reply.body = ReplyBody::Own(frame.encoded(form.text));
            return ResponseFlow::Replace(reply);
        }
        // A name and a value that are already those of a message.
        let _ = response.insert_header(CONTENT_TYPE, kind);
        response.remove_header(&CONTENT_LENGTH);
        response.remove_header(&TRAILER);
        ResponseFlow::Filter(Box::new(AnswerBody::new(form.text, response.status)))
    }
}
