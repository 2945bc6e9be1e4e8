//! Sessions of users who have signed in: their tokens in sealed cookies.

use std::sync::Arc;

use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use pingora::http::RequestHeader;
use quick_cache::sync::Cache;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::cache::Verified;
use super::fields::{Fields, wrong};
use super::flight::{Digest, digest_of};
use super::refusal::Refusal;
use super::rules::Rules;
use super::verifier::Checked;
use super::word::Word;
use crate::plugins::ConfigError;
use crate::session::cookie::{CookieError, SameSite, Style};
use crate::session::seal::Sealer;
use crate::session::timers::{Age, Timers};

/// Most sessions whose claims are remembered.
const REMEMBERED: usize = 8 * 1024;
/// Claims that say something of an ID token, and nothing of its user.
const OF_ID_TOKENS: &[&str] = &[
    "at_hash",
    "c_hash",
    "s_hash",
    "nonce",
    "exp",
    "iat",
    "nbf",
    "aud",
    "azp",
    "typ",
    "tokenName",
];

/// What a session holds.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct LoginSession {
    /// Its identifier.
    #[serde(rename = "s")]
    pub(super) id: String,
    /// The client whose tokens these are.
    #[serde(rename = "c")]
    pub(super) client: String,
    #[serde(rename = "a")]
    pub(super) access: String,
    #[serde(rename = "i", skip_serializing_if = "Option::is_none", default)]
    pub(super) id_token: Option<String>,
    #[serde(rename = "r", skip_serializing_if = "Option::is_none", default)]
    pub(super) refresh: Option<String>,
    /// Granted scopes, where the provider names them.
    #[serde(rename = "g", skip_serializing_if = "Option::is_none", default)]
    pub(super) scope: Option<String>,
    /// When the access token ends, in milliseconds, where the provider tells.
    #[serde(rename = "e", skip_serializing_if = "Option::is_none", default)]
    pub(super) ends_at: Option<i64>,
    #[serde(rename = "b")]
    pub(super) started: i64,
    #[serde(rename = "n")]
    pub(super) renewed: i64,
}

/// What a request shows of a session.
pub(super) enum Shown {
    /// It shows none.
    Nothing,
    /// It shows one that can't be opened, or is over.
    Void(Refusal),
    /// The session, and whether the browser shall keep a renewed one.
    Live(Box<LoginSession>, bool),
}

/// Makes, keeps and ends sessions.
pub(super) struct Sessions {
    sealer: Sealer,
    style: Style,
    timers: Timers,
    /// What a session is sealed for: it is void elsewhere.
    context: Vec<u8>,
    pub(super) leeway_ms: i64,
    /// Whether access tokens that end are refreshed.
    pub(super) refreshes: bool,
    destroy_unauthorized: bool,
    destroy_forbidden: bool,
    merged: Cache<Digest, Merged>,
}

/// What is known of a token, and what the ID token adds.
#[derive(Clone)]
struct Merged {
    of: Arc<Verified>,
    with: Arc<Verified>,
}

impl Sessions {
    /// The sessions of a configuration; `secret` is what to seal with where it
    /// names nothing.
    pub(super) fn new(fields: Fields<'_>, secret: &[u8]) -> Result<Self, ConfigError> {
        let name = fields.text("session_cookie_name")?.unwrap_or("session");
        let audience = fields.text("session_audience")?.unwrap_or_default();
        let issuer = fields.text("issuer")?.unwrap_or_default();
        let bound = |names: &[&str], default: Option<i64>| {
            for name in names {
                if let Some(seconds) = fields.integer(name)? {
                    return Ok(Some(seconds).filter(|seconds| *seconds > 0));
                }
            }
            Ok::<_, ConfigError>(default)
        };
        let ms = |seconds: Option<i64>| seconds.map(|seconds| seconds.saturating_mul(1000));
        let rolling = ["session_rolling_timeout", "session_cookie_lifetime"];
        let idling = ["session_idling_timeout", "session_cookie_idletime"];
        Ok(Self {
            sealer: sealer(fields, "login session", secret)?,
            style: style(fields, "session")?,
            timers: Timers {
                rolling: ms(bound(&rolling, Some(3600))?),
                idling: ms(bound(&idling, None)?),
                absolute: ms(bound(&["session_absolute_timeout"], Some(86_400))?),
            },
            context: [issuer, audience, name].join("\n").into_bytes(),
            leeway_ms: fields.integer("leeway")?.unwrap_or(0).saturating_mul(1000),
            refreshes: fields.flag("refresh_tokens")?,
            destroy_unauthorized: fields.flag("unauthorized_destroy_session")?,
            destroy_forbidden: fields.flag("forbidden_destroy_session")?,
            merged: Cache::new(REMEMBERED),
        })
    }

