//! Whether a page of this site has sent a request, or one of another.

use http::header::ORIGIN;
use pingora::http::RequestHeader;

/// Where a request was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    Own,
    Other,
    /// It does not say so: by no browser of today.
    Unsaid,
}

impl Site {
    /// Of a request that was sent to `own`: scheme and host.
    pub(crate) fn of(request: &RequestHeader, own: Option<&str>) -> Self {
        let text = |name: &str| Some(request.headers.get(name)?.to_str().unwrap_or_default());
        let is_own = match (text("sec-fetch-site"), text(ORIGIN.as_str())) {
            (Some(site), _) => site == "same-origin",
            (None, Some(origin)) => Some(origin) == own,
            (None, None) => return Self::Unsaid,
        };
        if is_own { Self::Own } else { Self::Other }
    }
}
