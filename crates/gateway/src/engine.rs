//! The steps of [`Gateway`] as the engine calls them.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderMap;
use pingora::Result;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::prelude::{Error, HttpPeer};
use pingora::proxy::{FailToProxy, ProxyHttp, Session as EngineSession};

use super::context::{Ctx, DecidedRequest};
use super::proxy::Gateway;
use super::{failure, head};
use doorward_net::telemetry::connections::Connection;

/// A step that waits, in the form that `async_trait` gives it. Written out where the
/// step is large: a block around it would copy it once more.
type Step<'f, T> = Pin<Box<dyn Future<Output = T> + Send + 'f>>;

#[async_trait]
impl ProxyHttp for Gateway {
    // Boxed: the engine moves its futures, and the context in them, many times.
    type CTX = Box<Ctx>;

    fn new_ctx(&self) -> Box<Ctx> {
        Box::new(Ctx::new())
    }

    fn init_downstream_modules(&self, _modules: &mut pingora::modules::http::HttpModules) {}

    fn request_filter<'g, 's, 'c, 'f>(
        &'g self,
        session: &'s mut EngineSession,
        ctx: &'c mut Box<Ctx>,
    ) -> Step<'f, Result<bool>>
    where
        'g: 'f,
        's: 'f,
        'c: 'f,
        Self: 'f,
    {
        if let Some(decided) = DecidedRequest::take(session.req_header()) {
            *ctx = decided.0;
        }
        Box::pin(self.filter_request(session.as_downstream_mut(), ctx))
    }

    fn upstream_peer<'g, 's, 'c, 'f>(
        &'g self,
        session: &'s mut EngineSession,
        ctx: &'c mut Box<Ctx>,
    ) -> Step<'f, Result<Box<HttpPeer>>>
    where
        'g: 'f,
        's: 'f,
        'c: 'f,
        Self: 'f,
    {
        Box::pin(self.choose_peer(session.as_downstream_mut(), ctx))
    }

    async fn upstream_request_filter(
        &self,
        session: &mut EngineSession,
        request: &mut RequestHeader,
        ctx: &mut Box<Ctx>,
    ) -> Result<()> {
        head::announce_connection(session.req_header(), request);
        self.prepare_upstream_request(request, ctx)
    }

    async fn request_body_filter(
        &self,
        _session: &mut EngineSession,
        body: &mut Option<Bytes>,
        end: bool,
        ctx: &mut Box<Ctx>,
    ) -> Result<()> {
        self.filter_body(body, end, ctx)
    }

    async fn upstream_response_filter(
        &self,
        _session: &mut EngineSession,
        response: &mut ResponseHeader,
        ctx: &mut Box<Ctx>,
    ) -> Result<()> {
        self.note_upstream_head(response, ctx)
    }

    fn response_filter<'g, 's, 'r, 'c, 'f>(
        &'g self,
        session: &'s mut EngineSession,
        response: &'r mut ResponseHeader,
        ctx: &'c mut Box<Ctx>,
    ) -> Step<'f, Result<()>>
    where
        'g: 'f,
        's: 'f,
        'r: 'f,
        'c: 'f,
        Self: 'f,
    {
        Box::pin(self.filter_head(session.as_downstream_mut(), response, ctx))
    }

    fn response_body_filter(
        &self,
        session: &mut EngineSession,
        body: &mut Option<Bytes>,
        end: bool,
        ctx: &mut Box<Ctx>,
    ) -> Result<Option<Duration>> {
        self.filter_piece(session.as_downstream(), body, end, ctx)?;
        Ok(None)
    }

    /// Gives out what filters of bodies have held back.
    async fn response_trailer_filter(
        &self,
        _session: &mut EngineSession,
        trailers: &mut HeaderMap,
        ctx: &mut Box<Ctx>,
    ) -> Result<Option<Bytes>> {
        Ok(ctx.body_filters.rest(trailers))
    }

    fn error_while_proxy(
        &self,
        peer: &HttpPeer,
        session: &mut EngineSession,
        error: Box<Error>,
        ctx: &mut Box<Ctx>,
        reused: bool,
    ) -> Box<Error> {
        self.note_failed_try(session.as_downstream_mut(), peer, error, ctx, reused)
    }

    fn fail_to_connect(
        &self,
        session: &mut EngineSession,
        _peer: &HttpPeer,
        ctx: &mut Box<Ctx>,
        error: Box<Error>,
    ) -> Box<Error> {
        self.note_failed_connection(session.as_downstream_mut(), ctx, error)
    }

    async fn fail_to_proxy(
        &self,
        session: &mut EngineSession,
        error: &Error,
        ctx: &mut Box<Ctx>,
    ) -> FailToProxy {
        FailToProxy {
            error_code: self
                .answer_failure(session.as_downstream_mut(), error, ctx, false)
                .await,
            can_reuse_downstream: false,
        }
    }

    fn suppress_error_log(&self, _session: &EngineSession, _ctx: &Box<Ctx>, error: &Error) -> bool {
        failure::is_clients(error)
    }

    /// What the engine logs of a failed request: no query, it may hold a token.
    fn request_summary(&self, session: &EngineSession, ctx: &Box<Ctx>) -> String {
        failure::summary(session.as_downstream(), ctx)
    }

    fn persist_connection_context(
        &self,
        _session: &EngineSession,
        ctx: &Box<Ctx>,
    ) -> Option<Box<dyn Any + Send + Sync>> {
        let connection = ctx.connection.clone()?;
        Some(Box::new(connection))
    }

    fn on_connection_reuse(
        &self,
        _session: &mut EngineSession,
        ctx: &mut Box<Ctx>,
        previous: Box<dyn Any + Send + Sync>,
    ) {
        match previous.downcast::<DecidedRequest>() {
            Ok(decided) => *ctx = decided.0,
            Err(other) => {
                ctx.connection = other.downcast::<Arc<Connection>>().ok().map(|c| *c);
            }
        }
    }

    fn logging<'g, 's, 'e, 'c, 'f>(
        &'g self,
        session: &'s mut EngineSession,
        error: Option<&'e Error>,
        ctx: &'c mut Box<Ctx>,
    ) -> Step<'f, ()>
    where
        'g: 'f,
        's: 'f,
        'e: 'f,
        'c: 'f,
        Self: 'f,
    {
        Box::pin(self.end(session.as_downstream_mut(), error, ctx))
    }
}
