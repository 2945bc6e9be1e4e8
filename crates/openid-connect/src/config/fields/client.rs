//! Who the gateway is at the provider, where credentials are, and what proves possession.

use serde_json::json;

use crate::config::address::Address;
use crate::config::fields::types::{
    HttpUrl, Jwk, ProofAlg, RecordId, Seconds, Set, SigningAlg, Texts, WrittenUrl,
};
use doorward_plugin_api::config::{AnyText, FieldWord};
use doorward_plugin_api::{config, words};

words! {
    /// A place of a credential in a request.
    pub(crate) enum Place {
        /// A header.
        Header = "header",
        /// The query.
        Query = "query",
        /// A form or a JSON object.
        Body = "body",
    }
}

words! {
    /// A place of a bearer token in a request.
    pub(crate) enum BearerPlace {
        /// A header.
        Header = "header",
        /// The query.
        Query = "query",
        /// A form or a JSON object.
        Body = "body",
        /// A cookie.
        Cookie = "cookie",
    }
}

words! {
    /// How a client proves who it is, as fields and metadata call it.
    pub(crate) enum ClientAuthName {
        /// By its secret, in a header.
        ClientSecretBasic = "client_secret_basic",
        /// By its secret, in a form.
        ClientSecretPost = "client_secret_post",
        /// By an assertion made with its secret.
        ClientSecretJwt = "client_secret_jwt",
        /// By an assertion made with its key.
        PrivateKeyJwt = "private_key_jwt",
        /// By a certificate of an authority.
        TlsClientAuth = "tls_client_auth",
        /// By a certificate of its own.
        SelfSignedTlsClientAuth = "self_signed_tls_client_auth",
        /// It only says its name.
        None = "none",
    }
}

words! {
    /// For whom assertions of clients are.
    pub(crate) enum AssertionAudience {
        /// The issuer.
        Issuer = "issuer",
        /// The token endpoint.
        TokenEndpoint = "token_endpoint",
    }
}

words! {
    /// What an introspection request asks for.
    pub(crate) enum IntrospectionAccept {
        /// An object.
        Json = "application/json",
        /// A signed answer (RFC 9701).
        IntrospectionJwt = "application/token-introspection+jwt",
        /// A signed answer, as older providers call it.
        Jwt = "application/jwt",
    }
}

words! {
    /// Whether tokens have to prove possession.
    pub(crate) enum ProofRequirement {
        /// They prove nothing.
        Off = "off",
        /// Tokens that are bound do.
        Optional = "optional",
        /// Tokens that are not bound do not pass.
        Strict = "strict",
    }
}

words! {
    /// A profile that a configuration obeys.
    pub(crate) enum SecurityProfile {
        /// FAPI 2.0.
        Fapi2 = "fapi2",
    }
}

config! {
    /// The clients and their provider.
    pub(crate) struct ProviderFields {
        /// The identifiers of the gateway at the provider.
        pub(crate) client_id: Texts,
        /// Its secrets, one a client.
        #[field(referenceable)]
        pub(crate) client_secret: Texts,
        /// The provider, or the address of its metadata.
        #[field(required)]
        pub(crate) issuer: WrittenUrl,
        /// The scopes that are asked for.
        #[field(default(json!(["openid"])))]
        pub(crate) scopes: Texts,
        /// Whether the provider's certificate is checked.
        #[field(default(true))]
        pub(crate) ssl_verify: bool,
    }
}

config! {
    /// Where credentials are.
    pub(crate) struct PlaceFields {
        /// Where bearer tokens are looked for.
        #[field(default(json!(Place::WORDS)))]
        pub(crate) bearer_token_param_type: Set<BearerPlace>,
        /// Where identifiers and secrets of clients are looked for.
        #[field(default(json!(Place::WORDS)))]
        pub(crate) client_credentials_param_type: Set<Place>,
        /// Where ID tokens are looked for.
        #[field(default(json!(Place::WORDS)))]
        pub(crate) id_token_param_type: Set<Place>,
        /// Where names and passwords are looked for.
        #[field(default(json!(Place::WORDS)))]
        pub(crate) password_param_type: Set<Place>,
        /// The header and the parameter by which a request chooses a client.
        #[field(default("client_id"))]
        pub(crate) client_arg: AnyText,
    }
}

