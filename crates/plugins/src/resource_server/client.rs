//! How the gateway reaches an endpoint and proves who it is: what a handler
//! such as `providerHandler` declares.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::secrets::{ClientSecret, Password};
use crate::chain::object::{DeferredValue, Field, Object, Reference, TextLists, object};
use crate::chain::settings::{Declared, Settings};
use crate::chain::trust::ClientTrust;
use doorward_core::model::secret::Secret;
use doorward_expr::duration::Length;
use doorward_net::http::outbound::Options;
use doorward_oidc_client::client_auth::basic;
use doorward_plugin_api::ConfigError;

const HANDLERS: &[&str] = &[
    "ClientHandler",
    "ForgeRockClientHandler",
    "ReverseProxyHandler",
];
const WANTED: &str = "a Chain of authentication filters, ClientHandler or ForgeRockClientHandler";
const WANTED_FILTERS: &str = "ClientSecretBasicAuthenticationFilter, \
    ClientSecretPostAuthenticationFilter, HttpBasicAuthenticationClientFilter or HeaderFilter";

object! {
    /// A `Chain` of filters before a client handler.
    pub(crate) struct Chain<'a> {
        filters: Reference,
        handler: Reference,
    }
}

object! {
    /// What a client handler says of its connections.
    pub(crate) struct Connection<'a> {
        so_timeout as "soTimeout": Option<Length>,
        connection_timeout as "connectionTimeout": DeferredValue<Option<Length>>,
        trust as ..: ClientTrust<'a>,
    }
}

object! {
    /// A filter that proves who the client is, by its secret.
    pub(crate) struct ClientCredentials<'a> {
        client_id as "clientId": String,
        secret as ..: ClientSecret<'a>,
    }
}

object! {
    /// The same in the object of an endpoint, where both may be absent.
    pub(super) struct DirectCredentials<'a> {
        client_id as "clientId": Option<String>,
        secret as ..: ClientSecret<'a>,
    }
}

object! {
    /// A filter that proves who a user is.
    struct UserCredentials<'a> {
        username: String,
        password as ..: Password<'a>,
        provider as "secretsProvider": Reference,
    }
}

object! {
    /// A `HeaderFilter` of requests.
    struct FixedHeaders<'a> {
        message_type as "messageType": String,
        add: TextLists,
    }
}

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
    /// The client that a field declares.
    pub(super) fn read(field: &Field<'_, Reference>) -> Result<Self, ConfigError> {
        let mut client = Self {
            options: options(),
            ..Self::default()
        };
        if let Some(handler) = field.declared()? {
            client.handler(&handler)?;
        }
        Ok(client)
    }

    /// Proves to be the client of these credentials (RFC 6749 §2.3.1), where
    /// nothing else does.
    pub(super) fn basic(&mut self, id: &str, secret: &Secret) {
        self.headers
            .insert(AUTHORIZATION, basic(id, secret.expose()));
    }

    /// The credentials in the fields of an object, if it has any.
    pub(super) fn direct(&mut self, own: &DirectCredentials<'_>) -> Result<(), ConfigError> {
        let secret = own.secret.read_secret()?;
        match (&own.client_id.value, secret) {
            (None, None) => {}
            (Some(id), Some(secret)) => self.basic(id, &secret),
            (Some(_), None) => return Err(own.secret.id.wrong("is required")),
            (None, Some(_)) => return Err(own.client_id.wrong("is required")),
        }
        Ok(())
    }

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
            kind if HANDLERS.contains(&kind) => self.connection(settings),
            _ => Err(handler.unfit(WANTED)),
        }
    }

    fn connection(&mut self, settings: &Settings<'_>) -> Result<(), ConfigError> {
        let connection = Connection::read(settings)?;
        if let Some(Length::Finite(length)) = connection.so_timeout.value
            && !length.is_zero()
        {
            self.options.timeout = length.min(Duration::from_secs(60));
        }
        connection.connection_timeout.read()?;
        let trust = connection.trust.read_trust()?;
        if trust.certificate && !trust.host {
            let message = "has no effect here: the host of an endpoint is verified";
            connection.trust.own.hostname_verifier.warn(message);
        }
        self.options.verify = trust.certificate;
        Ok(())
    }

    fn filter(&mut self, filter: &Declared<'_>) -> Result<(), ConfigError> {
        let settings = &filter.settings;
        match filter.kind.as_str() {
            "ClientSecretBasicAuthenticationFilter" => {
                let own = ClientCredentials::read(settings)?;
                self.basic(&own.client_id.value, &own.secret.required()?);
            }
            "ClientSecretPostAuthenticationFilter" => {
                let own = ClientCredentials::read(settings)?;
                let secret = own.secret.required()?;
                let id = Secret::new(own.client_id.value);
                self.form = vec![("client_id", id), ("client_secret", secret)];
            }
            "HttpBasicAuthenticationClientFilter" | "HttpBasicAuthFilter" => {
                let own = UserCredentials::read(settings)?;
                let secret = own.password.required(&own.provider)?;
                self.authorize(&own.username.value, secret.expose());
            }
            "HeaderFilter" => self.fixed_headers(&FixedHeaders::read(settings)?)?,
            "TransactionIdOutboundFilter" => {}
            _ => return Err(filter.unfit(WANTED_FILTERS)),
        }
        Ok(())
    }

    /// The fields that a `HeaderFilter` adds, which must be the same for every
    /// request.
    fn fixed_headers(&mut self, fields: &FixedHeaders<'_>) -> Result<(), ConfigError> {
        let message_type = &fields.message_type;
        if !message_type.value.eq_ignore_ascii_case("REQUEST") {
            return Err(message_type.wrong("must be REQUEST here"));
        }
        for (name, texts) in &fields.add.value {
            let place = fields.add.at(name);
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| place.wrong("is no name of a header field"))?;
            for text in texts {
                let value = place.evaluated(text)?;
                let mut value = HeaderValue::try_from(value)
                    .map_err(|_| place.wrong("has a character that a header field can't have"))?;
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
