//! `http-log`: records go to an HTTP server.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use serde_json::{Map, Value};
use url::Url;

use super::LogFilter;
use super::custom_fields::{CustomFields, RecordConfig};
use crate::delivery::{OlderQueueConfig, Queue, QueueConfig, Sender, queue_type};
use crate::settings::{header_name, wrong};
use doorward_core::model::schema::{Schema, Violations};
use doorward_net::http::basic;
use doorward_net::http::outbound::{Options, Outbound};
use doorward_plugin_api::config::read_for_check;
use doorward_plugin_api::filter::Filter;
use doorward_plugin_api::{ConfigError, Kind, Parts, config, words};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "http-log",
    priority: 12,
    of_consumers: true,
    schema,
    codes: Vec::new,
    build,
};

/// Headers that are the gateway's to write.
const OWN: &[&str] = &["Host", "Content-Length", "Content-Type"];

words! {
    /// The method of requests.
    enum PostMethod {
        /// `POST`.
        Post = "POST",
        /// `PUT`.
        Put = "PUT",
        /// `PATCH`.
        Patch = "PATCH",
    }
}

words! {
    /// The type of bodies.
    enum ContentType {
        /// Without the name of the encoding.
        Json = "application/json",
        /// With the name of the encoding.
        JsonUtf8 = "application/json; charset=utf-8",
    }
}

config! {
    /// The fields of `config`.
    struct Config {
        /// Where records are sent. User information becomes a header Authorization.
        #[field(required)]
        http_endpoint: Url,
        /// The method of requests. Null: POST.
        #[field(default("POST"))]
        method: Option<PostMethod>,
        /// The content type of requests. Null: application/json.
        #[field(default("application/json"))]
        content_type: Option<ContentType>,
        /// Milliseconds for one try. Null: 10000.
        #[field(default(10_000))]
        timeout: Option<f64>,
        /// 0: each try has a connection of its own. Others are kept for three seconds.
        #[field(default(60_000))]
        keepalive: Option<f64>,
        older as ..: OlderQueueConfig,
        /// Further headers of requests, but not Host, Content-Length and Content-Type.
        headers: BTreeMap<String, String>,
        /// What waits, for how long, and how often it is sent again.
        #[field(kind(queue_type(1)), required)]
        queue: QueueConfig,
        record as ..: RecordConfig,
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        Schema::new(Config::fields())
            .check(check_headers)
            .check(check_credentials)
    });
    &SCHEMA
}

fn check_headers(config: &Map<String, Value>, violations: &mut Violations) {
    let Some(config) = read_for_check::<Config>(config) else {
        return;
    };
    for name in config.headers.keys() {
        let own = OWN.iter().find(|own| own.eq_ignore_ascii_case(name));
        if let Some(own) = own {
            violations.put("headers", format!("cannot contain '{own}' header"));
        } else if let Err(message) = header_name(name) {
            violations.put("headers", message);
        }
    }
}

fn check_credentials(config: &Map<String, Value>, violations: &mut Violations) {
    let Some(config) = read_for_check::<Config>(config) else {
        return;
    };
    let mut names = config.headers.keys();
    let authorizes = names.any(|name| name.eq_ignore_ascii_case("authorization"));
    if authorizes && basic::of_url(&config.http_endpoint).is_some() {
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
pub(crate) fn endpoint(field: &str, mut url: Url) -> Result<(Url, HeaderMap), ConfigError> {
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

/// Puts the headers of the field `headers` over those of their names.
///
/// # Errors
/// [`ConfigError`] for one that can't be sent.
pub(crate) fn put_headers(
    chosen: &BTreeMap<String, String>,
    headers: &mut HeaderMap,
) -> Result<(), ConfigError> {
    for (name, value) in chosen {
        let invalid = || wrong("headers", format!("'{name}' is no header that can be sent"));
        let value = HeaderValue::from_str(value).map_err(|_| invalid())?;
        let name = HeaderName::try_from(name.as_str()).map_err(|_| invalid())?;
        headers.insert(name, value);
    }
    Ok(())
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Config::read(config)?;
    let (url, mut headers) = endpoint("http_endpoint", config.http_endpoint)?;
    let content_type = match config.content_type {
        Some(ContentType::JsonUtf8) => "application/json; charset=utf-8",
        Some(ContentType::Json) | None => "application/json",
    };
    let content_type = HeaderValue::from_static(content_type);
    headers.insert(header::CONTENT_TYPE, content_type);
    put_headers(&config.headers, &mut headers)?;
    let method = match config.method {
        Some(PostMethod::Put) => Method::PUT,
        Some(PostMethod::Patch) => Method::PATCH,
        Some(PostMethod::Post) | None => Method::POST,
    };
    let limits = config.queue.limits(config.older.older());
    let timeout = config.timeout.unwrap_or(10_000.0).clamp(1.0, 86_400_000.0);
    let options = Options {
        timeout: Duration::from_secs_f64(timeout / 1000.0),
        keepalive: config.keepalive.unwrap_or(60_000.0) > 0.0,
        ..Options::default()
    };
    let lists = limits.batch > 1;
    let sender = HttpSender::new(parts, (method, url, headers), options, lists);
    let fields = CustomFields::new(&config.record)?;
    let queue = Queue::new(KIND.name, parts, limits, sender);
    Ok(LogFilter::new(queue, fields, "").shared())
}
