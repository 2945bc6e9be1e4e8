//! How the provider is reached, what is sent besides, and what is remembered of answers.

use serde_json::json;

use crate::config::fields::sessions::RedisFields;
use crate::config::fields::types::{Bounded, ClaimHeader, RecordId, Seconds, Texts};
use crate::provider::extras::{Added, ExtraFields};
use doorward_plugin_api::config::{AnyText, FieldWord};
use doorward_plugin_api::{config, words};

words! {
    /// A grant whose answers have headers for the client.
    pub(crate) enum Grant {
        /// A name and a password.
        Password = "password",
        /// A client's own.
        ClientCredentials = "client_credentials",
        /// A login.
        AuthorizationCode = "authorization_code",
        /// A refresh.
        RefreshToken = "refresh_token",
    }
}

words! {
    /// What a userinfo request asks for.
    pub(crate) enum UserinfoAccept {
        /// An object.
        Json = "application/json",
        /// A signed answer.
        Jwt = "application/jwt",
    }
}

words! {
    /// How nodes share what is remembered.
    pub(crate) enum ClusterCache {
        /// Not at all.
        Off = "off",
        /// In Redis.
        Redis = "redis",
    }
}

/// What would be shared if nothing is configured.
pub(crate) const CLUSTER_CACHE_ITEMS: [&str; 1] = ["introspection"];

config! {
    /// What is remembered.
    pub(crate) struct CacheFields {
        /// Whether answers of the token endpoint are remembered.
        #[field(default(true))]
        pub(crate) cache_tokens: bool,
        /// Whether exchanged tokens are remembered.
        #[field(default(true))]
        pub(crate) cache_token_exchange: bool,
        /// Whether userinfo is remembered.
        #[field(default(true))]
        pub(crate) cache_user_info: bool,
        /// Whether introspection is remembered.
        #[field(default(true))]
        pub(crate) cache_introspection: bool,
        /// For how long answers are remembered that tell no end, in seconds.
        #[field(default(3600))]
        pub(crate) cache_ttl: Seconds,
    }
}

config! {
    /// Connections to the provider.
    pub(crate) struct ConnectionFields {
        /// The least age of metadata and keys that are fetched again, in seconds.
        #[field(default(300))]
        pub(crate) rediscovery_lifetime: Seconds,
        /// How long to wait for the provider, in milliseconds.
        #[field(default(10_000))]
        pub(crate) timeout: Bounded<1, 2_147_483_646>,
        /// Whether connections stay open for the next request.
        #[field(default(true))]
        pub(crate) keepalive: bool,
        /// The version of HTTP: 1.1, or 2 where the provider offers it.
        #[field(default(json!(1.1)))]
        pub(crate) http_version: f64,
    }
}

config! {
    /// Fixed and copied arguments of requests to the provider.
    pub(crate) struct ArgumentFields {
        /// The names of fixed parameters of logins.
        pub(crate) authorization_query_args_names: Texts,
        /// Their values.
        pub(crate) authorization_query_args_values: Texts,
        /// The parameters of requests that their logins repeat.
        pub(crate) authorization_query_args_client: Texts,
        /// The names of fixed parameters of token requests.
        pub(crate) token_post_args_names: Texts,
        /// Their values.
        pub(crate) token_post_args_values: Texts,
        /// The parameters of requests that token requests repeat.
        pub(crate) token_post_args_client: Texts,
        /// The names of fixed headers of token requests.
        pub(crate) token_headers_names: Texts,
        /// Their values.
        pub(crate) token_headers_values: Texts,
        /// The headers of requests that token requests repeat.
        pub(crate) token_headers_client: Texts,
        /// The names of fixed headers of introspection requests.
        pub(crate) introspection_headers_names: Texts,
        /// Their values.
        pub(crate) introspection_headers_values: Texts,
        /// The headers of requests that introspection requests repeat.
        pub(crate) introspection_headers_client: Texts,
        /// The names of fixed parameters of introspection requests.
        pub(crate) introspection_post_args_names: Texts,
        /// Their values.
        pub(crate) introspection_post_args_values: Texts,
        /// The parameters of requests that introspection requests repeat.
        pub(crate) introspection_post_args_client: Texts,
        /// The headers of requests that introspection requests repeat as parameters.
        pub(crate) introspection_post_args_client_headers: Texts,
        /// The names of fixed headers of userinfo requests.
        pub(crate) userinfo_headers_names: Texts,
        /// Their values.
        pub(crate) userinfo_headers_values: Texts,
        /// The headers of requests that userinfo requests repeat.
        pub(crate) userinfo_headers_client: Texts,
        /// The names of fixed parameters of userinfo requests.
        pub(crate) userinfo_query_args_names: Texts,
        /// Their values.
        pub(crate) userinfo_query_args_values: Texts,
        /// The parameters of requests that userinfo requests repeat.
        pub(crate) userinfo_query_args_client: Texts,
        /// The names of fixed headers of requests for metadata.
        pub(crate) discovery_headers_names: Texts,
        /// Their values.
        pub(crate) discovery_headers_values: Texts,
        /// The headers of the token endpoint's answers that clients get.
        pub(crate) token_headers_replay: Texts,
        /// What the names of these headers begin with for clients.
        pub(crate) token_headers_prefix: Option<AnyText>,
        /// The grants whose answers have headers for clients. None: all.
        pub(crate) token_headers_grants: Vec<Grant>,
        /// The type of answer that userinfo asks for.
        #[field(default(UserinfoAccept::Json.word()))]
        pub(crate) userinfo_accept: Option<UserinfoAccept>,
    }
}

