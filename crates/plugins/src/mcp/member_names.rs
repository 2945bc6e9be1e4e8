//! Names of the members of JSON objects, of which no object may have one twice.

use std::borrow::Cow;
use std::collections::BTreeSet;

/// Most short names of the objects that are open which are compared one by one.
pub(super) const FEW: usize = 32;
/// The same, of the long names of one object.
const FEW_LONG: usize = 2;

/// The name of a member.
#[derive(Debug)]
pub(super) struct MemberName<'n> {
    /// What tells a short name from all others.
    pub(super) key: u64,
    /// Its text, without escapes.
    pub(super) text: Cow<'n, [u8]>,
    is_ascii: bool,
}

impl<'n> MemberName<'n> {
    /// Most bytes of a short name.
    pub(super) const SHORT: usize = 7;
    /// The key of all long names.
    const LONG: u64 = u64::MAX;

    /// The key of a name: of a short one its length, and its bytes.
    pub(super) const fn key(text: &[u8]) -> u64 {
        if text.len() > Self::SHORT {
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
    pub(super) fn of(text: Cow<'n, [u8]>) -> Self {
        Self {
            key: Self::key(&text),
            is_ascii: text.is_ascii(),
            text,
        }
    }

    /// A name with this text of ASCII, with which a word begins.
    #[inline(always)]
    pub(super) fn of_word(word: u64, text: &'n [u8]) -> Self {
        let length = text.len();
        let key = if length > Self::SHORT {
            Self::LONG
        } else {
            word & !(u64::MAX << (8 * length)) | (length as u64) << 56
        };
        Self {
            key,
            text: Cow::Borrowed(text),
            is_ascii: true,
        }
    }

    /// Whether a careless reader takes the name for one of these, which it is not. All
    /// of them are short and in small letters.
    #[inline(always)]
    pub(super) fn resembles_any(&self, deciding: &[u64]) -> bool {
        // The bit that tells small letters from capitals.
        const SMALL: u64 = 0x0020_2020_2020_2020;
        if !self.is_ascii {
            return self.folds_to_any(deciding);
        }
        let mut all = deciding.iter();
        all.any(|known| (self.key ^ known) & !SMALL == 0) && self.is_any_in_capitals(deciding)
    }

    #[cold]
    fn is_any_in_capitals(&self, deciding: &[u64]) -> bool {
        let bytes = self.key.to_le_bytes();
        let mut all = deciding.iter();
        all.any(|known| self.key != *known && bytes.eq_ignore_ascii_case(&known.to_le_bytes()))
    }

    #[cold]
    fn folds_to_any(&self, deciding: &[u64]) -> bool {
        let folded = folded(&String::from_utf8_lossy(&self.text));
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

/// The names of all objects that are open, as far as they are compared with others.
pub(super) struct OpenNames<'t> {
    /// The short ones, the innermost object's last.
    keys: [u64; FEW],
    count: usize,
    more: Option<Box<MoreNames<'t>>>,
}

/// The names there was no place for, each with the place of its object.
#[derive(Default)]
struct MoreNames<'t> {
    short: BTreeSet<(usize, u64)>,
    long: BTreeSet<(usize, Cow<'t, [u8]>)>,
}

impl<'t> OpenNames<'t> {
    #[inline(always)]
    pub(super) const fn new() -> Self {
        Self {
            keys: [0; FEW],
            count: 0,
            more: None,
        }
    }

    #[cold]
    fn more(&mut self) -> &mut MoreNames<'t> {
        self.more.get_or_insert_default()
    }
}

/// The names so far of the innermost object.
pub(super) struct ObjectNames<'t> {
    /// Where the object begins in the text.
    place: usize,
    /// Where its short names begin among those of the open objects.
    first: usize,
    /// A bit for each short name: one whose bit is not there is new.
    bits: u64,
    /// The first long ones.
    texts: [&'t [u8]; FEW_LONG],
    long: usize,
}

impl<'t> ObjectNames<'t> {
    /// Those of an object that begins at a place of the text: none.
    #[inline(always)]
    pub(super) fn begin(place: usize, open: &OpenNames<'t>) -> Self {
        Self {
            place,
            first: open.count,
            bits: 0,
            texts: [&[]; FEW_LONG],
            long: 0,
        }
    }

    /// Gives up the places of the names.
    #[inline(always)]
    pub(super) fn end(self, open: &mut OpenNames<'t>) {
        open.count = self.first;
    }

    /// Adds a name; whether there was none such.
    pub(super) fn add(&mut self, open: &mut OpenNames<'t>, name: &MemberName<'t>) -> bool {
        if name.key == MemberName::LONG {
            self.add_long(open, name)
        } else {
            self.add_short(open, name.key)
        }
    }

    /// Adds a short name by its key; whether there was none such.
    #[inline(always)]
    pub(super) fn add_short(&mut self, open: &mut OpenNames<'t>, key: u64) -> bool {
        let bit = Self::bit(key);
        if self.bits & bit != 0 {
            return self.add_compared(open, key);
        }
        self.bits |= bit;
        self.push(open, key);
        true
    }

    /// The bit of a short name, which others may share.
    #[inline(always)]
    fn bit(key: u64) -> u64 {
        // 2^64 divided by the golden ratio: keys that are alike get bits far apart.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        1 << (key.wrapping_mul(SPREAD) >> 58)
    }

    #[inline(always)]
    fn push(&self, open: &mut OpenNames<'t>, key: u64) {
        match open.keys.get_mut(open.count) {
            Some(free) => {
                *free = key;
                open.count += 1;
            }
            None => drop(open.more().short.insert((self.place, key))),
        }
    }

    #[inline(never)]
    fn add_compared(&self, open: &mut OpenNames<'t>, key: u64) -> bool {
        let own = open.keys.get(self.first..open.count).unwrap_or_default();
        let more = open.more.as_ref();
        let is_in_more = more.is_some_and(|more| more.short.contains(&(self.place, key)));
        let is_new = !own.contains(&key) && !is_in_more;
        if is_new {
            self.push(open, key);
        }
        is_new
    }

    fn add_long(&mut self, open: &mut OpenNames<'t>, name: &MemberName<'t>) -> bool {
        let few = self.texts.get(..self.long).unwrap_or_default();
        if few.contains(&&*name.text) {
            return false;
        }
        match (&name.text, self.texts.get_mut(self.long)) {
            (Cow::Borrowed(text), Some(free)) if open.more.is_none() => {
                *free = text;
                self.long += 1;
                true
            }
            _ => open.more().long.insert((self.place, name.text.clone())),
        }
    }
}
