//! The `cors` plugin: which scripts of other origins may read answers (Fetch
//! standard, CORS protocol).
//!
//! `config` reads what was configured, `origins` says what an origin is told, and
//! [`Cors`] answers preflights and writes headers.

mod config;
mod origins;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use pingora::http::{RequestHeader, ResponseHeader};
use serde_json::{Map, Value};

use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;
use doorward_net::telemetry::metrics::Counter;
use doorward_plugin_api::filter::{Code, Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Kind, Parts};

use config::Config;
use origins::Allowed;

/// What the registry knows of the plugin. It answers preflights, which have no
/// credentials, before authentication.
pub(crate) const KIND: Kind = Kind {
    name: "cors",
    priority: 2000,
    of_consumers: false,
    schema: config::schema,
    codes: || vec![PREFLIGHT],
    build,
};

const PREFLIGHT: Code = Code::new(
    "preflight",
    200,
    "cors has answered what a browser asks before a script's request",
);

const REQUEST_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-allow-private-network");

const TRUE: HeaderValue = HeaderValue::from_static("true");
const ANY: HeaderValue = HeaderValue::from_static("*");
const VARIES: HeaderValue = HeaderValue::from_static("Origin");

/// A running filter.
struct Cors {
    config: Config,
    passed: Counter,
    preflights: Counter,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let decision = |decision| parts.metrics.decision(KIND.name, decision);
    Ok(Arc::new(Cors {
        config: Config::read(config)?,
        passed: decision("pass"),
        preflights: decision("preflight"),
    }))
}

/// Whether a browser asks if a script may send a request.
fn is_preflight(request: &RequestHeader) -> bool {
    request.method == Method::OPTIONS
        && request.headers.contains_key(ORIGIN)
        && request.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The origin of the script; an empty one is none.
fn origin(request: &HeaderMap) -> Option<&HeaderValue> {
    request.get(ORIGIN).filter(|origin| !origin.is_empty())
}

/// What an answer says of the origin that asks.
struct OriginHeaders {
    /// `None`: it is not allowed.
    origin: Option<HeaderValue>,
    credentials: bool,
    /// Whether other origins are told something else.
    varies: bool,
}

impl Cors {
    /// What the origin of `request` is told of origins and credentials.
    fn origin_headers(&self, request: &HeaderMap) -> OriginHeaders {
        let Config {
            origins,
            credentials,
            ..
        } = &self.config;
        let origin = origin(request);
        let is_any = origins.is_any();
        let allowed = match origin {
            // `*` does not count with credentials.
            Some(origin) if *credentials && is_any => Allowed::Origin(origin.clone()),
            origin => origins.judge(origin),
        };
        let varies = origins.varies() || matches!(allowed, Allowed::Origin(_));
        let origin = match allowed {
            Allowed::Any => Some(ANY),
            Allowed::Origin(origin) => Some(origin),
            Allowed::None => None,
        };
        let tells_any = || origin.as_ref().is_some_and(|told| told == "*");
        OriginHeaders {
            credentials: *credentials && !(is_any && tells_any()),
            origin,
            varies,
        }
    }

    /// The answer to a preflight. A refused origin gets one too, in which it is
    /// not named.
    fn preflight(&self, request: &HeaderMap) -> Reply {
        let mut reply = Reply::empty(StatusCode::OK);
        let mut put = |name, value| reply.headers.push((name, value));
        let told = self.origin_headers(request);
        if told.varies {
            put(VARY, VARIES);
        }
        if let Some(origin) = told.origin {
            put(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        }
        if told.credentials {
            put(ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE);
        }
        let of_client = request.get(ACCESS_CONTROL_REQUEST_HEADERS);
        let allowed = self.config.headers.0.as_ref().or(of_client);
        if let Some(allowed) = allowed {
            put(ACCESS_CONTROL_ALLOW_HEADERS, allowed.clone());
        }
        if let Some(methods) = &self.config.methods.0 {
            put(ACCESS_CONTROL_ALLOW_METHODS, methods.clone());
        }
        if let Some(seconds) = &self.config.max_age {
            put(ACCESS_CONTROL_MAX_AGE, seconds.0.clone());
        }
        let private = request.get(REQUEST_PRIVATE_NETWORK);
        if self.config.private_network && private.is_some_and(|asked| *asked == TRUE) {
            put(ALLOW_PRIVATE_NETWORK, TRUE);
        }
        reply
    }

    /// Writes the headers of an answer that is none to a preflight.
    fn write(&self, request: &RequestHeader, response: &mut ResponseHeader) {
        if is_preflight(request) {
            return;
        }
        let told = self.origin_headers(&request.headers);
        if told.varies {
            vary(response);
        }
        // Names and values that are already those of a message. A name of these bytes
        // is written without a copy.
        let mut put = |name: &'static str, value: HeaderValue| {
            let _ = response.insert_header(Bytes::from_static(name.as_bytes()), value);
        };
        if told.credentials {
            put("access-control-allow-credentials", TRUE);
        }
        if let Some(exposed) = &self.config.exposed_headers.0 {
            put("access-control-expose-headers", exposed.clone());
        }
        match told.origin {
            Some(origin) => put("access-control-allow-origin", origin),
            // The upstream's word would open what is closed here.
            None => drop(response.remove_header(&ACCESS_CONTROL_ALLOW_ORIGIN)),
        }
    }
}

/// Says that the answer depends on the origin, beside what is said already.
fn vary(response: &mut ResponseHeader) {
    let says = |name: &[u8]| name == b"*" || name.eq_ignore_ascii_case(b"origin");
    let values = response.headers.get_all(VARY).iter();
    let mut names = values.flat_map(|value| value.as_bytes().split(|b| *b == b','));
    if !names.any(|name| says(name.trim_ascii())) {
        let _ = response.append_header(Bytes::from_static(b"vary"), VARIES);
    }
}

#[async_trait]
impl Filter for Cors {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        let request = session.req_header();
        if self.config.preflight_continue || !is_preflight(request) {
            self.passed.inc();
            return Verdict::Now(Flow::Continue);
        }
        self.preflights.inc();
        exchange.refusal = Some(Cow::Borrowed(PREFLIGHT.code));
        Verdict::Now(Flow::Respond(self.preflight(&request.headers)))
    }

    async fn explain(
        &self,
        request: &RequestHeader,
        _: &mut Exchange,
    ) -> Option<FilterExplanation> {
        let answers = !self.config.preflight_continue && is_preflight(request);
        Some(if answers {
            FilterExplanation::answers(&PREFLIGHT)
        } else {
            FilterExplanation::passes("it is no preflight")
        })
    }

    fn on_response_to(&self, request: &RequestHeader, _: &Exchange, response: &mut ResponseHeader) {
        self.write(request, response);
    }

    fn on_own_response(
        &self,
        request: &RequestHeader,
        _: &Exchange,
        response: &mut ResponseHeader,
    ) {
        self.write(request, response);
    }

    fn warnings(&self) -> Vec<String> {
        self.config.warnings()
    }
}
