//! Signing in through another OpenID provider.
//!
//! A button of a sign-in page leads to [`start`], which sends the browser to
//! the provider; the provider sends it back to [`callback`]. Between the two
//! nothing is kept here: what must come back unchanged travels sealed
//! ([`state`]), and an answer is good once. [`account`] decides whose account a
//! sign-in leads to; whoever is let in here was let in by its rules alone.

mod account;
mod exchange;
mod groups;
mod id_token;
mod mapping;
mod metadata;
mod probe;
mod provider;
mod provider_choices;
mod refusal;
mod state;

use std::sync::{Arc, OnceLock};

use axum::response::Response;
use http::{Method, StatusCode};
use serde_json::{Map, Value};

pub(super) use id_token::LEEWAY;
pub(super) use mapping::{MappedAttributes, Mapping};
pub(super) use probe::probe;
pub(super) use provider::{Provider, compile, issuer_name};
pub(super) use provider_choices::{ProviderChoices, ProviderLink};

use super::account as account_page;
use super::audit::{self, Reason};
use super::authorize::{self, Browser, redirect};
use super::context::Methods;
use super::error::OAuthError;
use super::forbidden_page::forbidden_page;
use super::form::Form;
use super::login::is_confined;
use super::pages::FormError;
use super::sign_in::{self, RESUME, SignIn};
use super::{Call, sessions};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::federation::FederatedIdentity;
use doorward_core::model::grant::TokenHash;
use doorward_net::http::outbound::GuardedClient;
use doorward_net::http::provider_error;
use doorward_net::telemetry::Metrics;
use doorward_oidc_client::authorization::is_from_provider;
use doorward_oidc_client::id_token::IdTokenContext;
use doorward_store::{Store, StoreError};
use exchange::{tokens, user_info};
use groups::Membership;
use metadata::{Documents, Metadata};
use refusal::{Refusal, printable};
use state::{AWAY_MS, LoginState};

/// What was said of a failed sign-in, in addresses of our pages.
pub(super) const FAILED: &str = "doorward_federation";

/// What answers of providers have, and nothing else of them counts.
const ANSWER: [&str; 4] = ["code", "state", "iss", "error"];

/// What a user info answer does not say: it is not signed.
const SIGNED_ONLY: [&str; 10] = [
    "iss",
    "sub",
    "aud",
    "azp",
    "exp",
    "iat",
    "nonce",
    "acr",
    "amr",
    "auth_time",
];

/// What sign-ins through other providers share.
pub(super) struct Federation {
    documents: Documents,
    metrics: OnceLock<Arc<Metrics>>,
}

impl Federation {
    pub(super) fn new(outbound: Arc<GuardedClient>) -> Self {
        Self {
            documents: Documents::new(outbound),
            metrics: OnceLock::new(),
        }
    }

    /// Counts from now on in these metrics.
    pub(super) fn report_to(&self, metrics: Arc<Metrics>) {
        // Set once, at the start.
        let _ = self.metrics.set(metrics);
    }

    /// Counts a verdict of a directory on a password.
    pub(super) fn count_directory(&self, directory: &str, outcome: &'static str) {
        if let Some(metrics) = self.metrics.get() {
            metrics.directory(directory, outcome).inc();
        }
    }

    fn count(&self, provider: &Provider, outcome: &'static str) {
        if let Some(metrics) = self.metrics.get() {
            metrics.federation(provider.name(), outcome).inc();
        }
    }
}

/// Who signed in at a provider, as it says.
pub(super) struct Subject {
    /// The provider's issuer.
    pub(super) issuer: String,
    /// Its name for the user, which it never gives to another one.
    pub(super) subject: String,
    /// Everything else that it says.
    pub(super) claims: Map<String, Value>,
}

