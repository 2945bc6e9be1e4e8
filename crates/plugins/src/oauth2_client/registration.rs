//! `ClientRegistration` and `Issuer`: the client, and the provider that knows
//! it, as fields of the `openid-connect` plugin.

use serde_json::{Map, Value, json};

use crate::chain::settings::{Declared, Settings};
use crate::chain::trust;
use crate::resource_server::secrets;
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
    let settings = &declared.settings;
    known(settings);
    let mut translation = Translation {
        fields: Map::new(),
        secret: None,
        method: None,
    };
    translation.client(settings)?;
    let issuer = settings.declared("issuer")?;
    let issuer = issuer.ok_or_else(|| settings.wrong("issuer", "is required: an Issuer"))?;
    translation.issuer(&issuer)?;
    Ok(translation.fields)
}

fn known(settings: &Settings<'_>) {
    const IDLE: &[&str] = &["redirectUris", "jwtExpirationTimeout"];
    const SERVED: &[&str] = &[
        "clientId",
        "clientSecret",
        "clientSecretId",
        "secretsProvider",
        "issuer",
        "scopes",
        "pkceMethod",
        "registrationHandler",
        "authenticatedRegistrationHandler",
        "tokenEndpointAuthMethod",
        "tokenEndpointAuthSigningAlg",
        "tokenEndpointUseBasicAuth",
        "privateKeyJwtSecretId",
        "keystore",
        "skipSignatureVerification",
    ];
    settings.known(&[SERVED, IDLE].concat());
    settings.idle(IDLE, NOT_DYNAMIC);
}

