//! What makes an endpoint.

use super::call::Call;
use super::entity::Answer;

/// One path of the Admin API.
pub(super) struct Endpoint {
    /// Parts in braces are open.
    pub(super) path: &'static str,
    /// Besides `OPTIONS`, and `HEAD` where there is `GET`.
    pub(super) methods: &'static [&'static str],
    pub(super) handler: fn(Call) -> Answer,
}

pub(super) const READ: &[&str] = &["GET"];
pub(super) const LIST: &[&str] = &["GET", "POST"];
pub(super) const ITEM: &[&str] = &["DELETE", "GET", "PATCH", "PUT"];
/// The older dialect posts.
pub(super) const SET: &[&str] = &["POST", "PUT"];
pub(super) const PARENT: &[&str] = &["GET", "PATCH", "PUT"];

pub(super) const fn endpoint(
    path: &'static str,
    methods: &'static [&'static str],
    handler: fn(Call) -> Answer,
) -> Endpoint {
    Endpoint {
        path,
        methods,
        handler,
    }
}

impl Endpoint {
    /// The open parts of `segments`, if they are of this endpoint.
    pub(super) fn matches(&self, segments: &[String]) -> Option<Vec<String>> {
        let mut own = self.path.split('/').filter(|part| !part.is_empty());
        let mut params = Vec::new();
        for segment in segments {
            let part = own.next()?;
            if part.starts_with('{') {
                params.push(segment.clone());
            } else if part != segment {
                return None;
            }
        }
        own.next().is_none().then_some(params)
    }

    /// The methods as `Allow` lists them.
    pub(super) fn allow(&self) -> String {
        let mut methods = self.methods.to_vec();
        methods.push("OPTIONS");
        if methods.contains(&"GET") {
            methods.push("HEAD");
        }
        methods.sort_unstable();
        methods.join(", ")
    }
}