config! {
    /// What clients send and take besides.
    pub(crate) struct ClientFields {
        /// Whether nothing is discovered: the fields say all of the provider.
        #[field(default(false))]
        pub(crate) using_pseudo_issuer: bool,
        /// How clients prove who they are, one a client.
        pub(crate) client_auth: Vec<ClientAuthName>,
        /// The algorithms of their assertions, one a client.
        pub(crate) client_alg: Vec<SigningAlg>,
        /// Their private keys, one a client.
        pub(crate) client_jwk: Vec<Jwk>,
        /// Where the provider leads back to after a login, one a client. None: to the path
        /// of the request.
        pub(crate) redirect_uri: Vec<Address>,
        /// The audiences that are asked for, of which tokens must have one.
        pub(crate) audience: Texts,
        /// Without effect: a code is asked for.
        #[field(default(json!(["code"])))]
        pub(crate) response_type: Texts,
        /// Where refresh tokens are looked for.
        #[field(default(json!(Place::WORDS)))]
        pub(crate) refresh_token_param_type: Set<Place>,
        /// The cookie in which bearer tokens are.
        pub(crate) bearer_token_cookie_name: Option<AnyText>,
        /// A further header in which bearer tokens are.
        pub(crate) bearer_token_header_name: Option<AnyText>,
        /// Whether ID tokens pass as bearer tokens.
        #[field(default(false))]
        pub(crate) bearer_id_tokens: bool,
        /// The header or parameter with the ID token. Null: none is looked for.
        pub(crate) id_token_param_name: Option<AnyText>,
        /// The header or parameter with the refresh token. Null: none is looked for.
        pub(crate) refresh_token_param_name: Option<AnyText>,
        /// Whether access tokens of sessions are refreshed.
        #[field(default(true))]
        pub(crate) refresh_tokens: bool,
        /// Whether introspection must say that a token is active.
        #[field(default(true))]
        pub(crate) introspection_check_active: bool,
        /// The type of answer that introspection asks for.
        #[field(default(IntrospectionAccept::Json.word()))]
        pub(crate) introspection_accept: Option<IntrospectionAccept>,
        /// What introspection requests call the token.
        #[field(default("token"))]
        pub(crate) introspection_token_param_name: Option<AnyText>,
        /// What revocation requests call the token.
        #[field(default("token"))]
        pub(crate) revocation_token_param_name: AnyText,
        /// For whom assertions of clients are. Null: as the provider's metadata ask.
        pub(crate) client_assertion_audience: Option<AssertionAudience>,
    }
}

config! {
    /// Proofs of possession and what the provider may require of requests.
    pub(crate) struct ProofFields {
        /// Whether tokens must be bound to the certificate of the connection.
        #[field(default(ProofRequirement::Off.word()))]
        pub(crate) proof_of_possession_mtls: ProofRequirement,
        /// Refused: the gateway itself has to end TLS.
        pub(crate) proof_of_possession_mtls_from_header: Option<AnyText>,
        /// Whether tokens must be bound to a key that requests prove by DPoP.
        #[field(default(ProofRequirement::Off.word()))]
        pub(crate) proof_of_possession_dpop: ProofRequirement,
        /// Whether methods are refused beside proofs that prove nothing.
        #[field(default(true))]
        pub(crate) proof_of_possession_auth_methods_validation: bool,
        /// Whether DPoP proofs must have a nonce of the gateway.
        #[field(default(false))]
        pub(crate) dpop_use_nonce: bool,
        /// For how long a DPoP proof is good, in seconds.
        #[field(default(300))]
        pub(crate) dpop_proof_lifetime: Seconds,
        /// The algorithms of DPoP proofs. None: those of `security_profile`, or else those
        /// that the provider names.
        pub(crate) dpop_signing_algs: Set<ProofAlg>,
        /// The profile whose algorithms alone count.
        pub(crate) security_profile: Option<SecurityProfile>,
        /// The certificate that clients show to the provider.
        pub(crate) tls_client_auth_cert_id: Option<RecordId>,
        /// Whether the provider's certificate is checked where clients show one.
        #[field(default(true))]
        pub(crate) tls_client_auth_ssl_verify: bool,
        /// Whether logins use PKCE. Null: they do.
        pub(crate) require_proof_key_for_code_exchange: Option<bool>,
        /// Whether logins are pushed to the provider. Null: where its metadata require it.
        pub(crate) require_pushed_authorization_requests: Option<bool>,
        /// Whether logins are signed. Null: where the provider's metadata require it.
        pub(crate) require_signed_request_object: Option<bool>,
    }
}

