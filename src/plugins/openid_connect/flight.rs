//! One question to a provider at a time about one thing, however many requests
//! wait for the answer.
//!
//! A question runs in a task of its own, so clients that hang up can't make it
//! start over. Answers that say no are remembered for a short while, in
//! bounded memory: whoever repeats a bad token does not get to ask again and
//! again.

use std::future::Future;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use quick_cache::sync::Cache;
use tokio::sync::watch;

use crate::plugins::openid_connect::refusal::Refusal;

/// Most questions under way.
const FLIGHTS: usize = 256;
/// Most noes remembered.
const REFUSED: usize = 16 * 1024;
/// For how long a no is remembered where nothing else is said, in
/// milliseconds.
pub(in crate::plugins) const REFUSED_MS: i64 = 5_000;

/// What a question is about, so that nobody can choose texts that collide.
pub(in crate::plugins) type Digest = [u8; 32];
type Landed<T> = watch::Receiver<Option<Result<T, Refusal>>>;

/// Questions under way, and what was refused lately.
pub(in crate::plugins) struct Flights<T> {
    under_way: Arc<DashMap<Digest, Landed<T>>>,
    refused: Arc<Cache<Digest, (Refusal, i64)>>,
    refused_ms: i64,
}

impl<T: Clone + Send + Sync + 'static> Flights<T> {
    /// Remembers what is refused for so many milliseconds.
    pub(in crate::plugins) fn new(refused_ms: i64) -> Self {
        Self {
            under_way: Arc::default(),
            refused: Arc::new(Cache::new(REFUSED)),
            refused_ms,
        }
    }

    /// Why this was refused lately.
    pub(in crate::plugins) fn refused(&self, digest: &Digest, now_ms: i64) -> Option<Refusal> {
        let (refusal, until) = self.refused.get(digest)?;
        (now_ms < until).then_some(refusal)
    }

    /// Waits for the answer to the question that is under way, or asks it;
    /// `now_ms` is the time afterwards.
    pub(in crate::plugins) async fn ask<F>(
        &self,
        digest: Digest,
        question: impl FnOnce() -> F,
        now_ms: impl Fn() -> i64 + Send + 'static,
    ) -> Result<T, Refusal>
    where
        F: Future<Output = Result<T, Refusal>> + Send + 'static,
    {
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
                let (refused, refused_ms) = (Arc::clone(&self.refused), self.refused_ms);
                let question = question();
                tokio::spawn(async move {
                    let outcome = question.await;
                    if let Err(refusal) = &outcome
                        && refusal.is_of_client()
                    {
                        refused.insert(digest, (*refusal, now_ms() + refused_ms));
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
struct Landing<T> {
    digest: Digest,
    under_way: Arc<DashMap<Digest, Landed<T>>>,
}

impl<T> Drop for Landing<T> {
    fn drop(&mut self) {
        self.under_way.remove(&self.digest);
    }
}

/// The digest of some texts, whose borders count.
pub(in crate::plugins) fn digest_of<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> Digest {
    let mut context = Context::new(&SHA256);
    for text in texts {
        context.update(&(text.len() as u64).to_be_bytes());
        context.update(text);
    }
    let mut bytes = [0; 32];
    bytes.copy_from_slice(context.finish().as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flights() -> Flights<()> {
        Flights::new(REFUSED_MS)
    }

    #[tokio::test]
    async fn a_flood_of_bad_tokens_stays_within_the_bound() {
        let flights = flights();
        for n in 0..REFUSED + 4_000 {
            let question = || async { Err(Refusal::InactiveToken) };
            let about = digest_of([&n.to_be_bytes()[..]]);
            let outcome = flights.ask(about, question, || 0).await;
            assert_eq!(outcome.err(), Some(Refusal::InactiveToken));
        }
        assert!(flights.refused.len() <= REFUSED);
        assert!(flights.under_way.is_empty());
    }

    #[tokio::test]
    async fn a_question_that_is_cancelled_ends_for_those_who_wait() {
        let (flights, about) = (flights(), digest_of([&b"token"[..]]));
        let question = || async { panic!("a fault of the program") };
        let outcome = flights.ask(about, question, || 0).await;
        assert_eq!(outcome.err(), Some(Refusal::ProviderUnavailable));
        let again = || async { Err(Refusal::InactiveToken) };
        let outcome = flights.ask(about, again, || 0).await;
        assert_eq!(outcome.err(), Some(Refusal::InactiveToken), "asked again");
    }

    #[test]
    fn texts_that_are_cut_elsewhere_are_others() {
        let one = digest_of([&b"ab"[..], b"c"]);
        assert_ne!(one, digest_of([&b"a"[..], b"bc"]));
        assert_ne!(one, digest_of([&b"abc"[..]]));
    }
}
