//! The request to the upstream, and its answer to the client.

use bytes::Bytes;
use http::{Uri, Version, header};
use pingora::Result;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::prelude::{Error, ErrorType, OrErr as _};
use pingora::protocols::http::HttpTask;
use pingora::protocols::http::authority::validate_request_authority;

use super::Forwarder;
use super::upstream::UpstreamSession;
use crate::context::Ctx;
use crate::head;
use doorward_net::http::session::RelaySession;

/// Up to so many bytes of a body, what has come of an answer is gathered before it is
/// written to the client.
const GATHERED: usize = 4 << 10;

/// How a try ended.
pub(super) struct Relayed {
    /// Whether the client's connection may have another request.
    pub(super) keep_client: bool,
    /// Whether the upstream's connection may have another request.
    pub(super) keep_upstream: bool,
    pub(super) error: Option<Box<Error>>,
}

impl Relayed {
    fn failed(keep_client: bool, keep_upstream: bool, error: Box<Error>) -> Self {
        Self {
            keep_client,
            keep_upstream,
            error: Some(error),
        }
    }
}

impl Forwarder {
    /// Sends the request over `upstream`, and its answer to the client.
    pub(super) async fn relay<S: RelaySession>(
        &self,
        session: &mut S,
        upstream: &mut UpstreamSession<'_>,
        ctx: &mut Box<Ctx>,
    ) -> Relayed {
        let (request, body) = match self.upstream_request(session, ctx) {
            Ok(request) => request,
            // Nothing was sent: the connection is as good as it was.
            Err(error) => return Relayed::failed(false, true, error),
        };
        let unsent = match upstream.send(&request, body).await {
            Ok(()) => None,
            // What can't be sent is no reason to lose an answer: it is told if none comes.
            Err(error) if *error.etype() == ErrorType::WriteError => {
                tracing::debug!(%error, "not all of the request could be sent");
                Some(error)
            }
            // Nothing was sent.
            Err(error) if *error.etype() == ErrorType::InternalError => {
                return Relayed::failed(false, true, error.into_in());
            }
            Err(error) => return Relayed::failed(false, false, error.into_up()),
        };
        // An answer may last long after its request.
        drop(request);
        let cut_off = unsent.is_some();
        match self.relay_answer(session, upstream, ctx, unsent).await {
            Ok(whole) => Relayed {
                keep_client: session.finish_body().await.is_ok(),
                keep_upstream: whole && !cut_off,
                error: None,
            },
            Err(error) => Relayed::failed(false, false, error),
        }
    }

    /// The head for the upstream, and the body that was gathered, or what filters make of
    /// it or put in its place.
    fn upstream_request<S: RelaySession>(
        &self,
        session: &mut S,
        ctx: &mut Box<Ctx>,
    ) -> Result<(Box<RequestHeader>, Option<Bytes>)> {
        let request = self.upstream_head(session, ctx)?;
        let mut body = session.get_retry_buffer();
        let others = ctx.exchange.replacement.is_some() || ctx.exchange.decoder.is_some();
        if body.is_some() || others {
            self.gateway.filter_body(&mut body, true, ctx)?;
        }
        Ok((request, body))
    }

    /// The head for the upstream.
    fn upstream_head<S: RelaySession>(
        &self,
        session: &mut S,
        ctx: &mut Box<Ctx>,
    ) -> Result<Box<RequestHeader>> {
        let mut request = Box::new(session.req_header().clone());
        if session.is_http2() {
            translate(&mut request)?;
        }
        request.set_version(Version::HTTP_11);
        // A plain request has no other field that is for one connection alone.
        request.remove_header(&header::CONNECTION);
        self.gateway.prepare_upstream_request(&mut request, ctx)?;
        if !request.headers.contains_key(header::HOST) {
            // A filter has taken it; HTTP/1.1 asks for one (RFC 9112 §3.2).
            request.insert_header(header::HOST, "")?;
        }
        validate_request_authority(&request).map_err(|error| error.into_in())?;
        Ok(request)
    }

