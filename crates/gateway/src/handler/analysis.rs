//! What a tree of handlers holds, seen without a request.

use std::sync::Arc;

use super::{BaseUri, FileRoute, Handler, Scheme, Step};
use doorward_plugin_api::filter::Filter;

/// Shows `see` each filter of the tree below `handler`.
pub(super) fn filters(handler: &Handler, see: &mut dyn FnMut(&dyn Filter)) {
    walk(handler, None, &mut |_, _, filter| see(&**filter));
}

/// Shows `see` each filter of the tree below `handler` of `route`, with the
/// innermost route that it belongs to and its label.
pub(super) fn labelled(
    handler: &Handler,
    route: &Arc<FileRoute>,
    see: &mut dyn FnMut(&Arc<FileRoute>, &str, &Arc<dyn Filter>),
) {
    walk(handler, Some(route), &mut |route, label, filter| {
        if let Some(route) = route {
            see(route, label, filter);
        }
    });
}

type See<'s> = dyn FnMut(Option<&Arc<FileRoute>>, &str, &Arc<dyn Filter>) + 's;

fn walk(handler: &Handler, route: Option<&Arc<FileRoute>>, see: &mut See<'_>) {
    match handler {
        Handler::Proxy(_) | Handler::Static(_) => {}
        Handler::Chain { steps, handler } => {
            walk_steps(steps, route, see);
            walk(handler, route, see);
        }
        Handler::Dispatch(bindings) => {
            bindings
                .iter()
                .for_each(|binding| walk(&binding.handler, route, see));
        }
        Handler::Router(routes) => {
            routes
                .iter()
                .for_each(|nested| walk(&nested.handler, Some(nested), see));
            if let Some(handler) = routes.default_handler() {
                walk(handler, route, see);
            }
        }
        Handler::Rebased { handler, .. } => walk(handler, route, see),
    }
}

fn walk_steps(steps: &[Step], route: Option<&Arc<FileRoute>>, see: &mut See<'_>) {
    for step in steps {
        match step {
            Step::Filter { label, filter } => see(route, label, filter),
            Step::Enforce { failure, .. } => walk(failure, route, see),
            Step::Switch {
                on_request,
                on_response,
            } => {
                let cases = on_request.iter().chain(on_response);
                cases.for_each(|case| walk(&case.handler, route, see));
            }
            Step::Conditional { steps, .. } | Step::Group(steps) => walk_steps(steps, route, see),
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

/// Whether a request may reach the router of this process that is called `name`:
/// a base URI that depends on the request may be any.
pub(super) fn may_lead_to(handler: &Handler, name: &str) -> bool {
    match handler {
        Handler::Proxy(_) | Handler::Static(_) => false,
        Handler::Chain { steps, handler } => {
            may_lead_to(handler, name) || steps_may_lead_to(steps, name)
        }
        Handler::Dispatch(bindings) => bindings.iter().any(|b| may_lead_to(&b.handler, name)),
        Handler::Router(routes) => {
            let all = routes.iter().map(|route| &route.handler);
            let mut all = all.chain(routes.default_handler());
            all.any(|handler| may_lead_to(handler, name))
        }
        Handler::Rebased { base, handler } => {
            let leads = match base {
                BaseUri::Fixed(base) => {
                    let origin = base.origin();
                    origin.scheme == Scheme::Internal && *origin.host == *name
                }
                BaseUri::Dynamic(_) => true,
            };
            leads || may_lead_to(handler, name)
        }
    }
}

fn steps_may_lead_to(steps: &[Step], name: &str) -> bool {
    steps.iter().any(|step| match step {
        Step::Filter { .. } => false,
        Step::Enforce { failure, .. } => may_lead_to(failure, name),
        Step::Switch { on_request, .. } => on_request
            .iter()
            .any(|case| may_lead_to(&case.handler, name)),
        Step::Conditional { steps, .. } | Step::Group(steps) => steps_may_lead_to(steps, name),
    })
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
