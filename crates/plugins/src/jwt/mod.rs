//! The `jwt` plugin: requests carry a signed token that names a credential of a
//! consumer (RFC 7519).
//!
//! The credential fixes the algorithm. A token that names another one is refused
//! before its signature is looked at, so a public key is never taken for a secret.

mod config;
mod key;
#[cfg(test)]
mod tests;
mod token;

use std::fmt::Display;
use std::sync::Arc;

use async_trait::async_trait;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method};
use pingora::http::RequestHeader;
use quick_cache::sync::Cache;
use serde_json::{Map, Value, json};

use crate::authentication::{self, Authentication, Challenge, Directory, Entry, Refusal, status};
use crate::settings::json_message;
use config::{Config, Places, TimeClaim};
use doorward_core::model::credential::KeyDigest;
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_net::http::session::Session;
use doorward_plugin_api::filter::{Code, Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Kind, Parts, identity};
use token::Token;

pub use key::TokenKey;

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "jwt",
    priority: 1450,
    of_consumers: false,
    schema: config::schema,
    codes: || {
        vec![
            NO_TOKEN,
            SEVERAL,
            MALFORMED,
            UNKNOWN,
            ALGORITHM,
            SIGNATURE,
            CLAIMS,
            authentication::NO_ANONYMOUS,
        ]
    },
    build,
};

const NO_TOKEN: Code = Code::new("no_credential", 401, "the request carries no token");
const SEVERAL: Code = Code::new(
    "several_tokens",
    401,
    "the request carries different tokens",
);
const MALFORMED: Code = Code::new("malformed_token", 401, "the token can't be read");
const UNKNOWN: Code = Code::new(
    "unknown_credential",
    401,
    "the token names no credential, or one without a key",
);
const ALGORITHM: Code = Code::new(
    "wrong_algorithm",
    401,
    "the token names another algorithm than its credential",
);
const SIGNATURE: Code = Code::new("bad_signature", 401, "the token's signature is wrong");
const CLAIMS: Code = Code::new(
    "bad_claims",
    401,
    "the token's times are wrong, over, or too far away",
);

/// A running filter.
struct Jwt {
    config: Config,
    places: Places,
    /// For requests without a token, and for those with a bad one.
    challenges: [Challenge; 2],
    authentication: Authentication,
    /// Tokens whose signatures are good, with their credentials.
    verified: Cache<KeyDigest, Arc<Entry<TokenKey>>>,
}

/// A token that is good.
struct Verified<'a> {
    /// The credential that has signed it.
    entry: &'a Arc<Entry<TokenKey>>,
    signature: Vec<u8>,
}

/// Tokens that are remembered.
const REMEMBERED: usize = 4096;

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let authentication::Config { anonymous, realm } = authentication::Config::read(config)?;
    let config = Config::read(config)?;
    let challenge = Challenge::new("Bearer", realm.as_deref())?;
    let with_error = challenge.with("error=\"invalid_token\"")?;
    Ok(Arc::new(Jwt {
        places: config.places(),
        config,
        challenges: [challenge, with_error],
        authentication: Authentication::new(KIND.name, anonymous.as_deref(), parts),
        verified: Cache::new(REMEMBERED),
    }))
}

/// A refusal with this JSON as its body.
fn refusal(code: &'static Code, body: &impl Display) -> Refusal {
    let json = HeaderValue::from_static("application/json; charset=utf-8");
    let mut reply = Reply::empty(status(code)).header(CONTENT_TYPE, json);
    reply.body = ReplyBody::Own(body.to_string().into());
    Refusal { code, reply }
}

fn message(code: &'static Code, message: &str) -> Refusal {
    let reply = json_message(status(code), message);
    Refusal { code, reply }
}