    /// The session that a request shows, at `now_ms`.
    pub(super) fn shown(&self, headers: &HeaderMap, now_ms: i64) -> Shown {
        let Some(sealed) = self.style.read(headers) else {
            return Shown::Nothing;
        };
        let opened = sealed.and_then(|sealed| self.sealer.open(&self.context, &sealed).ok());
        let session = opened.and_then(|plain| serde_json::from_slice(&plain).ok());
        let Some(session): Option<LoginSession> = session else {
            return Shown::Void(Refusal::BrokenSession);
        };
        match self.timers.age(session.started, session.renewed, now_ms) {
            Age::Over => Shown::Void(Refusal::SessionOver),
            age => Shown::Live(Box::new(session), age == Age::Due),
        }
    }

    /// Has the browser keep a session, as renewed at `now_ms`.
    ///
    /// # Errors
    /// [`Refusal::SessionTooBig`] when it does not fit into its cookies: an
    /// error now is better than a login that leads to the next login.
    pub(super) fn keep(
        &self,
        session: &mut LoginSession,
        request: &HeaderMap,
        secure: bool,
        now_ms: i64,
        fields: &mut Vec<(HeaderName, HeaderValue)>,
    ) -> Result<(), Refusal> {
        session.renewed = now_ms;
        let plain = serde_json::to_vec(session).map_err(|_| Refusal::SessionTooBig)?;
        let sealed = self.sealer.seal(&self.context, &plain);
        let sealed = sealed.map_err(|_| Refusal::SessionTooBig)?;
        let cookies = self.style.keep(&sealed, request, secure);
        let cookies = cookies.map_err(|error| match error {
            CookieError::TooBig | CookieError::Illegal => Refusal::SessionTooBig,
        })?;
        fields.extend(cookies.into_iter().map(|cookie| (SET_COOKIE, cookie)));
        Ok(())
    }

    /// Has the browser forget its session.
    pub(super) fn forget(
        &self,
        request: &HeaderMap,
        secure: bool,
        fields: &mut Vec<(HeaderName, HeaderValue)>,
    ) {
        let cookies = self.style.forget(request, secure).into_iter();
        fields.extend(cookies.map(|cookie| (SET_COOKIE, cookie)));
    }

    /// Whether an answer of this status ends the session that was shown.
    pub(super) fn ends_at_status(&self, status: StatusCode) -> bool {
        match status {
            StatusCode::UNAUTHORIZED => self.destroy_unauthorized,
            StatusCode::FORBIDDEN => self.destroy_forbidden,
            _ => false,
        }
    }

    /// Whether one of these fields has the browser keep a session.
    pub(super) fn is_in(&self, fields: &[(HeaderName, HeaderValue)]) -> bool {
        let name = self.style.name().as_bytes();
        let mut fields = fields.iter();
        fields.any(|(field, value)| *field == SET_COOKIE && value.as_bytes().starts_with(name))
    }

    /// Whether the access token is still good for a while at `now_ms`.
    pub(super) fn is_fresh(&self, session: &LoginSession, now_ms: i64) -> bool {
        let until = now_ms.saturating_add(self.leeway_ms);
        session.ends_at.is_none_or(|end| until < end)
    }

    /// What is known of the session's user: what the access token says, and
    /// what the ID token says besides.
    pub(super) fn with_id_token(
        &self,
        session: &LoginSession,
        verified: Arc<Verified>,
    ) -> Arc<Verified> {
        let Some(id_token) = &session.id_token else {
            return verified;
        };
        let about = digest_of([session.access.as_bytes(), id_token.as_bytes()]);
        if let Some(merged) = self.merged.get(&about)
            && Arc::ptr_eq(&merged.of, &verified)
        {
            return merged.with;
        }
        let mut claims = verified.token.claims.clone();
        for (name, value) in identity(id_token) {
            claims.entry(name).or_insert(value);
        }
        let checked = Checked {
            claims,
            scopes: verified.token.scopes.clone(),
            expires_at: verified.token.expires_at,
            ends_at: verified.ends_at,
            ends_for_good: verified.ends_for_good,
        };
        let length = id_token.len();
        let token = &verified.token.token;
        let with = checked.verified(token, length, verified.generation, Word::default());
        self.merged.insert(
            about,
            Merged {
                of: verified,
                with: Arc::clone(&with),
            },
        );
        with
    }