impl ArgumentFields {
    /// Of logins.
    pub(crate) fn of_logins(&self) -> ExtraFields<'_> {
        ExtraFields {
            parameters: Added {
                kind: "authorization_query_args",
                names: &self.authorization_query_args_names,
                values: &self.authorization_query_args_values,
                copied: &self.authorization_query_args_client,
            },
            from_headers: &[],
            headers: Added::default(),
        }
    }

    /// Of token requests.
    pub(crate) fn of_tokens(&self) -> ExtraFields<'_> {
        ExtraFields {
            parameters: Added {
                kind: "token_post_args",
                names: &self.token_post_args_names,
                values: &self.token_post_args_values,
                copied: &self.token_post_args_client,
            },
            from_headers: &[],
            headers: Added {
                kind: "token_headers",
                names: &self.token_headers_names,
                values: &self.token_headers_values,
                copied: &self.token_headers_client,
            },
        }
    }

    /// Of introspection requests.
    pub(crate) fn of_introspection(&self) -> ExtraFields<'_> {
        ExtraFields {
            parameters: Added {
                kind: "introspection_post_args",
                names: &self.introspection_post_args_names,
                values: &self.introspection_post_args_values,
                copied: &self.introspection_post_args_client,
            },
            from_headers: &self.introspection_post_args_client_headers,
            headers: Added {
                kind: "introspection_headers",
                names: &self.introspection_headers_names,
                values: &self.introspection_headers_values,
                copied: &self.introspection_headers_client,
            },
        }
    }

    /// Of userinfo requests.
    pub(crate) fn of_userinfo(&self) -> ExtraFields<'_> {
        ExtraFields {
            parameters: Added {
                kind: "userinfo_query_args",
                names: &self.userinfo_query_args_names,
                values: &self.userinfo_query_args_values,
                copied: &self.userinfo_query_args_client,
            },
            from_headers: &[],
            headers: Added {
                kind: "userinfo_headers",
                names: &self.userinfo_headers_names,
                values: &self.userinfo_headers_values,
                copied: &self.userinfo_headers_client,
            },
        }
    }
}

