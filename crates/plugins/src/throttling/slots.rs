//! One array of the map: slots of 24 bytes, probed one after the other.
//!
//! Nothing here takes a lock. A slot is claimed by its key, half by half, each
//! with one compare-exchange; it is never claimed for another key and never
//! given up. When an array is replaced, one thread moves its words to the new
//! one, in whatever time it takes, and decisions go on meanwhile: as long as a
//! word has not moved, the old one decides; once it has ([`MOVED`]), the new.
//!
//! A word moves in three steps: its value is put into the new array, marked
//! [`TENTATIVE`]; the old word is exchanged for `MOVED`, which fails if it has
//! changed since, and is tried again; the mark is taken off. Whoever finds a
//! mark and that the old word has moved takes the mark off itself, so no
//! decision waits for the thread that moves.

use super::bucket::{AtomicWord, MOVED, Moved};
use super::table::Key;

/// Marks a word whose value counts from when the word before it has moved.
/// Instants are below it.
const TENTATIVE: u64 = MOVED | 1 << 62;
/// Half a key that nobody has: the slot shall not be claimed any more.
const SHUT: u64 = 2;
/// Counts of claims from here on: there shall be no more.
const CLOSED: u64 = 1 << 63;

/// The array.
pub(super) struct Slots<A> {
    slots: Box<[Slot<A>]>,
    /// Claims that were made or may be: never more than there are slots.
    claims: A,
    /// Not zero while words move here.
    moving: A,
}

/// The key is complete before the word is used, and never changes.
#[derive(Default)]
struct Slot<A> {
    key: (A, A),
    word: A,
}

/// Why a key was not inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// There is a new array, or it has the word.
    Replaced,
    /// No slot is left.
    Full,
}

/// How many words of an array were kept and how many were not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sorted {
    pub(super) kept: u64,
    pub(super) removed: u64,
}

impl<A: AtomicWord + Default> Slots<A> {
    /// So many empty slots.
    pub(super) fn empty(len: usize) -> Self {
        Self {
            slots: (0..len).map(|_| Slot::default()).collect(),
            claims: A::default(),
            moving: A::default(),
        }
    }

    /// How many slots there are.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// How many are claimed, about.
    pub(super) fn claimed(&self) -> u64 {
        self.claims.get() & !CLOSED
    }

    /// Whether keys are claimed in a new array instead.
    pub(super) fn is_closed(&self) -> bool {
        self.claims.get() >= CLOSED
    }

    /// Whether more than four fifths of the slots are claimed.
    pub(super) fn is_crowded(&self) -> bool {
        self.claimed() * 5 >= self.len() as u64 * 4
    }

    /// What `found` makes of the key's word: in this array or, while words
    /// still move here, in the one `before`. `None`: there is no such key.
    pub(super) fn with<T, B: AsRef<Self>>(
        &self,
        before: impl Fn() -> Option<B>,
        key: Key,
        found: impl Fn(&A) -> Result<T, Moved>,
    ) -> Result<Option<T>, Moved> {
        if self.moving.get() == 0 {
            return self.find(key).map(found).transpose();
        }
        // The old array is asked before the new one: words leave the one and
        // are in the other by then.
        let before = before();
        let old = before.as_ref().and_then(|before| before.as_ref().find(key));
        let has_moved = match old.map(&found) {
            Some(Ok(made)) => return Ok(Some(made)),
            moved => moved.is_some(),
        };
        let Some(word) = self.find(key) else {
            return Ok(None);
        };
        if has_moved {
            settle(word);
        }
        found(word).map(Some)
    }

    /// What `found` makes of the key's word, which is zero if there was no
    /// such key until now; then `claimed` is set.
    pub(super) fn insert<T, B: AsRef<Self>>(
        &self,
        before: impl Fn() -> Option<B>,
        key: Key,
        found: impl Fn(&A) -> Result<T, Moved>,
        claimed: &mut bool,
    ) -> Result<T, Stop> {
        let before = before();
        if let Some(word) = before.as_ref().and_then(|old| old.as_ref().shut(key))
            && let Ok(made) = found(word)
        {
            return Ok(made);
        }
        self.reserve()?;
        let Some((word, new)) = self.claim(key) else {
            self.release(1);
            return Err(Stop::Replaced);
        };
        if new {
            *claimed = true;
        } else {
            self.release(1);
        }
        settle(word);
        found(word).map_err(|Moved| Stop::Replaced)
    }

    fn find(&self, key: Key) -> Option<&A> {
        for slot in self.probe(key) {
            let first = slot.key.0.get();
            if first == key.0 {
                match slot.key.1.get() {
                    second if second == key.1 => return Some(&slot.word),
                    // Whoever claims the key begins with this slot.
                    0 | SHUT => return None,
                    _ => {}
                }
            } else if first == 0 || first == SHUT {
                return None;
            }
        }
        None
    }

