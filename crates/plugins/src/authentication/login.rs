//! Names and passwords in headers (RFC 7617), whatever their scheme is called.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue};
use pingora::http::RequestHeader;

use super::{CREDENTIAL_HEADERS, after_scheme};

/// Longest password that is looked at, in bytes.
const PASSWORD_MAX: usize = 1024;

/// A name and a password.
pub(crate) struct Login {
    /// Where they were.
    pub(crate) header: HeaderName,
    pub(crate) name: Vec<u8>,
    pub(crate) password: Vec<u8>,
}

impl Login {
    fn read(header: HeaderName, value: &HeaderValue, scheme: &str) -> Option<Self> {
        let encoded = after_scheme(value, scheme)?.trim();
        let mut name = STANDARD.decode(encoded).ok()?;
        let colon = name.iter().position(|byte| *byte == b':')?;
        let password = name.split_off(colon + 1);
        name.pop();
        (!name.is_empty() && password.len() <= PASSWORD_MAX).then_some(Self {
            header,
            name,
            password,
        })
    }

    /// The names and passwords of a request, in the order in which they count.
    pub(crate) fn all<'a>(
        request: &'a RequestHeader,
        scheme: &'a str,
    ) -> impl Iterator<Item = Self> + 'a {
        CREDENTIAL_HEADERS.into_iter().filter_map(move |header| {
            let value = request.headers.get(&header)?;
            Self::read(header, value, scheme)
        })
    }
}
