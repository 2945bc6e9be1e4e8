//! Metrics that are sent while the process runs, and once more at its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::boot::{BootError, Opened};
use crate::config::Config;
use doorward_core::clock::Clock;
use doorward_net::telemetry::otlp::Exporter;

/// How long the last metrics may take to be sent.
const LAST_EXPORT: Duration = Duration::from_secs(5);

/// Exports over OTLP, where the file names a collector.
pub(super) struct Exports(Option<Arc<Exporter>>, Option<JoinHandle<()>>);

impl Exports {
    /// Finds what the file says of them, and sends nothing yet.
    pub(super) fn new(config: &Config, clock: &Clock, parts: &Opened) -> Result<Self, BootError> {
        let Some(section) = &config.telemetry.otlp else {
            return Ok(Self(None, None));
        };
        let (telemetry, outbound) = (parts.telemetry.clone(), parts.outbound.clone());
        let exporter = Exporter::new(
            section,
            telemetry,
            outbound,
            clock.clone(),
            parts.started_ms,
        );
        let exporter = exporter.map_err(|(key, message)| {
            let key = format!("telemetry.otlp.{key}");
            BootError::Refused(config.wrong(&key, message).to_string())
        })?;
        Ok(Self(Some(Arc::new(exporter)), None))
    }

    /// Sends in each interval from now on.
    pub(super) fn start(&mut self) {
        let exporter = self.0.clone();
        self.1 = exporter.map(|exporter| tokio::spawn(async move { exporter.run().await }));
    }

    /// Sends for the last time. A collector that does not answer holds nothing up.
    pub(super) async fn end(self) {
        if let Some(exporting) = self.1 {
            exporting.abort();
        }
        if let Some(exporter) = self.0
            && timeout(LAST_EXPORT, exporter.export()).await.is_err()
        {
            tracing::warn!("the last metrics were not sent before the end");
        }
    }
}
