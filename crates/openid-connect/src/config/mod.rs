//! The plugin's `config`: its schema, its fields, and the typed [`Config`] that
//! the filter works with.

pub(crate) mod address;
pub(crate) mod capabilities;
pub(crate) mod fields;
pub(crate) mod ineffective_options;
pub(crate) mod methods;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use crate::Providers;
use crate::authorize::consumer::Mapping;
use crate::authorize::rules::Rules;
use crate::config::capabilities::RequiredCapabilities;
use crate::config::fields::client::BearerPlace;
use crate::config::fields::connection::{CLUSTER_CACHE_ITEMS, ClusterCache};
use crate::config::fields::login::{Action, Mode};
use crate::config::fields::sessions::CookieSameSite;
use crate::config::fields::types::http_url;
use crate::config::fields::{Fields, pairs, wrong};
use crate::config::methods::{Method, Methods};
use crate::credentials::Search;
use crate::credentials::bearer::Places;
use crate::decide::cors::CorsOrigins;
use crate::decide::error_responses::ErrorResponses;
use crate::headers::replay::Replay;
use crate::headers::upstream_headers::Headers;
use crate::login::Logins;
use crate::login::authorization_request::RequestMode;
use crate::login::login_action::LoginAction;
use crate::logout::Logout;
use crate::logout::channels::Channels;
use crate::provider::ProviderConfig;
use crate::provider::client_auth::Clients;
use crate::provider::distributed_claims;
use crate::provider::endpoints::Endpoints;
use crate::provider::hmac_keys::{HmacKeys, SECRET_MIN};
use crate::provider::id_token::IdTokens;
use crate::provider::introspection::IntrospectionConfig;
use crate::provider::proof_of_possession::Proofs;
use crate::provider::signature_exemptions::SignatureExemptions;
use crate::provider::signing_algs::ResponseAlg;
use crate::provider::token_endpoint::GrantConfig;
use crate::provider::token_exchange;
use crate::provider::userinfo;
use crate::session::Sessions;
use doorward_net::http::outbound::{Options, Proxies, Version};
use doorward_plugin_api::config::AnyText;
use doorward_plugin_api::consumers::Anonymous;
use doorward_plugin_api::{ConfigError, Parts};

/// Settings that are taken and returned, but do nothing yet, and whether each is set.
fn without_effect(fields: &Fields) -> [(&'static str, bool); 9] {
    let items = &*fields.lifetimes.cluster_cache_items;
    let strategy = fields.lifetimes.cluster_cache_strategy;
    [
        (
            "cache_ttl_resurrect",
            fields.lifetimes.cache_ttl_resurrect.is_some(),
        ),
        (
            "cluster_cache_items",
            !items.is_empty() && *items != CLUSTER_CACHE_ITEMS,
        ),
        (
            "cluster_cache_redis",
            fields.lifetimes.cluster_cache_redis.is_some(),
        ),
        ("cluster_cache_strategy", strategy != ClusterCache::Off),
        (
            "session_compressor",
            fields.sessions.session_compressor.is_some(),
        ),
        (
            "session_cookie_maxsize",
            fields.sessions.session_cookie_maxsize.is_some(),
        ),
        (
            "session_cookie_renew",
            fields.sessions.session_cookie_renew.is_some(),
        ),
        (
            "session_store_metadata",
            fields.sessions.session_store_metadata,
        ),
        (
            "session_strategy",
            fields.sessions.session_strategy.is_some(),
        ),
    ]
}

/// What the filter works with.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) provider: ProviderConfig,
    pub(crate) places: Places,
    pub(crate) rules: Arc<Rules>,
    pub(crate) mapping: Option<Mapping>,
    pub(crate) anonymous: Option<Anonymous>,
    pub(crate) headers: Headers,
    /// Headers of answers that hold tokens, or tell of a session.
    pub(crate) confidential: Vec<HeaderName>,
    pub(crate) error_responses: ErrorResponses,
    /// The methods that are on and can work.
    pub(crate) methods: Methods,
    /// Whether bearer tokens are verified here.
    pub(crate) bearer: bool,
    /// Whether the provider is asked about every token.
    pub(crate) introspects_all: bool,
    /// Where other credentials than tokens may be.
    pub(crate) search: Search,
    pub(crate) clients: Clients,
    pub(crate) id_tokens: IdTokens,
    /// What users get who have signed in.
    pub(crate) login_action: LoginAction,
    pub(crate) verify_signature: bool,
    pub(crate) hmac_keys: HmacKeys,
    /// How the provider signs what it says to its client.
    pub(crate) response_alg: ResponseAlg,
    /// What tokens have to prove besides.
    pub(crate) proofs: Option<Proofs>,
    /// Grants whose tokens need no good signature.
    pub(crate) signature_exemptions: SignatureExemptions,
    /// Whether scripts get an answer that they can read.
    pub(crate) scripts: bool,
    /// Whose scripts these may be.
    pub(crate) origins: CorsOrigins,
    /// How logins are asked for.
    pub(crate) request_mode: RequestMode,
    /// A cookie, and the claim that must have its value.
    pub(crate) session_cookie: Option<(String, String)>,
    pub(crate) run_on_preflight: bool,
    /// Whether answers end with the session or the token of their request.
    pub(crate) end_with_session: bool,
    pub(crate) hide_credentials: bool,
    /// How long a token without a checked expiry is remembered.
    pub(crate) cache_ttl_ms: i64,
    pub(crate) warnings: Vec<String>,
}

