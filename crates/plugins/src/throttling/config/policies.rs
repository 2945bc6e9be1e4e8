//! Rate policies as they are written: `{"type": …, "config": {…}}`, or the
//! name of such an object.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::{Map, Value};

use super::limits::Limits;
use super::{error, expression, groovy, text_at_load};
use crate::chain::ObjectLookup;
use crate::throttling::policy::Policy;
use doorward_plugin_api::ConfigError;

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

/// Reads a rate policy.
pub(super) fn read(
    field: &str,
    value: &Value,
    limits: &mut Limits<'_>,
    named: ObjectLookup<'_>,
    depth: usize,
) -> Result<Policy, ConfigError> {
    if depth == MAX_DELEGATES {
        return Err(error(field, "delegates too often"));
    }
    let object = match value {
        Value::Object(object) => object,
        Value::String(name) => {
            let Some(object) = named(name) else {
                let message = format!(
                    "no object named '{name}' is known here: declare it, or write it in place as \
                     an inline object with `type` and `config`"
                );
                return Err(error(field, message));
            };
            return match object {
                Value::Object(_) => read(field, &object, limits, named, depth + 1),
                _ => Err(error(field, format!("'{name}' is not an object"))),
            };
        }
        Value::Null => return Err(error(field, "is required")),
        _ => {
            let message = "must be the name of a policy or an inline object with `type` and \
                           `config`";
            return Err(error(field, message));
        }
    };
    limits.known(field, object, &["name", "type", "config"]);
    let empty = Map::new();
    let inside = format!("{field}.config");
    let config = match object.get("config") {
        Some(Value::Object(config)) => config,
        None | Some(Value::Null) => &empty,
        Some(_) => return Err(error(inside, "must be an object")),
    };
    match object.get("type").and_then(Value::as_str) {
        Some("MappedThrottlingPolicy") => mapped(&inside, config, limits),
        Some("DefaultRateThrottlingPolicy") => {
            limits.known(
                &inside,
                config,
                &["delegateThrottlingRatePolicy", "defaultRate"],
            );
            let delegate = config.get("delegateThrottlingRatePolicy");
            let delegate_field = format!("{inside}.delegateThrottlingRatePolicy");
            let delegate = delegate.unwrap_or(&Value::Null);
            let delegate = read(&delegate_field, delegate, limits, named, depth + 1)?;
            let default = config.get("defaultRate").unwrap_or(&Value::Null);
            let default = limits.limit(&format!("{inside}.defaultRate"), default)?;
            Ok(Policy::WithDefault(Box::new(delegate), default))
        }
        Some("ExpressionThrottlingPolicy") => {
            limits.known(&inside, config, &["rate"]);
            by_expression(&format!("{inside}.rate"), config.get("rate"), limits)
        }
        Some("ScriptableThrottlingPolicy") => scriptable(&inside, config, limits),
        _ => Err(error(
            format!("{field}.type"),
            "must be `MappedThrottlingPolicy`, `DefaultRateThrottlingPolicy` or \
             `ExpressionThrottlingPolicy`",
        )),
    }
}

/// A script, where it is an expression, or a Groovy script that can be written
/// as one: nothing else is run here.
fn scriptable(
    field: &str,
    config: &Map<String, Value>,
    limits: &mut Limits<'_>,
) -> Result<Policy, ConfigError> {
    match config.get("type").and_then(Value::as_str) {
        Some(EXPRESSION) => {
            limits.known(field, config, &["type", "source"]);
            by_expression(&format!("{field}.source"), config.get("source"), limits)
        }
        Some(GROOVY) => {
            limits.known(field, config, &["type", "source", "file", "args"]);
            groovy(field, config, limits)
        }
        _ => {
            let message = format!(
                "must be `{GROOVY}`, for a script that only chooses a rate: {AS_EXPRESSION}"
            );
            Err(error(format!("{field}.type"), message))
        }
    }
}

