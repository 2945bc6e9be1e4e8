//! `OAuth2ResourceServerFilter` of route files: only requests with a valid
//! bearer token go on, and later filters see what the token says.
//!
//! Start at [`ResourceServer::on_request`]. `config` reads what was declared;
//! a resolver turns the text of a token into claims: `jwt` by the issuer's
//! keys, `remote` by asking an endpoint, one question a token at a time
//! (`openid_connect::flight`). How the gateway proves itself there is read by `client` and
//! `secrets`. Keys, caches and refusals are those of the `openid-connect`
//! plugin.

mod answers;
pub(super) mod client;
mod config;
pub(super) mod jwt;
mod remote;
pub(super) mod secrets;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use pingora::http::RequestHeader;
use serde_json::{Map, Value};

use super::chain::object::{Field, Reference};
use super::chain::{ChainKind, ObjectLookup};
use config::Config;
use doorward_expr::Expression;
use doorward_net::http::session::Session;
use doorward_net::telemetry::Counter;
use doorward_openid_connect::bearer::bearer;
use doorward_openid_connect::provider::token_cache::VerifiedToken;
use doorward_openid_connect::provider::verifier::{Verification, Verifier};
use doorward_openid_connect::refusal::Refusal;
use doorward_plugin_api::filter::{Exchange, Filter, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Parts};
use jwt::Rules;
use remote::Remote;

/// The type's line in the registry.
pub(super) const KIND: ChainKind = ChainKind {
    types: &["OAuth2ResourceServerFilter", "OAuth2RSFilter"],
    build,
};

const NAME: &str = "OAuth2ResourceServerFilter";

fn build(
    config: &Map<String, Value>,
    parts: &Parts,
    named: ObjectLookup<'_>,
) -> Result<Arc<dyn Filter>, ConfigError> {
    Ok(Arc::new(ResourceServer::new(
        Config::read(config, parts, named)?,
        parts,
    )))
}

/// Checks the handler that a field declares for asking endpoints.
pub(super) fn check_client(handler: &Field<'_, Reference>) -> Result<(), ConfigError> {
    client::Client::read(handler).map(drop)
}

/// Lets requests pass that carry a valid token.
struct ResourceServer {
    config: Config,
    passed: Counter,
    /// By refusal.
    refused: Vec<Counter>,
}

/// What makes claims of the text of a token.
enum Resolver {
    /// `StatelessAccessTokenResolver`.
    Jwt(Verifier<Rules>),
    /// `TokenIntrospectionAccessTokenResolver`, `OpenAmAccessTokenResolver`.
    Remote(Arc<Remote>),
}

/// A scope that a token must have.
enum Scope {
    Fixed(String),
    /// Of each request; may give several words.
    Evaluated(Expression),
}

impl Resolver {
    /// Judges a token with what is at hand.
    fn judge(&self, token: &str) -> Verification {
        match self {
            Self::Jwt(verifier) => verifier.verify_now(token),
            Self::Remote(remote) => remote.judge(token),
        }
    }

    async fn verify_or_fetch(&self, token: &str) -> Result<Arc<VerifiedToken>, Refusal> {
        match self {
            Self::Jwt(verifier) => verifier.verify_or_fetch(token).await,
            Self::Remote(remote) => remote.verify_or_fetch(token).await,
        }
    }
}

impl ResourceServer {
    fn new(config: Config, parts: &Parts) -> Self {
        let decision = |code| parts.metrics.decision(NAME, code);
        Self {
            config,
            passed: decision("pass"),
            refused: Refusal::ALL
                .iter()
                .map(|refusal| decision(refusal.describe().0))
                .collect(),
        }
    }

