//! What the process says about itself: metrics, its log and the access log.

pub mod access_log;
pub mod acme;
pub mod attributes;
pub mod certificate_warnings;
pub mod client_aborts;
pub mod collector;
pub mod connections;
mod engine_log;
pub mod exposition;
mod families;
mod kong_exposition;
pub mod kong_metrics;
pub mod line_sink;
pub mod listeners;
pub mod log_file;
pub mod log_levels;
pub mod log_limit;
pub mod log_socket;
pub mod metrics;
pub mod otlp;
pub mod process_log;
pub mod refused_requests;
mod repeats;
pub mod spool;
mod target_exposition;
pub mod targets;
pub mod traffic;
pub mod upstreams;

pub use exposition::Telemetry;
pub use log_limit::warn_limited;
pub use metrics::{Counter, Gauge, Metrics};
