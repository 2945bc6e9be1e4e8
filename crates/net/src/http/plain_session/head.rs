//! The head of a plain request, which was found to be sound before.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{HeaderValue, Version, header};
use pingora::http::RequestHeader;

/// Most fields of a head.
const FIELDS: usize = 256;

/// A head that was read.
pub(super) struct Head {
    pub(super) request: Box<RequestHeader>,
    /// Whether the client lets the connection have another request.
    pub(super) keep: bool,
}

/// The head that `bytes` are. Its target is a path, so that `Host` alone names an
/// authority; there is one, and it was looked at.
pub(super) fn parse(bytes: &Bytes) -> Option<Head> {
    let mut space = [const { MaybeUninit::uninit() }; FIELDS];
    let mut parsed = httparse::Request::new(&mut []);
    let read = parsed.parse_with_uninit_headers(bytes, &mut space);
    if read != Ok(httparse::Status::Complete(bytes.len())) {
        return None;
    }
    let target = parsed.path?.as_bytes();
    let (method, fields) = (parsed.method?, Some(parsed.headers.len()));
    // How names are spelled takes a second map, and hardly anybody asks.
    let request = if doorward_expr::asks_for_spelling() {
        RequestHeader::build(method, target, fields)
    } else {
        RequestHeader::build_no_case(method, target, fields)
    };
    let mut request = Box::new(request.ok()?);
    request.set_version(Version::HTTP_11);
    let mut keep = true;
    for field in &*parsed.headers {
        let name = bytes.slice_ref(field.name.as_bytes());
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value)).ok()?;
        request.append_header(name, value).ok()?;
        if field.name.eq_ignore_ascii_case(header::CONNECTION.as_str()) {
            keep &= !field.value.eq_ignore_ascii_case(b"close");
        }
    }
    Some(Head { request, keep })
}
