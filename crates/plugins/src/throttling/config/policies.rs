//! Rate policies as they are written: `{"type": …, "config": {…}}`, or the
//! name of such an object.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::{Map, Value};

use super::limits::Limits;
use super::values::{IS_REQUIRED, LimitValue, others, wrong};
use super::{error, expression, groovy, text_at_load};
use crate::chain::ObjectLookup;
use crate::throttling::policy::Policy;
use doorward_core::model::schema::{Field, Type};
use doorward_plugin_api::config::FieldValue;
use doorward_plugin_api::{ConfigError, config};

/// Rate policies that may delegate or refer to one another.
const MAX_DELEGATES: usize = 8;
/// Entries of a rate mapping.
const MAX_MAPPING: usize = 10_000;
/// What a script is in, where it is an expression.
const EXPRESSION: &str = "application/x-expression";
/// What a script is in, where it is read and written as an expression.
const GROOVY: &str = "application/x-groovy";
/// Where files of scripts lie, in the directory of the gateway.
const SCRIPTS: &str = "scripts/groovy";
/// What to do about a script that is not read.
const AS_EXPRESSION: &str = "write the choice as an expression, with the type \
     `application/x-expression` and a `source` such as `${request.method == 'GET' ? '60/1 min' : \
     '6/1 min'}`";

/// What is said of an expression for rates that there is not.
const NO_EXPRESSION: &str =
    "is required: an expression that gives a text such as `6/10 s`, or null";

/// A policy as it is written.
pub(super) enum PolicyValue {
    Named(String),
    Inline(Map<String, Value>),
}

/// A policy by its type.
struct InlinePolicy {
    kind: PolicyKind,
    /// Keys that have no effect: beside `config`, and in it.
    others: [Vec<String>; 2],
}

enum PolicyKind {
    Mapped(MappedConfig),
    WithDefault(DefaultRateConfig),
    ByExpression(ExpressionConfig),
    ExpressionScript(ExpressionScript),
    Groovy(GroovyScript),
}

config! {
    /// A policy in place.
    struct Declaration {
        _name as "name": Value,
        kind as "type": Value,
        config: Options,
    }
}

config! {
    /// Of a `MappedThrottlingPolicy`.
    struct MappedConfig {
        mapper as "throttlingRateMapper": Mapper,
        mapping as "throttlingRatesMapping": Mapping,
        default as "defaultRate": Option<LimitValue>,
    }
}

config! {
    /// Of a `DefaultRateThrottlingPolicy`.
    struct DefaultRateConfig {
        delegate as "delegateThrottlingRatePolicy": PolicyValue,
        default as "defaultRate": LimitValue,
    }
}

config! {
    /// Of an `ExpressionThrottlingPolicy`.
    struct ExpressionConfig {
        rate: RateExpression,
    }
}

config! {
    /// What a script is in.
    struct ScriptType {
        kind as "type": Value,
    }
}

config! {
    /// A script that is an expression.
    struct ExpressionScript {
        _script as ..: ScriptType,
        source: RateExpression,
    }
}

config! {
    /// A script that can be read as an expression.
    struct GroovyScript {
        _script as ..: ScriptType,
        source: Value,
        file: Value,
        args: Value,
    }
}

/// The `config` of a policy: empty, if it is absent.
struct Options(Map<String, Value>);

impl FieldValue for Options {
    fn kind() -> Type {
        Type::Any
    }

    fn of_null(_default: Option<&Value>) -> Option<Self> {
        Some(Self(Map::new()))
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let options = value.as_object().cloned();
        options.map(Self).ok_or_else(|| wrong("must be an object"))
    }
}

/// The expression for what rates are mapped by.
struct Mapper(String);

impl FieldValue for Mapper {
    fn kind() -> Type {
        Type::Any
    }

    fn missing() -> &'static str {
        "is required and must be a text"
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let text = value.as_str().ok_or_else(|| wrong(Self::missing()))?;
        Ok(Self(text.to_owned()))
    }
}

/// The expression for rates themselves.
struct RateExpression(String);

impl FieldValue for RateExpression {
    fn kind() -> Type {
        Type::Any
    }

    fn missing() -> &'static str {
        NO_EXPRESSION
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let text = value.as_str().ok_or_else(|| wrong(Self::missing()))?;
        Ok(Self(text.to_owned()))
    }
}

/// What a mapper gives, and the rates for it.
struct Mapping(Vec<(String, LimitValue)>);

impl FieldValue for Mapping {
    fn kind() -> Type {
        Type::Any
    }