impl Translation {
    fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.fields.insert(name.to_owned(), value.into());
    }

    fn client(&mut self, settings: &Settings<'_>) -> Result<(), ConfigError> {
        self.set("client_id", vec![settings.required("clientId")?]);
        let mut scopes = Vec::new();
        for text in settings.list("scopes")? {
            let text = settings.evaluated("scopes", text)?;
            scopes.extend(text.split_ascii_whitespace().map(str::to_owned));
        }
        self.set("scopes", scopes);
        match settings.text("pkceMethod")?.as_deref() {
            None | Some("S256") => {}
            Some("none") => self.set("require_proof_key_for_code_exchange", false),
            Some(_) => return Err(settings.wrong("pkceMethod", "expected S256 or none")),
        }
        if settings.flag("skipSignatureVerification", false)? {
            self.set("ignore_signature", json!(["authorization_code", "session"]));
            settings.warn(
                "skipSignatureVerification",
                "is true: whoever can answer in the provider's place signs users in",
            );
        }
        for name in ["registrationHandler", "authenticatedRegistrationHandler"] {
            if let Some(handler) = settings.declared(name)? {
                self.handler(&handler)?;
            }
        }
        self.proof(settings)
    }

    /// How the client proves itself: its own fields count before its handler.
    fn proof(&mut self, settings: &Settings<'_>) -> Result<(), ConfigError> {
        for name in ["privateKeyJwtSecretId", "keystore"] {
            if settings.has(name) {
                return Err(settings.wrong(name, KEY_STORE));
            }
        }
        if let Some(secret) = secrets::read(settings, "clientSecretId", "clientSecret")? {
            self.secret = Some(secret);
        }
        const METHOD: &str = "tokenEndpointAuthMethod";
        match settings.text(METHOD)?.as_deref() {
            Some(method @ ("client_secret_basic" | "client_secret_post" | "none")) => {
                self.method = Some(method.to_owned());
            }
            Some("private_key_jwt" | "encrypted_private_key_jwt") => {
                return Err(settings.wrong(METHOD, KEY_STORE));
            }
            Some(_) => {
                let message = "expected client_secret_basic, client_secret_post or none";
                return Err(settings.wrong(METHOD, message));
            }
            None if settings.has("tokenEndpointUseBasicAuth") => {
                let basic = settings.flag("tokenEndpointUseBasicAuth", true)?;
                self.method = Some(by_secret(basic).to_owned());
            }
            None => {}
        }
        let method = match (&self.secret, self.method.take()) {
            (_, Some(method)) if method == "none" => method,
            (Some(_), method) => method.unwrap_or_else(|| by_secret(true).to_owned()),
            (None, None) => "none".to_owned(),
            (None, Some(_)) => {
                let message = "is required: the secret with which the gateway proves itself";
                return Err(settings.wrong("clientSecretId", message));
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
                for filter in settings.all_declared("filters")? {
                    self.filter(&filter)?;
                }
                match settings.declared("handler")? {
                    Some(inner) => self.handler(&inner),
                    None => Err(settings.wrong("handler", "is required")),
                }
            }
            kind if CLIENT_HANDLERS.contains(&kind) => self.connection(settings),
            _ => Err(handler.unfit(WANTED_HANDLER)),
        }
    }

    fn connection(&mut self, settings: &Settings<'_>) -> Result<(), ConfigError> {
        if let Some(Length::Finite(length)) = settings.length("soTimeout")?
            && !length.is_zero()
        {
            let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
            self.set("timeout", millis.clamp(1, 60_000));
        }
        if !trust::read(settings)?.certificate {
            self.set("ssl_verify", false);
        }
        Ok(())
    }

    fn filter(&mut self, filter: &Declared<'_>) -> Result<(), ConfigError> {
        let settings = &filter.settings;
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
        let own = client_id(&self.fields);
        if Some(settings.required("clientId")?.as_str()) != own {
            let message = "must be the clientId of the ClientRegistration";
            return Err(settings.wrong("clientId", message));
        }
        let secret = secrets::read(settings, "clientSecretId", "clientSecret")?;
        let secret = secret.ok_or_else(|| settings.wrong("clientSecretId", "is required"))?;
        self.secret = Some(secret);
        self.method = Some(by_secret(basic).to_owned());
        Ok(())
    }

    fn issuer(&mut self, declared: &Declared<'_>) -> Result<(), ConfigError> {
        const IDLE: &[&str] = &[
            "registrationEndpoint",
            "issuerRepository",
            "useDeprecatedIssuerRepository",
            "supportedDomains",
        ];
        const ENDPOINTS: [(&str, &str); 5] = [
            ("authorizeEndpoint", "authorization_endpoint"),
            ("tokenEndpoint", "token_endpoint"),
            ("userInfoEndpoint", "userinfo_endpoint"),
            ("endSessionEndpoint", "end_session_endpoint"),
            ("revocationEndpoint", "revocation_endpoint"),
        ];
        if declared.kind != "Issuer" {
            return Err(declared.unfit("Issuer"));
        }
        let settings = &declared.settings;
        let own = [
            "wellKnownEndpoint",
            "issuer",
            "issuerHandler",
            "idTokenSkewAllowance",
        ];
        let keys = ["idTokenVerificationSecretId", "secretsProvider"];
        let endpoints = ENDPOINTS.map(|(name, _)| name);
        settings.known(&[&own[..], &keys, &endpoints, IDLE].concat());
        settings.idle(IDLE, NOT_DYNAMIC);
        for (name, field) in ENDPOINTS {
            if let Some(url) = settings.url(name)? {
                self.set(field, url.as_str());
            }
        }
        if let Some(handler) = settings.declared("issuerHandler")? {
            self.handler(&handler)?;
        }
        if let Some(Length::Finite(skew)) = settings.length("idTokenSkewAllowance")? {
            self.set("leeway", skew.as_secs().min(86_400));
        }
        self.keys(settings)?;
        match settings.url("wellKnownEndpoint")? {
            Some(url) => self.set("issuer", url.as_str()),
            None => self.undiscovered(settings)?,
        }
        Ok(())
    }

    /// An issuer whose metadata the file itself tells.
    fn undiscovered(&mut self, settings: &Settings<'_>) -> Result<(), ConfigError> {
        for name in ["authorizeEndpoint", "tokenEndpoint"] {
            if !settings.has(name) {
                let message = "is required where there is no wellKnownEndpoint";
                return Err(settings.wrong(name, message));
            }
        }
        let issuer = settings.url("issuer")?;
        let message = "is required where there is no wellKnownEndpoint: the claim iss of ID tokens";
        let issuer = issuer.ok_or_else(|| settings.wrong("issuer", message))?;
        if !self.fields.contains_key("jwks_endpoint")
            && !self.fields.contains_key("enable_hs_signatures")
        {
            let message = "is required where there is no wellKnownEndpoint: a JwkSetSecretStore \
                           with the keys of the provider";
            return Err(settings.wrong("secretsProvider", message));
        }
        self.set("issuer", issuer.as_str());
        self.set("using_pseudo_issuer", true);
        Ok(())
    }

    /// The keys of ID tokens.
    fn keys(&mut self, settings: &Settings<'_>) -> Result<(), ConfigError> {
        const FIELD: &str = "idTokenVerificationSecretId";
        let mut sets = Vec::new();
        for declared in settings.all_declared("secretsProvider")? {
            match declared.kind.as_str() {
                "SecretsProvider" => sets.extend(declared.settings.all_declared("stores")?),
                _ => sets.push(declared),
            }
        }
        sets.retain(|store| store.kind == "JwkSetSecretStore");
        let mut urls = Vec::new();
        for set in &sets {
            let url = set.settings.url("jwkUrl")?;
            let url = url.ok_or_else(|| set.settings.wrong("jwkUrl", "is required"))?;
            urls.push(url.to_string());
        }
        let mut urls = urls.into_iter();
        if let Some(first) = urls.next() {
            self.set("jwks_endpoint", first);
            self.set("extra_jwks_uris", urls.collect::<Vec<_>>());
            return Ok(());
        }
        if settings.has(FIELD) {
            let secret = secrets::read(settings, FIELD, "")?;
            if secret.is_none() || secret != self.secret {
                let message = "must be the secret of the client, or be found in a \
                               JwkSetSecretStore: no other key verifies ID tokens";
                return Err(settings.wrong(FIELD, message));
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
