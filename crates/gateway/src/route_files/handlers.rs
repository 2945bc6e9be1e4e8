//! Handlers, from declarations to the tree.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use serde_json::{Map, Value, json};

use super::builder::RouteFileBuilder;
use super::fields::{Fields, Place};
use super::objects::{Built, Part};
use crate::handler::{Binding, Handler, MAX_DEPTH, ProxySettings, StaticResponse};
use doorward_expr::Expression;
use doorward_plugin_api::Parts;
use doorward_plugins::chain::{self, Trust};

/// A handler with what is known of it.
pub(super) struct Leads {
    pub(super) handler: Arc<Handler>,
    pub(super) height: usize,
    pub(super) weight: usize,
}

/// Options of the imitated handlers that say how they use sockets and threads.
const IDLE_OPTIONS: &[&str] = &[
    "asyncBehavior",
    "connectionTimeToLive",
    "connections",
    "disableRetries",
    "disableReuseConnection",
    "http2PriorKnowledge",
    "httpProxy",
    "hybridMode",
    "keyManager",
    "maxRequestsPerConnection",
    "numberOfWorkers",
    "protocolVersion",
    "proxy",
    "proxyOptions",
    "sslCipherSuites",
    "sslContextAlgorithm",
    "sslEnabledProtocols",
    "stateTrackingEnabled",
    "systemProxy",
    "temporaryStorage",
    "vertx",
    "waitQueueSize",
    "websocket",
];
const PROXY_OPTIONS: &[&str] = &[
    "connectionTimeout",
    "hostnameVerifier",
    "retries",
    "soTimeout",
    "tls",
    "trustManager",
];
/// Filters by which the gateway proves to an endpoint who it is.
const CLIENT_FILTERS: [&str; 3] = [
    "ClientSecretBasicAuthenticationFilter",
    "ClientSecretPostAuthenticationFilter",
    "HttpBasicAuthenticationClientFilter",
];
/// Further tries where `retries` does not say how many.
const USUAL_RETRIES: i64 = 5;

