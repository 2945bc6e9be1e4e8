//! `ClientRegistration` and `Issuer`: the client, and the provider that knows
//! it, as fields of the `openid-connect` plugin.

use serde_json::{Map, Value, json};
use url::Url;

use crate::chain::object::{AnyValue, DeferredValue, Object, Reference, object};
use crate::chain::settings::{Declared, Settings};
use crate::resource_server::client::{Chain, ClientCredentials, Connection};
use crate::resource_server::jwt::FurtherKeySet;
use crate::resource_server::secrets::{self, ClientSecret};
use doorward_core::model::secret::Secret;
use doorward_expr::duration::Length;
use doorward_plugin_api::ConfigError;

const CLIENT_HANDLERS: &[&str] = &[
    "ClientHandler",
    "ForgeRockClientHandler",
    "ReverseProxyHandler",
];
const WANTED_HANDLER: &str = "a Chain with a ClientSecretBasicAuthenticationFilter or a \
    ClientSecretPostAuthenticationFilter, ClientHandler or ForgeRockClientHandler";
const NOT_DYNAMIC: &str = "clients are not registered dynamically";
const KEY_STORE: &str = "the gateway proves itself with a key of a key store, which is not read: \
    use client_secret_basic or client_secret_post, or declare the route as an entity with the \
    openid-connect plugin, whose client_jwk has the key";

object! {
    /// A `ClientRegistration`.
    struct Registration<'a> {
        client_id as "clientId": String,
        scopes: Vec<String>,
        pkce_method as "pkceMethod": Option<String>,
        skip_signature as "skipSignatureVerification": bool = false,
        handler as "registrationHandler": Reference,
        authenticated_handler as "authenticatedRegistrationHandler": Reference,
        private_key as "privateKeyJwtSecretId": AnyValue,
        key_store as "keystore": AnyValue,
        secret as ..: ClientSecret<'a>,
        method as "tokenEndpointAuthMethod": Option<String>,
        basic as "tokenEndpointUseBasicAuth": DeferredValue<Option<bool>>,
        issuer: Reference,
    }
    idle {
        "tokenEndpointAuthSigningAlg",
        "redirectUris": NOT_DYNAMIC,
        "jwtExpirationTimeout": NOT_DYNAMIC,
    }
}

object! {
    /// An `Issuer`.
    struct Issuer<'a> {
        authorize_endpoint as "authorizeEndpoint": Option<Url>,
        token_endpoint as "tokenEndpoint": Option<Url>,
        user_info_endpoint as "userInfoEndpoint": Option<Url>,
        end_session_endpoint as "endSessionEndpoint": Option<Url>,
        revocation_endpoint as "revocationEndpoint": Option<Url>,
        handler as "issuerHandler": Reference,
        skew_allowance as "idTokenSkewAllowance": Option<Length>,
        provider as "secretsProvider": Reference,
        key as "idTokenVerificationSecretId": DeferredValue<Option<String>>,
        well_known as "wellKnownEndpoint": Option<Url>,
        issuer: DeferredValue<Option<Url>>,
    }
    idle {
        "registrationEndpoint": NOT_DYNAMIC,
        "issuerRepository": NOT_DYNAMIC,
        "useDeprecatedIssuerRepository": NOT_DYNAMIC,
        "supportedDomains": NOT_DYNAMIC,
    }
}

/// What the objects say, in the plugin's words.
struct Translation {
    fields: Map<String, Value>,
    secret: Option<Secret>,
    /// How the client proves itself.
    method: Option<String>,
}

/// The plugin's fields of a registration.
pub(super) fn translate(declared: &Declared<'_>) -> Result<Map<String, Value>, ConfigError> {
    if declared.kind != "ClientRegistration" {
        return Err(declared.unfit("ClientRegistration"));
    }
    let registration = Registration::read(&declared.settings)?;
    let mut translation = Translation {
        fields: Map::new(),
        secret: None,
        method: None,
    };
    translation.client(&registration)?;
    let field = &registration.issuer;
    let issuer = field.declared()?;
    let issuer = issuer.ok_or_else(|| field.wrong("is required: an Issuer"))?;
    translation.issuer(&issuer)?;
    Ok(translation.fields)
}

