//! Doorward: one front door in one process.
//!
//! A reverse proxy and API gateway that routes, signs people in, checks
//! tokens, throttles, and carries its own identity provider.
//!
//! # A request's path
//!
//! [`gateway::proxy`] takes the current snapshot once, matches the request to
//! a route ([`gateway::router`]), runs the route's filters in the order that
//! was fixed at compile time ([`filter::Filter`]), and hands the request to an
//! upstream peer or to an upstream inside the process (the identity provider,
//! an axum `Router`). [`admin`] changes the entities, [`gateway::control`] is
//! the only writer of snapshots.
//!
//! # Imports point one way
//!
//! `main → cli, boot, server → config → gateway, admin, identity → plugins, audit →
//! filter, session, store, http, shared, telemetry → model, expr, jose, x509, yaml, clock`. `identity` imports
//! neither `gateway` nor `admin`; a plugin imports neither `gateway` nor
//! `identity`. A test checks this.

pub mod admin;
pub mod audit;
pub mod boot;
pub mod cli;
pub mod clock;
pub mod config;
pub mod expr;
pub mod filter;
pub mod gateway;
pub mod http;
pub mod identity;
pub mod jose;
pub mod model;
pub mod plugins;
pub mod server;
pub mod session;
pub mod shared;
pub mod store;
pub mod telemetry;
pub mod x509;
pub mod yaml;
