//! A request's way through a tree of handlers, until something answers or an
//! upstream is to be asked.

use std::sync::Arc;

use http::StatusCode;
use pingora::http::ResponseHeader;
use smallvec::SmallVec;

use super::destination::Destinations;
use super::handler_context::HandlerContext;
use super::routes::{FileRoute, Routes};
use super::{BaseUri, Case, Handler, ProxySettings, Step};
use crate::context::Ctx;
use crate::{decide, log_phase};
use doorward_expr::{Exceeded, Expression, Scope, Value};
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;
use doorward_plugin_api::filter::{Filter, Flow, Verdict};

/// Where a way ends.
pub(super) enum End<'t> {
    /// An answer.
    Reply(Reply),
    /// A handler that proxies.
    Proxy(&'t Arc<ProxySettings>),
}

/// Which way a request goes.
#[derive(Clone, Copy)]
pub(super) enum Phase<'a> {
    /// To where it is answered.
    Request(&'a Destinations),
    /// To an answer in place of this one.
    Response(&'a ResponseHeader),
}

/// What follows after steps.
enum Next<'t> {
    /// What stands behind them.
    On,
    /// Another handler.
    Divert(&'t Handler),
    /// An answer.
    Reply(Reply),
}

/// One walk.
pub(super) struct Execution<'w> {
    pub(super) session: &'w mut Session,
    pub(super) ctx: &'w mut Ctx,
    pub(super) phase: Phase<'w>,
}