    /// Hands the answer on, as much at a time as has come; whether the upstream's connection
    /// has been read to the end of it.
    async fn relay_answer<S: RelaySession>(
        &self,
        session: &mut S,
        upstream: &mut UpstreamSession<'_>,
        ctx: &mut Box<Ctx>,
        mut unsent: Option<Box<Error>>,
    ) -> Result<bool> {
        loop {
            let task = tokio::select! {
                biased;
                task = upstream.next() => {
                    task.map_err(|error| unsent.take().unwrap_or(error).into_up())?
                }
                left = session.left() => return Err(left.into_down()),
            };
            let mut whole = task.is_end();
            let is_interim = matches!(&task, HttpTask::Header(head, _)
                if head.status.is_informational());
            let mut gathered = length(&task);
            let task = self.filter_task(session, ctx, task).await?;
            let mut done = queue(session, task).await?;
            // What has come with it goes with it.
            while !whole
                && !is_interim
                && gathered < GATHERED
                && let Some(piece) = upstream.ready()
            {
                let piece = piece.unwrap_or_else(|error| HttpTask::Failed(error.into_up()));
                let failed = matches!(piece, HttpTask::Failed(_));
                whole = piece.is_end() && !failed;
                // Small ones count too: there may be no end of them.
                gathered += length(&piece).max(64);
                let piece = self.filter_task(session, ctx, piece).await?;
                done |= queue(session, piece).await?;
            }
            session.send().await.map_err(|error| error.into_down())?;
            if done || whole {
                return Ok(whole);
            }
        }
    }

    /// A part of the answer as the client gets it.
    async fn filter_task<S: RelaySession>(
        &self,
        session: &mut S,
        ctx: &mut Box<Ctx>,
        task: HttpTask,
    ) -> Result<HttpTask> {
        match task {
            HttpTask::Header(mut head, end) => {
                self.gateway.note_upstream_head(&head, ctx)?;
                if !end {
                    frame(&mut head)?;
                }
                self.gateway.filter_head(session, &mut head, ctx).await?;
                Ok(HttpTask::Header(head, end))
            }
            HttpTask::Body(mut piece, end) => {
                self.gateway.filter_piece(session, &mut piece, end, ctx)?;
                Ok(HttpTask::Body(piece, end))
            }
            task => Ok(task),
        }
    }
}

/// Gives a request of HTTP/2 the form that it has in HTTP/1.1: the authority is in `Host`
/// alone (RFC 9113 §8.3.1).
fn translate(request: &mut RequestHeader) -> Result<()> {
    let trailers = head::takes_trailers(request);
    request.remove_header(&header::TE);
    if trailers {
        // The one coding that goes on, said once.
        request.insert_header(header::TE, "trailers")?;
    }
    let mut target = request.uri.clone().into_parts();
    if let Some(authority) = target.authority.take() {
        request.insert_header(header::HOST, authority.as_str())?;
        target.scheme = None;
        let target = Uri::from_parts(target);
        request.set_uri(target.or_err(ErrorType::InvalidHTTPHeader, "no target of a request")?);
    }
    Ok(())
}

/// Puts a part of the answer behind what waits to be sent to the client; whether the
/// answer ends with it. Before a failure, what has come is sent.
async fn queue<S: RelaySession>(session: &mut S, task: HttpTask) -> Result<bool> {
    if let HttpTask::Failed(error) = task {
        session.send().await.map_err(|error| error.into_down())?;
        return Err(error);
    }
    session.queue(task).await.map_err(|error| error.into_down())
}

/// How many bytes of a body there are in `task`.
fn length(task: &HttpTask) -> usize {
    match task {
        HttpTask::Body(Some(piece), _) => piece.len(),
        _ => 0,
    }
}

/// Gives an answer whose end only the end of its connection tells the coding that
/// tells it, so that the client's connection can be kept. It is one that has a body.
fn frame(head: &mut ResponseHeader) -> Result<()> {
    let headers = &head.headers;
    let framed = headers.contains_key(header::TRANSFER_ENCODING)
        || headers.contains_key(header::CONTENT_LENGTH);
    if !head.status.is_informational() && !framed {
        head.set_version(Version::HTTP_11);
        head.insert_header(header::TRANSFER_ENCODING, "chunked")?;
    }
    Ok(())
}
