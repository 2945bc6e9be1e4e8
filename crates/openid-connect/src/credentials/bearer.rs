//! Where a request carries its access token (RFC 6750 §2, interface 2.7
//! `bearer_token_param_type`).

pub(crate) mod body;

use std::borrow::Cow;

use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue};
use pingora::http::RequestHeader;

use crate::config::fields::client::{BearerPlace, ProofRequirement};
use crate::config::fields::{Fields, header_name, wrong};
use crate::decide::refusal::Refusal;
use crate::session::strip;
use doorward_net::session::cookie::{self, pairs, split};
use doorward_plugin_api::ConfigError;

const ACCESS_TOKEN: HeaderName = HeaderName::from_static("access-token");
const X_ACCESS_TOKEN: HeaderName = HeaderName::from_static("x-access-token");
/// The token's name in queries and bodies.
pub(crate) const PARAMETER: &str = "access_token";

/// The places that are searched.
#[derive(Debug)]
pub(crate) struct Places {
    header: bool,
    query: bool,
    body: bool,
    cookie: Option<String>,
    /// Headers that hold a bare token.
    headers: Vec<HeaderName>,
    /// Whether tokens come as `Authorization: DPoP` too (RFC 9449 §7.1).
    dpop: bool,
}

/// A token and where it was.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BearerToken<'a> {
    pub(crate) token: Cow<'a, str>,
    pub(crate) in_query: bool,
    /// Whether it was shown as one that is bound to a key.
    pub(crate) as_dpop: bool,
}

impl BearerToken<'_> {
    pub(crate) fn into_owned(self) -> BearerToken<'static> {
        BearerToken {
            token: Cow::Owned(self.token.into_owned()),
            in_query: self.in_query,
            as_dpop: self.as_dpop,
        }
    }
}

/// What stands where a token may be, whose characters nobody has looked at.
struct ShownToken<'a> {
    token: Cow<'a, [u8]>,
    in_query: bool,
    as_dpop: bool,
}

impl<'a> ShownToken<'a> {
    fn token(self) -> Result<BearerToken<'a>, Refusal> {
        let token = match self.token {
            Cow::Borrowed(token) => std::str::from_utf8(token).map(Cow::Borrowed).ok(),
            Cow::Owned(token) => String::from_utf8(token).map(Cow::Owned).ok(),
        };
        Ok(BearerToken {
            token: token.ok_or(Refusal::MalformedToken)?,
            in_query: self.in_query,
            as_dpop: self.as_dpop,
        })
    }
}

impl Places {
    pub(crate) fn new(fields: &Fields) -> Result<Self, ConfigError> {
        let has = |place| fields.places.bearer_token_param_type.contains(&place);
        let cookie = fields.client.bearer_token_cookie_name.as_deref();
        if has(BearerPlace::Cookie) && cookie.is_none() {
            let message = "required when bearer_token_param_type has cookie";
            return Err(wrong("bearer_token_cookie_name", message));
        }
        let mut headers = vec![ACCESS_TOKEN, X_ACCESS_TOKEN];
        if let Some(name) = &fields.client.bearer_token_header_name {
            let name = header_name("bearer_token_header_name", name)?;
            if name != AUTHORIZATION && !headers.contains(&name) {
                headers.push(name);
            }
        }
        Ok(Self {
            header: has(BearerPlace::Header),
            query: has(BearerPlace::Query),
            body: has(BearerPlace::Body),
            cookie: (cookie.filter(|_| has(BearerPlace::Cookie))).map(str::to_owned),
            headers,
            dpop: fields.proofs.proof_of_possession_dpop != ProofRequirement::Off,
        })
    }

