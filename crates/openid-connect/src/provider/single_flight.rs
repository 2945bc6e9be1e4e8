//! One question to a provider at a time about one thing, however many requests
//! wait for the answer.
//!
//! A question runs in a task of its own, so clients that hang up can't make it
//! start over. Answers that say no are remembered for a short while, in
//! bounded memory: whoever repeats a bad token does not get to ask again and
//! again.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use quick_cache::sync::Cache;
use tokio::sync::{Semaphore, watch};

use crate::decide::refusal::Refusal;
use doorward_core::calls;

/// Most questions under way.
const FLIGHTS: usize = 256;
/// Most questions that wait until one of those has its answer.
const WAITING: usize = 1024;
/// Most noes remembered.
const REFUSED: usize = 16 * 1024;
/// For how long a no is remembered where nothing else is said, in
/// milliseconds.
pub const REFUSED_MS: i64 = 5_000;

/// What a question is about, so that nobody can choose texts that collide.
pub type Digest = [u8; 32];
type FlightResult<T> = watch::Receiver<Option<Result<T, Refusal>>>;

/// Questions under way, and what was refused lately.
pub struct SingleFlight<T> {
    /// Those that wait for a place among them.
    under_way: Arc<DashMap<Digest, FlightResult<T>>>,
    places: Arc<Semaphore>,
    /// Longest wait for a place.
    patience: Duration,
    refused: Arc<Cache<Digest, (Refusal, i64)>>,
    refused_ms: i64,
}

impl<T: Clone + Send + Sync + 'static> SingleFlight<T> {
    /// Remembers what is refused for so many milliseconds. Where more is asked
    /// than may be at once, a question waits no longer than `patience`.
    pub fn new(refused_ms: i64, patience: Duration) -> Self {
        Self {
            under_way: Arc::default(),
            places: Arc::new(Semaphore::new(FLIGHTS)),
            patience,
            refused: Arc::new(Cache::new(REFUSED)),
            refused_ms,
        }
    }

    /// Why this was refused lately.
    pub fn refused(&self, digest: &Digest, now_ms: i64) -> Option<Refusal> {
        let (refusal, until) = self.refused.get(digest)?;
        (now_ms < until).then_some(refusal)
    }

    /// Waits for the answer to the question that is under way, or asks it;
    /// `now_ms` is the time afterwards.
    pub async fn ask<F>(
        &self,
        digest: Digest,
        question: impl FnOnce() -> F,
        now_ms: impl Fn() -> i64 + Send + 'static,
    ) -> Result<T, Refusal>
    where
        F: Future<Output = Result<T, Refusal>> + Send + 'static,
    {
        let full = self.under_way.len() >= FLIGHTS + WAITING;
        let mut landed = match self.under_way.entry(digest) {
            Entry::Occupied(metadata) => metadata.get().clone(),
            Entry::Vacant(_) if full => return Err(Refusal::ProviderUnavailable),
            Entry::Vacant(vacant) => {
                let (landing, landed) = watch::channel(None);
                vacant.insert(landed.clone());
                let flight = FlightGuard {
                    digest,
                    under_way: Arc::clone(&self.under_way),
                };
                let (refused, refused_ms) = (Arc::clone(&self.refused), self.refused_ms);
                let places = Arc::clone(&self.places).acquire_owned();
                let place = tokio::time::timeout(self.patience, places);
                let question = calls::carried(question());
                tokio::spawn(async move {
                    let outcome = match place.await {
                        Ok(Ok(_place)) => question.await,
                        _ => Err(Refusal::ProviderTimeout),
                    };
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
struct FlightGuard<T> {
    digest: Digest,
    under_way: Arc<DashMap<Digest, FlightResult<T>>>,
}

impl<T> Drop for FlightGuard<T> {
    fn drop(&mut self) {
        self.under_way.remove(&self.digest);
    }
}

/// The digest of some texts, whose borders count.
pub fn digest_of<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> Digest {
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

    const PATIENCE: Duration = Duration::from_secs(10);

    fn flights() -> SingleFlight<()> {
        SingleFlight::new(REFUSED_MS, PATIENCE)
    }

    /// Asks `count` different questions, each of which waits for a permit of
    /// `gate`; what became of them.
    async fn rush(flights: &SingleFlight<()>, count: usize, gate: &Arc<Semaphore>) -> Vec<bool> {
        let asks = (0..count).map(|n| {
            let gate = Arc::clone(gate);
            let question = || async move {
                let permit = gate.acquire().await;
                permit.map(drop).map_err(|_| Refusal::ProviderUnavailable)
            };
            flights.ask(digest_of([&n.to_be_bytes()[..]]), question, || 0)
        });
        let outcomes = futures_util::future::join_all(asks).await;
        outcomes.iter().map(Result::is_ok).collect()
    }

    /// Waits until so many questions are asked or wait, or it is plain that they
    /// never will be.
    async fn wait_for(flights: &SingleFlight<()>, count: usize) {
        for _ in 0..100_000 {
            if flights.under_way.len() >= count && flights.places.available_permits() == 0 {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn who_comes_when_all_places_are_taken_waits_for_one() {
        let (flights, gate) = (flights(), Arc::new(Semaphore::new(0)));
        let count = FLIGHTS + 44;
        let opens = async {
            wait_for(&flights, count).await;
            gate.add_permits(1);
        };
        let (outcomes, ()) = tokio::join!(rush(&flights, count, &gate), opens);
        assert!(outcomes.iter().all(|good| *good));
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_place_in_time_is_told_so() {
        let (flights, gate) = (flights(), Arc::new(Semaphore::new(0)));
        let opens = async {
            tokio::time::sleep(2 * PATIENCE).await;
            gate.add_permits(1);
        };
        let (outcomes, ()) = tokio::join!(rush(&flights, FLIGHTS + 9, &gate), opens);
        let late = outcomes.iter().filter(|good| !**good).count();
        assert_eq!(late, 9);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_questions_that_wait_stays_within_the_bound() {
        let (flights, gate) = (flights(), Arc::new(Semaphore::new(0)));
        let count = FLIGHTS + WAITING + 100;
        let opens = async {
            wait_for(&flights, FLIGHTS + WAITING).await;
            gate.add_permits(1);
        };
        let (outcomes, ()) = tokio::join!(rush(&flights, count, &gate), opens);
        let refused = outcomes.iter().filter(|good| !**good).count();
        assert_eq!(refused, 100);
        assert!(flights.under_way.is_empty());
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
