//! `http-log`: records go to an HTTP server.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use serde_json::{Map, Value};
use url::Url;

use super::LogFilter;
use super::custom_fields::{self, CustomFields};
use crate::delivery::{LEGACY, Limits, Queue, Sender, legacy_fields, queue_field};
use crate::settings::{Settings, header_name, url_text, wrong};
use doorward_core::model::schema::{Field, Schema, Type, Violations};
use doorward_net::http::basic;
use doorward_net::http::outbound::{Options, Outbound};
use doorward_plugin_api::filter::Filter;
use doorward_plugin_api::{ConfigError, Kind, Parts};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "http-log",
    priority: 12,
    of_consumers: true,
    schema,
    codes: Vec::new,
    build,
};

const CONTENT_TYPES: &[&str] = &["application/json", "application/json; charset=utf-8"];
/// Headers that are the gateway's to write.
const OWN: &[&str] = &["Host", "Content-Length", "Content-Type"];

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let mut fields = vec![
            Field::new("http_endpoint", Type::checked(url_text)).required(),
            Field::new("method", Type::word(&["POST", "PUT", "PATCH"])).default("POST"),
            Field::new("content_type", Type::word(CONTENT_TYPES)).default("application/json"),
            Field::new("timeout", Type::Number).default(10_000),
            Field::new("keepalive", Type::Number).default(60_000),
        ];
        fields.extend(legacy_fields());
        fields.extend([
            Field::new("headers", Type::Map(Box::new(Type::some_text()))),
            queue_field(1),
            custom_fields::field(),
        ]);
        Schema::new(fields)
            .check(check_headers)
            .check(check_credentials)
    });
    &SCHEMA
}

fn check_headers(config: &Map<String, Value>, violations: &mut Violations) {
    let headers = config.get("headers").and_then(Value::as_object);
    for name in headers.into_iter().flat_map(Map::keys) {
        let own = OWN.iter().find(|own| own.eq_ignore_ascii_case(name));
        if let Some(own) = own {
            violations.put("headers", format!("cannot contain '{own}' header"));
        } else if let Err(message) = header_name(name) {
            violations.put("headers", message);
        }
    }
}

fn check_credentials(config: &Map<String, Value>, violations: &mut Violations) {
    let headers = config.get("headers").and_then(Value::as_object);
    let mut names = headers.into_iter().flat_map(Map::keys);
    let authorizes = names.any(|name| name.eq_ignore_ascii_case("authorization"));
    let endpoint = Settings(config).text("http_endpoint");
    let endpoint = endpoint.and_then(|text| Url::parse(text).ok());
    if authorizes && endpoint.is_some_and(|url| basic::of_url(&url).is_some()) {
        violations.put_whole(
            "specifying both an 'Authorization' header and user info in 'http_endpoint' is not \
             allowed",
        );
    }
}

/// Sends batches of JSON texts.
pub(crate) struct HttpSender {
    outbound: Arc<Outbound>,
    url: Url,
    method: Method,
    headers: HeaderMap,
    options: Options,
    /// Whether a body is always a list.
    lists: bool,
}

impl HttpSender {
    /// Sends requests with this head; with `lists` a body is always a list.
    pub(crate) fn new(
        parts: &Parts,
        (method, url, headers): (Method, Url, HeaderMap),
        options: Options,
        lists: bool,
    ) -> Self {
        Self {
            outbound: parts.outbound.clone(),
            url,
            method,
            headers,
            options,
            lists,
        }
    }
}

#[async_trait]
impl Sender for HttpSender {
    async fn send(&self, batch: &[Vec<u8>]) -> Result<(), String> {
        let body = match batch {
            [one] if !self.lists => one.clone(),
            many => {
                let length = many.iter().map(|entry| entry.len() + 1).sum::<usize>();
                let mut body = Vec::with_capacity(length + 1);
                body.push(b'[');
                for (i, entry) in many.iter().enumerate() {
                    if i > 0 {
                        body.push(b',');
                    }
                    body.extend_from_slice(entry);
                }
                body.push(b']');
                body
            }
        };
        let (method, headers) = (self.method.clone(), self.headers.clone());
        let sent =
            self.outbound
                .request(method, &self.url, headers, Bytes::from(body), self.options);
        let answer = sent.await.map_err(|error| error.to_string())?;
        let status = answer.status;
        if status.as_u16() >= 300 {
            return Err(format!("answered with status {status}"));
        }
        Ok(())
    }
}

/// The URL in this field without user information, and the header that this becomes.
///
/// # Errors
/// [`ConfigError`] where nothing can be sent there.
pub(crate) fn endpoint(field: &str, text: &str) -> Result<(Url, HeaderMap), ConfigError> {
    let mut url = Url::parse(text).map_err(|_| wrong(field, "could not parse url"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong(field, "expected the scheme http or https"));
    }
    let mut headers = HeaderMap::new();
    headers.extend(basic::of_url(&url).map(|value| (header::AUTHORIZATION, value)));
    // It is in a header now.
    let _ = (url.set_username(""), url.set_password(None));
    url.set_fragment(None);
    Ok((url, headers))
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Settings(config);
    let text = config.text("http_endpoint").unwrap_or_default();
    let (url, mut headers) = endpoint("http_endpoint", text)?;
    let kind = config.text("content_type").unwrap_or("application/json");
    let kind = HeaderValue::from_str(kind).map_err(|_| wrong("content_type", "invalid value"))?;
    headers.insert(header::CONTENT_TYPE, kind);
    config.put_headers("headers", &mut headers)?;
    let method = match config.text("method") {
        Some("PUT") => Method::PUT,
        Some("PATCH") => Method::PATCH,
        _ => Method::POST,
    };
    let limits = Limits::read(config, &LEGACY);
    let millis = |field: &str, default: f64| config.number(field).unwrap_or(default);
    let timeout = millis("timeout", 10_000.0).clamp(1.0, 86_400_000.0);
    let options = Options {
        timeout: Duration::from_secs_f64(timeout / 1000.0),
        keepalive: millis("keepalive", 60_000.0) > 0.0,
        ..Options::default()
    };
    let lists = limits.batch > 1;
    let sender = HttpSender::new(parts, (method, url, headers), options, lists);
    let fields = CustomFields::read(config)?;
    let queue = Queue::new(KIND.name, parts, limits, sender);
    Ok(LogFilter::new(queue, fields, "").shared())
}
