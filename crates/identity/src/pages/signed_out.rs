//! The page after signing out, which tells clients by frames (OpenID Connect
//! Front-Channel Logout 1.0 §3).

use std::sync::LazyLock;

use askama::Template;
use axum::response::Response;
use http::StatusCode;

use super::Frame;
use super::frame::{origin, show, source};
use super::texts::Texts;

/// Goes on as soon as the frames are there; without scripts, the browser goes
/// on after [`WAIT`].
const SCRIPT: &str = "addEventListener(\"load\",function(){location.replace(\
    document.getElementById(\"continue\").href)})";

static SCRIPT_SOURCE: LazyLock<String> = LazyLock::new(|| source(SCRIPT));

/// Seconds that frames have to load.
const WAIT: u32 = 5;

/// What is left to do after signing out.
#[derive(Debug, Default)]
pub(crate) struct AfterLogout {
    /// Addresses of clients that the page loads.
    pub(crate) frames: Vec<String>,
    /// Where the user goes next.
    pub(crate) next: Option<String>,
}

#[derive(Template)]
#[template(path = "signed_out.html")]
struct SignedOutPage<'a> {
    frame: &'a Frame,
    texts: &'a Texts,
    frames: &'a [String],
    next: Option<&'a str>,
    wait: u32,
    script: &'static str,
}

/// The page that says that nobody is signed in.
pub(crate) fn signed_out(frame: &Frame, farewell: &AfterLogout) -> Response {
    let mut frame = frame.clone();
    let parsed = farewell.frames.iter();
    let parsed = parsed.filter_map(|address| url::Url::parse(address).ok());
    let mut origins: Vec<_> = parsed.filter_map(|url| origin(&url)).collect();
    origins.sort_unstable();
    origins.dedup();
    frame.frames = origins;
    if farewell.next.is_some() {
        frame.script = Some(SCRIPT_SOURCE.clone());
    }
    let page = SignedOutPage {
        frame: &frame,
        texts: &frame.texts,
        frames: &farewell.frames,
        next: farewell.next.as_deref(),
        wait: WAIT,
        script: SCRIPT,
    };
    show(&frame, StatusCode::OK, &page)
}