impl RouteFileBuilder<'_> {
    /// The handler that a field refers to.
    pub(super) fn leads_to(&self, fields: &Fields<'_>, name: &str) -> Option<Leads> {
        self.handler(fields.value(name).unwrap_or(&Value::Null), &fields.at(name))
    }

    /// The handler that `value` is or names.
    pub(super) fn handler(&self, value: &Value, place: &Place) -> Option<Leads> {
        let built = self.reference(value, place)?;
        let handler = match built.part {
            Part::Handler(handler) => handler,
            Part::Client => {
                let message = "is for requests that the gateway makes (providerHandler): its \
                               filters prove who the gateway is, and clients are not let in by them";
                self.wrong(place, message);
                return None;
            }
            _ => {
                self.wrong(place, "is not a handler");
                return None;
            }
        };
        Some(Leads {
            handler,
            height: built.height,
            weight: built.weight,
        })
    }

    pub(super) fn chain(&self, config: &Fields<'_>) -> Option<Built> {
        config.known(&["filters", "handler"], &[]);
        if self.is_client(config.map(), 0) {
            return self.client(config);
        }
        let steps = self.steps(config, "filters");
        let leads = self.leads_to(config, "handler");
        let (steps, leads) = (steps?, leads?);
        Some(Built::handler(
            Handler::Chain {
                steps: steps.steps,
                handler: leads.handler,
            },
            steps.height.max(leads.height),
            steps.weight + leads.weight,
        ))
    }

    pub(super) fn delegate(&self, config: &Fields<'_>) -> Option<Built> {
        config.known(&["delegate"], &[]);
        let delegate = config.value("delegate").unwrap_or(&Value::Null);
        self.reference(delegate, &config.at("delegate"))
    }

    pub(super) fn dispatch(&self, config: &Fields<'_>) -> Option<Built> {
        config.known(&["bindings"], &[]);
        if config.value("bindings").is_none() {
            return config.wrong(
                "bindings",
                "is required: an array of {condition, baseURI, handler}",
            );
        }
        let place = config.at("bindings");
        let (mut bindings, mut height, mut weight) = (Vec::new(), 0, 0);
        let mut good = true;
        for (i, item) in config.array("bindings")?.iter().enumerate() {
            match self.binding(item, place.at(i)) {
                Some((binding, leads_height, leads_weight)) => {
                    height = height.max(leads_height);
                    weight = weight.max(leads_weight);
                    bindings.push(binding);
                }
                None => good = false,
            }
        }
        good.then(|| Built::handler(Handler::Dispatch(bindings.into()), height, weight))
    }

    fn binding(&self, item: &Value, place: Place) -> Option<(Binding, usize, usize)> {
        let Value::Object(item) = item else {
            self.wrong(
                &place,
                "expected an object with condition, baseURI and handler",
            );
            return None;
        };
        let fields = Fields::new(self, item, place);
        fields.known(&["condition", "baseURI", "handler"], &[]);
        let condition = self.request_condition(&fields);
        let leads = self.leads_to(&fields, "handler")?;
        let (mut handler, mut height) = (leads.handler, leads.height);
        if let Some(base) = fields.value("baseURI") {
            handler = Arc::new(self.rebased(base, &fields.at("baseURI"), handler)?);
            height += 1;
        }
        let condition = condition?;
        Some((Binding { condition, handler }, height, leads.weight))
    }

    /// The `condition` of something that requests meet.
    pub(super) fn request_condition(&self, fields: &Fields<'_>) -> Option<Option<Expression>> {
        let condition = fields.condition("condition")?;
        let place = fields.at("condition");
        let fits = condition
            .as_ref()
            .is_none_or(|c| self.is_on_request(c, &place));
        fits.then_some(condition)
    }

    pub(super) fn static_response(&self, config: &Fields<'_>) -> Option<Built> {
        config.known(
            &["status", "reason", "headers", "entity"],
            &["trailers", "version"],
        );
        let status = config.integer("status", 0, 999)?;
        let Some(status) = status.and_then(|status| u16::try_from(status).ok()) else {
            return config.wrong("status", "is required: a number such as 200");
        };
        let reason = config.text("reason")?;
        let headers = self.headers(config, "headers")?;
        let entity = match config.value("entity") {
            None => None,
            Some(value) => Some(self.lines(value, &config.at("entity"))?),
        };
        match StaticResponse::new(status, reason.as_deref(), headers, entity) {
            Ok(response) => Some(Built::handler(Handler::Static(response), 0, 0)),
            Err(error) => self.refuse(config, error),
        }
    }

    /// A text of one line or, as an array, of several.
    fn lines(&self, value: &Value, place: &Place) -> Option<Expression> {
        let Value::Array(lines) = value else {
            return self.expression(value, place);
        };
        let texts: Option<Vec<&str>> = lines.iter().map(Value::as_str).collect();
        let Some(texts) = texts else {
            self.wrong(place, "expected a string, or an array of strings");
            return None;
        };
        self.expression(&Value::String(texts.join("\n")), place)
    }

    fn headers(
        &self,
        config: &Fields<'_>,
        field: &str,
    ) -> Option<Vec<(HeaderName, Vec<Expression>)>> {
        let empty = Map::new();
        let declared = match config.value(field) {
            None => &empty,
            Some(Value::Object(declared)) => declared,
            Some(_) => return config.wrong(field, "expected an object of header names and values"),
        };
        let mut headers = Vec::new();
        for (name, values) in declared {
            let place = config.at(field).at(name.as_str());
            let Ok(header) = HeaderName::from_bytes(name.as_bytes()) else {
                self.wrong(&place, "is not the name of a header");
                return None;
            };
            let values = match values {
                Value::Array(values) => values.as_slice(),
                single => std::slice::from_ref(single),
            };
            let values = values.iter().enumerate();
            let values = values.map(|(i, value)| self.expression(value, &place.at(i)));
            headers.push((header, values.collect::<Option<Vec<_>>>()?));
        }
        Some(headers)
    }

    pub(super) fn proxy(&self, config: &Fields<'_>) -> Option<Built> {
        config.known(PROXY_OPTIONS, IDLE_OPTIONS);
        let mut settings = ProxySettings::default();
        let connect = config.duration("connectionTimeout");
        let read = config.duration("soTimeout");
        let retries = self.retries(config);
        let trust = self.trust(config);
        if let Some(length) = connect? {
            settings.connect_timeout = milliseconds(length);
        }
        if let Some(length) = read? {
            settings.read_timeout = milliseconds(length);
        }
        settings.retries = retries?;
        let trust = trust?;
        settings.verify_certificate = trust.certificate;
        settings.verify_host = trust.host;
        Some(Built::handler(Handler::Proxy(Arc::new(settings)), 0, 0))
    }

    fn retries(&self, config: &Fields<'_>) -> Option<u16> {
        let retries = match config.value("retries") {
            None => return Some(0),
            Some(Value::Object(retries)) => retries,
            Some(_) => return config.wrong("retries", "expected an object with enabled and count"),
        };
        let fields = Fields::new(self, retries, config.at("retries"));
        fields.known(&["enabled", "count"], &["condition", "delay", "executor"]);
        let enabled = fields.boolean("enabled")?.unwrap_or(true);
        let count = fields.integer("count", 0, 100)?.unwrap_or(USUAL_RETRIES);
        Some(if enabled {
            u16::try_from(count).unwrap_or(0)
        } else {
            0
        })
    }

    /// `hostnameVerifier` and `trustManager`, here or in `tls`.
    fn trust(&self, config: &Fields<'_>) -> Option<Trust> {
        let named = |name: &str| self.declaration(name);
        match chain::trust(config.map(), &self.unscoped(), &named) {
            Ok((trust, warnings)) => {
                for warning in warnings {
                    self.warn(&config.place, warning);
                }
                Some(trust)
            }
            Err(error) => {
                self.wrong_config(config, &error.field, error.message);
                None
            }
        }
    }

    /// What reading needs that makes no filter.
    pub(super) fn unscoped(&self) -> Parts {
        let mut parts = self.context.parts.scoped("");
        parts.constants = self.constants.clone();
        parts
    }

    /// Whether the chain of `config` has filters by which the gateway proves
    /// who it is, here or in a chain behind: requests of clients can't pass
    /// these.
    fn is_client(&self, config: &Map<String, Value>, depth: usize) -> bool {
        let declared = |value: &Value| match value {
            Value::String(name) => self.declaration(name),
            _ => Some(value.clone()),
        };
        let filters = config.get("filters").and_then(Value::as_array);
        let mut filters = filters.into_iter().flatten().filter_map(declared);
        if filters.any(|filter| CLIENT_FILTERS.iter().any(|name| filter["type"] == *name)) {
            return true;
        }
        let behind = config.get("handler").and_then(declared);
        let behind = behind.filter(|behind| depth < MAX_DEPTH && behind["type"] == "Chain");
        let behind = behind
            .as_ref()
            .and_then(|behind| behind["config"].as_object());
        behind.is_some_and(|config| self.is_client(config, depth + 1))
    }

    /// A chain through which the gateway itself asks endpoints.
    fn client(&self, config: &Fields<'_>) -> Option<Built> {
        let named = |name: &str| self.declaration(name);
        let chain = json!({"type": "Chain", "config": config.map()});
        match chain::check_client(&chain, &self.unscoped(), &named) {
            Ok(()) => Some(Built {
                part: Part::Client,
                ..Built::passive()
            }),
            Err(error) => {
                let field = error.field.strip_prefix("handler.config.");
                self.wrong_config(config, field.unwrap_or_default(), error.message);
                None
            }
        }
    }
}

fn milliseconds(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX).max(1)
}
