//! The `bot-detection` plugin: programs are known by their `User-Agent`.
//!
//! It stops those who say who they are. A program that calls itself a browser
//! passes.

#[cfg(test)]
mod tests;
mod user_agents;

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use http::StatusCode;
use http::header::USER_AGENT;
use pingora::http::RequestHeader;
use regex::bytes::{RegexSet, RegexSetBuilder};
use serde_json::{Map, Value, json};

use crate::settings::wrong;
use doorward_core::model::schema::{Schema, Type};
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;
use doorward_net::telemetry::metrics::Counter;
use doorward_plugin_api::filter::{Code, Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Kind, Parts, config};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "bot-detection",
    priority: 2500,
    of_consumers: false,
    schema,
    codes: || vec![BOT, TWO_AGENTS],
    build,
};

const BOT: Code = Code::new(
    "bot",
    403,
    "the User-Agent is a bot's, or one that is denied",
);
const TWO_AGENTS: Code = Code::new(
    "two_user_agents",
    400,
    "the request has more than one User-Agent header",
);

/// Largest compiled form of a list of patterns, in bytes.
const MAX_PATTERNS: usize = 4 << 20;

config! {
    /// The fields of `config`.
    struct Config {
        /// Patterns of user agents that pass, whatever else is said of them.
        #[field(kind(Type::array(Type::checked(check_pattern))), default(json!([])))]
        allow: Vec<String>,
        /// Patterns of user agents that are refused, besides those of well-known bots.
        #[field(kind(Type::array(Type::checked(check_pattern))), default(json!([])))]
        deny: Vec<String>,
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(Config::fields()));
    &SCHEMA
}

fn check_pattern(pattern: &str) -> Result<(), String> {
    if pattern.is_empty() {
        // It is in every name of a client.
        return Err("length must be at least 1".to_owned());
    }
    patterns(&[pattern.to_owned()]).map(drop)
}

/// Patterns that are searched for at once, in time linear in the text.
fn patterns(patterns: &[String]) -> Result<RegexSet, String> {
    let mut builder = RegexSetBuilder::new(patterns);
    let set = builder.size_limit(MAX_PATTERNS).build();
    set.map_err(|error| {
        let all = patterns.join("', '");
        let error = error.to_string();
        let last = error.lines().last().unwrap_or_default().trim();
        let reason = last.strip_prefix("error: ").unwrap_or(last);
        format!("'{all}' is not a valid regex: {reason}")
    })
}

/// A running filter.
struct BotDetection {
    allow: RegexSet,
    deny: RegexSet,
    passed: Counter,
    refused: Counter,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Config::read(config)?;
    let read = |field, texts: &[String]| patterns(texts).map_err(|message| wrong(field, message));
    // Compiled now, not with the first request.
    LazyLock::force(&user_agents::BOTS);
    let decision = |decision| parts.metrics.decision(KIND.name, decision);
    Ok(Arc::new(BotDetection {
        allow: read("allow", &config.allow)?,
        deny: read("deny", &config.deny)?,
        passed: decision("pass"),
        refused: decision("refuse"),
    }))
}

impl BotDetection {
    /// Why the request is refused, if it is.
    fn judge(&self, request: &RequestHeader) -> Option<&'static Code> {
        let mut agents = request.headers.get_all(USER_AGENT).iter();
        let agent = agents.next()?;
        if agents.next().is_some() {
            return Some(&TWO_AGENTS);
        }
        let agent = agent.as_bytes().trim_ascii();
        if self.allow.is_match(agent) {
            return None;
        }
        let bot = self.deny.is_match(agent) || user_agents::BOTS.is_match(agent);
        bot.then_some(&BOT)
    }
}

#[async_trait]
impl Filter for BotDetection {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        let Some(code) = self.judge(session.req_header()) else {
            self.passed.inc();
            return Verdict::Now(Flow::Continue);
        };
        self.refused.inc();
        exchange.refusal = Some(Cow::Borrowed(code.code));
        let reply = match code.status {
            400 => Reply::message(
                StatusCode::BAD_REQUEST,
                "Only one User-Agent header allowed",
            ),
            _ => Reply::message(StatusCode::FORBIDDEN, "Forbidden"),
        };
        Verdict::Now(Flow::Respond(reply))
    }

    fn reads_heads(&self) -> bool {
        false
    }

    async fn explain(
        &self,
        request: &RequestHeader,
        _: &mut Exchange,
    ) -> Option<FilterExplanation> {
        Some(match self.judge(request) {
            None => FilterExplanation::passes("the User-Agent is no bot's"),
            Some(code) => FilterExplanation::answers(code),
        })
    }
}
