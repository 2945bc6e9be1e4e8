//! Events that nobody waits for: collected, folded, bounded.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use doorward_core::model::audit::{Event, Trace};
use doorward_net::telemetry::metrics::{STRIPES, stripe};

/// When equal events happened, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first_ms: i64,
    pub(super) last_ms: i64,
    pub(super) count: u64,
    /// Of the first.
    pub(super) trace: Trace,
}

impl Span {
    pub(super) fn once(at_ms: i64, trace: Trace) -> Self {
        Self {
            first_ms: at_ms,
            last_ms: at_ms,
            count: 1,
            trace,
        }
    }

    fn add(&mut self, other: Self) {
        if other.first_ms < self.first_ms {
            self.first_ms = other.first_ms;
            self.trace = other.trace;
        }
        self.last_ms = self.last_ms.max(other.last_ms);
        self.count += other.count;
    }
}

/// Striped as the metrics are: threads that note events do not wait for one
/// another.
#[derive(Debug)]
pub(super) struct Queue {
    stripes: [Mutex<Stripe>; STRIPES],
    held: AtomicUsize,
    most: usize,
    fold: bool,
}

#[derive(Debug, Default)]
struct Stripe {
    folded: HashMap<Event, Span>,
    each: Vec<(Event, Span)>,
}

impl Queue {
    pub(super) fn new(most: usize, fold: bool) -> Self {
        Self {
            stripes: Default::default(),
            held: AtomicUsize::new(0),
            most,
            fold,
        }
    }

    /// Takes an event in, unless too many wait; says whether it did.
    pub(super) fn push(&self, event: Event, span: Span) -> bool {
        let mut stripe = self.stripes[stripe()].lock();
        if self.fold
            && let Some(known) = stripe.folded.get_mut(&event)
        {
            known.add(span);
            return true;
        }
        if self.held.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.held.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        if self.fold {
            stripe.folded.insert(event, span);
        } else {
            stripe.each.push((event, span));
        }
        true
    }

    /// How many records wait.
    pub(super) fn len(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Everything that waits, in the order of time.
    pub(super) fn take(&self) -> Vec<(Event, Span)> {
        let mut folded: HashMap<Event, Span> = HashMap::new();
        let mut all = Vec::new();
        for stripe in &self.stripes {
            let taken = std::mem::take(&mut *stripe.lock());
            let held = taken.folded.len() + taken.each.len();
            self.held.fetch_sub(held, Ordering::Relaxed);
            all.extend(taken.each);
            for (event, span) in taken.folded {
                match folded.get_mut(&event) {
                    Some(known) => known.add(span),
                    None => {
                        folded.insert(event, span);
                    }
                }
            }
        }
        all.extend(folded);
        all.sort_by_key(|(_, span)| span.first_ms);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorward_core::model::audit::{Actor, Kind};

    fn event(client: &str) -> Event {
        Event::new(Kind::TokenIssue, Actor::Client(client.to_owned())).client(client)
    }

    fn trace(tracking_id: String) -> Trace {
        Trace {
            tracking_id: Some(tracking_id),
            ..Trace::default()
        }
    }

    #[test]
    fn equal_events_become_one_that_counts_whatever_thread_they_come_from() {
        let queue = Queue::new(10, true);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let queue = &queue;
                scope.spawn(move || {
                    for n in 0..100 {
                        let span = Span::once(thread * 100 + n, trace(format!("{thread}-{n}")));
                        assert!(queue.push(event("a"), span));
                    }
                });
            }
        });
        queue.push(event("b"), Span::once(7, Trace::default()));
        let all = queue.take();
        assert_eq!(all.len(), 2);
        let expected = Span {
            first_ms: 0,
            last_ms: 399,
            count: 400,
            trace: trace("0-0".to_owned()),
        };
        assert_eq!(all[0], (event("a"), expected));
        assert_eq!((queue.len(), queue.take().len()), (0, 0));
    }

    #[test]
    fn a_flood_of_different_events_is_bounded_and_told() {
        let queue = Queue::new(3, true);
        let taken =
            (0..10).filter(|n| queue.push(event(&n.to_string()), Span::once(0, Trace::default())));
        assert_eq!(taken.count(), 3);
        // What is known already still counts.
        assert!(queue.push(event("0"), Span::once(1, Trace::default())));
        assert_eq!(queue.take().len(), 3);
    }

    #[test]
    fn without_folding_each_event_is_told() {
        let queue = Queue::new(3, false);
        for at in 0..2 {
            assert!(queue.push(event("a"), Span::once(at, Trace::default())));
        }
        assert_eq!(queue.take().len(), 2);
    }
}
