//! The providers of a realm, checked and ready for requests.

use std::sync::Arc;

use url::Url;

use super::groups::GroupMapping;
use super::mapping::{Mapping, Template};
use crate::config::{FederationProvider, LinkRules, RealmSettings};
use crate::records::is_safe_source;
use doorward_core::model::client::AuthMethod;
use doorward_core::model::secret::Secret;
use doorward_core::model::user::schema::RecordError;

/// Most providers of a realm.
const MOST: usize = 32;

/// What a request to a provider is made of; nobody sets these otherwise.
const OURS: [&str; 14] = [
    "client_id",
    "client_secret",
    "code_challenge",
    "code_challenge_method",
    "nonce",
    "redirect_uri",
    "request",
    "request_uri",
    "response_mode",
    "response_type",
    "scope",
    "state",
    "prompt",
    "acr_values",
];

/// A provider that users of the realm may sign in through.
#[derive(Debug)]
pub(crate) struct Provider {
    pub(super) written: FederationProvider,
    /// The issuer as an address.
    pub(super) issuer: Url,
    pub(super) mapping: Mapping,
    /// What a new account is called.
    pub(super) user_name: Template,
    /// Groups that follow those of the provider.
    pub(super) groups: GroupMapping,
}

impl Provider {
    /// As the configuration has it.
    pub(crate) fn written(&self) -> &FederationProvider {
        &self.written
    }

    /// Its name in addresses, logs and metrics.
    pub(crate) fn name(&self) -> &str {
        &self.written.name
    }

    /// Whether users may sign in through it.
    pub(crate) fn is_enabled(&self) -> bool {
        self.written.enabled
    }

    /// Its issuer as links name it.
    pub(crate) fn issuer_name(&self) -> &str {
        issuer_name(&self.written.issuer)
    }

    /// Its name on pages.
    pub(crate) fn title(&self) -> &str {
        self.written.title.as_deref().unwrap_or(self.name())
    }

    pub(super) fn rules(&self) -> &LinkRules {
        &self.written.link
    }

    /// Whether it asks for no secret: then the code challenge has to do.
    pub(super) fn secret(&self) -> Option<&Secret> {
        self.written.client_secret.as_ref()
    }
}

/// An issuer as links name it: some say it with a slash at its end, and without
/// in other places.
pub(crate) fn issuer_name(issuer: &str) -> &str {
    issuer.strip_suffix('/').unwrap_or(issuer)
}

/// The providers that these settings name, in their order.
///
/// # Errors
/// What is wrong with one of them.
pub(crate) fn compile(settings: &RealmSettings) -> Result<Vec<Arc<Provider>>, RecordError> {
    let all = &settings.federation;
    if all.len() > MOST {
        let text = format!("at most {MOST} providers");
        return Err(RecordError::new("federation", text));
    }
    let compiled = all.iter().enumerate().map(|(index, written)| {
        let at = format!("federation[{index}]");
        let again = all[..index].iter().any(|one| one.name == written.name);
        if again {
            return Err(RecordError::new("name", "is given twice").below(&at));
        }
        let provider = one(written).map_err(|error| error.below(&at))?;
        Ok(Arc::new(provider))
    });
    compiled.collect()
}

fn one(written: &FederationProvider) -> Result<Provider, RecordError> {
    check_shown(written)?;
    let issuer = Url::parse(&written.issuer).ok();
    let issuer = issuer.filter(|url| is_safe_source(url) && url.query().is_none());
    let issuer = issuer.ok_or_else(|| {
        let text = "must be an https URL without query, or http on this machine";
        RecordError::new("issuer", text)
    })?;
    check_client(written)?;
    check_request(written)?;
    let mapping = Mapping::compile(written.map.as_ref())?;
    let user_name = Template::parse(&written.link.user_name);
    let user_name = user_name.map_err(|error| error.below("link"))?;
    Ok(Provider {
        written: written.clone(),
        issuer,
        mapping,
        user_name,
        groups: GroupMapping::compile(&written.link).map_err(|error| error.below("link"))?,
    })
}

fn check_shown(written: &FederationProvider) -> Result<(), RecordError> {
    let wrong = |name: &str, text: &str| Err(RecordError::new(name, text));
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"._~-".contains(&b);
    let name = &written.name;
    if name.is_empty() {
        return wrong("name", "is required");
    }
    let dots = name == "." || name == "..";
    if name.len() > 64 || dots || !name.bytes().all(legal) {
        return wrong("name", "must have from 1 to 64 letters, digits and `._~-`");
    }
    let title = written.title.as_deref().unwrap_or(name);
    if title.trim().is_empty() || title.len() > 200 || title.chars().any(char::is_control) {
        return wrong("title", "must be a text of at most 200 bytes");
    }
    let ours = |logo: &str| {
        logo.starts_with("data:image/") || (logo.starts_with('/') && !logo.starts_with("//"))
    };
    match written.logo.as_deref() {
        Some(logo) if !ours(logo) => wrong("logo", "must be data:image/… or a path on this host"),
        _ => Ok(()),
    }
}

