//! What is noted of a request for filters that observe.

use std::time::Instant;

use doorward_plugin_api::record::{Try, Wait};

/// What filters that observe will be told of a request.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    pub(super) upstream_uri: Box<str>,
    pub(super) status: Option<u16>,
    pub(super) tries: Vec<Try>,
    pub(super) waits: Vec<Wait>,
    /// When the upstream was first thought of.
    pub(super) upstream_started: Option<Instant>,
    /// When the current peer was first looked for.
    pub(super) choice_started: Option<Instant>,
    /// Whether the path holds a secret.
    pub(super) secret_path: bool,
}
