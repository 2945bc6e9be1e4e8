//! The page of `device/user`: a code is entered, its user signs in, is asked
//! whether it is their device, and answers.
//!
//! Nothing is kept of a visit: the code travels in the address of each page, so
//! several tabs work at once. A code in the address is only looked up: the
//! complete address that a device may show asks like the short one.

use std::sync::Arc;

use axum::response::Response;
use http::Method;
use http::header::RETRY_AFTER;

use super::{ADDRESS_GUESSES, GRANT, USER_GUESSES, user_code};
use crate::authorize::{self, Browser, redirect};
use crate::clients::LiveClient;
use crate::context::{Demand, Methods, strongest};
use crate::error::{Fault, OAuthError};
use crate::federation::{FAILED, ProviderChoices};
use crate::form::{self, Form};
use crate::lockout::Attempt;
use crate::network::network;
use crate::pages::{self, Applicant, FormError, FormParts, Frame};
use crate::sign_in::{self, Fields, LoginPage, MissingFactor, RESUME};
use crate::{Call, audit, consent_entry, issue, membership, request_path, sessions};
use doorward_core::model::audit::{Actor, Event, Kind, PendingAudit};
use doorward_core::model::device::{StoredDevice, Verdict};
use doorward_core::model::grant::{Grant, StoredSession, TokenHash};
use doorward_core::model::user::User;
use doorward_net::http::ClientInfo;

/// Answers a visit to the page, or one of its forms.
pub(crate) async fn answer(call: &Call) -> Response {
    let answered = async {
        let input = Input::read(call)?;
        let request = DeviceRequest {
            call,
            frame: call.frame(input.get("ui_locales")),
            browser: Browser::of(call),
            input,
        };
        request.answer().await
    };
    answered
        .await
        .unwrap_or_else(|error: OAuthError| authorize::page(call, &error))
}

/// The parameters of the address, and of a form.
struct Input<'a> {
    query: Form<'a>,
    body: Form<'a>,
}

impl<'a> Input<'a> {
    fn read(call: &'a Call) -> Result<Self, OAuthError> {
        let wrong = |text: String| OAuthError::bad("invalid_request", text);
        let query = call.parts.uri.query().unwrap_or_default();
        let query = Form::parse(query.as_bytes()).map_err(|error| wrong(error.to_string()))?;
        if call.parts.method != Method::POST || call.body.is_empty() {
            let body = Form::default();
            return Ok(Self { query, body });
        }
        if !form::is_form(call.headers()) {
            return Err(wrong("Invalid Content Type".to_owned()));
        }
        let body = Form::parse(&call.body).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { query, body })
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.body.get(name).or_else(|| self.query.get(name))
    }

    /// What the form says to the device's request: by its buttons, or in the
    /// imitated product's words. Both at once is a no.
    fn decision(&self) -> Option<bool> {
        let approved = self.body.get("approve").is_some();
        match (self.body.get("deny"), self.body.get("decision")) {
            (Some(_), _) => Some(false),
            (None, Some(word)) => Some(word == "allow"),
            (None, None) => approved.then_some(true),
        }
    }
}

/// A device's request that waits for its user, and the client that made it.
struct PendingDevice {
    device: StoredDevice,
    client: Arc<LiveClient>,
}

/// What a code that was entered turned out to be.
enum UserCodeLookup {
    Pending(Box<PendingDevice>),
    /// Not one that waits for anybody.
    Wrong,
    /// It was not looked at: there were too many wrong ones.
    Unseen,
}

struct DeviceRequest<'a> {
    call: &'a Call,
    input: Input<'a>,
    frame: Frame,
    browser: Browser,
}

