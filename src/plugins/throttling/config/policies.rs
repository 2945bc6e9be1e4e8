//! Rate policies as they are written: `{"type": …, "config": {…}}`, or the
//! name of such an object.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::limits::Limits;
use super::{error, expression, text_at_load};
use crate::plugins::ConfigError;
use crate::plugins::chain::Named;
use crate::plugins::throttling::policy::Policy;

/// Rate policies that may delegate or refer to one another.
const MAX_DELEGATES: usize = 8;
/// Entries of a rate mapping.
const MAX_MAPPING: usize = 10_000;
/// What a script is in, where it is an expression.
const EXPRESSION: &str = "application/x-expression";

/// Reads a rate policy.
pub(super) fn read(
    field: &str,
    value: &Value,
    limits: &mut Limits<'_>,
    named: Named<'_>,
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

/// A script, where it is an expression: nothing else is run here.
fn scriptable(
    field: &str,
    config: &Map<String, Value>,
    limits: &mut Limits<'_>,
) -> Result<Policy, ConfigError> {
    if config.get("type").and_then(Value::as_str) != Some(EXPRESSION) {
        let message = format!(
            "scripts (Groovy, files) are not supported: write the choice as an expression, with \
             the type `{EXPRESSION}` and a `source` such as `${{request.method == 'GET' ? '60/1 \
             min' : '6/1 min'}}`"
        );
        return Err(error(format!("{field}.type"), message));
    }
    limits.known(field, config, &["type", "source"]);
    by_expression(&format!("{field}.source"), config.get("source"), limits)
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
