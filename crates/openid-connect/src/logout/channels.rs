//! Logouts that the provider asks for: from server to server (OpenID Connect
//! Back-Channel Logout 1.0), and in a frame of its own page (Front-Channel Logout
//! 1.0).

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY};
use http::{HeaderValue, Method, StatusCode};
use pingora::http::RequestHeader;
use serde_json::{Map, Value, json};

use crate::KIND;
use crate::config::fields::{Fields, wrong};
use crate::credentials::arguments::{Arguments, Where};
use crate::decide::refusal::{Class, Refusal};
use crate::provider::client::ProviderClient;
use crate::provider::issuers::AllowedIssuers;
use crate::session::{Browser, Sessions};
use doorward_core::jose::claims::{same_issuer, time, words};
use doorward_core::jose::verify::Unverified;
use doorward_core::model::grant::TokenHash;
use doorward_core::model::login::LoginQuery;
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_net::telemetry::Metrics;
use doorward_plugin_api::ConfigError;
use doorward_plugin_api::filter::{Code, Exchange, Flow};

/// The event that a logout token is about.
const EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";
/// How old a logout token may be, and how far in the future, in seconds.
const FRESH: i64 = 120;

const IN_BODY: Where = Where {
    header: false,
    query: false,
    body: true,
};
const IN_QUERY: Where = Where {
    header: false,
    query: true,
    body: false,
};

/// Why a logout that somebody asks for in the provider's name is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogoutRefusal {
    /// Not exactly one token, or no JWT, or members of the wrong type.
    Malformed,
    /// Its header says that it is something else.
    WrongType,
    /// Not signed by the provider.
    BadSignature,
    /// Signed by another algorithm than `id_token_signed_response_alg`.
    WrongAlg,
    WrongIssuer,
    WrongAudience,
    /// Too old, from the future, or without a time.
    Stale,
    /// It is about another event.
    NoEvent,
    /// Nobody would take an ID token for it, nor it for one.
    WithNonce,
    /// It names neither a session nor a user.
    OfNobody,
    /// It was used before.
    Repeated,
    /// Of a session that nobody here knows.
    UnknownSession,
    /// Nothing could be ended, or it can't be said whether.
    Unavailable,
}

impl LogoutRefusal {
    /// Every one.
    const ALL: [Self; 13] = [
        Self::Malformed,
        Self::WrongType,
        Self::BadSignature,
        Self::WrongAlg,
        Self::WrongIssuer,
        Self::WrongAudience,
        Self::Stale,
        Self::NoEvent,
        Self::WithNonce,
        Self::OfNobody,
        Self::Repeated,
        Self::UnknownSession,
        Self::Unavailable,
    ];

