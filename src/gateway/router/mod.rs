//! Which route a request belongs to.
//!
//! Built once per snapshot. Hosts are found by hash, path prefixes by a radix
//! tree, so a match costs the same among ten routes and a hundred thousand.
//! Entries are sorted by the imitated gateway's precedence before they are
//! indexed: a smaller index always wins.

mod entry;
pub mod path;
mod trie;

use std::borrow::Cow;
use std::collections::HashMap;

use ahash::RandomState;
use compact_str::CompactString;
use http::{HeaderMap, Method};
use regex::Regex;

use crate::model::route::Route;
use entry::Entry;
use trie::Trie;

/// What of a request decides its route.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// Host without port, in any case.
    pub host: &'a str,
    /// Port of the Host header, or the listener's.
    pub port: u16,
    /// The normalised path, without query.
    pub path: &'a str,
    /// The method.
    pub method: &'a Method,
    /// The request's headers.
    pub headers: &'a HeaderMap,
}

/// The route that a request belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match {
    /// Position of the route among those the router was built from.
    pub route: usize,
    /// Length of the path prefix that matched; 0 if the route has no paths.
    pub matched: usize,
}

/// Why a route can't be part of a router.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct RouteError {
    /// The route's position among those given.
    pub route: usize,
    /// The field at fault, for instance `paths.1`.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
}

/// A compiled routing table.
#[derive(Debug, Default)]
pub struct Router {
    entries: Vec<Entry>,
    /// Hosts without wildcard.
    exact: HashMap<CompactString, Bucket, RandomState>,
    /// `*.example.com`, under `.example.com`.
    suffixes: HashMap<CompactString, Bucket, RandomState>,
    /// `example.*`, under `example.`.
    prefixes: HashMap<CompactString, Bucket, RandomState>,
    /// Routes for any host.
    any: Bucket,
    /// Whether some route's host names a port.
    ported: bool,
    /// Compiled expressions by pattern, for the next build.
    regexes: HashMap<Box<str>, Regex>,
}

/// The entries of one host: few are tried in order, many through a tree.
#[derive(Debug)]
enum Bucket {
    One(u32),
    Few(Box<[u32]>),
    Many(Box<Trie>),
}

impl Default for Bucket {
    fn default() -> Self {
        Bucket::Few(Box::default())
    }
}

const FEW: usize = 8;

