//! Names of the members of JSON objects, of which no object may have one twice.

use std::borrow::Cow;
use std::collections::HashSet;

/// Most short names of the objects that are open which are compared one by one.
pub(super) const FEW: usize = 32;
/// The same, of the long names of one object.
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
    is_ascii: bool,
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
            is_ascii: text.is_ascii(),
        }
    }

    /// A name with this text of ASCII, with which a word begins.
    #[inline(always)]
    pub(super) fn of_word(word: u64, text: &'n [u8]) -> Self {
        let length = text.len();
        let key = if length > SHORT {
            Self::LONG
        } else {
            word & !(u64::MAX << (8 * length)) | (length as u64) << 56
        };
        Self {
            key,
            text,
            is_ascii: true,
        }
    }

    /// Whether a careless reader takes the name for one of these, which it is not. All
    /// of them are short and in small letters.
    #[inline(always)]
    pub(super) fn resembles_any(self, deciding: &[u64]) -> bool {
        // The bit that tells small letters from capitals.
        const SMALL: u64 = 0x0020_2020_2020_2020;
        if !self.is_ascii {
            return self.folds_to_any(deciding);
        }
        let mut all = deciding.iter();
        all.any(|known| (self.key ^ known) & !SMALL == 0) && self.is_any_in_capitals(deciding)
    }

    #[cold]
    fn is_any_in_capitals(self, deciding: &[u64]) -> bool {
        let bytes = self.key.to_le_bytes();
        let mut all = deciding.iter();
        all.any(|known| self.key != *known && bytes.eq_ignore_ascii_case(&known.to_le_bytes()))
    }

    #[cold]
    fn folds_to_any(self, deciding: &[u64]) -> bool {
        let folded = folded(&String::from_utf8_lossy(self.text));
        deciding.contains(&Self::key(folded.as_bytes()))
    }
}

/// A name as readers compare it that ignore case: two letters beyond ASCII fold to
/// letters of ASCII.
fn folded(name: &str) -> String {
    let fold = |letter| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    name.chars().map(fold).collect()
}

/// The short names of all objects that are open, the innermost last.
pub(super) struct OpenNames {
    keys: [u64; FEW],
    count: usize,
}

impl OpenNames {
    pub(super) const fn new() -> Self {
        Self {
            keys: [0; FEW],
            count: 0,
        }
    }
}

/// The names so far of the innermost object.
pub(super) struct ObjectNames<'t> {
    /// Where its short ones begin.
    first: usize,
    /// The first long ones.
    texts: [&'t [u8]; FEW_LONG],
    long: usize,
    /// What there was no place for, and all that came later.
    more: Option<HashSet<Cow<'t, [u8]>>>,
}

impl<'t> ObjectNames<'t> {
    /// None.
    #[inline(always)]
    pub(super) fn begin(open: &OpenNames) -> Self {
        Self {
            first: open.count,
            texts: [&[]; FEW_LONG],
            long: 0,
            more: None,
        }
    }

    /// Gives up the places of the names.
    #[inline(always)]
    pub(super) fn end(self, open: &mut OpenNames) {
        open.count = self.first;
    }

    /// Adds a name as it is written in the text; whether there was none such.
    #[inline(always)]
    pub(super) fn add(&mut self, open: &mut OpenNames, name: MemberName<'t>) -> bool {
        if name.key == MemberName::LONG {
            return self.add_long(name.text);
        }
        let own = open.keys.get(self.first..open.count).unwrap_or_default();
        if own.contains(&name.key) {
            return false;
        }
        match open.keys.get_mut(open.count) {
            Some(free) if self.more.is_none() => {
                *free = name.key;
                open.count += 1;
                true
            }
            _ => self.add_more(Cow::Borrowed(name.text)),
        }
    }

    fn add_long(&mut self, text: &'t [u8]) -> bool {
        let few = self.texts.get(..self.long).unwrap_or_default();
        if few.contains(&text) {
            return false;
        }
        match self.texts.get_mut(self.long) {
            Some(free) if self.more.is_none() => {
                *free = text;
                self.long += 1;
                true
            }
            _ => self.add_more(Cow::Borrowed(text)),
        }
    }

    /// Adds a name that was written with escapes; whether there was none such.
    #[cold]
    pub(super) fn add_decoded(&mut self, open: &OpenNames, text: Cow<'t, [u8]>) -> bool {
        let key = MemberName::key(&text);
        let own = open.keys.get(self.first..open.count).unwrap_or_default();
        let few = self.texts.get(..self.long).unwrap_or_default();
        let is_there = if key == MemberName::LONG {
            few.contains(&&*text)
        } else {
            own.contains(&key)
        };
        !is_there && self.add_more(text)
    }

    #[cold]
    fn add_more(&mut self, text: Cow<'t, [u8]>) -> bool {
        self.more.get_or_insert_default().insert(text)
    }
}
