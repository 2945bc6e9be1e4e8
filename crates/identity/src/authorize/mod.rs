//! The authorization endpoint (RFC 6749 §3.1, OpenID Connect Core §3.1.2), and
//! the two forms that may stand between a request and its answer.
//!
//! Nothing is kept of a request that is not granted yet: its parameters travel
//! in the address of each page, and are checked anew each time. What a client
//! pushed, and what is too long for an address, is kept; then the address of
//! that travels.

mod authorization_response;
mod browser;
mod claims;
mod finish;
mod params;
mod pushed_request;
mod redirect_uri;
mod request;
mod request_object;
mod request_uri;
mod resolve;
mod stored_request;
mod wanted_users;

use std::borrow::Cow;

use axum::response::Response;
use http::Method;

use authorization_response::{AuthorizationError, RequestError};
pub(super) use authorization_response::{page, redirect};
pub(super) use browser::{Browser, COOKIE, SHOWN_MS};
pub(super) use params::SWITCH;
use params::{CARRIED_MAX, CARRIED_TO_OTHERS_MAX, Params, SINCE};
pub(super) use pushed_request::push;
use request::{Request, UNMET};
pub(super) use request::{is_challenge, is_unreserved};
pub(super) use request_uri::References;

use super::context::ELSEWHERE;
use super::error::OAuthError;
use super::federation::{FAILED, ProviderChoices};
use super::pages::{self, Applicant, FormError, FormParts};
use super::sign_in::{self, Fields, LoginPage, MissingFactor, RESUME};
use super::{Call, audit, membership, request_path, sessions};
use doorward_core::model::audit::{Detail, Event, Kind, PendingAudit};
use doorward_core::model::grant::{StoredSession, TokenHash};
use doorward_core::model::user::User;

/// Answers an authorization request, or the form that asked for consent to one.
pub(super) async fn answer(call: &Call) -> Response {
    let answered = async {
        let params = params(call)?;
        let request = resolve::read(call, &params).await?;
        let answered = authorize(call, &params, &request).await;
        if let Err(RequestError::Redirect(..)) = &answered {
            stored_request::spend(call, &request).await?;
        }
        answered
    };
    answered
        .await
        .unwrap_or_else(|refused: RequestError| refused.response(call))
}

/// Answers the sign-in form; by GET, leads to the page that has it.
pub(super) async fn sign_in(call: &Call) -> Response {
    let answered = async {
        let params = params(call)?;
        let request = resolve::read(call, &params).await?;
        if call.parts.method != Method::POST {
            return Ok(redirect(call, &here(call, "authorize", &request.query)));
        }
        signed_in(call, &params, &request).await
    };
    answered
        .await
        .unwrap_or_else(|refused: RequestError| refused.response(call))
}

fn params(call: &Call) -> Result<Params, RequestError> {
    let refused = |text: String| RequestError::Local(OAuthError::bad("invalid_request", text));
    Params::of(call).map_err(|error| refused(error.to_string()))
}

/// The address of one of our pages, with the request: a path, so that the
/// browser stays on the host whose cookies it has.
fn here(call: &Call, page: &str, query: &str) -> String {
    let path = request_path::path(call);
    let path = path.strip_suffix("/login").unwrap_or(&path);
    let realm = path.strip_suffix("authorize").unwrap_or(path);
    format!("{realm}{page}?{query}")
}

/// A request, and what its user has done about it so far.
struct AuthorizationFlow<'a> {
    request: &'a Request,
    browser: Browser,
    /// When this browser was first shown the request, if it was before.
    shown_ms: Option<i64>,
}

impl<'a> AuthorizationFlow<'a> {
    fn of(call: &Call, params: &Params, request: &'a Request) -> Self {
        let browser = Browser::of(call);
        let shown_ms = browser.first_shown(&request.query, params.own(SINCE), call.now_ms);
        Self {
            request,
            browser,
            shown_ms,
        }
    }

    /// Whether the user has signed in on the pages of this very request. Another
    /// provider may have signed the user in without a page.
    fn has_just_signed_in(&self, session: &StoredSession) -> bool {
        let is_later = |shown_ms| session.auth_ms >= shown_ms;
        let elsewhere = session.amr.iter().any(|method| method == ELSEWHERE);
        self.shown_ms.is_some_and(is_later) && !elsewhere
    }

