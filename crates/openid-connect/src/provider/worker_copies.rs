//! Copies of verified tokens that one worker alone holds.
//!
//! Whoever takes an entry that all workers share writes to the count of its holders.
//! Where many requests carry one token, the workers would pass that cache line to and
//! fro. A worker copies what it meets twice in a row, so tokens that come once cost
//! nothing more.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::provider::token_cache::VerifiedToken;

/// Copies of a worker; a token has one place among them.
const PLACES: usize = 128;
/// Largest token that is copied, in bytes of memory, about.
const MAX_WEIGHT: u64 = 16 * 1024;

thread_local! {
    static COPIES: RefCell<Vec<Place>> = const { RefCell::new(Vec::new()) };
}

/// Tells caches apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner(u64);

impl Owner {
    /// One that no other cache has.
    pub(super) fn next() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(1);
        Self(COUNT.fetch_add(1, Ordering::Relaxed))
    }
}

#[derive(Default)]
struct Place {
    copy: Option<(Owner, Arc<VerifiedToken>)>,
    /// The mark of the last token that was looked for and not in `copy`.
    missed: u64,
}

/// This worker's copy of `token`, where it has one that is current, or else what is
/// `shared`.
pub(super) fn get(
    owner: Owner,
    token: &str,
    is_current: impl Fn(&VerifiedToken) -> bool,
    shared: impl FnOnce() -> Option<Arc<VerifiedToken>>,
) -> Option<Arc<VerifiedToken>> {
    COPIES.with_borrow_mut(|places| {
        if places.is_empty() {
            places.resize_with(PLACES, Place::default);
        }
        let mark = mark(owner, token);
        let place = &mut places[mark as usize % PLACES];
        if let Some((of, copy)) = &place.copy
            && *of == owner
            && copy.token.token == token
            && is_current(copy)
        {
            return Some(Arc::clone(copy));
        }
        let held = shared()?;
        let is_met_again = std::mem::replace(&mut place.missed, mark) == mark;
        if is_met_again && held.weight <= MAX_WEIGHT && is_current(&held) {
            place.copy = Some((owner, held.copy()));
        }
        Some(held)
    })
}

/// A number that tokens rarely share: of the end, which is the signature.
fn mark(owner: Owner, token: &str) -> u64 {
    let end = token.as_bytes().last_chunk::<8>();
    let end = end.map_or(0, |end| u64::from_le_bytes(*end));
    // The upper bits of the product depend on all bits of the end.
    let product = (end ^ owner.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product.rotate_left(32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::token_cache::tests::verified;

    /// What is found three times, and whether the last one is a copy.
    fn is_copied(shared: &Arc<VerifiedToken>) -> bool {
        let owner = Owner::next();
        let get = || {
            get(
                owner,
                &shared.token.token,
                |_| true,
                || Some(Arc::clone(shared)),
            )
        };
        let all = [get(), get(), get()].map(|found| found.expect("it is shared"));
        assert!(all.iter().all(|found| found.is_same(shared)));
        assert!(Arc::ptr_eq(&all[0], shared) && Arc::ptr_eq(&all[1], shared));
        !Arc::ptr_eq(&all[2], shared)
    }

    #[test]
    fn a_token_that_is_met_again_is_copied_unless_it_is_large() {
        assert!(is_copied(&verified(
            "head.payload.signature".to_owned(),
            1000
        )));
        assert!(is_copied(&verified("short".to_owned(), 1000)));
        assert!(!is_copied(&verified(
            "head.payload.signature".to_owned(),
            MAX_WEIGHT + 1
        )));
    }

    #[test]
    fn a_copy_ends_with_what_ends_the_token() {
        let shared = verified("head.payload.signature".to_owned(), 1000);
        let owner = Owner::next();
        let find = |is_current: bool, shared: Option<&Arc<VerifiedToken>>| {
            get(
                owner,
                "head.payload.signature",
                |_| is_current,
                || shared.cloned(),
            )
        };
        for _ in 0..3 {
            assert!(find(true, Some(&shared)).is_some());
        }
        let copy = find(true, None).expect("the worker has it");
        shared.revocation.record(7, false);
        assert!(Arc::ptr_eq(&copy.revocation, &shared.revocation));
        // What is not current is asked of all.
        assert!(find(false, None).is_none());
        let newer = verified("head.payload.signature".to_owned(), 1000);
        let found = find(false, Some(&newer)).expect("it is shared");
        assert!(found.is_same(&newer));
    }

    #[test]
    fn nobody_finds_the_token_of_another_cache_or_with_the_same_end() {
        let shared = verified("one.payload.signature".to_owned(), 1000);
        let owner = Owner::next();
        for _ in 0..3 {
            let found = get(
                owner,
                &shared.token.token,
                |_| true,
                || Some(Arc::clone(&shared)),
            );
            assert!(found.is_some());
        }
        let other = Owner::next();
        assert!(get(other, &shared.token.token, |_| true, || None).is_none());
        assert!(get(owner, "two.payload.signature", |_| true, || None).is_none());
    }
}
