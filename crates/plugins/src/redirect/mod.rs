//! The `redirect` plugin: clients are led elsewhere.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderValue, StatusCode, Uri};
use pingora::http::RequestHeader;
use serde_json::{Map, Value};
use url::{Position, Url};

use crate::settings::{UNEXPECTED, final_status, wrong};
use doorward_core::model::schema::{Schema, Type};
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_net::http::session::Session;
use doorward_net::telemetry::metrics::Counter;
use doorward_plugin_api::filter::{Code, Exchange, Filter, FilterExplanation, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Kind, Parts, config};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "redirect",
    priority: 779,
    of_consumers: true,
    schema,
    codes: || vec![REDIRECTED],
    build,
};

const REDIRECTED: Code = Code::new(
    "redirected",
    301,
    "redirect has led the client elsewhere (with the status of its configuration)",
);

config! {
    /// The fields of `config`.
    struct Config {
        /// The status of the answer.
        #[field(kind(Type::Integer(100, 599)), default(301), required)]
        status_code: u16,
        /// The address that clients are led to.
        #[field(kind(Type::checked(check_location)), required)]
        location: String,
        /// Whether path and query of the request take the place of the address's own.
        #[field(default(false))]
        keep_incoming_path: bool,
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(Config::fields()));
    &SCHEMA
}

fn check_location(text: &str) -> Result<(), String> {
    let url = Url::parse(text).ok();
    let whole = url.is_some_and(|url| url.has_host()) && HeaderValue::from_str(text).is_ok();
    if whole {
        return Ok(());
    }
    Err("missing host in url".to_owned())
}

/// A running filter.
struct Redirect {
    status: StatusCode,
    location: HeaderValue,
    /// The location without path, query and fragment, where those of the request
    /// take their place.
    origin: Option<Box<str>>,
    redirected: Counter,
}

fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Config::read(config)?;
    let status = final_status(config.status_code)?;
    let text = &*config.location;
    let location = HeaderValue::from_str(text);
    let location = location.map_err(|_| wrong("location", "is no value of a header"))?;
    let url = Url::parse(text).map_err(|error| wrong("location", error.to_string()))?;
    let origin = &url[..Position::BeforePath];
    Ok(Arc::new(Redirect {
        status,
        location,
        origin: config.keep_incoming_path.then(|| origin.into()),
        redirected: parts.metrics.decision(KIND.name, "redirect"),
    }))
}

impl Redirect {
    /// The address for a request to this target.
    fn location(&self, target: &Uri) -> Option<HeaderValue> {
        let Some(origin) = &self.origin else {
            return Some(self.location.clone());
        };
        let target = target
            .path_and_query()
            .map_or("/", |target| target.as_str());
        // Written by the rules of URLs: no dots and no odd characters are left.
        let url = Url::parse(&format!("{origin}{target}")).ok()?;
        HeaderValue::from_str(url.as_str()).ok()
    }
}

#[async_trait]
impl Filter for Redirect {
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        self.redirected.inc();
        let target = match &exchange.original {
            Some(original) => &original.uri,
            None => &session.req_header().uri,
        };
        let Some(location) = self.location(target) else {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            return Verdict::Now(Flow::Respond(Reply::message(status, UNEXPECTED)));
        };
        exchange.refusal = Some(Cow::Borrowed(REDIRECTED.code));
        let mut reply = Reply::empty(self.status).header(LOCATION, location);
        reply.body = ReplyBody::Own(Bytes::from_static(b"redirecting"));
        Verdict::Now(Flow::Respond(reply))
    }

    async fn explain(&self, _: &RequestHeader, _: &mut Exchange) -> Option<FilterExplanation> {
        let status = self.status.as_u16();
        Some(FilterExplanation::answers(&Code {
            status,
            ..REDIRECTED
        }))
    }
}
