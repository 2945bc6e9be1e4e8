//! Where the provider is asked: its endpoints, as configured or discovered.

use url::Url;

use super::fields::Fields;
use super::mutual_tls::{self, MutualTls};
use super::provider::Known;
use super::refusal::Refusal;
use crate::plugins::ConfigError;
use crate::plugins::openid_connect::client::Proof;

/// An endpoint of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
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
    pub(super) fn name(self) -> &'static str {
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
pub(super) struct Endpoints {
    /// In the order of [`Endpoint::ALL`].
    settings: Vec<Setting>,
    pub(super) mutual_tls: MutualTls,
    /// Whether the issuer is reached by TLS.
    secure: bool,
}

#[derive(Debug)]
struct Setting {
    url: Option<Url>,
    proof: Option<Proof>,
}

impl Endpoints {
    pub(super) fn new(fields: Fields<'_>, issuer: &Url) -> Result<Self, ConfigError> {
        let setting = |endpoint: Endpoint| {
            let name = endpoint.name();
            let method = match endpoint {
                Endpoint::TokenExchange => "token_endpoint_auth_method".to_owned(),
                _ => format!("{name}_auth_method"),
            };
            let proof = match endpoint {
                Endpoint::Token
                | Endpoint::Introspection
                | Endpoint::Revocation
                | Endpoint::PushedRequest
                | Endpoint::TokenExchange => fields.text(&method)?,
                Endpoint::Userinfo | Endpoint::Authorization | Endpoint::EndSession => None,
            };
            let named = proof.map(|text| Proof::named(&method, text)).transpose()?;
            if let (Some(text), Some(Proof::Tls)) = (proof, named) {
                mutual_tls::needs_certificate(fields, text)?;
            }
            Ok(Setting {
                url: fields.url(name)?,
                proof: named,
            })
        };
        let settings: Result<_, ConfigError> = Endpoint::ALL.into_iter().map(setting).collect();
        Ok(Self {
            settings: settings?,
            mutual_tls: MutualTls::new(fields)?,
            secure: issuer.scheme() == "https",
        })
    }

    /// The address of an endpoint.
    ///
    /// # Errors
    /// [`Refusal::NoEndpoint`] where there is none, and where a provider on
    /// https names one on http: credentials would go there in the clear.
    /// [`Refusal::ProviderUnavailable`] where it can't be asked for it.
    pub(super) fn url(&self, endpoint: Endpoint, known: &Known) -> Result<Url, Refusal> {
        if let Some(url) = &self.settings[endpoint as usize].url {
            return Ok(url.clone());
        }
        if endpoint == Endpoint::TokenExchange {
            return self.url(Endpoint::Token, known);
        }
        known
            .member(endpoint.name())
            .and_then(|url| Url::parse(url.as_str()?).ok())
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .filter(|url| !self.secure || url.scheme() == "https")
            .ok_or_else(|| known.out_of_endpoints())
    }

    /// Whether any of them is configured.
    pub(super) fn are_configured(&self) -> bool {
        self.settings.iter().any(|setting| setting.url.is_some())
    }

    /// Whether the gateway may be sent to `url` by the provider.
    pub(super) fn may_go(&self, url: &Url) -> bool {
        let secure = url.scheme() == "https" || (!self.secure && url.scheme() == "http");
        secure && url.has_host() && url.username().is_empty() && url.password().is_none()
    }

    /// The address of an endpoint for clients that prove themselves so.
    ///
    /// # Errors
    /// As [`Self::url`]; where certificates are shown, also for an address on
    /// http.
    pub(super) fn url_for(
        &self,
        endpoint: Endpoint,
        proof: Option<Proof>,
        known: &Known,
    ) -> Result<Url, Refusal> {
        if proof != Some(Proof::Tls) {
            return self.url(endpoint, known);
        }
        let own = self.settings[endpoint as usize].url.is_some();
        let aliased = match endpoint {
            Endpoint::TokenExchange if !own => Endpoint::Token,
            other => other,
        };
        let alias = self.mutual_tls.alias(aliased, known);
        let url = alias.map_or_else(|| self.url(endpoint, known), Ok)?;
        match url.scheme() {
            "https" => Ok(url),
            _ => Err(Refusal::NoEndpoint),
        }
    }

    /// How clients prove themselves there, if the configuration says.
    pub(super) fn proof(&self, endpoint: Endpoint) -> Option<Proof> {
        self.settings[endpoint as usize].proof
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    #[test]
    fn a_secure_provider_sends_the_gateway_to_secure_addresses_alone() {
        let empty = Map::new();
        for (issuer, address, may) in [
            ("https://id.test", "https://claims.test/a", true),
            ("https://id.test", "http://claims.test/a", false),
            ("http://id.test", "http://claims.test/a", true),
            ("http://id.test", "https://claims.test/a", true),
            ("http://id.test", "ftp://claims.test/a", false),
            ("https://id.test", "https://me:secret@claims.test/a", false),
        ] {
            let url = |text: &str| Url::parse(text).expect("a URL");
            let endpoints = Endpoints::new(Fields(&empty), &url(issuer)).expect("valid");
            assert_eq!(endpoints.may_go(&url(address)), may, "{issuer} {address}");
        }
    }
}