    /// For log, metric and answer.
    fn code(self) -> &'static str {
        self.describe().0
    }

    /// Its code, and what it means to an operator.
    fn describe(self) -> (&'static str, &'static str) {
        match self {
            Self::Malformed => ("malformed_logout", "no logout token that can be read"),
            Self::WrongType => ("wrong_logout_type", "the token is none for logouts"),
            Self::BadSignature => (
                "bad_logout_signature",
                "the provider has not signed the logout token",
            ),
            Self::WrongAlg => (
                "wrong_logout_alg",
                "the logout token is signed by another algorithm than the configured one",
            ),
            Self::WrongIssuer => ("wrong_logout_issuer", "the logout is of another provider"),
            Self::WrongAudience => (
                "wrong_logout_audience",
                "the logout is for none of the plugin's clients",
            ),
            Self::Stale => (
                "stale_logout",
                "the logout token is over two minutes old, from the future, or without a time",
            ),
            Self::NoEvent => ("no_logout_event", "the token is about no logout"),
            Self::WithNonce => ("logout_with_nonce", "the logout token has a nonce"),
            Self::OfNobody => (
                "logout_of_nobody",
                "the logout names neither a session nor a user",
            ),
            Self::Repeated => ("logout_repeated", "the logout token was used before"),
            Self::UnknownSession => (
                "logout_of_unknown_session",
                "the logout in a frame is of a session that is not here",
            ),
            Self::Unavailable => (
                "session_store_unavailable",
                "the storage of sessions, or the provider's keys, can't be had",
            ),
        }
    }

    fn status(self) -> StatusCode {
        match self {
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

/// What log and metrics call logouts that the provider asks for.
pub(crate) fn codes() -> impl Iterator<Item = Code> {
    let done = Code::new("provider_logout", 200, "the provider has ended sessions");
    // That of an unavailable storage is one of requests, too.
    let refused = LogoutRefusal::ALL
        .into_iter()
        .filter(|one| *one != LogoutRefusal::Unavailable)
        .map(|refusal| {
            let (code, meaning) = refusal.describe();
            Code::new(code, refusal.status().as_u16(), meaning)
        });
    std::iter::once(done).chain(refused)
}

/// The addresses at which the provider asks for logouts.
#[derive(Debug)]
pub(crate) struct Channels {
    back: Option<String>,
    front: Option<String>,
    clients: Vec<String>,
    issuers: AllowedIssuers,
    leeway: i64,
    /// Whether a logout in a frame must name its session.
    session_required: bool,
}

/// By which way one is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    Back,
    Front,
}

impl Channels {
    /// `None`: there are none.
    pub(crate) fn new(fields: &Fields) -> Result<Option<Self>, ConfigError> {
        let suffix = |name: &str, text: Option<&str>| match text.filter(|text| !text.is_empty()) {
            Some(text) if !text.starts_with('/') => {
                Err(wrong(name, "expected the end of a path, from a slash on"))
            }
            text => Ok(text.map(str::to_owned)),
        };
        let back = fields.responses.backchannel_logout_uri_suffix.as_deref();
        let front = fields.responses.frontchannel_logout_uri_suffix.as_deref();
        let channels = Self {
            back: suffix("backchannel_logout_uri_suffix", back)?,
            front: suffix("frontchannel_logout_uri_suffix", front)?,
            clients: fields.provider.client_id.to_vec(),
            issuers: AllowedIssuers::new(fields),
            leeway: fields.checks.leeway.0,
            session_required: fields.responses.frontchannel_logout_session_required,
        };
        let any = channels.back.is_some() || channels.front.is_some();
        Ok(any.then_some(channels))
    }

    /// Whether a request goes to one of the addresses.
    pub(crate) fn asked(&self, request: &RequestHeader) -> Option<Channel> {
        let path = request.uri.path();
        let is = |end: &Option<String>| end.as_ref().is_some_and(|end| path.ends_with(end));
        if is(&self.back) && request.method == Method::POST {
            Some(Channel::Back)
        } else if is(&self.front) && request.method == Method::GET {
            Some(Channel::Front)
        } else {
            None
        }
    }

    /// What a logout token whose signature is good ends, with its identifier and
    /// the end of its use in seconds.
    fn check(
        &self,
        claims: &Map<String, Value>,
        issuer: &str,
        now: i64,
    ) -> Result<(LoginQuery, String, i64), LogoutRefusal> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        if !self.issuers.fit(claims, issuer) {
            return Err(LogoutRefusal::WrongIssuer);
        }
        let audience = claims.get("aud").map(words).unwrap_or_default();
        if !audience
            .iter()
            .any(|one| self.clients.iter().any(|own| own == one))
        {
            return Err(LogoutRefusal::WrongAudience);
        }
        let stale = LogoutRefusal::Stale;
        let at = time(claims, "iat").ok().flatten().ok_or(stale)?;
        let bound = FRESH.saturating_add(self.leeway);
        let end = time(claims, "exp").map_err(|_| stale)?;
        let over = end.is_some_and(|end| end.saturating_add(self.leeway) <= now);
        if over || now.saturating_sub(at) > bound || at.saturating_sub(now) > bound {
            return Err(stale);
        }
        let event = claims.get("events").and_then(|events| events.get(EVENT));
        if !event.is_some_and(Value::is_object) {
            return Err(LogoutRefusal::NoEvent);
        }
        if claims.contains_key("nonce") {
            return Err(LogoutRefusal::WithNonce);
        }
        let id = text("jti").filter(|id| !id.is_empty());
        let id = id.ok_or(LogoutRefusal::Malformed)?.to_owned();
        let mut which = LoginQuery {
            issuer: text("iss").map(str::to_owned),
            ..LoginQuery::default()
        };
        // A session says more than its user.
        match (text("sid"), text("sub")) {
            (Some(sid), _) if !sid.is_empty() => which.sid = Some(sid.to_owned()),
            (_, Some(subject)) if !subject.is_empty() => {
                which.subjects = crate::subjects(subject);
                // The token may come late, or once more: whoever has signed in
                // since is not meant. A session of the provider is over for good.
                let before = at.saturating_add(self.leeway).saturating_add(1);
                which.started_ms = Some(before.saturating_mul(1000) - 1);
            }
            _ => return Err(LogoutRefusal::OfNobody),
        }
        Ok((which, id, at.saturating_add(2 * bound)))
    }
}

