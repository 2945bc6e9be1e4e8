//! The `config` of the plugin.

use std::sync::LazyLock;

use http::{HeaderName, Method};
use serde_json::{Map, Value, json};

use crate::settings::{Settings, header_name, wrong};
use doorward_core::model::schema::{Field, Schema, Type, Violations};
use doorward_plugin_api::ConfigError;

/// The fields of `config`.
pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let list = |name, of, default: Value| {
            Field::new(name, Type::array(of))
                .default(default)
                .required()
        };
        let flag = |name| Field::new(name, Type::Boolean).default(true);
        let memory = vec![
            Field::new("dictionary_name", Type::some_text())
                .default("kong_db_cache")
                .required(),
        ];
        let shown = vec![flag("age"), flag("X-Cache-Status"), flag("X-Cache-Key")];
        let methods = Type::word(&["HEAD", "GET", "POST", "PATCH", "PUT"]);
        let fields = vec![
            list(
                "response_code",
                Type::Integer(100, 900),
                json!([200, 301, 404]),
            )
            .len_min(1),
            list("request_method", methods, json!(["GET", "HEAD"])),
            list(
                "content_type",
                Type::some_text(),
                json!(["text/plain", "application/json"]),
            ),
            Field::new("cache_ttl", Type::Integer(i64::MIN, i64::MAX)).default(300),
            Field::new("strategy", Type::word(&["memory"])).required(),
            Field::new("cache_control", Type::Boolean)
                .default(false)
                .required(),
            Field::new("ignore_uri_case", Type::Boolean).default(false),
            Field::new("storage_ttl", Type::Integer(i64::MIN, i64::MAX)),
            Field::new("memory", Type::Record(Schema::new(memory))).required(),
            Field::new("vary_query_params", Type::array(Type::some_text())),
            Field::new("vary_headers", Type::array(Type::checked(header_name))),
            Field::new("response_headers", Type::Record(Schema::new(shown))).required(),
        ];
        Schema::new(fields).check(check)
    });
    &SCHEMA
}

fn check(config: &Map<String, Value>, violations: &mut Violations) {
    for field in ["cache_ttl", "storage_ttl"] {
        let number = Settings(config).integer(field);
        if number.is_some_and(|number| number <= 0) {
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

/// Which headers clients get.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseHeaders {
    pub(super) age: bool,
    pub(super) status: bool,
    pub(super) key: bool,
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
        let config = Settings(config);
        let mut warnings = Vec::new();
        let types = config.texts("content_type").filter_map(|text| {
            let content_type = ContentType::read(text);
            if content_type.is_none() {
                warnings.push(format!("content_type: '{text}' is no type of content"));
            }
            content_type
        });
        let types = types.collect();
        let codes = config.get("response_code").and_then(Value::as_array);
        let codes = codes.into_iter().flatten().filter_map(Value::as_u64);
        let headers = config.texts("vary_headers").map(|text| {
            let name = HeaderName::try_from(text);
            name.map_err(|_| wrong("vary_headers", header_name(text).err().unwrap_or_default()))
        });
        let mut parameters: Vec<Box<str>> =
            config.texts("vary_query_params").map(Into::into).collect();
        parameters.sort_unstable();
        if !parameters.is_empty() {
            let warning = "vary_query_params: other parameters reach the upstream and don't tell \
                           answers apart: whoever sends one chooses what the next caller gets";
            warnings.push(warning.to_owned());
        }
        let methods = config.texts("request_method");
        let methods = methods.filter_map(|text| Method::from_bytes(text.as_bytes()).ok());
        let shown = config.record("response_headers");
        let is_shown = |name| shown.get(name).is_none() || shown.flag(name);
        Ok(Self {
            statuses: codes.filter_map(|code| u16::try_from(code).ok()).collect(),
            methods: methods.collect(),
            types,
            ttl: config.integer("cache_ttl").unwrap_or(300),
            cache_control: config.flag("cache_control"),
            ignore_case: config.flag("ignore_uri_case"),
            storage_ttl: config.integer("storage_ttl"),
            parameters: parameters.into(),
            headers: headers.collect::<Result<_, _>>()?,
            shown: ResponseHeaders {
                age: is_shown("age"),
                status: is_shown("X-Cache-Status"),
                key: is_shown("X-Cache-Key"),
            },
            warnings,
        })
    }
}
