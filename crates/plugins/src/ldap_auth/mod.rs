//! The `ldap-auth` plugin: names and passwords are those of a directory (RFC 4511).
//!
//! A directory knows no consumers: requests go on without one. Whoever gets in is told
//! to the upstream by name.

mod directory;
#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use http::HeaderName;
use pingora::http::RequestHeader;
use quick_cache::sync::Cache;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::authentication::brake::{Brake, network};
use crate::authentication::checks::{PasswordChecks, Proof};
use crate::authentication::login::Login;
use crate::authentication::{self, Authentication, Challenge, Refusal};
use crate::settings::UNEXPECTED;
use directory::Directory;
use doorward_core::model::schema::{Schema, Violations};
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::session::Session;
use doorward_plugin_api::config::read_for_check;
use doorward_plugin_api::filter::{Code, Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Kind, Parts, config, identity};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "ldap-auth",
    priority: 1200,
    of_consumers: false,
    schema,
    codes: || {
        vec![
            NO_CREDENTIAL,
            WRONG,
            GUESSING,
            UNREACHABLE,
            authentication::NO_ANONYMOUS,
        ]
    },
    build,
};

const NO_CREDENTIAL: Code = Code::new(
    "no_credential",
    401,
    "the request carries no name and password",
);
const WRONG: Code = Code::new(
    "unknown_credential",
    401,
    "the directory does not take the name and the password",
);
const GUESSING: Code = Code::new(
    "guessing",
    429,
    "the address has been wrong too often in this minute",
);
const UNREACHABLE: Code = Code::new("directory", 500, "the directory does not answer");

/// Outcomes that are remembered.
const REMEMBERED: usize = 16_384;
/// Credentials of directories have identifiers of this name space.
const NAMESPACE: Uuid = Uuid::from_u128(0x5a0b_6f1e_7d7c_4f0e_9b1d_2c53_8d0e_4a11);

config! {
    /// The fields of `config`.
    struct Config {
        /// The host of the directory.
        #[field(required)]
        ldap_host: String,
        /// The port of the directory.
        #[field(default(389), required)]
        ldap_port: u16,
        /// Whether the directory is spoken to by TLS from the beginning.
        #[field(default(false), required)]
        ldaps: bool,
        /// Whether a connection changes to TLS before names and passwords are sent.
        #[field(default(false), required)]
        start_tls: bool,
        /// Whether the certificate of the directory is checked.
        #[field(default(false), required)]
        verify_ldap_host: bool,
        /// The entry below which people are.
        #[field(required)]
        base_dn: Box<str>,
        /// The attribute that has the name, such as cn or uid.
        #[field(required)]
        attribute: Box<str>,
        /// How long answers of the directory are remembered, in seconds.
        #[field(default(60), required)]
        cache_ttl: f64,
        /// Whether the upstream does not see the credential.
        #[field(default(false), required)]
        hide_credentials: bool,
        /// How long an answer may take, in milliseconds.
        #[field(default(10_000))]
        timeout: f64,
        /// How long an idle connection stays open, in milliseconds.
        #[field(default(60_000))]
        keepalive: f64,
        /// The scheme of the header that has name and password.
        #[field(default("ldap"))]
        header_type: Box<str>,
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let mut fields = Config::fields();
        fields.extend(authentication::Config::fields());
        Schema::new(fields).check(one_kind_of_tls)
    });
    &SCHEMA
}

fn one_kind_of_tls(config: &Map<String, Value>, violations: &mut Violations) {
    if read_for_check::<Config>(config).is_some_and(|config| config.ldaps && config.start_tls) {
        violations.put_entity("'ldaps' and 'start_tls' cannot be enabled simultaneously");
    }
}

/// A running filter.
struct LdapAuth {
    directory: Directory,
    scheme: Box<str>,
    hides: bool,
    /// How long outcomes are remembered, in milliseconds.
    ttl_ms: i64,
    challenge: Challenge,
    authentication: Authentication,
    checks: Arc<PasswordChecks>,
    brake: Arc<Brake>,
    /// Outcomes, and until when they count.
    outcomes: Cache<Proof, (bool, i64)>,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let authentication::Config { anonymous, realm } = authentication::Config::read(config)?;
    let config = Config::read(config)?;
    let shown = match &*config.header_type {
        "ldap" => "LDAP",
        other => other,
    };
    #[expect(clippy::cast_possible_truncation, reason = "a time in milliseconds")]
    let ttl_ms = (config.cache_ttl * 1000.0) as i64;
    Ok(Arc::new(LdapAuth {
        directory: Directory::new(&config)?,
        hides: config.hide_credentials,
        ttl_ms,
        challenge: Challenge::new(shown, realm.as_deref())?,
        scheme: config.header_type,
        authentication: Authentication::new(KIND.name, anonymous.as_deref(), parts),
        checks: parts.slots.get_or_default(),
        brake: parts.slots.get_or_default(),
        outcomes: Cache::new(REMEMBERED),
    }))
}

