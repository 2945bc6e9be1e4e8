//! What an operator is told of certificates and orders.

use serde_json::{Value, json};

use crate::Acme;
use crate::issued::ManagedCertificate;

impl Acme {
    /// What is ordered, what came of it, and what comes next. Times are in seconds since
    /// the epoch.
    pub fn status(&self) -> Value {
        let config = &self.client.config;
        let known = self.known.lock().clone();
        let wanted = self.wanted();
        let rest = known.keys().filter(|names| !wanted.contains(*names));
        let all = wanted.iter().map(|names| (names, true));
        let all = all.chain(rest.map(|names| (names, false)));
        let certificates = all.map(|(names, is_wanted)| {
            let one = known.get(names);
            let next = is_wanted.then(|| self.order_ms(one));
            self.certificate(names, one, next)
        });
        json!({
            "directory": config.directory,
            "challenge": config.challenge.as_str(),
            "on_demand": config.on_demand,
            "certificates": certificates.collect::<Vec<_>>(),
        })
    }

    fn certificate(
        &self,
        names: &str,
        known: Option<&ManagedCertificate>,
        next_ms: Option<i64>,
    ) -> Value {
        let now_ms = self.client.clock.now_ms();
        let seconds = |ms: i64| ms.div_euclid(1000);
        let validity = known.and_then(ManagedCertificate::validity);
        let state = known.map(|known| &known.row.state);
        let failures = state.map_or(0, |state| state.failures);
        let word = match validity {
            Some(validity) if validity.until_ms <= now_ms => "expired",
            Some(_) if failures > 0 => "renewal_failing",
            Some(_) => "valid",
            None if failures > 0 => "failing",
            None => "pending",
        };
        let problem = state
            .and_then(|state| state.problem.as_ref())
            .map(|problem| {
                json!({
                    "type": problem.kind,
                    "step": problem.step,
                    "detail": problem.detail,
                    "at": seconds(problem.at_ms),
                })
            });
        json!({
            "names": names.split(' ').collect::<Vec<_>>(),
            "state": word,
            "issuer": state.and_then(|state| state.issuer.clone()),
            "not_before": validity.map(|validity| seconds(validity.from_ms)),
            "not_after": validity.map(|validity| seconds(validity.until_ms)),
            "next_order": next_ms.map(|at| seconds(at.max(now_ms))),
            "failures": failures,
            "problem": problem,
        })
    }
}
