//! The `hmac-auth` plugin: requests are signed with a secret that belongs to a
//! consumer.

mod signature;
#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, DATE};
use http::{HeaderName, HeaderValue};
use pingora::http::RequestHeader;
use serde_json::{Map, Value, json};

use crate::authentication::{
    self, Authentication, CREDENTIAL_HEADERS, Challenge, Directory, Entry, Refusal,
};
use doorward_core::clock::http_date;
use doorward_core::model::schema::{Schema, Violations};
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::session::Session;
use doorward_plugin_api::config::read_for_check;
use doorward_plugin_api::filter::{Code, Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Kind, Parts, config, identity};
use signature::{Hash, Signature};

pub use signature::SigningKeys;

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "hmac-auth",
    priority: 1030,
    of_consumers: false,
    schema,
    codes: || {
        vec![
            NO_CREDENTIAL,
            SKEW,
            UNVERIFIABLE,
            MISMATCH,
            BODY,
            authentication::NO_ANONYMOUS,
        ]
    },
    build,
};

const NO_CREDENTIAL: Code = Code::new("no_credential", 401, "the request is not signed");
const SKEW: Code = Code::new(
    "clock_skew",
    401,
    "the request has no date, or one too far from the clock",
);
const UNVERIFIABLE: Code = Code::new(
    "unknown_credential",
    401,
    "the signature can't be read, leaves out what it must have, or is of nobody known",
);
const MISMATCH: Code = Code::new("bad_signature", 401, "the signature is wrong");
const BODY: Code = Code::new("wrong_digest", 401, "the body has another Digest");

/// What clients are told.
const SKEWED: &str = "HMAC signature cannot be verified, a valid date or x-date header is \
    required for HMAC Authentication";
const NOT_VERIFIED: &str = "HMAC signature cannot be verified";
const NO_MATCH: &str = "HMAC signature does not match";

const X_DATE: HeaderName = HeaderName::from_static("x-date");
const DIGEST: HeaderName = HeaderName::from_static("digest");

config! {
    /// The fields of `config`.
    struct Config {
        /// Whether the upstream does not see the signature.
        #[field(default(false), required)]
        hide_credentials: bool,
        /// How far the date of a request may be from the clock, in seconds.
        #[field(default(300))]
        clock_skew: f64,
        /// Whether the body must have the digest that its header says.
        #[field(default(false), required)]
        validate_request_body: bool,
        /// Headers that every signature must cover.
        #[field(default(json!([])))]
        enforce_headers: Vec<Box<str>>,
        /// Hashes that signatures may be made with.
        #[field(default(json!(Hash::WORDS)))]
        algorithms: Vec<Hash>,
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let mut fields = Config::fields();
        fields.extend(authentication::Config::fields());
        Schema::new(fields).check(skew_is_positive)
    });
    &SCHEMA
}

fn skew_is_positive(config: &Map<String, Value>, violations: &mut Violations) {
    if read_for_check::<Config>(config).is_some_and(|config| config.clock_skew <= 0.0) {
        violations.put("clock_skew", "value must be greater than 0");
    }
}

/// A running filter.
struct HmacAuth {
    hides: bool,
    /// In seconds.
    skew: f64,
    validates_body: bool,
    enforced: Box<[Box<str>]>,
    hashes: Box<[Hash]>,
    challenge: Challenge,
    authentication: Authentication,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let authentication::Config { anonymous, realm } = authentication::Config::read(config)?;
    let config = Config::read(config)?;
    Ok(Arc::new(HmacAuth {
        hides: config.hide_credentials,
        skew: config.clock_skew,
        validates_body: config.validate_request_body,
        enforced: config.enforce_headers.into(),
        hashes: config.algorithms.into(),
        challenge: Challenge::new("hmac", realm.as_deref())?,
        authentication: Authentication::new(KIND.name, anonymous.as_deref(), parts),
    }))
}

