//! The `config` of the filter and of its resolver.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use url::Url;

use super::answers::Answers;
use super::client::{Client, DirectCredentials};
use super::remote::{Lifetime, Protocol, Remote};
use super::secrets::Password;
use super::{Resolver, Scope, jwt};
use crate::chain::ObjectLookup;
use crate::chain::object::{DeferredValue, Field, FieldType, Object, Reference, object};
use crate::chain::settings::{Declared, Place, Reading, Settings};
use doorward_expr as expr;
use doorward_expr::duration::Length;
use doorward_plugin_api::{ConfigError, Parts};

const RESOLVERS: &str = "StatelessAccessTokenResolver, TokenIntrospectionAccessTokenResolver, \
    OpenAmAccessTokenResolver, CacheAccessTokenResolver or \
    ConfirmationKeyVerifierAccessTokenResolver";
const MINUTE: Duration = Duration::from_secs(60);
const NO_NOTIFICATIONS: &str = "nobody tells the gateway of revoked tokens; keep the cache short";

object! {
    /// The filter's fields.
    struct Fields<'a> {
        realm: String = "OpenIG".to_owned(),
        require_https as "requireHttps" | "enforceHttps": bool = true,
        scopes as "scopes" | "requiredScopes": ScopeList,
        cache: Option<Settings<'a>>,
        resolver as "accessTokenResolver": Reference,
        // The older form, with the endpoint in the filter itself.
        endpoint as "tokenInfoEndpoint": DeferredValue<Option<Url>>,
        expiration as "cacheExpiration": DeferredValue<Option<Length>>,
        handler as "providerHandler" | "httpHandler": Reference,
    }
    idle {
        "executor",
    }
}

object! {
    /// How answers are remembered: a `CacheAccessTokenResolver`, or the filter's `cache`.
    struct Cache<'a> {
        unknown as "defaultTimeout": Length = Length::Finite(MINUTE),
        most as "maxTimeout" | "maximumTimeToCache": Option<Length>,
        enabled: Option<bool>,
        delegate as "delegate" | "accessTokenResolver": Reference,
    }
    idle {
        "executor",
        "amService": NO_NOTIFICATIONS,
        "onNotificationDisconnection": NO_NOTIFICATIONS,
    }
}

object! {
    /// A `ConfirmationKeyVerifierAccessTokenResolver`.
    struct Confirmation<'a> {
        delegate as "delegate" | "accessTokenResolver": Reference,
    }
    idle {}
}

object! {
    /// A resolver with an endpoint, or the access manager that it belongs to.
    struct Endpoint<'a> {
        handler as "providerHandler": Reference,
        credentials as ..: DirectCredentials<'a>,
        url as "endpoint" | "tokenInfoEndpoint": Option<Url>,
        manager as "amService": Reference,
    }
    idle {}
}

object! {
    /// An `AmService`.
    struct Manager<'a> {
        url: Url,
        realm: Option<String>,
        agent: DeferredValue<Option<Settings<'a>>>,
        secrets_provider as "secretsProvider": Reference,
    }
}

object! {
    /// The account by which the gateway is known to an access manager.
    struct Agent<'a> {
        username: String,
        password as ..: Password<'a>,
    }
}

/// What the filter works with.
pub(super) struct Config {
    pub(super) answers: Answers,
    pub(super) require_https: bool,
    /// All of them are needed.
    pub(super) scopes: Vec<Scope>,
    pub(super) resolver: Resolver,
    /// Whether a token must be bound to the client's certificate.
    pub(super) bound: bool,
    pub(super) warnings: Vec<String>,
}

