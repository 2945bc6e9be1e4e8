//! Where a look-up ends: a few entries, or an index of many.

/// Most entries that are tried one after the other without looking for an
/// index that tells them apart.
pub(super) const FEW: usize = 8;

const FORK: u32 = u32::MAX;
const TREE: u32 = u32::MAX - 1;

/// Entries at one place, in order of precedence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Leaf {
    /// The rank itself if there is one, else where the others are.
    at: u32,
    /// How many there are, or what `at` is an index of.
    len: u32,
}

/// A leaf, to be matched on.
pub(super) enum Kind<'a> {
    /// These ranks.
    Ranks(&'a [u32]),
    /// The fork at this position.
    Fork(usize),
    /// The tree at this position.
    Tree(usize),
}

impl Leaf {
    /// A leaf of `ranks`, appended to `lists` where there are several.
    pub(super) fn list(ranks: &[u32], lists: &mut Vec<u32>) -> Self {
        let at = match ranks {
            [one] => *one,
            many => {
                let at = super::entry::index(lists.len());
                lists.extend_from_slice(many);
                at
            }
        };
        let len = super::entry::index(ranks.len());
        Self { at, len }
    }

    pub(super) fn fork(position: usize) -> Self {
        let at = super::entry::index(position);
        Self { at, len: FORK }
    }

    pub(super) fn tree(position: usize) -> Self {
        let at = super::entry::index(position);
        Self { at, len: TREE }
    }

    pub(super) fn is_empty(self) -> bool {
        self.len == 0
    }

    pub(super) fn kind<'a>(&'a self, lists: &'a [u32]) -> Kind<'a> {
        match self.len {
            FORK => Kind::Fork(self.at as usize),
            TREE => Kind::Tree(self.at as usize),
            _ => Kind::Ranks(self.ranks(lists)),
        }
    }

    /// The ranks of a leaf that is a list.
    pub(super) fn ranks<'a>(&'a self, lists: &'a [u32]) -> &'a [u32] {
        match self.len {
            0 => &[],
            1 => std::slice::from_ref(&self.at),
            len => {
                let at = self.at as usize;
                &lists[at..at + len as usize]
            }
        }
    }
}
