//! `HttpBasicAuthFilter`: requests bring a name and a password to the upstream.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use http::header::AUTHORIZATION;
use serde_json::{Map, Value};

use super::object::{Object, object};
use super::settings::{Reading, Settings};
use super::{ObjectLookup, field};
use doorward_expr::{Expression, Scope};
use doorward_net::http::session::Session;
use doorward_net::telemetry::Counter;
use doorward_plugin_api::filter::{Exchange, Filter, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Parts};

object! {
    /// The filter's fields. What the upstream's 401 leads to is a step in front of it.
    struct Fields<'a> {
        username: Expression,
        password: Expression,
    }
    idle {
        "failureHandler",
        "cacheHeader": "credentials are sent with each request",
    }
}

/// Gives credentials.
struct BasicAuth {
    username: Expression,
    password: Expression,
    /// Requests for which there are none.
    missing: Counter,
    warnings: Vec<String>,
}

pub(super) fn build(
    config: &Map<String, Value>,
    parts: &Parts,
    named: ObjectLookup<'_>,
) -> Result<Arc<dyn Filter>, ConfigError> {
    Reading::new(parts, named).filter(
        config,
        |settings| BasicAuth::read(settings, parts),
        |filter| &mut filter.warnings,
    )
}

impl BasicAuth {
    fn read(settings: &Settings<'_>, parts: &Parts) -> Result<Self, ConfigError> {
        let fields = Fields::read(settings)?;
        if let Some(name) = fields.username.value.constant()
            && !matches!(&name, doorward_expr::Value::Text(name) if !name.contains(':'))
        {
            return Err(fields.username.wrong("must be a text without a colon"));
        }
        Ok(Self {
            username: fields.username.value,
            password: fields.password.value,
            missing: parts
                .metrics
                .decision("HttpBasicAuthFilter", "no_credentials"),
            warnings: Vec::new(),
        })
    }

    fn credentials(&self, scope: &Scope<'_>) -> Option<HeaderValue> {
        let name = self.username.text(scope)?;
        let password = self.password.text(scope)?;
        if name.contains(':') {
            return None;
        }
        let text = STANDARD.encode(format!("{name}:{password}"));
        let mut value = HeaderValue::try_from(format!("Basic {text}")).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl Filter for BasicAuth {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        let request = session.req_header_mut();
        let credentials = self.credentials(&exchange.scope(request));
        // Never the client's own in place of those that are meant.
        request.remove_header(&AUTHORIZATION);
        match credentials {
            Some(value) => field::add(request, exchange, &AUTHORIZATION, value),
            None => self.missing.inc(),
        }
        Verdict::Now(Flow::Continue)
    }

    fn needs_body(&self) -> bool {
        self.username.needs_body() || self.password.needs_body()
    }

    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
}
