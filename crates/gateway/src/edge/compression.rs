//! Compression of answers of upstreams, by their type.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Version, header};
use pingora::http::{RequestHeader, ResponseHeader};
use serde::Deserialize;

use super::coding::{Coding, Encoder};
use doorward_plugin_api::filter::BodyFilter;

/// Most answers that are compressed at once: each takes up to two megabytes. Others
/// pass as they are.
const AT_ONCE: usize = 512;
/// Types that are compressed unless the file names them.
const TYPES: [&str; 15] = [
    "text/html",
    "text/css",
    "text/plain",
    "text/javascript",
    "text/xml",
    "text/csv",
    "application/javascript",
    "application/json",
    "application/ld+json",
    "application/manifest+json",
    "application/problem+json",
    "application/xml",
    "application/xhtml+xml",
    "application/wasm",
    "image/svg+xml",
];
/// Fields that say something of the very bytes (RFC 9530, RFC 3230, RFC 1864).
const DIGESTS: [HeaderName; 4] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];

/// Which answers are compressed, and how.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompressionConfig {
    /// Codings, the preferred one first.
    pub algorithms: Vec<Coding>,
    /// Types of answers; `text/*` stands for all that begin so.
    pub types: Vec<String>,
    /// Answers that say that they are shorter pass as they are, in bytes.
    pub min_length: u64,
}

impl Default for CompressionConfig {
    fn default() -> Self {
        Self {
            algorithms: vec![Coding::Zstd, Coding::Br, Coding::Gzip],
            types: TYPES.map(str::to_owned).to_vec(),
            min_length: 1024,
        }
    }
}

impl CompressionConfig {
    /// Whether it says something that can be done.
    ///
    /// # Errors
    /// The key, and what is wrong.
    pub fn check(&self) -> Result<(), (String, String)> {
        if self.algorithms.is_empty() {
            let message = "names none of zstd, br, gzip".to_owned();
            return Err(("algorithms".to_owned(), message));
        }
        for (place, coding) in self.algorithms.iter().enumerate() {
            if self.algorithms[..place].contains(coding) {
                let message = format!("'{}' stands there twice", coding.name());
                return Err((format!("algorithms.{place}"), message));
            }
        }
        for (place, kind) in self.types.iter().enumerate() {
            let (major, minor) = kind.split_once('/').unwrap_or_default();
            let is_named = !matches!(major, "" | "*") && !minor.is_empty();
            if !is_named || kind.contains([' ', ';', ',']) {
                let message = format!("'{kind}' is no type, such as text/html or text/*");
                return Err((format!("types.{place}"), message));
            }
            if kind.starts_with("application/grpc") || kind == "application/*" {
                let message = format!("'{kind}': gRPC has a compression of its own");
                return Err((format!("types.{place}"), message));
            }
        }
        Ok(())
    }
}

/// Compresses answers.
pub struct Compression {
    config: CompressionConfig,
    under_way: Arc<AtomicUsize>,
}

impl Compression {
    /// Compresses as `config` says.
    pub fn new(config: CompressionConfig) -> Self {
        Self {
            config,
            under_way: Arc::default(),
        }
    }

    /// What compresses the body of an answer whose head is this, which says so
    /// afterwards; nothing for one that passes as it is.
    pub(crate) fn begin(
        &self,
        request: &RequestHeader,
        response: &mut ResponseHeader,
    ) -> Option<Box<dyn BodyFilter>> {
        if !self.is_compressible(request, response) {
            return None;
        }
        // Caches keep both forms apart, also the one that passes as it is.
        vary(response);
        let http2 = request.version == Version::HTTP_2;
        if request.method == Method::HEAD || !(http2 || request.version == Version::HTTP_11) {
            return None;
        }
        let coding = Coding::wanted(&request.headers, &self.config.algorithms)?;
        let permit = Permit::take(&self.under_way)?;
        let encoder = Encoder::new(coding).ok()?;
        let is_stream = !response.headers.contains_key(header::CONTENT_LENGTH);
        rewrite(response, coding, http2);
        Some(Box::new(Compressor {
            encoder,
            is_stream,
            failed: false,
            _permit: permit,
        }))
    }

