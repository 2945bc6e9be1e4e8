//! Authorities that vouch for providers: the operator's for all of them, and
//! records of `ca_certificates` in the place of all others for one.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use uuid::Uuid;

use super::{Authorities, Outbound};

/// Authorities that [`Outbound`] knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TrustId(usize);

/// The operator's authorities, and the lists of records that were named so far.
/// They grow with what operators configure and with nothing else.
#[derive(Default)]
pub(super) struct Trust {
    besides: Authorities,
    known: Mutex<Vec<Arc<[Uuid]>>>,
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trust")
    }
}

impl Trust {
    pub(super) fn besides(authorities: Authorities) -> Self {
        Self {
            besides: authorities,
            known: Mutex::default(),
        }
    }

    /// Has a client trust the operator's authorities, too.
    pub(super) fn add_to(&self, builder: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
        self.besides.add_to(builder)
    }

    /// The records of this name.
    pub(super) fn records(&self, trusted: TrustId) -> Arc<[Uuid]> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(trusted.0).cloned().unwrap_or_default()
    }
}

impl Outbound {
    /// A name for these records of `ca_certificates`, for
    /// [`super::Options::trusts`]; `None` if there are none.
    pub fn trust(&self, mut ids: Vec<Uuid>) -> Option<TrustId> {
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return None;
        }
        let known = self.trust.known.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        let place = known.iter().position(|one| **one == *ids);
        Some(TrustId(place.unwrap_or_else(|| {
            known.push(ids.into());
            known.len() - 1
        })))
    }
}
