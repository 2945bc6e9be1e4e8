//! The style and the script: named by their content, so browsers keep them.

use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::Body;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderValue, Method, header};

use super::error::PageError;

const STYLE: &str = include_str!("../assets/console.css");
const SCRIPT: &str = include_str!("../assets/console.js");

/// A file beside the pages.
struct Asset {
    name: String,
    kind: &'static str,
    content: &'static str,
}

impl Asset {
    fn new(stem: &str, extension: &str, kind: &'static str, content: &'static str) -> Self {
        let digest = digest(&SHA256, content.as_bytes());
        let mark = URL_SAFE_NO_PAD.encode(&digest.as_ref()[..9]);
        Self {
            name: format!("{stem}.{mark}.{extension}"),
            kind,
            content,
        }
    }
}

static ASSETS: LazyLock<[Asset; 2]> = LazyLock::new(|| {
    [
        Asset::new("console", "css", "text/css; charset=utf-8", STYLE),
        Asset::new("console", "js", "text/javascript; charset=utf-8", SCRIPT),
    ]
});

/// The addresses of style and script.
pub(crate) fn addresses() -> [String; 2] {
    let address = |asset: &Asset| format!("/console/assets/{}", asset.name);
    [address(&ASSETS[0]), address(&ASSETS[1])]
}

/// The file called `name`.
pub(crate) fn serve(method: &Method, name: &str) -> Result<Response, PageError> {
    if *method != Method::GET {
        return Err(PageError::Method);
    }
    let asset = ASSETS.iter().find(|asset| asset.name == name);
    let asset = asset.ok_or(PageError::NotFound)?;
    let mut response = Response::new(Body::from(asset.content));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.kind));
    let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
    headers.insert(header::CACHE_CONTROL, forever);
    Ok(response)
}
