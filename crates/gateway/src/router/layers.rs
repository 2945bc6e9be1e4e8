//! A router that changes cheaply: a large one that stays, and a small one of the
//! routes that have come or changed since it was built.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::precedence::Precedence;
use super::{Ask, Match, Query, RouteError, Router};
use doorward_core::model::route::Route;

/// Most routes beside a base of few.
const RECENT_MIN: usize = 64;

/// The routers of one snapshot. Routes are known by their positions.
#[derive(Debug, Clone, Default)]
pub struct Layers {
    base: Arc<Router>,
    /// How many routes the base was built from.
    based: usize,
    /// Positions of the base's routes that have gone or changed since.
    gone: PositionSet,
    /// The routes that have come or changed since, if there are any.
    recent: Option<Arc<Router>>,
    /// Their positions.
    positions: BTreeSet<usize>,
}

/// A set of positions, one bit each.
#[derive(Debug, Clone, Default)]
pub(super) struct PositionSet {
    bits: Vec<u64>,
    len: usize,
}

impl PositionSet {
    #[inline]
    pub(super) fn has(&self, position: u32) -> bool {
        let word = self.bits.get(position as usize / 64);
        word.is_some_and(|word| word >> (position % 64) & 1 == 1)
    }

    fn add(&mut self, position: usize) {
        if self.bits.len() <= position / 64 {
            self.bits.resize(position / 64 + 1, 0);
        }
        let word = &mut self.bits[position / 64];
        self.len += usize::from(*word >> (position % 64) & 1 == 0);
        *word |= 1 << (position % 64);
    }
}

impl Layers {
    /// One router of these routes at their positions. Expressions that `previous`
    /// holds are reused.
    ///
    /// # Errors
    /// The first route whose paths or headers can't be compiled.
    pub fn build<'a>(
        routes: impl Iterator<Item = (usize, &'a Route)>,
        previous: &Self,
    ) -> Result<Self, RouteError> {
        let mut based = 0;
        let routes = routes.inspect(|_| based += 1);
        let base = Router::build_at(routes, &previous.routers())?;
        Ok(Self {
            base: Arc::new(base),
            based,
            ..Self::default()
        })
    }

