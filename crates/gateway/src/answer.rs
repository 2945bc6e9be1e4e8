//! Answers that the gateway makes itself.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version, header};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::prelude::{ErrorType, OrErr};
use serde_json::Value;

use super::edge::error_pages::ErrorPages;
use super::head;
use super::observe::millis;
use super::own_headers::{DefaultType, OwnHeaders};
use doorward_net::http::form;
use doorward_net::http::quality;
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_net::http::session::Session;

/// Product token in `Server` and `Via`.
pub(super) const SERVER: &str = concat!("doorward/", env!("CARGO_PKG_VERSION"));
/// `Via` of a proxied message that came in this version (RFC 9110 §7.6.3).
pub(super) fn via(version: Version) -> HeaderValue {
    HeaderValue::from_static(match version {
        Version::HTTP_2 => concat!("2 doorward/", env!("CARGO_PKG_VERSION")),
        Version::HTTP_10 => concat!("1.0 doorward/", env!("CARGO_PKG_VERSION")),
        _ => concat!("1.1 doorward/", env!("CARGO_PKG_VERSION")),
    })
}

/// How long the upstream had a request, in milliseconds.
pub(super) const X_KONG_UPSTREAM_LATENCY: HeaderName =
    HeaderName::from_static("x-kong-upstream-latency");
/// How long the gateway had a request, in milliseconds.
pub(super) const X_KONG_PROXY_LATENCY: HeaderName = HeaderName::from_static("x-kong-proxy-latency");

/// How long the gateway had a request that it answers itself, in milliseconds.
const X_KONG_RESPONSE_LATENCY: HeaderName = HeaderName::from_static("x-kong-response-latency");
/// The identifier of a request.
pub(super) const X_KONG_REQUEST_ID: HeaderName = HeaderName::from_static("x-kong-request-id");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// The type of pages.
const HTML: &str = "text/html; charset=utf-8";
/// Most fields of an answer but for those of the reply and of filters.
const FIELDS: usize = 11;

/// What the gateway adds to an answer of its own.
pub(super) struct Additions<'a> {
    /// Headers that filters have set.
    pub(super) headers: &'a [(HeaderName, HeaderValue)],
    /// Identifier of the request, if it is to be shown.
    pub(super) request_id: Option<&'a HeaderValue>,
    /// Time spent so far, in milliseconds.
    pub(super) latency_ms: u64,
    /// The part of it that went by at upstreams, where one was tried.
    pub(super) upstream_ms: Option<u64>,
    /// `Strict-Transport-Security`, where it is to be told.
    pub(super) hsts: Option<&'a HeaderValue>,
    /// Pages in the place of messages.
    pub(super) pages: Option<&'static ErrorPages>,
    /// Which of its own headers the gateway shows.
    pub(super) shown: OwnHeaders,
}

