//! Unary calls over gRPC (gRPC over HTTP/2).
//!
//! A call is one message there and one back. Nothing is compressed, since nothing
//! else is announced.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use url::Url;

use super::{BODY_MAX, Options, Outbound, OutboundError, Version, unreachable};

/// Bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;
/// The names of the codes 0 to 16 (gRPC status codes).
const CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// Why a call gave no message. The server's words are not repeated.
#[derive(Debug, thiserror::Error)]
pub enum GrpcError {
    /// The server could not be asked.
    #[error(transparent)]
    Outbound(#[from] OutboundError),
    /// The server refused the call.
    #[error("answered with the gRPC status {}", code_name(.0))]
    Status(u16),
    /// The server did not say how the call ended.
    #[error("answered without a gRPC status")]
    NoStatus,
    /// The answer is not one whole message.
    #[error("answered with something else than one message")]
    Message,
}

/// A code as people know it.
fn code_name(code: &u16) -> String {
    match CODES.get(usize::from(*code)) {
        Some(name) => format!("{code} ({name})"),
        None => code.to_string(),
    }
}

impl Outbound {
    /// Calls the method at `url`, an http or https address whose path is
    /// `/package.Service/Method`, with extra `headers` (metadata). The answer is its
    /// message, of [`BODY_MAX`] bytes at most. HTTP/2 is spoken from the first byte,
    /// and no local provider is asked.
    ///
    /// # Errors
    /// [`GrpcError`]; each status but `OK` is one.
    pub async fn call(
        &self,
        url: &Url,
        mut headers: HeaderMap,
        message: &[u8],
        options: Options,
    ) -> Result<Bytes, GrpcError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(OutboundError::Url.into());
        }
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/grpc"),
        );
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        let options = Options {
            version: Version::Http2Only,
            ..options
        };
        let exchange = async {
            let body = framed(message)?;
            let sent = self.respond(Method::POST, url, headers, body, options);
            answered(sent.await?).await
        };
        tokio::time::timeout(options.timeout, exchange)
            .await
            .unwrap_or(Err(OutboundError::Timeout(options.timeout).into()))
    }
}

/// A message with what stands before it.
fn framed(message: &[u8]) -> Result<Bytes, GrpcError> {
    let length = u32::try_from(message.len()).map_err(|_| GrpcError::Message)?;
    let mut framed = BytesMut::with_capacity(PREFIX + message.len());
    framed.put_u8(0);
    framed.put_u32(length);
    framed.put_slice(message);
    Ok(framed.freeze())
}

/// The message of an answer. Its status stands behind it, or in the head of an answer
/// that has no message.
async fn answered(response: reqwest::Response) -> Result<Bytes, GrpcError> {
    if response.status() != StatusCode::OK {
        return Err(OutboundError::Status(response.status()).into());
    }
    let (head, body) = http::Response::<reqwest::Body>::from(response).into_parts();
    let body = Limited::new(body, BODY_MAX + PREFIX).collect().await;
    let body = body.map_err(|error| match error.downcast::<reqwest::Error>() {
        Ok(error) => unreachable(*error),
        Err(_) => OutboundError::TooLong,
    })?;
    let code = status(body.trailers()).or_else(|| status(Some(&head.headers)));
    match code {
        Some(0) => unframed(body.to_bytes()),
        Some(code) => Err(GrpcError::Status(code)),
        None => Err(GrpcError::NoStatus),
    }
}

fn status(headers: Option<&HeaderMap>) -> Option<u16> {
    headers?.get("grpc-status")?.to_str().ok()?.parse().ok()
}

/// What is in a body of one message.
fn unframed(mut body: Bytes) -> Result<Bytes, GrpcError> {
    let prefix = body.first_chunk::<PREFIX>().copied();
    let [0, length @ ..] = prefix.ok_or(GrpcError::Message)? else {
        return Err(GrpcError::Message);
    };
    let message = body.split_off(PREFIX);
    if usize::try_from(u32::from_be_bytes(length)) != Ok(message.len()) {
        return Err(GrpcError::Message);
    }
    Ok(message)
}
