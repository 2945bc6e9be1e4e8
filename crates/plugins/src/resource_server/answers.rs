//! The answers to refused requests (RFC 6750 §3), without a body.

use http::header::WWW_AUTHENTICATE;
use http::{HeaderValue, StatusCode};

use doorward_net::http::reply::Reply;
use doorward_openid_connect::refusal::{Class, Refusal};

/// The challenges of one realm.
#[derive(Debug)]
pub(super) struct Answers {
    /// `Bearer realm="…"`, without what went wrong.
    challenge: String,
    no_credential: HeaderValue,
    bad_request: HeaderValue,
    bad_token: HeaderValue,
    forbidden: HeaderValue,
}

impl Answers {
    /// `None`: the realm has a character that a header field can't have.
    pub(super) fn new(realm: &str) -> Option<Self> {
        let realm = realm.replace('\\', "\\\\").replace('"', "\\\"");
        let challenge = format!("Bearer realm=\"{realm}\"");
        let with = |error: &str| {
            let value = format!("{challenge}, error=\"{error}\"");
            HeaderValue::try_from(value).ok()
        };
        Some(Self {
            no_credential: HeaderValue::try_from(challenge.as_str()).ok()?,
            bad_request: with("invalid_request")?,
            bad_token: with("invalid_token")?,
            forbidden: with("insufficient_scope")?,
            challenge,
        })
    }

    /// The answer to `refusal`.
    pub(super) fn to(&self, refusal: Refusal) -> Reply {
        let class = refusal.class();
        let challenge = match class {
            Class::NoCredential => &self.no_credential,
            Class::BadRequest => &self.bad_request,
            Class::BadToken => &self.bad_token,
            Class::Forbidden => &self.forbidden,
            Class::Slow | Class::TooLong => return Reply::empty(class.status()),
            // A token that can't be asked about may well be good: clients must
            // not throw it away.
            Class::Broken if refusal == Refusal::ProviderUnavailable => {
                return Reply::empty(StatusCode::SERVICE_UNAVAILABLE);
            }
            Class::Broken if refusal == Refusal::InsecureRequest => {
                return Reply::empty(StatusCode::FORBIDDEN);
            }
            Class::Broken => return Reply::empty(StatusCode::INTERNAL_SERVER_ERROR),
        };
        Reply::empty(class.status()).header(WWW_AUTHENTICATE, challenge.clone())
    }

    /// The answer to a token that lacks some of `scopes`, which it tells if
    /// they can be written.
    pub(super) fn to_missing(&self, scopes: &str) -> Reply {
        let legal = |byte: u8| matches!(byte, b' ' | b'!' | b'#'..=b'[' | b']'..=b'~');
        let told = scopes.bytes().all(legal).then(|| {
            let challenge = &self.challenge;
            format!("{challenge}, error=\"insufficient_scope\", scope=\"{scopes}\"")
        });
        let challenge = told.and_then(|told| HeaderValue::try_from(told).ok());
        let challenge = challenge.unwrap_or_else(|| self.forbidden.clone());
        Reply::empty(StatusCode::FORBIDDEN).header(WWW_AUTHENTICATE, challenge)
    }
}
