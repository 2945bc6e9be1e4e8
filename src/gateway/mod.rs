//! The gateway: routing table, data path, and the only writer of both.

pub mod control;
mod edit;
pub mod entities;
pub mod router;
pub mod snapshot;
pub mod upstream;
