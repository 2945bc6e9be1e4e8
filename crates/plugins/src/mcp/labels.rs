//! What metrics and the access log call the calls: in words of the protocol and of the
//! configuration alone, so that no caller can make up new ones.

use std::sync::{Arc, OnceLock};

use super::message::{Message, Subject};
use super::rules::{Rules, glob};
use doorward_net::telemetry::Metrics;
use doorward_net::telemetry::metrics::Counter;
use doorward_plugin_api::filter::McpCall;

/// Methods of the protocol that metrics tell apart.
const METHODS: [&str; 19] = [
    // What most messages are is found first.
    "tools/call",
    "completion/complete",
    "initialize",
    "logging/setLevel",
    "notifications/cancelled",
    "notifications/initialized",
    "notifications/progress",
    "notifications/roots/list_changed",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "server/discover",
    "subscriptions/listen",
    "tools/list",
];

/// What came of a call, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallOutcome {
    Allowed,
    /// The client is told the scopes to come back with.
    StepUp,
    /// It would need scopes that it can't have.
    ImpossibleStepUp,
    Denied,
}

/// What a method or a name is called that the configuration does not know.
const OTHER: &str = "other";

/// The words for calls, and the counters of calls that were allowed.
pub(super) struct CallLabels {
    /// Patterns of methods in the rules.
    methods: Vec<String>,
    /// Patterns of names in the rules.
    names: Vec<(Subject, String)>,
    /// By method, then by name; the last of each is for what has no word.
    allowed: Box<[OnceLock<AllowedCall>]>,
    metrics: Arc<Metrics>,
}

/// A call that was allowed before: where it is counted, and what the log says of it.
struct AllowedCall {
    counter: Counter,
    call: Arc<McpCall>,
}

impl CallLabels {
    /// The words of `rules`.
    pub(super) fn of(rules: &Rules, metrics: Arc<Metrics>) -> Self {
        let methods: Vec<_> = rules.methods().map(str::to_owned).collect();
        let names = rules
            .names()
            .map(|(subject, name)| (subject, name.to_owned()));
        let names: Vec<_> = names.collect();
        let count = (METHODS.len() + methods.len() + 1) * (names.len() + 2);
        Self {
            methods,
            names,
            allowed: (0..count).map(|_| OnceLock::new()).collect(),
            metrics,
        }
    }

    /// Counts a message and what came of it; what the access log says of it. Answers to
    /// the server are no calls.
    pub(super) fn count(
        &self,
        message: &Message<'_>,
        outcome: CallOutcome,
    ) -> Option<Arc<McpCall>> {
        let (method, method_text) = self.method(message.method.as_deref()?);
        let call = message.call();
        // The places behind all patterns: what has no word, and what has no name.
        let (name, name_text) = match call {
            Some((subject, name)) => self.name(subject, name),
            None => (self.names.len() + 1, ""),
        };
        let counter = |decision| self.metrics.mcp_calls(method_text, name_text, decision);
        let described = || {
            Arc::new(McpCall {
                method: method_text.into(),
                name: call.map(|_| name_text.into()),
            })
        };
        let decision = match outcome {
            CallOutcome::Allowed => {
                let place = method * (self.names.len() + 2) + name;
                let allowed = self.allowed.get(place)?.get_or_init(|| AllowedCall {
                    counter: counter("allow"),
                    call: described(),
                });
                allowed.counter.inc();
                return Some(Arc::clone(&allowed.call));
            }
            CallOutcome::StepUp => "step_up",
            CallOutcome::ImpossibleStepUp => "step_up_impossible",
            CallOutcome::Denied => "deny",
        };
        counter(decision).inc();
        Some(described())
    }

    fn method(&self, method: &str) -> (usize, &str) {
        if let Some(place) = METHODS.iter().position(|known| *known == method) {
            return (place, METHODS[place]);
        }
        let mut patterns = self.methods.iter();
        match patterns.position(|pattern| glob(pattern, method)) {
            Some(place) => (METHODS.len() + place, &self.methods[place]),
            None => (METHODS.len() + self.methods.len(), OTHER),
        }
    }

    fn name(&self, subject: Subject, name: &str) -> (usize, &str) {
        let mut patterns = self.names.iter();
        let fits = |(of, pattern): &(Subject, String)| *of == subject && glob(pattern, name);
        match patterns.position(fits) {
            Some(place) => (place, &self.names[place].1),
            None => (self.names.len(), OTHER),
        }
    }
}
