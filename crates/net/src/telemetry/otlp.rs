//! Metrics that are sent to a collector of OpenTelemetry.
//!
//! What is sent is what `/metrics` shows. A collector that is slow or gone costs an
//! export: the next one has the same sums.

mod config;
mod encoding;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prometheus::proto::{MetricFamily, MetricType};
use prost::Message;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::Telemetry;
use super::collector::CollectorError;
use super::families::{counter, family};
use super::metrics::{Counter, Gauge};
use crate::http::outbound::Outbound;
use config::Target;
use doorward_core::clock::Clock;
use encoding::{Resource, Times};

pub use config::{Finding, OtlpConfig};

/// What came of exports.
#[derive(Clone, Debug, Default)]
pub struct OtlpMetrics {
    /// Exports that the collector took whole.
    pub done: Counter,
    /// Exports that it refused, or that did not reach it.
    pub failed: Counter,
    /// 1 if there are exports.
    are_on: Gauge,
}

impl OtlpMetrics {
    pub(super) fn family(&self) -> MetricFamily {
        let results = [("done", &self.done), ("failed", &self.failed)];
        let are_shown = self.are_on.get() == 1;
        let results = results.into_iter().filter(|_| are_shown);
        family(
            "doorward_otlp_exports_total",
            "Exports of the metrics over OTLP.",
            MetricType::COUNTER,
            results
                .map(|(result, n)| counter(&[("result", result)], n.get()))
                .collect(),
        )
    }
}

/// Sends metrics.
pub struct Exporter {
    target: Target,
    telemetry: Telemetry,
    outbound: Arc<Outbound>,
    clock: Clock,
    started_ms: i64,
    /// Whether the last export failed, and was told.
    failing: AtomicBool,
}

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Exporter({:?})", self.target.collector.endpoint.origin())
    }
}

impl Exporter {
    /// Sends what `telemetry` shows as `config` says; sums are those since
    /// `started_ms`.
    ///
    /// # Errors
    /// The key and what is wrong with it.
    pub fn new(
        config: &OtlpConfig,
        telemetry: Telemetry,
        outbound: Arc<Outbound>,
        clock: Clock,
        started_ms: i64,
    ) -> Result<Self, Finding> {
        telemetry.otlp.are_on.set(1);
        Ok(Self {
            target: config.compile()?,
            telemetry,
            outbound,
            clock,
            started_ms,
            failing: AtomicBool::new(false),
        })
    }

    /// Sends in each interval, without end.
    pub async fn run(&self) {
        let interval = self.target.interval;
        let mut ticks = interval_at(Instant::now() + interval, interval);
        // After a slow export the next one is not made up for.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.export().await;
        }
    }

    /// Sends once. A failure is counted, and logged if the export before succeeded.
    pub async fn export(&self) {
        let counters = &self.telemetry.otlp;
        match self.send().await {
            Ok(()) => {
                counters.done.inc();
                if self.failing.swap(false, Ordering::Relaxed) {
                    tracing::info!(
                        collector = self.target.collector.endpoint.origin(),
                        "metrics are sent again"
                    );
                }
            }
            Err(error) => {
                counters.failed.inc();
                if !self.failing.swap(true, Ordering::Relaxed) {
                    let collector = self.target.collector.endpoint.origin();
                    tracing::warn!(collector, %error, "metrics can't be sent");
                }
            }
        }
    }

    async fn send(&self) -> Result<(), CollectorError> {
        let families = self.telemetry.gather();
        let (node, _) = self.telemetry.metrics.kong.node();
        let resource = Resource {
            node,
            attributes: &self.target.attributes,
        };
        let times = Times::of_ms(self.started_ms, self.clock.now_ms());
        for request in encoding::requests(&families, resource, times) {
            let message = request.encode_to_vec();
            self.target
                .collector
                .export(&self.outbound, message)
                .await?;
        }
        Ok(())
    }
}
