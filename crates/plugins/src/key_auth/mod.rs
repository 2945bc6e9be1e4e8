//! The `key-auth` plugin: requests carry a key that belongs to a consumer.

mod body;
mod guesses;
mod places;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use http::Method;
use pingora::http::RequestHeader;
use serde_json::{Map, Value, json};

use crate::authentication::{self, Authentication, Challenge, Directory, Entry, Refusal};
use crate::settings::header_name;
use doorward_core::model::credential::KeyDigest;
use doorward_core::model::schema::{Schema, Type};
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::session::Session;
use doorward_plugin_api::filter::{Code, Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Kind, Parts, config, identity};
use guesses::Guesses;
use http::HeaderName;
use places::{Place, Places};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "key-auth",
    priority: 1250,
    of_consumers: false,
    schema,
    codes: || {
        vec![
            NO_KEY,
            DUPLICATE,
            UNKNOWN,
            GUESSING,
            authentication::NO_ANONYMOUS,
        ]
    },
    build,
};

const NO_KEY: Code = Code::new("no_credential", 401, "the request carries no key");
const DUPLICATE: Code = Code::new(
    "duplicate_credential",
    401,
    "the request carries two keys in one place",
);
const UNKNOWN: Code = Code::new("unknown_credential", 401, "nobody has this key");
const GUESSING: Code = Code::new(
    "guessing",
    429,
    "the address has been wrong too often in this minute",
);

config! {
    /// The fields of `config`.
    struct Config {
        /// The names under which keys are looked for.
        #[field(kind(Type::array(Type::checked(header_name))), default(json!(["apikey"])), required)]
        key_names: Vec<Box<str>>,
        /// Whether the upstream does not see the key.
        #[field(default(false), required)]
        hide_credentials: bool,
        /// Whether headers may carry the key.
        #[field(default(true), required)]
        key_in_header: bool,
        /// Whether parameters of the query may carry the key.
        #[field(default(true), required)]
        key_in_query: bool,
        /// Whether the body may carry the key.
        #[field(default(false), required)]
        key_in_body: bool,
        /// Whether preflights of browsers need a key, too.
        #[field(default(true), required)]
        run_on_preflight: bool,
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let mut fields = Config::fields();
        fields.extend(authentication::Config::fields());
        Schema::new(fields)
    });
    &SCHEMA
}

/// A running filter.
struct KeyAuth {
    places: Places,
    hides: bool,
    run_on_preflight: bool,
    challenge: Challenge,
    authentication: Authentication,
    guesses: Arc<Guesses>,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let authentication::Config { anonymous, realm } = authentication::Config::read(config)?;
    let config = Config::read(config)?;
    Ok(Arc::new(KeyAuth {
        places: Places::new(&config)?,
        hides: config.hide_credentials,
        run_on_preflight: config.run_on_preflight,
        challenge: Challenge::new("Key", realm.as_deref())?,
        authentication: Authentication::new(KIND.name, anonymous.as_deref(), parts),
        guesses: parts.slots.get_or_default(),
    }))
}

impl KeyAuth {
    /// Whose key a request carries. Guesses of an address are counted, and beyond a
    /// number none of them is told from another.
    fn judge_counting<'a>(
        &self,
        place: &Place<'_>,
        directory: &'a Directory,
        address: IpAddr,
    ) -> Result<&'a Arc<Entry<()>>, Refusal> {
        let judged = self.judge(place, directory);
        let Place::Key(key) = place else {
            return judged;
        };
        let is_good = match &judged {
            Ok(_) => true,
            Err(refusal) if refusal.code.code == UNKNOWN.code => false,
            Err(_) => return judged,
        };
        let now = self.authentication.clock.now_secs();
        if self.guesses.admits(address, key, is_good, now) {
            return judged;
        }
        Err(Refusal::message(&GUESSING, "Too many attempts"))
    }

    /// Whose key a request carries.
    fn judge<'a>(
        &self,
        place: &Place<'_>,
        directory: &'a Directory,
    ) -> Result<&'a Arc<Entry<()>>, Refusal> {
        let refused = |code, message| self.challenge.add(Refusal::message(code, message));
        let key = match place {
            Place::Nowhere => return Err(refused(&NO_KEY, "No API key found in request")),
            Place::Twice => return Err(refused(&DUPLICATE, "Duplicate API key found")),
            Place::Key(key) if key.is_empty() => {
                return Err(refused(&NO_KEY, "No API key found in request"));
            }
            Place::Key(key) => key,
        };
        let entry = directory.keys.get(KeyDigest::of_sent(key).bytes());
        let now = self.authentication.clock.now_secs();
        entry
            .filter(|entry| !entry.is_over(now))
            .ok_or_else(|| refused(&UNKNOWN, "Unauthorized"))
    }

    fn passes_as_preflight(&self, request: &RequestHeader) -> bool {
        !self.run_on_preflight && request.method == Method::OPTIONS
    }
}

#[async_trait]
impl Filter for KeyAuth {
    fn secret_fields(&self) -> Vec<&str> {
        self.places.names()
    }

    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        let request = session.req_header_mut();
        if self.passes_as_preflight(request) || self.authentication.is_spared(exchange) {
            return Verdict::Now(Flow::Continue);
        }
        let directory = self.authentication.credentials.load();
        let judged = {
            let place = self.places.find(request, exchange.body.as_ref());
            self.judge_counting(&place, &directory, exchange.client.ip())
        };
        if self.hides {
            self.places.hide(request, exchange);
        }
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
            return Some(FilterExplanation::passes("OPTIONS requests need no key"));
        }
        if self.authentication.is_spared(exchange) {
            return Some(FilterExplanation::passes(
                "a credential has let the request in",
            ));
        }
        let directory = self.authentication.credentials.load();
        let place = self.places.find(request, exchange.body.as_ref());
        let judged = self.judge(&place, &directory);
        Some(self.authentication.explain(judged, exchange))
    }

    fn needs_body(&self) -> bool {
        self.places.body
    }

    fn on_upstream_request(&self, exchange: &Exchange, request: &mut UpstreamRequest<'_>) {
        identity::write(exchange, request);
    }

    fn owned_headers(&self) -> &[HeaderName] {
        &identity::HEADERS
    }
}