config! {
    /// Where the provider is asked.
    pub(crate) struct EndpointFields {
        /// Where users sign in, in the place of what metadata name.
        pub(crate) authorization_endpoint: Option<HttpUrl>,
        /// Where tokens are asked for, in the place of what metadata name.
        pub(crate) token_endpoint: Option<HttpUrl>,
        /// Where tokens are asked about, in the place of what metadata name.
        pub(crate) introspection_endpoint: Option<HttpUrl>,
        /// Where tokens are revoked, in the place of what metadata name.
        pub(crate) revocation_endpoint: Option<HttpUrl>,
        /// Where users are asked about, in the place of what metadata name.
        pub(crate) userinfo_endpoint: Option<HttpUrl>,
        /// Where users sign out, in the place of what metadata name.
        pub(crate) end_session_endpoint: Option<HttpUrl>,
        /// Where tokens are exchanged. Null: at the token endpoint.
        pub(crate) token_exchange_endpoint: Option<HttpUrl>,
        /// Where logins are pushed to, in the place of what metadata name.
        pub(crate) pushed_authorization_request_endpoint: Option<HttpUrl>,
        /// Where the provider's keys are, in the place of what metadata name.
        pub(crate) jwks_endpoint: Option<HttpUrl>,
        /// Where clients with a certificate ask for tokens.
        pub(crate) mtls_token_endpoint: Option<HttpUrl>,
        /// Where clients with a certificate ask about tokens.
        pub(crate) mtls_introspection_endpoint: Option<HttpUrl>,
        /// Where clients with a certificate revoke tokens.
        pub(crate) mtls_revocation_endpoint: Option<HttpUrl>,
        /// How clients prove who they are at the token endpoint.
        pub(crate) token_endpoint_auth_method: Option<ClientAuthName>,
        /// How clients prove who they are at the introspection endpoint.
        pub(crate) introspection_endpoint_auth_method: Option<ClientAuthName>,
        /// How clients prove who they are at the revocation endpoint.
        pub(crate) revocation_endpoint_auth_method: Option<ClientAuthName>,
        /// How clients prove who they are where logins are pushed to.
        pub(crate) pushed_authorization_request_endpoint_auth_method: Option<ClientAuthName>,
        /// Where further keys are.
        pub(crate) extra_jwks_uris: Set<HttpUrl>,
        /// Which tokens are exchanged for others, and what is asked for.
        pub(crate) token_exchange: Option<TokenExchangeFields>,
    }
}

config! {
    /// Which tokens are exchanged for others, and what is asked for.
    pub(crate) struct TokenExchangeFields {
        /// Whose tokens are exchanged.
        pub(crate) subject_token_issuers: Vec<SubjectIssuer>,
        /// What is asked for.
        pub(crate) request: Option<ExchangeRequest>,
        /// What is remembered.
        pub(crate) cache: Option<ExchangeCache>,
    }
}

config! {
    /// An issuer of tokens that are exchanged.
    pub(crate) struct SubjectIssuer {
        /// Its identifier.
        #[field(required)]
        pub(crate) issuer: HttpUrl,
        /// Which tokens of the provider itself are exchanged.
        pub(crate) conditions: Option<ExchangeConditions>,
        /// Whether signatures of another issuer are verified here first.
        #[field(default(false))]
        pub(crate) verify_signature: bool,
        /// Where that issuer's keys are. Null: where it publishes them.
        pub(crate) jwks_uri: Option<HttpUrl>,
    }
}

config! {
    /// What must be true of a token to be exchanged.
    #[derive(Default)]
    pub(crate) struct ExchangeConditions {
        /// Scopes that it all has.
        pub(crate) has_scopes: Texts,
        /// Scopes of which it lacks one.
        pub(crate) missing_scopes: Texts,
        /// Audiences that it all has.
        pub(crate) has_audience: Texts,
        /// Audiences of which it lacks one.
        pub(crate) missing_audience: Texts,
    }
}

config! {
    /// What an exchange asks for.
    #[derive(Default)]
    pub(crate) struct ExchangeRequest {
        /// Scopes. None: those of the plugin.
        pub(crate) scopes: Texts,
        /// Whether no scope is asked for.
        #[field(default(false))]
        pub(crate) empty_scopes: bool,
        /// Audiences. None: those of the plugin.
        pub(crate) audience: Texts,
        /// Whether no audience is asked for.
        #[field(default(false))]
        pub(crate) empty_audience: bool,
    }
}

config! {
    /// What is remembered of exchanges.
    pub(crate) struct ExchangeCache {
        /// Whether tokens are remembered.
        #[field(default(true))]
        pub(crate) enabled: bool,
        /// For how long tokens are remembered whose end is not told, in seconds.
        pub(crate) ttl: Option<Seconds>,
    }
}
