//! Clients that prove themselves by a certificate (RFC 8705 §2), and where the
//! provider takes it (§5).

use url::Url;
use uuid::Uuid;

use crate::config::fields::client::ClientAuthName;
use crate::config::fields::types::HttpUrl;
use crate::config::fields::{Fields, wrong};
use crate::provider::ProviderMetadata;
use crate::provider::client_auth::ClientAuthMethod;
use crate::provider::endpoints::Endpoint;
use doorward_core::model::plugin::CERTIFICATE_FIELD;
use doorward_net::http::outbound::Options;
use doorward_oidc_client::metadata::{MetadataError, address};
use doorward_plugin_api::ConfigError;
use doorward_plugin_api::config::FieldWord;

/// Settings that say where the provider takes certificates.
const ALIASES: [(Endpoint, &str); 3] = [
    (Endpoint::Token, "mtls_token_endpoint"),
    (Endpoint::Introspection, "mtls_introspection_endpoint"),
    (Endpoint::Revocation, "mtls_revocation_endpoint"),
];

/// What is configured of it.
#[derive(Debug)]
pub(crate) struct MutualTls {
    certificate: Option<Uuid>,
    /// Whether the provider's certificate is checked.
    verify: bool,
    aliases: Vec<(Endpoint, Url)>,
}

impl MutualTls {
    pub(crate) fn new(fields: &Fields) -> Result<Self, ConfigError> {
        let mut aliases = Vec::new();
        for ((endpoint, name), url) in ALIASES.into_iter().zip(aliases_of(fields)) {
            let Some(HttpUrl(url)) = url else {
                continue;
            };
            if url.scheme() != "https" {
                return Err(wrong(name, "expected an https URL"));
            }
            aliases.push((endpoint, url.clone()));
        }
        Ok(Self {
            certificate: certificate(fields),
            verify: fields.proofs.tls_client_auth_ssl_verify,
            aliases,
        })
    }

    /// Where `endpoint` takes certificates, if that is elsewhere. `is_secure`: the
    /// provider itself is on https.
    ///
    /// # Errors
    /// The provider names an address that the gateway does not go to.
    pub(crate) fn alias(
        &self,
        endpoint: Endpoint,
        metadata: &ProviderMetadata,
        is_secure: bool,
    ) -> Result<Option<Url>, MetadataError> {
        if let Some(url) = self.configured(endpoint) {
            return Ok(Some(url.clone()));
        }
        let aliases = metadata.member("mtls_endpoint_aliases");
        let alias = aliases.and_then(|aliases| aliases.get(endpoint.name()));
        address(alias, is_secure)
    }

    fn configured(&self, endpoint: Endpoint) -> Option<&Url> {
        let mut configured = self.aliases.iter();
        let found = configured.find(|(of, _)| *of == endpoint);
        found.map(|(_, url)| url)
    }

    /// Whether there is a certificate that is shown.
    pub(crate) fn is_shown(&self) -> bool {
        self.certificate.is_some()
    }

    /// As `options`, with the certificate; `None`: there is none.
    pub(crate) fn options(&self, options: Options) -> Option<Options> {
        Some(Options {
            shows: Some(self.certificate?),
            verify: self.verify,
            ..options
        })
    }
}

/// The certificate that clients prove themselves by.
pub(crate) fn certificate(fields: &Fields) -> Option<Uuid> {
    fields.proofs.tls_client_auth_cert_id.map(|id| id.0)
}

/// In the order of [`ALIASES`].
fn aliases_of(fields: &Fields) -> [Option<&HttpUrl>; 3] {
    [
        fields.endpoints.mtls_token_endpoint.as_ref(),
        fields.endpoints.mtls_introspection_endpoint.as_ref(),
        fields.endpoints.mtls_revocation_endpoint.as_ref(),
    ]
}

/// Refuses a method that needs a certificate where there is none.
pub(crate) fn needs_certificate(
    fields: &Fields,
    method: ClientAuthName,
) -> Result<(), ConfigError> {
    match certificate(fields) {
        Some(_) => Ok(()),
        None => Err(wrong(
            CERTIFICATE_FIELD,
            &format!("{} needs the id of a certificate", method.word()),
        )),
    }
}

