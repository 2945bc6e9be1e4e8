//! Doorward: one front door in one process.
//!
//! A reverse proxy and API gateway that routes, signs people in, checks
//! tokens, throttles, and carries its own identity provider.
//!
//! # A request's path
//!
//! [`doorward_gateway::proxy`] takes the current snapshot once, matches the request to
//! a route ([`doorward_gateway::router`]), runs the route's filters in the order that
//! was fixed at compile time ([`doorward_plugin_api::filter::Filter`]), and hands the
//! request to an upstream peer or to an upstream inside the process (the identity
//! provider, an axum `Router`). [`doorward_admin`] changes the entities,
//! [`doorward_gateway::control`] is the only writer of snapshots.
//!
//! # Dependencies point one way
//!
//! `doorward → admin → gateway → plugins → openid-connect → plugin-api → net → expr, core`;
//! `identity, plugins → audit → store → core`. `identity` depends neither on `gateway`
//! nor on `admin`; a plugin depends neither on `gateway` nor on `identity`. A test
//! holds the manifests to this.

pub mod boot;
pub mod cli;
pub mod config;
pub mod server;
pub mod systemd;
pub mod upgrade;
