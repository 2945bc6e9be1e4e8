//! Answers that are written down in a route file.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};

use super::HandlerError;
use doorward_expr::{Expression, Scope, Value};
use doorward_net::http::reply::{Reply, ReplyBody};

/// A `StaticResponseHandler`.
#[derive(Debug)]
pub struct StaticResponse {
    status: StatusCode,
    reason: Option<Box<str>>,
    headers: Box<[(HeaderName, Source<HeaderValue>)]>,
    entity: Source<Bytes>,
}

/// What is the same for every request, or is evaluated for each.
#[derive(Debug)]
enum Source<T> {
    Fixed(T),
    Evaluated(Expression),
}

/// Headers that say where a message ends or concern one connection only: the
/// gateway writes them.
const FRAMING: [HeaderName; 7] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

impl StaticResponse {
    /// An answer with `status`; `reason` takes the place of the usual phrase.
    ///
    /// # Errors
    /// [`HandlerError`] for a status that is none of a final answer, a reason
    /// that is no text of one line, and headers that concern the connection.
    pub fn new(
        status: u16,
        reason: Option<&str>,
        headers: Vec<(HeaderName, Vec<Expression>)>,
        entity: Option<Expression>,
    ) -> Result<Self, HandlerError> {
        let status = StatusCode::from_u16(status)
            .ok()
            .filter(|_| (200..=599).contains(&status))
            .ok_or_else(|| HandlerError::new("status", "value should be between 200 and 599"))?;
        let readable = |c: char| matches!(c, ' '..='~');
        if reason.is_some_and(|reason| !reason.chars().all(readable)) {
            let message = "expected printable ASCII on one line";
            return Err(HandlerError::new("reason", message));
        }
        if let Some((name, _)) = headers.iter().find(|(name, _)| FRAMING.contains(name)) {
            let message = "the gateway writes this header itself";
            return Err(HandlerError::new(format!("headers.{name}"), message));
        }
        let mut prepared = Vec::new();
        for (name, values) in headers {
            for value in values {
                prepared.extend(header(&name, value)?.map(|value| (name.clone(), value)));
            }
        }
        Ok(Self {
            status,
            reason: reason.map(Box::from),
            headers: prepared.into(),
            entity: match entity {
                None => Source::Fixed(Bytes::new()),
                Some(entity) => content(entity),
            },
        })
    }

    /// Whether it looks at the body of the request.
    pub(super) fn needs_body(&self) -> bool {
        let looks = |expression: &Expression| expression.needs_body();
        matches!(&self.entity, Source::Evaluated(entity) if looks(entity))
            || (self.headers.iter())
                .any(|(_, value)| matches!(value, Source::Evaluated(value) if looks(value)))
    }

    /// The answer to what `scope` shows. What evaluates to no text, or to one
    /// that no header can have (CR, LF), is left out.
    pub(super) fn reply(&self, scope: &Scope<'_>) -> Reply {
        let mut reply = Reply::empty(self.status);
        reply.reason = self.reason.clone();
        reply.headers.reserve(self.headers.len() + 4);
        for (name, value) in &self.headers {
            let value = match value {
                Source::Fixed(value) => Some(value.clone()),
                Source::Evaluated(expression) => expression
                    .text(scope)
                    .and_then(|text| HeaderValue::from_bytes(text.as_bytes()).ok()),
            };
            reply
                .headers
                .extend(value.map(|value| (name.clone(), value)));
        }
        let has_body =
            self.status != StatusCode::NO_CONTENT && self.status != StatusCode::NOT_MODIFIED;
        reply.body = ReplyBody::Own(match &self.entity {
            _ if !has_body => Bytes::new(),
            Source::Fixed(entity) => entity.clone(),
            Source::Evaluated(expression) => expression
                .text(scope)
                .map(|text| Bytes::from(text.into_owned()))
                .unwrap_or_default(),
        });
        let named = |name: HeaderName| reply.headers.iter().any(|(one, _)| *one == name);
        let has_content = matches!(&reply.body, ReplyBody::Own(bytes) if !bytes.is_empty());
        // Without a type, browsers guess: and find scripts in what clients sent.
        if has_content && !named(header::CONTENT_TYPE) && !named(header::X_CONTENT_TYPE_OPTIONS) {
            let no_guess = HeaderValue::from_static("nosniff");
            reply
                .headers
                .push((header::X_CONTENT_TYPE_OPTIONS, no_guess));
        }
        reply
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.status
    }
}

