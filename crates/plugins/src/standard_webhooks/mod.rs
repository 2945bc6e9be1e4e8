//! The `standard-webhooks` plugin: only webhooks that the sender has signed pass
//! (Standard Webhooks).

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, StatusCode};
use pingora::http::RequestHeader;
use serde_json::{Map, Value};

use crate::settings::wrong;
use doorward_core::clock::Clock;
use doorward_core::model::schema::{Schema, Type, Violations};
use doorward_core::model::secret::Secret;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;
use doorward_net::telemetry::metrics::Counter;
use doorward_plugin_api::config::read_for_check;
use doorward_plugin_api::filter::{Code, Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Kind, Parts, config};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "standard-webhooks",
    priority: 760,
    of_consumers: false,
    schema,
    codes: || vec![UNSIGNED],
    build,
};

const UNSIGNED: Code = Code::new(
    "webhook_signature_invalid",
    400,
    "the signature, the time or the body of a webhook is missing or wrong",
);

/// What begins a secret whose bytes are written in Base64.
const ENCODED: &str = "whsec_";
/// Most signatures of one request that are looked at.
const MAX_SIGNATURES: usize = 16;

config! {
    /// The fields of `config`.
    struct Config {
        /// The secret that the sender signs with. Behind whsec_ it is Base64.
        #[field(kind(Type::text()), required, referenceable)]
        secret_v1: Option<Secret>,
        /// How far the time of a webhook may be from the clock, in seconds.
        #[field(default(300), required)]
        tolerance_second: i64,
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> =
        LazyLock::new(|| Schema::new(Config::fields()).check(tolerance_is_positive));
    &SCHEMA
}

fn tolerance_is_positive(config: &Map<String, Value>, violations: &mut Violations) {
    if read_for_check::<Config>(config).is_some_and(|config| config.tolerance_second < 0) {
        violations.put("tolerance_second", "value must be greater than -1");
    }
}

/// A running filter.
struct StandardWebhooks {
    /// The secret as text, and the bytes that it may be written for.
    keys: Vec<hmac::Key>,
    tolerance: i64,
    clock: Clock,
    passed: Counter,
    refused: Counter,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Config::read(config)?;
    let secret =
        (config.secret_v1).ok_or_else(|| wrong("secret_v1", "length must be at least 1"))?;
    let secret = secret.expose();
    let key = |bytes: &[u8]| hmac::Key::new(hmac::HMAC_SHA256, bytes);
    let mut keys = vec![key(secret.as_bytes())];
    let encoded = secret.strip_prefix(ENCODED);
    if let Some(bytes) = encoded.and_then(|text| STANDARD.decode(text).ok()) {
        keys.push(key(&bytes));
    }
    let decision = |decision| parts.metrics.decision(KIND.name, decision);
    Ok(Arc::new(StandardWebhooks {
        keys,
        tolerance: config.tolerance_second,
        clock: parts.clock.clone(),
        passed: decision("pass"),
        refused: decision("refuse"),
    }))
}

/// The one value of a header.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().ok()?;
    (values.next().is_none() && !first.is_empty()).then_some(first)
}

impl StandardWebhooks {
    /// Whether the sender has signed this body, not long ago.
    fn is_signed(&self, headers: &HeaderMap, body: &[u8]) -> bool {
        let all = ["webhook-id", "webhook-timestamp", "webhook-signature"];
        let [Some(id), Some(timestamp), Some(signatures)] = all.map(|name| single(headers, name))
        else {
            return false;
        };
        let Ok(sent) = timestamp.parse::<i64>() else {
            return false;
        };
        let apart = self.clock.now_secs().abs_diff(sent);
        if body.is_empty() || apart > self.tolerance.unsigned_abs() {
            return false;
        }
        let mut message = format!("{id}.{timestamp}.").into_bytes();
        message.extend_from_slice(body);
        let signatures = signatures.split(' ').take(MAX_SIGNATURES);
        let mut signatures = signatures.filter_map(|signature| {
            let text = signature.strip_prefix("v1,")?;
            STANDARD.decode(text).ok()
        });
        signatures.any(|signature| {
            let mut keys = self.keys.iter();
            keys.any(|key| hmac::verify(key, &message, &signature).is_ok())
        })
    }
}

#[async_trait]
impl Filter for StandardWebhooks {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        let body = exchange.body.clone().unwrap_or_default();
        if self.is_signed(&session.req_header().headers, &body) {
            self.passed.inc();
            return Verdict::Now(Flow::Continue);
        }
        self.refused.inc();
        exchange.refusal = Some(Cow::Borrowed(UNSIGNED.code));
        let reply = Reply::message(StatusCode::BAD_REQUEST, "Bad request");
        Verdict::Now(Flow::Respond(reply))
    }

    async fn explain(&self, _: &RequestHeader, _: &mut Exchange) -> Option<FilterExplanation> {
        Some(FilterExplanation::depends(
            "whether the sender has signed the body",
        ))
    }

    fn needs_body(&self) -> bool {
        true
    }
}