impl Router {
    /// Compiles `routes`. Expressions that `previous` holds are reused.
    ///
    /// # Errors
    /// The first route whose paths or headers can't be compiled.
    pub fn build<'a>(
        routes: impl IntoIterator<Item = &'a Route>,
        previous: Option<&Router>,
    ) -> Result<Self, RouteError> {
        let mut router = Router::default();
        let mut drafts = Vec::new();
        for (position, route) in routes.into_iter().enumerate() {
            let mut compile = |pattern: &str| {
                if let Some(regex) = router.regexes.get(pattern) {
                    return Ok(regex.clone());
                }
                let regex = match previous.and_then(|p| p.regexes.get(pattern)) {
                    Some(regex) => regex.clone(),
                    None => entry::compile_regex(pattern)?,
                };
                router.regexes.insert(pattern.into(), regex.clone());
                Ok(regex)
            };
            entry::drafts(position, route, &mut compile, &mut drafts)?;
        }
        drafts.sort_by_key(|draft| std::cmp::Reverse(draft.precedence));
        router.index(drafts);
        Ok(router)
    }

    fn index(&mut self, drafts: Vec<entry::Draft<'_>>) {
        type Groups<'a> = HashMap<Cow<'a, str>, Vec<u32>, RandomState>;
        let (mut exact, mut suffixes, mut prefixes) =
            (Groups::default(), Groups::default(), Groups::default());
        let mut any = Vec::new();
        for (rank, draft) in drafts.into_iter().enumerate() {
            let rank = u32::try_from(rank).expect("fewer than 2^32 routes");
            if draft.hosts.is_empty() {
                any.push(rank);
            }
            for host in draft.hosts {
                self.ported |= host.contains(':');
                let host = lower(host);
                if host.starts_with('*') {
                    suffixes.entry(cut(host, 1, 0)).or_default().push(rank);
                } else if host.ends_with('*') {
                    prefixes.entry(cut(host, 0, 1)).or_default().push(rank);
                } else {
                    exact.entry(host).or_default().push(rank);
                }
            }
            self.entries.push(draft.entry);
        }
        self.any = self.bucket(any);
        let buckets = |groups: Groups<'_>| {
            groups
                .into_iter()
                .map(|(host, ranks)| (CompactString::from(host), self.bucket(ranks)))
                .collect()
        };
        let maps = (buckets(exact), buckets(suffixes), buckets(prefixes));
        (self.exact, self.suffixes, self.prefixes) = maps;
    }

    fn bucket(&self, mut ranks: Vec<u32>) -> Bucket {
        ranks.dedup();
        if let [rank] = *ranks {
            return Bucket::One(rank);
        }
        if ranks.len() <= FEW {
            return Bucket::Few(ranks.into());
        }
        let pairs = ranks
            .into_iter()
            .map(|rank| (self.entries[rank as usize].literal().as_bytes(), rank))
            .collect();
        Bucket::Many(Box::new(Trie::build(pairs)))
    }

    /// The route of a request, or `None`.
    pub fn find(&self, query: &Query<'_>) -> Option<Match> {
        let mut best = Best {
            rank: u32::MAX,
            matched: 0,
        };
        self.find_by_host(query, &mut best);
        self.try_bucket(&self.any, query, &mut best);
        let entry = self.entries.get(best.rank as usize)?;
        Some(Match {
            route: entry.route as usize,
            matched: best.matched,
        })
    }

    fn find_by_host(&self, query: &Query<'_>, best: &mut Best) {
        if self.exact.is_empty() && self.suffixes.is_empty() && self.prefixes.is_empty() {
            return;
        }
        let host = lower(query.host);
        self.try_host(&host, query, best);
        if self.ported {
            self.try_host(&format!("{host}:{}", query.port), query, best);
        }
    }

    fn try_host(&self, host: &str, query: &Query<'_>, best: &mut Best) {
        if let Some(bucket) = self.exact.get(host) {
            self.try_bucket(bucket, query, best);
        }
        if self.suffixes.is_empty() && self.prefixes.is_empty() {
            return;
        }
        // A host has at most 127 labels (RFC 1035 §2.3.4).
        for (at, _) in host.match_indices('.').take(127) {
            if let Some(bucket) = self.suffixes.get(&host[at..]) {
                self.try_bucket(bucket, query, best);
            }
            if let Some(bucket) = self.prefixes.get(&host[..=at]) {
                self.try_bucket(bucket, query, best);
            }
        }
    }

    fn try_bucket(&self, bucket: &Bucket, query: &Query<'_>, best: &mut Best) {
        match bucket {
            Bucket::One(rank) => self.try_ranks(&[*rank], false, query, best),
            Bucket::Few(ranks) => self.try_ranks(ranks, false, query, best),
            Bucket::Many(trie) => {
                trie.walk(query.path.as_bytes(), |ranks| {
                    self.try_ranks(ranks, true, query, best);
                });
            }
        }
    }

    /// Tries entries in order of precedence until one matches; `walked` says
    /// that their literal prefixes have been compared on the way to them.
    fn try_ranks(&self, ranks: &[u32], walked: bool, query: &Query<'_>, best: &mut Best) {
        for &rank in ranks {
            if rank >= best.rank {
                return;
            }
            if let Some(matched) = self.entries[rank as usize].matches(query, walked) {
                *best = Best { rank, matched };
                return;
            }
        }
    }
}

struct Best {
    rank: u32,
    matched: usize,
}

fn lower(host: &str) -> Cow<'_, str> {
    if host.bytes().any(|b| b.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

/// `text` without its first and last bytes (which are ASCII).
fn cut(text: Cow<'_, str>, first: usize, last: usize) -> Cow<'_, str> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(&text[first..text.len() - last]),
        Cow::Owned(text) => Cow::Owned(text[first..text.len() - last].to_owned()),
    }
}

#[cfg(test)]
mod tests;
