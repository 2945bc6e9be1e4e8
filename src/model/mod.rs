//! Plain records, without I/O.

pub mod audit;
pub mod authorization;
pub mod broker;
pub mod ca_certificate;
pub mod certificate;
pub mod client;
pub mod consumer;
pub mod device;
pub mod factor;
pub mod federation;
pub mod grant;
pub mod group;
pub mod key_path;
mod number;
pub mod plugin;
pub mod query;
pub mod registration;
pub mod route;
pub mod schema;
pub mod secret;
pub mod service;
pub mod session;
pub mod sni;
pub mod target;
pub mod token;
pub mod upstream;
pub mod user;
