//! What the edge of a site does for all routes: TLS for everybody, and health checks.

pub mod https;
pub mod probes;
