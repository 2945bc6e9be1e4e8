//! Route files, compiled and in order.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::HeaderName;

use super::{Handler, analysis};
use crate::mount::PROVIDER;
use doorward_expr::{Exceeded, Expression, Scope};
use doorward_net::telemetry::traffic::{RouteTraffic, Traffic};

/// What a route file says.
pub struct Declared {
    /// Name of the file without its extension; of a nested route, below that
    /// of the router it belongs to.
    pub id: String,
    /// Its `name`, or that of the file without its extension.
    pub name: String,
    /// Where it was read.
    pub file: PathBuf,
    /// Whether it takes a request; `None`: it does.
    pub condition: Option<Expression>,
    /// What it does with one, already rebased by the route's `baseURI`.
    pub handler: Arc<Handler>,
}

/// One route file, compiled.
pub struct FileRoute {
    id: Box<str>,
    name: Box<str>,
    file: Box<Path>,
    pub(super) condition: Option<Expression>,
    pub(super) handler: Arc<Handler>,
    owned_headers: Box<[HeaderName]>,
    traffic: Arc<RouteTraffic>,
}

/// An ordered set of route files.
#[derive(Default)]
pub struct Routes {
    routes: Box<[Arc<FileRoute>]>,
    /// What each condition asks of the path at least, side by side: most routes
    /// are passed over without a look at them.
    gates: Box<[Gate]>,
    default: Option<Arc<Handler>>,
    /// Whether one of them may send requests to the identity provider.
    may_lead_to_provider: bool,
}

/// The beginning of the paths for which a condition can be true.
#[derive(Default)]
struct Gate {
    begin: [u8; Gate::LENGTH],
    length: u8,
}

impl Gate {
    const LENGTH: usize = 15;

    fn of(route: &FileRoute) -> Self {
        let mut gate = Self::default();
        let prefix = route.condition.as_ref().and_then(Expression::path_prefix);
        for (to, from) in gate.begin.iter_mut().zip(prefix.unwrap_or("").bytes()) {
            *to = from;
            gate.length += 1;
        }
        gate
    }

    fn admits(&self, path: &[u8]) -> bool {
        path.starts_with(&self.begin[..usize::from(self.length)])
    }
}

impl FileRoute {
    /// The route that a file declares; `traffic` holds its counters.
    pub fn new(declared: Declared, traffic: &Traffic) -> Self {
        let mut owned_headers = Vec::new();
        analysis::filters(&declared.handler, &mut |filter| {
            owned_headers.extend_from_slice(filter.owned_headers());
        });
        owned_headers.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        owned_headers.dedup();
        Self {
            owned_headers: owned_headers.into(),
            traffic: traffic.route("", &declared.name),
            id: declared.id.into(),
            name: declared.name.into(),
            file: declared.file.into(),
            condition: declared.condition,
            handler: declared.handler,
        }
    }

    /// Name of the file without its extension.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its name: in the access log, in metrics, and what it is ordered by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it was read.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// What it does with a request.
    pub(crate) fn handler(&self) -> &Handler {
        &self.handler
    }

    /// Headers that its filters vouch for and clients may not send.
    pub(super) fn owned_headers(&self) -> &[HeaderName] {
        &self.owned_headers
    }

    /// What an operator should know and that is not an error.
    pub fn warnings(&self) -> Vec<String> {
        analysis::warnings(&self.handler)
    }

    /// Its counters.
    pub fn traffic(&self) -> &RouteTraffic {
        &self.traffic
    }
}

impl Routes {
    /// `routes` in the order in which they are asked: by name, then id, in
    /// code-point order. `default` takes what none of them does.
    pub fn new(mut routes: Vec<Arc<FileRoute>>, default: Option<Arc<Handler>>) -> Self {
        routes.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        Self {
            may_lead_to_provider: {
                let handlers = routes.iter().map(|route| &route.handler);
                let mut handlers = handlers.chain(&default);
                handlers.any(|handler| analysis::may_lead_to(handler, PROVIDER))
            },
            gates: routes.iter().map(|route| Gate::of(route)).collect(),
            routes: routes.into(),
            default,
        }
    }

    /// The routes that may take a request for `path`, as it is sent, in order.
    pub(crate) fn candidates(&self, path: &str) -> impl Iterator<Item = &Arc<FileRoute>> {
        let path = path.as_bytes();
        // Conditions see it decoded.
        let encoded = path.contains(&b'%');
        let routes = self.routes.iter().zip(&self.gates);
        routes.filter_map(move |(route, gate)| (encoded || gate.admits(path)).then_some(route))
    }

    /// The routes in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<FileRoute>> {
        self.routes.iter()
    }

    /// The route that takes the request of `scope`, as far as that shows.
    ///
    /// # Errors
    /// [`Exceeded`] where a condition can't be judged before that: no route
    /// takes the request then.
    pub fn taking(&self, scope: &Scope<'_>) -> Result<Option<&Arc<FileRoute>>, Exceeded> {
        for route in self.candidates(scope.request.uri.path()) {
            let condition = route.condition.as_ref();
            if condition.map_or(Ok(true), |condition| condition.is_true(scope))? {
                return Ok(Some(route));
            }
        }
        Ok(None)
    }

    /// What takes a request that none of them does.
    pub fn default_handler(&self) -> Option<&Arc<Handler>> {
        self.default.as_ref()
    }

    /// Whether one of them may send requests to the identity provider of this process.
    pub fn may_lead_to_provider(&self) -> bool {
        self.may_lead_to_provider
    }

    /// Whether no request can be taken.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty() && self.default.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::StaticResponse;

    fn route(name: &str, condition: Option<&str>) -> Arc<FileRoute> {
        let answer = StaticResponse::new(200, None, Vec::new(), None).expect("an answer");
        let declared = Declared {
            id: name.to_owned(),
            name: name.to_owned(),
            file: PathBuf::new(),
            condition: condition.map(|text| Expression::compile(text).expect("an expression")),
            handler: Arc::new(Handler::Static(answer)),
        };
        Arc::new(FileRoute::new(declared, &Traffic::default()))
    }

    fn candidates(routes: &Routes, path: &str) -> Vec<String> {
        let all = routes.candidates(path);
        all.map(|route| route.name().to_owned()).collect()
    }

    #[test]
    fn routes_are_ordered_by_code_points_of_their_names() {
        let names = ["b", "9-x", "A", "10-x"];
        let routes = Routes::new(names.iter().map(|name| route(name, None)).collect(), None);
        assert_eq!(candidates(&routes, "/"), ["10-x", "9-x", "A", "b"]);
    }

    #[test]
    fn routes_for_other_paths_are_passed_over() {
        let routes = Routes::new(
            vec![
                route("1", Some("${matches(request.uri.path, '^/home')}")),
                route(
                    "2",
                    Some("${find(request.uri.path, '^/a/very/long/prefix/indeed')}"),
                ),
                route("3", Some("${find(request.uri.path, '/home')}")),
                route("4", None),
            ],
            None,
        );
        assert_eq!(candidates(&routes, "/home/x"), ["1", "3", "4"]);
        assert_eq!(candidates(&routes, "/a/very/long/prefix"), ["2", "3", "4"]);
        assert_eq!(candidates(&routes, "/other"), ["3", "4"]);
        assert_eq!(candidates(&routes, "/%68ome"), ["1", "2", "3", "4"]);
    }
}
