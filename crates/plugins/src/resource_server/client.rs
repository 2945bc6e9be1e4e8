//! How the gateway reaches an endpoint and proves who it is: what a handler
//! such as `providerHandler` declares.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use url::form_urlencoded::byte_serialize;

use super::secrets;
use crate::chain::settings::{Declared, Settings};
use crate::chain::trust;
use doorward_core::model::secret::Secret;
use doorward_expr::duration::Length;
use doorward_net::http::outbound::Options;
use doorward_plugin_api::ConfigError;

const HANDLERS: &[&str] = &[
    "ClientHandler",
    "ForgeRockClientHandler",
    "ReverseProxyHandler",
];
const WANTED: &str = "a Chain of authentication filters, ClientHandler or ForgeRockClientHandler";
const WANTED_FILTERS: &str = "ClientSecretBasicAuthenticationFilter, \
    ClientSecretPostAuthenticationFilter, HttpBasicAuthenticationClientFilter or HeaderFilter";

/// A client of an endpoint.
#[derive(Debug, Default)]
pub(super) struct Client {
    /// The connection.
    pub(super) options: Options,
    /// Fields of each request; secret ones are marked.
    pub(super) headers: HeaderMap,
    /// Members of each form.
    pub(super) form: Vec<(&'static str, Secret)>,
}

/// The options of a client of which nothing is said.
pub(super) fn options() -> Options {
    Options::default()
}

impl Client {
    /// The client that the field `name` declares.
    pub(super) fn read(settings: &Settings<'_>, name: &str) -> Result<Self, ConfigError> {
        let mut client = Self {
            options: options(),
            ..Self::default()
        };
        if let Some(handler) = settings.declared(name)? {
            client.handler(&handler)?;
        }
        Ok(client)
    }

    /// Proves to be the client of these credentials (RFC 6749 §2.3.1), where
    /// nothing else does.
    pub(super) fn basic(&mut self, id: &str, secret: &Secret) {
        let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
        self.authorize(&encode(id), &encode(secret.expose()));
    }

    /// The credentials in the fields of an object, if it has any.
    pub(super) fn direct(&mut self, settings: &Settings<'_>) -> Result<(), ConfigError> {
        let secret = secrets::read(settings, "clientSecretId", "clientSecret")?;
        match (settings.text("clientId")?, secret) {
            (None, None) => {}
            (Some(id), Some(secret)) => self.basic(&id, &secret),
            (Some(_), None) => return Err(settings.wrong("clientSecretId", "is required")),
            (None, Some(_)) => return Err(settings.wrong("clientId", "is required")),
        }
        Ok(())
    }

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
            kind if HANDLERS.contains(&kind) => self.connection(settings),
            _ => Err(handler.unfit(WANTED)),
        }
    }

    fn connection(&mut self, settings: &Settings<'_>) -> Result<(), ConfigError> {
        for name in ["soTimeout", "connectionTimeout"] {
            if let Some(Length::Finite(length)) = settings.length(name)?
                && name == "soTimeout"
                && !length.is_zero()
            {
                self.options.timeout = length.min(Duration::from_secs(60));
            }
        }
        let trust = trust::read(settings)?;
        if trust.certificate && !trust.host {
            let message = "has no effect here: the host of an endpoint is verified";
            settings.warn("hostnameVerifier", message);
        }
        self.options.verify = trust.certificate;
        Ok(())
    }

    fn filter(&mut self, filter: &Declared<'_>) -> Result<(), ConfigError> {
        let settings = &filter.settings;
        let required = |secret: Option<Secret>, name: &str| {
            secret.ok_or_else(|| settings.wrong(name, "is required"))
        };
        match filter.kind.as_str() {
            "ClientSecretBasicAuthenticationFilter" => {
                let id = settings.required("clientId")?;
                let secret = secrets::read(settings, "clientSecretId", "clientSecret")?;
                self.basic(&id, &required(secret, "clientSecretId")?);
            }
            "ClientSecretPostAuthenticationFilter" => {
                let id = settings.required("clientId")?;
                let secret = secrets::read(settings, "clientSecretId", "clientSecret")?;
                let secret = required(secret, "clientSecretId")?;
                self.form = vec![("client_id", Secret::new(id)), ("client_secret", secret)];
            }
            "HttpBasicAuthenticationClientFilter" | "HttpBasicAuthFilter" => {
                let name = settings.required("username")?;
                let secret = secrets::read(settings, "passwordSecretId", "password")?;
                let secret = required(secret, "passwordSecretId")?;
                self.authorize(&name, secret.expose());
            }
            "HeaderFilter" => self.fixed_headers(settings)?,
            "TransactionIdOutboundFilter" => {}
            _ => return Err(filter.unfit(WANTED_FILTERS)),
        }
        Ok(())
    }

    /// The fields that a `HeaderFilter` adds, which must be the same for every
    /// request.
    fn fixed_headers(&mut self, settings: &Settings<'_>) -> Result<(), ConfigError> {
        if !settings
            .required("messageType")?
            .eq_ignore_ascii_case("REQUEST")
        {
            return Err(settings.wrong("messageType", "must be REQUEST here"));
        }
        for (name, texts) in settings.lists("add")? {
            let place = format!("add.{name}");
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| settings.wrong(&place, "is no name of a header field"))?;
            for text in texts {
                let value = settings.evaluated(&place, &text)?;
                let mut value = HeaderValue::try_from(value).map_err(|_| {
                    settings.wrong(&place, "has a character that a header field can't have")
                })?;
                value.set_sensitive(true);
                self.headers.append(name.clone(), value);
            }
        }
        Ok(())
    }

    fn authorize(&mut self, name: &str, secret: &str) {
        let credentials = STANDARD.encode(format!("{name}:{secret}"));
        // Base64 is legal in a header field.
        if let Ok(mut value) = HeaderValue::try_from(format!("Basic {credentials}")) {
            value.set_sensitive(true);
            self.headers.insert(AUTHORIZATION, value);
        }
    }
}
