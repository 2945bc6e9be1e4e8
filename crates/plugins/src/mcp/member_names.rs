//! Names of the members of JSON objects, of which no object may have one twice.

use std::borrow::Cow;
use std::collections::HashSet;

/// Most short names of an object that are compared one by one.
pub(super) const FEW: usize = 16;
/// The same, of long ones.
const FEW_LONG: usize = 2;

/// Most bytes of a short name.
const SHORT: usize = 7;

/// The name of a member.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemberName<'n> {
    /// What tells a short name from all others.
    pub(super) key: u64,
    /// Its text, without escapes.
    pub(super) text: &'n [u8],
}

impl<'n> MemberName<'n> {
    /// The key of all long names.
    const LONG: u64 = u64::MAX;

    /// The key of a name: of a short one its length, and its bytes.
    pub(super) const fn key(text: &[u8]) -> u64 {
        if text.len() > SHORT {
            return Self::LONG;
        }
        let mut key = 0;
        let mut rest = text;
        while let [before @ .., last] = rest {
            key = key << 8 | *last as u64;
            rest = before;
        }
        key | (text.len() as u64) << 56
    }

    /// A name with this text.
    pub(super) fn of(text: &'n [u8]) -> Self {
        Self {
            key: Self::key(text),
            text,
        }
    }

    /// A name with this text, with which a word begins.
    #[inline(always)]
    pub(super) fn of_word(word: u64, text: &'n [u8]) -> Self {
        let length = text.len();
        let key = if length > SHORT {
            Self::LONG
        } else {
            word & !(u64::MAX << (8 * length)) | (length as u64) << 56
        };
        Self { key, text }
    }
}

/// The names so far of an object that is open.
pub(super) struct ObjectNames<'t> {
    /// The keys of the first short ones.
    keys: [u64; FEW],
    short: usize,
    /// The first long ones.
    texts: [&'t [u8]; FEW_LONG],
    long: usize,
    /// What there was no place for.
    more: Option<HashSet<Cow<'t, [u8]>>>,
}

impl<'t> ObjectNames<'t> {
    /// None.
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self {
            keys: [0; FEW],
            short: 0,
            texts: [&[]; FEW_LONG],
            long: 0,
            more: None,
        }
    }

    /// Adds a name as it is written in the text; whether there was none such.
    #[inline(always)]
    pub(super) fn add(&mut self, name: MemberName<'t>) -> bool {
        if name.key == MemberName::LONG {
            return self.add_long(name.text);
        }
        let few = self.keys.get(..self.short).unwrap_or_default();
        if few.contains(&name.key) {
            return false;
        }
        let Some(free) = self.keys.get_mut(self.short) else {
            return self.add_more(Cow::Borrowed(name.text));
        };
        *free = name.key;
        self.short += 1;
        true
    }

    fn add_long(&mut self, text: &'t [u8]) -> bool {
        let few = self.texts.get(..self.long).unwrap_or_default();
        if few.contains(&text) || self.more.as_ref().is_some_and(|more| more.contains(text)) {
            return false;
        }
        let Some(free) = self.texts.get_mut(self.long) else {
            return self.add_more(Cow::Borrowed(text));
        };
        *free = text;
        self.long += 1;
        true
    }

    /// Adds a name that was written with escapes; whether there was none such.
    #[cold]
    pub(super) fn add_decoded(&mut self, text: Cow<'t, [u8]>) -> bool {
        let key = MemberName::key(&text);
        let keys = self.keys.get(..self.short).unwrap_or_default();
        if key != MemberName::LONG {
            if keys.contains(&key) {
                return false;
            }
            if let Some(free) = self.keys.get_mut(self.short) {
                *free = key;
                self.short += 1;
                return true;
            }
            return self.add_more(text);
        }
        let texts = self.texts.get(..self.long).unwrap_or_default();
        !texts.contains(&&*text) && self.add_more(text)
    }

    #[cold]
    fn add_more(&mut self, text: Cow<'t, [u8]>) -> bool {
        self.more.get_or_insert_default().insert(text)
    }
}
