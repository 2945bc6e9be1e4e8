//! The fields of periods, and what they may say together.

use super::counters::Limit;
use super::period::Period;
use doorward_core::model::schema::Violations;
use doorward_plugin_api::config;

config! {
    /// How many requests, or how much else, each period allows.
    #[derive(Debug)]
    pub(crate) struct PeriodLimits {
        /// The limit for a second. Null: none.
        second: Option<f64>,
        /// The limit for a minute. Null: none.
        minute: Option<f64>,
        /// The limit for an hour. Null: none.
        hour: Option<f64>,
        /// The limit for a day. Null: none.
        day: Option<f64>,
        /// The limit for a month. Null: none.
        month: Option<f64>,
        /// The limit for a year. Null: none.
        year: Option<f64>,
    }
}

impl PeriodLimits {
    /// Those that are there, the shortest period first.
    pub(crate) fn limits(&self) -> Box<[Limit]> {
        let all = Period::ALL.into_iter();
        let set = all.filter_map(|period| {
            let limit = match period {
                Period::Second => self.second,
                Period::Minute => self.minute,
                Period::Hour => self.hour,
                Period::Day => self.day,
                Period::Month => self.month,
                Period::Year => self.year,
            };
            Some(Limit {
                period,
                limit: limit?,
            })
        });
        set.collect()
    }

    /// Demands limits above zero, and of longer periods no lower ones. Messages begin
    /// with `article`, as the imitated gateway's do.
    pub(crate) fn check(&self, article: &str, violations: &mut Violations) {
        let limits = self.limits();
        for (i, longer) in limits.iter().enumerate() {
            if longer.limit <= 0.0 {
                violations.put(longer.period.name(), "value must be greater than 0");
            }
            let mut before = limits.iter().take(i);
            if let Some(shorter) = before.find(|one| one.limit > longer.limit) {
                violations.put_whole(format!(
                    "{article} limit for {}({:.1}) cannot be lower than the limit for {}({:.1})",
                    longer.period.name(),
                    longer.limit,
                    shorter.period.name(),
                    shorter.limit,
                ));
            }
        }
    }

    /// The fields that must not all be missing, each behind `holder`.
    pub(crate) fn names(holder: &str) -> String {
        let names = Period::ALL.map(|period| format!("'{holder}{}'", period.name()));
        names.join(", ")
    }
}
