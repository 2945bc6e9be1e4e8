//! Operations of the store, as whoever traces a request sees them.
//!
//! A resource has a file of its own, so the place of an operation in the code names it.

use std::panic::Location;
use std::path::Path;

use doorward_core::calls::{Callee, Note};

/// Where an operation comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    /// The file of its resource.
    File(&'static Location<'static>),
    /// A file that resources share.
    Resource(&'static str),
}

impl Origin {
    /// The file that calls.
    #[track_caller]
    pub(super) fn here() -> Self {
        Self::File(Location::caller())
    }

    fn resource(self) -> &'static str {
        match self {
            Self::File(at) => {
                let name = Path::new(at.file()).file_stem();
                name.and_then(|name| name.to_str()).unwrap_or_default()
            }
            Self::Resource(name) => name,
        }
    }
}

/// An operation that begins, on the database of this name. It has failed unless
/// [`settle`] says otherwise.
pub(super) fn begin(system: &'static str, origin: Origin, writes: bool) -> Note {
    Note::begin(|| Callee::Store {
        system,
        resource: origin.resource(),
        writes,
        done: false,
    })
}

/// Says whether the operation was done.
pub(super) fn settle<T, E>(note: &mut Note, outcome: &Result<T, E>) {
    note.settle(|callee| {
        if let Callee::Store { done, .. } = callee {
            *done = outcome.is_ok();
        }
    });
}
