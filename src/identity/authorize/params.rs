//! The parameters of an authorization request, of its address and its body.

use http::Method;
use http::header::CONTENT_TYPE;
use url::form_urlencoded;

use crate::identity::Call;
use crate::identity::form::{Form, FormError};

/// Longest request that can be carried on through sign-in, in bytes: it becomes
/// part of an address.
pub(super) const CARRIED_MAX: usize = 8 * 1024;

/// Parameters of ours, which are not part of the client's request.
const OWN: [&str; 9] = [
    SINCE,
    "csrf",
    "approve",
    "deny",
    "decision",
    "save_consent",
    "username",
    "password",
    "login",
];

/// When this browser was first shown the request.
pub(super) const SINCE: &str = "doorward_since";

/// Why the parameters can't be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ParamsError {
    #[error(transparent)]
    Form(#[from] FormError),
    #[error("Invalid Content Type")]
    Type,
    /// Addresses end up in logs and histories.
    #[error("Parameter password belongs into the body")]
    Password,
}

/// The parameters, each at most once.
#[derive(Debug)]
pub(super) struct Params {
    pairs: Vec<(String, String)>,
    /// The client's request, as an address carries it.
    query: String,
}

impl Params {
    /// Those of the address and, of a POST, of the body.
    pub(super) fn of(call: &Call) -> Result<Self, ParamsError> {
        let query = call.parts.uri.query().unwrap_or_default();
        if Form::parse(query.as_bytes())?.get("password").is_some() {
            return Err(ParamsError::Password);
        }
        let mut text = query.as_bytes().to_vec();
        if call.parts.method == Method::POST {
            let kind = call.headers().get(CONTENT_TYPE);
            let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
            let kind = kind.split(';').next().unwrap_or_default().trim();
            if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
                return Err(ParamsError::Type);
            }
            text.push(b'&');
            text.extend_from_slice(&call.body);
        }
        let form = Form::parse(&text)?;
        let pairs: Vec<_> = form
            .pairs()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in &pairs {
            if !OWN.contains(&name.as_str()) && !value.is_empty() {
                query.append_pair(name, value);
            }
        }
        Ok(Self {
            query: query.finish(),
            pairs,
        })
    }

    /// The parameter of this name, unless it is absent or empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let pair = self.pairs.iter().find(|(known, _)| known == name);
        pair.map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// The client's request without what is ours, in one canonical spelling.
    pub(super) fn query(&self) -> &str {
        &self.query
    }
}