impl Execution<'_> {
    /// Goes through `handler`.
    pub(super) async fn through<'t>(&mut self, mut handler: &'t Handler) -> End<'t> {
        loop {
            handler = match handler {
                Handler::Proxy(settings) => return End::Proxy(settings),
                Handler::Static(answer) => {
                    if answer.needs_body()
                        && let Err(reply) = self.read_body().await
                    {
                        return End::Reply(reply);
                    }
                    return End::Reply(answer.reply(&self.scope()));
                }
                Handler::Chain { steps, handler } => match self.steps(steps).await {
                    Next::On => handler,
                    Next::Divert(other) => other,
                    Next::Reply(reply) => return End::Reply(reply),
                },
                Handler::Dispatch(bindings) => {
                    let conditions = bindings.iter().map(|binding| binding.condition.as_ref());
                    match self.first_true(conditions).await {
                        Ok(Some(at)) => &bindings[at].handler,
                        Ok(None) => return End::Reply(Reply::empty(StatusCode::NOT_FOUND)),
                        Err(reply) => return End::Reply(reply),
                    }
                }
                Handler::Router(routes) => match self.enter(routes).await {
                    Ok(Some(handler)) => handler,
                    Ok(None) => return End::Reply(Reply::empty(StatusCode::NOT_FOUND)),
                    Err(reply) => return End::Reply(reply),
                },
                Handler::Rebased { base, handler } => {
                    if let Err(reply) = self.rebase(base).await {
                        return End::Reply(reply);
                    }
                    handler
                }
            };
        }
    }

    /// The handler of the route that takes the request, or what takes it
    /// otherwise.
    pub(super) async fn enter<'t>(
        &mut self,
        routes: &'t Routes,
    ) -> Result<Option<&'t Handler>, Reply> {
        // Cheap, and it leaves the session free for reading a body.
        let target = self.session.req_header().uri.path_and_query().cloned();
        let path = target.as_ref().map_or("/", |target| target.path());
        for route in routes.candidates(path) {
            if let Some(condition) = &route.condition
                && !self.is_true(condition).await?
            {
                continue;
            }
            if let Some(journey) = &mut self.ctx.journey {
                journey.take(route);
            }
            return Ok(Some(&route.handler));
        }
        Ok(routes.default_handler().map(|handler| &**handler))
    }

    /// The position of the first condition that is true or absent.
    async fn first_true(
        &mut self,
        conditions: impl Iterator<Item = Option<&Expression>>,
    ) -> Result<Option<usize>, Reply> {
        for (at, condition) in conditions.enumerate() {
            if let Some(condition) = condition
                && !self.is_true(condition).await?
            {
                continue;
            }
            return Ok(Some(at));
        }
        Ok(None)
    }

    /// Whether `condition` holds. The body is read only where that can't be
    /// said without: a condition must not refuse what it is not meant for.
    async fn is_true(&mut self, condition: &Expression) -> Result<bool, Reply> {
        if condition.needs_body_of(self.session.req_header()) {
            match condition.is_true_before_body(&self.scope()) {
                Ok(Some(holds)) => return Ok(holds),
                Ok(None) => self.read_body().await?,
                Err(Exceeded) => return Err(self.exceeded()),
            }
        }
        let holds = condition.is_true(&self.scope());
        holds.map_err(|Exceeded| self.exceeded())
    }

    /// Refuses a request for which a condition can't be judged: a stranger who
    /// exceeds a bound must not pass a step or a route by that.
    pub(super) fn exceeded(&mut self) -> Reply {
        tracing::debug!("a condition exceeds a limit");
        self.ctx.exchange.refusal = Some("expression_failed".into());
        Reply::empty(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Takes `steps` in order.
    async fn steps<'t>(&mut self, steps: &'t Arc<[Step]>) -> Next<'t> {
        let mut open: SmallVec<[(&Arc<[Step]>, usize); 4]> = SmallVec::new();
        open.push((steps, 0));
        while let Some((steps, at)) = open.last_mut() {
            let (steps, here) = (*steps, *at);
            let Some(step) = steps.get(here) else {
                open.pop();
                continue;
            };
            *at += 1;
            let next = match step {
                Step::Filter { filter, label } => {
                    self.filter((&**filter, label), steps, here).await
                }
                Step::Enforce { condition, failure } => match self.is_true(condition).await {
                    Ok(true) => Next::On,
                    Ok(false) => Next::Divert(failure),
                    Err(reply) => Next::Reply(reply),
                },
                Step::Switch {
                    on_request,
                    on_response,
                } => {
                    let conditions = on_request.iter().map(|case| case.condition.as_ref());
                    match self.first_true(conditions).await {
                        Err(reply) => Next::Reply(reply),
                        Ok(Some(at)) => Next::Divert(&on_request[at].handler),
                        Ok(None) => self.pass_switch(on_response, steps, here).await,
                    }
                }
                Step::Conditional { condition, steps } => match self.is_true(condition).await {
                    Ok(true) => {
                        open.push((steps, 0));
                        Next::On
                    }
                    Ok(false) => Next::On,
                    Err(reply) => Next::Reply(reply),
                },
                Step::Group(steps) => {
                    open.push((steps, 0));
                    Next::On
                }
            };
            match next {
                Next::On => {}
                end => return end,
            }
        }
        Next::On
    }

    /// Notes a switch that will look at the answer.
    async fn pass_switch<'t>(
        &mut self,
        on_response: &[Case],
        steps: &Arc<[Step]>,
        at: usize,
    ) -> Next<'t> {
        let mut conditions = on_response
            .iter()
            .filter_map(|case| case.condition.as_ref());
        if conditions.any(Expression::needs_body)
            && let Err(reply) = self.read_body().await
        {
            return Next::Reply(reply);
        }
        if !on_response.is_empty() {
            self.note(steps, at);
        }
        Next::On
    }

    async fn filter<'t>(
        &mut self,
        (filter, label): (&dyn Filter, &str),
        steps: &Arc<[Step]>,
        at: usize,
    ) -> Next<'t> {
        if filter.needs_body()
            && let Err(reply) = self.read_body().await
        {
            return Next::Reply(reply);
        }
        let Ctx {
            exchange,
            trail,
            started,
            ..
        } = &mut *self.ctx;
        let flow = match filter.on_request(self.session, exchange) {
            Verdict::Now(flow) => flow,
            Verdict::Wait => {
                let noted = (trail, *started);
                log_phase::wait(filter, label, self.session, exchange, noted).await
            }
        };
        match flow {
            Flow::Respond(reply) => Next::Reply(reply),
            Flow::Continue => {
                self.note(steps, at);
                Next::On
            }
        }
    }

    fn note(&mut self, steps: &Arc<[Step]>, at: usize) {
        if let Some(journey) = &mut self.ctx.journey {
            journey.note(steps, at);
        }
    }

    /// Sets scheme, host and port of the request.
    async fn rebase(&mut self, base: &BaseUri) -> Result<(), Reply> {
        let Phase::Request(destinations) = self.phase else {
            return Ok(()); // what answers by itself goes nowhere
        };
        let base = match base {
            BaseUri::Fixed(base) => base.clone(),
            BaseUri::Dynamic(expression) => {
                if expression.needs_body() {
                    self.read_body().await?;
                }
                match expression.evaluate(&self.scope()) {
                    Value::Text(text) => match destinations.base(&text) {
                        Ok(base) => base,
                        Err(error) => {
                            tracing::debug!(%error, "a base URI is none");
                            return Err(self.bad_base());
                        }
                    },
                    Value::Null => return Err(self.bad_base()),
                    // What is no text is no URI: it is ignored.
                    _ => return Ok(()),
                }
            }
        };
        let request = self.session.req_header_mut();
        self.ctx.exchange.keep_original(request);
        let uri = base.rebase(&request.uri);
        request.set_uri(uri);
        if let Some(journey) = &mut self.ctx.journey {
            journey.base = Some(base);
        }
        Ok(())
    }

    fn bad_base(&mut self) -> Reply {
        self.ctx.exchange.refusal = Some("bad_base_uri".into());
        Reply::empty(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Reads the body of the request where something looks at it.
    async fn read_body(&mut self) -> Result<(), Reply> {
        if matches!(self.phase, Phase::Response(_)) {
            return Ok(()); // it is on its way, if it has not been read
        }
        let Ctx {
            exchange, gathered, ..
        } = &mut *self.ctx;
        decide::read_body(self.session, exchange, gathered).await
    }

    /// What expressions may look at.
    pub(super) fn scope(&self) -> Scope<'_> {
        let (exchange, request) = (&self.ctx.exchange, self.session.req_header());
        match self.phase {
            Phase::Request(_) => exchange.scope(request),
            Phase::Response(response) => exchange.scope_with_response(request, response),
        }
    }
}

impl HandlerContext {
    /// Notes that `route` takes the request.
    fn take(&mut self, route: &Arc<FileRoute>) {
        self.outer.get_or_insert_with(|| route.clone());
        self.inner = Some(route.clone());
    }
}
