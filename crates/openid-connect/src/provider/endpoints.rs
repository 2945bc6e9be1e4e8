//! Where the provider is asked: its endpoints, as configured or discovered.

use serde_json::Value;
use url::Url;

use crate::config::fields::Fields;
use crate::config::fields::client::AssertionAudience;
use crate::decide::refusal::Refusal;
use crate::provider::ProviderMetadata;
use crate::provider::client_auth::ClientAuthMethod;
use crate::provider::mutual_tls::{self, MutualTls};
use doorward_net::http::outbound::Options;
use doorward_oidc_client::metadata::{address, check_address, is_true};
use doorward_plugin_api::ConfigError;

/// An endpoint of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Token,
    Introspection,
    Userinfo,
    Authorization,
    Revocation,
    EndSession,
    PushedRequest,
    /// The token endpoint, where there is no other.
    TokenExchange,
}

impl Endpoint {
    const ALL: [Self; 8] = [
        Self::Token,
        Self::Introspection,
        Self::Userinfo,
        Self::Authorization,
        Self::Revocation,
        Self::EndSession,
        Self::PushedRequest,
        Self::TokenExchange,
    ];

    /// Its member of discovery documents, and its setting.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Token => "token_endpoint",
            Self::Introspection => "introspection_endpoint",
            Self::Userinfo => "userinfo_endpoint",
            Self::Authorization => "authorization_endpoint",
            Self::Revocation => "revocation_endpoint",
            Self::EndSession => "end_session_endpoint",
            Self::PushedRequest => "pushed_authorization_request_endpoint",
            Self::TokenExchange => "token_exchange_endpoint",
        }
    }
}

/// What is configured of the endpoints.
#[derive(Debug)]
pub(crate) struct Endpoints {
    /// In the order of [`Endpoint::ALL`].
    settings: Vec<Setting>,
    pub(crate) mutual_tls: MutualTls,
    /// Whether assertions are for the issuer, or else the token endpoint; absent:
    /// as the provider's metadata ask.
    for_issuer: Option<bool>,
    /// Whether the issuer is reached by TLS.
    secure: bool,
}

#[derive(Debug)]
struct Setting {
    url: Option<Url>,
    proof: Option<ClientAuthMethod>,
}

impl Endpoints {
    pub(crate) fn new(fields: &Fields, issuer: &Url) -> Result<Self, ConfigError> {
        let of = &fields.endpoints;
        let setting = |endpoint: Endpoint| {
            let (url, name) = match endpoint {
                Endpoint::Token => (&of.token_endpoint, of.token_endpoint_auth_method),
                Endpoint::Introspection => (
                    &of.introspection_endpoint,
                    of.introspection_endpoint_auth_method,
                ),
                Endpoint::Userinfo => (&of.userinfo_endpoint, None),
                Endpoint::Authorization => (&of.authorization_endpoint, None),
                Endpoint::Revocation => {
                    (&of.revocation_endpoint, of.revocation_endpoint_auth_method)
                }
                Endpoint::EndSession => (&of.end_session_endpoint, None),
                Endpoint::PushedRequest => (
                    &of.pushed_authorization_request_endpoint,
                    of.pushed_authorization_request_endpoint_auth_method,
                ),
                Endpoint::TokenExchange => {
                    (&of.token_exchange_endpoint, of.token_endpoint_auth_method)
                }
            };
            let proof = name.map(ClientAuthMethod::from);
            if let (Some(name), Some(ClientAuthMethod::Tls)) = (name, proof) {
                mutual_tls::needs_certificate(fields, name)?;
            }
            Ok(Setting {
                url: url.as_ref().map(|url| url.0.clone()),
                proof,
            })
        };
        let settings: Result<_, ConfigError> = Endpoint::ALL.into_iter().map(setting).collect();
        Ok(Self {
            settings: settings?,
            mutual_tls: MutualTls::new(fields)?,
            for_issuer: (fields.client.client_assertion_audience)
                .map(|audience| audience == AssertionAudience::Issuer),
            secure: issuer.scheme() == "https",
        })
    }

    /// The address of an endpoint.
    ///
    /// # Errors
    /// [`Refusal::NoEndpoint`] where there is none, or none that the gateway may
    /// be sent to: credentials would go to http in the clear.
    /// [`Refusal::ProviderUnavailable`] where it can't be asked for it.
    pub(crate) fn url(
        &self,
        endpoint: Endpoint,
        metadata: &ProviderMetadata,
    ) -> Result<Url, Refusal> {
        if let Some(url) = &self.settings[endpoint as usize].url {
            return Ok(url.clone());
        }
        if endpoint == Endpoint::TokenExchange {
            return self.url(Endpoint::Token, metadata);
        }
        let member = metadata.member(endpoint.name());
        address(member, self.secure)
            .ok()
            .flatten()
            .ok_or_else(|| metadata.no_such_endpoint())
    }

