//! Route files, compiled and in order.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::HeaderName;

use super::{Handler, survey};
use crate::expr::Expression;
use crate::telemetry::traffic::{RouteTraffic, Traffic};

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
    default: Option<Arc<Handler>>,
}

impl FileRoute {
    /// The route that a file declares; `traffic` holds its counters.
    pub fn new(declared: Declared, traffic: &Traffic) -> Self {
        let mut owned_headers = Vec::new();
        survey::filters(&declared.handler, &mut |filter| {
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

    /// Headers that its filters vouch for and clients may not send.
    pub(super) fn owned_headers(&self) -> &[HeaderName] {
        &self.owned_headers
    }

    /// What an operator should know and that is not an error.
    pub fn warnings(&self) -> Vec<String> {
        survey::warnings(&self.handler)
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
            routes: routes.into(),
            default,
        }
    }

    /// The routes in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<FileRoute>> {
        self.routes.iter()
    }

    /// The route at a position of that order.
    pub(super) fn at(&self, at: usize) -> &Arc<FileRoute> {
        &self.routes[at]
    }

    /// What takes a request that none of them does.
    pub fn default_handler(&self) -> Option<&Arc<Handler>> {
        self.default.as_ref()
    }

    /// Whether no request can be taken.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty() && self.default.is_none()
    }
}