/// Head and body of `reply` to `request`.
pub(super) fn compose(
    reply: Reply,
    request: &RequestHeader,
    additions: &Additions<'_>,
) -> pingora::Result<(ResponseHeader, Bytes)> {
    if is_grpc(request) {
        return Ok((grpc_head(reply, additions)?, Bytes::new()));
    }
    let id = additions.request_id.and_then(|id| id.to_str().ok());
    let id = id.filter(|_| reply.status.as_u16() >= 400);
    let page = additions.pages.and_then(|pages| pages.find(reply.status));
    let is_announced = request.method == http::Method::HEAD && reply.announces_length();
    let (content_type, body) = match (&reply.body, page) {
        (ReplyBody::Message(message), Some(page)) if prefers_html(&request.headers) => {
            (Some(HTML), page.render(reply.status, message, id))
        }
        _ => render(reply.body, &request.headers, id),
    };
    // Room for all fields at once, those of the engine among them.
    let mut headers =
        HeaderMap::with_capacity(FIELDS + reply.headers.len() + additions.headers.len());
    if let Some(content_type) = content_type {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    if has_length(reply.status) && !(is_announced && body.is_empty()) {
        headers.insert(header::CONTENT_LENGTH, body.len().into());
    }
    if additions.shown.has(OwnHeaders::SERVER) {
        headers.insert(header::SERVER, HeaderValue::from_static(SERVER));
    }
    for (name, value) in reply.headers {
        if name == header::SERVER {
            headers.insert(name, value);
        } else {
            headers.append(name, value);
        }
    }
    add(&mut headers, additions);
    let mut head = head::response(reply.status, headers);
    if let Some(reason) = reply.reason {
        head.set_reason_phrase(Some(&reason))?;
    }
    Ok((head, body))
}

/// Writes what [`compose`] made. A failure is the client's: it has left.
pub(super) async fn write(
    session: &mut Session,
    head: ResponseHeader,
    body: Bytes,
) -> pingora::Result<()> {
    let written = write_to_client(session, head, body).await;
    written.map_err(|error| error.into_down())
}

async fn write_to_client(
    session: &mut Session,
    head: ResponseHeader,
    body: Bytes,
) -> pingora::Result<()> {
    let head = Box::new(head);
    if is_grpc(session.req_header()) && session.is_http2() {
        // A stream that ends with anything but this head has no status.
        return session.write_only_header(head).await;
    }
    let empty = body.is_empty()
        || !has_length(head.status)
        || session.req_header().method == http::Method::HEAD;
    session.write_response_header(head).await?;
    if !empty {
        session.write_response_body(body, true).await?;
    }
    Ok(())
}

/// Writes `reply`.
pub(super) async fn send(
    session: &mut Session,
    reply: Reply,
    additions: &Additions<'_>,
) -> pingora::Result<()> {
    let (head, body) = compose(reply, session.req_header(), additions)?;
    write(session, head, body).await
}

/// Whether an answer with this status can have a body, and says how long it
/// is (RFC 9110 §8.6).
fn has_length(status: StatusCode) -> bool {
    status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED
}

fn add(headers: &mut HeaderMap, additions: &Additions<'_>) {
    for (name, value) in additions.headers {
        headers.append(name.clone(), value.clone());
    }
    if let Some(hsts) = additions.hsts {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, hsts.clone());
    }
    let shown = |one| additions.shown.has(one);
    if additions.upstream_ms.is_none() && shown(OwnHeaders::RESPONSE_LATENCY) {
        headers.insert(X_KONG_RESPONSE_LATENCY, millis(additions.latency_ms));
    }
    // Where an upstream was asked, the time is told in its two parts.
    if let Some(upstream_ms) = additions.upstream_ms {
        let own = additions.latency_ms.saturating_sub(upstream_ms);
        if shown(OwnHeaders::UPSTREAM_LATENCY) {
            headers.insert(X_KONG_UPSTREAM_LATENCY, millis(upstream_ms));
        }
        if shown(OwnHeaders::PROXY_LATENCY) {
            headers.insert(X_KONG_PROXY_LATENCY, millis(own));
        }
    }
    if let Some(id) = additions
        .request_id
        .filter(|_| shown(OwnHeaders::REQUEST_ID))
    {
        headers.insert(X_KONG_REQUEST_ID, id.clone());
    }
}

/// Whether whoever asks understands gRPC only.
fn is_grpc(request: &RequestHeader) -> bool {
    request.version == Version::HTTP_2 && form::is_grpc(&request.headers)
}

/// An answer without a message: the status of gRPC is all there is, in what
/// would be the trailers.
fn grpc_head(reply: Reply, additions: &Additions<'_>) -> pingora::Result<ResponseHeader> {
    let mut headers = HeaderMap::with_capacity(FIELDS + reply.headers.len());
    for (name, value) in reply.headers {
        headers.append(name, value);
    }
    add(&mut headers, additions);
    // Those of a connection don't exist in HTTP/2.
    headers.remove(header::CONNECTION);
    headers.remove(header::UPGRADE);
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    if additions.shown.has(OwnHeaders::SERVER) {
        headers.insert(header::SERVER, HeaderValue::from_static(SERVER));
    }
    headers.insert(GRPC_STATUS, grpc_status(reply.status).into());
    let reason = || reply.status.canonical_reason().unwrap_or("").to_owned();
    let message = message_of(&reply.body).unwrap_or_else(reason);
    let message = HeaderValue::try_from(percent_encoded(&message))
        .or_err(ErrorType::InvalidHTTPHeader, "the message of gRPC")?;
    headers.insert(GRPC_MESSAGE, message);
    Ok(head::response(StatusCode::OK, headers))
}

/// Longest message of a body, in bytes.
const MESSAGE_MAX: usize = 1024;

