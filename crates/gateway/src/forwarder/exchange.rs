//! One plain request, from its head to its last byte.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pingora::prelude::Error;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use pingora::upstreams::peer::Peer as _;

use super::pool::PoolKey;
use super::relay::Relayed;
use super::timer::Timer;
use super::upstream::UpstreamSession;
use super::{Forwarder, Idle};
use crate::context::Ctx;
use crate::failure;
use crate::peer::{Dialer, IDLE};
use crate::tries::MAX_TRIES;
use doorward_net::http::session::RelaySession;
use doorward_net::telemetry::connections::Connection;

/// How much earlier than its upstream a connection is closed.
const MARGIN: Duration = Duration::from_secs(1);

/// What became of a request, or of a try.
struct Outcome {
    /// Whether the client's connection may have another one.
    keep: bool,
    error: Option<Box<Error>>,
}

impl Outcome {
    fn failed(error: Box<Error>) -> Self {
        Self {
            keep: false,
            error: Some(error),
        }
    }
}

impl Forwarder {
    /// Serves the plain request that was taken from a connection.
    pub(super) async fn serve_plain(
        &self,
        mut idle: Box<Idle>,
        shutdown: &ShutdownWatch,
    ) -> Option<Box<Idle>> {
        let mut ctx = Box::new(Ctx::new());
        ctx.connection = idle.connection.take();
        idle.settings = None;
        let Idle { session, timer, .. } = &mut *idle;
        let Some(outcome) = self.answer(session, &mut ctx, timer).await else {
            let next = Box::pin(self.hand_over(idle.session, ctx, shutdown)).await;
            return next.map(Box::new);
        };
        idle.connection = ctx.connection.take();
        drop(ctx);
        (outcome.keep && idle.session.finish().await).then_some(idle)
    }

    /// Serves a stream of HTTP/2 with a plain request; `connection` is what its streams
    /// share.
    pub(super) async fn serve_stream(
        &self,
        stream: ServerSession,
        connection: &OnceLock<Arc<Connection>>,
        shutdown: &ShutdownWatch,
    ) {
        let (mut stream, mut timer) = (stream, Timer::default());
        let mut ctx = Box::new(Ctx::new());
        ctx.connection = connection.get().cloned();
        let answered = self.answer(&mut stream, &mut ctx, &mut timer).await;
        if let Some(known) = &ctx.connection {
            connection.get_or_init(|| known.clone());
        }
        match answered {
            None => Box::pin(self.hand_over_stream(stream, ctx, shutdown)).await,
            Some(outcome) if outcome.keep => {
                // A stream that is gone needs no end.
                let _ = stream.finish_body().await;
            }
            // An answer that was not whole is reset: INTERNAL_ERROR says who broke it off.
            Some(_) => stream.shutdown().await,
        }
    }

    /// Decides a request, and answers it or forwards it; nothing where the engine is to
    /// forward it.
    async fn answer<S: RelaySession>(
        &self,
        session: &mut S,
        ctx: &mut Box<Ctx>,
        timer: &mut Timer,
    ) -> Option<Outcome> {
        let outcome = match self.gateway.filter_request(session, ctx).await {
            Ok(true) => Outcome {
                keep: true,
                error: None,
            },
            // A body that was not gathered is sent while it comes: the engine does that.
            Ok(false) if speaks_http1(ctx) && session.is_body_done() => {
                self.forward(session, ctx, timer).await
            }
            Ok(false) => return None,
            Err(error) => {
                let keep = Box::pin(self.fail(session, ctx, &error, None)).await;
                Outcome {
                    keep,
                    error: Some(error),
                }
            }
        };
        let error = outcome.error.as_deref();
        self.gateway.end(session, error, ctx).await;
        Some(outcome)
    }

    /// Tries upstreams until one has answered, or none is left to try.
    async fn forward<S: RelaySession>(
        &self,
        session: &mut S,
        ctx: &mut Box<Ctx>,
        timer: &mut Timer,
    ) -> Outcome {
        let mut tries = 0;
        loop {
            tries += 1;
            let mut outcome = self.try_upstream(session, ctx, timer).await;
            let Some(error) = &outcome.error else {
                return outcome;
            };
            if error.retry() && tries < MAX_TRIES {
                let request = failure::summary(session, ctx);
                log::warn!("Fail to proxy: {error}, tries: {tries}, retry: true, {request}");
                continue;
            }
            outcome.keep = Box::pin(self.fail(session, ctx, error, Some(tries))).await;
            return outcome;
        }
    }

    /// One try.
    async fn try_upstream<S: RelaySession>(
        &self,
        session: &mut S,
        ctx: &mut Box<Ctx>,
        timer: &mut Timer,
    ) -> Outcome {
        let mut peer = match self.gateway.choose_peer(session, ctx).await {
            Ok(peer) => peer,
            Err(error) => return Outcome::failed(error),
        };
        let key = PoolKey::of(&peer);
        let (stream, reused) = match self.pool.take(key) {
            Some(stream) => (stream, true),
            None => match Box::pin(self.connector.new_stream(&*peer)).await {
                Ok(stream) => (stream, false),
                Err(error) => {
                    let error = error.into_up();
                    let error = self.gateway.note_failed_connection(session, ctx, error);
                    return Outcome::failed(error.into_up());
                }
            },
        };
        // What connects is not needed for as long as the answer lasts.
        peer.options.custom_l4 = None;
        let mut upstream = UpstreamSession::new(stream, &peer, timer);
        let Relayed {
            keep_client,
            keep_upstream,
            error,
        } = self.relay(session, &mut upstream, ctx).await;
        if keep_upstream && let Some((stream, its)) = upstream.finish() {
            let ours = peer.idle_timeout().unwrap_or(IDLE);
            self.pool.put(key, stream, idle(ours, its));
        }
        let error = error.map(|error| {
            self.gateway
                .note_failed_try(session, &peer, error, ctx, reused)
        });
        Outcome {
            keep: keep_client,
            error,
        }
    }

    /// Answers a request that failed after so many tries, and says so in the log of the
    /// process, in the engine's words. Whether the client's connection may have another
    /// one: this one was read to its end, and got a whole answer.
    async fn fail<S: RelaySession>(
        &self,
        session: &mut S,
        ctx: &mut Box<Ctx>,
        error: &Error,
        tries: Option<usize>,
    ) -> bool {
        let is_ours = !failure::is_clients(error);
        let clean = is_ours && session.is_body_done() && session.answer_written().is_none();
        let status = self
            .gateway
            .answer_failure(session, error, ctx, clean)
            .await;
        if !is_ours {
            return false;
        }
        let request = failure::summary(session, ctx);
        match tries {
            Some(tries) => log::error!(
                "Fail to proxy: {error}, status: {status}, tries: {tries}, retry: false, {request}"
            ),
            None => log::error!("Fail to filter request: {error}, status: {status}, {request}"),
        }
        clean && ctx.answered
    }
}

/// For how long a connection may be idle: less than the upstream keeps it, so that we are
/// the side that closes it.
fn idle(ours: Duration, its: Option<Duration>) -> Duration {
    its.map_or(ours, |its| ours.min(its.saturating_sub(MARGIN)))
}

/// Whether the request's upstream is asked in HTTP/1.1.
fn speaks_http1(ctx: &Ctx) -> bool {
    let dialer = ctx.service().and_then(|service| service.dialer.as_ref());
    !dialer.is_some_and(Dialer::is_http2)
}
