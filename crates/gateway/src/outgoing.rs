//! Heads as they leave: the request's for the upstream, the answer's for the
//! client.

use std::time::Instant;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version, header, request};
use pingora::Result;
use pingora::http::{RequestHeader, ResponseHeader};

use super::answer::{X_KONG_PROXY_LATENCY, X_KONG_REQUEST_ID, X_KONG_UPSTREAM_LATENCY, via};
use super::context::Ctx;
use super::forward::ForwardingRules;
use super::head::HeadFields;
use super::own_headers::OwnHeaders;
use super::peer::Dialer;
use super::proxy::Gateway;
use super::{client_certificate, forward, head, observe};
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::session::Session;

impl Gateway {
    /// Turns the client's request into the upstream's.
    pub(super) fn forward_head(&self, request: &mut RequestHeader, ctx: &Ctx) -> Result<()> {
        if ctx.service().is_none() || ctx.connection.is_none() {
            return Ok(());
        }
        let mut request = UpstreamRequest::new(request);
        self.prepare_head(&mut request, ctx)?;
        for link in ctx.filters() {
            link.filter.on_upstream_request(&ctx.exchange, &mut request);
        }
        if let Some(body) = &ctx.exchange.replacement {
            announce(request.fields(), body.len());
        }
        if ctx.exchange.decoder.is_some() {
            announce_unknown(request.parts_mut());
        }
        Ok(())
    }

    /// The same, but for what the filters of an entity's route write.
    pub(super) fn prepare_head(&self, request: &mut UpstreamRequest<'_>, ctx: &Ctx) -> Result<()> {
        let (Some(service), Some(connection)) = (ctx.service(), &ctx.connection) else {
            return Ok(());
        };
        let fields = HeadFields::of(&request.headers);
        let uri = request.uri.clone();
        let (rules, path) = match (&ctx.route, &ctx.journey) {
            (Some(route), _) => {
                let path = ctx.path.as_deref().unwrap_or(uri.path());
                let mut rules = ForwardingRules::of(route, service);
                rules.strip_path &= !ctx.exchange.whole_path;
                (rules, path)
            }
            (None, Some(journey)) => (ForwardingRules::plain(journey.owned_headers()), uri.path()),
            (None, None) => return Ok(()),
        };
        let origin = ctx.origin(connection, path, service, &self.settings);
        let http2 = service.dialer.as_ref().is_some_and(Dialer::is_http2);
        if fields.has(HeadFields::TRAILER) && !(http2 && ctx.is_http2()) {
            // No trailers follow, so none are to be waited for.
            request.remove(&header::TRAILER);
        }
        forward::prepare(request.parts_mut(), fields, &rules, &origin)?;
        if self.settings.forward_certificates {
            client_certificate::forward(&ctx.exchange, request.fields());
        } else if self.settings.client_certificates {
            client_certificate::strip(request.fields());
        }
        if let Some(journey) = &ctx.journey {
            journey.forward(&ctx.exchange, request);
        }
        Ok(())
    }
}

/// Says how long the body is that takes the place of the client's.
fn announce(fields: &mut HeaderMap, length: usize) {
    fields.remove(header::TRANSFER_ENCODING);
    // The client has been told to go on, or has nothing to wait for.
    fields.remove(header::EXPECT);
    fields.remove(header::TRAILER);
    fields.insert(header::CONTENT_LENGTH, length.into());
}

/// Says that nobody knows how long the body is that the upstream gets.
fn announce_unknown(request: &mut request::Parts) {
    let framed = request.headers.remove(header::CONTENT_LENGTH).is_some();
    if framed && request.version < Version::HTTP_2 {
        let chunked = HeaderValue::from_static("chunked");
        request.headers.insert(header::TRANSFER_ENCODING, chunked);
    }
}

const X_KONG_UPSTREAM_STATUS: HeaderName = HeaderName::from_static("x-kong-upstream-status");

/// Most fields that the gateway adds to a response.
const OWN_FIELDS: usize = 6;
/// Fields that the engine adds: `Date` and `Connection`.
const ENGINE_FIELDS: usize = 2;

