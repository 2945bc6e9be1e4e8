//! What route files make of a request.

use std::net::{IpAddr, SocketAddr};

use pingora::http::RequestHeader;

use super::Witness;
use super::answer::{Explanation, FileRouted};
use crate::handler;
use doorward_expr::{Exceeded, Scope};

impl Witness<'_> {
    /// Tells which route file takes the request, or would if no route did.
    /// Whether one takes it.
    pub(super) fn tell_files(
        &self,
        mut request: RequestHeader,
        path: &str,
        (client, secure): (IpAddr, bool),
        explanation: &mut Explanation,
    ) -> bool {
        if !handler::is_open(path) {
            return false;
        }
        if path != request.uri.path() {
            let target = match request.uri.query() {
                Some(query) => format!("{path}?{query}"),
                None => path.to_owned(),
            };
            if let Ok(uri) = target.parse() {
                request.set_uri(uri);
            }
        }
        let mut scope = Scope::new(&request, SocketAddr::new(client, 0));
        scope.secure = secure;
        let files = &self.snapshot.files;
        let mut taking = files.taking(&scope);
        if let (Ok(None), None, Some(mount)) =
            (taking, files.default_handler(), self.snapshot.mounted())
        {
            taking = mount.taking(&scope);
        }
        let route = taking.unwrap_or_default();
        let told = match (taking, files.default_handler()) {
            (Err(Exceeded), _) => handler::DryRun::of_exceeded(),
            (Ok(Some(route)), _) => handler::dry_run(route.handler(), &scope),
            (Ok(None), Some(handler)) => handler::dry_run(handler, &scope),
            (Ok(None), None) => return false,
        };
        let shadowed = explanation.route.is_some();
        explanation.file_route = Some(FileRouted {
            id: route.map(|route| route.id().to_owned()),
            name: route.map(|route| route.name().to_owned()),
            file: route.map(|route| route.file().display().to_string()),
            shadowed,
            steps: told.steps,
            destination: told.base,
        });
        !shadowed
    }
}