/// What the parts of the filter that ask the provider work with.
pub(crate) struct Components {
    pub(crate) endpoints: Endpoints,
    /// What the provider should be able to do.
    pub(crate) capabilities: Option<RequiredCapabilities>,
    /// About users.
    pub(crate) user_info: Option<userinfo::UserInfoConfig>,
    /// About tokens.
    pub(crate) introspection: Option<IntrospectionConfig>,
    /// For claims that are told elsewhere.
    pub(crate) distributed: Option<distributed_claims::DistributedClaimsConfig>,
    /// For other tokens than those that are shown.
    pub(crate) token_exchange: Option<token_exchange::TokenExchangeConfig>,
    /// For tokens.
    pub(crate) grants: Option<GrantConfig>,
    pub(crate) sessions: Option<Sessions>,
    pub(crate) logins: Option<Logins>,
    pub(crate) logout: Option<Logout>,
    pub(crate) channels: Option<Channels>,
}

impl Config {
    /// Whether the signatures of ID tokens that come by a method are verified.
    pub(crate) fn verifies_id_tokens(&self, by: Method) -> bool {
        self.verify_signature && !self.signature_exemptions.has_id_tokens(by)
    }

    /// # Errors
    /// Names the field that can't be.
    pub(crate) fn new(fields: &Fields, parts: &Parts) -> Result<(Self, Components), ConfigError> {
        let issuer = &fields.provider.issuer.url;
        let rules = Arc::new(Rules::new(fields));
        let (methods, ineffective) = Methods::new(fields);
        let introspection = IntrospectionConfig::new(fields, methods, &rules)?;
        let introspects_all = introspection
            .as_ref()
            .is_some_and(IntrospectionConfig::introspects_all);
        let components = Components {
            introspection,
            ..Components::new(fields, methods, issuer, parts)?
        };
        let headers = Headers::new(fields)?;
        let session_cookie = fields.claims.jwt_session_cookie.as_deref();
        let session_claim = &fields.subject.jwt_session_claim;
        let config = Self {
            error_responses: ErrorResponses::new(fields, issuer, rules.scopes_wanted().as_deref())?,
            provider: provider(fields)?,
            places: Places::new(fields)?,
            mapping: Mapping::new(fields),
            anonymous: Anonymous::new(fields.claims.anonymous.as_deref()),
            confidential: confidential(fields, &headers)?,
            headers,
            methods,
            bearer: methods.has(Method::Bearer),
            introspects_all,
            search: Search::new(fields, methods)?,
            clients: Clients::new(fields)?,
            id_tokens: IdTokens::new(fields)?,
            login_action: LoginAction::new(fields)?,
            verify_signature: fields.checks.verify_signature,
            hmac_keys: HmacKeys::new(fields)?,
            response_alg: ResponseAlg::new(fields)?,
            session_cookie: session_cookie.map(|name| (name.to_owned(), session_claim.0.clone())),
            proofs: Proofs::new(fields, parts)?,
            signature_exemptions: SignatureExemptions::new(fields)?,
            scripts: fields.responses.scripts_unauthorized,
            origins: CorsOrigins::new(fields)?,
            request_mode: request_mode(fields, methods)?,
            run_on_preflight: fields.checks.run_on_preflight,
            end_with_session: fields.sessions.end_with_session,
            hide_credentials: fields.tokens.hide_credentials,
            cache_ttl_ms: cache_ttl(fields).saturating_mul(1000),
            warnings: warnings(fields, methods, ineffective)?,
            rules,
        };
        Ok((config, components))
    }
}

