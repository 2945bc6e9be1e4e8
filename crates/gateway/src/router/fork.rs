//! Many entries of one place, told apart by a header, a method, a server name
//! or a literal inside their expressions.

use std::collections::{HashMap, HashSet};

use ahash::RandomState;
use http::{HeaderMap, HeaderName};
use smallvec::SmallVec;

use super::entry::{Entries, NONE};
use super::hosts::Form;
use super::index::{Hashed, Index, Key, map_heap};
use super::leaf::Leaf;
use super::pattern::Literals;
use super::trie::Trie;

/// Entries by one kind of attribute. A request reaches those that have one of
/// its values, and those without the attribute. What is found is compared
/// whole: here it is enough that nothing is missed.
#[derive(Debug)]
pub(super) struct Fork {
    /// The smallest rank of all.
    pub(super) first: u32,
    pub(super) by: By,
    pub(super) keys: Hashed<Leaf>,
    /// Entries without the attribute.
    pub(super) rest: Leaf,
}

/// What entries are told apart by.
#[derive(Debug)]
pub(super) enum By {
    Method,
    /// One header each, of these.
    Header(Box<[HeaderName]>),
    /// With the leaf of all entries, for requests without TLS.
    Sni(Leaf),
    /// The literals and their entries.
    Literal(Trie),
}

impl Fork {
    /// Bytes on the heap.
    pub(super) fn heap(&self) -> usize {
        let own = match &self.by {
            By::Method | By::Sni(_) => 0,
            By::Header(names) => size_of_val::<[HeaderName]>(names),
            By::Literal(tree) => tree.heap(),
        };
        own + map_heap(&self.keys)
    }
}

/// What the entries of a leaf have in common already.
#[derive(Debug, Clone, Default)]
pub(super) struct Used {
    method: bool,
    sni: bool,
    literal: bool,
    all_headers: bool,
    headers: SmallVec<[HeaderName; 2]>,
}

impl Used {
    /// This, and `by` (with this header) too.
    pub(super) fn and(&self, by: &By, header: Option<&HeaderName>) -> Self {
        let mut used = self.clone();
        match (by, header) {
            (By::Method, _) => used.method = true,
            (By::Sni(_), _) => used.sni = true,
            (By::Literal(_), _) => used.literal = true,
            (By::Header(_), Some(name)) => used.headers.push(name.clone()),
            (By::Header(_), None) => used.all_headers = true,
        }
        used
    }
}

/// Entries, split by one kind of attribute.
pub(super) struct Split {
    pub(super) by: By,
    pub(super) groups: HashMap<u64, Group, RandomState>,
    /// In place of groups, for literals.
    pub(super) literals: Vec<(String, u32)>,
    pub(super) rest: Vec<u32>,
    largest: usize,
    listed: usize,
    values: usize,
}

/// Entries with one value.
#[derive(Default)]
pub(super) struct Group {
    pub(super) ranks: Vec<u32>,
    pub(super) header: Option<HeaderName>,
}

impl Split {
    /// The split that leaves the fewest entries to be tried one after the
    /// other, among those that leave notably fewer.
    pub(super) fn best(
        index: &Index,
        entries: &Entries,
        ranks: &[u32],
        used: &Used,
    ) -> Option<Self> {
        let splits = [
            (!used.all_headers).then(|| Self::by_header(index, entries, ranks, used)),
            (!used.sni).then(|| Self::by_sni(index, entries, ranks)),
            (!used.literal).then(|| Self::by_literal(entries, ranks)),
            (!used.method).then(|| Self::by_method(index, entries, ranks)),
        ];
        splits
            .into_iter()
            .flatten()
            .filter(|split| split.listed <= 8 * ranks.len())
            .filter(|split| split.average() * 4 <= ranks.len() * 3)
            .min_by_key(|split| (split.worst(), split.average()))
    }

    fn new(by: By) -> Self {
        Self {
            by,
            groups: HashMap::default(),
            literals: Vec::new(),
            rest: Vec::new(),
            largest: 0,
            listed: 0,
            values: 0,
        }
    }

    /// The most entries that a request with one value can reach.
    fn worst(&self) -> usize {
        self.rest.len() + self.largest
    }

    /// How many a request reaches, if every value and none is as likely.
    fn average(&self) -> usize {
        self.rest.len() + self.listed / (self.values + 1)
    }

    fn put(&mut self, key: u64, rank: u32) -> &mut Group {
        let group = self.groups.entry(key).or_insert_with(|| {
            self.values += 1;
            Group::default()
        });
        // A value that is named twice is listed once.
        if group.ranks.last() != Some(&rank) {
            group.ranks.push(rank);
            self.listed += 1;
            self.largest = self.largest.max(group.ranks.len());
        }
        group
    }