impl DeviceRequest<'_> {
    async fn answer(&self) -> Result<Response, OAuthError> {
        let posted = self.call.parts.method == Method::POST;
        let Some(typed) = self.input.get("user_code") else {
            return Ok(self.show_entry("", posted.then_some(FormError::UserCode)));
        };
        let session = sessions::of_browser(self.call).await?;
        let letters = user_code::letters(typed);
        let decided = self.input.decision().filter(|_| posted);
        // Who was shown the question about a code does not guess it.
        let known = match (&session, &letters) {
            (Some((session, _)), Some(code)) => {
                decided.is_some() && self.is_own_decision(session, code)
            }
            _ => false,
        };
        let user = session.as_ref().map(|(_, user)| user);
        let (mut pending, code) = match (
            self.look_up(letters.as_deref(), user, known).await?,
            letters,
        ) {
            (UserCodeLookup::Pending(pending), Some(code)) => (pending, code),
            (UserCodeLookup::Unseen, _) => {
                return Ok(self.show_entry(typed, Some(FormError::Guesses)));
            }
            _ => return Ok(self.show_entry(typed, Some(FormError::UserCode))),
        };
        let fields = Fields::read(|name| self.input.body.get(name));
        if posted && fields.signs_in() {
            let choices = self.choices(&code);
            let login_page = self.login_page(&pending, &code, &choices);
            return Ok(login_page.submitted(&fields).await?);
        }
        let switches = posted && self.input.body.get(authorize::SWITCH).is_some();
        if posted && decided.is_none() && !switches {
            // Entering a code changes nothing, so any page may lead here.
            return Ok(redirect(self.call, &self.address(Some(&code))));
        }
        let Some((session, user)) = session.as_ref().filter(|_| !switches) else {
            let choices = self.choices(&code);
            let failed = self.input.query.get(FAILED).and_then(FormError::elsewhere);
            let login_page = self.login_page(&pending, &code, &choices);
            let resume = login_page.resume(self.input.query.get(RESUME)).await?;
            return Ok(resume.unwrap_or_else(|| login_page.show("", failed)));
        };
        if let Some(page) = self.confirm(&pending, &code, (session, user)).await? {
            return Ok(page);
        }
        let asked = &mut pending.device.request.scopes;
        let (state, realm) = (&self.call.state, &self.call.realm);
        let left =
            membership::permitted_scopes(state, realm, &pending.client, Some(user.id), asked);
        *asked = left.await?.into_owned();
        // Who may grant nothing may still say no.
        if asked.is_empty() && decided != Some(false) {
            return Err(Fault::ScopesDenied.into());
        }
        match decided {
            Some(yes) if known => self.decide(&pending, (session, user), yes).await,
            stale => Ok(self.show_question(&pending, &code, (session, user), stale.is_some())),
        }
    }

    /// The page that asks for what the client demands of a sign-in and this one
    /// lacks, if that is anything.
    async fn confirm(
        &self,
        pending: &PendingDevice,
        code: &str,
        (session, user): (&StoredSession, &User),
    ) -> Result<Option<Response>, OAuthError> {
        let metadata = &pending.client.client.metadata;
        let usual = metadata.default_acr_values.iter().map(String::as_str);
        let demand = Demand::second_factor(metadata.require_second_factor == Some(true));
        let demand = demand.wish(&self.call.realm.settings, usual.take(50));
        let choices = self.choices(code);
        let login_page = self.login_page(pending, code, &choices);
        match sign_in::missing_factor(self.call, (session, user), &demand).await? {
            MissingFactor::Nothing => Ok(None),
            MissingFactor::Unmet => Ok(Some(login_page.show("", Some(FormError::Unmet)))),
            MissingFactor::Next(next) | MissingFactor::Wished(next) => {
                Ok(Some(login_page.show_next(*next, None)))
            }
        }
    }

    /// The device that waits with this code. Wrong codes are counted, by
    /// address and by user, unless the code is `known` to this browser.
    async fn look_up(
        &self,
        code: Option<&str>,
        user: Option<&User>,
        known: bool,
    ) -> Result<UserCodeLookup, OAuthError> {
        if known {
            let pending = self.find(code).await?;
            return Ok(pending.map_or(UserCodeLookup::Wrong, UserCodeLookup::Pending));
        }
        let Some(attempts) = self.attempts(user).await else {
            return Ok(UserCodeLookup::Unseen);
        };
        if let Some(pending) = self.find(code).await? {
            // No success for the counters, or whoever guesses would start
            // afresh with a code of their own.
            return Ok(UserCodeLookup::Pending(pending));
        }
        for (attempt, config) in attempts {
            // Codes are told to nobody: their locks end with the process.
            let _ = attempt.failed(&config, self.call.now_ms);
        }
        Ok(UserCodeLookup::Wrong)
    }

    /// A try of the address and one of the user; `None`: there is none left.
    async fn attempts(&self, user: Option<&User>) -> Option<Vec<(Attempt, super::LockoutConfig)>> {
        let info = self.call.parts.extensions.get::<ClientInfo>();
        let address = info.map_or_else(String::new, |info| network(info.addr.ip()));
        let user = user.map(|user| (format!("user {}", user.id), USER_GUESSES));
        let mut taken = Vec::new();
        for (key, config) in [(format!("address {address}"), ADDRESS_GUESSES)]
            .into_iter()
            .chain(user)
        {
            let (realm, now_ms) = (&self.call.realm.path, self.call.now_ms);
            let guesses = &self.call.state.guesses;
            let attempt = guesses.begin(&config, realm, &key, now_ms).await.ok()?;
            taken.push((attempt, config));
        }
        Some(taken)
    }

    async fn find(&self, code: Option<&str>) -> Result<Option<Box<PendingDevice>>, OAuthError> {
        let Call { state, realm, .. } = self.call;
        let hash = code.and_then(|code| user_code::hash(&realm.path, code));
        let Some(hash) = hash else { return Ok(None) };
        let waits = |device: &StoredDevice| {
            device.verdict == Verdict::Pending && self.call.now_ms < device.expires_ms
        };
        let device = state.store.device_of_user(hash).await?.filter(waits);
        let Some(device) = device else {
            return Ok(None);
        };
        let client = state.clients.find(&state.store, realm, &device.client_id);
        let client = client.await?.filter(|client| client.may(GRANT));
        Ok(client.map(|client| Box::new(PendingDevice { device, client })))
    }

    /// Where the user signs in for this code.
    fn login_page<'v>(
        &'v self,
        pending: &'v PendingDevice,
        code: &'v str,
        choices: &'v ProviderChoices,
    ) -> LoginPage<'v> {
        let address = self.address(Some(code));
        LoginPage {
            call: self.call,
            browser: &self.browser,
            frame: &self.frame,
            applicant: Applicant::of(&pending.client.client.metadata, &self.frame),
            choices,
            purpose: vec!["device login", code],
            action: address.clone(),
            since: String::new(),
            shown_ms: None,
            next: address,
        }
    }

    /// Whether a decision is the user's own: posted from the question that this
    /// browser was shown in this session, or by somebody who knows the
    /// session's token, as scripts do.
    fn is_own_decision(&self, session: &StoredSession, code: &str) -> bool {
        let csrf = self.input.body.get("csrf");
        let knows = csrf.is_some_and(|token| TokenHash::of(token) == session.hash);
        let purpose = ["device", &session.sid, code];
        knows || self.browser.sent(self.call, &purpose, csrf)
    }

    async fn decide(
        &self,
        PendingDevice { device, client }: &PendingDevice,
        (session, user): (&StoredSession, &User),
        yes: bool,
    ) -> Result<Response, OAuthError> {
        let call = self.call;
        let verdict = if yes {
            Verdict::Approved(Box::new(grant(call, device, client, (session, user))))
        } else {
            Verdict::Denied
        };
        let store = &call.state.store;
        let counts = async |audit: Option<&PendingAudit>| {
            let user_code = device.user_code;
            store
                .decide_device(user_code, &verdict, call.now_ms, audit)
                .await
        };
        let told = |event: Event| {
            let event = event.client(client.id());
            let event = event.user(user.id, &user.user_name);
            if yes {
                event
            } else {
                event.failed("access_denied")
            }
        };
        audit::actor(Actor::User(user.id));
        let counts = audit::with_if(&call.state, Kind::DeviceDecide, told, counts, |counts| {
            *counts
        });
        if !counts.await? {
            return Ok(self.show_entry("", Some(FormError::UserCode)));
        }
        tracing::info!(
            client_id = client.id(),
            user_id = %user.id,
            approved = yes,
            "a user decided about a device"
        );
        Ok(pages::device_done(&self.frame, yes))
    }

    /// The address of this page with a code: a path, so that the browser stays
    /// on the host whose cookies it has.
    fn address(&self, code: Option<&str>) -> String {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        let code = code.map(|code| ("user_code", code));
        let locales = self.input.get("ui_locales");
        query.extend_pairs(code.into_iter().chain(locales.map(|is| ("ui_locales", is))));
        let (path, query) = (request_path::path(self.call), query.finish());
        if query.is_empty() {
            path
        } else {
            format!("{path}?{query}")
        }
    }

    fn show_entry(&self, typed: &str, failed: Option<FormError>) -> Response {
        let action = self.address(None);
        let mut response = pages::device_entry(&self.frame, &action, typed, failed);
        if failed == Some(FormError::Guesses) {
            let wait = http::HeaderValue::from(ADDRESS_GUESSES.duration);
            response.headers_mut().insert(RETRY_AFTER, wait);
        }
        response
    }

    fn form(&self, code: &str, purpose: &[&str]) -> FormParts {
        FormParts {
            action: self.address(Some(code)),
            csrf: self.browser.token(purpose),
            since: String::new(),
            provider_links: Vec::new(),
            forgot: None,
        }
    }

    /// What leads back to this page from another provider.
    fn choices(&self, code: &str) -> ProviderChoices {
        let address = self.address(Some(code));
        let query = address.split_once('?').map_or("", |(_, query)| query);
        ProviderChoices {
            to: format!("device/user?{query}"),
            ..ProviderChoices::default()
        }
    }

    fn show_question(
        &self,
        pending: &PendingDevice,
        code: &str,
        (session, user): (&StoredSession, &User),
        stale: bool,
    ) -> Response {
        let form = self.form(code, &["device", &session.sid, code]);
        let asked = &pending.device.request;
        let scopes = consent_entry::lines(&asked.scopes, &asked.resources);
        let shown = pages::Device {
            client: Applicant::of(&pending.client.client.metadata, &self.frame),
            user_name: &user.user_name,
            user_code: &format!("{}-{}", &code[..4], &code[4..]),
            scopes: &scopes,
        };
        let failed = stale.then_some(FormError::Stale);
        let mut response = pages::device_question(&self.frame, &shown, &form, failed);
        self.browser.remember(self.call, &mut response);
        response
    }
}

fn grant(
    call: &Call,
    device: &StoredDevice,
    client: &LiveClient,
    (session, user): (&StoredSession, &User),
) -> Grant {
    let methods = Methods::from(session.amr.as_slice());
    let acr = strongest(&call.realm.settings, &methods);
    Grant {
        id: issue::handle(),
        realm: call.realm.path.clone(),
        client_id: client.id().to_owned(),
        user_id: user.id,
        scopes: device.request.scopes.clone(),
        grant_type: GRANT.to_owned(),
        auth_time: session.auth_ms.div_euclid(1000),
        ends_ms: issue::grant_end(&call.realm, client, call.now_ms),
        // It is another device: signing out of this browser leaves it alone.
        sid: None,
        userinfo_claims: Vec::new(),
        id_claims: Vec::new(),
        resources: device.request.resources.clone(),
        bound_to: None,
        amr: session.amr.clone(),
        acr: Some(acr.to_owned()),
    }
}