/// Sends a browser to the provider that the address names, if it comes from a
/// page of ours.
pub(super) async fn start(call: &Call) -> Response {
    let Some(provider) = named(call, call.last_segment()) else {
        return unknown(call);
    };
    let query = call.parts.uri.query().unwrap_or_default();
    let form = match Form::parse(query.as_bytes()) {
        Ok(form) => form,
        Err(error) => return bad(call, &error.to_string()),
    };
    let browser = Browser::of(call);
    let Some(choices) = ProviderChoices::read(&form) else {
        return bad(call, "Missing parameter, 'to'");
    };
    if !choices.is_from_us(call, &browser, &provider, form.get("csrf")) {
        return back(call, &choices.to, FormError::Stale);
    }
    if let Some(user_id) = choices.link {
        match account_page::has_confirmed(call, user_id).await {
            Ok(true) => {}
            Ok(false) => return back(call, &choices.to, FormError::Recent),
            Err(fault) => return refused(call, &provider, &choices.to, &fault.into()),
        }
    }
    match choices.go(call, &browser, &provider).await {
        Ok(response) => response,
        Err(refusal) => refused(call, &provider, &choices.to, &refusal),
    }
}

/// Takes a browser back that a provider sent.
pub(super) async fn callback(call: &Call) -> Response {
    let name = call.parts.uri.path().rsplit('/').nth(1).unwrap_or_default();
    let Some(provider) = named(call, name) else {
        return unknown(call);
    };
    let posted = call.parts.method == Method::POST;
    let query = call.parts.uri.query().unwrap_or_default();
    let text = if posted {
        &call.body[..]
    } else {
        query.as_bytes()
    };
    let answer = match Form::parse(text) {
        Ok(answer) => answer,
        Err(error) => return bad(call, &error.to_string()),
    };
    if posted {
        // Browsers keep our cookies to themselves when another site posts.
        return again(call, &answer);
    }
    audit::detail("provider", provider.name());
    let browser = Browser::of(call);
    let state = answer.get("state").unwrap_or_default();
    let Some((login_state, browser)) = LoginState::open(call, &browser, &provider, state) else {
        report_refusal(call, &provider, &Refusal::State);
        let text = "The sign-in was begun in another browser, or too long ago. Please begin again";
        return bad(call, text);
    };
    match complete_login(call, (&provider, &browser), &login_state, (state, &answer)).await {
        Ok(response) => response,
        Err(refusal) => refused(call, &provider, &login_state.to, &refusal),
    }
}