    /// Whether the user of this session has to show the password (again).
    fn needs_sign_in(&self, call: &Call, session: &StoredSession, user: &User) -> bool {
        let request = self.request;
        if self
            .shown_ms
            .is_some_and(|shown_ms| session.auth_ms >= shown_ms)
        {
            // Has just done so, for this very request.
            return false;
        }
        let age = call.now_ms.div_euclid(1000) - session.auth_ms.div_euclid(1000);
        let too_old = |max_age| max_age == 0 || age > max_age;
        request.prompt.login || request.max_age.is_some_and(too_old) || !request.users.include(user)
    }

    fn form(&self, call: &Call, page: &str, purpose: &[&str]) -> FormParts {
        let query = &self.request.query;
        FormParts {
            action: here(call, page, query),
            csrf: self.browser.token(purpose),
            since: self
                .browser
                .since(query, self.shown_ms.unwrap_or(call.now_ms)),
            provider_links: Vec::new(),
            forgot: None,
        }
    }

    /// What leads back to this request from another provider; how fresh the
    /// sign-in must be here, it must be there.
    fn choices(&self, call: &Call, switches: bool) -> ProviderChoices {
        let request = self.request;
        let query = &request.query;
        let since = self
            .browser
            .since(query, self.shown_ms.unwrap_or(call.now_ms));
        let since: String = url::form_urlencoded::byte_serialize(since.as_bytes()).collect();
        let prompt = match (request.prompt.login, switches) {
            (true, _) => Some("login"),
            (false, true) => Some("select_account"),
            (false, false) => None,
        };
        ProviderChoices {
            to: format!("authorize?{query}&{SINCE}={since}"),
            max_age: request.prompt.login.then_some(0).or(request.max_age),
            prompt: prompt.map(str::to_owned),
            hint: request.login_hint.clone(),
            link: None,
        }
    }

    /// What a consent is bound to, beside the browser: the user's identifier, the
    /// request, and what it is `shown` to ask for. That may change while the page is
    /// open, with the user's groups. Not the session: tabs that sign in at once begin
    /// one each, and all go on with the last.
    fn consent_purpose<'p>(&'p self, user_id: &'p str, shown: &'p [String]) -> Vec<&'p str> {
        let request = ["consent", user_id, &self.request.query];
        let shown = shown.iter().map(String::as_str);
        request.into_iter().chain(shown).collect()
    }

    /// Where the user signs in for this request.
    fn login_page<'v>(&'v self, call: &'v Call, choices: &'v ProviderChoices) -> LoginPage<'v> {
        let (request, query) = (self.request, &self.request.query);
        let shown_ms = self.shown_ms.unwrap_or(call.now_ms);
        let since = self.browser.since(query, shown_ms);
        let spelt: String = url::form_urlencoded::byte_serialize(since.as_bytes()).collect();
        LoginPage {
            call,
            browser: &self.browser,
            frame: &request.target.frame,
            applicant: applicant(request),
            choices,
            purpose: vec!["login", query],
            action: here(call, "authorize/login", query),
            next: format!("{}&{SINCE}={spelt}", here(call, "authorize", query)),
            since,
            shown_ms: self.shown_ms,
        }
    }

    fn show_consent(&self, call: &Call, user: &User, failed: Option<FormError>) -> Response {
        let request = self.request;
        let user_id = user.id.to_string();
        let shown = request.shown();
        let form = self.form(call, "authorize", &self.consent_purpose(&user_id, &shown));
        let what = (user.user_name.as_str(), shown.as_slice());
        let frame = &request.target.frame;
        let mut response = pages::consent(frame, applicant(request), &form, what, failed);
        self.browser.remember(call, &mut response);
        response
    }
}

fn applicant(request: &Request) -> Applicant<'_> {
    Applicant::of(&request.client.client.metadata, &request.target.frame)
}