    fn of_null(_default: Option<&Value>) -> Option<Self> {
        Some(Self(Vec::new()))
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let mapping = value
            .as_object()
            .ok_or_else(|| wrong("must be an object"))?;
        if mapping.len() > MAX_MAPPING {
            return Err(wrong(format!("has more than {MAX_MAPPING} entries")));
        }
        let entries = mapping.iter().map(|(key, value)| {
            let limit = LimitValue::read(value).map_err(|error| error.within(key))?;
            Ok((key.clone(), limit))
        });
        entries.collect::<Result<_, _>>().map(Self)
    }
}

impl FieldValue for PolicyValue {
    fn kind() -> Type {
        Type::Any
    }

    fn missing() -> &'static str {
        IS_REQUIRED
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        match value {
            Value::Object(object) => Ok(Self::Inline(object.clone())),
            Value::String(name) => Ok(Self::Named(name.clone())),
            _ => Err(wrong(
                "must be the name of a policy or an inline object with `type` and `config`",
            )),
        }
    }
}

impl InlinePolicy {
    fn read(object: &Map<String, Value>) -> Result<Self, ConfigError> {
        let declared = Declaration::read(object)?;
        let options = &declared.config.0;
        let kind = match declared.kind.as_str() {
            Some("MappedThrottlingPolicy") => MappedConfig::read(options).map(PolicyKind::Mapped),
            Some("DefaultRateThrottlingPolicy") => {
                DefaultRateConfig::read(options).map(PolicyKind::WithDefault)
            }
            Some("ExpressionThrottlingPolicy") => {
                ExpressionConfig::read(options).map(PolicyKind::ByExpression)
            }
            Some("ScriptableThrottlingPolicy") => script(options),
            _ => {
                let message = "must be `MappedThrottlingPolicy`, `DefaultRateThrottlingPolicy` or \
                               `ExpressionThrottlingPolicy`";
                return Err(error("type", message));
            }
        };
        let kind = kind.map_err(|error| error.within("config"))?;
        Ok(Self {
            others: [
                others(object, &Declaration::fields()),
                others(options, &kind.fields()),
            ],
            kind,
        })
    }

    fn compiled(
        &self,
        field: &str,
        limits: &mut Limits<'_>,
        named: ObjectLookup<'_>,
        depth: usize,
    ) -> Result<Policy, ConfigError> {
        let inside = format!("{field}.config");
        limits.warn_of(field, &self.others[0]);
        limits.warn_of(&inside, &self.others[1]);
        match &self.kind {
            PolicyKind::Mapped(mapped) => mapped.compiled(&inside, limits),
            PolicyKind::WithDefault(policy) => {
                let delegate = format!("{inside}.delegateThrottlingRatePolicy");
                let delegate = policy
                    .delegate
                    .compiled(&delegate, limits, named, depth + 1)?;
                let default = limits.limit(&format!("{inside}.defaultRate"), &policy.default)?;
                Ok(Policy::WithDefault(Box::new(delegate), default))
            }
            PolicyKind::ByExpression(policy) => {
                by_expression(&format!("{inside}.rate"), &policy.rate, limits)
            }
            PolicyKind::ExpressionScript(script) => {
                by_expression(&format!("{inside}.source"), &script.source, limits)
            }
            PolicyKind::Groovy(script) => script.compiled(&inside, limits),
        }
    }
}

impl PolicyKind {
    fn fields(&self) -> Vec<Field> {
        match self {
            Self::Mapped(_) => MappedConfig::fields(),
            Self::WithDefault(_) => DefaultRateConfig::fields(),
            Self::ByExpression(_) => ExpressionConfig::fields(),
            Self::ExpressionScript(_) => ExpressionScript::fields(),
            Self::Groovy(_) => GroovyScript::fields(),
        }
    }
}

impl PolicyValue {
    /// The policy that is written at `field`, behind `depth` others.
    pub(super) fn compiled(
        &self,
        field: &str,
        limits: &mut Limits<'_>,
        named: ObjectLookup<'_>,
        depth: usize,
    ) -> Result<Policy, ConfigError> {
        if depth == MAX_DELEGATES {
            return Err(error(field, "delegates too often"));
        }
        let name = match self {
            Self::Inline(object) => {
                let policy = InlinePolicy::read(object);
                let policy = policy.map_err(|error| error.within(field))?;
                return policy.compiled(field, limits, named, depth);
            }
            Self::Named(name) => name,
        };
        match named(name) {
            Some(Value::Object(object)) => {
                Self::Inline(object).compiled(field, limits, named, depth + 1)
            }
            Some(_) => Err(error(field, format!("'{name}' is not an object"))),
            None => {
                let message = format!(
                    "no object named '{name}' is known here: declare it, or write it in place as \
                     an inline object with `type` and `config`"
                );
                Err(error(field, message))
            }
        }
    }
}

