//! Objects by their `type`: what is served, what is known, what is refused.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::builder::RouteFileBuilder;
use super::fields::Fields;
use crate::handler::{BaseUri, Handler, HandlerError, Origin, ProxySettings, Scheme, Step};
use doorward_plugin_api::filter::Filter;
use doorward_plugins::chain::{self, CHAIN};

/// What an object has become.
#[derive(Clone)]
pub(super) struct Built {
    pub(super) part: Part,
    /// Levels of handlers and steps.
    pub(super) height: usize,
    /// Filters that one request may have to pass.
    pub(super) weight: usize,
}

/// A part of the tree, or something that its parts refer to.
#[derive(Clone)]
pub(super) enum Part {
    Handler(Arc<Handler>),
    Filter {
        /// Its type, and its name if it has one.
        label: Box<str>,
        filter: Arc<dyn Filter>,
    },
    /// A filter that is made of steps.
    Steps(Arc<[Step]>),
    /// A handler of requests that the gateway itself makes.
    Client,
    /// Named by others, and nothing by itself.
    Passive,
}

/// Handlers that need not be declared.
const HANDLERS: [&str; 3] = [
    "ReverseProxyHandler",
    "ClientHandler",
    "ForgeRockClientHandler",
];
/// Other objects that need not be declared.
const OBJECTS: [&str; 7] = [
    "ScheduledExecutorService",
    "TemporaryStorage",
    "IssuerRepository",
    "NoOpAuditService",
    "SystemAndEnvSecretStore",
    "Session",
    "TokenManagers",
];

/// A filter that need not be declared, and does nothing here.
const NOTHING: &str = "TransactionIdOutboundFilter";

/// Types that handlers and steps are declared with here.
const COMPOSITES: [&str; 10] = [
    "Chain",
    "ChainOfFilters",
    "ClientHandler",
    "ConditionEnforcementFilter",
    "ConditionalFilter",
    "Delegate",
    "DispatchHandler",
    "ReverseProxyHandler",
    "Router",
    "StaticResponseHandler",
];
const SWITCH: &str = "SwitchFilter";

/// Types that filters refer to by name, and that are nothing by themselves.
const REFERRED: [&str; 19] = [
    "Base64EncodedSecretStore",
    "CacheAccessTokenResolver",
    "ClientRegistration",
    "ClientSecretBasicAuthenticationFilter",
    "ClientSecretPostAuthenticationFilter",
    "ClientTlsOptions",
    "ConfirmationKeyVerifierAccessTokenResolver",
    "FileSystemSecretStore",
    "HttpBasicAuthenticationClientFilter",
    "Issuer",
    "JwkSetSecretStore",
    "OpenAmAccessTokenResolver",
    "SecretKeyPropertyFormat",
    "SecretsProvider",
    "StatelessAccessTokenResolver",
    "SystemAndEnvSecretStore",
    "TokenIntrospectionAccessTokenResolver",
    "TrustAllManager",
    "AmService",
];

/// Types that mean something to the imitated gateway's process, not to a
/// request.
const IDLE: [&str; 27] = [
    "AuditService",
    "BaseUriDecorator",
    "CaptureDecorator",
    "CsvAuditEventHandler",
    "ForgeRockAuditService",
    "HsmSecretStore",
    "InMemorySessionManager",
    "JdbcDataSource",
    "JmsAuditEventHandler",
    "JsonAuditEventHandler",
    "JsonStdoutAuditEventHandler",
    "JwtSession",
    "JwtSessionFactory",
    "JwtSessionManager",
    "KeyManager",
    "KeyStore",
    "KeyStoreSecretStore",
    "NoOpAuditService",
    "PemPropertyFormat",
    "ProxyOptions",
    "ScheduledExecutorService",
    "SecretsKeyManager",
    "SecretsTrustManager",
    "TemporaryStorage",
    "ThreadPoolExecutor",
    "TimerDecorator",
    "TrustManager",
];

/// Throttling policies, which are checked as a throttle would.
const POLICIES: [&str; 4] = [
    "DefaultRateThrottlingPolicy",
    "ExpressionThrottlingPolicy",
    "MappedThrottlingPolicy",
    "ScriptableThrottlingPolicy",
];

/// Members of a declaration that decorate it with what is not served.
const DECORATORS: [&str; 5] = ["audit", "capture", "monitor", "timer", "tracing"];

impl Built {
    /// A handler over parts of this height and weight.
    pub(super) fn handler(handler: Handler, height: usize, weight: usize) -> Self {
        Self {
            part: Part::Handler(Arc::new(handler)),
            height: height + 1,
            weight,
        }
    }

    /// A filter that is one step over parts of this height and weight.
    pub(super) fn step(step: Step, height: usize, weight: usize) -> Self {
        Self {
            part: Part::Steps(Arc::new([step])),
            height: height + 1,
            weight: weight + 1,
        }
    }

    pub(super) fn filter(label: String, filter: Arc<dyn Filter>) -> Self {
        let label = label.into();
        Self {
            part: Part::Filter { label, filter },
            height: 1,
            weight: 1,
        }
    }

    pub(super) fn passive() -> Self {
        Self {
            part: Part::Passive,
            height: 0,
            weight: 0,
        }
    }
}