/// The message of a body: the member `message` of an object, or else a short text that is
/// no page.
fn message_of(body: &ReplyBody) -> Option<String> {
    let body = match body {
        ReplyBody::Empty => return None,
        ReplyBody::Message(message) => return Some(message.clone().into_owned()),
        ReplyBody::Raw(_, body) | ReplyBody::Own(body) => body,
    };
    match serde_json::from_slice(body) {
        Ok(Value::Object(mut members)) => match members.remove("message")? {
            Value::String(message) if message.len() <= MESSAGE_MAX => Some(message),
            _ => None,
        },
        _ => {
            let text = std::str::from_utf8(body).ok()?;
            let is_message = (1..=MESSAGE_MAX).contains(&text.len()) && !text.starts_with('<');
            is_message.then(|| text.to_owned())
        }
    }
}

/// What a status is in gRPC, as the imitated gateway has it; what it leaves
/// open is a thing that may pass.
fn grpc_status(status: StatusCode) -> u16 {
    match status.as_u16() {
        200 => 0,
        499 => 1,
        400 => 3,
        408 | 504 => 4,
        404 => 5,
        409 => 6,
        403 => 7,
        413 | 429 => 8,
        501 => 12,
        500 => 13,
        502 | 503 => 14,
        401 => 16,
        _ => 2,
    }
}

fn percent_encoded(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The body and its type; a message says which request it is about.
fn render(
    body: ReplyBody,
    asked: &HeaderMap,
    request_id: Option<&str>,
) -> (Option<&'static str>, Bytes) {
    let message = match body {
        ReplyBody::Empty => return (None, Bytes::new()),
        ReplyBody::Raw(content_type, bytes) => return (Some(content_type), bytes),
        ReplyBody::Own(bytes) => return (None, bytes),
        ReplyBody::Message(message) => message,
    };
    let (content_type, body) = Format::wanted(asked).render(&message, request_id);
    (Some(content_type), body)
}

/// A message in the form that clients get who name none, as [`ReplyBody::Raw`].
pub(super) fn unasked(
    form: DefaultType,
    message: &str,
    request_id: Option<&HeaderValue>,
) -> ReplyBody {
    let format = match form {
        DefaultType::Plain => Format::Plain,
        DefaultType::Html => Format::Html,
        DefaultType::Json => Format::Json,
        DefaultType::Xml => Format::Xml,
    };
    let id = request_id.and_then(|id| id.to_str().ok());
    let (content_type, body) = format.render(message, id);
    ReplyBody::Raw(content_type, body)
}

/// As `{"message":…,"request_id":…}`. The identifier has only hexadecimal digits.
fn json(message: &str, request_id: Option<&str>) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 64);
    out.extend_from_slice(b"{\"message\":");
    if serde_json::to_writer(&mut out, message).is_err() {
        return b"{\"message\":\"\"}".to_vec();
    }
    if let Some(id) = request_id {
        out.extend_from_slice(b",\"request_id\":\"");
        out.extend_from_slice(id.as_bytes());
        out.push(b'"');
    }
    out.push(b'}');
    out
}

/// `text` as HTML shows it, in an element or a quoted attribute.
pub fn escape(text: &str) -> Cow<'_, str> {
    if text.contains(['<', '>', '&', '"', '\'']) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let text = text.replace('>', "&gt;").replace('"', "&quot;");
        return Cow::Owned(text.replace('\'', "&#39;"));
    }
    Cow::Borrowed(text)
}

/// How a message is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Html,
    Xml,
    Plain,
}

impl Format {
    /// A message in this form, with the identifier of its request.
    fn render(self, message: &str, request_id: Option<&str>) -> (&'static str, Bytes) {
        let identified = |before: &str, after: &str| {
            request_id.map_or_else(String::new, |id| format!("{before}{id}{after}"))
        };
        match self {
            Format::Json => (
                "application/json; charset=utf-8",
                json(message, request_id).into(),
            ),
            Format::Html => (
                HTML,
                format!(
                    "<!doctype html>\n<html>\n  <head>\n    <meta charset=\"utf-8\">\n    <title>Error</title>\n  \
                     </head>\n  <body>\n    <h1>Error</h1>\n    <p>{}.</p>{}\n  </body>\n</html>\n",
                    escape(message),
                    identified("\n    <p>request_id: ", "</p>")
                )
                .into(),
            ),
            Format::Xml => (
                "application/xml; charset=utf-8",
                format!(
                    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<error>\n  <message>{}</message>{}\n</error>",
                    escape(message),
                    identified("\n  <requestid>", "</requestid>")
                )
                .into(),
            ),
            Format::Plain => (
                "text/plain; charset=utf-8",
                format!("{message}\n{}", identified("request_id: ", "\n")).into(),
            ),
        }
    }