/// A Groovy script that only compares and chooses, read as the expression that
/// says the same.
fn groovy(
    field: &str,
    config: &Map<String, Value>,
    limits: &Limits<'_>,
) -> Result<Policy, ConfigError> {
    let (place, script) = script(field, config, limits)?;
    let mut args = Map::new();
    for (name, value) in config
        .get("args")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
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

/// The text of a Groovy script, and the field that names it.
fn script(
    field: &str,
    config: &Map<String, Value>,
    limits: &Limits<'_>,
) -> Result<(String, String), ConfigError> {
    let source = format!("{field}.source");
    match (config.get("source"), config.get("file")) {
        (Some(Value::String(text)), None) => Ok((source, text.clone())),
        (Some(Value::Array(lines)), None) => {
            let lines: Option<Vec<&str>> = lines.iter().map(Value::as_str).collect();
            match lines {
                Some(lines) => Ok((source, lines.join("\n"))),
                None => Err(error(source, "must be a text or a list of texts")),
            }
        }
        (None, Some(Value::String(file))) => {
            let place = format!("{field}.file");
            let file =
                text_at_load(file, limits.constants).map_err(|message| error(&place, message))?;
            let instance = limits.constants.get("ig");
            let instance = instance.and_then(|ig| ig.pointer("/instance/dir")?.as_str());
            // Only route files name files: what is refused of one is told.
            let Some(instance) = instance else {
                let message = format!("give the script as `source`, or {AS_EXPRESSION}");
                return Err(error(place, message));
            };
            let path = Path::new(instance).join(SCRIPTS).join(&file);
            limits.constants.looks_at(&path);
            match bounded(&path) {
                Ok(text) => Ok((place, text)),
                Err(fault) => {
                    let message = format!(
                        "{} can't be read: {fault}. If it only chooses a rate, {AS_EXPRESSION}",
                        path.display()
                    );
                    Err(error(place, message))
                }
            }
        }
        _ => Err(error(source, "give either `source` or `file`")),
    }
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
    value: Option<&Value>,
    limits: &Limits<'_>,
) -> Result<Policy, ConfigError> {
    match value {
        Some(Value::String(text)) => Ok(Policy::Expression(expression(
            field,
            text,
            limits.constants,
        )?)),
        _ => {
            let message = "is required: an expression that gives a text such as `6/10 s`, or null";
            Err(error(field, message))
        }
    }
}

fn mapped(
    field: &str,
    config: &Map<String, Value>,
    limits: &mut Limits<'_>,
) -> Result<Policy, ConfigError> {
    let known = [
        "throttlingRateMapper",
        "throttlingRatesMapping",
        "defaultRate",
    ];
    limits.known(field, config, &known);
    let mapper_field = format!("{field}.throttlingRateMapper");
    let Some(Value::String(mapper)) = config.get("throttlingRateMapper") else {
        return Err(error(mapper_field, "is required and must be a text"));
    };
    let mapping_field = format!("{field}.throttlingRatesMapping");
    let empty = Map::new();
    let mapping = match config.get("throttlingRatesMapping") {
        Some(Value::Object(mapping)) if mapping.len() <= MAX_MAPPING => mapping,
        Some(Value::Object(_)) => {
            let message = format!("has more than {MAX_MAPPING} entries");
            return Err(error(mapping_field, message));
        }
        None | Some(Value::Null) => &empty,
        Some(_) => return Err(error(mapping_field, "must be an object")),
    };
    let mut mapped = HashMap::new();
    for (key, value) in mapping {
        let entry = format!("{mapping_field}.{key}");
        let key = text_at_load(key, limits.constants).map_err(|message| error(&entry, message))?;
        let limit = limits.limit(&entry, value)?;
        if mapped.insert(key.into_boxed_str(), limit).is_some() {
            return Err(error(entry, "is the same key as one before it"));
        }
    }
    let default = match config.get("defaultRate") {
        None | Some(Value::Null) => None,
        Some(value) => Some(limits.limit(&format!("{field}.defaultRate"), value)?),
    };
    Ok(Policy::Mapped {
        mapper: expression(&mapper_field, mapper, limits.constants)?,
        limits: mapped,
        default,
    })
}