impl Config {
    pub(super) fn read(
        config: &Map<String, Value>,
        parts: &Parts,
        named: ObjectLookup<'_>,
    ) -> Result<Self, ConfigError> {
        let reading = Reading::new(parts, named);
        let settings = reading.config(config);
        let fields = Fields::read(&settings)?;
        let message = "has a character that a header field can't have";
        let answers = Answers::new(&fields.realm.value);
        let answers = answers.ok_or_else(|| fields.realm.wrong(message))?;
        let scopes = scopes(&fields.scopes)?;
        let mut build = Build {
            parts,
            lifetime: None,
            bound: false,
        };
        let resolver = build.of_filter(&fields)?;
        let bound = build.bound;
        let require_https = fields.require_https.value;
        drop((settings, fields));
        Ok(Self {
            answers,
            require_https,
            scopes,
            resolver,
            bound,
            warnings: reading.into_warnings(),
        })
    }
}

/// Scopes as they are listed.
struct ScopeList(Vec<String>);

impl<'a> FieldType<'a> for ScopeList {
    fn read(place: &Place<'a>) -> Result<Self, ConfigError> {
        match place.value() {
            None => Err(place.wrong("is required: a list of scopes, which may be empty")),
            Some(Value::Object(_)) => Err(place
                .wrong("must be a list: scopes that depend on the request are expressions in it")),
            Some(_) => FieldType::read(place).map(Self),
        }
    }
}

fn scopes(field: &Field<'_, ScopeList>) -> Result<Vec<Scope>, ConfigError> {
    let mut scopes = Vec::new();
    for text in &field.value.0 {
        let expression = field.compile(text)?;
        match expression.constant() {
            None => scopes.push(Scope::Evaluated(expression)),
            Some(expr::Value::Text(words)) => {
                let words = words.split_ascii_whitespace();
                scopes.extend(words.map(|word| Scope::Fixed(word.to_owned())));
            }
            Some(_) => return Err(field.wrong("has an expression that is never a text")),
        }
    }
    Ok(scopes)
}

/// What is gathered on the way from the filter to the innermost resolver.
struct Build<'p> {
    parts: &'p Parts,
    /// For how long answers are believed; `None`: not at all.
    lifetime: Option<Lifetime>,
    bound: bool,
}