    /// Lets the request pass with its token, if the token allows what it asks.
    fn accept(
        &self,
        verified: &VerifiedToken,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Flow {
        let token = &verified.token;
        if is_bound_to_key(&token.claims)
            || (self.config.bound && !is_proven(&token.claims, exchange))
        {
            return self.refuse(Refusal::UnprovenToken, exchange);
        }
        let mut missing = false;
        for scope in &self.config.scopes {
            let held = |wanted: &str| token.scopes.iter().any(|held| held == wanted);
            missing |= match scope {
                Scope::Fixed(wanted) => !held(wanted),
                Scope::Evaluated(expression) => match expression.text(&exchange.scope(request)) {
                    Some(words) => !words.split_ascii_whitespace().all(held),
                    None => return self.refuse(Refusal::NoScopes, exchange),
                },
            };
        }
        if missing {
            return self.refuse_for_scopes(request, exchange);
        }
        exchange.token = Some(Arc::clone(token));
        self.passed.inc();
        Flow::Continue
    }

    fn refuse(&self, refusal: Refusal, exchange: &mut Exchange) -> Flow {
        self.note(refusal, exchange);
        Flow::Respond(self.config.answers.to(refusal))
    }

    /// Says which scopes it takes.
    fn refuse_for_scopes(&self, request: &RequestHeader, exchange: &mut Exchange) -> Flow {
        self.note(Refusal::MissingScope, exchange);
        let scope = exchange.scope(request);
        let words = self.config.scopes.iter().filter_map(|one| match one {
            Scope::Fixed(word) => Some(word.as_str().into()),
            Scope::Evaluated(expression) => expression.text(&scope),
        });
        let words: Vec<_> = words.collect();
        Flow::Respond(self.config.answers.to_missing(&words.join(" ")))
    }

    fn note(&self, refusal: Refusal, exchange: &mut Exchange) {
        self.refused[refusal as usize].inc();
        exchange.refusal = Some(refusal.describe().0.into());
    }
}

#[async_trait]
impl Filter for ResourceServer {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        if self.config.require_https && !exchange.secure {
            return Verdict::Now(self.refuse(Refusal::InsecureRequest, exchange));
        }
        let request = session.req_header();
        let token = match token(&request.headers) {
            Ok(token) => token,
            Err(refusal) => return Verdict::Now(self.refuse(refusal, exchange)),
        };
        Verdict::Now(match self.config.resolver.judge(token) {
            Verification::Valid(held) => self.accept(&held, request, exchange),
            Verification::Refused(refusal) => self.refuse(refusal, exchange),
            Verification::Pending => return Verdict::Wait,
        })
    }

    async fn on_request_slow(&self, session: &mut Session, exchange: &mut Exchange) -> Flow {
        let request = session.req_header();
        let resolved = match token(&request.headers) {
            Ok(token) => self.config.resolver.verify_or_fetch(token).await,
            Err(refusal) => Err(refusal),
        };
        match resolved {
            Ok(verified) => self.accept(&verified, request, exchange),
            Err(refusal) => self.refuse(refusal, exchange),
        }
    }

    fn needs_body(&self) -> bool {
        let needs = |scope: &Scope| matches!(scope, Scope::Evaluated(e) if e.needs_body());
        self.config.scopes.iter().any(needs)
    }

    fn warnings(&self) -> Vec<String> {
        self.config.warnings.clone()
    }
}

/// The bearer token of the one `Authorization` field.
///
/// A token anywhere else is none. With several such fields it is anyone's
/// guess which one the upstream would believe.
fn token(headers: &HeaderMap) -> Result<&str, Refusal> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let Some(first) = fields.next() else {
        return Err(Refusal::NoToken);
    };
    if fields.next().is_some() {
        return Err(Refusal::RepeatedToken);
    }
    let token = bearer(first)?.filter(|token| !token.is_empty());
    token.ok_or(Refusal::NoToken)
}

/// Whether the token is good only with a proof of its client's key (RFC 9449
/// §7.2): as a mere bearer token it may have been stolen.
fn is_bound_to_key(claims: &Map<String, Value>) -> bool {
    let kind = claims.get("token_type").and_then(Value::as_str);
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case("DPoP"))
        || claims
            .get("cnf")
            .is_some_and(|cnf| cnf.get("jkt").is_some())
}

/// Whether the client has shown the certificate that the token is bound to
/// (`cnf` with `x5t#S256`, RFC 8705 §3.1).
fn is_proven(claims: &Map<String, Value>, exchange: &Exchange) -> bool {
    let bound = claims.get("cnf").and_then(|cnf| cnf.get("x5t#S256"));
    let shown = exchange.client_certificate();
    match (bound.and_then(Value::as_str), shown) {
        (Some(bound), Some(shown)) => bound.trim_end_matches('=') == shown.thumbprint,
        _ => false,
    }
}