impl HmacAuth {
    /// Who has signed a request.
    fn judge<'a>(
        &self,
        request: &RequestHeader,
        body: Option<&Bytes>,
        directory: &'a Directory,
    ) -> Result<&'a Arc<Entry<SigningKeys>>, Refusal> {
        let refused = |code, message| self.challenge.add(Refusal::message(code, message));
        let mut headers = CREDENTIAL_HEADERS
            .iter()
            .filter_map(|name| request.headers.get(name))
            .peekable();
        if headers.peek().is_none() {
            return Err(refused(&NO_CREDENTIAL, "Unauthorized"));
        }
        if ![X_DATE, DATE]
            .iter()
            .any(|name| self.is_recent(request.headers.get(name)))
        {
            return Err(refused(&SKEW, SKEWED));
        }
        let unverifiable = || refused(&UNVERIFIABLE, NOT_VERIFIED);
        let signature = headers.find_map(Signature::read).ok_or_else(unverifiable)?;
        let listed = |name: &str| signature.headers().any(|header| header == name);
        let hash = Hash::named(signature.algorithm).filter(|hash| self.hashes.contains(hash));
        let entry = directory.signatures.get(signature.username.as_bytes());
        let (Some(hash), Some(entry)) = (hash, entry) else {
            return Err(unverifiable());
        };
        if !self.enforced.iter().all(|name| listed(name)) {
            return Err(unverifiable());
        }
        if !entry.material.have_signed(&signature, hash, request) {
            return Err(refused(&MISMATCH, NO_MATCH));
        }
        if self.validates_body && !is_digest_of(request.headers.get(DIGEST), body) {
            return Err(refused(&BODY, NO_MATCH));
        }
        Ok(entry)
    }

    fn is_recent(&self, date: Option<&HeaderValue>) -> bool {
        let date = date.and_then(|date| date.to_str().ok()).and_then(http_date);
        let now = self.authentication.clock.now_secs();
        date.is_some_and(|date| {
            #[expect(clippy::cast_precision_loss, reason = "only near ones count")]
            let apart = now.abs_diff(date) as f64;
            apart <= self.skew
        })
    }
}

/// Whether a body is the one that `Digest` names. Without the header it has to be
/// empty.
fn is_digest_of(header: Option<&HeaderValue>, body: Option<&Bytes>) -> bool {
    let body = body.map_or(&[][..], |body| body);
    let Some(header) = header else {
        return body.is_empty();
    };
    let made = STANDARD.encode(digest(&SHA256, body));
    header.as_bytes().strip_prefix(b"SHA-256=") == Some(made.as_bytes())
}

#[async_trait]
impl Filter for HmacAuth {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        if self.authentication.is_spared(exchange) {
            return Verdict::Now(Flow::Continue);
        }
        let directory = self.authentication.credentials.load();
        let request = session.req_header_mut();
        let judged = self.judge(request, exchange.body.as_ref(), &directory);
        let is_signature = |value: &HeaderValue| Signature::read(value).is_some();
        if self.hides && request.headers.get(AUTHORIZATION).is_some_and(is_signature) {
            request.remove_header(&AUTHORIZATION);
        }
        exchange.is_signed |= judged.is_ok();
        Verdict::Now(self.authentication.settle(judged, exchange))
    }

    fn reads_heads(&self) -> bool {
        false
    }

    async fn explain(
        &self,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Option<FilterExplanation> {
        if self.authentication.is_spared(exchange) {
            return Some(FilterExplanation::passes(
                "a credential has let the request in",
            ));
        }
        let directory = self.authentication.credentials.load();
        let judged = self.judge(request, exchange.body.as_ref(), &directory);
        Some(self.authentication.explain(judged, exchange))
    }

    fn needs_body(&self) -> bool {
        self.validates_body
    }

    fn on_upstream_request(&self, exchange: &Exchange, request: &mut UpstreamRequest<'_>) {
        identity::write(exchange, request);
    }

    fn owned_headers(&self) -> &[HeaderName] {
        &identity::HEADERS
    }

    fn warnings(&self) -> Vec<String> {
        let mut enforced = self.enforced.iter().map(|name| &**name);
        let has_date = enforced.any(|name| matches!(name, "date" | "x-date"));
        let unsigned = "enforce_headers: without date or x-date (and request-line) a client's \
            signature can be sent again with another date, for ever";
        if has_date {
            Vec::new()
        } else {
            vec![unsigned.to_owned()]
        }
    }
}
