//! Signing in by the admin token, signing out, and the language.

use askama::Template;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};

use doorward_net::http::guess_limit::GuessLimitConfig;

use super::error::PageError;
use super::frame::{self, Frame};
use super::path;
use super::session::Role;
use super::texts;
use super::visit::Visit;

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
    let page = SignInPage {
        frame: Frame::of(visit, visit.texts.sign_in, ""),
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
    let address = visit.client.map(|client| client.addr.ip());
    let pair = address.map(|address| parts.guesses.pair("console", "admin", address));
    let Ok(attempt) = parts.guesses.look(BRAKE, pair, now_ms) else {
        let texts = visit.texts;
        return page(&visit, to, texts.too_many, StatusCode::TOO_MANY_REQUESTS);
    };
    if parts.admin.is_token(visit.field("token")) {
        attempt.right();
        visit.begin(Role::Owner);
        let mut response = frame::lead(&to);
        for field in visit.take_cookies() {
            response.headers_mut().append(header::SET_COOKIE, field);
        }
        return Ok(response);
    }
    parts
        .admin
        .note_refusal(visit.client, StatusCode::UNAUTHORIZED);
    let wrong = attempt.wrong(now_ms);
    wrong.pause().await;
    let error = visit.texts.wrong_token;
    page(&visit, to, error, StatusCode::UNAUTHORIZED)
}

/// `POST /sign-out`.
pub(crate) async fn sign_out(visit: Visit) -> Result<Response, PageError> {
    let mut response = frame::lead("/console/sign-in");
    if let Some(session) = visit.session() {
        let sessions = &visit.parts().sessions;
        let (secure, now_ms) = (visit.is_secure(), visit.now_ms());
        for field in sessions.end(session, &visit.headers, secure, now_ms) {
            response.headers_mut().append(header::SET_COOKIE, field);
        }
    }
    Ok(response)
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
