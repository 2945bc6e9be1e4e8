//! `account`: what a user sees of their own account, and may do with it:
//! sessions, consents, factors, the password, accounts at other providers.
//!
//! Every form is bound to this browser and this session. What could lock its
//! owner out, or let somebody else in, asks for a recent sign-in, with the
//! second factor if there is one.

mod actions;
mod agent;
mod links;
mod view;

use axum::response::Response;
use http::Method;
use uuid::Uuid;

use super::authorize::{self, Browser, SWITCH};
use super::context::Demand;
use super::error::{Fault, OAuthError};
use super::federation::{FAILED, ProviderChoices};
use super::form::{self, Form};
use super::pages::{Applicant, FormError, Frame};
use super::sign_in::{self, Fields, LoginPage, MissingFactor, RESUME};
use super::{Call, request_path, sessions};
use doorward_core::model::grant::StoredSession;
use doorward_core::model::user::User;

/// How long ago a user may have signed in who does what asks for it, in
/// milliseconds: ten minutes.
const RECENT_MS: i64 = 10 * 60 * 1000;

/// Answers a visit to the page, or one of its forms.
pub(super) async fn answer(call: &Call) -> Response {
    let answered = async {
        let body = read_form(call)?;
        let query = call.parts.uri.query().unwrap_or_default();
        let wrong = |text: String| OAuthError::bad("invalid_request", text);
        let query = Form::parse(query.as_bytes()).map_err(|error| wrong(error.to_string()))?;
        let request = AccountRequest {
            call,
            frame: call.frame(query.get("ui_locales")),
            browser: Browser::of(call),
            locales: query.get("ui_locales").map(str::to_owned),
            resume: query.get(RESUME).map(str::to_owned),
            failed: query.get(FAILED).and_then(FormError::elsewhere),
        };
        request.answer(&body).await
    };
    answered
        .await
        .unwrap_or_else(|error: OAuthError| authorize::page(call, &error))
}

fn read_form(call: &Call) -> Result<Form<'_>, OAuthError> {
    let wrong = |text: String| OAuthError::bad("invalid_request", text);
    if call.parts.method != Method::POST || call.body.is_empty() {
        return Ok(Form::default());
    }
    if !form::is_form(call.headers()) {
        return Err(wrong("Invalid Content Type".to_owned()));
    }
    Form::parse(&call.body).map_err(|error| wrong(error.to_string()))
}

struct AccountRequest<'a> {
    call: &'a Call,
    frame: Frame,
    browser: Browser,
    locales: Option<String>,
    /// What came of a sign-in elsewhere.
    resume: Option<String>,
    failed: Option<FormError>,
}

/// A session and its user.
type SessionAndUser<'a> = (&'a StoredSession, &'a User);

impl AccountRequest<'_> {
    async fn answer(&self, body: &Form<'_>) -> Result<Response, OAuthError> {
        let call = self.call;
        let is_post = call.parts.method == Method::POST;
        let acts = body.get("do").is_some();
        let fields = Fields::read(|name| body.get(name));
        let choices = self.choices();
        if is_post && !acts && fields.signs_in() {
            return Ok(self.login_page(&choices).submitted(&fields).await?);
        }
        let found = sessions::of_browser(call).await?;
        let found = found.filter(|_| !(is_post && body.get(SWITCH).is_some()));
        let Some((session, user)) = found else {
            let login_page = self.login_page(&choices);
            let resume = login_page.resume(self.resume.as_deref()).await?;
            return Ok(resume.unwrap_or_else(|| login_page.show("", self.failed)));
        };
        if !acts || !is_post {
            // Who came to link an account, and has to sign in for that first.
            let recent = self.failed == Some(FormError::Recent);
            if recent && let Some(page) = self.confirm((&session, &user)).await? {
                return Ok(page);
            }
            let failed = self.failed.filter(|_| !recent);
            return self.show((&session, &user), failed).await;
        }
        let purpose = purpose(&session);
        if !self.browser.sent(call, &purpose, body.get("csrf")) {
            return self.show((&session, &user), Some(FormError::Stale)).await;
        }
        self.act((&session, &user), body).await
    }

    /// The address of the page: a path, so that the browser stays on the host
    /// whose cookies it has.
    fn address(&self) -> String {
        let path = request_path::path(self.call);
        let Some(locales) = &self.locales else {
            return path;
        };
        let spelt: String = url::form_urlencoded::byte_serialize(locales.as_bytes()).collect();
        format!("{path}?ui_locales={spelt}")
    }

    /// What leads back to this page from another provider.
    fn choices(&self) -> ProviderChoices {
        let address = self.address();
        let query = address.split_once('?').map_or("", |(_, query)| query);
        ProviderChoices {
            to: format!("account?{query}"),
            ..ProviderChoices::default()
        }
    }

    /// Where the user signs in for this page.
    fn login_page<'v>(&'v self, choices: &'v ProviderChoices) -> LoginPage<'v> {
        let address = self.address();
        LoginPage {
            call: self.call,
            browser: &self.browser,
            frame: &self.frame,
            applicant: Applicant::ours(&self.frame),
            choices,
            purpose: vec!["account login"],
            action: address.clone(),
            since: String::new(),
            shown_ms: None,
            next: address,
        }
    }

    /// The page that has the user of an old session, or of one without the
    /// second factor, confirm who they are; `None`: there is no need.
    async fn confirm(
        &self,
        (session, user): SessionAndUser<'_>,
    ) -> Result<Option<Response>, OAuthError> {
        let (call, choices) = (self.call, self.choices());
        if call.now_ms - session.auth_ms >= RECENT_MS {
            let again = self
                .login_page(&choices)
                .show(&user.user_name, Some(FormError::Recent));
            return Ok(Some(again));
        }
        Ok(match missing_factor(call, (session, user)).await? {
            // None of the factors can be used here; then the password has to do.
            MissingFactor::Nothing | MissingFactor::Unmet => None,
            MissingFactor::Next(next) | MissingFactor::Wished(next) => {
                Some(self.login_page(&choices).show_next(*next, None))
            }
        })
    }
}

/// What of the second factor was not shown in a session, if there is one.
async fn missing_factor(
    call: &Call,
    (session, user): SessionAndUser<'_>,
) -> Result<MissingFactor, Fault> {
    if call.state.store.factors(user.id).await?.is_empty() {
        return Ok(MissingFactor::Nothing);
    }
    let demand = Demand::second_factor(true);
    sign_in::missing_factor(call, (session, user), &demand).await
}

/// Whether this user is signed in here, and has confirmed that lately: nobody
/// else's accounts are linked to theirs.
pub(super) async fn has_confirmed(call: &Call, user_id: Uuid) -> Result<bool, Fault> {
    let found = sessions::of_browser(call).await?;
    let Some((session, user)) = found.filter(|(_, user)| user.id == user_id) else {
        return Ok(false);
    };
    let recent = call.now_ms - session.auth_ms < RECENT_MS;
    let next = matches!(
        missing_factor(call, (&session, &user)).await?,
        MissingFactor::Next(_)
    );
    Ok(recent && !next)
}

/// What the forms of the page are bound to.
fn purpose(session: &StoredSession) -> [&str; 2] {
    ["account", &session.sid]
}
