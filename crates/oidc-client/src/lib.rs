//! OpenID Connect as a client of a provider speaks it, for every part that is one.
//!
//! It has typed inputs and errors of its own. Configuration, caches, sessions,
//! metrics and refusals belong to the parts that use it.

pub mod authorization;
pub mod client_auth;
pub mod id_token;
pub mod metadata;
pub mod token_response;
