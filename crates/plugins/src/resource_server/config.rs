//! The `config` of the filter and of its resolver.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use url::Url;

use super::answers::Answers;
use super::client::Client;
use super::remote::{Lifetime, Protocol, Remote};
use super::{Resolver, Scope, jwt, secrets};
use crate::chain::ObjectLookup;
use crate::chain::settings::{Declared, Reading, Settings};
use doorward_expr as expr;
use doorward_expr::duration::Length;
use doorward_plugin_api::{ConfigError, Parts};

const RESOLVERS: &str = "StatelessAccessTokenResolver, TokenIntrospectionAccessTokenResolver, \
    OpenAmAccessTokenResolver, CacheAccessTokenResolver or \
    ConfirmationKeyVerifierAccessTokenResolver";
const MINUTE: Duration = Duration::from_secs(60);
const NO_NOTIFICATIONS: &str = "nobody tells the gateway of revoked tokens; keep the cache short";

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
        settings.known(&[
            "accessTokenResolver",
            "tokenInfoEndpoint",
            "providerHandler",
            "httpHandler",
            "cache",
            "cacheExpiration",
            "executor",
            "requireHttps",
            "enforceHttps",
            "realm",
            "scopes",
            "requiredScopes",
        ]);
        let realm = settings.text("realm")?.unwrap_or_else(|| "OpenIG".into());
        let answers = Answers::new(&realm);
        let message = "has a character that a header field can't have";
        let answers = answers.ok_or_else(|| settings.wrong("realm", message))?;
        let https = settings.one_of(&["requireHttps", "enforceHttps"]);
        let require_https = settings.flag(https.unwrap_or("requireHttps"), true)?;
        let scopes = scopes(&settings)?;
        let mut build = Build {
            parts,
            lifetime: None,
            bound: false,
        };
        let resolver = build.of_filter(&settings)?;
        let bound = build.bound;
        drop(settings);
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