/// Adds the gateway's and the filters' headers to a response, of which `fields` are
/// those that it has come with.
pub(super) fn finish_head(
    session: &mut Session,
    response: &mut ResponseHeader,
    fields: HeadFields,
    ctx: &mut Ctx,
    now: Instant,
) -> Result<()> {
    let total = now - ctx.started;
    let upstream = ctx.upstream_time.unwrap_or_default();
    let own = total.saturating_sub(upstream);
    let (mut parts, reason) = head::take_response(response);
    let http2 = parts.version == Version::HTTP_2;
    let via = via(parts.version);
    let status = parts.status.as_u16();
    // The gateway's version, whatever the upstream speaks (RFC 9112 §2.3).
    parts.version = Version::HTTP_11;
    let headers = &mut parts.headers;
    if fields.has(HeadFields::CONNECTION) {
        head::strip_nominated(headers, parts.status);
    }
    if fields.has(HeadFields::LENGTHS) {
        head::unify_length(headers);
    }
    if parts.status == StatusCode::NO_CONTENT {
        // It has no body to speak of (RFC 9110 §8.6, RFC 9112 §6.1).
        headers.remove(header::CONTENT_LENGTH);
        headers.remove(header::TRANSFER_ENCODING);
    }
    if fields.has(HeadFields::TRAILER) && !(http2 && ctx.is_http2()) {
        // Trailers pass from HTTP/2 to HTTP/2 only (RFC 9110 §6.5.1).
        headers.remove(header::TRAILER);
    }
    if fields.has(HeadFields::PROXY_AUTHENTICATE) {
        // The challenge is to this proxy, not to clients (RFC 9110 §11.7.1).
        headers.remove(header::PROXY_AUTHENTICATE);
    }
    // One growth of the map: for what follows, and for what the engine adds.
    let queued = ctx.exchange.response_headers.len();
    let past = queued > 0 && !parts.status.is_informational() && !ctx.reads_heads();
    headers.reserve(OWN_FIELDS + ENGINE_FIELDS + if past { 0 } else { queued });
    if ctx.shown.has(OwnHeaders::VIA) {
        headers.append(header::VIA, via);
    }
    if ctx.shown.has(OwnHeaders::UPSTREAM_LATENCY) {
        headers.insert(X_KONG_UPSTREAM_LATENCY, observe::whole_millis(upstream));
    }
    if ctx.shown.has(OwnHeaders::PROXY_LATENCY) {
        headers.insert(X_KONG_PROXY_LATENCY, observe::whole_millis(own));
    }
    if ctx.shown.has(OwnHeaders::UPSTREAM_STATUS) {
        headers.insert(X_KONG_UPSTREAM_STATUS, status.into());
    }
    if let Some(id) = &ctx.request_id
        && ctx.shown.has(OwnHeaders::REQUEST_ID)
    {
        headers.insert(X_KONG_REQUEST_ID, id.clone());
    }
    let queue = &mut ctx.exchange.response_headers;
    if past && are_new(queue, headers) {
        session.take_fields(queue);
    }
    for (name, value) in &*queue {
        headers.append(name.clone(), value.clone());
    }
    if let Some(hsts) = &ctx.hsts {
        // Of several, browsers take the first (RFC 6797 §8.1).
        headers.insert(header::STRICT_TRANSPORT_SECURITY, hsts.clone());
    }
    *response = ResponseHeader::from(parts);
    if let Some(reason) = reason {
        response.set_reason_phrase(Some(&reason))?;
    }
    for link in ctx.filters() {
        let request = session.req_header();
        link.filter.on_response_to(request, &ctx.exchange, response);
    }
    Ok(())
}

/// Whether each of `fields` has a name that no other one of them has, and none in
/// `headers`.
fn are_new(fields: &[(HeaderName, HeaderValue)], headers: &HeaderMap) -> bool {
    // Few names are as long as one of these.
    let bit = |name: &HeaderName| 1_u64 << (name.as_str().len() & 63);
    let has = |fields: &[(HeaderName, HeaderValue)], name| fields.iter().any(|(of, _)| of == name);
    let mut lengths = 0;
    for (at, (name, _)) in fields.iter().enumerate() {
        if lengths & bit(name) != 0 && has(&fields[..at], name) {
            return false;
        }
        lengths |= bit(name);
    }
    !headers
        .keys()
        .any(|name| lengths & bit(name) != 0 && has(fields, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_another_field_has_is_not_new() {
        let mut headers = HeaderMap::new();
        headers.insert("x-there", HeaderValue::from_static("1"));
        let new = |names: &[&'static str]| {
            let value = HeaderValue::from_static("2");
            let fields = names.iter().map(|name| HeaderName::from_static(name));
            let fields: Vec<_> = fields.map(|name| (name, value.clone())).collect();
            are_new(&fields, &headers)
        };
        assert!(new(&["x-other", "x-one-more", "x-alike", "x-third"]));
        assert!(!new(&["x-one-more", "x-there"]), "the head has it");
        assert!(
            !new(&["x-other", "x-one-more", "x-other"]),
            "it is told twice"
        );
    }
}
