//! Balancing: which target of an upstream gets a request.
//!
//! A [`Balancer`] is an upstream's configuration and its [`endpoint_set`]: the
//! endpoints (a target, or one address of a target that is a name) with what
//! the algorithm needs to choose. A pick reads both without a lock and without
//! allocating. What is learned of an endpoint (health, requests in flight,
//! latency, breaker) lives in its [`endpoint::State`], which every later
//! balancer of the same upstream takes over: a configuration change forgets
//! nothing and disturbs no request.

pub mod background;
pub mod balancer;
mod breaker;
pub mod endpoint;
pub mod endpoint_set;
mod health;
mod health_checker;
pub mod key;
pub mod member;
mod outcomes;
mod probe;
mod random;
pub mod registry;
mod ring;
mod round_robin;
mod search;
pub mod status;

pub use balancer::{Balancer, NoTarget, Pick, Tried};
pub use health::Outcome;

#[cfg(test)]
mod tests;