fn scopes(settings: &Settings<'_>) -> Result<Vec<Scope>, ConfigError> {
    let Some(name) = settings.one_of(&["scopes", "requiredScopes"]) else {
        let message = "is required: a list of scopes, which may be empty";
        return Err(settings.wrong("scopes", message));
    };
    if let Some(Value::Object(_)) = settings.value(name) {
        let message = "must be a list: scopes that depend on the request are expressions in it";
        return Err(settings.wrong(name, message));
    }
    let mut scopes = Vec::new();
    for text in settings.list(name)? {
        let expression = settings.compile(name, text)?;
        match expression.constant() {
            None => scopes.push(Scope::Evaluated(expression)),
            Some(expr::Value::Text(words)) => {
                let words = words.split_ascii_whitespace();
                scopes.extend(words.map(|word| Scope::Fixed(word.to_owned())));
            }
            Some(_) => return Err(settings.wrong(name, "has an expression that is never a text")),
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
    fn of_filter(&mut self, settings: &Settings<'_>) -> Result<Resolver, ConfigError> {
        let cache = settings.object("cache")?;
        if let Some(cache) = &cache {
            self.cached(cache, false)?;
        }
        if let Some(resolver) = settings.declared("accessTokenResolver")? {
            if cache.is_none() && settings.has("cacheExpiration") {
                self.lifetime = expiration(settings)?;
            }
            return self.resolver(&resolver);
        }
        // The older form, with the endpoint in the filter itself.
        let url = settings.url("tokenInfoEndpoint")?;
        let url = url.ok_or_else(|| settings.wrong("accessTokenResolver", "is required"))?;
        if cache.is_none() {
            self.lifetime = expiration(settings)?;
        }
        let handler = settings.one_of(&["providerHandler", "httpHandler"]);
        let client = Client::read(settings, handler.unwrap_or("providerHandler"))?;
        Ok(self.remote(Protocol::TokenInfo, url, client))
    }

    fn resolver(&mut self, declared: &Declared<'_>) -> Result<Resolver, ConfigError> {
        let settings = &declared.settings;
        match declared.kind.as_str() {
            "StatelessAccessTokenResolver" => jwt::read(settings, self.parts),
            "TokenIntrospectionAccessTokenResolver" => {
                self.endpoint(settings, Protocol::Introspection)
            }
            "OpenAmAccessTokenResolver" => self.endpoint(settings, Protocol::TokenInfo),
            "CacheAccessTokenResolver" => {
                self.cached(settings, true)?;
                self.delegate(settings)
            }
            "ConfirmationKeyVerifierAccessTokenResolver" => {
                settings.known(&["delegate"]);
                self.bound = true;
                self.delegate(settings)
            }
            _ => Err(declared.unfit(RESOLVERS)),
        }
    }

    fn delegate(&mut self, settings: &Settings<'_>) -> Result<Resolver, ConfigError> {
        let name = settings.one_of(&["delegate", "accessTokenResolver"]);
        match settings.declared(name.unwrap_or("delegate"))? {
            Some(delegate) => self.resolver(&delegate),
            None => Err(settings.wrong("delegate", "is required")),
        }
    }

    /// Reads how answers are remembered.
    fn cached(&mut self, settings: &Settings<'_>, default: bool) -> Result<(), ConfigError> {
        settings.known(&[
            "enabled",
            "defaultTimeout",
            "maxTimeout",
            "maximumTimeToCache",
            "delegate",
            "accessTokenResolver",
            "executor",
            "amService",
            "onNotificationDisconnection",
        ]);
        settings.idle(
            &["amService", "onNotificationDisconnection"],
            NO_NOTIFICATIONS,
        );
        let unknown = settings.length("defaultTimeout")?;
        let name = settings.one_of(&["maxTimeout", "maximumTimeToCache"]);
        let name = name.unwrap_or("maxTimeout");
        let most = match settings.length(name)? {
            None => None,
            Some(Length::Finite(length)) if !length.is_zero() => Some(millis(length)),
            Some(_) => return Err(settings.wrong(name, "must be neither zero nor unlimited")),
        };
        let enabled = settings.flag("enabled", default)?;
        self.lifetime = enabled.then_some(Lifetime {
            unknown: match unknown.unwrap_or(Length::Finite(MINUTE)) {
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
        settings: &Settings<'_>,
        protocol: Protocol,
    ) -> Result<Resolver, ConfigError> {
        settings.known(&[
            "endpoint",
            "tokenInfoEndpoint",
            "amService",
            "providerHandler",
            "clientId",
            "clientSecret",
            "clientSecretId",
            "secretsProvider",
        ]);
        let mut client = Client::read(settings, "providerHandler")?;
        client.direct(settings)?;
        let name = settings.one_of(&["endpoint", "tokenInfoEndpoint"]);
        let url = match settings.url(name.unwrap_or("endpoint"))? {
            Some(url) => url,
            None => match settings.declared("amService")? {
                Some(manager) => manager_endpoint(&manager, protocol, &mut client)?,
                None => return Err(settings.wrong("endpoint", "is required")),
            },
        };
        let proven = !client.headers.is_empty() || !client.form.is_empty();
        if protocol == Protocol::Introspection && !proven {
            let message =
                "has no credentials: most endpoints ask who wants to know (RFC 7662 §2.1)";
            settings.warn("providerHandler", message);
        }
        Ok(self.remote(protocol, url, client))
    }

    fn remote(&self, protocol: Protocol, url: Url, client: Client) -> Resolver {
        let remote = Remote::new(protocol, url, client, self.lifetime, self.parts);
        Resolver::Remote(Arc::new(remote))
    }
}

/// The older way to say how long answers are believed.
fn expiration(settings: &Settings<'_>) -> Result<Option<Lifetime>, ConfigError> {
    Ok(match settings.length("cacheExpiration")? {
        Some(Length::Finite(length)) if length.is_zero() => None,
        Some(Length::Finite(length)) => Some(lifetime(Some(millis(length)))),
        Some(Length::Unlimited) => Some(lifetime(None)),
        None => Some(lifetime(Some(millis(MINUTE)))),
    })
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
    let settings = &manager.settings;
    if manager.kind != "AmService" {
        return Err(manager.unfit("AmService"));
    }
    let base = settings.url("url")?;
    let mut url = base.ok_or_else(|| settings.wrong("url", "is required"))?;
    let realm = settings.text("realm")?.unwrap_or_default();
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
        && let Some(agent) = settings.object("agent")?
    {
        let name = agent.required("username")?;
        let secret = secrets::read_of(&agent, settings, "passwordSecretId", "password")?;
        let secret = secret.ok_or_else(|| agent.wrong("passwordSecretId", "is required"))?;
        client.basic(&name, &secret);
    }
    Ok(url)
}