/// The object of this name that need not be declared.
pub(super) fn builtin(name: &str) -> Option<Built> {
    if HANDLERS.contains(&name) {
        let settings = Arc::new(ProxySettings::default());
        return Some(Built::handler(Handler::Proxy(settings), 0, 0));
    }
    if name == NOTHING {
        return Some(Built {
            part: Part::Steps(Arc::new([])),
            ..Built::passive()
        });
    }
    OBJECTS.contains(&name).then(Built::passive)
}

/// What may be declared, for messages.
fn allowed() -> String {
    let served = CHAIN.iter().filter_map(|kind| kind.types.first());
    let mut names: Vec<&str> = served.copied().collect();
    names.extend(COMPOSITES);
    names.push(SWITCH);
    names.extend(&POLICIES[..3]);
    names.extend(REFERRED);
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

impl RouteFileBuilder<'_> {
    /// Builds what `declared` (`{name?, type, config?, decorators}`) says.
    pub(super) fn build(&self, declared: &Fields<'_>) -> Option<Built> {
        let type_name = match declared.value("type") {
            Some(Value::String(name)) => name.as_str(),
            Some(_) => return declared.wrong("type", "expected a string"),
            None => {
                self.wrong(&declared.place, "required field missing: type");
                return None;
            }
        };
        let empty = Map::new();
        let config = match declared.value("config") {
            None => &empty,
            Some(Value::Object(config)) => config,
            Some(_) => return declared.wrong("config", "expected an object"),
        };
        let config = Fields::new(self, config, declared.at("config"));
        let built = self.typed(type_name, declared, &config)?;
        self.decorated(built, declared)
    }

    fn typed(&self, type_name: &str, declared: &Fields<'_>, config: &Fields<'_>) -> Option<Built> {
        match type_name {
            "Chain" => self.chain(config),
            "ChainOfFilters" => self.chain_of_filters(config),
            "ClientHandler" | "ReverseProxyHandler" => self.proxy(config),
            "ConditionEnforcementFilter" => self.enforcement(config),
            "ConditionalFilter" => self.conditional(config),
            "Delegate" => self.delegate(config),
            "DispatchHandler" => self.dispatch(config),
            "HttpBasicAuthFilter" => self.basic_auth(type_name, declared, config),
            "AuthorizationCodeOAuth2ClientFilter" | "OAuth2ClientFilter" => {
                self.oauth2_client(type_name, declared, config)
            }
            "Router" => self.router(config),
            "StaticResponseHandler" => self.static_response(config),
            SWITCH => self.switch(config),
            _ if chain::chain_kind(type_name).is_some() => self.filter(type_name, declared, config),
            _ if POLICIES.contains(&type_name) => self.policy(declared),
            _ if REFERRED.contains(&type_name) => Some(Built::passive()),
            _ if IDLE.contains(&type_name) => {
                self.warn(
                    &declared.at("type"),
                    format!("{type_name} has no effect here"),
                );
                Some(Built::passive())
            }
            _ => {
                let message = match chain::refused(type_name) {
                    Some(reason) => format!("{type_name} is not served: {reason}"),
                    None => format!(
                        "'{type_name}' is no known type; expected one of: {}",
                        allowed()
                    ),
                };
                declared.wrong("type", message)
            }
        }
    }

    /// Applies the members of a declaration that are decorators.
    fn decorated(&self, built: Built, declared: &Fields<'_>) -> Option<Built> {
        let mut known = vec!["name", "type", "config", "baseURI"];
        known.extend(DECORATORS);
        declared.unknown_decorators(&known);
        let Some(base) = declared.value("baseURI") else {
            return Some(built);
        };
        match built.part {
            Part::Handler(handler) => {
                let rebased = self.rebased(base, &declared.at("baseURI"), handler)?;
                Some(Built::handler(rebased, built.height, built.weight))
            }
            _ => {
                self.warn(&declared.at("baseURI"), "has an effect on handlers only");
                Some(built)
            }
        }
    }

    /// `handler` as it sees requests for another base URI.
    pub(super) fn rebased(
        &self,
        base: &Value,
        place: &super::fields::Place,
        handler: Arc<Handler>,
    ) -> Option<Handler> {
        let expression = self.request_expression(base, place)?;
        match BaseUri::new(expression) {
            Ok(base) => {
                if let BaseUri::Fixed(base) = &base
                    && !self.is_there(base.origin())
                {
                    let message = format!(
                        "{}: there is no such router in this process, the \
                         configuration has no section for it",
                        base.origin()
                    );
                    self.wrong(place, message);
                    return None;
                }
                Some(Handler::Rebased { base, handler })
            }
            Err(error) => {
                self.wrong(place, error.message);
                None
            }
        }
    }

    /// Whether what answers there is, as far as it is in this process.
    fn is_there(&self, origin: &Origin) -> bool {
        origin.scheme != Scheme::Internal || self.context.internals.contains(&&*origin.host)
    }

    /// Says what is wrong with the field of a `config`.
    pub(super) fn refuse<T>(&self, config: &Fields<'_>, error: HandlerError) -> Option<T> {
        let mut place = config.place.clone();
        for step in error.field.split('.').filter(|step| !step.is_empty()) {
            place = place.at(step);
        }
        self.wrong(&place, error.message);
        None
    }
}