impl Jwt {
    /// Whose token a request carries, and the token's signature.
    fn judge<'a>(
        &self,
        request: &RequestHeader,
        directory: &'a Directory,
    ) -> Result<Verified<'a>, Refusal> {
        let [challenge, with_error] = &self.challenges;
        let text = match self.places.token(request) {
            Ok(Some(text)) => text,
            Ok(None) => return Err(challenge.add(message(&NO_TOKEN, "Unauthorized"))),
            Err(_) => {
                return Err(with_error.add(message(&SEVERAL, "Multiple tokens provided")));
            }
        };
        let entry = self.verify(&text, directory);
        entry.map_err(|refusal| with_error.add(refusal))
    }

    fn verify<'a>(&self, text: &str, directory: &'a Directory) -> Result<Verified<'a>, Refusal> {
        let token = Token::read(text).map_err(|what| message(&MALFORMED, what))?;
        let claim = &*self.config.key_claim_name;
        let name = match token.text(claim) {
            Some("") => {
                let text = format!("Invalid '{claim}' in claims");
                return Err(message(&UNKNOWN, &text));
            }
            Some(name) => name,
            None => {
                let text = format!("No mandatory '{claim}' in claims");
                return Err(message(&UNKNOWN, &text));
            }
        };
        let entry = directory.tokens.get(name.as_bytes()).ok_or_else(|| {
            let text = format!("No credentials found for given '{claim}'");
            message(&UNKNOWN, &text)
        })?;
        let key = &entry.material;
        if token.algorithm != key.algorithm() {
            return Err(message(&ALGORITHM, "Invalid algorithm"));
        }
        let signed = self.is_signed(text, &token, entry);
        let signed = signed.ok_or_else(|| message(&UNKNOWN, "Invalid key/secret"))?;
        if !signed {
            return Err(message(&SIGNATURE, "Invalid signature"));
        }
        self.check_claims(&token)?;
        Ok(Verified {
            entry,
            signature: token.signature,
        })
    }

    /// Whether the owner of a credential has signed a token. `None`: there is no key.
    fn is_signed(
        &self,
        text: &str,
        token: &Token<'_>,
        entry: &Arc<Entry<TokenKey>>,
    ) -> Option<bool> {
        let key = &entry.material;
        let verify = || key.has_signed(token, self.config.secret_is_base64);
        if token.algorithm.is_symmetric() {
            return verify();
        }
        // Signatures with public keys cost more than the rest of the request.
        let digest = KeyDigest::of_sent(text.as_bytes());
        let known = self.verified.get(&digest);
        if known.is_some_and(|known| Arc::ptr_eq(&known, entry)) {
            return Some(true);
        }
        let signed = verify();
        if signed == Some(true) {
            self.verified.insert(digest, Arc::clone(entry));
        }
        signed
    }

    fn check_claims(&self, token: &Token<'_>) -> Result<(), Refusal> {
        let now = self.authentication.clock.now_secs();
        #[expect(clippy::cast_precision_loss, reason = "a time of this age")]
        let now = now as f64;
        let verifies = |claim| self.config.claims_to_verify.contains(&claim);
        // In the order of the imitated gateway: clients compare whole bodies.
        let mut wrong = Vec::new();
        for (claim, wanted, judge) in [
            (
                "nbf",
                verifies(TimeClaim::Nbf),
                too_early as fn(f64, f64) -> _,
            ),
            ("exp", verifies(TimeClaim::Exp), over),
        ] {
            if !wanted {
                continue;
            }
            let fault = match token.claims.get(claim).and_then(Value::as_f64) {
                Some(time) => judge(time, now),
                None => Some("must be a number"),
            };
            if let Some(fault) = fault {
                wrong.push(format!("\"{claim}\":\"{fault}\""));
            }
        }
        if !wrong.is_empty() {
            return Err(refusal(&CLAIMS, &format!("{{{}}}", wrong.join(","))));
        }
        let exp = token.claims.get("exp").and_then(Value::as_f64);
        let longest = self.config.maximum_expiration;
        match exp {
            Some(exp) if longest > 0.0 && exp - now > longest => {
                let fault = json!({"exp": "exceeds maximum allowed expiration"});
                Err(refusal(&CLAIMS, &fault))
            }
            _ => Ok(()),
        }
    }

    fn passes_as_preflight(&self, request: &RequestHeader) -> bool {
        !self.config.run_on_preflight && request.method == Method::OPTIONS
    }
}

fn over(exp: f64, now: f64) -> Option<&'static str> {
    (exp <= now).then_some("token expired")
}

fn too_early(nbf: f64, now: f64) -> Option<&'static str> {
    (nbf > now).then_some("token not valid yet")
}

#[async_trait]
impl Filter for Jwt {
    fn secret_fields(&self) -> Vec<&str> {
        self.places.names()
    }

    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        let request = session.req_header();
        if self.passes_as_preflight(request) || self.authentication.is_spared(exchange) {
            return Verdict::Now(Flow::Continue);
        }
        let directory = self.authentication.credentials.load();
        let judged = self.judge(request, &directory).map(|verified| {
            exchange.token_signature = Some(verified.signature);
            verified.entry
        });
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
        if self.passes_as_preflight(request) {
            return Some(FilterExplanation::passes("OPTIONS requests need no token"));
        }
        if self.authentication.is_spared(exchange) {
            return Some(FilterExplanation::passes(
                "a credential has let the request in",
            ));
        }
        let directory = self.authentication.credentials.load();
        let judged = self.judge(request, &directory);
        let judged = judged.map(|verified| verified.entry);
        Some(self.authentication.explain(judged, exchange))
    }

    fn on_upstream_request(&self, exchange: &Exchange, request: &mut UpstreamRequest<'_>) {
        identity::write(exchange, request);
    }

    fn owned_headers(&self) -> &[HeaderName] {
        &identity::HEADERS
    }
}