    /// Whether this answer would be compressed for a client that wants it.
    fn is_compressible(&self, request: &RequestHeader, response: &ResponseHeader) -> bool {
        let headers = &response.headers;
        let status = response.status.as_u16();
        // Parts of a whole and answers without a body are none of these.
        if !matches!(status, 200..=203 | 400..=599) {
            return false;
        }
        let has = |name: &HeaderName| headers.contains_key(name);
        if has(&header::CONTENT_ENCODING) || has(&header::CONTENT_RANGE) {
            return false;
        }
        if !self.has_type(headers.get(header::CONTENT_TYPE)) || DIGESTS.iter().any(has) {
            return false;
        }
        let length = headers.get(header::CONTENT_LENGTH);
        let length = length.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length < self.config.min_length) {
            return false;
        }
        ![&request.headers, headers].into_iter().any(|headers| {
            let directives = headers.get_all(header::CACHE_CONTROL).iter();
            let mut directives =
                directives.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
            directives.any(|one| one.trim_ascii().eq_ignore_ascii_case(b"no-transform"))
        })
    }

    fn has_type(&self, value: Option<&HeaderValue>) -> bool {
        let text = value.and_then(|value| value.to_str().ok()).unwrap_or("");
        let kind = text.split(';').next().unwrap_or("").trim();
        if kind.is_empty() {
            return false;
        }
        self.config
            .types
            .iter()
            .any(|one| match one.strip_suffix('*') {
                Some(front) => kind
                    .get(..front.len())
                    .is_some_and(|start| start.eq_ignore_ascii_case(front)),
                None => kind.eq_ignore_ascii_case(one),
            })
    }
}

/// Says that the answer depends on `Accept-Encoding`.
fn vary(response: &mut ResponseHeader) {
    let values = response.headers.get_all(header::VARY).iter();
    let mut names = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let is_told = names.any(|name| {
        let name = name.trim_ascii();
        name == b"*" || name.eq_ignore_ascii_case(b"accept-encoding")
    });
    if !is_told {
        // A name and a value that are already those of a message.
        let _ = response.append_header(header::VARY, "Accept-Encoding");
    }
}

/// The head of the compressed form.
fn rewrite(response: &mut ResponseHeader, coding: Coding, http2: bool) {
    response.remove_header(&header::CONTENT_LENGTH);
    response.remove_header(&header::ACCEPT_RANGES);
    let _ = response.insert_header(header::CONTENT_ENCODING, coding.name());
    if !http2 {
        let _ = response.insert_header(header::TRANSFER_ENCODING, "chunked");
    }
    // Other bytes of the same meaning (RFC 9110 §8.8.1).
    let Some(tag) = response.headers.get(header::ETAG) else {
        return;
    };
    let tag = tag.as_bytes();
    if tag.starts_with(b"W/") {
        return;
    }
    let weak = HeaderValue::from_bytes(&[b"W/", tag].concat());
    match weak {
        Ok(weak) if tag.starts_with(b"\"") => {
            let _ = response.insert_header(header::ETAG, weak);
        }
        _ => drop(response.remove_header(&header::ETAG)),
    }
}

/// Room for one answer under way.
struct Permit(Arc<AtomicUsize>);

impl Permit {
    fn take(under_way: &Arc<AtomicUsize>) -> Option<Self> {
        let permit = Self(under_way.clone());
        let before = under_way.fetch_add(1, Ordering::Relaxed);
        (before < AT_ONCE).then_some(permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Compressor {
    encoder: Encoder,
    /// Whether the client waits for each piece: nobody knows when the next comes.
    is_stream: bool,
    failed: bool,
    _permit: Permit,
}

impl BodyFilter for Compressor {
    fn piece(&mut self, body: &mut Option<Bytes>, end: bool) {
        let piece = body.take().unwrap_or_default();
        if self.failed || (piece.is_empty() && !end) {
            return;
        }
        match self.encoder.encode(&piece, self.is_stream, end) {
            Ok(coded) => *body = (!coded.is_empty()).then_some(coded),
            Err(error) => {
                // The form has no end then, by which the client knows.
                tracing::error!(%error, "an answer can't be compressed, and is cut short");
                self.failed = true;
            }
        }
    }
}

#[cfg(test)]
#[path = "compression/tests.rs"]
mod tests;