    /// The same where the routes at these positions have come, gone or changed.
    /// `at` says which route a position has now. `None`: so much has changed that
    /// one router of all is cheaper.
    ///
    /// # Errors
    /// As [`Layers::build`].
    pub fn change<'a>(
        &self,
        touched: &[usize],
        at: impl Fn(usize) -> Option<&'a Route>,
    ) -> Result<Option<Self>, RouteError> {
        let mut next = self.clone();
        for position in touched {
            next.gone.add(*position);
            match at(*position) {
                Some(_) => next.positions.insert(*position),
                None => next.positions.remove(position),
            };
        }
        if next.positions.len() > self.room() || next.gone.len > RECENT_MIN.max(self.based / 2) {
            return Ok(None);
        }
        let recent = next.positions.iter();
        let recent = recent.filter_map(|position| Some((*position, at(*position)?)));
        next.recent = if next.positions.is_empty() {
            None
        } else {
            Some(Arc::new(Router::build_at(recent, &self.routers())?))
        };
        Ok(Some(next))
    }

    /// Whether requests are looked up twice.
    pub fn are_two(&self) -> bool {
        self.recent.is_some()
    }

    /// The route of a request, or `None`. `at` says which route a position has.
    pub fn find<'a>(
        &self,
        query: &Query<'_>,
        at: impl Fn(usize) -> Option<&'a Route>,
    ) -> Option<Match> {
        let mut ask = Ask::new(query);
        ask.gone = (self.gone.len > 0).then_some(&self.gone);
        let old = self.base.look(&ask);
        let Some(recent) = &self.recent else {
            return old;
        };
        ask.gone = None;
        let new = recent.look(&ask);
        let (Some(old), Some(new)) = (old, new) else {
            return old.or(new);
        };
        let of = |router: &Router, found: Match| {
            let path = router.entries.all[found.rank].path;
            at(found.route).map(|route| Precedence::of(route, path.into()))
        };
        if of(&self.base, old) > of(recent, new) {
            Some(old)
        } else {
            Some(new)
        }
    }

    /// Bytes on the heap, without compiled expressions.
    pub fn heap(&self) -> usize {
        let recent = self.recent.as_ref().map_or(0, |recent| recent.heap());
        self.base.heap() + recent + self.gone.bits.capacity() * size_of::<u64>()
    }

    fn routers(&self) -> Vec<&Router> {
        let recent = self.recent.as_deref();
        [Some(&*self.base), recent].into_iter().flatten().collect()
    }

    /// How many routes may lie beside the base. Building the small router at each
    /// change and the large one now and then cost the least together at about the
    /// root of twice the number of routes.
    fn room(&self) -> usize {
        RECENT_MIN.max((2 * self.based).isqrt())
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};
    use proptest::prelude::*;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    fn route(position: usize, [host, path, regex]: [u8; 3]) -> Route {
        let path = match regex {
            0 => format!("~/{path}(?<x>a*)"),
            1 => String::from("/"),
            _ => format!("/{path}"),
        };
        let hosts = (host > 0).then(|| vec![format!("h{host}.test")]);
        let value = json!({
            "id": Uuid::from_u128(position as u128 * 7 % 11), "protocols": ["http"],
            "hosts": hosts, "paths": [path, "/1"], "strip_path": true, "preserve_host": false,
            "created_at": 1, "updated_at": 1,
        });
        serde_json::from_value(value).expect("a route")
    }

    proptest! {
        #[test]
        fn step_by_step_routers_find_what_one_of_all_finds(
            steps in proptest::collection::vec(
                (0..10_usize, proptest::option::of([0..3_u8, 0..3_u8, 0..4_u8])), 1..60),
        ) {
            let mut routes: Vec<Option<Route>> = vec![None; 10];
            let mut layers = Layers::default();
            let mut rebuilt = 0;
            for (number, (position, new)) in steps.into_iter().enumerate() {
                routes[position] = new.map(|new| route(position, new));
                let at = |position: usize| routes[position].as_ref();
                let all = || routes.iter().enumerate().filter_map(|(n, route)| Some((n, route.as_ref()?)));
                let changed = layers.change(&[position], at).expect("compiles");
                layers = match changed.filter(|_| number % 17 != 16) {
                    Some(layers) => layers,
                    None => {
                        rebuilt += 1;
                        Layers::build(all(), &layers).expect("compiles")
                    }
                };
                let whole = Layers::build(all(), &Layers::default()).expect("compiles");
                prop_assert!(!whole.are_two());
                for host in ["h1.test", "h2.test", "other.test"] {
                    for path in ["/", "/0", "/1", "/1aa", "/2/x", "/3"] {
                        let headers = HeaderMap::new();
                        let query = Query { host, port: 80, path, method: &Method::GET,
                            headers: &headers, tls: false, sni: None };
                        let found = |layers: &Layers| layers.find(&query, at)
                            .map(|found| (found.route, found.matched));
                        prop_assert_eq!(found(&layers), found(&whole), "{} {}", host, path);
                    }
                }
            }
            prop_assert!(rebuilt <= 4);
        }
    }

    #[test]
    fn many_changes_make_one_router_of_all() {
        let routes: Vec<Route> = (0..300).map(|n| route(n, [0, (n % 3) as u8, 2])).collect();
        let at = |position: usize| routes.get(position);
        let layers = Layers::build(routes.iter().enumerate(), &Layers::default());
        let layers = layers.expect("compiles");
        let few: Vec<usize> = (0..64).collect();
        assert!(layers.change(&few, at).expect("compiles").is_some());
        let many: Vec<usize> = (0..65).collect();
        assert!(layers.change(&many, at).expect("compiles").is_none());
    }
}
