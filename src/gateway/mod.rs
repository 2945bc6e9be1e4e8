//! The gateway: routing table, data path, and the only writer of both.

pub mod control;
pub mod entities;
pub mod router;
