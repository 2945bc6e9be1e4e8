//! What all plugins that authenticate consumers have in common: the credentials in
//! force, whom a request counts as, and how it is refused.
//!
//! Without `anonymous` each of several plugins has to be satisfied, and the last one
//! decides whom the request comes from. With `anonymous` one of them is enough.

pub(crate) mod brake;
pub(crate) mod checks;
mod index;
pub(crate) mod login;
#[cfg(test)]
pub(crate) mod testing;

use std::borrow::Cow;
use std::sync::Arc;

use http::header::{AUTHORIZATION, PROXY_AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};

use crate::settings::{UNEXPECTED, wrong};
use doorward_core::clock::Clock;
use doorward_net::http::reply::Reply;
use doorward_net::telemetry::Counter;
use doorward_plugin_api::consumers::{Anonymous, Consumers};
use doorward_plugin_api::filter::{Code, Exchange, FilterExplanation, Flow};
use doorward_plugin_api::identity::Credential;
use doorward_plugin_api::{ConfigError, Parts, config};

pub use index::{Credentials, Directory, Entry, Index};

/// The one of its refusals that no client is to blame for.
pub(crate) const NO_ANONYMOUS: Code =
    Code::new("no_anonymous", 500, "there is no such anonymous consumer");

/// The headers that carry credentials, in the order in which they are read.
pub(crate) const CREDENTIAL_HEADERS: [HeaderName; 2] = [PROXY_AUTHORIZATION, AUTHORIZATION];

config! {
    /// The fields that all these plugins have.
    pub(crate) struct Config {
        /// The consumer that requests without a good credential count as, by identifier
        /// or name. Null: they are refused.
        pub(crate) anonymous: Option<Box<str>>,
        /// The realm that clients are told.
        pub(crate) realm: Option<Box<str>>,
    }
}

/// What is refused, and how.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// For log and metrics.
    pub(crate) code: &'static Code,
    /// For the client.
    pub(crate) reply: Reply,
}

impl Refusal {
    /// A message in the form that the client accepts.
    pub(crate) fn message(code: &'static Code, message: &'static str) -> Self {
        Self {
            code,
            reply: Reply::message(status(code), message),
        }
    }
}

/// The status of a code.
pub(crate) fn status(code: &Code) -> StatusCode {
    StatusCode::from_u16(code.status).unwrap_or(StatusCode::UNAUTHORIZED)
}

/// What a plugin lets requests in by.
pub(crate) struct Authentication {
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) clock: Clock,
    anonymous: Option<Anonymous>,
    consumers: Arc<Consumers>,
    passed: Counter,
    nobody: Counter,
    refused: Counter,
}

impl Authentication {
    /// That of a plugin of this kind; `anonymous` is the field of its configuration.
    pub(crate) fn new(kind: &'static str, anonymous: Option<&str>, parts: &Parts) -> Self {
        let decision = |decision| parts.metrics.decision(kind, decision);
        Self {
            credentials: parts.slots.get_or_default(),
            clock: parts.clock.clone(),
            anonymous: Anonymous::new(anonymous),
            consumers: Arc::clone(&parts.consumers),
            passed: decision("pass"),
            nobody: decision("anonymous"),
            refused: decision("refuse"),
        }
    }

    /// Whether nothing has to be proved: another plugin has let the request in, and
    /// this one is only one of several ways.
    pub(crate) fn is_spared(&self, exchange: &Exchange) -> bool {
        let proved = exchange.credential.is_some() || exchange.token.is_some();
        self.anonymous.is_some() && proved
    }

    /// What becomes of a request that was judged so.
    pub(crate) fn settle<M>(
        &self,
        judged: Result<impl AsRef<Entry<M>>, Refusal>,
        exchange: &mut Exchange,
    ) -> Flow {
        let refusal = match judged {
            Ok(entry) => {
                let entry = entry.as_ref();
                self.passed.inc();
                exchange.consumer = Some(Arc::clone(&entry.caller));
                exchange.credential = Some(Arc::clone(&entry.credential));
                return Flow::Continue;
            }
            Err(refusal) => refusal,
        };
        self.refuse(refusal, exchange)
    }

