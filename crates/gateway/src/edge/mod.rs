//! What the edge of a site does for all routes: TLS for everybody, health checks,
//! compression, and pages for failures.

mod coding;
pub mod compression;
pub mod error_pages;
pub mod https;
pub mod probes;
