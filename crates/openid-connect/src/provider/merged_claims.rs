//! What an ID token adds to what is known of an access token, merged once for all
//! requests that show both.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value};

use crate::provider::token_cache::VerifiedToken;

/// What is known of an access token, and that with what its ID token says.
#[derive(Debug, Default)]
pub(crate) struct MergedClaims(Mutex<Option<Pair>>);

#[derive(Debug)]
struct Pair {
    of: Arc<VerifiedToken>,
    with: Arc<VerifiedToken>,
}

impl MergedClaims {
    /// What is known of a token, with what an ID token of `length` bytes says of
    /// its user.
    pub(crate) fn with(
        &self,
        verified: Arc<VerifiedToken>,
        identity: impl FnOnce() -> Map<String, Value>,
        length: usize,
    ) -> Arc<VerifiedToken> {
        let mut merged = self.0.lock();
        if let Some(merged) = &*merged
            && merged.of.is_same(&verified)
        {
            return Arc::clone(&merged.with);
        }
        let said = verified.responses.clone();
        let with = verified.with(identity(), length, said);
        *merged = Some(Pair {
            of: verified,
            with: Arc::clone(&with),
        });
        with
    }
}