config! {
    /// Headers that tell what is known.
    pub(crate) struct HeaderFields {
        /// The header in which the upstream gets the key of the access token.
        pub(crate) upstream_access_token_jwk_header: Option<AnyText>,
        /// The header in which the upstream gets the ID token.
        pub(crate) upstream_id_token_header: Option<AnyText>,
        /// The header in which the upstream gets the key of the ID token.
        pub(crate) upstream_id_token_jwk_header: Option<AnyText>,
        /// The header in which the upstream gets the refresh token.
        pub(crate) upstream_refresh_token_header: Option<AnyText>,
        /// The header in which the upstream gets userinfo.
        pub(crate) upstream_user_info_header: Option<AnyText>,
        /// The header in which the upstream gets userinfo as it was signed.
        pub(crate) upstream_user_info_jwt_header: Option<AnyText>,
        /// The header in which the upstream gets what introspection says.
        pub(crate) upstream_introspection_header: Option<AnyText>,
        /// The header in which the upstream gets introspection as it was signed.
        pub(crate) upstream_introspection_jwt_header: Option<AnyText>,
        /// The header in which the upstream gets the identifier of the session.
        pub(crate) upstream_session_id_header: Option<AnyText>,
        /// The header in which the client gets the access token.
        pub(crate) downstream_access_token_header: Option<AnyText>,
        /// The header in which the client gets the key of the access token.
        pub(crate) downstream_access_token_jwk_header: Option<AnyText>,
        /// The header in which the client gets the ID token.
        pub(crate) downstream_id_token_header: Option<AnyText>,
        /// The header in which the client gets the key of the ID token.
        pub(crate) downstream_id_token_jwk_header: Option<AnyText>,
        /// The header in which the client gets the refresh token.
        pub(crate) downstream_refresh_token_header: Option<AnyText>,
        /// The header in which the client gets userinfo.
        pub(crate) downstream_user_info_header: Option<AnyText>,
        /// The header in which the client gets userinfo as it was signed.
        pub(crate) downstream_user_info_jwt_header: Option<AnyText>,
        /// The header in which the client gets what introspection says.
        pub(crate) downstream_introspection_header: Option<AnyText>,
        /// The header in which the client gets introspection as it was signed.
        pub(crate) downstream_introspection_jwt_header: Option<AnyText>,
        /// The header in which the client gets the identifier of the session.
        pub(crate) downstream_session_id_header: Option<AnyText>,
        /// The claims that the upstream gets as headers.
        pub(crate) upstream_headers_claims: Texts,
        /// The names of these headers.
        pub(crate) upstream_headers_names: Texts,
        /// The claims that the client gets as headers.
        pub(crate) downstream_headers_claims: Texts,
        /// The names of these headers.
        pub(crate) downstream_headers_names: Texts,
        /// Headers of the upstream, with the paths to their claims.
        pub(crate) upstream_headers: Vec<ClaimHeader>,
        /// Headers of the client, with the paths to their claims.
        pub(crate) downstream_headers: Vec<ClaimHeader>,
    }
}

config! {
    /// For how long and where answers are remembered.
    pub(crate) struct LifetimeFields {
        /// The most seconds that an answer is remembered. 0: until its end.
        pub(crate) cache_ttl_max: Option<Seconds>,
        /// The least seconds that an answer is remembered that tells no end.
        pub(crate) cache_ttl_min: Option<Seconds>,
        /// For how long a no of the provider is remembered, in seconds. Null: 5.
        pub(crate) cache_ttl_neg: Option<Seconds>,
        /// Without effect yet.
        pub(crate) cache_ttl_resurrect: Option<Seconds>,
        /// Without effect: what is remembered is of this plugin alone.
        pub(crate) cache_tokens_salt: Option<AnyText>,
        /// Without effect: scopes count where they differ from request to request.
        #[field(default(false))]
        pub(crate) token_cache_key_include_scope: bool,
        /// Without effect yet.
        #[field(default(ClusterCache::Off.word()))]
        pub(crate) cluster_cache_strategy: ClusterCache,
        /// Without effect yet.
        pub(crate) cluster_cache_redis: Option<RedisFields>,
        /// Without effect yet.
        #[field(default(CLUSTER_CACHE_ITEMS))]
        pub(crate) cluster_cache_items: Texts,
    }
}

config! {
    /// The way to the provider.
    pub(crate) struct ProxyFields {
        /// The proxy for addresses on `http`.
        pub(crate) http_proxy: Option<AnyText>,
        /// What that proxy is told as `Proxy-Authorization`.
        pub(crate) http_proxy_authorization: Option<AnyText>,
        /// The proxy for addresses on `https`.
        pub(crate) https_proxy: Option<AnyText>,
        /// What that proxy is told as `Proxy-Authorization`.
        pub(crate) https_proxy_authorization: Option<AnyText>,
        /// Hosts, domains and networks that are reached without a proxy.
        pub(crate) no_proxy: Option<AnyText>,
        /// The authorities that alone vouch for the provider. None: those of the gateway.
        pub(crate) ca_certificates: Vec<RecordId>,
    }
}
