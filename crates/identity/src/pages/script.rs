//! The one script that pages load: for passkeys, which there are not without.

use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::Body;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};

const PASSKEY: &str = include_str!("../../templates/passkey.js");

/// The script's name and what tells it from that of another version.
static ADDRESS: LazyLock<String> = LazyLock::new(|| {
    let digest = digest(&SHA256, PASSKEY.as_bytes());
    let version = URL_SAFE_NO_PAD.encode(&digest.as_ref()[..9]);
    format!("passkey.js?v={version}")
});

/// Where the script is, below `/oauth2/`.
pub(super) fn address() -> &'static str {
    &ADDRESS
}

/// The script: it never changes under its address.
pub(crate) fn passkey() -> Response {
    let mut response = Response::new(Body::from(PASSKEY));
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, "text/javascript; charset=utf-8"),
        (CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