    /// What is known of the user of a session whose access token only the
    /// provider can read.
    ///
    /// # Errors
    /// The rule that is not met.
    pub(super) fn trusted(
        &self,
        session: &LoginSession,
        rules: &Rules,
        now_ms: i64,
    ) -> Result<Arc<Verified>, Refusal> {
        let mut claims = session.id_token.as_deref().map(identity);
        let mut claims = claims.take().unwrap_or_default();
        if let Some(scope) = &session.scope {
            claims.insert("scope".to_owned(), Value::from(scope.as_str()));
        }
        let issuer = claims.get("iss").and_then(Value::as_str);
        let issuer = issuer.unwrap_or_default().to_owned();
        rules.check_told(&claims, &issuer, now_ms.div_euclid(1000))?;
        let checked = Checked {
            scopes: rules.scopes(&claims),
            expires_at: session.ends_at.map(|end| end.div_euclid(1000)),
            ends_at: session.ends_at.unwrap_or(i64::MAX),
            ends_for_good: session.ends_at.is_some(),
            claims,
        };
        Ok(checked.verified(&session.access, 0, 0, Word::default()))
    }

    /// Takes the session's cookies out of what the upstream gets.
    pub(super) fn strip(&self, request: &mut RequestHeader) {
        strip(&self.style, request);
    }
}

/// Takes cookies out of what the upstream gets.
pub(super) fn strip(style: &Style, request: &mut RequestHeader) {
    let cookies = || request.headers.get_all(COOKIE).iter();
    let has_name = |value: &HeaderValue| {
        let (value, name) = (value.as_bytes(), style.name().as_bytes());
        value.windows(name.len()).any(|window| window == name)
    };
    if !cookies().any(has_name) {
        return;
    }
    let mut kept = Vec::new();
    for value in cookies() {
        for pair in value.as_bytes().split(|byte| *byte == b';') {
            let pair = pair.trim_ascii();
            let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
            let name = std::str::from_utf8(name.trim_ascii()).unwrap_or_default();
            if !pair.is_empty() && !style.is_own(name) {
                kept.push(pair);
            }
        }
    }
    let kept = kept.join(&b"; "[..]);
    request.remove_header(&COOKIE);
    if !kept.is_empty()
        && let Ok(kept) = HeaderValue::from_bytes(&kept)
    {
        let _ = request.insert_header(COOKIE, kept);
    }
}

/// What an ID token that was verified before says of its user.
fn identity(id_token: &str) -> Map<String, Value> {
    let parsed = crate::jose::verify::Unverified::parse(id_token);
    let claims = parsed.and_then(|parsed| parsed.claims_of_anyone());
    let mut claims = claims.unwrap_or_default();
    for name in OF_ID_TOKENS {
        claims.remove(*name);
    }
    claims
}

/// The sealer for `purpose`: of `session_secret`, whose lines are secrets of
/// which the first seals and all open, or else of `secret`.
pub(super) fn sealer(
    fields: Fields<'_>,
    purpose: &str,
    secret: &[u8],
) -> Result<Sealer, ConfigError> {
    let text = fields.text("session_secret")?.unwrap_or_default();
    let secrets = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut secrets: Vec<&[u8]> = secrets.map(str::as_bytes).collect();
    if secrets.is_empty() {
        secrets.push(secret);
    }
    Sealer::new(purpose, secrets).map_err(|_| wrong("session_secret", "makes no key"))
}

/// The cookies of `<kind>_cookie_…` settings, of either spelling.
pub(super) fn style(fields: Fields<'_>, kind: &str) -> Result<Style, ConfigError> {
    let field = |end: &str| format!("{kind}_cookie_{end}");
    let text = |end: &str| fields.text(&field(end));
    let name = text("name")?.unwrap_or(kind);
    let path = text("path")?.unwrap_or("/");
    let style = Style::new(name, path, text("domain")?)
        .map_err(|_| wrong(&field("name"), "can't be written as a cookie"))?;
    let same_site = match text("same_site")? {
        Some(newer) => Some(newer),
        None => text("samesite")?,
    };
    let same_site = match same_site {
        Some("Strict") => SameSite::Strict,
        Some("Lax") => SameSite::Lax,
        Some("None") => SameSite::None,
        _ => SameSite::Unsaid,
    };
    let http_only = match fields.maybe_flag(&field("http_only"))? {
        Some(newer) => newer,
        None => fields.flag(&field("httponly"))?,
    };
    Ok(style.with(same_site, http_only, fields.maybe_flag(&field("secure"))?))
}
