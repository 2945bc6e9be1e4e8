//! Signing in by the provider or the admin token, signing out, and the language.

use askama::Template;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};

use doorward_core::model::audit::Actor;
use doorward_net::http::guess_limit::GuessLimitConfig;

use super::error::{PageError, SignInError};
use super::frame::{self, Frame};
use super::provider::{self, SignInStatus};
use super::session::Role;
use super::visit::Visit;
use super::{SIGN_IN, path, texts};

/// When guesses of the token are slowed down: people type it once.
const BRAKE: GuessLimitConfig = GuessLimitConfig {
    failures: 5,
    window: 300,
    duration: 60,
    pause_ms: 1000,
};

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    frame: Frame,
    to: String,
    error: &'static str,
    /// Where the way through the provider begins; "": there is none.
    provider: String,
    /// Whether the admin token signs in.
    token: bool,
}

#[derive(Template)]
#[template(path = "signed_out.html")]
struct SignedOutPage {
    frame: Frame,
    provider: String,
}

/// Leads to the sign-in, and from there back to where the visitor was going.
pub(crate) fn lead_to(visit: &Visit) -> Response {
    let to = path::own(&visit.address);
    frame::lead(&path::with_query("/console/sign-in", [("to", to)]))
}

/// `GET /sign-in`.
pub(crate) async fn show(visit: Visit) -> Result<Response, PageError> {
    let to = path::own(visit.query("to")).to_owned();
    if visit.session().is_some() {
        return Ok(frame::lead(&to));
    }
    page(&visit, to, "", StatusCode::OK)
}

fn page(
    visit: &Visit,
    to: String,
    error: &'static str,
    status: StatusCode,
) -> Result<Response, PageError> {
    let parts = visit.parts();
    let provider = parts.provider.as_ref().map(|_| provider::way(&to, false));
    let page = SignInPage {
        frame: Frame::of(visit, visit.texts.sign_in, ""),
        provider: provider.unwrap_or_default(),
        token: parts.takes_token(),
        to,
        error,
    };
    let mut response = frame::show(&page)?;
    *response.status_mut() = status;
    Ok(response)
}

/// `POST /sign-in`: the admin token opens a session. It goes into none of the
/// answers.
pub(crate) async fn submit(mut visit: Visit) -> Result<Response, PageError> {
    let to = path::own(visit.field("to")).to_owned();
    let now_ms = visit.now_ms();
    let shown = visit.clone();
    let parts = shown.parts();
    if !parts.takes_token() {
        return Err(PageError::NotFound);
    }
    let address = visit.client.map(|client| client.addr.ip());
    let pair = address.map(|address| parts.guesses.pair("console", "admin", address));
    let Ok(attempt) = parts.guesses.look(BRAKE, pair, now_ms) else {
        let texts = visit.texts;
        return page(&visit, to, texts.too_many, StatusCode::TOO_MANY_REQUESTS);
    };
    if parts.admin.is_token(visit.field("token")) {
        attempt.right();
        visit.begin(Role::Owner, None);
        return Ok(led(&to, visit.take_cookies()));
    }
    note_refusal(&visit, Actor::Anonymous, StatusCode::UNAUTHORIZED);
    let wrong = attempt.wrong(now_ms);
    wrong.pause().await;
    let error = visit.texts.wrong_token;
    page(&visit, to, error, StatusCode::UNAUTHORIZED)
}

/// An answer that leads on, with these cookies.
fn led(to: &str, cookies: Vec<HeaderValue>) -> Response {
    let mut response = frame::lead(to);
    for field in cookies {
        response.headers_mut().append(header::SET_COOKIE, field);
    }
    response
}

fn note_refusal(visit: &Visit, actor: Actor, status: StatusCode) {
    let admin = &visit.parts().admin;
    admin.note_refusal(visit.client, actor, status);
}