    /// The format that the client likes best (RFC 9110 §12.5.1); JSON for
    /// those who say nothing or that anything will do.
    fn wanted(headers: &HeaderMap) -> Self {
        let Some(accept) = headers.get(header::ACCEPT) else {
            return Format::Json;
        };
        if accept == "*/*" || accept == "application/json" {
            return Format::Json;
        }
        let accept = accept.to_str().unwrap_or("");
        let mut best = (Format::Json, 0_u16);
        for part in accept.split(',').take(32) {
            let mut pieces = part.split(';').map(str::trim);
            let format = match pieces.next().unwrap_or("") {
                "application/json" | "*/*" | "application/*" => Format::Json,
                "text/html" | "application/xhtml+xml" => Format::Html,
                "application/xml" | "text/xml" => Format::Xml,
                "text/plain" | "text/*" => Format::Plain,
                _ => continue,
            };
            let quality = quality::weight(pieces);
            if quality > best.1 {
                best = (format, quality);
            }
        }
        best.0
    }
}

/// Whether the client would rather read a page than JSON: browsers do.
pub fn prefers_html(headers: &HeaderMap) -> bool {
    Format::wanted(headers) == Format::Html
}

/// The answer to a request that no route wants.
pub(super) fn no_route() -> Reply {
    Reply::message(StatusCode::NOT_FOUND, "no Route matched with those values")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(accept: &'static str) -> Format {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        Format::wanted(&headers)
    }

    #[test]
    fn the_accept_header_chooses_the_format() {
        assert_eq!(wanted("*/*"), Format::Json);
        assert_eq!(wanted("image/png"), Format::Json);
        assert_eq!(
            wanted("text/html,application/xml;q=0.9,*/*;q=0.8"),
            Format::Html
        );
        assert_eq!(wanted("text/plain;q=0.5, application/json"), Format::Json);
        assert_eq!(wanted("text/xml"), Format::Xml);
        assert_eq!(wanted("text/plain"), Format::Plain);
        assert_eq!(wanted("text/html;q=0"), Format::Json);
        assert_eq!(wanted("text/html;q=nonsense"), Format::Json);
    }

    #[test]
    fn a_grpc_message_is_what_a_body_says() {
        let own = |body: &'static str| message_of(&ReplyBody::Own(body.into()));
        assert_eq!(own(r#"{"message":"no way"}"#).as_deref(), Some("no way"));
        assert_eq!(own("raw body").as_deref(), Some("raw body"));
        for body in ["", r#"{"error":"x"}"#, r#"{"message":1}"#, "<html></html>"] {
            assert_eq!(own(body), None, "{body}");
        }
        let long = ReplyBody::Raw("text/plain", "x".repeat(MESSAGE_MAX + 1).into());
        assert_eq!(message_of(&long), None);
    }

    #[test]
    fn grpc_messages_are_percent_encoded() {
        assert_eq!(percent_encoded("50% \u{e4}\n"), "50%25 %C3%A4%0A");
    }

    #[test]
    fn markup_in_a_message_is_escaped() {
        assert_eq!(escape("<a href='x'>&"), "&lt;a href=&#39;x&#39;&gt;&amp;");
        assert_eq!(json("a\"b", None), br#"{"message":"a\"b"}"#);
    }

    #[test]
    fn every_form_of_a_message_names_the_request() {
        for (accept, named) in [
            ("*/*", r#"{"message":"no","request_id":"0a"}"#),
            ("text/plain", "no\nrequest_id: 0a\n"),
            ("text/html", "<p>no.</p>\n    <p>request_id: 0a</p>"),
            ("text/xml", "</message>\n  <requestid>0a</requestid>"),
        ] {
            let mut asked = HeaderMap::new();
            asked.insert(header::ACCEPT, HeaderValue::from_static(accept));
            let message = || ReplyBody::Message("no".into());
            let (_, body) = render(message(), &asked, Some("0a"));
            let text = String::from_utf8_lossy(&body);
            assert!(text.contains(named), "{accept}: {text}");
            let (_, body) = render(message(), &asked, None);
            assert!(
                !String::from_utf8_lossy(&body).contains("request"),
                "{accept}"
            );
        }
    }
}