impl Components {
    fn new(
        fields: &Fields,
        methods: Methods,
        issuer: &url::Url,
        parts: &Parts,
    ) -> Result<Self, ConfigError> {
        let asks = [
            Method::Password,
            Method::ClientCredentials,
            Method::RefreshToken,
            Method::Session,
            Method::AuthorizationCode,
        ];
        let asks = asks.into_iter().any(|method| methods.has(method));
        let sessions = methods.has(Method::Session);
        let logins = methods.has(Method::AuthorizationCode);
        let mut provider_config = provider(fields)?;
        add_proxies_and_authorities(fields, &mut provider_config.options, parts)?;
        Ok(Self {
            distributed: distributed_claims::DistributedClaimsConfig::new(fields)?,
            token_exchange: token_exchange::TokenExchangeConfig::new(fields, &provider_config)?,
            endpoints: Endpoints::new(fields, issuer)?,
            capabilities: RequiredCapabilities::new(fields, logins),
            user_info: userinfo::UserInfoConfig::new(fields)?,
            introspection: None,
            grants: asks.then(|| GrantConfig::new(fields)).transpose()?,
            sessions: sessions.then(|| Sessions::new(fields, parts)).transpose()?,
            logins: logins
                .then(|| Logins::new(fields, Providers::of(parts).secret()))
                .transpose()?,
            logout: sessions.then(|| Logout::new(fields)).flatten(),
            channels: if sessions {
                Channels::new(fields)?
            } else {
                None
            },
        })
    }
}

fn provider(fields: &Fields) -> Result<ProviderConfig, ConfigError> {
    Ok(ProviderConfig {
        issuer: fields.provider.issuer.url.clone(),
        pseudo: fields.client.using_pseudo_issuer,
        jwks_endpoint: fields
            .endpoints
            .jwks_endpoint
            .as_ref()
            .map(|url| url.0.clone()),
        extra_jwks: fields
            .endpoints
            .extra_jwks_uris
            .iter()
            .map(|url| url.0.clone())
            .collect(),
        discovery_headers: pairs(
            (
                "discovery_headers_names",
                &fields.arguments.discovery_headers_names,
            ),
            (
                "discovery_headers_values",
                &fields.arguments.discovery_headers_values,
            ),
        )?,
        options: Options {
            verify: fields.provider.ssl_verify,
            version: version(fields.connection.http_version)?,
            keepalive: fields.connection.keepalive,
            timeout: Duration::from_millis(fields.connection.timeout.0.unsigned_abs()),
            ..Options::default()
        },
        rediscovery_lifetime: fields.connection.rediscovery_lifetime.0,
        issuers_allowed: fields.claims.issuers_allowed.to_vec(),
    })
}

/// Adds the proxies on the way to the provider, and who vouches for it.
pub(crate) fn add_proxies_and_authorities(
    fields: &Fields,
    options: &mut Options,
    parts: &Parts,
) -> Result<(), ConfigError> {
    let authorities = fields.proxies.ca_certificates.iter().map(|id| id.0);
    options.via = parts.outbound.via(proxies(fields)?);
    options.trusts = parts.outbound.trust(authorities.collect());
    Ok(())
}

/// How logins are asked for, by clients that can do that.
fn request_mode(fields: &Fields, methods: Methods) -> Result<RequestMode, ConfigError> {
    let signed = fields.proofs.require_signed_request_object == Some(true);
    if signed && methods.has(Method::AuthorizationCode) && !Clients::new(fields)?.all_sign() {
        let message = "require_signed_request_object needs a key or a secret of every client";
        return Err(wrong("client_jwk", message));
    }
    Ok(RequestMode::new(fields))
}

/// The proxies on the way to the provider.
fn proxies(fields: &Fields) -> Result<Proxies, ConfigError> {
    let of = &fields.proxies;
    let one = |name: &str, url: &Option<AnyText>, authorization: &Option<AnyText>| {
        let Some(url) = url else {
            return Ok(None);
        };
        let url = http_url(url).map_err(|_| wrong(name, "expected an http or https URL"))?;
        let authorization = authorization.as_deref().map(|text| {
            let mut value = HeaderValue::from_str(text).map_err(|_| {
                let field = format!("{name}_authorization");
                wrong(&field, "expected the value of a header")
            })?;
            value.set_sensitive(true);
            Ok::<_, ConfigError>(value)
        });
        Ok::<_, ConfigError>(Some((url, authorization.transpose()?)))
    };
    Ok(Proxies {
        http: one("http_proxy", &of.http_proxy, &of.http_proxy_authorization)?,
        https: one(
            "https_proxy",
            &of.https_proxy,
            &of.https_proxy_authorization,
        )?,
        except: of.no_proxy.as_deref().map(str::to_owned),
    })
}

fn version(number: f64) -> Result<Version, ConfigError> {
    let is = |version: f64| (number - version).abs() < 0.001;
    if is(1.0) || is(1.1) {
        Ok(Version::Http1)
    } else if is(2.0) {
        Ok(Version::Http2)
    } else {
        Err(wrong("http_version", "expected 1.0, 1.1 or 2"))
    }
}

