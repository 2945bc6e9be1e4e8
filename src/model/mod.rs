//! Plain records without I/O.

pub mod key_path;
pub mod plugin;
pub mod route;
pub mod schema;
pub mod secret;
pub mod service;
pub mod token;