async fn authorize(
    call: &Call,
    params: &Params,
    request: &Request,
) -> Result<Response, RequestError> {
    let tell = |error, text| {
        RequestError::Redirect(
            Box::new(request.target.clone()),
            AuthorizationError::new(error, text),
        )
    };
    let flow = AuthorizationFlow::of(call, params, request);
    let found = sessions::of_browser(call).await?;
    if found.is_none()
        && call.parts.method == Method::POST
        && request.query.len() <= CARRIED_MAX
        && sessions::token_of_browser(call).is_none()
    {
        // Browsers keep our cookies to themselves when another site posts.
        return Ok(redirect(call, &here(call, "authorize", &request.query)));
    }
    let switches = call.parts.method == Method::POST && params.own(SWITCH).is_some();
    let signed_in =
        found.filter(|(session, user)| !switches && !flow.needs_sign_in(call, session, user));
    let Some((session, user)) = signed_in else {
        if request.prompt.none {
            return Err(tell("login_required", "The user has to sign in"));
        }
        if let Some(elsewhere) = before_a_page(call, request).await? {
            return Ok(elsewhere);
        }
        let name = request.login_hint.as_deref().unwrap_or_default();
        let choices = flow.choices(call, switches);
        let login_page = flow.login_page(call, &choices);
        if let Some(page) = login_page.resume(params.own(RESUME)).await? {
            return Ok(page);
        }
        let mut failed = params.own(FAILED).and_then(FormError::elsewhere);
        // Who came back from there empty-handed, or wants to be somebody else,
        // is shown the page: nobody goes round in circles.
        if failed.is_none() && params.own(FAILED).is_none() && !switches {
            match choices.at_once(call, &flow.browser).await {
                Ok(Some(elsewhere)) => return Ok(elsewhere),
                Ok(None) => {}
                Err(silent) => failed = Some(silent),
            }
        }
        return Ok(login_page.show(name, failed));
    };
    if !request.users.include(&user) {
        return Err(tell("login_required", "Another user is signed in"));
    }
    match sign_in::missing_factor(call, (&session, &user), &request.demand).await? {
        MissingFactor::Nothing => {}
        MissingFactor::Unmet => {
            return Err(RequestError::Redirect(
                Box::new(request.target.clone()),
                UNMET,
            ));
        }
        MissingFactor::Wished(_) if request.prompt.none => {}
        MissingFactor::Next(_) if request.prompt.none => {
            return Err(tell(
                "login_required",
                "The user has to confirm who they are",
            ));
        }
        MissingFactor::Next(next) | MissingFactor::Wished(next) => {
            if let Some(elsewhere) = before_a_page(call, request).await? {
                return Ok(elsewhere);
            }
            let choices = flow.choices(call, false);
            return Ok(flow.login_page(call, &choices).show_next(*next, None));
        }
    }
    let confined = confine(call, request, &user).await?;
    let request = confined.as_ref().unwrap_or(request);
    let flow = AuthorizationFlow { request, ..flow };
    // No link decides, and nothing is decided where nothing may be shown.
    let may_decide = call.parts.method == Method::POST && !request.prompt.none;
    let decided = decision(params).filter(|_| may_decide);
    if decided.is_some() && !came_from_us(call, params, &flow, (&session, &user)) {
        return Ok(flow.show_consent(call, &user, Some(FormError::Stale)));
    }
    match decided {
        Some(false) => {
            audit::note(&call.state, Kind::ConsentGive, |event| {
                consent(event, request).failed("access_denied")
            });
            let text = "Resource Owner did not authorize the request";
            return Err(tell("access_denied", text));
        }
        Some(true) => keep_consent(call, params, request, &user).await?,
        None if needs_consent(call, &flow, (&session, &user)).await? => {
            if request.prompt.none {
                return Err(tell("consent_required", "The user has to agree"));
            }
            if let Some(elsewhere) = before_a_page(call, request).await? {
                return Ok(elsewhere);
            }
            return Ok(flow.show_consent(call, &user, None));
        }
        None => {}
    }
    stored_request::spend(call, request).await?;
    finish::finish(call, request, &session, &user).await
}

/// The request without the scopes that its user may not be granted, if there are any:
/// neither those that it names nor those of claims that it wishes for.
async fn confine(
    call: &Call,
    request: &Request,
    user: &User,
) -> Result<Option<Request>, RequestError> {
    let (client, scopes) = (&request.client, &request.consent_scopes);
    let id = Some(user.id);
    let permitted =
        match membership::permitted_scopes(&call.state, &call.realm, client, id, scopes).await? {
            Cow::Borrowed(_) => return Ok(None),
            Cow::Owned(permitted) => permitted,
        };
    let confined = request.confined_to(permitted);
    if confined.scopes.is_empty() && !request.scopes.is_empty() {
        let text = "The user may have none of the requested scopes";
        let error = AuthorizationError::new("invalid_scope", text);
        let target = Box::new(request.target.clone());
        return Err(RequestError::Redirect(target, error));
    }
    Ok(Some(confined))
}

