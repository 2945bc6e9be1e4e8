//! What the process says about itself: metrics and the access log.

pub mod access_log;
pub mod connections;
pub mod exposition;
pub mod listeners;
pub mod metrics;
pub mod targets;
pub mod traffic;
pub mod upstreams;

pub use exposition::Telemetry;
pub use metrics::{Counter, Gauge, Metrics};