    fn by_method(index: &Index, entries: &Entries, ranks: &[u32]) -> Self {
        let mut split = Self::new(By::Method);
        for &rank in ranks {
            let entry = &entries.all[rank as usize];
            if entry.methods == 0 {
                split.rest.push(rank);
                continue;
            }
            for name in super::entry::METHODS {
                if entry.methods & super::entry::known_method(name.as_bytes()) != 0 {
                    split.put(index.key(Key::Method(name)), rank);
                }
            }
            for method in entries.methods(entry) {
                split.put(index.key(Key::Method(method.as_str())), rank);
            }
        }
        split
    }

    fn by_sni(index: &Index, entries: &Entries, ranks: &[u32]) -> Self {
        let mut split = Self::new(By::Sni(Leaf::default()));
        for &rank in ranks {
            let snis = entries.snis(&entries.all[rank as usize]);
            if snis.is_empty() {
                split.rest.push(rank);
            }
            for sni in snis {
                let key = match sni.form {
                    Form::Exact => Key::Sni(&sni.text),
                    Form::Suffix => Key::SniSuffix(&sni.text),
                    Form::Prefix => Key::SniPrefix(&sni.text),
                };
                split.put(index.key(key), rank);
            }
        }
        split
    }

    /// Each entry under the header whose values the fewest others ask for.
    fn by_header(index: &Index, entries: &Entries, ranks: &[u32], used: &Used) -> Self {
        let usable = |rank: u32| {
            let entry = &entries.all[rank as usize];
            let rules = entries.headers(entry).iter();
            let rules = rules.filter(|rule| rule.pattern == NONE);
            rules
                .map(|rule| (&entries.names[rule.name as usize], rule))
                .filter(|(name, _)| !used.headers.contains(name))
        };
        let key = |name: &HeaderName, value: &str| {
            index.key(Key::Header(name.as_str(), value.as_bytes()))
        };
        let mut counts: HashMap<u64, usize, RandomState> = HashMap::default();
        for &rank in ranks {
            for (name, rule) in usable(rank) {
                for value in entries.values(rule) {
                    *counts.entry(key(name, value)).or_default() += 1;
                }
            }
        }
        let mut split = Self::new(By::Header(Box::default()));
        for &rank in ranks {
            let rarest = usable(rank).min_by_key(|(name, rule)| {
                let counts = entries.values(rule).map(|value| counts[&key(name, value)]);
                counts.max().unwrap_or(0)
            });
            let Some((name, rule)) = rarest else {
                split.rest.push(rank);
                continue;
            };
            for value in entries.values(rule) {
                split.put(key(name, value), rank).header = Some(name.clone());
            }
        }
        split
    }

    /// Each expression under the literal that the fewest others contain.
    fn by_literal(entries: &Entries, ranks: &[u32]) -> Self {
        let mut split = Self::new(By::Literal(Trie::default()));
        let mut counts: HashMap<String, usize, RandomState> = HashMap::default();
        let inner = |rank: u32| {
            let pattern = entries.pattern(&entries.all[rank as usize]);
            pattern
                .map_or_else(Literals::default, |p| p.literals())
                .inner
        };
        for &rank in ranks {
            for literal in inner(rank) {
                *counts.entry(literal).or_default() += 1;
            }
        }
        for &rank in ranks {
            let inner = inner(rank).into_iter();
            match inner.min_by_key(|literal| (counts[literal], usize::MAX - literal.len())) {
                Some(literal) => split.literals.push((literal, rank)),
                None => split.rest.push(rank),
            }
        }
        split.listed = split.literals.len();
        let mut chosen: HashMap<&str, usize, RandomState> = HashMap::default();
        for (literal, _) in &split.literals {
            *chosen.entry(literal).or_default() += 1;
        }
        split.values = chosen.len();
        split.largest = chosen.into_values().max().unwrap_or(0);
        split
    }

    /// The headers that were chosen.
    pub(super) fn names(&self) -> Vec<HeaderName> {
        let names = self.groups.values().filter_map(|g| g.header.as_ref());
        let names: HashSet<&HeaderName, RandomState> = names.collect();
        names.into_iter().cloned().collect()
    }
}

/// Calls `at` with the keys of those of a request's headers that are among
/// `names`.
pub(super) fn header_keys(headers: &HeaderMap, names: &[HeaderName], at: &mut dyn FnMut(Key<'_>)) {
    let mut lower: SmallVec<[u8; 128]> = SmallVec::new();
    let mut ask = |name: &HeaderName, value: &[u8]| {
        lower.clear();
        lower.extend(value.iter().map(u8::to_ascii_lowercase));
        at(Key::Header(name.as_str(), &lower));
    };
    if names.len() <= headers.keys_len() {
        for name in names {
            for value in headers.get_all(name) {
                ask(name, value.as_bytes());
            }
        }
        return;
    }
    for (name, value) in headers {
        ask(name, value.as_bytes());
    }
}