/// A value of the header `name`; `None` if there never is one.
fn header(
    name: &HeaderName,
    value: Expression,
) -> Result<Option<Source<HeaderValue>>, HandlerError> {
    let fixed = match value.constant() {
        None => None,
        Some(Value::Text(text)) => Some(HeaderValue::from_bytes(text.as_bytes())),
        Some(_) => return Ok(None),
    };
    match fixed {
        None => Ok(Some(Source::Evaluated(value))),
        Some(Ok(value)) => Ok(Some(Source::Fixed(value))),
        Some(Err(_)) => Err(HandlerError::new(
            format!("headers.{name}"),
            "a header value has no line breaks and no control characters",
        )),
    }
}

fn content(entity: Expression) -> Source<Bytes> {
    let fixed = entity.constant().map(|value| match value {
        Value::Text(text) => Bytes::from(text.into_owned()),
        _ => Bytes::new(),
    });
    match fixed {
        Some(bytes) => Source::Fixed(bytes),
        None => Source::Evaluated(entity),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, reason: Option<&str>, header: Option<HeaderName>) -> String {
        let headers = header.into_iter().map(|name| (name, Vec::new())).collect();
        let error = StaticResponse::new(status, reason, headers, None).expect_err("refused");
        error.field
    }

    #[test]
    fn what_would_break_the_connection_is_refused() {
        assert_eq!(refused(100, None, None), "status");
        assert_eq!(refused(600, None, None), "status");
        assert_eq!(refused(200, Some("a\r\nX: y"), None), "reason");
        let framing = Some(header::TRANSFER_ENCODING);
        assert_eq!(refused(200, None, framing), "headers.transfer-encoding");
    }

    fn compiled(text: &str) -> Expression {
        Expression::compile(text).expect("an expression")
    }

    fn replied(headers: &[&str], entity: &str, uri: &str) -> Reply {
        let values = headers.iter().map(|text| compiled(text)).collect();
        let name = HeaderName::from_static("x-said");
        let answer = StaticResponse::new(200, None, vec![(name, values)], Some(compiled(entity)));
        let request = http::Request::get(uri).body(()).expect("a request");
        let (parts, ()) = request.into_parts();
        let client = std::net::SocketAddr::from(([127, 0, 0, 1], 5));
        answer
            .expect("an answer")
            .reply(&Scope::new(&parts, client))
    }

    #[test]
    fn values_are_of_the_request() {
        let reply = replied(&["a", "${request.method}"], "at ${request.uri.path}", "/x");
        let said: Vec<_> = reply.headers.iter().map(|(_, value)| value).collect();
        assert_eq!(said, ["a", "GET", "nosniff"], "it has no type");
        assert!(matches!(reply.body, ReplyBody::Own(body) if body == "at /x"));
    }

    #[test]
    fn a_line_break_in_an_evaluated_value_injects_no_header() {
        let reply = replied(&["${request.uri.path}"], "", "/a%0d%0aSet-Cookie:%20b=c");
        assert!(reply.headers.is_empty());
    }

    #[test]
    fn a_line_break_in_a_fixed_value_is_refused() {
        let name = HeaderName::from_static("x-said");
        let headers = vec![(name, vec![compiled("a\r\nb: c")])];
        let error = StaticResponse::new(200, None, headers, None).expect_err("refused");
        assert_eq!(error.field, "headers.x-said");
    }
}