impl Build<'_> {
    fn of_filter(&mut self, fields: &Fields<'_>) -> Result<Resolver, ConfigError> {
        let expiration = &fields.expiration;
        let cache = &fields.cache.value;
        if let Some(cache) = cache {
            self.cached(&Cache::read(cache)?, false)?;
        }
        if let Some(resolver) = fields.resolver.declared()? {
            if cache.is_none() && expiration.is_given() {
                self.lifetime = believed_for(expiration.read()?);
            }
            return self.resolver(&resolver);
        }
        let url = fields.endpoint.read()?;
        let url = url.ok_or_else(|| fields.resolver.wrong("is required"))?;
        if cache.is_none() {
            self.lifetime = believed_for(expiration.read()?);
        }
        let client = Client::read(&fields.handler)?;
        Ok(self.remote(Protocol::TokenInfo, url, client))
    }

    fn resolver(&mut self, declared: &Declared<'_>) -> Result<Resolver, ConfigError> {
        let settings = &declared.settings;
        match declared.kind.as_str() {
            "StatelessAccessTokenResolver" => jwt::read(settings, self.parts),
            "TokenIntrospectionAccessTokenResolver" => {
                self.endpoint(&Endpoint::read(settings)?, Protocol::Introspection)
            }
            "OpenAmAccessTokenResolver" => {
                self.endpoint(&Endpoint::read(settings)?, Protocol::TokenInfo)
            }
            "CacheAccessTokenResolver" => {
                let cache = Cache::read(settings)?;
                self.cached(&cache, true)?;
                self.delegate(&cache.delegate)
            }
            "ConfirmationKeyVerifierAccessTokenResolver" => {
                self.bound = true;
                self.delegate(&Confirmation::read(settings)?.delegate)
            }
            _ => Err(declared.unfit(RESOLVERS)),
        }
    }

    fn delegate(&mut self, delegate: &Field<'_, Reference>) -> Result<Resolver, ConfigError> {
        match delegate.declared()? {
            Some(resolver) => self.resolver(&resolver),
            None => Err(delegate.wrong("is required")),
        }
    }

    /// Reads how answers are remembered.
    fn cached(&mut self, cache: &Cache<'_>, default: bool) -> Result<(), ConfigError> {
        let most = match cache.most.value {
            None => None,
            Some(Length::Finite(length)) if !length.is_zero() => Some(millis(length)),
            Some(_) => return Err(cache.most.wrong("must be neither zero nor unlimited")),
        };
        let enabled = cache.enabled.value.unwrap_or(default);
        self.lifetime = enabled.then_some(Lifetime {
            unknown: match cache.unknown.value {
                Length::Finite(length) => Some(millis(length)),
                Length::Unlimited => None,
            },
            most,
        });
        Ok(())
    }

    /// A resolver with an endpoint, or the access manager that it belongs to.
    fn endpoint(
        &mut self,
        endpoint: &Endpoint<'_>,
        protocol: Protocol,
    ) -> Result<Resolver, ConfigError> {
        let mut client = Client::read(&endpoint.handler)?;
        client.direct(&endpoint.credentials)?;
        let url = match &endpoint.url.value {
            Some(url) => url.clone(),
            None => match endpoint.manager.declared()? {
                Some(manager) => manager_endpoint(&manager, protocol, &mut client)?,
                None => return Err(endpoint.url.wrong("is required")),
            },
        };
        let proven = !client.headers.is_empty() || !client.form.is_empty();
        if protocol == Protocol::Introspection && !proven {
            let message =
                "has no credentials: most endpoints ask who wants to know (RFC 7662 §2.1)";
            endpoint.handler.warn(message);
        }
        Ok(self.remote(protocol, url, client))
    }

    fn remote(&self, protocol: Protocol, url: Url, client: Client) -> Resolver {
        let remote = Remote::new(protocol, url, client, self.lifetime, self.parts);
        Resolver::Remote(Arc::new(remote))
    }
}

/// The older way to say how long answers are believed.
fn believed_for(expiration: Option<Length>) -> Option<Lifetime> {
    match expiration {
        Some(Length::Finite(length)) if length.is_zero() => None,
        Some(Length::Finite(length)) => Some(lifetime(Some(millis(length)))),
        Some(Length::Unlimited) => Some(lifetime(None)),
        None => Some(lifetime(Some(millis(MINUTE)))),
    }
}

fn lifetime(most: Option<i64>) -> Lifetime {
    Lifetime {
        unknown: most,
        most,
    }
}

fn millis(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}

/// The endpoint of an access manager's realm, with its agent's credentials
/// where there are no others.
fn manager_endpoint(
    manager: &Declared<'_>,
    protocol: Protocol,
    client: &mut Client,
) -> Result<Url, ConfigError> {
    if manager.kind != "AmService" {
        return Err(manager.unfit("AmService"));
    }
    let fields = Manager::read(&manager.settings)?;
    let mut url = fields.url.value;
    let realm = fields.realm.value.unwrap_or_default();
    let realms = realm.split('/').filter(|part| !part.is_empty());
    let mut path = format!("{}/oauth2", url.path().trim_end_matches('/'));
    for (index, part) in realms.enumerate() {
        path.push_str(if index == 0 {
            "/realms/root/realms/"
        } else {
            "/realms/"
        });
        path.push_str(part);
    }
    path.push_str(match protocol {
        Protocol::Introspection => "/introspect",
        Protocol::TokenInfo => "/tokeninfo",
    });
    url.set_path(&path);
    if protocol == Protocol::Introspection
        && client.headers.is_empty()
        && client.form.is_empty()
        && let Some(agent) = fields.agent.read()?
    {
        let agent = Agent::read(&agent)?;
        let secret = agent.password.required(&fields.secrets_provider)?;
        client.basic(&agent.username.value, &secret);
    }
    Ok(url)
}