    /// Whether any of them is configured.
    pub(crate) fn are_configured(&self) -> bool {
        self.settings.iter().any(|setting| setting.url.is_some())
    }

    /// Whether the gateway may be sent to `url` by the provider.
    pub(crate) fn may_go(&self, url: &Url) -> bool {
        check_address(url, self.secure).is_ok()
    }

    /// The address of an endpoint for clients that prove themselves so.
    ///
    /// # Errors
    /// As [`Self::url`]; where certificates are shown, also for an address on
    /// http.
    pub(crate) fn url_for(
        &self,
        endpoint: Endpoint,
        proof: Option<ClientAuthMethod>,
        metadata: &ProviderMetadata,
    ) -> Result<Url, Refusal> {
        let shows = match proof {
            Some(ClientAuthMethod::Tls) => true,
            Some(ClientAuthMethod::PrivateKeyJwt) => self.mutual_tls.is_shown(),
            _ => false,
        };
        if !shows {
            return self.url(endpoint, metadata);
        }
        let own = self.settings[endpoint as usize].url.is_some();
        let aliased = match endpoint {
            Endpoint::TokenExchange if !own => Endpoint::Token,
            other => other,
        };
        let alias = self.alias(aliased, metadata)?;
        let url = alias.map_or_else(|| self.url(endpoint, metadata), Ok)?;
        match url.scheme() {
            "https" => Ok(url),
            // There is no need for the certificate, and no way to show it.
            _ if proof != Some(ClientAuthMethod::Tls) => Ok(url),
            _ => Err(Refusal::NoEndpoint),
        }
    }

    /// Where the endpoint takes certificates, if that is elsewhere.
    ///
    /// # Errors
    /// [`Refusal::NoEndpoint`] where the provider names an address that the
    /// gateway may not be sent to.
    pub(crate) fn alias(
        &self,
        endpoint: Endpoint,
        metadata: &ProviderMetadata,
    ) -> Result<Option<Url>, Refusal> {
        let alias = self.mutual_tls.alias(endpoint, metadata, self.secure);
        alias.map_err(|_| Refusal::NoEndpoint)
    }

    /// As `options`, for clients that prove themselves so at `url`: with the
    /// certificate where that is the proof, or where tokens may be bound to it
    /// (RFC 8705 §3). `None`: the proof can't be given.
    pub(crate) fn options_for(
        &self,
        proof: Option<ClientAuthMethod>,
        url: &Url,
        options: Options,
    ) -> Option<Options> {
        match proof {
            Some(ClientAuthMethod::Tls) => self.mutual_tls.options(options),
            Some(ClientAuthMethod::PrivateKeyJwt) if url.scheme() == "https" => {
                self.mutual_tls.options(options).or(Some(options))
            }
            _ => Some(options),
        }
    }

    /// Whom the assertions of clients are for: the token endpoint, whatever is
    /// asked (OpenID Connect Core §9), or the issuer (FAPI 2.0 Security Profile
    /// §5.3.3.1, draft-ietf-oauth-rfc7523bis).
    pub(crate) fn assertion_audience(&self, asked: &Url, metadata: &ProviderMetadata) -> String {
        let asks = || asks_for_fapi(|name| metadata.member(name));
        if self.for_issuer.unwrap_or_else(asks) {
            return metadata.issuer.clone();
        }
        let url = self.url(Endpoint::Token, metadata);
        url.as_ref().unwrap_or(asked).to_string()
    }

    /// How clients prove themselves there, if the configuration says.
    pub(crate) fn proof(&self, endpoint: Endpoint) -> Option<ClientAuthMethod> {
        self.settings[endpoint as usize].proof
    }
}