impl Translation {
    fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.fields.insert(name.to_owned(), value.into());
    }

    fn client(&mut self, registration: &Registration<'_>) -> Result<(), ConfigError> {
        self.set("client_id", vec![registration.client_id.value.as_str()]);
        let mut scopes = Vec::new();
        for text in &registration.scopes.value {
            let text = registration.scopes.evaluated(text)?;
            scopes.extend(text.split_ascii_whitespace().map(str::to_owned));
        }
        self.set("scopes", scopes);
        let pkce = &registration.pkce_method;
        match pkce.value.as_deref() {
            None | Some("S256") => {}
            Some("none") => self.set("require_proof_key_for_code_exchange", false),
            Some(_) => return Err(pkce.wrong("expected S256 or none")),
        }
        let skip = &registration.skip_signature;
        if skip.value {
            self.set("ignore_signature", json!(["authorization_code", "session"]));
            skip.warn("is true: whoever can answer in the provider's place signs users in");
        }
        let handlers = [&registration.handler, &registration.authenticated_handler];
        for field in handlers {
            if let Some(handler) = field.declared()? {
                self.handler(&handler)?;
            }
        }
        self.proof(registration)
    }

    /// How the client proves itself: its own fields count before its handler.
    fn proof(&mut self, registration: &Registration<'_>) -> Result<(), ConfigError> {
        for key in [&registration.private_key, &registration.key_store] {
            if key.is_given() {
                return Err(key.wrong(KEY_STORE));
            }
        }
        if let Some(secret) = registration.secret.read_secret()? {
            self.secret = Some(secret);
        }
        let named = &registration.method;
        match named.value.as_deref() {
            Some(method @ ("client_secret_basic" | "client_secret_post" | "none")) => {
                self.method = Some(method.to_owned());
            }
            Some("private_key_jwt" | "encrypted_private_key_jwt") => {
                return Err(named.wrong(KEY_STORE));
            }
            Some(_) => {
                let message = "expected client_secret_basic, client_secret_post or none";
                return Err(named.wrong(message));
            }
            None => {
                let basic = registration.basic.read()?;
                self.method = basic
                    .map(|basic| by_secret(basic).to_owned())
                    .or(self.method.take());
            }
        }
        let method = match (&self.secret, self.method.take()) {
            (_, Some(method)) if method == "none" => method,
            (Some(_), method) => method.unwrap_or_else(|| by_secret(true).to_owned()),
            (None, None) => "none".to_owned(),
            (None, Some(_)) => {
                let message = "is required: the secret with which the gateway proves itself";
                return Err(registration.secret.id.wrong(message));
            }
        };
        if let Some(secret) = self.secret.clone().filter(|_| method != "none") {
            self.set("client_secret", vec![secret.expose()]);
        }
        self.set("client_auth", vec![method]);
        Ok(())
    }

    /// A handler for requests to the provider.
    fn handler(&mut self, handler: &Declared<'_>) -> Result<(), ConfigError> {
        let settings = &handler.settings;
        match handler.kind.as_str() {
            "Chain" => {
                let chain = Chain::read(settings)?;
                for filter in chain.filters.all_declared()? {
                    self.filter(&filter)?;
                }
                match chain.handler.declared()? {
                    Some(inner) => self.handler(&inner),
                    None => Err(chain.handler.wrong("is required")),
                }
            }
            kind if CLIENT_HANDLERS.contains(&kind) => self.connection(settings),
            _ => Err(handler.unfit(WANTED_HANDLER)),
        }
    }

    fn connection(&mut self, settings: &Settings<'_>) -> Result<(), ConfigError> {
        let connection = Connection::read(settings)?;
        if let Some(Length::Finite(length)) = connection.so_timeout.value
            && !length.is_zero()
        {
            let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
            self.set("timeout", millis.clamp(1, 60_000));
        }
        if !connection.trust.read_trust()?.certificate {
            self.set("ssl_verify", false);
        }
        Ok(())
    }

    fn filter(&mut self, filter: &Declared<'_>) -> Result<(), ConfigError> {
        let basic = match filter.kind.as_str() {
            "ClientSecretBasicAuthenticationFilter" => true,
            "ClientSecretPostAuthenticationFilter" => false,
            "TransactionIdOutboundFilter" => return Ok(()),
            "PrivateKeyJwtClientAuthenticationFilter"
            | "EncryptedPrivateKeyJwtClientAuthenticationFilter" => {
                return Err(ConfigError {
                    field: format!("{}.type", filter.field),
                    message: KEY_STORE.to_owned(),
                });
            }
            _ => {
                return Err(filter.unfit(
                    "ClientSecretBasicAuthenticationFilter or ClientSecretPostAuthenticationFilter",
                ));
            }
        };
        let credentials = ClientCredentials::read(&filter.settings)?;
        let id = &credentials.client_id;
        if Some(id.value.as_str()) != client_id(&self.fields) {
            return Err(id.wrong("must be the clientId of the ClientRegistration"));
        }
        self.secret = Some(credentials.secret.required()?);
        self.method = Some(by_secret(basic).to_owned());
        Ok(())
    }

    fn issuer(&mut self, declared: &Declared<'_>) -> Result<(), ConfigError> {
        if declared.kind != "Issuer" {
            return Err(declared.unfit("Issuer"));
        }
        let issuer = Issuer::read(&declared.settings)?;
        for (endpoint, field) in [
            (&issuer.authorize_endpoint, "authorization_endpoint"),
            (&issuer.token_endpoint, "token_endpoint"),
            (&issuer.user_info_endpoint, "userinfo_endpoint"),
            (&issuer.end_session_endpoint, "end_session_endpoint"),
            (&issuer.revocation_endpoint, "revocation_endpoint"),
        ] {
            if let Some(url) = &endpoint.value {
                self.set(field, url.as_str());
            }
        }
        if let Some(handler) = issuer.handler.declared()? {
            self.handler(&handler)?;
        }
        if let Some(Length::Finite(skew)) = issuer.skew_allowance.value {
            self.set("leeway", skew.as_secs().min(86_400));
        }
        self.keys(&issuer)?;
        match &issuer.well_known.value {
            Some(url) => self.set("issuer", url.as_str()),
            None => self.undiscovered(&issuer)?,
        }
        Ok(())
    }

    /// An issuer whose metadata the file itself tells.
    fn undiscovered(&mut self, issuer: &Issuer<'_>) -> Result<(), ConfigError> {
        for endpoint in [&issuer.authorize_endpoint, &issuer.token_endpoint] {
            if endpoint.value.is_none() {
                return Err(endpoint.wrong("is required where there is no wellKnownEndpoint"));
            }
        }
        let url = issuer.issuer.read()?;
        let message = "is required where there is no wellKnownEndpoint: the claim iss of ID tokens";
        let url = url.ok_or_else(|| issuer.issuer.wrong(message))?;
        if !self.fields.contains_key("jwks_endpoint")
            && !self.fields.contains_key("enable_hs_signatures")
        {
            let message = "is required where there is no wellKnownEndpoint: a JwkSetSecretStore \
                           with the keys of the provider";
            return Err(issuer.provider.wrong(message));
        }
        self.set("issuer", url.as_str());
        self.set("using_pseudo_issuer", true);
        Ok(())
    }

    /// The keys of ID tokens.
    fn keys(&mut self, issuer: &Issuer<'_>) -> Result<(), ConfigError> {
        let mut sets = secrets::stores(&issuer.provider)?;
        sets.retain(|store| store.kind == "JwkSetSecretStore");
        let mut urls = Vec::new();
        for set in &sets {
            urls.push(FurtherKeySet::read(&set.settings)?.url.value.to_string());
        }
        let mut urls = urls.into_iter();
        if let Some(first) = urls.next() {
            self.set("jwks_endpoint", first);
            self.set("extra_jwks_uris", urls.collect::<Vec<_>>());
            return Ok(());
        }
        if issuer.key.is_given() {
            let secret = secrets::stored(&issuer.key, &issuer.provider)?;
            if secret.is_none() || secret != self.secret {
                let message = "must be the secret of the client, or be found in a \
                               JwkSetSecretStore: no other key verifies ID tokens";
                return Err(issuer.key.wrong(message));
            }
            self.set("enable_hs_signatures", true);
        }
        Ok(())
    }
}

/// The client of a translation.
pub(super) fn client_id(fields: &Map<String, Value>) -> Option<&str> {
    fields.get("client_id")?.as_array()?.first()?.as_str()
}

fn by_secret(basic: bool) -> &'static str {
    if basic {
        "client_secret_basic"
    } else {
        "client_secret_post"
    }
}
