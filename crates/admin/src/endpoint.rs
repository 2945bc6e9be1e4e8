//! What makes an endpoint.

use super::State;
use super::call::Call;
use super::draft::Key;
use super::entity::{self, Answer};
use super::openapi::entities;
use doorward_core::openapi::Operation;
use doorward_gateway::records::Resource;

/// One path of the Admin API.
pub(super) struct Endpoint {
    /// Parts in braces are open.
    pub(super) path: &'static str,
    /// Besides `OPTIONS`, and `HEAD` where there is `GET`.
    pub(super) methods: &'static [&'static str],
    pub(super) handler: fn(Call) -> Answer,
    /// What the description of the interface says of a method.
    pub(super) describe: fn(&str) -> Operation,
    /// Whether a record that the path names is missing, which is said before a
    /// `DELETE` is refused.
    pub(super) is_missing: fn(&State, &Key) -> bool,
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
    describe: fn(&str) -> Operation,
) -> Endpoint {
    Endpoint {
        path,
        methods,
        handler,
        describe,
        is_missing: |_, _| false,
    }
}

/// `/things`.
pub(super) const fn collection<T: Resource>(path: &'static str) -> Endpoint {
    endpoint(
        path,
        LIST,
        entity::collection::<T>,
        entities::collection::<T>,
    )
}

/// `/things/{thing}`.
pub(super) const fn item<T: Resource>(path: &'static str) -> Endpoint {
    endpoint(path, ITEM, entity::item::<T>, entities::item::<T>)
}

/// `/parents/{parent}/things`.
pub(super) const fn children<P: Resource, T: Resource>(path: &'static str) -> Endpoint {
    let (handler, describe) = (entity::children::<P, T>, entities::children::<P, T>);
    endpoint(path, LIST, handler, describe)
}

/// `/parents/{parent}/things/{thing}`.
pub(super) const fn child<P: Resource, T: Resource>(path: &'static str) -> Endpoint {
    let (handler, describe) = (entity::child::<P, T>, entities::child::<P, T>);
    endpoint(path, ITEM, handler, describe)
}

/// `/things/{thing}/parent`.
pub(super) const fn parent<T: Resource, P: Resource>(path: &'static str) -> Endpoint {
    let (handler, describe) = (entity::parent::<T, P>, entities::parent::<T, P>);
    Endpoint {
        is_missing: entity::has_no_parent::<T, P>,
        ..endpoint(path, PARENT, handler, describe)
    }
}

impl Endpoint {
    /// The same with another handler.
    pub(super) const fn with(self, handler: fn(Call) -> Answer) -> Self {
        Self { handler, ..self }
    }

    /// The same with another description.
    pub(super) const fn described(self, describe: fn(&str) -> Operation) -> Self {
        Self { describe, ..self }
    }

    /// The same with fewer methods.
    pub(super) const fn only(self, methods: &'static [&'static str]) -> Self {
        Self { methods, ..self }
    }

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