fn confidential(fields: &Fields, headers: &Headers) -> Result<Vec<HeaderName>, ConfigError> {
    let replay = Replay::new(fields)?;
    let mut names = crate::session::answered(fields)?;
    names.extend(
        headers
            .token_set
            .downstream()
            .chain(replay.targets())
            .cloned(),
    );
    Ok(names)
}

fn cache_ttl(fields: &Fields) -> i64 {
    let ttl = fields.cache.cache_ttl.0;
    let most = fields.lifetimes.cache_ttl_max.map(|most| most.0);
    most.filter(|most| *most > 0)
        .map_or(ttl, |most| ttl.min(most))
}

fn warnings(
    fields: &Fields,
    methods: Methods,
    mut warnings: Vec<String>,
) -> Result<Vec<String>, ConfigError> {
    warnings.extend(crate::config::ineffective_options::warnings(
        fields, methods,
    ));
    let mut warn = |warning: String| warnings.push(warning);
    let ineffective = without_effect(fields).into_iter();
    let ineffective: Vec<&str> = ineffective
        .filter_map(|(name, is_set)| is_set.then_some(name))
        .collect();
    if !ineffective.is_empty() {
        warn(format!(
            "settings without effect yet: {}",
            ineffective.join(", ")
        ));
    }
    if !fields.claims.consumer_groups_claim.is_empty() {
        warn(
            "consumer_groups_claim: consumers have the groups of their records, and tokens name none"
                .to_owned(),
        );
    }
    if fields.tokens.hide_credentials
        && fields
            .places
            .bearer_token_param_type
            .contains(&BearerPlace::Body)
    {
        warn("hide_credentials: a token in a JSON body is not taken out".into());
    }
    for (name, is_on, risk) in [
        (
            "verify_signature",
            fields.checks.verify_signature,
            "tokens that anyone wrote pass",
        ),
        (
            "verify_claims",
            fields.checks.verify_claims,
            "expired tokens and those of other issuers pass",
        ),
        (
            "ssl_verify",
            fields.provider.ssl_verify,
            "keys may come from an impostor of the provider",
        ),
    ] {
        if !is_on {
            warn(format!("{name} is false: {risk}"));
        }
    }
    if let Some(warning) = crate::provider::mutual_tls::ineffective(fields) {
        warn(warning);
    }
    if methods.has(Method::AuthorizationCode) {
        warn_of_logins(fields, &mut warn);
    }
    if methods.has(Method::Session) {
        let warning = crate::session::storage::warning(fields);
        warning.into_iter().for_each(&mut warn);
    }
    if methods.has(Method::AuthorizationCode) || methods.has(Method::Session) {
        warn_of_secret(fields, &mut warn);
    }
    if HmacKeys::new(fields)?.are_weak() {
        warn("client_secret is shorter than 32 bytes: HS signatures can be forged".into());
    }
    let has_keys =
        fields.endpoints.jwks_endpoint.is_some() || !fields.endpoints.extra_jwks_uris.is_empty();
    if fields.client.using_pseudo_issuer && !has_keys {
        warn("using_pseudo_issuer without jwks_endpoint: there are no keys".into());
    }
    Ok(warnings)
}

/// Whoever guesses one of the secrets makes sessions for himself.
fn warn_of_secret(fields: &Fields, warn: &mut impl FnMut(String)) {
    let secrets = fields
        .sessions
        .session_secret
        .as_deref()
        .unwrap_or_default();
    let mut secrets = secrets.lines().map(str::trim);
    if secrets.any(|secret| (1..SECRET_MIN).contains(&secret.len())) {
        warn(
            "session_secret is shorter than 32 bytes: sessions can be forged if it is guessed"
                .into(),
        );
    }
}

fn warn_of_logins(fields: &Fields, warn: &mut impl FnMut(String)) {
    let is_posted = matches!(
        fields.login.response_mode,
        Some(Mode::FormPost | Mode::FormPostJwt)
    );
    let same_site = [
        fields.sessions.authorization_cookie_same_site,
        fields.cookies.authorization_cookie_samesite,
    ];
    if is_posted && !same_site.contains(&Some(CookieSameSite::None)) {
        warn(
            "response_mode: form_post over TLS needs authorization_cookie_samesite: None, \
             or browsers keep the cookie back"
                .into(),
        );
    }
    let begins = fields.login.auth_methods.contains(&Method::Session)
        && !fields
            .sessions
            .disable_session
            .contains(&Method::AuthorizationCode);
    let leads_back =
        fields.login.login_action == Action::Upstream && !fields.client.redirect_uri.is_empty();
    if leads_back && !begins {
        warn(
            "auth_methods: authorization_code with redirect_uri and without sessions leads from \
             each login to the next one"
                .into(),
        );
    }
    let types = &*fields.client.response_type;
    if !types.is_empty() && *types != ["code"] {
        warn("response_type: only code is supported, and used".into());
    }
}