    /// Lets a request in that has shown this credential, which is no consumer's.
    pub(crate) fn accept(&self, credential: Credential, exchange: &mut Exchange) -> Flow {
        self.passed.inc();
        exchange.consumer = None;
        exchange.credential = Some(Arc::new(credential));
        Flow::Continue
    }

    /// Refuses the request, or lets it pass as that of the anonymous consumer.
    pub(crate) fn refuse(&self, mut refusal: Refusal, exchange: &mut Exchange) -> Flow {
        if let Some(anonymous) = &self.anonymous
            && refusal.code.status < 500
        {
            if let Some(consumer) = anonymous.consumer(&self.consumers) {
                self.nobody.inc();
                exchange.consumer = Some(consumer);
                return Flow::Continue;
            }
            refusal = Refusal::message(&NO_ANONYMOUS, UNEXPECTED);
        }
        self.refused.inc();
        exchange.refusal = Some(Cow::Borrowed(refusal.code.code));
        Flow::Respond(refusal.reply)
    }

    /// What an operator is told of a request that was judged so.
    pub(crate) fn explain<M>(
        &self,
        judged: Result<impl AsRef<Entry<M>>, Refusal>,
        exchange: &mut Exchange,
    ) -> FilterExplanation {
        match judged {
            Ok(entry) => {
                let entry = entry.as_ref();
                exchange.consumer = Some(Arc::clone(&entry.caller));
                exchange.credential = Some(Arc::clone(&entry.credential));
                let label = entry.caller.label().unwrap_or("a consumer");
                FilterExplanation::passes(format!("as {label}"))
            }
            Err(refusal) => self.foresee_refusal(&refusal, exchange),
        }
    }

    /// What an operator is told of a request that is refused.
    pub(crate) fn foresee_refusal(
        &self,
        refusal: &Refusal,
        exchange: &mut Exchange,
    ) -> FilterExplanation {
        if let Some(anonymous) = &self.anonymous
            && refusal.code.status < 500
        {
            let Some(consumer) = anonymous.consumer(&self.consumers) else {
                return FilterExplanation::answers(&NO_ANONYMOUS);
            };
            exchange.consumer = Some(consumer);
            let meaning = refusal.code.meaning;
            return FilterExplanation::passes(format!(
                "as the anonymous consumer, since {meaning}"
            ));
        }
        FilterExplanation::answers(refusal.code)
    }
}

/// The header that tells clients how to authenticate.
#[derive(Clone, Debug)]
pub(crate) struct Challenge(HeaderValue);

impl Challenge {
    /// `scheme` and the plugin's realm, if it has one.
    pub(crate) fn new(scheme: &str, realm: Option<&str>) -> Result<Self, ConfigError> {
        let text = match realm {
            Some(realm) => format!("{scheme} realm=\"{realm}\""),
            None => scheme.to_owned(),
        };
        Self::of(&text)
    }

    /// The header with this value.
    pub(crate) fn of(text: &str) -> Result<Self, ConfigError> {
        // A quote would end the text, and what follows would be parameters.
        let sound = text.matches('"').count() <= 2 && !text.contains('\\');
        let value = HeaderValue::from_str(text).ok().filter(|_| sound);
        let value = value.ok_or_else(|| wrong("realm", "can't be told in a header"))?;
        Ok(Self(value))
    }

    /// The header with more parameters.
    pub(crate) fn with(&self, parameters: &str) -> Result<Self, ConfigError> {
        let text = self.0.to_str().unwrap_or_default();
        let value = HeaderValue::from_str(&format!("{text} {parameters}"));
        value
            .map(Self)
            .map_err(|_| wrong("realm", "can't be told in a header"))
    }

    /// Adds the header to a refusal.
    pub(crate) fn add(&self, mut refusal: Refusal) -> Refusal {
        let field = (WWW_AUTHENTICATE, self.0.clone());
        refusal.reply.headers.push(field);
        refusal
    }
}

/// The text behind the scheme of a header's value, if it has this scheme, in any
/// case.
pub(crate) fn after_scheme<'a>(value: &'a HeaderValue, scheme: &str) -> Option<&'a str> {
    let text = value.to_str().ok()?;
    let (start, rest) = text.split_at_checked(scheme.len())?;
    start.eq_ignore_ascii_case(scheme).then_some(rest)
}
