//! Plain records, without I/O.

pub mod client;
pub mod grant;
pub mod key_path;
pub mod plugin;
pub mod query;
pub mod route;
pub mod schema;
pub mod secret;
pub mod service;
pub mod token;
pub mod user;
