//! The `config` of the plugin.

use std::sync::LazyLock;

use http::{HeaderName, Method};
use serde_json::{Map, Value, json};

use doorward_core::model::schema::{Schema, Type, Violations};
use doorward_plugin_api::config::read_for_check;
use doorward_plugin_api::{ConfigError, config, words};

config! {
    /// The fields of `config`.
    struct Fields {
        /// The statuses of answers that are stored.
        #[field(
            kind(Type::array(Type::Integer(100, 900))),
            default(json!([200, 301, 404])),
            required,
            len_min(1)
        )]
        response_code: Vec<u16>,
        /// The methods of requests whose answers are stored.
        #[field(
            kind(Type::array(Type::word(&["HEAD", "GET", "POST", "PATCH", "PUT"]))),
            default(json!(["GET", "HEAD"])),
            required
        )]
        request_method: Vec<String>,
        /// The media types of answers that are stored, with their parameters.
        #[field(default(json!(["text/plain", "application/json"])), required)]
        content_type: Vec<String>,
        /// How long a stored answer is fresh, in seconds.
        #[field(default(300))]
        cache_ttl: i64,
        /// Where answers are stored.
        #[field(required)]
        _strategy as "strategy": Strategy,
        /// Whether the Cache-Control headers of clients and upstreams count.
        #[field(default(false), required)]
        cache_control: bool,
        /// Whether paths are one that differ in case alone.
        #[field(default(false))]
        ignore_uri_case: bool,
        /// How long an answer stays stored behind its time, in seconds.
        storage_ttl: Option<i64>,
        /// How answers are stored in memory.
        #[field(required)]
        _memory as "memory": Memory,
        /// The parameters that tell requests apart. Null: all of them.
        vary_query_params: Vec<Box<str>>,
        /// The headers that tell requests apart.
        vary_headers: Vec<HeaderName>,
        /// Which headers clients get.
        #[field(required)]
        response_headers: ResponseHeaders,
    }
}

words! {
    /// Where answers are stored.
    enum Strategy {
        /// In the memory of the process.
        Memory = "memory",
    }
}

config! {
    /// How answers are stored in memory.
    struct Memory {
        /// A name that is taken for the sake of older files, and says nothing.
        #[field(default("kong_db_cache"), required)]
        _dictionary_name as "dictionary_name": String,
    }
}

config! {
    /// Which headers clients get.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct ResponseHeaders {
        /// The age of a stored answer, in seconds.
        #[field(default(true))]
        pub(super) age: bool,
        /// Whether the answer was stored.
        #[field(default(true))]
        pub(super) status as "X-Cache-Status": bool,
        /// What the answer is stored under.
        #[field(default(true))]
        pub(super) key as "X-Cache-Key": bool,
    }
}

impl ResponseHeaders {
    /// All of them.
    pub(super) const ALL: Self = Self {
        age: true,
        status: true,
        key: true,
    };
}

/// The fields of `config`.
pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> =
        LazyLock::new(|| Schema::new(Fields::fields()).check(times_are_positive));
    &SCHEMA
}

fn times_are_positive(config: &Map<String, Value>, violations: &mut Violations) {
    let Some(fields) = read_for_check::<Fields>(config) else {
        return;
    };
    for (field, seconds) in [
        ("cache_ttl", Some(fields.cache_ttl)),
        ("storage_ttl", fields.storage_ttl),
    ] {
        if seconds.is_some_and(|seconds| seconds <= 0) {
            violations.put(field, "value must be greater than 0");
        }
    }
}

/// A type of content: type, subtype and the set of parameters. `*` stands for any.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ContentType {
    main: Box<str>,
    sub: Box<str>,
    /// In order.
    parameters: Box<[Box<str>]>,
}

impl ContentType {
    /// Reads a text; `None`: it names no type.
    pub(super) fn read(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let mut parts = text.split(';').map(str::trim);
        let (main, sub) = parts.next()?.split_once('/')?;
        let parameters = parts.filter(|part| !part.is_empty());
        let parameters = parameters.map(|part| part.replace([' ', '"'], "").into());
        let mut parameters: Vec<Box<str>> = parameters.collect();
        parameters.sort_unstable();
        Some(Self {
            main: main.into(),
            sub: sub.into(),
            parameters: parameters.into(),
        })
    }

    /// Whether `other` is of this type.
    pub(super) fn takes(&self, other: &Self) -> bool {
        let part = |own: &str, other: &str| own == "*" || own == other;
        part(&self.main, &other.main)
            && part(&self.sub, &other.sub)
            && self.parameters == other.parameters
    }
}

/// A configuration as it runs.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) statuses: Box<[u16]>,
    pub(super) methods: Box<[Method]>,
    pub(super) types: Box<[ContentType]>,
    pub(super) ttl: i64,
    pub(super) cache_control: bool,
    pub(super) ignore_case: bool,
    pub(super) storage_ttl: Option<i64>,
    /// The parameters that tell requests apart; empty: all.
    pub(super) parameters: Box<[Box<str>]>,
    pub(super) headers: Box<[HeaderName]>,
    pub(super) shown: ResponseHeaders,
    pub(super) warnings: Vec<String>,
}

impl Config {
    /// Reads a complete `config`.
    pub(super) fn read(config: &Map<String, Value>) -> Result<Self, ConfigError> {
        let fields = Fields::read(config)?;
        let mut warnings = Vec::new();
        let types = fields.content_type.iter().filter_map(|text| {
            let content_type = ContentType::read(text);
            if content_type.is_none() {
                warnings.push(format!("content_type: '{text}' is no type of content"));
            }
            content_type
        });
        let types = types.collect();
        let mut parameters = fields.vary_query_params;
        parameters.sort_unstable();
        if !parameters.is_empty() {
            let warning = "vary_query_params: other parameters reach the upstream and don't tell \
                           answers apart: whoever sends one chooses what the next caller gets";
            warnings.push(warning.to_owned());
        }
        let methods = fields.request_method.iter();
        let methods = methods.filter_map(|text| Method::from_bytes(text.as_bytes()).ok());
        Ok(Self {
            statuses: fields.response_code.into(),
            methods: methods.collect(),
            types,
            ttl: fields.cache_ttl,
            cache_control: fields.cache_control,
            ignore_case: fields.ignore_uri_case,
            storage_ttl: fields.storage_ttl,
            parameters: parameters.into(),
            headers: fields.vary_headers.into(),
            shown: fields.response_headers,
            warnings,
        })
    }
}