    /// The key's word, and whether the key is new; `None`: the array is shut.
    fn claim(&self, key: Key) -> Option<(&A, bool)> {
        for slot in self.probe(key) {
            match slot.key.0.hold(key.0).0 {
                SHUT => return None,
                first if first == key.0 => match slot.key.1.hold(key.1) {
                    (SHUT, _) => return None,
                    (second, new) if second == key.1 => return Some((&slot.word, new)),
                    _ => {}
                },
                _ => {}
            }
        }
        None
    }

    /// The key's word; if there is none, there never will be.
    fn shut(&self, key: Key) -> Option<&A> {
        for slot in self.probe(key) {
            match slot.key.0.hold(SHUT).0 {
                SHUT => return None,
                first if first == key.0 => match slot.key.1.hold(SHUT).0 {
                    SHUT => return None,
                    second if second == key.1 => return Some(&slot.word),
                    _ => {}
                },
                _ => {}
            }
        }
        None
    }

    fn reserve(&self) -> Result<(), Stop> {
        let mut claims = self.claims.get();
        loop {
            if claims >= CLOSED {
                return Err(Stop::Replaced);
            }
            if claims >= self.len() as u64 {
                return Err(Stop::Full);
            }
            match self.claims.exchange(claims, claims + 1) {
                Ok(()) => return Ok(()),
                Err(changed) => claims = changed,
            }
        }
    }

    fn release(&self, claims: u64) {
        self.claims.add(claims.wrapping_neg());
    }

    /// Lets no more keys be claimed here, and sets room aside for all there
    /// are in `new`: so much, or `None` where `new` is too small.
    pub(super) fn close(&self, new: &Self) -> Option<u64> {
        new.moving.put(1);
        let mut claims = self.claims.get();
        while claims < new.len() as u64 || claims == 0 {
            // Nobody else sees the new one yet.
            new.claims.put(claims);
            match self.claims.exchange(claims, claims | CLOSED) {
                Ok(()) => return Some(claims),
                Err(changed) => claims = changed,
            }
        }
        None
    }

    /// Moves the words that `keep` wants of a rate to `new`, in which room for
    /// `promised` was set aside. For one thread, once.
    pub(super) fn move_to(
        &self,
        new: &Self,
        promised: u64,
        keep: impl Fn(u16, u64) -> bool,
    ) -> Sorted {
        let mut sorted = Sorted::default();
        for slot in 0..self.len() {
            match self.move_one(slot, new, &keep) {
                Some(true) => sorted.kept += 1,
                Some(false) => sorted.removed += 1,
                None => {}
            }
        }
        new.moving.put(0);
        new.release(promised.saturating_sub(sorted.kept));
        sorted
    }

    /// Moves one word; whether it was kept. `None`: there is none.
    pub(super) fn move_one(
        &self,
        slot: usize,
        new: &Self,
        keep: impl Fn(u16, u64) -> bool,
    ) -> Option<bool> {
        let slot = self.slots.get(slot)?;
        let (first, second) = (slot.key.0.hold(SHUT).0, slot.key.1.hold(SHUT).0);
        if first == SHUT || second == SHUT {
            return None;
        }
        let key = Key(first, second);
        let mut place = None;
        loop {
            let value = slot.word.get();
            // One that is claimed and not used yet is about to be.
            if place.is_none() && (value == 0 || keep(key.rate(), value)) {
                // There is room: it was set aside.
                place = new.claim(key).map(|(word, _)| word);
            }
            if let Some(word) = place {
                word.put(TENTATIVE | value);
            }
            if slot.word.exchange(value, MOVED).is_ok() {
                place.inspect(|word| settle(*word));
                return Some(place.is_some());
            }
        }
    }

    /// Rates and values of the words that are in use here.
    pub(super) fn words(&self) -> impl Iterator<Item = (u16, u64)> {
        let words = self.slots.iter().map(|slot| {
            let rate = Key(0, slot.key.1.get()).rate();
            (rate, slot.word.get())
        });
        words.filter(|(_, value)| is_in_use(*value))
    }

    /// Every slot once, beginning with the key's own.
    fn probe(&self, key: Key) -> impl Iterator<Item = &Slot<A>> {
        let slots = self.slots.len();
        // Scales the hash to the number of slots without a division; what
        // tells rates apart is too low to count.
        let first = (u128::from(key.1) * slots as u128) >> 64;
        let first = usize::try_from(first).unwrap_or(0);
        let (before, from) = self.slots.split_at_checked(first).unwrap_or_default();
        from.iter().chain(before)
    }
}

fn is_in_use(value: u64) -> bool {
    value != 0 && value < MOVED
}

/// Takes the mark off a word whose value counts now.
fn settle(word: &impl AtomicWord) {
    let mut value = word.get();
    while value >= TENTATIVE {
        match word.exchange(value, value & !TENTATIVE) {
            Ok(()) => return,
            Err(changed) => value = changed,
        }
    }
}

#[cfg(test)]
mod tests;
