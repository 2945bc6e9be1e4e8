//! Answers that are written down in a route file.

use http::{HeaderName, StatusCode, header};

use super::HandlerError;
use crate::expr::Expression;

/// A `StaticResponseHandler`.
#[derive(Debug)]
pub struct StaticResponse {
    status: StatusCode,
    reason: Option<Box<str>>,
    headers: Box<[(HeaderName, Box<[Expression]>)]>,
    entity: Option<Expression>,
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
        Ok(Self {
            status,
            reason: reason.map(Box::from),
            headers: headers
                .into_iter()
                .map(|(name, values)| (name, values.into()))
                .collect(),
            entity,
        })
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.status
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
}
