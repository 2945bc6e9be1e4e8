//! Refreshes of sessions with one issuer, for all plugins of the process: a
//! session may be shown to several at once, and to one whose configuration is just
//! changed, while a refresh token may be good only once.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::provider::single_flight::{REFUSED_MS, SingleFlight};
use crate::provider::token_endpoint::{GrantCache, Tokens, grant_cache};

/// Longest wait of a refresh where too many are under way.
const PATIENCE: Duration = Duration::from_secs(10);

/// The refreshes with one issuer.
pub(crate) struct Refreshes {
    /// Nobody who signs in, or says so, keeps them waiting, nor does another
    /// issuer that is slow.
    pub(crate) flights: SingleFlight<Arc<Tokens>>,
    /// The next tokens, for whoever comes late with the last ones.
    pub(crate) late: Arc<GrantCache>,
}

impl Refreshes {
    fn new() -> Self {
        Self {
            flights: SingleFlight::new(REFUSED_MS, PATIENCE),
            late: Arc::new(grant_cache()),
        }
    }
}

/// Refreshes by issuer, as long as a plugin names it.
#[derive(Default)]
pub(crate) struct RefreshesByIssuer(Mutex<HashMap<String, Weak<Refreshes>>>);

impl RefreshesByIssuer {
    /// Those with this issuer.
    pub(crate) fn with(&self, issuer: &str) -> Arc<Refreshes> {
        let mut all = self.0.lock();
        if let Some(known) = all.get(issuer).and_then(Weak::upgrade) {
            return known;
        }
        all.retain(|_, refreshes| refreshes.strong_count() > 0);
        let refreshes = Arc::new(Refreshes::new());
        all.insert(issuer.to_owned(), Arc::downgrade(&refreshes));
        refreshes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issuers_that_no_plugin_names_any_more_take_no_room() {
        let all = RefreshesByIssuer::default();
        let kept = all.with("https://id.test");
        assert!(Arc::ptr_eq(&kept, &all.with("https://id.test")));
        for n in 0..1000 {
            all.with(&format!("https://{n}.test"));
        }
        assert!(all.0.lock().len() <= 2);
    }
}
