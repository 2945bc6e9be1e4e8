//! The `basic-auth` plugin: requests carry a name and a password that belong to a
//! consumer (RFC 7617).
//!
//! A check of a stored password takes memory and time. It is made once for each
//! password, away from the workers; wrong ones are remembered too.

mod password;
#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use http::HeaderName;
use http::header::AUTHORIZATION;
use pingora::http::RequestHeader;
use serde_json::{Map, Value};

use crate::authentication::brake::{Brake, network};
use crate::authentication::checks::{PasswordChecks, Proof};
use crate::authentication::login::Login;
use crate::authentication::{self, Authentication, Challenge, Entry, Refusal};
use doorward_core::model::schema::Schema;
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::session::Session;
use doorward_plugin_api::filter::{Code, Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Kind, Parts, config, identity};
use password::Argon2Hash;

pub use password::{LEGACY, StoredPassword, hash, hash_of, is_hash, is_legacy_hash};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "basic-auth",
    priority: 1100,
    of_consumers: false,
    schema,
    codes: || {
        vec![
            NO_CREDENTIAL,
            WRONG,
            GUESSING,
            BUSY,
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
    "there is no such name, or it has another password",
);
const GUESSING: Code = Code::new(
    "guessing",
    429,
    "the address has been wrong too often in this minute",
);
const BUSY: Code = Code::new("busy", 503, "too many passwords are being checked");

config! {
    /// The fields of `config`.
    struct Config {
        /// The consumer that requests without a good credential count as, by identifier
        /// or name. Null: they are refused.
        anonymous: Option<Box<str>>,
        /// Whether the upstream does not see the credential.
        #[field(default(false), required)]
        hide_credentials: bool,
        /// The realm that clients are told.
        #[field(default("service"), required)]
        realm: Box<str>,
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(Config::fields()));
    &SCHEMA
}

/// A running filter.
struct BasicAuth {
    hides: bool,
    challenge: Challenge,
    authentication: Authentication,
    checks: Arc<PasswordChecks>,
    brake: Arc<Brake>,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Config::read(config)?;
    Ok(Arc::new(BasicAuth {
        hides: config.hide_credentials,
        challenge: Challenge::new("Basic", Some(&config.realm))?,
        authentication: Authentication::new(KIND.name, config.anonymous.as_deref(), parts),
        checks: parts.slots.get_or_default(),
        brake: parts.slots.get_or_default(),
    }))
}

/// The scheme of the header.
const SCHEME: &str = "basic";

/// What is known of a request without a long check.
enum Judgement {
    Decided(Result<Arc<Entry<StoredPassword>>, Refusal>),
    /// The password has to be checked.
    Check(Box<Check>),
}

struct Check {
    login: Login,
    proof: Proof,
    /// `None`: nobody has the name. A check of as much cost hides that.
    entry: Option<Arc<Entry<StoredPassword>>>,
}

impl BasicAuth {
    fn refused(&self, code: &'static Code) -> Refusal {
        match code.status {
            429 => Refusal::message(code, "Too many attempts"),
            503 => Refusal::message(code, "The service is busy"),
            _ => self.challenge.add(Refusal::message(code, "Unauthorized")),
        }
    }

    /// Judges a request by what is at hand.
    fn judge(&self, request: &RequestHeader, exchange: &Exchange) -> Judgement {
        let directory = self.authentication.credentials.load();
        let now = self.authentication.clock.now_secs();
        let address = exchange.client.ip();
        let mut login = None;
        let mut entry = None;
        // An unknown name leads to the next header, a wrong password does not.
        for candidate in Login::all(request, SCHEME) {
            entry = directory.passwords.get(&candidate.name).cloned();
            login = Some(candidate);
            if entry.is_some() {
                break;
            }
        }
        let Some(login) = login else {
            return Judgement::Decided(Err(self.refused(&NO_CREDENTIAL)));
        };
        let dear = match &entry {
            Some(entry) => entry.material.dear(),
            None => directory.has_dear_passwords.then(Argon2Hash::of_nobody),
        };
        let proof = dear.map(|hash| {
            // What one address has shown to be right is no news for others: they would
            // guess past the brake.
            let network = network(address).to_be_bytes();
            let hash = hash.text().as_bytes();
            let parts = [hash, &login.name, &login.password, &network];
            self.checks.proof(&parts)
        });
        let outcome = match (&entry, &proof) {
            (_, Some(proof)) => self.checks.outcome(proof),
            (Some(entry), None) => Some(entry.material.fits(&login.password)),
            (None, None) => Some(false),
        };
        // Whoever is right and known to be goes on, whatever others try.
        let right = proof.is_some() && outcome == Some(true);
        if !right && self.brake.holds(address, &login.name, now) {
            return Judgement::Decided(Err(self.refused(&GUESSING)));
        }
        match (outcome, entry, proof) {
            (Some(true), Some(entry), _) => Judgement::Decided(Ok(entry)),
            (None, entry, Some(proof)) => Judgement::Check(Box::new(Check {
                login,
                proof,
                entry,
            })),
            _ => {
                self.brake.note(address, &login.name, now);
                Judgement::Decided(Err(self.refused(&WRONG)))
            }
        }
    }

    async fn check(
        &self,
        check: Check,
        exchange: &Exchange,
    ) -> Result<Arc<Entry<StoredPassword>>, Refusal> {
        let Check {
            login,
            proof,
            entry,
        } = check;
        let (against, password) = (entry.clone(), login.password);
        let work = move || match against {
            Some(entry) => entry.material.fits(&password),
            None => Argon2Hash::of_nobody().fits(&password),
        };
        let fits = self.checks.check(proof, work).await;
        let fits = fits.map_err(|_| self.refused(&BUSY))?;
        entry.filter(|_| fits).ok_or_else(|| {
            let now = self.authentication.clock.now_secs();
            self.brake.note(exchange.client.ip(), &login.name, now);
            self.refused(&WRONG)
        })
    }

    /// Takes the header out that was read.
    fn hide(&self, request: &mut RequestHeader) {
        if self.hides && Login::all(request, SCHEME).any(|login| login.header == AUTHORIZATION) {
            request.remove_header(&AUTHORIZATION);
        }
    }

    fn settle(
        &self,
        judged: Result<Arc<Entry<StoredPassword>>, Refusal>,
        request: &mut RequestHeader,
        exchange: &mut Exchange,
    ) -> Flow {
        self.hide(request);
        self.authentication.settle(judged, exchange)
    }
}

#[async_trait]
impl Filter for BasicAuth {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        if self.authentication.is_spared(exchange) {
            return Verdict::Now(Flow::Continue);
        }
        match self.judge(session.req_header(), exchange) {
            Judgement::Decided(judged) => {
                Verdict::Now(self.settle(judged, session.req_header_mut(), exchange))
            }
            Judgement::Check(_) => Verdict::Wait,
        }
    }

    async fn on_request_slow(&self, session: &mut Session, exchange: &mut Exchange) -> Flow {
        let judged = match self.judge(session.req_header(), exchange) {
            Judgement::Decided(judged) => judged,
            Judgement::Check(check) => self.check(*check, exchange).await,
        };
        self.settle(judged, session.req_header_mut(), exchange)
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
        if Login::all(request, SCHEME).next().is_none() {
            let refusal = self.refused(&NO_CREDENTIAL);
            return Some(self.authentication.foresee_refusal(&refusal, exchange));
        }
        // An answer would be a way to try passwords that nobody counts.
        Some(FilterExplanation::depends("whether the password is right"))
    }

    fn on_upstream_request(&self, exchange: &Exchange, request: &mut UpstreamRequest<'_>) {
        identity::write(exchange, request);
    }

    fn owned_headers(&self) -> &[HeaderName] {
        &identity::HEADERS
    }
}
