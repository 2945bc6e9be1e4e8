//! Random identifiers of traces and spans.

use std::cell::RefCell;

use doorward_core::clock::random_bytes;

/// Bytes that are drawn at once. A draw from the system's generator takes thousands of
/// instructions, however few bytes it gives.
const DRAWN: usize = 1024;

struct Pool {
    bytes: [u8; DRAWN],
    used: usize,
}

thread_local! {
    static POOL: RefCell<Pool> = const {
        RefCell::new(Pool { bytes: [0; DRAWN], used: DRAWN })
    };
}

/// A new identifier of `N` bytes. None is given twice, and none is for a secret.
pub(super) fn random_id<const N: usize>() -> [u8; N] {
    POOL.with_borrow_mut(|pool| {
        if pool.used + N > DRAWN {
            pool.bytes = random_bytes();
            pool.used = 0;
        }
        let mut id = [0; N];
        id.copy_from_slice(&pool.bytes[pool.used..pool.used + N]);
        pool.used += N;
        id
    })
}

/// New identifiers of a trace and of two spans.
pub(super) fn random_ids() -> ([u8; 16], [u8; 8], [u8; 8]) {
    let drawn: [u8; 32] = random_id();
    let mut ids = ([0; 16], [0; 8], [0; 8]);
    ids.0.copy_from_slice(&drawn[..16]);
    ids.1.copy_from_slice(&drawn[16..24]);
    ids.2.copy_from_slice(&drawn[24..]);
    ids
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_identifier_is_given_twice_by_any_thread() {
        let given = || (0..1000).map(|_| random_id::<8>()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(given)).collect();
        let mut all = HashSet::new();
        for thread in threads {
            all.extend(thread.join().expect("no panic"));
        }
        assert_eq!(all.len(), 4000);
        // Of other lengths, too.
        assert_ne!(random_id::<16>(), random_id::<16>());
    }
}
