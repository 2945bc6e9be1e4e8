//! Which headers a trace is read from, and which it is written to.

use http::{HeaderMap, HeaderName};
use serde_json::Value;
use smallvec::SmallVec;

use super::Trace;
use super::context::{Format, Outgoing, TraceContext, is_of_trace};
use crate::settings::{with_default, wrong};
use doorward_core::model::schema::{Schema, Type};
use doorward_plugin_api::config::FieldValue;
use doorward_plugin_api::{ConfigError, config};

/// The formats that are read, as `extract` names them.
const EXTRACT: &[&str] = &["b3", "w3c", "jaeger", "ot", "datadog", "aws", "gcp"];
/// The same: all that are read where nothing is said.
const ALL: [Format; 7] = [
    Format::B3,
    Format::W3c,
    Format::Jaeger,
    Format::Ot,
    Format::Datadog,
    Format::Aws,
    Format::Gcp,
];
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

config! {
    /// The record `propagation`.
    #[derive(Debug)]
    pub(super) struct PropagationConfig {
        /// Formats that are read. The first that a request has counts.
        #[field(kind(Type::array(Type::word(EXTRACT))))]
        extract: Option<Vec<Format>>,
        /// Headers that are taken away before others are written.
        clear: Option<Vec<String>>,
        /// Formats that are written. preserve: the one that was read.
        inject: Option<Vec<Injection>>,
        /// The format that preserve means where none was read.
        #[field(required)]
        default_format: Format,
    }
}

/// The type of the field `propagation`, whose format by default is this word.
pub(super) fn propagation_type(default: &str) -> Type {
    let fields = with_default(PropagationConfig::fields(), "default_format", default);
    Type::Record(Schema::new(fields))
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Injection {
    /// The format that was read, or else the one by default.
    Preserve,
    As(Format),
}

impl FieldValue for Injection {
    fn kind() -> Type {
        Type::word(INJECT)
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        match value.as_str() {
            Some("preserve") => Ok(Self::Preserve),
            _ => <Format as FieldValue>::read(value).map(Self::As),
        }
    }
}

/// What the older field `header_type` says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum HeaderType {
    /// Nothing is read, and the format by default is written.
    Ignore,
    /// All formats are read, and the one that was read is written, and this one.
    Also(Injection),
}

impl FieldValue for HeaderType {
    fn kind() -> Type {
        Type::word(HEADER_TYPES)
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        match value.as_str() {
            Some("ignore") => Ok(Self::Ignore),
            _ => <Injection as FieldValue>::read(value).map(Self::Also),
        }
    }
}

/// The formats that a trace goes on in: mostly one.
pub(super) type Formats = SmallVec<[Format; 4]>;

/// Which formats are read and written.
#[derive(Debug)]
pub(super) struct Propagation {
    extract: Vec<Format>,
    clear: Vec<HeaderName>,
    inject: Vec<Injection>,
    default: Format,
}

impl Propagation {
    /// What the record says, or else the older fields. `usual` is the format by default
    /// of a record that says nothing.
    pub(super) fn new(
        config: PropagationConfig,
        (header_type, older_default): (HeaderType, Option<Format>),
        usual: Format,
    ) -> Result<Self, ConfigError> {
        let default = config.default_format;
        if config.extract.is_none() && config.clear.is_none() && config.inject.is_none() {
            let older = older_default.filter(|_| default == usual);
            return Ok(Self::legacy(header_type, older.unwrap_or(default)));
        }
        let clear = config.clear.unwrap_or_default().into_iter().map(|name| {
            let name = HeaderName::try_from(name);
            name.map_err(|_| wrong("propagation.clear", "expected names of headers"))
        });
        Ok(Self {
            extract: config.extract.unwrap_or_default(),
            clear: clear.collect::<Result<_, _>>()?,
            inject: config.inject.unwrap_or_default(),
            default,
        })
    }

    /// What the older field says.
    fn legacy(header_type: HeaderType, default: Format) -> Self {
        let (extract, inject) = match header_type {
            HeaderType::Ignore => (Vec::new(), vec![Injection::As(default)]),
            HeaderType::Also(also) => (ALL.to_vec(), vec![Injection::Preserve, also]),
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
        if !headers.keys().any(is_of_trace) {
            return None;
        }
        self.extract
            .iter()
            .find_map(|format| format.extract(headers))
    }

    /// The formats that are written.
    pub(super) fn formats(&self, context: &TraceContext) -> Formats {
        let mut formats = Formats::new();
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

    /// Writes the context for the upstream.
    pub(super) fn inject(&self, trace: &Trace, headers: &mut HeaderMap) {
        let out = Outgoing {
            span: trace.proxy,
            parent: trace.root,
            sampled: trace.sampled,
        };
        for name in &self.clear {
            headers.remove(name);
        }
        for format in &trace.formats {
            format.inject(&trace.context, out, headers);
        }
    }
}
