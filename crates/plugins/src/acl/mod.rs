//! The `acl` plugin: only members of groups get in, or all but members of groups.
//!
//! Groups come from the consumer's records, or from a plugin that vouches for them.
//! What a request says of groups never counts.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use http::{HeaderName, HeaderValue};
use pingora::http::RequestHeader;
use serde_json::{Map, Value};

use crate::authentication::status;
use doorward_core::model::schema::{Schema, Violations};
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;
use doorward_net::telemetry::Counter;
use doorward_plugin_api::config::read_for_check;
use doorward_plugin_api::consumers::header_value;
use doorward_plugin_api::filter::{Code, Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::identity::{self, AUTHENTICATED_GROUPS, CONSUMER_GROUPS};
use doorward_plugin_api::{ConfigError, Kind, Parts, config};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "acl",
    priority: 950,
    of_consumers: false,
    schema,
    codes: || vec![NOBODY, NOT_ALLOWED],
    build,
};

const NOBODY: Code = Code::new(
    "no_consumer",
    401,
    "no plugin has said whom the request comes from",
);
const NOT_ALLOWED: Code = Code::new("not_in_group", 403, "the consumer's groups are not let in");

config! {
    /// The fields of `config`.
    struct Config {
        /// The groups whose members get in.
        allow: Vec<Box<str>>,
        /// The groups whose members do not get in.
        deny: Vec<Box<str>>,
        /// Whether the upstream is not told the groups.
        #[field(default(false), required)]
        hide_groups_header: bool,
        /// Whether groups that another plugin vouches for count before the consumer's.
        #[field(default(false), required)]
        always_use_authenticated_groups: bool,
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> =
        LazyLock::new(|| Schema::new(Config::fields()).check(one_list));
    &SCHEMA
}

fn one_list(config: &Map<String, Value>, violations: &mut Violations) {
    if ["allow", "deny"].iter().any(|list| violations.has(list)) {
        // Nobody knows whether it is empty.
        return;
    }
    let Some(config) = read_for_check::<Config>(config) else {
        return;
    };
    let counts: &[&str] = match (config.allow.is_empty(), config.deny.is_empty()) {
        (false, false) => &["exactly"],
        // The imitated gateway has a rule for either, and tells both.
        (true, true) => &["exactly", "at least"],
        _ => return,
    };
    for count in counts {
        violations.put_holder(format!(
            "{count} one of these fields must be non-empty: 'config.allow', 'config.deny'"
        ));
    }
}

/// A running filter.
struct Acl {
    groups: Box<[Box<str>]>,
    /// Whether their members get in; else all others do.
    allows: bool,
    hides: bool,
    prefers_authenticated: bool,
    passed: Counter,
    refused: Counter,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Config::read(config)?;
    let decision = |decision| parts.metrics.decision(KIND.name, decision);
    let allows = !config.allow.is_empty();
    let groups = if allows { config.allow } else { config.deny };
    Ok(Arc::new(Acl {
        groups: groups.into(),
        allows,
        hides: config.hide_groups_header,
        prefers_authenticated: config.always_use_authenticated_groups,
        passed: decision("pass"),
        refused: decision("refuse"),
    }))
}

/// The groups of a request, and who names them.
struct Groups<'a> {
    names: &'a [Box<str>],
    /// The consumer's records; else another plugin.
    of_records: bool,
}

impl Acl {
    /// The groups that count. `None`: nobody has any to begin with.
    fn groups<'a>(&self, exchange: &'a Exchange) -> Option<Groups<'a>> {
        let proved = is_proved(exchange);
        let authenticated = exchange.authenticated_groups.as_deref();
        let first = exchange.consumer.is_none() || !proved || self.prefers_authenticated;
        let of_plugin = authenticated.filter(|_| first).map(|names| Groups {
            names,
            of_records: false,
        });
        of_plugin.or_else(|| {
            exchange.consumer.as_deref().map(|consumer| Groups {
                names: consumer.groups(),
                of_records: true,
            })
        })
    }

    /// What the upstream is told of the groups of a request that may pass.
    fn judge(
        &self,
        exchange: &Exchange,
    ) -> Result<Option<(HeaderName, HeaderValue)>, &'static Code> {
        let proved = is_proved(exchange);
        let Some(groups) = self.groups(exchange) else {
            return Err(if proved { &NOT_ALLOWED } else { &NOBODY });
        };
        let member = groups.names.iter().any(|name| self.groups.contains(name));
        if member != self.allows {
            let stranger = groups.names.is_empty() && !proved;
            return Err(if stranger { &NOBODY } else { &NOT_ALLOWED });
        }
        if self.hides {
            return Ok(None);
        }
        Ok(match (groups.of_records, exchange.consumer.as_deref()) {
            (true, Some(consumer)) => {
                let value = consumer.groups_header().cloned();
                value.map(|value| (CONSUMER_GROUPS, value))
            }
            _ => {
                let value = header_value(&groups.names.join(", "));
                value.map(|value| (AUTHENTICATED_GROUPS, value))
            }
        })
    }
}

/// Whether the request has shown a credential.
fn is_proved(exchange: &Exchange) -> bool {
    exchange.credential.is_some() || exchange.token.is_some()
}

#[async_trait]
impl Filter for Acl {
    fn on_request(&self, _: &mut Session, exchange: &mut Exchange) -> Verdict {
        match self.judge(exchange) {
            Ok(header) => {
                self.passed.inc();
                exchange.vouched.extend(header);
                Verdict::Now(Flow::Continue)
            }
            Err(code) => {
                self.refused.inc();
                exchange.refusal = Some(Cow::Borrowed(code.code));
                let message = match code.status {
                    401 => "Unauthorized",
                    _ => "You cannot consume this service",
                };
                let reply = Reply::message(status(code), message);
                Verdict::Now(Flow::Respond(reply))
            }
        }
    }

    fn reads_heads(&self) -> bool {
        false
    }

    async fn explain(
        &self,
        _: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Option<FilterExplanation> {
        Some(match self.judge(exchange) {
            Ok(_) => FilterExplanation::passes("the groups are let in"),
            Err(code) => FilterExplanation::answers(code),
        })
    }

    fn on_upstream_request(&self, exchange: &Exchange, request: &mut UpstreamRequest<'_>) {
        for (name, value) in &exchange.vouched {
            if [CONSUMER_GROUPS, AUTHENTICATED_GROUPS].contains(name) {
                request.fields().insert(name.clone(), value.clone());
            }
        }
    }

    fn owned_headers(&self) -> &[HeaderName] {
        &identity::HEADERS
    }
}