    /// The token in the request's head, if there is one.
    ///
    /// # Errors
    /// [`Refusal::RepeatedToken`] when the head has two: which one the
    /// upstream would believe is anyone's guess. What stands in a bearer's
    /// place and can't be a token is [`Refusal::MalformedToken`].
    pub(crate) fn find<'a>(
        &self,
        request: &'a RequestHeader,
    ) -> Result<Option<BearerToken<'a>>, Refusal> {
        self.search(request)?.map(ShownToken::token).transpose()
    }

    /// The same, without a look at the characters of the token.
    fn search<'a>(&self, request: &'a RequestHeader) -> Result<Option<ShownToken<'a>>, Refusal> {
        let mut found = None;
        if self.header {
            self.find_in_headers(&request.headers, &mut found)?;
        }
        if let Some(query) = request.uri.query().filter(|_| self.query) {
            for token in parameters(query.as_bytes()) {
                put(&mut found, bytes(token), true)?;
            }
        }
        if let (Some(name), None) = (&self.cookie, &found)
            && let Some(token) = cookie::value(&request.headers, name)
        {
            put(&mut found, Cow::Borrowed(token.as_bytes()), false)?;
        }
        Ok(found)
    }

    fn find_in_headers<'a>(
        &self,
        headers: &'a HeaderMap,
        found: &mut Option<ShownToken<'a>>,
    ) -> Result<(), Refusal> {
        for value in headers.get_all(AUTHORIZATION) {
            match behind_scheme(value, "bearer") {
                Some(b"") => return Err(Refusal::MalformedToken),
                Some(token) => put(found, Cow::Borrowed(token), false)?,
                None if self.dpop => {
                    if let Some(token) = behind_scheme(value, "dpop") {
                        put(found, Cow::Borrowed(token), false)?;
                        if let Some(found) = found {
                            found.as_dpop = true;
                        }
                    }
                }
                None => {}
            }
        }
        for name in &self.headers {
            for value in headers.get_all(name) {
                let token = behind_scheme(value, "bearer");
                let token = token.unwrap_or(value.as_bytes().trim_ascii());
                // One token in two headers is what old clients send.
                if found.as_ref().is_none_or(|found| *found.token != *token) {
                    put(found, Cow::Borrowed(token), false)?;
                }
            }
        }
        Ok(())
    }

    /// Whether the request's head has anything else than this token in a place
    /// that is searched.
    pub(crate) fn have_other(&self, token: &str, request: &RequestHeader) -> bool {
        match self.search(request) {
            Ok(Some(found)) if *found.token != *token.as_bytes() => true,
            Ok(_) => self.has_other_cookie(token, &request.headers),
            // Which one the upstream would believe is anyone's guess.
            Err(_) => true,
        }
    }

    /// Whether any cookie of the name holds something else: the first alone is
    /// searched, if there is no token elsewhere.
    fn has_other_cookie(&self, token: &str, headers: &HeaderMap) -> bool {
        let Some(name) = &self.cookie else {
            return false;
        };
        let fields = headers.get_all(COOKIE).iter();
        let pairs = fields.flat_map(|field| pairs(field.as_bytes()));
        pairs.filter_map(split).any(|(key, value)| {
            key == name.as_bytes() && !value.is_empty() && value != token.as_bytes()
        })
    }

    /// Takes the token out of what the upstream gets: out of every place that
    /// is searched, apart from the body, which is there only while it is read.
    pub(crate) fn strip(&self, request: &mut RequestHeader) {
        if self.header {
            for name in &self.headers {
                request.remove_header(name);
            }
            let is_bearer = |value: &HeaderValue| {
                behind_scheme(value, "bearer").is_some() || (self.dpop && is_dpop(value))
            };
            if request.headers.get_all(AUTHORIZATION).iter().any(is_bearer) {
                request.remove_header(&AUTHORIZATION);
            }
        }
        if self.query {
            hide_in_query(request);
        }
        if let Some(name) = &self.cookie {
            strip(request, |other| other == name.as_bytes());
        }
    }
}

/// Notes a token, and that there must be no other. An empty place is none.
///
/// Its characters are left to the verifier: most tokens are met again, and
/// those in the cache have been looked at.
fn put<'a>(
    found: &mut Option<ShownToken<'a>>,
    token: Cow<'a, [u8]>,
    in_query: bool,
) -> Result<(), Refusal> {
    if token.is_empty() {
        return Ok(());
    }
    if let Some(found) = found {
        let is_text = |token: &[u8]| std::str::from_utf8(token).is_ok();
        return Err(if is_text(&found.token) && is_text(&token) {
            Refusal::RepeatedToken
        } else {
            Refusal::MalformedToken
        });
    }
    *found = Some(ShownToken {
        token,
        in_query,
        as_dpop: false,
    });
    Ok(())
}

fn bytes(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// The token of an `Authorization: Bearer` value; `None`: another scheme.
pub fn bearer(value: &HeaderValue) -> Result<Option<&str>, Refusal> {
    let token = behind_scheme(value, "bearer").map(std::str::from_utf8);
    token.transpose().map_err(|_| Refusal::MalformedToken)
}

/// Whether a value of `Authorization` is, or is meant to be, a token: where the
/// gateway writes those that it has verified.
pub(crate) fn is_token(value: &HeaderValue) -> bool {
    behind_scheme(value, "bearer").is_some() || is_dpop(value)
}

fn is_dpop(value: &HeaderValue) -> bool {
    behind_scheme(value, "dpop").is_some()
}

/// What follows a scheme, named in lower case; `None`: another scheme.
fn behind_scheme<'a>(value: &'a HeaderValue, name: &str) -> Option<&'a [u8]> {
    let value = value.as_bytes().trim_ascii_start();
    let (scheme, rest) = value.split_at_checked(name.len())?;
    let is_it = scheme.eq_ignore_ascii_case(name.as_bytes())
        && rest.first().is_none_or(u8::is_ascii_whitespace);
    is_it.then(|| rest.trim_ascii())
}

/// Every `access_token` of a form.
fn parameters(form: &[u8]) -> impl Iterator<Item = Cow<'_, str>> {
    url::form_urlencoded::parse(form)
        .filter(|(name, _)| name == PARAMETER)
        .map(|(_, token)| token)
}

fn hide_in_query(request: &mut RequestHeader) {
    let target = request.raw_path();
    let Some(mark) = target.iter().position(|byte| *byte == b'?') else {
        return;
    };
    let (path, query) = (&target[..mark], &target[mark + 1..]);
    if parameters(query).next().is_none() {
        return;
    }
    let mut kept = path.to_vec();
    let rest = query
        .split(|byte| *byte == b'&')
        .filter(|pair| parameters(pair).next().is_none());
    for (index, pair) in rest.enumerate() {
        kept.push(if index == 0 { b'?' } else { b'&' });
        kept.extend_from_slice(pair);
    }
    // A part of a target that was accepted is accepted.
    let _ = request.set_raw_path(&kept);
}
