//! The steps of [`Gateway`] as the engine calls them.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::prelude::{Error, HttpPeer};
use pingora::proxy::{FailToProxy, ProxyHttp, Session};
use pingora::{ErrorSource, Result};

use super::context::{Ctx, DecidedRequest};
use super::proxy::Gateway;
use super::{log_phase, observe};
use doorward_net::http::framing;
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
        session: &'s mut Session,
        ctx: &'c mut Box<Ctx>,
    ) -> Step<'f, Result<bool>>
    where
        'g: 'f,
        's: 'f,
        'c: 'f,
        Self: 'f,
    {
        Box::pin(self.filter_request(session, ctx))
    }

    fn upstream_peer<'g, 's, 'c, 'f>(
        &'g self,
        session: &'s mut Session,
        ctx: &'c mut Box<Ctx>,
    ) -> Step<'f, Result<Box<HttpPeer>>>
    where
        'g: 'f,
        's: 'f,
        'c: 'f,
        Self: 'f,
    {
        Box::pin(self.choose_peer(session, ctx))
    }

    async fn upstream_request_filter(
        &self,
        _session: &mut Session,
        request: &mut RequestHeader,
        ctx: &mut Box<Ctx>,
    ) -> Result<()> {
        self.prepare_upstream_request(request, ctx)
    }

    async fn request_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        ctx: &mut Box<Ctx>,
    ) -> Result<()> {
        self.filter_body(body, end, ctx)
    }

    async fn upstream_response_filter(
        &self,
        _session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut Box<Ctx>,
    ) -> Result<()> {
        self.note_upstream_head(response, ctx);
        Ok(())
    }

    fn response_filter<'g, 's, 'r, 'c, 'f>(
        &'g self,
        session: &'s mut Session,
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
        Box::pin(self.filter_head(session, response, ctx))
    }

    fn response_body_filter(
        &self,
        session: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        ctx: &mut Box<Ctx>,
    ) -> Result<Option<Duration>> {
        self.filter_piece(session, body, end, ctx)?;
        Ok(None)
    }

    /// Gives out what filters of bodies have held back.
    async fn response_trailer_filter(
        &self,
        _session: &mut Session,
        trailers: &mut HeaderMap,
        ctx: &mut Box<Ctx>,
    ) -> Result<Option<Bytes>> {
        Ok(ctx.body_filters.rest(trailers))
    }

    fn error_while_proxy(
        &self,
        peer: &HttpPeer,
        session: &mut Session,
        error: Box<Error>,
        ctx: &mut Box<Ctx>,
        reused: bool,
    ) -> Box<Error> {
        let error = error.more_context(format!("Peer: {peer}"));
        let error = self.on_proxy_error(session, error, ctx, reused);
        log_phase::note_failure(ctx, &error);
        error
    }

    fn fail_to_connect(
        &self,
        session: &mut Session,
        _peer: &HttpPeer,
        ctx: &mut Box<Ctx>,
        error: Box<Error>,
    ) -> Box<Error> {
        log_phase::note_failure(ctx, &error);
        self.on_connect_error(session, ctx, error)
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        ctx: &mut Box<Ctx>,
    ) -> FailToProxy {
        let given_up = |code| FailToProxy {
            error_code: code,
            can_reuse_downstream: false,
        };
        let broken = *error.esource() == ErrorSource::Downstream
            && framing::is_broken(session.as_downstream());
        let failure = if broken {
            Some((StatusCode::BAD_REQUEST, "Invalid chunked coding".into()))
        } else {
            observe::failure(error)
        };
        let Some((status, message)) = failure else {
            return given_up(0);
        };
        if session.response_written().is_some() {
            return given_up(status.as_u16());
        }
        let form = (self.settings.error_default_type, ctx.request_id.as_ref());
        let reply = observe::engine_reply(status, message, session.req_header(), form);
        session.set_keepalive(None);
        match self.reply(session, ctx, reply).await {
            Ok(()) => ctx.answered = true,
            Err(error) => tracing::debug!(%error, "error answer not written"),
        }
        given_up(status.as_u16())
    }

    fn suppress_error_log(&self, _session: &Session, _ctx: &Box<Ctx>, error: &Error) -> bool {
        // Clients leave all the time; the access log shows that they did.
        // So does whose fault it is that a body is too long.
        *error.esource() == ErrorSource::Downstream || observe::is_too_large(error)
    }

    /// What the engine logs of a failed request: no query, it may hold a token.
    fn request_summary(&self, session: &Session, ctx: &Box<Ctx>) -> String {
        let request = session.req_header();
        format!("{} {}", request.method, ctx.path(request))
    }

    fn persist_connection_context(
        &self,
        _session: &Session,
        ctx: &Box<Ctx>,
    ) -> Option<Box<dyn Any + Send + Sync>> {
        let connection = ctx.connection.clone()?;
        Some(Box::new(connection))
    }

    fn on_connection_reuse(
        &self,
        _session: &mut Session,
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
        session: &'s mut Session,
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
        Box::pin(self.end(session, error, ctx))
    }
}
