//! The dry run of a tree of handlers: what it would do with a request.

use super::{BaseUri, Case, Handler, Routes, Step};
use doorward_expr::{Exceeded, Expression, Scope};

/// What route files would do with a request.
#[derive(Debug, Default)]
pub(crate) struct DryRun {
    /// What it would meet, in order.
    pub(crate) steps: Vec<String>,
    /// Scheme, host and port of where it would go.
    pub(crate) base: Option<String>,
}

/// What `handler` would do with the request of `scope`. Conditions are judged
/// by the request as it came: filters are not asked.
pub(crate) fn dry_run(handler: &Handler, scope: &Scope<'_>) -> DryRun {
    let mut run = DryRun::default();
    if run.way(handler, scope) == Err(Exceeded) {
        run.steps.extend(DryRun::of_exceeded().steps);
        run.base = None;
    }
    run
}

impl DryRun {
    /// What is told where a condition can't be judged.
    pub(crate) fn of_exceeded() -> Self {
        let what = "a condition exceeds a limit: 500";
        Self {
            steps: vec![what.to_owned()],
            base: None,
        }
    }

    fn way(&mut self, mut handler: &Handler, scope: &Scope<'_>) -> Result<(), Exceeded> {
        let run = self;
        loop {
            handler = match handler {
                Handler::Proxy(settings) => {
                    let (connect, read) = (settings.connect_timeout, settings.read_timeout);
                    let retries = settings.retries;
                    run.steps.push(format!(
                        "proxies; timeouts: connect {connect} ms, read and write {read} ms; \
                     retries: {retries}"
                    ));
                    if run.base.is_none() {
                        let what = "no baseURI: 502, unless a filter names the target";
                        run.steps.push(what.to_owned());
                    }
                    return Ok(());
                }
                Handler::Static(answer) => {
                    run.base = None;
                    run.steps
                        .push(format!("answers {}", answer.status().as_u16()));
                    return Ok(());
                }
                Handler::Chain { steps, handler } => run.steps_of(steps, scope)?.unwrap_or(handler),
                Handler::Dispatch(bindings) => {
                    let conditions = bindings.iter().map(|binding| binding.condition.as_ref());
                    match first(conditions, scope)? {
                        Some(at) => {
                            run.steps
                                .push(format!("DispatchHandler: binding {}", at + 1));
                            &bindings[at].handler
                        }
                        None => {
                            run.steps
                                .push("DispatchHandler: no binding, 404".to_owned());
                            return Ok(());
                        }
                    }
                }
                Handler::Router(routes) => match run.route_of(routes, scope)? {
                    Some(handler) => handler,
                    None => return Ok(()),
                },
                Handler::Rebased { base, handler } => {
                    let to = match base {
                        BaseUri::Fixed(base) => Some(base.origin().to_string()),
                        BaseUri::Dynamic(expression) => {
                            expression.text(scope).map(|text| text.into_owned())
                        }
                    };
                    let shown = to.as_deref().unwrap_or("is null for this request: 500");
                    run.steps.push(format!("baseURI {shown}"));
                    run.base = to;
                    handler
                }
            };
        }
    }

    /// Steps until one leads elsewhere.
    fn steps_of<'t>(
        &mut self,
        steps: &'t [Step],
        scope: &Scope<'_>,
    ) -> Result<Option<&'t Handler>, Exceeded> {
        for step in steps {
            match step {
                Step::Filter { label, .. } => self.steps.push(label.to_string()),
                Step::Enforce { condition, failure } => {
                    let holds = condition.is_true(scope)?;
                    let shown = if holds { "true" } else { "not true" };
                    self.steps
                        .push(format!("ConditionEnforcementFilter: {shown}"));
                    if !holds {
                        return Ok(Some(failure));
                    }
                }
                Step::Switch { on_request, .. } => {
                    let conditions = on_request.iter().map(|case| case.condition.as_ref());
                    let case = first(conditions, scope)?;
                    let shown = case.map_or_else(
                        || "passes".to_owned(),
                        |at| format!("case {} takes it", at + 1),
                    );
                    self.steps.push(format!("SwitchFilter: {shown}"));
                    if let Some(Case { handler, .. }) = case.map(|at| &on_request[at]) {
                        return Ok(Some(handler));
                    }
                }
                Step::Conditional { condition, steps } => {
                    let holds = condition.is_true(scope)?;
                    let shown = if holds { "true" } else { "not true" };
                    self.steps.push(format!("ConditionalFilter: {shown}"));
                    if holds && let Some(other) = self.steps_of(steps, scope)? {
                        return Ok(Some(other));
                    }
                }
                Step::Group(steps) => {
                    if let Some(other) = self.steps_of(steps, scope)? {
                        return Ok(Some(other));
                    }
                }
            }
        }
        Ok(None)
    }

    fn route_of<'t>(
        &mut self,
        routes: &'t Routes,
        scope: &Scope<'_>,
    ) -> Result<Option<&'t Handler>, Exceeded> {
        let taken = routes.taking(scope)?;
        if let Some(route) = taken {
            self.steps.push(format!("Router: route '{}'", route.name()));
            return Ok(Some(&route.handler));
        }
        let default = routes.default_handler();
        let shown = if default.is_some() {
            "its default handler"
        } else {
            "no route, 404"
        };
        self.steps.push(format!("Router: {shown}"));
        Ok(default.map(|handler| &**handler))
    }
}

fn first<'c>(
    conditions: impl Iterator<Item = Option<&'c Expression>>,
    scope: &Scope<'_>,
) -> Result<Option<usize>, Exceeded> {
    for (at, condition) in conditions.enumerate() {
        if condition.map_or(Ok(true), |condition| condition.is_true(scope))? {
            return Ok(Some(at));
        }
    }
    Ok(None)
}
