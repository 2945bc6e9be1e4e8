//! What sign-in pages offer beside the password: the ways to other providers,
//! and the request that leads there.

use axum::response::Response;
use uuid::Uuid;

use super::metadata::Metadata;
use super::refusal::Refusal;
use super::state::LoginState;
use super::{Provider, redirect_uri, root};
use crate::Call;
use crate::authorize::{Browser, redirect};
use crate::config::ResponseMode;
use crate::form::Form;
use crate::pages::FormError;
use doorward_oidc_client::authorization::AuthorizationRequest;

/// What the pages begin with that users go on to.
const PAGES: [&str; 3] = ["authorize?", "device/user?", "account"];

/// Longest hint that is passed on, in bytes.
const HINT_MAX: usize = 255;

/// A way to sign in, as a page shows it.
#[derive(Clone, Debug)]
pub(crate) struct ProviderLink {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) logo: Option<String>,
    pub(crate) href: String,
}

/// What a page of ours wants of a sign-in elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProviderChoices {
    /// Where the user goes on: a page of ours with its query, relative to the
    /// realm.
    pub(crate) to: String,
    /// How long ago the user may have signed in there, in seconds.
    pub(crate) max_age: Option<i64>,
    /// `prompt` of the request, if the page asks for more than the provider's
    /// own one.
    pub(crate) prompt: Option<String>,
    /// Who will probably sign in.
    pub(crate) hint: Option<String>,
    /// The user who wants to be linked, and not to be signed in.
    pub(crate) link: Option<Uuid>,
}

impl ProviderChoices {
    /// The ways to all providers that the realm offers.
    pub(crate) fn provider_links(&self, call: &Call, browser: &Browser) -> Vec<ProviderLink> {
        let all = call.realm.providers().iter();
        let offered = all.filter(|provider| provider.written.enabled);
        let provider_link = |provider: &std::sync::Arc<Provider>| ProviderLink {
            name: provider.name().to_owned(),
            title: provider.title().to_owned(),
            logo: provider.written.logo.clone(),
            href: self.href(call, browser, provider),
        };
        offered.map(provider_link).collect()
    }

    /// Leads to the only provider of the realm at once, where it is to be so.
    ///
    /// # Errors
    /// What the page is to say instead.
    pub(crate) async fn at_once(
        &self,
        call: &Call,
        browser: &Browser,
    ) -> Result<Option<Response>, FormError> {
        let all = call.realm.providers().iter();
        let mut offered = all.filter(|provider| provider.written.enabled);
        let (Some(only), None) = (offered.next(), offered.next()) else {
            return Ok(None);
        };
        if !only.written.auto_redirect {
            return Ok(None);
        }
        match self.go(call, browser, only).await {
            Ok(response) => Ok(Some(response)),
            Err(refusal) => {
                super::report_refusal(call, only, &refusal);
                Err(refusal.shown())
            }
        }
    }

    fn href(&self, call: &Call, browser: &Browser, provider: &Provider) -> String {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.append_pair("to", &self.to);
        let max_age = self.max_age.map(|age| age.to_string());
        let link = self.link.map(|user| user.to_string());
        for (name, value) in [
            ("max_age", &max_age),
            ("prompt", &self.prompt),
            ("hint", &self.hint),
            ("link", &link),
        ] {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        query.append_pair("csrf", &self.token(call, browser, provider));
        let path = format!("{}/federation/{}", root(call), provider.name());
        format!("{path}?{}", query.finish())
    }

    /// What an address of [`ProviderChoices::provider_links`] says.
    pub(super) fn read(form: &Form<'_>) -> Option<Self> {
        let to = form.get("to")?;
        PAGES.iter().find(|page| to.starts_with(**page))?;
        Some(Self {
            to: to.to_owned(),
            max_age: form.get("max_age").and_then(|age| age.parse().ok()),
            prompt: form.get("prompt").map(str::to_owned),
            hint: form.get("hint").map(str::to_owned),
            link: form.get("link").and_then(|user| user.parse().ok()),
        })
    }

    /// Whether this browser was shown the way by a page of ours: other sites
    /// sign nobody in.
    pub(super) fn is_from_us(
        &self,
        call: &Call,
        browser: &Browser,
        provider: &Provider,
        csrf: Option<&str>,
    ) -> bool {
        let parts = self.parts(call, provider);
        let parts: Vec<_> = parts.iter().map(String::as_str).collect();
        browser.sent(call, &parts, csrf)
    }

    fn token(&self, call: &Call, browser: &Browser, provider: &Provider) -> String {
        let parts = self.parts(call, provider);
        let parts: Vec<_> = parts.iter().map(String::as_str).collect();
        browser.token(&parts)
    }

    fn parts(&self, call: &Call, provider: &Provider) -> [String; 8] {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        [
            "federation way".to_owned(),
            call.realm.path.clone(),
            provider.name().to_owned(),
            self.to.clone(),
            self.max_age.map(|age| age.to_string()).unwrap_or_default(),
            text(&self.prompt),
            text(&self.hint),
            self.link.map(|user| user.to_string()).unwrap_or_default(),
        ]
    }

    /// Sends the browser to a provider.
    pub(super) async fn go(
        &self,
        call: &Call,
        browser: &Browser,
        provider: &Provider,
    ) -> Result<Response, Refusal> {
        let documents = &call.state.federation.documents;
        let metadata = documents.of(&provider.issuer, call.now_ms).await?;
        let login_state = LoginState {
            to: self.to.clone(),
            began_ms: call.now_ms,
            max_age: self.max_age,
            link: self.link,
        };
        let state = login_state.seal(call, browser, provider);
        let address = self.address(call, browser, (provider, &metadata), &state);
        let mut response = redirect(call, &address);
        browser.remember(call, &mut response);
        Ok(response)
    }

    /// The authentication request (OpenID Connect Core §3.1.2.1).
    fn address(
        &self,
        call: &Call,
        browser: &Browser,
        (provider, metadata): (&Provider, &Metadata),
        state: &str,
    ) -> String {
        let written = &provider.written;
        let verifier = LoginState::verifier(browser, call, provider, state);
        let nonce = LoginState::nonce(browser, call, provider, state);
        let redirect_uri = redirect_uri(call, provider);
        let request = AuthorizationRequest {
            client_id: &written.client_id,
            redirect_uri: &redirect_uri,
            scope: &written.scope,
            state,
            nonce: &nonce,
            verifier: Some(&verifier),
        };
        let max_age = self.max_age.map(|age| age.to_string());
        let form_post = (written.response_mode == ResponseMode::FormPost).then_some("form_post");
        let hint = self.hint.as_deref().filter(|hint| hint.len() <= HINT_MAX);
        let prompt = self.prompt.as_deref().or(written.prompt.as_deref());
        let mut address = metadata.authorization_endpoint.clone();
        let mut query = address.query_pairs_mut();
        query.extend_pairs(request.parameters());
        for (name, value) in [
            ("response_mode", form_post),
            ("prompt", prompt),
            ("max_age", max_age.as_deref()),
            ("acr_values", written.acr_values.as_deref()),
            ("login_hint", hint),
        ] {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        query.extend_pairs(&written.parameters);
        drop(query);
        address.into()
    }
}
