//! One question a token at a time, however many requests bring it.
//!
//! A question runs in a task of its own, so clients that hang up can't make it
//! start over. Answers that a token is not active are remembered for a short
//! while, in bounded memory: whoever repeats a bad token does not get to ask
//! again and again.

use std::future::Future;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use quick_cache::sync::Cache;
use tokio::sync::watch;

use crate::plugins::openid_connect::cache::Verified;
use crate::plugins::openid_connect::refusal::Refusal;

/// Most questions under way.
const FLIGHTS: usize = 256;
/// Most bad tokens remembered.
const REFUSED: usize = 16 * 1024;
/// For how long a bad token is remembered, in milliseconds.
pub(super) const REFUSED_MS: i64 = 5_000;

/// What was found out about a token.
pub(super) type Outcome = Result<Arc<Verified>, Refusal>;
/// A token, so that nobody can choose texts that collide.
type Digest = [u8; 32];
type Landed = watch::Receiver<Option<Outcome>>;

/// Questions under way, and bad tokens.
pub(super) struct Flights {
    under_way: Arc<DashMap<Digest, Landed>>,
    refused: Arc<Cache<Digest, (Refusal, i64)>>,
}

impl Flights {
    pub(super) fn new() -> Self {
        Self {
            under_way: Arc::default(),
            refused: Arc::new(Cache::new(REFUSED)),
        }
    }

    /// Why `token` was refused lately.
    pub(super) fn refused(&self, token: &str, now_ms: i64) -> Option<Refusal> {
        let (refusal, until) = self.refused.get(&digest_of(token))?;
        (now_ms < until).then_some(refusal)
    }

    /// Waits for the answer to the question about `token` that is under way,
    /// or asks it; `now_ms` is the time afterwards.
    pub(super) async fn ask<F>(
        &self,
        token: &str,
        question: impl FnOnce() -> F,
        now_ms: impl Fn() -> i64 + Send + 'static,
    ) -> Outcome
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let digest = digest_of(token);
        let full = self.under_way.len() >= FLIGHTS;
        let mut landed = match self.under_way.entry(digest) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(_) if full => return Err(Refusal::ProviderUnavailable),
            Entry::Vacant(vacant) => {
                let (landing, landed) = watch::channel(None);
                vacant.insert(landed.clone());
                let flight = Landing {
                    digest,
                    under_way: Arc::clone(&self.under_way),
                };
                let refused = Arc::clone(&self.refused);
                let question = question();
                tokio::spawn(async move {
                    let outcome = question.await;
                    if let Err(refusal) = &outcome
                        && *refusal != Refusal::ProviderUnavailable
                    {
                        refused.insert(digest, (*refusal, now_ms() + REFUSED_MS));
                    }
                    drop(flight);
                    let _ = landing.send(Some(outcome));
                });
                landed
            }
        };
        let outcome = landed.wait_for(Option::is_some).await;
        let outcome = outcome.ok().and_then(|outcome| outcome.clone());
        outcome.unwrap_or(Err(Refusal::ProviderUnavailable))
    }
}

/// Ends the question, also when its task is cancelled.
struct Landing {
    digest: Digest,
    under_way: Arc<DashMap<Digest, Landed>>,
}

impl Drop for Landing {
    fn drop(&mut self) {
        self.under_way.remove(&self.digest);
    }
}

fn digest_of(token: &str) -> Digest {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_flood_of_bad_tokens_stays_within_the_bound() {
        let flights = Flights::new();
        for n in 0..REFUSED + 4_000 {
            let question = || async { Err(Refusal::InactiveToken) };
            let outcome = flights.ask(&n.to_string(), question, || 0).await;
            assert_eq!(outcome.err(), Some(Refusal::InactiveToken));
        }
        assert!(flights.refused.len() <= REFUSED);
        assert!(flights.under_way.is_empty());
    }

    #[tokio::test]
    async fn a_question_that_is_cancelled_ends_for_those_who_wait() {
        let flights = Flights::new();
        let question = || async { panic!("a fault of the program") };
        let outcome = flights.ask("token", question, || 0).await;
        assert_eq!(outcome.err(), Some(Refusal::ProviderUnavailable));
        let outcome = flights
            .ask("token", || async { Err(Refusal::InactiveToken) }, || 0)
            .await;
        assert_eq!(outcome.err(), Some(Refusal::InactiveToken), "asked again");
    }
}
