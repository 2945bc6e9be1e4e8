//! From a place in the table to the entries there, whatever their number.
//!
//! Many entries of one host lie in a tree of path prefixes. Many entries of
//! one prefix are told apart by what else they ask for: see [`Fork`].

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use ahash::RandomState;
use http::HeaderName;

use super::entry::Entries;
use super::fork::{By, Fork, Split, Used};
use super::hosts::Name;
use super::leaf::{FEW, Kind, Leaf};
use super::trie::{Leaves, Trie};
use super::{Ask, Best};

/// All lists, trees and forks of a router.
#[derive(Debug, Default)]
pub(super) struct Index {
    lists: Vec<u32>,
    trees: Vec<Trie>,
    forks: Vec<Fork>,
    pub(super) state: RandomState,
}

/// A map whose keys are hashes already.
pub(super) type Hashed<V> = HashMap<u64, V, BuildHasherDefault<IdentityHasher>>;

/// Hashes a hash to itself.
#[derive(Debug, Default)]
pub(super) struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// What a key is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Key<'a> {
    Method(&'a str),
    /// A header's name and one of its values, in lower case.
    Header(&'a str, &'a [u8]),
    Sni(&'a str),
    SniSuffix(&'a str),
    SniPrefix(&'a str),
}

impl Index {
    pub(super) fn key(&self, key: Key<'_>) -> u64 {
        self.state.hash_one(key)
    }

    /// The leaf of one host's entries; `ranks` ascend.
    pub(super) fn by_path(&mut self, entries: &Entries, ranks: &[u32]) -> Leaf {
        if ranks.len() <= FEW {
            return Leaf::list(ranks, &mut self.lists);
        }
        let pairs = ranks
            .iter()
            .map(|rank| (entries.literal(*rank).as_bytes(), *rank))
            .collect();
        let used = Used::default();
        let tree = Trie::build(pairs, &mut |ranks| self.leaf(entries, ranks, &used));
        self.trees.push(tree);
        Leaf::tree(self.trees.len() - 1)
    }

    /// The leaf of entries that nothing tells apart but what is not `used` yet.
    fn leaf(&mut self, entries: &Entries, ranks: &[u32], used: &Used) -> Leaf {
        if ranks.len() > FEW && !self.is_too_large(entries) {
            let split = Split::best(self, entries, ranks, used);
            if let Some(split) = split {
                let fork = self.fork(entries, ranks, split, used);
                self.forks.push(fork);
                return Leaf::fork(self.forks.len() - 1);
            }
        }
        Leaf::list(ranks, &mut self.lists)
    }

    /// Entries with many values are listed under each: a bound on the product
    /// of such lists.
    fn is_too_large(&self, entries: &Entries) -> bool {
        self.lists.len() > entries.all.len().saturating_mul(64).max(1 << 16)
    }

    fn fork(&mut self, entries: &Entries, ranks: &[u32], split: Split, used: &Used) -> Fork {
        let without = |name: Option<&HeaderName>| used.and(&split.by, name);
        let mut keys = Hashed::default();
        keys.reserve(split.groups.len());
        for (key, group) in &split.groups {
            let leaf = self.leaf(entries, &group.ranks, &without(group.header.as_ref()));
            keys.insert(*key, leaf);
        }
        let by = match &split.by {
            By::Literal(_) => {
                let pairs = split.literals.iter();
                let pairs = pairs.map(|(text, rank)| (text.as_bytes(), *rank)).collect();
                let used = without(None);
                By::Literal(Trie::build(pairs, &mut |ranks| {
                    self.leaf(entries, ranks, &used)
                }))
            }
            By::Sni(_) => By::Sni(self.leaf(entries, ranks, &without(None))),
            By::Method => By::Method,
            By::Header(_) => By::Header(split.names().into()),
        };
        let rest = self.leaf(entries, &split.rest, &without(None));
        Fork {
            first: ranks.first().copied().unwrap_or(u32::MAX),
            by,
            keys,
            rest,
        }
    }

    /// Tries the entries of `leaf` that can match, and keeps the best one.
    pub(super) fn search(
        &self,
        entries: &Entries,
        leaf: Leaf,
        walked: bool,
        ask: &Ask<'_>,
        best: &mut Best,
    ) {
        match leaf.kind(&self.lists) {
            Kind::Ranks(ranks) => try_ranks(entries, ranks, walked, ask, best),
            Kind::Tree(tree) => {
                let mut leaves = Leaves::new();
                self.trees[tree].walk(ask.query.path.as_bytes(), &mut leaves);
                // The longest first: most often it wins.
                for leaf in leaves.into_iter().rev() {
                    self.search(entries, leaf, true, ask, best);
                }
            }
            Kind::Fork(fork) => {
                let fork = &self.forks[fork];
                if fork.first < best.rank {
                    self.search_fork(entries, fork, walked, ask, best);
                }
            }
        }
    }

    fn search_fork(
        &self,
        entries: &Entries,
        fork: &Fork,
        walked: bool,
        ask: &Ask<'_>,
        best: &mut Best,
    ) {
        let mut at = |key: Key<'_>| {
            if let Some(leaf) = fork.keys.get(&self.key(key)) {
                self.search(entries, *leaf, walked, ask, best);
            }
        };
        match &fork.by {
            By::Method => at(Key::Method(ask.query.method.as_str())),
            By::Header(names) => super::fork::header_keys(ask.query.headers, names, &mut at),
            By::Sni(plain) => match (ask.query.tls, ask.query.sni) {
                (false, _) => self.search(entries, *plain, walked, ask, best),
                (true, None) => {}
                (true, Some(sni)) => {
                    let mut space = None;
                    let name = Name::new(sni, &mut space);
                    at(Key::Sni(name.text()));
                    for cut in name.cuts() {
                        at(Key::SniSuffix(cut.suffix));
                        at(Key::SniPrefix(cut.prefix));
                    }
                }
            },
            By::Literal(tree) => {
                let path = ask.query.path.as_bytes();
                let mut leaves = Leaves::new();
                for start in 0..path.len() {
                    tree.walk(&path[start..], &mut leaves);
                }
                leaves.sort_unstable();
                leaves.dedup();
                for leaf in leaves {
                    self.search(entries, leaf, walked, ask, best);
                }
            }
        }
        if !matches!(fork.by, By::Sni(_)) || ask.query.tls {
            self.search(entries, fork.rest, walked, ask, best);
        }
    }

    /// Bytes on the heap.
    pub(super) fn heap(&self) -> usize {
        let forks: usize = self.forks.iter().map(Fork::heap).sum();
        let trees: usize = self.trees.iter().map(Trie::heap).sum();
        self.lists.capacity() * size_of::<u32>()
            + self.trees.capacity() * size_of::<Trie>()
            + self.forks.capacity() * size_of::<Fork>()
            + forks
            + trees
    }

    /// Gives back what growing left over.
    pub(super) fn shrink(&mut self) {
        self.lists.shrink_to_fit();
        self.trees.shrink_to_fit();
        self.forks.shrink_to_fit();
    }
}

/// Tries entries in order of precedence until one matches; `walked` says that
/// their literal prefixes have been compared on the leaves to them.
fn try_ranks(entries: &Entries, ranks: &[u32], walked: bool, ask: &Ask<'_>, best: &mut Best) {
    for &rank in ranks {
        if rank >= best.rank {
            return;
        }
        if let Some(matched) = entries.matches(rank, ask, walked) {
            *best = Best { rank, matched };
            return;
        }
    }
}

/// Bytes that a hash map has allocated.
pub(super) fn map_heap<V>(map: &Hashed<V>) -> usize {
    let buckets = (map.capacity() * 8 / 7).next_power_of_two();
    match map.capacity() {
        0 => 0,
        _ => buckets * (size_of::<(u64, V)>() + 1),
    }
}