/// Signs in whom an answer is about.
async fn complete_login(
    call: &Call,
    (provider, browser): (&Arc<Provider>, &Browser),
    login_state: &LoginState,
    (state, answer): (&str, &Form<'_>),
) -> Result<Response, Refusal> {
    let spent = TokenHash::of(&format!("federation\n{state}"));
    let until_ms = login_state.began_ms + AWAY_MS;
    let store = &call.state.store;
    if !store.remember(spent, until_ms, call.now_ms).await? {
        return Err(Refusal::Replayed);
    }
    let documents = &call.state.federation.documents;
    let metadata = documents.of(&provider.issuer, call.now_ms).await?;
    let nonce = LoginState::nonce(browser, call, provider, state);
    let verifier = LoginState::verifier(browser, call, provider, state);
    let code = code(&metadata, answer)?;
    let subject = subject(
        call,
        (provider, &metadata),
        login_state,
        (code, &verifier, &nonce),
    )
    .await?;
    let (user, how) = account::of(call, provider, &subject, login_state.link).await?;
    audit::user(&user);
    if is_confined(call, &user.user_name) {
        audit::because("address");
        return Ok(forbidden_page());
    }
    let members = Membership {
        state: &call.state,
        user: &user,
        now_ms: call.now_ms,
    };
    provider.groups.follow(&members, &subject.claims).await?;
    let to = format!("{}/{}", root(call), login_state.to);
    if login_state.link.is_some() {
        call.state.federation.count(provider, "linked");
        return Ok(redirect(call, &to));
    }
    let methods = account::methods(provider, &subject);
    let methods = Methods::of(methods.iter().map(String::as_str));
    let begun = sign_in::complete(call, &user, methods, None).await?;
    let response = match begun {
        SignIn::Done(token) => {
            let mut response = redirect(call, &to);
            sessions::set_cookie(call, &mut response, &token);
            response
        }
        SignIn::Next(next) => {
            let step = sign_in::resume_parameter(call, browser, &login_state.to, &next);
            let joint = if to.contains('?') { '&' } else { '?' };
            let mut response = redirect(call, &format!("{to}{joint}{RESUME}={step}"));
            browser.remember(call, &mut response);
            response
        }
        SignIn::Again(failed) => return Ok(back(call, &login_state.to, failed)),
        SignIn::Forbidden => return Ok(forbidden_page()),
    };
    tracing::info!(
        realm = call.realm.path, provider = provider.name(), user_id = %user.id, how,
        "a user signed in through another provider"
    );
    call.state.federation.count(provider, how);
    Ok(response)
}

/// The code of an answer that is the provider's.
fn code<'a>(metadata: &Metadata, answer: &'a Form<'_>) -> Result<&'a str, Refusal> {
    let is_own = |issuer: &str| issuer == metadata.issuer;
    if !is_from_provider(answer.get("iss"), metadata.names_itself, is_own) {
        return Err(Refusal::Mixed);
    }
    if let Some(error) = answer.get("error") {
        return Err(Refusal::Answered {
            code: printable(error),
            said: provider_error::describe(error, answer.get("error_description")),
        });
    }
    answer.get("code").ok_or(Refusal::NoCode)
}

/// Whom a code is about.
async fn subject(
    call: &Call,
    (provider, metadata): (&Provider, &Metadata),
    login_state: &LoginState,
    (code, verifier, nonce): (&str, &str, &str),
) -> Result<Subject, Refusal> {
    let redirect_uri = redirect_uri(call, provider);
    let exchange = (code, verifier, redirect_uri.as_str());
    let tokens = tokens(call, (provider, metadata), exchange).await?;
    let began_s = login_state.began_ms.div_euclid(1000);
    let access_token = tokens.access_token.as_ref();
    let context = IdTokenContext {
        nonce: Some(nonce),
        access_token: access_token.map(|token| token.expose()),
        signed_in_since: login_state.max_age.map(|age| began_s.saturating_sub(age)),
    };
    let claims = id_token::verify(call, (provider, metadata), &tokens.id_token, &context).await?;
    let subject = claims.get("sub").and_then(Value::as_str);
    let subject = subject.unwrap_or_default().to_owned();
    let info = match access_token.filter(|_| provider.written.userinfo) {
        Some(token) => user_info(call, metadata, token, &subject).await?,
        None => Map::new(),
    };
    Ok(Subject {
        issuer: issuer_name(&metadata.issuer).to_owned(),
        claims: merged(claims, info),
        subject,
    })
}

/// What the ID token says, and what user info says beside it. Whether an
/// address is verified is believed only of where the address stands.
fn merged(mut claims: Map<String, Value>, info: Map<String, Value>) -> Map<String, Value> {
    let address = ["email", "email_verified"];
    let own_address = claims.contains_key("email");
    if !own_address {
        claims.remove("email_verified");
    }
    for (name, value) in info {
        let vouched = own_address && address.contains(&name.as_str());
        if !SIGNED_ONLY.contains(&name.as_str()) && !vouched {
            claims.entry(name).or_insert(value);
        }
    }
    claims
}

/// Where this provider sends browsers back to; no other one does.
fn redirect_uri(call: &Call, provider: &Provider) -> String {
    format!(
        "{}/federation/{}/callback",
        call.realm.issuer,
        provider.name()
    )
}

/// Removes a link of a user in a realm with these `providers`. With it the user leaves
/// the groups that followed those at its provider. Says whether it was there.
pub(super) async fn unlink(
    store: &Store,
    providers: &[Arc<Provider>],
    link: &FederatedIdentity,
    now_ms: i64,
    audit: Option<&PendingAudit>,
) -> Result<bool, StoreError> {
    let is_its = |provider: &&Arc<Provider>| {
        provider.name() == link.provider || provider.issuer_name() == link.issuer
    };
    let groups = providers.iter().filter(is_its);
    let groups = groups.flat_map(|provider| provider.groups.names());
    let groups: Vec<String> = groups.map(str::to_owned).collect();
    store.unlink_identity(link, &groups, now_ms, audit).await
}

/// The path above the realm's endpoints.
fn root(call: &Call) -> String {
    let live = &call.live;
    let below = call.realm.issuer.strip_prefix(&live.base_url);
    format!("{}{}", live.base_path, below.unwrap_or("/oauth2"))
}

/// The provider of this name, if the realm offers it.
fn named(call: &Call, name: &str) -> Option<Arc<Provider>> {
    let mut all = call.realm.providers().iter();
    let found = all.find(|provider| provider.name() == name)?;
    found.written.enabled.then(|| Arc::clone(found))
}

fn unknown(call: &Call) -> Response {
    let error = OAuthError {
        status: StatusCode::NOT_FOUND,
        ..OAuthError::bad("not_found", "Resource not found")
    };
    authorize::page(call, &error)
}

fn bad(call: &Call, text: &str) -> Response {
    authorize::page(call, &OAuthError::bad("invalid_request", text))
}

/// The same answer by GET, which has the cookies of the browser.
fn again(call: &Call, answer: &Form<'_>) -> Response {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for name in ANSWER {
        if let Some(value) = answer.get(name) {
            query.append_pair(name, value);
        }
    }
    let path = super::request_path::path(call);
    redirect(call, &format!("{path}?{}", query.finish()))
}

