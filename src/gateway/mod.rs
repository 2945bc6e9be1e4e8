//! The gateway: routing table, data path, and the only writer of both.

mod admit;
mod answer;
mod attempt;
pub mod balance;
pub mod certificates;
pub mod chain;
mod choose;
mod client_certificate;
mod consumers;
pub mod control;
pub mod declarative;
mod edit;
pub mod entities;
pub mod explain;
mod forward;
mod head;
pub mod internal;
mod observe;
pub mod peer;
pub mod proxy;
pub mod records;
pub mod resolve;
pub mod router;
pub mod schemas;
pub mod snapshot;
pub mod tries;
pub mod upstream;
