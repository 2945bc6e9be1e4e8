//! What log and metrics call what throttling does to requests, and what it would
//! do to one.

use pingora::http::RequestHeader;

use super::filter::Throttling;
use super::headers::seconds;
use super::policy::Choice;
use doorward_core::clock;
use doorward_plugin_api::filter::{Code, Exchange, FilterExplanation};

const THROTTLED: Code = Code::new("throttled", 429, "the rate of the partition is reached");

const NO_PARTITION: Code = Code::new(
    "no_partition",
    500,
    "requestGroupingPolicy gives no text for the request",
);

const NO_RATE: Code = Code::new("no_rate", 500, "throttlingRatePolicy gives no rate");

/// Every code.
pub(super) const ALL: &[Code] = &[
    THROTTLED,
    Code::new(
        "would_throttle",
        0,
        "the rate is reached, and the filter is a shadow: the request went on",
    ),
    NO_PARTITION,
    NO_RATE,
];

impl Throttling {
    /// What would become of a request now, as far as this process counts.
    pub(super) fn explanation(
        &self,
        request: &RequestHeader,
        exchange: &Exchange,
    ) -> FilterExplanation {
        if self.needs_body {
            return FilterExplanation::depends("what its expressions find in the body");
        }
        let scope = exchange.scope(request);
        let Ok(key) = self.grouping.key(&scope) else {
            return FilterExplanation::answers(&NO_PARTITION);
        };
        let choice = self.policy.choose(&scope, self.partitions.rates());
        match choice {
            Choice::Broken => return FilterExplanation::answers(&NO_RATE),
            Choice::Nothing => return FilterExplanation::passes("no rate is for this request"),
            _ => {}
        }
        let now = clock::monotonic_ns();
        let outcome = self.partitions.look_all(key, choice.rates(), now);
        if outcome.passes() {
            return FilterExplanation::passes("the rate of its partition is not reached");
        }
        let wait = seconds(outcome.delay);
        if self.shadow {
            return FilterExplanation::passes(format!(
                "its rate is reached for {wait} s, but the filter is a shadow"
            ));
        }
        FilterExplanation::Answers {
            status: THROTTLED.status,
            code: THROTTLED.code.to_owned(),
            reason: format!("{}, for {wait} s", THROTTLED.meaning),
        }
    }
}