/// Leads back to the page that the browser came from, which says what failed.
fn back(call: &Call, to: &str, failed: FormError) -> Response {
    let joint = if to.contains('?') { '&' } else { '?' };
    let code = failed.code();
    redirect(call, &format!("{}/{to}{joint}{FAILED}={code}", root(call)))
}

fn refused(call: &Call, provider: &Provider, to: &str, refusal: &Refusal) -> Response {
    report_refusal(call, provider, refusal);
    let mut response = back(call, to, refusal.shown());
    let code = refusal.code().into();
    response.extensions_mut().insert(Reason(code));
    response
}

/// Tells the operator.
fn report_refusal(call: &Call, provider: &Provider, refusal: &Refusal) {
    let code = refusal.code();
    call.state.federation.count(provider, code);
    let (realm, provider) = (&call.realm.path, provider.name());
    match refusal {
        // Anybody can send such an answer.
        Refusal::State => tracing::info!(realm, provider, code, "federated sign-in refused"),
        Refusal::Fault(fault) => {
            tracing::error!(realm, provider, code, error = %fault, "federated sign-in failed");
        }
        _ => {
            doorward_net::telemetry::warn_limited!(realm, provider, code, reason = %refusal, "federated sign-in refused")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claims(value: Value) -> Map<String, Value> {
        value.as_object().cloned().expect("an object")
    }

    #[test]
    fn unsigned_user_info_vouches_for_no_address_of_the_id_token() {
        let token = json!({"sub": "1", "email": "victim@x.example"});
        let info = json!({"sub": "1", "email": "own@x.example", "email_verified": true,
                          "name": "N", "acr": "gold"});
        let merged = merged(claims(token), claims(info));
        assert_eq!(
            Value::Object(merged),
            json!({"sub": "1", "email": "victim@x.example", "name": "N"})
        );
    }

    #[test]
    fn verification_without_an_address_says_nothing_of_the_one_of_user_info() {
        let token = json!({"sub": "1", "email_verified": true});
        let info = json!({"sub": "1", "email": "own@x.example"});
        let merged = merged(claims(token), claims(info));
        assert_eq!(
            Value::Object(merged),
            json!({"sub": "1", "email": "own@x.example"})
        );
    }
}
