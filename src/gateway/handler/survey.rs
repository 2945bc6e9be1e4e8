//! What a tree of handlers holds, seen without a request.

use super::{Handler, Step};
use crate::filter::Filter;

/// Shows `see` each filter of the tree below `handler`.
pub(super) fn filters(handler: &Handler, see: &mut dyn FnMut(&dyn Filter)) {
    match handler {
        Handler::Proxy(_) | Handler::Static(_) => {}
        Handler::Chain { steps, handler } => {
            filters_of(steps, see);
            filters(handler, see);
        }
        Handler::Dispatch(bindings) => {
            bindings
                .iter()
                .for_each(|binding| filters(&binding.handler, see));
        }
        Handler::Router(routes) => {
            routes.iter().for_each(|route| filters(&route.handler, see));
            if let Some(handler) = routes.default_handler() {
                filters(handler, see);
            }
        }
        Handler::Rebased { handler, .. } => filters(handler, see),
    }
}

fn filters_of(steps: &[Step], see: &mut dyn FnMut(&dyn Filter)) {
    for step in steps {
        match step {
            Step::Filter { filter, .. } => see(&**filter),
            Step::Enforce { failure, .. } => filters(failure, see),
            Step::Switch {
                on_request,
                on_response,
            } => {
                let cases = on_request.iter().chain(on_response);
                cases.for_each(|case| filters(&case.handler, see));
            }
            Step::Conditional { steps, .. } | Step::Group(steps) => filters_of(steps, see),
        }
    }
}

/// What an operator should know of the tree below `handler`.
pub(super) fn warnings(handler: &Handler) -> Vec<String> {
    let mut warnings = Vec::new();
    if is_aimless(handler, false) {
        warnings.push(
            "requests reach a handler that proxies without a baseURI: they are answered with \
             502, for the host that a client names is not asked"
                .to_owned(),
        );
    }
    warnings
}

/// Whether a request can reach a handler that proxies without anything that
/// says where it goes; `aimed`: something before has said so.
fn is_aimless(handler: &Handler, aimed: bool) -> bool {
    match handler {
        Handler::Proxy(_) => !aimed,
        Handler::Static(_) => false,
        Handler::Chain { steps, handler } => {
            let mut aimed = aimed;
            steps_are_aimless(steps, &mut aimed) || is_aimless(handler, aimed)
        }
        Handler::Dispatch(bindings) => bindings.iter().any(|b| is_aimless(&b.handler, aimed)),
        Handler::Router(routes) => {
            let mut all = routes.iter().map(|route| &*route.handler);
            all.any(|handler| is_aimless(handler, aimed))
                || (routes.default_handler()).is_some_and(|handler| is_aimless(handler, aimed))
        }
        Handler::Rebased { handler, .. } => is_aimless(handler, true),
    }
}

fn steps_are_aimless(steps: &[Step], aimed: &mut bool) -> bool {
    steps.iter().any(|step| match step {
        Step::Filter { filter, .. } => {
            *aimed |= filter.may_rebase();
            false
        }
        Step::Enforce { failure, .. } => is_aimless(failure, *aimed),
        Step::Switch { on_request, .. } => on_request
            .iter()
            .any(|case| is_aimless(&case.handler, *aimed)),
        Step::Conditional { steps, .. } | Step::Group(steps) => steps_are_aimless(steps, aimed),
    })
}