/// Answers a logout that the provider asks for.
pub(crate) async fn handle_provider_logout(
    provider: &ProviderClient,
    metrics: &Metrics,
    (channels, channel): (&Channels, Channel),
    sessions: &Sessions,
    request: &RequestHeader,
    given: &Arguments,
    exchange: &mut Exchange,
) -> Result<Flow, Refusal> {
    let (outcome, frame) = match channel {
        Channel::Back => (
            end_by_token(provider, channels, sessions, given).await,
            None,
        ),
        Channel::Front => {
            let outcome = end_in_frame(provider, channels, sessions, request, given, exchange);
            (outcome.await, frame(provider).await)
        }
    };
    let (decision, reply) = match outcome {
        Ok(()) => ("provider_logout", Reply::empty(StatusCode::OK)),
        Err(refusal) => (refusal.code(), refused(refusal)),
    };
    metrics.decision(KIND.name, decision).inc();
    exchange.refusal = Some(Cow::Borrowed(decision));
    let mut reply = reply.header(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(frame) = frame {
        reply = reply.header(CONTENT_SECURITY_POLICY, frame);
    }
    Ok(Flow::Respond(reply))
}

/// The provider's pages, and nobody else's, may have the answer in a frame.
async fn frame(provider: &ProviderClient) -> Option<HeaderValue> {
    let metadata = provider.metadata().await.ok()?;
    let issuer = url::Url::parse(&metadata.issuer).ok()?;
    let origin = issuer.origin().ascii_serialization();
    let policy = format!("default-src 'none'; frame-ancestors {origin}");
    HeaderValue::try_from(policy).ok()
}

async fn end_by_token(
    provider: &ProviderClient,
    channels: &Channels,
    sessions: &Sessions,
    given: &Arguments,
) -> Result<(), LogoutRefusal> {
    let token = given.only("logout_token", IN_BODY).ok().flatten();
    let token = token.ok_or(LogoutRefusal::Malformed)?;
    let (claims, issuer) = claims_of_logout(provider, token).await?;
    let now_ms = provider.clock.now_ms();
    let now = now_ms.div_euclid(1000);
    let (which, id, until) = channels.check(&claims, &issuer, now)?;
    let down = |_| LogoutRefusal::Unavailable;
    let what = TokenHash::of(&format!("logout token\n{issuer}\n{id}"));
    if sessions.has_seen(what, now_ms).await.map_err(down)? {
        return Err(LogoutRefusal::Repeated);
    }
    // It counts as used when what it asks for is done: until then the
    // provider may, and shall, come with it again.
    let ended = sessions.end_at_provider(&which, now_ms).await;
    ended.map_err(down)?;
    let until_ms = until.saturating_mul(1000);
    let noted = sessions.remember(what, until_ms, now_ms).await;
    noted.map(drop).map_err(down)
}

/// The claims of a logout token that the provider signed, and the provider.
async fn claims_of_logout(
    provider: &ProviderClient,
    token: &str,
) -> Result<(Map<String, Value>, String), LogoutRefusal> {
    let parsed = Unverified::parse(token).map_err(|_| LogoutRefusal::Malformed)?;
    let typ = parsed.typ();
    // Older providers say nothing, or what any token is.
    if !matches!(typ.as_deref(), None | Some("jwt" | "logout+jwt")) {
        return Err(LogoutRefusal::WrongType);
    }
    let pinned = provider.response_alg.check(&parsed);
    pinned.map_err(|_| LogoutRefusal::WrongAlg)?;
    let said = parsed.claims_of_anyone();
    let said = said.map_err(|_| LogoutRefusal::Malformed)?;
    let secrets = provider.hmac_keys.of_audience(&said);
    match provider.signed(&parsed, secrets).await {
        Ok((claims, metadata)) => Ok((claims, metadata.issuer.clone())),
        Err(refusal) if refusal.class() == Class::Broken => Err(LogoutRefusal::Unavailable),
        Err(_) => Err(LogoutRefusal::BadSignature),
    }
}

/// Ends the session of the browser, if there is one, for a provider that says
/// nothing but that its user has signed out (Front-Channel Logout 1.0 §2).
async fn end_of_browser(
    provider: &ProviderClient,
    sessions: &Sessions,
    request: &RequestHeader,
    exchange: &mut Exchange,
) -> Result<(), LogoutRefusal> {
    let down = |_| LogoutRefusal::Unavailable;
    let now_ms = provider.clock.now_ms();
    let shown = sessions.find_or_restore(&request.headers, now_ms).await;
    for held in shown.map_err(down)? {
        sessions.end(&held, now_ms).await.map_err(down)?;
    }
    sessions.forget(Browser {
        headers: &request.headers,
        secure: exchange.secure,
        fields: &mut exchange.response_headers,
    });
    Ok(())
}

/// Ends the session of the browser, or one that is kept here: whoever knows
/// its name at the provider has it from there. Browsers often keep cookies
/// back in frames.
async fn end_in_frame(
    provider: &ProviderClient,
    channels: &Channels,
    sessions: &Sessions,
    request: &RequestHeader,
    given: &Arguments,
    exchange: &mut Exchange,
) -> Result<(), LogoutRefusal> {
    if !channels.session_required && !["iss", "sid"].iter().any(|name| given.has(name, IN_QUERY)) {
        return end_of_browser(provider, sessions, request, exchange).await;
    }
    let only = |name| {
        let found = given.only(name, IN_QUERY).ok().flatten();
        found.ok_or(LogoutRefusal::Malformed)
    };
    let (issuer, sid) = (only("iss")?, only("sid")?);
    let down = |_| LogoutRefusal::Unavailable;
    let metadata = provider.metadata().await;
    let metadata = metadata.map_err(|_| LogoutRefusal::Unavailable)?;
    if !channels.issuers.has(issuer, &metadata.issuer) {
        return Err(LogoutRefusal::WrongIssuer);
    }
    // As it calls itself, with or without a slash at the end.
    let own = same_issuer(issuer, &metadata.issuer).then_some(metadata.issuer.as_str());
    let now_ms = provider.clock.now_ms();
    let mut which = LoginQuery {
        issuer: Some(own.unwrap_or(issuer).to_owned()),
        sid: Some(sid.to_owned()),
        ..LoginQuery::default()
    };
    let shown = sessions.find_or_restore(&request.headers, now_ms).await;
    let mut own = false;
    for held in shown.map_err(|_| LogoutRefusal::Unavailable)? {
        let whose = held.owner();
        if whose.sid.as_deref() == Some(sid) && same_issuer(&whose.issuer, issuer) {
            own = true;
            which.issuer = Some(whose.issuer);
            sessions.forget(Browser {
                headers: &request.headers,
                secure: exchange.secure,
                fields: &mut exchange.response_headers,
            });
            sessions
                .end(&held, now_ms)
                .await
                .map_err(|_| LogoutRefusal::Unavailable)?;
        }
    }
    // Marks for names that somebody made up would fill the memory.
    if !own && !sessions.is_stored(&which).await {
        return Err(LogoutRefusal::UnknownSession);
    }
    sessions.end_at_provider(&which, now_ms).await.map_err(down)
}

fn refused(refusal: LogoutRefusal) -> Reply {
    let body = json!({"error": "invalid_request", "error_description": refusal.code()});
    let mut reply = Reply::empty(refusal.status());
    reply.body = ReplyBody::Raw("application/json", Bytes::from(body.to_string()));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn channels() -> Channels {
        let config = json!({"issuer": "https://id", "client_id": ["app", "other"],
            "backchannel_logout_uri_suffix": "/back", "frontchannel_logout_uri_suffix": "/front"});
        let channels = Channels::new(&Fields::of(&config).expect("valid")).expect("valid");
        channels.expect("some")
    }

    fn claims(change: impl FnOnce(&mut Value)) -> Map<String, Value> {
        let mut claims = json!({"iss": "https://id", "aud": "app", "iat": NOW, "jti": "j",
            "events": {EVENT: {}}, "sid": "s", "sub": "anna"});
        change(&mut claims);
        claims.as_object().cloned().expect("an object")
    }

    #[test]
    fn a_logout_token_ends_its_session_or_else_its_user() {
        let check = |claims| channels().check(&claims, "https://id/", NOW);
        let (which, id, _) = check(claims(|_| {})).expect("good");
        assert_eq!((which.sid.as_deref(), id.as_str()), (Some("s"), "j"));
        assert!(which.subjects.is_empty());
        let of_user = claims(|claims| drop(claims.as_object_mut().map(|all| all.remove("sid"))));
        let (which, ..) = check(of_user).expect("good");
        assert_eq!(which.subjects[0], "anna");
        assert_eq!(
            which.started_ms,
            Some(NOW * 1000 + 999),
            "not who came since"
        );
    }

    #[test]
    fn what_is_no_logout_token_of_ours_is_refused_by_name() {
        use LogoutRefusal::*;
        for (name, value, refusal) in [
            ("iss", json!("https://evil"), WrongIssuer),
            ("iss", json!(null), WrongIssuer),
            ("aud", json!("foreign"), WrongAudience),
            ("aud", json!(null), WrongAudience),
            ("iat", json!(NOW - 121), Stale),
            ("iat", json!(NOW + 121), Stale),
            ("iat", json!(null), Stale),
            ("exp", json!(NOW), Stale),
            ("events", json!({}), NoEvent),
            ("events", json!({EVENT: true}), NoEvent),
            ("events", json!([EVENT]), NoEvent),
            ("nonce", json!("n"), WithNonce),
            ("jti", json!(""), Malformed),
        ] {
            let claims = claims(|claims| claims[name] = value.clone());
            let outcome = channels().check(&claims, "https://id", NOW);
            assert_eq!(outcome.err(), Some(refusal), "{name} {value}");
        }
        let of_nobody = claims(|claims| {
            let all = claims.as_object_mut().expect("an object");
            all.remove("sid");
            all.remove("sub");
        });
        let outcome = channels().check(&of_nobody, "https://id", NOW);
        assert_eq!(outcome.err(), Some(OfNobody));
    }

    #[test]
    fn a_suffix_is_the_end_of_a_path() {
        let config = json!({"backchannel_logout_uri_suffix": "back"});
        assert!(Channels::new(&Fields::of(&config).expect("valid")).is_err());
        let request = |method: &str, path: &str| {
            RequestHeader::build(method, path.as_bytes(), None).expect("a request")
        };
        for (method, path, asked) in [
            ("POST", "/api/back?x=1", Some(Channel::Back)),
            ("GET", "/api/back", None),
            ("GET", "/front?iss=a", Some(Channel::Front)),
            ("POST", "/front", None),
            ("POST", "/backs", None),
        ] {
            assert_eq!(channels().asked(&request(method, path)), asked, "{path}");
        }
    }
}
