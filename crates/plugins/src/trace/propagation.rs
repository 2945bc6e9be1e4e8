//! Which headers a trace is read from, and which it is written to.

use http::{HeaderMap, HeaderName};
use pingora::http::RequestHeader;

use super::Trace;
use super::context::{Format, Outgoing, TraceContext};
use crate::settings::{Settings, wrong};
use doorward_core::model::schema::{Field, Schema, Type};
use doorward_plugin_api::ConfigError;

const EXTRACT: &[&str] = &["b3", "w3c", "jaeger", "ot", "datadog", "aws", "gcp"];
const INJECT: &[&str] = &[
    "preserve",
    "b3",
    "b3-single",
    "w3c",
    "jaeger",
    "ot",
    "datadog",
    "aws",
    "gcp",
];
const HEADER_TYPES: &[&str] = &[
    "preserve",
    "ignore",
    "b3",
    "b3-single",
    "w3c",
    "jaeger",
    "ot",
    "aws",
    "datadog",
    "gcp",
];
const FORMATS: &[&str] = &[
    "w3c",
    "datadog",
    "b3",
    "gcp",
    "b3-single",
    "jaeger",
    "aws",
    "ot",
];

/// The field `propagation`.
pub(super) fn field(default: &str) -> Field {
    let list = |name, one_of| Field::new(name, Type::array(Type::word(one_of)));
    let record = Schema::new(vec![
        list("extract", EXTRACT),
        Field::new("clear", Type::array(Type::some_text())),
        list("inject", INJECT),
        Field::new("default_format", Type::word(FORMATS))
            .default(default)
            .required(),
    ]);
    Field::new("propagation", Type::Record(record)).required()
}

/// The older field `header_type`.
pub(super) fn header_type() -> Field {
    Field::new("header_type", Type::word(HEADER_TYPES))
        .default("preserve")
        .required()
}

/// The older field `default_header_type`.
pub(super) fn default_header_type() -> Field {
    Field::new("default_header_type", Type::word(FORMATS))
        .default("b3")
        .required()
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Injection {
    /// The format that was read, or else the one by default.
    Preserve,
    As(Format),
}

/// Which formats are read and written.
#[derive(Debug)]
pub(super) struct Propagation {
    extract: Vec<Format>,
    clear: Vec<HeaderName>,
    inject: Vec<Injection>,
    default: Format,
}

impl Propagation {
    /// Reads a complete `config`, whose format by default is `usual` where it says
    /// nothing.
    pub(super) fn read(config: Settings<'_>, usual: Format) -> Result<Self, ConfigError> {
        let record = config.record("propagation");
        let chosen = ["extract", "clear", "inject"]
            .iter()
            .any(|field| record.get(field).is_some());
        let default = record.text("default_format").and_then(Format::of);
        let default = default.unwrap_or(usual);
        if !chosen {
            return Ok(Self::legacy(config, default, usual));
        }
        let clear = record.texts("clear").map(|name| {
            let name = HeaderName::try_from(name);
            name.map_err(|_| wrong("propagation.clear", "expected names of headers"))
        });
        let inject = record.texts("inject").map(|name| match Format::of(name) {
            Some(format) => Injection::As(format),
            None => Injection::Preserve,
        });
        Ok(Self {
            extract: record.texts("extract").filter_map(Format::of).collect(),
            clear: clear.collect::<Result<_, _>>()?,
            inject: inject.collect(),
            default,
        })
    }

    /// What the older fields say.
    fn legacy(config: Settings<'_>, default: Format, usual: Format) -> Self {
        let older = config.text("default_header_type").and_then(Format::of);
        let default = older.filter(|_| default == usual).unwrap_or(default);
        let all = || EXTRACT.iter().filter_map(|name| Format::of(name)).collect();
        let (extract, inject) = match config.text("header_type") {
            Some("ignore") => (Vec::new(), vec![Injection::As(default)]),
            Some(other) => {
                let also = Format::of(other).map(Injection::As);
                let inject = [Injection::Preserve].into_iter().chain(also);
                (all(), inject.collect())
            }
            None => (all(), vec![Injection::Preserve]),
        };
        Self {
            extract,
            clear: Vec::new(),
            inject,
            default,
        }
    }

    /// The context that these headers carry, in the first format that they have.
    pub(super) fn extract(&self, headers: &HeaderMap) -> Option<TraceContext> {
        self.extract
            .iter()
            .find_map(|format| format.extract(headers))
    }

    /// The formats that are written.
    fn formats(&self, context: &TraceContext) -> Vec<Format> {
        let mut formats = Vec::with_capacity(self.inject.len());
        for injection in &self.inject {
            let format = match injection {
                Injection::Preserve => context.format.unwrap_or(self.default),
                Injection::As(format) => *format,
            };
            if !formats.contains(&format) {
                formats.push(format);
            }
        }
        formats
    }

    /// The id of a trace in each format that is written.
    pub(super) fn ids(&self, context: &TraceContext) -> Vec<(&'static str, String)> {
        let formats = self.formats(context).into_iter();
        formats
            .map(|format| (format.name(), context.id_text(format)))
            .collect()
    }

    /// Writes the context for the upstream.
    pub(super) fn inject(&self, trace: &Trace, request: &mut RequestHeader) {
        for name in &self.clear {
            request.remove_header(name);
        }
        let out = Outgoing {
            span: trace.proxy,
            parent: trace.root,
            sampled: trace.sampled,
        };
        for format in self.formats(&trace.context) {
            format.inject(&trace.context, out, request);
        }
    }
}