/// Whether the metadata are those of a provider that obeys the FAPI 2.0 Security
/// Profile: pushed requests alone, answers that name the issuer, and no client
/// with a secret (§5.3.2.1, §5.3.2.2).
fn asks_for_fapi<'a>(member: impl Fn(&str) -> Option<&'a Value>) -> bool {
    let is_true = |name: &str| is_true(member(name));
    let strong = |method: &Value| {
        let strong = [
            "private_key_jwt",
            "tls_client_auth",
            "self_signed_tls_client_auth",
        ];
        method.as_str().is_some_and(|name| strong.contains(&name))
    };
    let methods = member("token_endpoint_auth_methods_supported");
    let methods = methods.and_then(Value::as_array);
    is_true("require_pushed_authorization_requests")
        && is_true("authorization_response_iss_parameter_supported")
        && methods.is_some_and(|all| !all.is_empty() && all.iter().all(strong))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_certificate_is_shown_beside_a_signed_assertion_and_over_tls_alone() {
        let id = "00000000-0000-4000-8000-000000000001";
        let options = |config: Value, proof, url: &str| {
            let issuer = Url::parse("https://id.test").expect("a URL");
            let endpoints =
                Endpoints::new(&Fields::of(&config).expect("valid"), &issuer).expect("valid");
            let url = Url::parse(url).expect("a URL");
            endpoints.options_for(proof, &url, Options::default())
        };
        let shown = |options: Option<Options>| options.map(|options| options.shows.is_some());
        let with = || json!({"tls_client_auth_cert_id": id});
        let https = "https://id.test/token";
        for (config, proof, url, wanted) in [
            (with(), Some(ClientAuthMethod::Tls), https, Some(true)),
            (json!({}), Some(ClientAuthMethod::Tls), https, None),
            (
                with(),
                Some(ClientAuthMethod::PrivateKeyJwt),
                https,
                Some(true),
            ),
            (
                json!({}),
                Some(ClientAuthMethod::PrivateKeyJwt),
                https,
                Some(false),
            ),
            (
                with(),
                Some(ClientAuthMethod::PrivateKeyJwt),
                "http://id.test/token",
                Some(false),
            ),
            (with(), Some(ClientAuthMethod::Basic), https, Some(false)),
            (with(), None, https, Some(false)),
        ] {
            let found = shown(options(config.clone(), proof, url));
            assert_eq!(found, wanted, "{config} {proof:?} {url}");
        }
    }

    #[test]
    fn an_https_provider_has_no_assertions_sent_to_an_alias_on_http() {
        let config = json!({"tls_client_auth_cert_id": "00000000-0000-4000-8000-000000000001"});
        let found = |issuer: &str, alias: &str| {
            let issuer = Url::parse(issuer).expect("a URL");
            let document = json!({"token_endpoint": "https://id.test/token",
                "mtls_endpoint_aliases": {"token_endpoint": alias}});
            let document = document.as_object().cloned().expect("an object");
            let metadata = ProviderMetadata {
                discovered: Some((Arc::new(document), 0)),
                ..ProviderMetadata::undiscovered(&issuer)
            };
            let fields = Fields::of(&config).expect("valid");
            let endpoints = Endpoints::new(&fields, &issuer).expect("valid");
            let proof = Some(ClientAuthMethod::PrivateKeyJwt);
            let url = endpoints.url_for(Endpoint::Token, proof, &metadata);
            url.map(String::from)
        };
        let (secure, plain) = ("https://tls.id.test/token", "http://tls.id.test/token");
        assert_eq!(found("https://id.test", secure).as_deref(), Ok(secure));
        assert_eq!(found("http://id.test", plain).as_deref(), Ok(plain));
        assert_eq!(found("https://id.test", plain), Err(Refusal::NoEndpoint));
    }

    #[test]
    fn assertions_are_for_the_issuer_where_the_metadata_are_those_of_fapi() {
        let fapi = json!({
            "require_pushed_authorization_requests": true,
            "authorization_response_iss_parameter_supported": true,
            "token_endpoint_auth_methods_supported": ["private_key_jwt", "tls_client_auth"],
        });
        assert!(asks_for_fapi(|name| fapi.get(name)));
        for (name, other) in [
            ("require_pushed_authorization_requests", json!(false)),
            (
                "authorization_response_iss_parameter_supported",
                json!(null),
            ),
            ("token_endpoint_auth_methods_supported", json!([])),
            (
                "token_endpoint_auth_methods_supported",
                json!(["private_key_jwt", "client_secret_basic"]),
            ),
        ] {
            let mut metadata = fapi.clone();
            metadata[name] = other;
            assert!(!asks_for_fapi(|name| metadata.get(name)), "{metadata}");
        }
    }

    #[test]
    fn a_secure_provider_sends_the_gateway_to_secure_addresses_alone() {
        let fields = Fields::of(&json!({})).expect("valid");
        for (issuer, address, may) in [
            ("https://id.test", "https://claims.test/a", true),
            ("https://id.test", "http://claims.test/a", false),
            ("http://id.test", "http://claims.test/a", true),
            ("http://id.test", "https://claims.test/a", true),
            ("http://id.test", "ftp://claims.test/a", false),
            ("https://id.test", "https://me:secret@claims.test/a", false),
        ] {
            let url = |text: &str| Url::parse(text).expect("a URL");
            let endpoints = Endpoints::new(&fields, &url(issuer)).expect("valid");
            assert_eq!(endpoints.may_go(&url(address)), may, "{issuer} {address}");
        }
    }
}
