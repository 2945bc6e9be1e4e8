//! The `request-size-limiting` plugin: requests with long bodies are refused, by
//! what they announce or else as soon as they have sent too much.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use http::header::{CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode};
use pingora::http::RequestHeader;
use serde_json::{Map, Value};

use doorward_core::model::schema::Schema;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;
use doorward_net::telemetry::metrics::Counter;
use doorward_plugin_api::filter::{
    Code, Exchange, Filter, FilterExplanation, Flow, TOO_LARGE, Verdict,
};
use doorward_plugin_api::{ConfigError, Kind, Parts, config, words};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "request-size-limiting",
    priority: 951,
    of_consumers: true,
    schema,
    codes: || vec![BODY_TOO_LARGE, LENGTH_REQUIRED],
    build,
};

const BODY_TOO_LARGE: Code = Code::new(
    "body_too_large",
    413,
    "the body is longer than allowed_payload_size (417 where the client waits for 100)",
);
const LENGTH_REQUIRED: Code = Code::new(
    "length_required",
    411,
    "the request announces no length, and require_content_length is set",
);

config! {
    /// The fields of `config`.
    struct Config {
        /// The longest body, in units of size_unit.
        #[field(default(128))]
        allowed_payload_size: i64,
        /// The unit of allowed_payload_size.
        #[field(default("megabytes"), required)]
        size_unit: SizeUnit,
        /// Whether requests that announce no length are refused.
        #[field(default(false), required)]
        require_content_length: bool,
    }
}

words! {
    /// A unit of sizes.
    enum SizeUnit {
        /// 1,048,576 bytes.
        Megabytes = "megabytes",
        /// 1,024 bytes.
        Kilobytes = "kilobytes",
        /// One byte.
        Bytes = "bytes",
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(Config::fields()));
    &SCHEMA
}

/// A running filter.
struct RequestSizeLimiting {
    /// Bytes of the longest body.
    limit: u64,
    length_required: bool,
    passed: Counter,
    refused: Counter,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Config::read(config)?;
    let unit = match config.size_unit {
        SizeUnit::Bytes => 1,
        SizeUnit::Kilobytes => 1 << 10,
        SizeUnit::Megabytes => 1 << 20,
    };
    let size = config.allowed_payload_size;
    let decision = |decision| parts.metrics.decision(KIND.name, decision);
    Ok(Arc::new(RequestSizeLimiting {
        // Below nothing, nothing is allowed.
        limit: u64::try_from(size).unwrap_or(0).saturating_mul(unit),
        length_required: config.require_content_length,
        passed: decision("pass"),
        refused: decision("refuse"),
    }))
}

/// What the head of a request says of its body.
#[derive(Debug, PartialEq, Eq)]
enum Announced {
    /// It fits.
    Fits,
    /// It is too long.
    TooLarge,
    /// It has no length and has to have one.
    Missing,
    /// Only the body tells.
    Unknown,
}

impl RequestSizeLimiting {
    fn judge(&self, headers: &HeaderMap) -> Announced {
        let length = headers.get(CONTENT_LENGTH);
        let length = length.and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok());
        match length {
            Some(length) if length > self.limit => Announced::TooLarge,
            Some(_) => Announced::Fits,
            None if self.length_required && !is_chunked(headers) => Announced::Missing,
            None => Announced::Unknown,
        }
    }

    fn refuse(&self, code: &Code, status: StatusCode, exchange: &mut Exchange) -> Verdict {
        self.refused.inc();
        exchange.refusal = Some(Cow::Borrowed(code.code));
        let message = match code.status {
            411 => "A valid Content-Length header is required",
            _ => TOO_LARGE,
        };
        Verdict::Now(Flow::Respond(Reply::message(status, message)))
    }
}

fn is_chunked(headers: &HeaderMap) -> bool {
    let coding = headers.get(TRANSFER_ENCODING);
    coding.is_some_and(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"))
}

/// A client that waits for 100 is told that it waits in vain.
fn too_large(headers: &HeaderMap) -> StatusCode {
    let expect = headers.get(EXPECT);
    let waits =
        expect.is_some_and(|expect| expect.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    if waits {
        StatusCode::EXPECTATION_FAILED
    } else {
        StatusCode::PAYLOAD_TOO_LARGE
    }
}

#[async_trait]
impl Filter for RequestSizeLimiting {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        let headers = &session.req_header().headers;
        let read = exchange.body.as_ref().map(|body| body.len() as u64);
        match self.judge(headers) {
            Announced::Missing => {
                return self.refuse(&LENGTH_REQUIRED, StatusCode::LENGTH_REQUIRED, exchange);
            }
            Announced::TooLarge => {
                return self.refuse(&BODY_TOO_LARGE, too_large(headers), exchange);
            }
            Announced::Unknown if read.is_some_and(|read| read > self.limit) => {
                return self.refuse(&BODY_TOO_LARGE, too_large(headers), exchange);
            }
            // The gateway counts what comes and ends the request.
            Announced::Unknown => {
                let stricter = exchange.body_limit.unwrap_or(u64::MAX).min(self.limit);
                exchange.body_limit = Some(stricter);
            }
            Announced::Fits => {}
        }
        self.passed.inc();
        Verdict::Now(Flow::Continue)
    }

    fn reads_heads(&self) -> bool {
        false
    }

    async fn explain(
        &self,
        request: &RequestHeader,
        _: &mut Exchange,
    ) -> Option<FilterExplanation> {
        Some(match self.judge(&request.headers) {
            Announced::Fits => FilterExplanation::passes("the announced length is allowed"),
            Announced::TooLarge => FilterExplanation::answers(&BODY_TOO_LARGE),
            Announced::Missing => FilterExplanation::answers(&LENGTH_REQUIRED),
            Announced::Unknown => FilterExplanation::depends("how long the body is"),
        })
    }
}
