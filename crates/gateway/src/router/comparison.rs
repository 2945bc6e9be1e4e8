//! What every route of a router says to one request: for operators, who want
//! to know why. Costs as much as there are routes; nothing here is on a
//! request's way.

use super::entry::{Entry, Mismatch};
use super::hosts::{HostPattern, Name};
use super::precedence::Precedence;
use super::{Ask, Query, Router};
use doorward_core::model::route::Route;

/// An attribute of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attribute<'r> {
    /// `hosts`.
    Host,
    /// `methods`.
    Method,
    /// `paths`.
    Path,
    /// `headers`: this one.
    Header(&'r str),
    /// `snis`.
    Sni,
}

/// How a route with one of its paths stands to a request.
#[derive(Debug, Clone)]
pub struct RouteVerdict<'r> {
    /// Position of the route among those the router was built from.
    pub route: usize,
    /// Place in the order of precedence; the smallest that matches wins.
    pub rank: usize,
    /// What the request does not match; nothing: the route could have it.
    pub fails: Vec<Attribute<'r>>,
    /// How many attributes of the route the request matches.
    pub matches: usize,
    /// Length of the matched path prefix.
    pub matched: usize,
}

impl Router {
    /// How each entry stands to the request, in order of precedence. `routes`
    /// are those that the router was built from.
    pub fn compare<'r>(
        &'r self,
        query: &'r Query<'r>,
        routes: &'r [&'r Route],
    ) -> impl Iterator<Item = RouteVerdict<'r>> {
        let ask = Ask::new(query);
        let entries = self.entries.all.iter().enumerate();
        entries.map(move |(rank, entry)| {
            let route = routes[entry.route as usize];
            let mut space = None;
            let name = Name::new(query.host, &mut space);
            let mut fails = Vec::new();
            let mut kinds = 0;
            let hosts = route.hosts.as_deref().unwrap_or_default();
            if !hosts.is_empty() {
                kinds += 1;
                let mut patterns = hosts.iter().map(|host| HostPattern::parse(host));
                if !patterns.any(|pattern| pattern.matches(name, query.port)) {
                    fails.push(Attribute::Host);
                }
            }
            kinds += self.attributes(entry, route);
            let (mismatches, matched) = self.entries.mismatches(rank_of(rank), &ask);
            fails.extend(mismatches.into_iter().map(|mismatch| match mismatch {
                Mismatch::Method => Attribute::Method,
                Mismatch::Path => Attribute::Path,
                Mismatch::Sni => Attribute::Sni,
                Mismatch::Header(name) => {
                    Attribute::Header(self.entries.names[name as usize].as_str())
                }
            }));
            RouteVerdict {
                route: entry.route as usize,
                rank,
                matches: kinds - fails.len(),
                fails,
                matched,
            }
        })
    }

    /// How many attributes besides hosts `entry` has.
    fn attributes(&self, entry: &Entry, route: &Route) -> usize {
        let some = |list: &Option<Vec<String>>| usize::from(list.iter().any(|l| !l.is_empty()));
        some(&route.methods)
            + some(&route.paths)
            + some(&route.snis)
            + self.entries.headers(entry).len()
    }

    /// The path of `route` that the entry at `rank` stands for.
    pub fn path_of<'r>(&self, rank: usize, route: &'r Route) -> Option<&'r str> {
        let position = self.entries.all[rank].path;
        let paths = route.paths.as_deref().unwrap_or_default();
        paths.get(usize::from(position)).map(String::as_str)
    }

    /// Why the entry at `winner` goes before the one at `loser`, in words.
    pub fn advantage(&self, winner: (usize, &Route), loser: (usize, &Route)) -> String {
        let of = |(rank, route): (usize, &Route)| {
            Precedence::of(route, self.entries.all[rank].path.into())
        };
        of(winner).advantage(&of(loser))
    }
}

fn rank_of(position: usize) -> u32 {
    super::entry::index(position)
}