/// What is set although no client proves itself so.
pub(crate) fn ineffective(fields: &Fields) -> Option<String> {
    let methods = [
        fields.endpoints.token_endpoint_auth_method,
        fields.endpoints.introspection_endpoint_auth_method,
        fields.endpoints.revocation_endpoint_auth_method,
        fields
            .endpoints
            .pushed_authorization_request_endpoint_auth_method,
    ];
    let of_clients = &fields.client.client_auth;
    let mut methods = methods.iter().flatten().chain(of_clients);
    // Who signs an assertion shows it, too: tokens may be bound to it.
    let by_tls = methods.any(|name| {
        let method = ClientAuthMethod::from(*name);
        matches!(
            method,
            ClientAuthMethod::Tls | ClientAuthMethod::PrivateKeyJwt
        )
    });
    let id = certificate(fields);
    // What the provider offers may choose it.
    if by_tls || (of_clients.is_empty() && id.is_some()) {
        return None;
    }
    let unverified = !fields.proofs.tls_client_auth_ssl_verify;
    let settings = [
        (CERTIFICATE_FIELD, id.is_some()),
        ("tls_client_auth_ssl_verify", unverified),
    ];
    let aliases = ALIASES.iter().zip(aliases_of(fields));
    let aliases = aliases.map(|((_, name), url)| (*name, url.is_some()));
    let set = settings.into_iter().chain(aliases);
    let set: Vec<&str> = set
        .filter_map(|(name, is_set)| is_set.then_some(name))
        .collect();
    (!set.is_empty()).then(|| {
        format!(
            "{}: no client proves itself by TLS (client_auth)",
            set.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ID: &str = "00000000-0000-4000-8000-000000000001";

    fn idle_with(config: Value) -> Option<String> {
        ineffective(&Fields::of(&config).expect("valid"))
    }

    #[test]
    fn a_certificate_that_nobody_shows_is_named() {
        for config in [
            json!({}),
            json!({CERTIFICATE_FIELD: ID}),
            json!({CERTIFICATE_FIELD: ID, "client_auth": ["tls_client_auth"]}),
            json!({CERTIFICATE_FIELD: ID, "client_auth": ["private_key_jwt"]}),
            json!({CERTIFICATE_FIELD: ID, "client_auth": ["none"],
                "introspection_endpoint_auth_method": "self_signed_tls_client_auth"}),
        ] {
            assert_eq!(idle_with(config.clone()), None, "{config}");
        }
        for config in [
            json!({CERTIFICATE_FIELD: ID, "client_auth": ["client_secret_post"]}),
            json!({"tls_client_auth_cert_id": ID, "client_auth": ["none"]}),
        ] {
            let warning = idle_with(config.clone()).expect("a warning");
            assert!(warning.starts_with("tls_client_auth_cert_id: "), "{config}");
        }
        let alias = json!({"mtls_token_endpoint": "https://id.test/token"});
        let warning = idle_with(alias).expect("a warning");
        assert!(warning.starts_with("mtls_token_endpoint: "), "{warning}");
    }

    #[test]
    fn each_endpoint_takes_certificates_where_its_setting_says() {
        for (endpoint, name) in [
            (Endpoint::Token, "mtls_token_endpoint"),
            (Endpoint::Introspection, "mtls_introspection_endpoint"),
            (Endpoint::Revocation, "mtls_revocation_endpoint"),
        ] {
            for verify in [true, false] {
                let url = "https://tls.id.test/x";
                let config = json!({name: url, CERTIFICATE_FIELD: ID,
                    "tls_client_auth_ssl_verify": verify});
                let settings = MutualTls::new(&Fields::of(&config).expect("valid")).expect("valid");
                for (other, _) in ALIASES {
                    let found = settings.configured(other).map(Url::as_str);
                    assert_eq!(found, (other == endpoint).then_some(url), "{name}");
                }
                let options = settings.options(Options::default()).expect("a certificate");
                assert_eq!(options.verify, verify);
                assert_eq!(options.shows.map(|id| id.to_string()).as_deref(), Some(ID));
            }
        }
    }

    #[test]
    fn a_certificate_is_shown_over_tls_alone() {
        let config = json!({"mtls_introspection_endpoint": "http://id.test/introspect"});
        let error = MutualTls::new(&Fields::of(&config).expect("valid")).expect_err("refused");
        assert_eq!(error.field, "mtls_introspection_endpoint");
    }
}
