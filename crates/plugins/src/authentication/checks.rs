//! Checks of passwords that take time: a bounded number at once, away from the
//! workers, and each password once.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use quick_cache::sync::Cache;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use doorward_core::clock::random_bytes;

/// Outcomes that are remembered, good and bad ones.
const REMEMBERED: usize = 65_536;
/// Longest wait for a turn.
const WAIT: Duration = Duration::from_millis(1500);

/// A keyed hash of what was checked.
pub(crate) type Proof = [u8; 32];

/// Too many checks wait already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy;

/// The checks of a process.
pub(crate) struct PasswordChecks {
    key: hmac::Key,
    outcomes: Cache<Proof, bool>,
    permits: Arc<Semaphore>,
}

impl Default for PasswordChecks {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, &random_bytes::<32>()),
            outcomes: Cache::new(REMEMBERED),
            // The other half of the cores goes on serving requests.
            permits: Arc::new(Semaphore::new(cores.div_ceil(2))),
        }
    }
}

impl PasswordChecks {
    /// What stands for these parts together, and for no others.
    pub(crate) fn proof(&self, parts: &[&[u8]]) -> Proof {
        let mut context = hmac::Context::with_key(&self.key);
        for part in parts {
            context.update(&part.len().to_le_bytes());
            context.update(part);
        }
        let mut proof = [0; 32];
        proof.copy_from_slice(context.sign().as_ref());
        proof
    }

    /// The outcome of a check that was made already.
    pub(crate) fn outcome(&self, proof: &Proof) -> Option<bool> {
        self.outcomes.get(proof)
    }

    /// Makes a check, and remembers what came of it.
    ///
    /// # Errors
    /// [`Busy`] when its turn does not come in time.
    pub(crate) async fn check(
        &self,
        proof: Proof,
        work: impl FnOnce() -> bool + Send + 'static,
    ) -> Result<bool, Busy> {
        let permit = timeout(WAIT, Arc::clone(&self.permits).acquire_owned()).await;
        let permit = permit.map_err(|_| Busy)?.map_err(|_| Busy)?;
        if let Some(outcome) = self.outcome(&proof) {
            // The same password was checked meanwhile.
            return Ok(outcome);
        }
        let work = move || {
            // Held by the work itself: a request that goes away makes no room for
            // another before its check is done.
            let _permit = permit;
            work()
        };
        let outcome = tokio::task::spawn_blocking(work).await.map_err(|_| Busy)?;
        self.outcomes.insert(proof, outcome);
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_joined_differently_is_something_else() {
        let checks = PasswordChecks::default();
        assert_ne!(checks.proof(&[b"ab", b"c"]), checks.proof(&[b"a", b"bc"]));
        assert_eq!(checks.proof(&[b"ab"]), checks.proof(&[b"ab"]));
    }

    #[tokio::test]
    async fn a_password_is_checked_once() {
        let checks = PasswordChecks::default();
        let proof = checks.proof(&[b"anna", b"open sesame"]);
        assert_eq!(checks.outcome(&proof), None);
        assert_eq!(checks.check(proof, || true).await, Ok(true));
        assert_eq!(checks.outcome(&proof), Some(true));
        let again = checks.check(proof, || panic!("it is remembered")).await;
        assert_eq!(again, Ok(true));
    }
}
