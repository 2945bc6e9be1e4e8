//! `/oauth2[/realms/…]/connect/endSession` (OpenID Connect RP-Initiated Logout
//! 1.0).
//!
//! A session ends at once where the client proves by an ID token that it is
//! its user's; otherwise the user is asked first, or any site could sign
//! people out.

use axum::response::Response;
use http::Method;
use url::Url;

use super::authorize::{Browser, page, redirect};
use super::error::OAuthError;
use super::form::{self, Form};
use super::id_token_hint::{self, IdTokenHint};
use super::pages::{self, AfterLogout, Frame};
use super::{Call, audit, request_path, sessions};
use doorward_core::model::audit::{Event, Kind, PendingAudit};
use doorward_core::model::grant::StoredSession;
use doorward_core::model::session::{EndedSession, Ending};
use doorward_core::model::user::User;

/// Parameters that the confirmation page carries on.
const CARRIED: [&str; 4] = [
    "client_id",
    "post_logout_redirect_uri",
    "state",
    "ui_locales",
];

/// Most clients that one page tells.
const FRAMES_MAX: usize = 50;

/// Answers a request to sign out, or the form that asked for confirmation.
pub(super) async fn answer(call: &Call) -> Response {
    let answered = sign_out(call).await;
    answered.unwrap_or_else(|error| page(call, &error))
}

async fn sign_out(call: &Call) -> Result<Response, OAuthError> {
    let text = parameters(call)?;
    let form = Form::parse(&text);
    let form = form.map_err(|error| OAuthError::bad("invalid_request", error.to_string()))?;
    let hint = match form.get("id_token_hint") {
        Some(token) => {
            let hint = id_token_hint::read(call, token).await;
            let wrong = || OAuthError::bad("bad_request", "The id_token_hint is not one of ours");
            Some(hint.ok_or_else(wrong)?)
        }
        None => None,
    };
    let next = next(call, &form, hint.as_ref()).await?;
    if call.parts.method == Method::POST && sessions::token_of_browser(call).is_none() {
        return Ok(redirect(call, &as_link(call, &form)));
    }
    let frame = call.frame(form.get("ui_locales"));
    let found = sessions::of_browser(call).await?;
    let sid = found.as_ref().map(|(session, _)| session.sid.as_str());
    let mut ended = end_hinted(call, hint.as_ref(), sid).await?;
    if let Some((session, user)) = found {
        let vouched = hint
            .as_ref()
            .is_some_and(|hint| matches(hint, &session, &user));
        let browser = Browser::of(call);
        let purpose = ["logout", &session.sid];
        let confirmed = call.parts.method == Method::POST
            && form.get("logout-yes").is_some()
            && browser.sent(call, &purpose, form.get("csrf"));
        if !vouched && !confirmed {
            let hinted = hint.map(|hint| hint.client_id);
            let fields = carried(&form, hinted);
            let frame = match &next {
                Some(address) => frame.leading_to(address),
                None => frame,
            };
            return Ok(ask(call, fields, &frame, &browser, (&session, &user)));
        }
        let which = Ending::Token(session.hash);
        let ends = async |audit: Option<&PendingAudit>| {
            call.state.end_sessions(&which, call.now_ms, audit).await
        };
        let told = |event: Event| {
            let event = event.target(&format!("sessions/{}", session.sid));
            event.with("cause", "sign_out")
        };
        ended.extend(audit::with(&call.state, Kind::SessionEnd, told, ends).await?);
    }
    let farewell = AfterLogout {
        frames: frames(call, &ended).await?,
        next,
    };
    let mut response = match &farewell.next {
        Some(address) if farewell.frames.is_empty() => redirect(call, address),
        _ => pages::signed_out(&frame, &farewell),
    };
    sessions::clear_cookie(call, &mut response).await?;
    Ok(response)
}

/// The request as a link. Browsers leave the session's cookie out of forms that
/// other sites post, and bring it when they are led here: until then nobody
/// knows whether there is a session, and what a stranger posts must not take
/// the cookie away.
fn as_link(call: &Call, form: &Form<'_>) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    let names = CARRIED.into_iter().chain(["id_token_hint", "logout_hint"]);
    query.extend_pairs(names.filter_map(|name| Some((name, form.get(name)?))));
    let (path, query) = (request_path::path(call), query.finish());
    if query.is_empty() {
        path
    } else {
        format!("{path}?{query}")
    }
}

/// Ends the session that the ID token was given in, where that is not the one
/// of this browser: it lapsed and left something, or the browser has lost it. A
/// browser with another session may not end one that others use.
async fn end_hinted(
    call: &Call,
    hint: Option<&IdTokenHint>,
    own: Option<&str>,
) -> Result<Vec<EndedSession>, OAuthError> {
    let sid = hint.and_then(|hint| hint.sid.as_deref());
    let Some(sid) = sid.filter(|sid| own != Some(*sid)) else {
        return Ok(Vec::new());
    };
    let (state, realm) = (&call.state, &call.realm.path);
    let other = state.store.session_named(realm, sid).await?;
    let in_use = other.is_some_and(|other| state.is_alive(&other.session, call.now_ms));
    if in_use && own.is_some() {
        return Ok(Vec::new());
    }
    let which = Ending::Named {
        realm: realm.clone(),
        sid: sid.to_owned(),
    };
    let ends =
        async |audit: Option<&PendingAudit>| state.end_sessions(&which, call.now_ms, audit).await;
    let told = |event: Event| {
        let event = event.target(&format!("sessions/{sid}"));
        event.with("cause", "sign_out")
    };
    let ended = audit::with_if(state, Kind::SessionEnd, told, ends, |ended| {
        !ended.is_empty()
    });
    Ok(ended.await?)
}