/// Checks that we can prove who we are in the way that is named.
fn check_client(written: &FederationProvider) -> Result<(), RecordError> {
    use AuthMethod::{ClientSecretBasic, ClientSecretJwt, ClientSecretPost, None, PrivateKeyJwt};
    let wrong = |name: &str, text: &str| Err(RecordError::new(name, text));
    if written.client_id.is_empty() {
        return wrong("client_id", "is required");
    }
    let secret = written.client_secret.as_ref();
    if secret.is_some_and(|secret| secret.expose().is_empty()) {
        return wrong("client_secret", "is empty");
    }
    let method = written.token_endpoint_auth_method;
    let by_secret = [ClientSecretBasic, ClientSecretPost, ClientSecretJwt];
    if method.is_some_and(|method| by_secret.contains(&method)) && secret.is_none() {
        return wrong(
            "client_secret",
            "is required for token_endpoint_auth_method",
        );
    }
    if matches!(method, Some(None | PrivateKeyJwt)) && secret.is_some() {
        return wrong(
            "client_secret",
            "is not used with token_endpoint_auth_method",
        );
    }
    let shared = match method {
        Some(ClientSecretJwt) => Some(true),
        Some(PrivateKeyJwt) => Some(false),
        _ => Option::None,
    };
    let signed = written.token_endpoint_auth_signing_alg;
    if signed.is_some_and(|alg| shared != Some(alg.is_shared())) {
        let text = "does not fit token_endpoint_auth_method";
        return wrong("token_endpoint_auth_signing_alg", text);
    }
    let alg = written.id_token_signed_response_alg;
    if alg.is_some_and(|alg| alg.is_shared()) && secret.is_none() {
        return wrong("id_token_signed_response_alg", "needs client_secret");
    }
    Ok(())
}

fn check_request(written: &FederationProvider) -> Result<(), RecordError> {
    let mut scopes = written.scope.split_ascii_whitespace();
    if !scopes.any(|scope| scope == "openid") {
        return Err(RecordError::new("scope", "must have openid"));
    }
    for name in written.parameters.keys() {
        if OURS.contains(&name.as_str()) {
            let text = "is no parameter that can be set here";
            return Err(RecordError::new(name, text).below("parameters"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn with(change: Value) -> Result<Vec<Arc<Provider>>, RecordError> {
        let mut provider = json!({
            "name": "corp", "issuer": "https://login.example", "client_id": "door",
            "client_secret": "hush",
        });
        for (name, value) in change.as_object().expect("an object") {
            provider[name] = value.clone();
        }
        let settings = json!({"federation": [provider]});
        compile(&serde_json::from_value(settings).expect("settings"))
    }

    #[test]
    fn a_provider_needs_little() {
        let all = with(json!({})).expect("good");
        assert_eq!((all[0].name(), all[0].title()), ("corp", "corp"));
        assert!(!all[0].rules().create && !all[0].written.trust_email);
        assert!(with(json!({"issuer": "http://127.0.0.1:9/x"})).is_ok());
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (change, told) in [
            (json!({"name": "a/b"}), "federation[0].name: must have"),
            (json!({"name": ".."}), "federation[0].name: must have"),
            (json!({"name": ""}), "federation[0].name: is required"),
            (
                json!({"issuer": "http://login.example"}),
                "issuer: must be an https",
            ),
            (json!({"issuer": "https://h/?a=b"}), "issuer: must be"),
            (json!({"client_id": ""}), "client_id: is required"),
            (json!({"scope": "profile"}), "scope: must have openid"),
            (
                json!({"logo": "https://cdn.example/x.png"}),
                "logo: must be",
            ),
            (json!({"logo": "//cdn.example/x.png"}), "logo: must be"),
            (
                json!({"parameters": {"state": "x"}}),
                "parameters.state: is no",
            ),
            (
                json!({"token_endpoint_auth_method": "private_key_jwt"}),
                "client_secret: is not used",
            ),
            (
                json!({"client_secret": null, "token_endpoint_auth_method": "client_secret_basic"}),
                "client_secret: is required",
            ),
            (
                json!({"client_secret": null, "id_token_signed_response_alg": "HS256"}),
                "id_token_signed_response_alg: needs",
            ),
            (json!({"map": {"userName": "sub"}}), "map.userName"),
            (json!({"link": {"user_name": "{sub"}}), "link.user_name"),
        ] {
            let error = with(change.clone()).expect_err("refused").to_string();
            assert!(error.contains(told), "{change}: {error}");
        }
    }

    #[test]
    fn two_providers_have_two_names() {
        let one = json!({"name": "a", "issuer": "https://x.example", "client_id": "c"});
        let settings = json!({"federation": [one, one]});
        let settings = serde_json::from_value(settings).expect("settings");
        let error = compile(&settings).expect_err("refused").to_string();
        assert_eq!(error, "federation[1].name: is given twice");
    }
}
