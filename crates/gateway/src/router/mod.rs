//! Which route a request belongs to.
//!
//! Built once per snapshot. A route becomes an entry for each of its paths;
//! entries are sorted by the imitated gateway's precedence before they are
//! indexed, so the smallest rank that matches wins. Hosts are found by hash,
//! path prefixes by a radix tree, and where many routes share both, headers,
//! server names, methods and literals inside expressions lead further: a match
//! costs about the same among ten routes and a hundred thousand. What no index
//! can tell apart is tried one after the other: expressions without a literal
//! of their own, and headers compared with an expression.

mod build;
mod comparison;
mod entry;
mod fork;
pub mod groups;
mod hosts;
mod index;
mod layers;
mod leaf;
pub mod path;
pub mod pattern;
mod plain;
mod precedence;
mod table;
mod trie;

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashSet;

use ahash::RandomState;
use http::{HeaderMap, Method};

use doorward_core::model::route::Route;
use entry::Entries;
use hosts::Name;
use index::Index;
use layers::PositionSet;
use leaf::Leaf;
use pattern::Pattern;
use table::Hosts;

pub use comparison::{Attribute, RouteVerdict};
pub(super) use entry::index;
pub use layers::Layers;

/// What of a request decides its route.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// Host without port, in any case, with or without a final dot.
    pub host: &'a str,
    /// Port of the Host header, or the listener's.
    pub port: u16,
    /// The normalised path, without query.
    pub path: &'a str,
    /// The method.
    pub method: &'a Method,
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// Whether the connection uses TLS.
    pub tls: bool,
    /// The server name of its handshake, if the client sent one.
    pub sni: Option<&'a str>,
}

/// A query, and what of it is looked up once.
struct Ask<'a> {
    query: &'a Query<'a>,
    /// The path as expressions see it, once one has asked.
    readable: OnceCell<Cow<'a, [u8]>>,
    method_bit: u16,
    /// Positions of routes that are no longer there.
    gone: Option<&'a PositionSet>,
}

impl<'a> Ask<'a> {
    fn new(query: &'a Query<'a>) -> Self {
        Self {
            query,
            readable: OnceCell::new(),
            method_bit: entry::known_method(query.method.as_str().as_bytes()),
            gone: None,
        }
    }

    fn readable(&self) -> &Cow<'a, [u8]> {
        self.readable
            .get_or_init(|| path::readable(self.query.path))
    }
}

/// The route that a request belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Match {
    /// Position of the route among those the router was built from.
    pub route: usize,
    /// Place in the order of precedence of the path that matched.
    pub rank: usize,
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
    entries: Entries,
    index: Index,
    hosts: Hosts,
    /// Routes for any host.
    any: Leaf,
    /// Expressions by their text, for the next build.
    patterns: HashSet<Pattern, RandomState>,
}

/// The best entry so far.
struct Best {
    rank: u32,
    matched: usize,
}

impl Router {
    /// Compiles `routes`. Expressions that `previous` holds are reused.
    ///
    /// # Errors
    /// The first route whose paths or headers can't be compiled.
    pub fn build<'a>(
        routes: impl IntoIterator<Item = &'a Route>,
        previous: Option<&'a Router>,
    ) -> Result<Self, RouteError> {
        Self::build_at(routes.into_iter().enumerate(), previous.as_slice())
    }

    /// Compiles routes that are to be answered by these positions. Expressions
    /// that one of `previous` holds are reused.
    ///
    /// # Errors
    /// As [`Router::build`].
    fn build_at<'a>(
        routes: impl Iterator<Item = (usize, &'a Route)>,
        previous: &[&Router],
    ) -> Result<Self, RouteError> {
        build::build(routes, previous)
    }

    /// The route of a request, or `None`.
    pub fn find(&self, query: &Query<'_>) -> Option<Match> {
        self.look(&Ask::new(query))
    }

    fn look(&self, ask: &Ask<'_>) -> Option<Match> {
        let query = ask.query;
        let mut best = Best {
            rank: u32::MAX,
            matched: 0,
        };
        let mut space = None;
        let name = Name::new(query.host, &mut space);
        let (index, entries) = (&self.index, &self.entries);
        self.hosts.search(index, name, query.port, &mut |leaf| {
            index.search(entries, leaf, false, ask, &mut best);
        });
        index.search(entries, self.any, false, ask, &mut best);
        let entry = entries.all.get(best.rank as usize)?;
        Some(Match {
            route: entry.route as usize,
            rank: best.rank as usize,
            matched: best.matched,
        })
    }

    /// Bytes on the heap, without compiled expressions.
    pub fn heap(&self) -> usize {
        self.entries.heap() + self.index.heap() + self.hosts.heap()
    }
}

#[cfg(test)]
mod tests;
