//! The `correlation-id` plugin: every request has an identifier in a header, for
//! the upstream and, if wanted, for the client.
//!
//! It is the smallest plugin and the model for others. `docs/writing-a-plugin.md`
//! goes through this file from top to bottom.

#[cfg(test)]
mod tests;

use std::fmt::Write;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use http::header::InvalidHeaderValue;
use http::{HeaderName, HeaderValue};
use pingora::http::{RequestHeader, ResponseHeader};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::settings::wrong;
use doorward_core::clock::{Clock, random_uuid};
use doorward_core::model::schema::{Schema, Type};
use doorward_net::http::head::UpstreamRequest;
use doorward_net::http::session::Session;
use doorward_plugin_api::config::header_name;
use doorward_plugin_api::filter::{Exchange, Filter, Flow, Verdict};
use doorward_plugin_api::{ConfigError, Kind, Parts, config, words};

/// What the registry knows of the plugin.
pub(crate) const KIND: Kind = Kind {
    name: "correlation-id",
    // Before all others, so that their refusals have the identifier too.
    priority: 100_001,
    of_consumers: true,
    schema,
    // It refuses nothing.
    codes: Vec::new,
    build,
};

/// The header, unless another one is configured.
const DEFAULT: &str = "Kong-Request-ID";

config! {
    /// The fields of `config`: types, defaults and bounds. The Admin API, files and
    /// `/schemas` all work from this, and `build` reads it.
    struct Config {
        /// The header that carries the identifier.
        #[field(kind(Type::checked(header_name)), default(DEFAULT))]
        header_name: Option<String>,
        /// How identifiers are made.
        #[field(default("uuid#counter"), required)]
        generator: Generator,
        /// Whether the client gets the identifier, too.
        #[field(default(false), required)]
        echo_downstream: bool,
    }
}

words! {
    /// How identifiers are made.
    enum Generator {
        /// A random UUID each.
        Uuid = "uuid",
        /// One UUID for the filter, and a number that counts up.
        Counter = "uuid#counter",
        /// Address, port, process, number and time.
        Tracker = "tracker",
    }
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(Config::fields()));
    &SCHEMA
}

/// Bytes of a UUID and what is between it and a number, and of the longest number.
const PREFIX: usize = 37;
const DIGITS: usize = 20;

/// The running filter: made once from `config`, used by all requests.
struct CorrelationId {
    header: HeaderName,
    generator: Generator,
    echo: bool,
    /// The UUID of [`Generator::Counter`], and what is between it and the number.
    prefix: [u8; PREFIX],
    count: AtomicU64,
    clock: Clock,
}

/// Reads `config` once. Requests meet no texts, only what is made of them here.
fn build(config: &Map<String, Value>, parts: &Parts) -> Result<Arc<dyn Filter>, ConfigError> {
    let config = Config::read(config)?;
    let header_name = config.header_name.unwrap_or_else(|| DEFAULT.to_owned());
    let header = HeaderName::try_from(header_name);
    Ok(Arc::new(CorrelationId {
        header: header.map_err(|_| wrong("header_name", "is no name of a header"))?,
        generator: config.generator,
        echo: config.echo_downstream,
        prefix: prefix(random_uuid()),
        count: AtomicU64::new(0),
        clock: parts.clock.clone(),
    }))
}

fn prefix(uuid: Uuid) -> [u8; PREFIX] {
    let mut prefix = [b'#'; PREFIX];
    uuid.hyphenated().encode_lower(&mut prefix);
    prefix
}

impl CorrelationId {
    /// The identifier that the client has sent; a blank one is none. A look at the few
    /// names of a head costs less than a hash of this one.
    fn sent(&self, request: &RequestHeader) -> Option<HeaderValue> {
        let mut fields = request.headers.iter();
        let (_, value) = fields.find(|(name, _)| **name == self.header)?;
        let blank = value.as_bytes().trim_ascii().is_empty();
        (!blank).then(|| value.clone())
    }