/// What is known of a request without asking the directory.
enum Judgement {
    Decided(Result<Login, Refusal>),
    /// These have to be checked, one after the other.
    Ask(Vec<Login>),
}

impl LdapAuth {
    fn refused(&self, code: &'static Code) -> Refusal {
        match code.status {
            429 => Refusal::message(code, "Too many attempts"),
            500 => Refusal::message(code, UNEXPECTED),
            _ => self.challenge.add(Refusal::message(code, "Unauthorized")),
        }
    }

    /// What one address has shown to be right is no news for others: they would guess
    /// past the brake.
    fn proof(&self, login: &Login, exchange: &Exchange) -> Proof {
        let network = network(exchange.client.ip()).to_be_bytes();
        let parts = [&login.name[..], &login.password, &network];
        self.checks.proof(&parts)
    }

    fn judge(&self, request: &RequestHeader, exchange: &Exchange) -> Judgement {
        let now_ms = self.authentication.clock.now_ms();
        let mut asked = Vec::new();
        let mut some = false;
        for login in Login::all(request, &self.scheme) {
            some = true;
            let known = self.outcomes.get(&self.proof(&login, exchange));
            match known.filter(|(_, until)| now_ms < *until) {
                Some((true, _)) if asked.is_empty() => return Judgement::Decided(Ok(login)),
                Some((false, _)) => self.note(&login, exchange),
                _ => asked.push(login),
            }
        }
        let now = self.authentication.clock.now_secs();
        let address = exchange.client.ip();
        let held = |login: &Login| self.brake.holds(address, &login.name, now);
        if asked.iter().any(held) {
            return Judgement::Decided(Err(self.refused(&GUESSING)));
        }
        match (asked.is_empty(), some) {
            (false, _) => Judgement::Ask(asked),
            (true, true) => Judgement::Decided(Err(self.refused(&WRONG))),
            (true, false) => Judgement::Decided(Err(self.refused(&NO_CREDENTIAL))),
        }
    }

    async fn ask(&self, logins: Vec<Login>, exchange: &Exchange) -> Result<Login, Refusal> {
        for login in logins {
            let right = self.directory.takes(&login).await.map_err(|error| {
                tracing::warn!(%error, "the directory of ldap-auth does not answer");
                self.refused(&UNREACHABLE)
            })?;
            let until = self
                .authentication
                .clock
                .now_ms()
                .saturating_add(self.ttl_ms);
            self.outcomes
                .insert(self.proof(&login, exchange), (right, until));
            if right {
                return Ok(login);
            }
            self.note(&login, exchange);
        }
        Err(self.refused(&WRONG))
    }

    fn note(&self, login: &Login, exchange: &Exchange) {
        let now = self.authentication.clock.now_secs();
        self.brake.note(exchange.client.ip(), &login.name, now);
    }

    fn settle(
        &self,
        judged: Result<Login, Refusal>,
        request: &mut RequestHeader,
        exchange: &mut Exchange,
    ) -> Flow {
        match judged {
            Ok(login) => {
                if self.hides {
                    request.remove_header(&login.header);
                }
                let id = Uuid::new_v5(&NAMESPACE, &login.name);
                let name = String::from_utf8_lossy(&login.name);
                let credential = identity::Credential::new(id, &name);
                self.authentication.accept(credential, exchange)
            }
            Err(refusal) => self.authentication.refuse(refusal, exchange),
        }
    }
}

#[async_trait]
impl Filter for LdapAuth {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        if self.authentication.is_spared(exchange) {
            return Verdict::Now(Flow::Continue);
        }
        match self.judge(session.req_header(), exchange) {
            Judgement::Decided(judged) => {
                Verdict::Now(self.settle(judged, session.req_header_mut(), exchange))
            }
            Judgement::Ask(_) => Verdict::Wait,
        }
    }

    async fn on_request_slow(&self, session: &mut Session, exchange: &mut Exchange) -> Flow {
        let judged = match self.judge(session.req_header(), exchange) {
            Judgement::Decided(judged) => judged,
            Judgement::Ask(logins) => self.ask(logins, exchange).await,
        };
        self.settle(judged, session.req_header_mut(), exchange)
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
        if Login::all(request, &self.scheme).next().is_none() {
            let refusal = self.refused(&NO_CREDENTIAL);
            return Some(self.authentication.foresee_refusal(&refusal, exchange));
        }
        Some(FilterExplanation::depends(
            "whether the directory takes the password",
        ))
    }

    fn on_upstream_request(&self, exchange: &Exchange, request: &mut UpstreamRequest<'_>) {
        identity::write(exchange, request);
    }

    fn owned_headers(&self) -> &[HeaderName] {
        &identity::HEADERS
    }

    fn warnings(&self) -> Vec<String> {
        self.directory.warnings()
    }
}
