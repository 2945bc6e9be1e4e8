//! The head of an answer (RFC 9112 §4), and what it says of the body and of the
//! connection.

use std::mem::MaybeUninit;

use bytes::Bytes;
use doorward_net::http::framing;
use http::{HeaderMap, HeaderValue, Method, Version, header};
use pingora::Result;
use pingora::http::{ResponseHeader, header_value_from_raw};
use pingora::prelude::{Error, ErrorType};

use super::body::BodyReader;

/// Most fields of a head.
const FIELDS: usize = 256;

/// A head that was read.
pub(super) struct Head {
    pub(super) response: Box<ResponseHeader>,
    /// Its length in bytes.
    pub(super) length: usize,
}

/// The head at the beginning of `bytes`, if all of it has come.
pub(super) fn parse(bytes: &Bytes) -> Result<Option<Head>> {
    let mut space = [const { MaybeUninit::uninit() }; FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let mut parser = httparse::ParserConfig::default();
    // Old servers write both; what is handed on has neither.
    parser
        .allow_spaces_after_header_name_in_responses(true)
        .allow_obsolete_multiline_headers_in_responses(true);
    let length = match parser.parse_response_with_uninit_headers(&mut parsed, bytes, &mut space) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        // The bytes may hold secrets of whoever is asked.
        Err(error) => return unsound(format!("the answer has no sound head: {error}")),
    };
    let fields = parsed.headers;
    let mut response = Box::new(ResponseHeader::build(
        parsed.code.unwrap_or_default(),
        Some(fields.len()),
    )?);
    response.set_version(match parsed.version {
        Some(0) => Version::HTTP_10,
        _ => Version::HTTP_11,
    });
    response.set_reason_phrase(parsed.reason)?;
    for field in fields {
        let name = bytes.slice_ref(field.name.as_bytes());
        let value = bytes.slice_ref(field.value);
        // Nearly all are sound as they are; the check costs a sixth of the mend.
        let sound = HeaderValue::from_maybe_shared(value.clone());
        let value = sound.unwrap_or_else(|_| header_value_from_raw(value));
        response.append_header(name, value)?;
    }
    Ok(Some(Head { response, length }))
}

/// How the body ends that follows `head` as the answer to a request of `method`
/// (RFC 9112 §6.3). The length of one that ends with its last chunk is taken
/// out of the head.
pub(super) fn body(head: &mut ResponseHeader, method: &Method) -> Result<BodyReader> {
    let has_none = *method == Method::HEAD || matches!(head.status.as_u16(), 204 | 304);
    let length = content_length(&head.headers)?;
    if head.headers.contains_key(header::TRANSFER_ENCODING) {
        if length.is_some() {
            head.remove_header(&header::CONTENT_LENGTH);
        }
        return Ok(if has_none {
            BodyReader::Done
        } else if is_chunked(&head.headers) {
            BodyReader::chunked()
        } else {
            BodyReader::UntilClose
        });
    }
    Ok(match length {
        _ if has_none => BodyReader::Done,
        Some(0) => BodyReader::Done,
        Some(length) => BodyReader::Length(length),
        None => BodyReader::UntilClose,
    })
}

/// The length that all values agree on (RFC 9110 §8.6).
fn content_length(headers: &HeaderMap) -> Result<Option<u64>> {
    let mut agreed = None;
    for value in headers.get_all(header::CONTENT_LENGTH) {
        for one in value.as_bytes().split(|byte| *byte == b',') {
            let Some(length) = framing::content_length(one.trim_ascii()) else {
                return unsound("the answer's Content-Length is no number".to_owned());
            };
            if agreed.is_some_and(|agreed| agreed != length) {
                return unsound("the answer has several lengths".to_owned());
            }
            agreed = Some(length);
        }
    }
    Ok(agreed)
}

/// Whether the last transfer coding is chunked.
fn is_chunked(headers: &HeaderMap) -> bool {
    let last = headers
        .get_all(header::TRANSFER_ENCODING)
        .iter()
        .next_back();
    last.and_then(|value| value.as_bytes().rsplit(|byte| *byte == b',').next())
        .is_some_and(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"chunked"))
}

/// Whether the connection may have another request after the answer with `head`
/// (RFC 9112 §9.3).
pub(super) fn is_persistent(head: &ResponseHeader) -> bool {
    let headers = &head.headers;
    if head.version == Version::HTTP_10 {
        // Nobody knows where a coded body ends that an old server has sent.
        return has_option(headers, b"keep-alive")
            && !headers.contains_key(header::TRANSFER_ENCODING);
    }
    !has_option(headers, b"close")
}

/// Whether both a length and a coding say where the body ends. The coding is believed,
/// but whoever wrote the length may end the answer elsewhere (RFC 9112 §6.3).
pub(super) fn has_two_lengths(headers: &HeaderMap) -> bool {
    headers.contains_key(header::TRANSFER_ENCODING) && headers.contains_key(header::CONTENT_LENGTH)
}

/// Whether `Connection` has `option`.
pub(super) fn has_option(headers: &HeaderMap, option: &[u8]) -> bool {
    let is_option = |one: &[u8]| one.trim_ascii().eq_ignore_ascii_case(option);
    let has = |value: &HeaderValue| value.as_bytes().split(|byte| *byte == b',').any(is_option);
    headers.get_all(header::CONNECTION).iter().any(has)
}

/// For how many seconds the server keeps an idle connection, where it says so
/// (`Keep-Alive: timeout=5`).
pub(super) fn idle_seconds(headers: &HeaderMap) -> Option<u64> {
    let value = headers.get("keep-alive")?.to_str().ok()?;
    let mut parameters = value.split(',').filter_map(|one| one.split_once('='));
    let (_, seconds) = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("timeout"))?;
    seconds.trim().parse().ok()
}

pub(super) fn unsound<T>(reason: String) -> Result<T> {
    Err(Error::explain(ErrorType::InvalidHTTPHeader, reason))
}