    /// A new identifier.
    fn generate(&self, exchange: &Exchange) -> HeaderValue {
        let mut uuid = Uuid::encode_buffer();
        let value = match self.generator {
            Generator::Uuid => {
                HeaderValue::from_str(random_uuid().hyphenated().encode_lower(&mut uuid))
            }
            Generator::Counter => self.count_up(),
            Generator::Tracker => {
                let mut text = String::with_capacity(64);
                // Writing to a string does not fail.
                let _ = self.track(&mut text, exchange);
                HeaderValue::from_str(&text)
            }
        };
        value.unwrap_or_else(|_| HeaderValue::from_static("unknown"))
    }

    /// The UUID of the filter and the next number. It is written in place, since each
    /// request has one.
    fn count_up(&self) -> Result<HeaderValue, InvalidHeaderValue> {
        let mut space = [b'0'; PREFIX + DIGITS];
        let mut number = self.next();
        let mut start = space.len();
        while number > 0 && start > PREFIX {
            start -= 1;
            space[start] = b'0' + (number % 10).to_le_bytes()[0];
            number /= 10;
        }
        start -= PREFIX;
        space[start..start + PREFIX].copy_from_slice(&self.prefix);
        HeaderValue::from_bytes(&space[start..])
    }

    fn next(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The imitated form has the number of the connection and of its request.
    /// Here the former is the number of the request, which is as unique.
    fn track(&self, text: &mut String, exchange: &Exchange) -> std::fmt::Result {
        match exchange.local {
            Some(local) => write!(text, "{}-{}", local.ip().to_canonical(), local.port())?,
            None => text.push_str("0.0.0.0-0"),
        }
        let now = self.clock.now_ms();
        let (seconds, millis) = (now.div_euclid(1000), now.rem_euclid(1000));
        let (process, number) = (process::id(), self.next());
        write!(text, "-{process}-{number}-1-{seconds}.{millis:03}")
    }
}

impl Filter for CorrelationId {
    /// Decides without waiting. What later steps need is put into `exchange`.
    fn on_request(&self, session: &mut Session, exchange: &mut Exchange) -> Verdict {
        let sent = self.sent(session.req_header());
        let id = sent.unwrap_or_else(|| self.generate(exchange));
        if self.echo {
            // Answers of the gateway itself get it from here.
            let field = (self.header.clone(), id.clone());
            exchange.response_headers.push(field);
        }
        // Records of the request have it too.
        exchange.correlation_id = Some(id.clone());
        exchange.vouched.push((self.header.clone(), id));
        Verdict::Now(Flow::Continue)
    }

    /// Writes the header when hop-by-hop headers are gone: no `Connection` header
    /// of a client takes it away.
    fn on_upstream_request(&self, exchange: &Exchange, request: &mut UpstreamRequest<'_>) {
        if let Some(id) = of(&exchange.vouched, &self.header) {
            request.fields().insert(self.header.clone(), id.clone());
        }
    }

    fn reads_heads(&self) -> bool {
        false
    }

    /// The upstream's own header of that name gives way.
    fn on_response(&self, exchange: &Exchange, response: &mut ResponseHeader) {
        let id = of(&exchange.response_headers, &self.header).filter(|_| self.echo);
        if let Some(id) = id
            && !is_only(response, &self.header, id)
        {
            let _ = response.insert_header(self.header.clone(), id);
        }
    }

    /// An answer to a request that was refused before this filter has one too.
    fn on_own_response(
        &self,
        request: &RequestHeader,
        exchange: &Exchange,
        response: &mut ResponseHeader,
    ) {
        if self.echo && !response.headers.contains_key(&self.header) {
            let sent = self.sent(request);
            let id = sent.unwrap_or_else(|| self.generate(exchange));
            let _ = response.insert_header(self.header.clone(), id);
        }
    }
}

/// The first value with this name.
fn of<'a>(fields: &'a [(HeaderName, HeaderValue)], name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut fields = fields.iter();
    fields.find_map(|(other, value)| (other == name).then_some(value))
}

/// Whether `value` is the one value of `name` in an answer, as the gateway has written it.
fn is_only(response: &ResponseHeader, name: &HeaderName, value: &HeaderValue) -> bool {
    if response.headers.len() == response.headers.keys_len() {
        return response.headers.get(name) == Some(value);
    }
    let fields = response.headers.iter();
    let mut values = fields.filter_map(|(other, value)| (other == name).then_some(value));
    values.next() == Some(value) && values.next().is_none()
}