/// Makes sure that the request outlives the page that its user is to be shown;
/// where it is too long to be carried, leads to where it is not.
async fn before_a_page(call: &Call, request: &Request) -> Result<Option<Response>, RequestError> {
    let most = if call.realm.providers().is_empty() {
        CARRIED_MAX
    } else {
        CARRIED_TO_OTHERS_MAX
    };
    if request.query.len() <= most {
        stored_request::prolong(call, request).await?;
        return Ok(None);
    }
    let query = stored_request::shorten(call, request).await?;
    Ok(Some(redirect(call, &here(call, "authorize", &query))))
}

/// What the consent form says: by its buttons, or in the imitated product's
/// words. Both at once is a no.
fn decision(params: &Params) -> Option<bool> {
    if params.own("deny").is_some() {
        return Some(false);
    }
    let approved = params.own("approve").is_some();
    match params.own("decision") {
        Some("allow") => Some(true),
        Some(_) => Some(false),
        None => approved.then_some(true),
    }
}

/// Whether a decision is the user's own: posted from the page that this browser
/// was shown for this user and these scopes, or by somebody who knows the session's token, as
/// scripts do.
fn came_from_us(
    call: &Call,
    params: &Params,
    flow: &AuthorizationFlow<'_>,
    (session, user): (&StoredSession, &User),
) -> bool {
    let csrf = params.own("csrf");
    let knows = csrf.is_some_and(|token| TokenHash::of(token) == session.hash);
    let user_id = user.id.to_string();
    let shown = flow.request.shown();
    let purpose = flow.consent_purpose(&user_id, &shown);
    call.parts.method == Method::POST && (knows || flow.browser.sent(call, &purpose, csrf))
}

/// Whether the user has to be asked. Where nothing assures who the client is,
/// each request asks, whatever was agreed before (RFC 6749 §10.2, RFC 8252 §8.6):
/// a client without consent then takes a sign-in on the pages of the request.
async fn needs_consent(
    call: &Call,
    flow: &AuthorizationFlow<'_>,
    (session, user): (&StoredSession, &User),
) -> Result<bool, RequestError> {
    let request = flow.request;
    if request.prompt.consent {
        return Ok(true);
    }
    let metadata = &request.client.client.metadata;
    let is_asked = metadata.require_consent.unwrap_or(true);
    if !request.assures_client() {
        return Ok(is_asked || !flow.has_just_signed_in(session));
    }
    if !is_asked {
        return Ok(false);
    }
    let store = &call.state.store;
    let agreed = store.consent(user.id, request.client.id()).await?;
    let mut wanted = request.consent_entries().into_iter();
    Ok(!wanted.all(|entry| agreed.contains(&entry)))
}

async fn keep_consent(
    call: &Call,
    params: &Params,
    request: &Request,
    user: &User,
) -> Result<(), RequestError> {
    // A consent to whoever says to be the client counts for this request alone.
    if params.own("save_consent").is_some() && request.assures_client() {
        let store = &call.state.store;
        let (realm, client_id) = (&call.realm.path, request.client.id());
        let entries = request.consent_entries();
        let write = async |audit: Option<&PendingAudit>| {
            let (id, now_ms) = (user.id, call.now_ms);
            store
                .add_consent(realm, id, client_id, &entries, now_ms, audit)
                .await
        };
        let with_details = |event: Event| consent(event, request).with("kept", 1);
        audit::with(&call.state, Kind::ConsentGive, with_details, write).await?;
    } else {
        audit::keep(&call.state, Kind::ConsentGive, |event| {
            consent(event, request)
        })
        .await;
    }
    Ok(())
}

/// What the audit log is told of a consent.
fn consent(event: Event, request: &Request) -> Event {
    let shown = request.shown();
    let shown = shown.iter().map(String::as_str);
    event.with("scope", shown.collect::<Detail>())
}

async fn signed_in(
    call: &Call,
    params: &Params,
    request: &Request,
) -> Result<Response, RequestError> {
    let flow = AuthorizationFlow::of(call, params, request);
    let fields = Fields::read(|name| params.own(name));
    let choices = flow.choices(call, false);
    Ok(flow.login_page(call, &choices).submitted(&fields).await?)
}