/// What the signed-out page loads to tell clients of these sessions (OpenID
/// Connect Front-Channel Logout 1.0 §2): with issuer and session always, so
/// that nobody else's frame signs their users out.
async fn frames(call: &Call, ended: &[EndedSession]) -> Result<Vec<String>, OAuthError> {
    let state = &call.state;
    let mut frames = Vec::new();
    let mut clients = Vec::new();
    for session in ended {
        let of_it = session.clients.iter();
        clients.extend(of_it.map(|client_id| (session.sid.as_str(), client_id.as_str())));
    }
    for (sid, client_id) in clients.into_iter().take(FRAMES_MAX) {
        let client = state.clients.find(&state.store, &call.realm, client_id);
        let client = client.await?;
        let uri = client.and_then(|client| {
            let uri = client.client.metadata.frontchannel_logout_uri.as_ref();
            Url::parse(uri?).ok()
        });
        if let Some(mut uri) = uri {
            uri.query_pairs_mut()
                .append_pair("iss", &call.realm.issuer)
                .append_pair("sid", sid);
            frames.push(uri.into());
        }
    }
    Ok(frames)
}

/// The parameters of the address or, of a POST, of the body.
fn parameters(call: &Call) -> Result<Vec<u8>, OAuthError> {
    if call.parts.method != Method::POST {
        let query = call.parts.uri.query().unwrap_or_default();
        return Ok(query.as_bytes().to_vec());
    }
    if form::is_form(call.headers()) || call.body.is_empty() {
        Ok(call.body.to_vec())
    } else {
        Err(OAuthError::bad("invalid_request", "Invalid Content Type"))
    }
}

/// Whether the ID token was given to the user of this session, and in it, as
/// far as it says.
fn matches(hint: &IdTokenHint, session: &StoredSession, user: &User) -> bool {
    let same = hint.sid.as_ref().is_none_or(|sid| *sid == session.sid);
    hint.subject == user.user_name && same
}

/// Where the user goes afterwards: an address that the client has registered.
/// One that nobody vouches for is not gone to (RP-Initiated Logout §3).
async fn next(
    call: &Call,
    form: &Form<'_>,
    hint: Option<&IdTokenHint>,
) -> Result<Option<String>, OAuthError> {
    let named = form.get("client_id");
    let hinted = hint.map(|hint| hint.client_id.as_str());
    if let (Some(named), Some(hinted)) = (named, hinted)
        && named != hinted
    {
        let text = "The client_id is not that of the id_token_hint";
        return Err(OAuthError::bad("bad_request", text));
    }
    let Some(id) = hinted.or(named) else {
        return Ok(None);
    };
    let Some(address) = form.get("post_logout_redirect_uri") else {
        return Ok(None);
    };
    let mismatch = || {
        OAuthError::bad(
            "redirect_uri_mismatch",
            "The redirection URI provided does not match a pre-registered value.",
        )
    };
    let state = &call.state;
    let client = match id.len() {
        0..=255 => state.clients.find(&state.store, &call.realm, id).await?,
        _ => None,
    };
    let client = client.ok_or_else(mismatch)?;
    let registered = &client.client.metadata.post_logout_redirect_uris;
    if !registered.iter().any(|known| known == address) {
        return Err(mismatch());
    }
    let Some(state) = form.get("state") else {
        return Ok(Some(address.to_owned()));
    };
    let joint = if address.contains('?') { '&' } else { '?' };
    let state: String = url::form_urlencoded::byte_serialize(state.as_bytes()).collect();
    Ok(Some(format!("{address}{joint}state={state}")))
}

/// What the page carries on. The client of the hint goes as if it had been
/// named: without it, the address that it registered could not be checked again.
fn carried(form: &Form<'_>, hinted: Option<String>) -> Vec<(&'static str, String)> {
    let value = |name| form.get(name).map(str::to_owned);
    let named = |name| match name {
        "client_id" => value(name).or_else(|| hinted.clone()),
        _ => value(name),
    };
    let pairs = CARRIED.into_iter();
    pairs
        .filter_map(|name| Some((name, named(name)?)))
        .collect()
}

fn ask(
    call: &Call,
    fields: Vec<(&'static str, String)>,
    frame: &Frame,
    browser: &Browser,
    (session, user): (&StoredSession, &User),
) -> Response {
    let csrf = browser.token(&["logout", &session.sid]);
    let action = request_path::path(call);
    let name = &user.user_name;
    let mut response = pages::sign_out(frame, &action, &fields, &csrf, name);
    browser.remember(call, &mut response);
    response
}
