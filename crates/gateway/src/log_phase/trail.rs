//! What is noted of a request for filters that observe.

use std::time::Instant;

use doorward_plugin_api::record::{Try, Wait};
use smallvec::SmallVec;

/// Whether anything is noted of a request.
#[derive(Debug, Default)]
pub(crate) enum TrailState {
    /// No filter wants to know of it.
    #[default]
    Off,
    /// A filter may want to, and nothing has been noted.
    Empty,
    /// What has been noted.
    Begun(Box<Trail>),
}

impl TrailState {
    /// The state in which a request begins; `observed`: a filter of it observes.
    pub(crate) fn new(observed: bool) -> Self {
        if observed { Self::Empty } else { Self::Off }
    }

    /// Whether no filter wants to know of the request.
    pub(crate) fn is_off(&self) -> bool {
        matches!(self, Self::Off)
    }

    /// Where something is noted, unless nobody wants to know.
    pub(crate) fn begin(&mut self) -> Option<&mut Trail> {
        if let Self::Empty = self {
            *self = Self::Begun(Box::default());
        }
        match self {
            Self::Begun(trail) => Some(trail),
            Self::Off | Self::Empty => None,
        }
    }

    /// What has been noted.
    pub(crate) fn get(&self) -> Option<&Trail> {
        match self {
            Self::Begun(trail) => Some(trail),
            Self::Off | Self::Empty => None,
        }
    }
}

/// What filters that observe will be told of a request.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    pub(super) upstream_uri: Box<str>,
    pub(super) status: Option<u16>,
    pub(super) tries: SmallVec<[Try; 1]>,
    pub(super) waits: Vec<Wait>,
    /// When the upstream was first thought of.
    pub(super) upstream_started: Option<Instant>,
    /// When the current peer was first looked for.
    pub(super) choice_started: Option<Instant>,
    /// Whether the path holds a secret.
    pub(super) secret_path: bool,
}