/// `GET /sign-in/provider`: sends the browser to the identity provider. It is led
/// here by a link: browsers hold the redirects that follow a form to the page's
/// `form-action`.
pub(crate) async fn depart(visit: Visit) -> Result<Response, PageError> {
    let provider = visit.parts().provider.as_ref();
    let provider = provider.ok_or(PageError::NotFound)?;
    let is_fresh = visit.query("fresh") == "1";
    let departure = provider.depart(&visit, path::own(visit.query("to")), is_fresh)?;
    Ok(led(&departure.address, departure.cookies))
}

/// `GET /sign-in/callback`: the browser is back from the identity provider.
pub(crate) async fn arrive(mut visit: Visit) -> Result<Response, PageError> {
    let shown = visit.clone();
    let provider = shown.parts().provider.as_ref();
    let provider = provider.ok_or(PageError::NotFound)?;
    let arrival = match provider.arrive(&visit).await {
        Ok(arrival) => arrival,
        // Who loads the page again stays where that person is.
        Err(PageError::SignIn(SignInError::Spent(to))) if visit.session().is_some() => {
            return Ok(frame::lead(&to));
        }
        Err(error) => {
            if matches!(error, PageError::SignIn(_)) {
                note_refusal(&visit, Actor::Anonymous, StatusCode::UNAUTHORIZED);
            }
            return Err(error);
        }
    };
    let sign_in = arrival.sign_in;
    match provider.status(&sign_in, true).await? {
        SignInStatus::Role(_, role) => {
            let old = shown.session().and_then(|old| old.sign_in.as_ref());
            if let Some(old) = old {
                provider.client().end(old, shown.actor()).await;
            }
            visit.begin(role, Some(sign_in));
            Ok(led(&arrival.to, visit.take_cookies()))
        }
        SignInStatus::NoRole(person) => {
            let actor = Actor::Person(person.clone());
            provider.client().end(&sign_in, actor.clone()).await;
            note_refusal(&visit, actor, StatusCode::FORBIDDEN);
            Err(PageError::NoGroup(person))
        }
        // It ended while its code was on the way.
        SignInStatus::Ended => Err(PageError::SignIn(SignInError::Answer)),
    }
}

/// `POST /sign-out`.
pub(crate) async fn sign_out(visit: Visit) -> Result<Response, PageError> {
    let Some(session) = visit.session() else {
        return Ok(frame::lead(SIGN_IN));
    };
    let parts = visit.parts();
    let (secure, now_ms) = (visit.is_secure(), visit.now_ms());
    let cookies = parts.sessions.end(session, &visit.headers, secure, now_ms);
    let to = match (&parts.provider, &session.sign_in) {
        (Some(provider), Some(sign_in)) => {
            provider.client().end(sign_in, visit.actor()).await;
            "/console/signed-out"
        }
        _ => SIGN_IN,
    };
    Ok(led(to, cookies))
}

/// `GET /signed-out`: offers to end the session at the provider as well.
pub(crate) async fn signed_out(visit: Visit) -> Result<Response, PageError> {
    let provider = visit.parts().provider.as_ref();
    let address = provider.and_then(|provider| provider.sign_out_address(&visit));
    frame::show(&SignedOutPage {
        frame: Frame::of(&visit, visit.texts.signed_out, ""),
        provider: address.unwrap_or_default(),
    })
}

/// `GET /language`: keeps the language in a cookie, and leads back.
pub(crate) async fn language(visit: Visit) -> Result<Response, PageError> {
    let mut response = frame::lead(path::own(visit.query("back")));
    if let Some(lang) = texts::tag(visit.query("to")) {
        let secure = if visit.is_secure() { "; Secure" } else { "" };
        let name = texts::COOKIE;
        let field = format!(
            "{name}={lang}; Path=/console; SameSite=Lax; HttpOnly; Max-Age=31536000{secure}"
        );
        if let Ok(field) = HeaderValue::try_from(field) {
            response.headers_mut().append(header::SET_COOKIE, field);
        }
    }
    Ok(response)
}