/// A script, where it is an expression, or a Groovy script that can be written
/// as one: nothing else is run here.
fn script(options: &Map<String, Value>) -> Result<PolicyKind, ConfigError> {
    match ScriptType::read(options)?.kind.as_str() {
        Some(EXPRESSION) => ExpressionScript::read(options).map(PolicyKind::ExpressionScript),
        Some(GROOVY) => GroovyScript::read(options).map(PolicyKind::Groovy),
        _ => {
            let message = format!(
                "must be `{GROOVY}`, for a script that only chooses a rate: {AS_EXPRESSION}"
            );
            Err(error("type", message))
        }
    }
}

impl GroovyScript {
    /// A Groovy script that only compares and chooses, read as the expression that
    /// says the same.
    fn compiled(&self, field: &str, limits: &Limits<'_>) -> Result<Policy, ConfigError> {
        let (place, script) = self.text(field, limits)?;
        let mut args = Map::new();
        for (name, value) in self.args.as_object().into_iter().flatten() {
            let value = match value {
                Value::String(text) => {
                    let text = text_at_load(text, limits.constants);
                    let field = format!("{field}.args.{name}");
                    Value::String(text.map_err(|message| error(field, message))?)
                }
                value => value.clone(),
            };
            args.insert(name.clone(), value);
        }
        let refused = |message: String| {
            let message = format!("{message}. Scripts are read, never run: {AS_EXPRESSION}");
            error(&place, message)
        };
        let text = groovy::translated(&script, &args)
            .map_err(|unread| refused(format!("line {}: {}", unread.line, unread.what)))?;
        match expression(&place, &text, limits.constants) {
            Ok(read) => Ok(Policy::Expression(read)),
            Err(fault) => Err(refused(format!("as the expression `{text}`: {fault}"))),
        }
    }

    /// The text of the script, and the field that names it.
    fn text(&self, field: &str, limits: &Limits<'_>) -> Result<(String, String), ConfigError> {
        let source = format!("{field}.source");
        match (&self.source, &self.file) {
            (Value::String(text), Value::Null) => Ok((source, text.clone())),
            (Value::Array(lines), Value::Null) => {
                let lines: Option<Vec<&str>> = lines.iter().map(Value::as_str).collect();
                match lines {
                    Some(lines) => Ok((source, lines.join("\n"))),
                    None => Err(error(source, "must be a text or a list of texts")),
                }
            }
            (Value::Null, Value::String(file)) => {
                let place = format!("{field}.file");
                let text = from_file(&place, file, limits)?;
                Ok((place, text))
            }
            _ => Err(error(source, "give either `source` or `file`")),
        }
    }
}

/// The text of a file of scripts.
fn from_file(place: &str, file: &str, limits: &Limits<'_>) -> Result<String, ConfigError> {
    let file = text_at_load(file, limits.constants).map_err(|message| error(place, message))?;
    let instance = limits.constants.get("ig");
    let instance = instance.and_then(|ig| ig.pointer("/instance/dir")?.as_str());
    // Only route files name files: what is refused of one is told.
    let Some(instance) = instance else {
        let message = format!("give the script as `source`, or {AS_EXPRESSION}");
        return Err(error(place, message));
    };
    let path = Path::new(instance).join(SCRIPTS).join(&file);
    limits.constants.looks_at(&path);
    bounded(&path).map_err(|fault| {
        let message = format!(
            "{} can't be read: {fault}. If it only chooses a rate, {AS_EXPRESSION}",
            path.display()
        );
        error(place, message)
    })
}

/// The text of a file that is no longer than a script may be.
fn bounded(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let most = u64::try_from(groovy::MAX_SCRIPT).unwrap_or(u64::MAX);
    File::open(path)?
        .take(most.saturating_add(1))
        .read_to_string(&mut text)?;
    Ok(text)
}

fn by_expression(
    field: &str,
    rate: &RateExpression,
    limits: &Limits<'_>,
) -> Result<Policy, ConfigError> {
    expression(field, &rate.0, limits.constants).map(Policy::Expression)
}

impl MappedConfig {
    fn compiled(&self, field: &str, limits: &mut Limits<'_>) -> Result<Policy, ConfigError> {
        let mut mapped = HashMap::new();
        for (key, limit) in &self.mapping.0 {
            let entry = format!("{field}.throttlingRatesMapping.{key}");
            let key =
                text_at_load(key, limits.constants).map_err(|message| error(&entry, message))?;
            let limit = limits.limit(&entry, limit)?;
            if mapped.insert(key.into_boxed_str(), limit).is_some() {
                return Err(error(entry, "is the same key as one before it"));
            }
        }
        let default = self.default.as_ref();
        let default = default.map(|rate| limits.limit(&format!("{field}.defaultRate"), rate));
        let mapper = format!("{field}.throttlingRateMapper");
        Ok(Policy::Mapped {
            default: default.transpose()?,
            mapper: expression(&mapper, &self.mapper.0, limits.constants)?,
            limits: mapped,
        })
    }
}
