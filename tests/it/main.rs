//! Tests against the real program and its sources, a module per section of the
//! interface.

mod admin;
mod bad_input;
mod balancing;
mod cli;
mod deck;
mod durability;
mod explain;
mod handshakes;
mod hostile;
mod identity;
mod imports;
mod names;
mod openid_connect;
mod operation;
mod plugins;
mod proxying;
mod reload;
mod request_guard;
mod routing;
mod sharing;
mod smuggling;
mod support;
mod throttling;
mod tls;
mod walkthrough;
