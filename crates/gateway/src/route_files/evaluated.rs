//! Properties that are expressions, on other properties for instance.

use serde_json::{Map, Value};

use super::build_context::BuildContext;
use super::properties::Fault;
use doorward_core::yaml::PathSegment;
use doorward_expr::{self as expr, Constants, Expression};

/// Most that the expressions of a file's properties come to, in bytes.
const MAX_RESULTS: usize = 1 << 20;

/// Puts in place of the expressions among `declared`, whose tokens are
/// resolved, what they come to; `outer` are the values around them. What
/// depends on a request stays a text: a token takes it to where there is one.
pub(super) fn evaluate(
    declared: &mut Map<String, Value>,
    outer: &Map<String, Value>,
    context: &BuildContext<'_>,
    faults: &mut Vec<Fault>,
) {
    let mut waiting: Vec<String> = declared
        .iter()
        .filter(|(_, value)| has_expression(value))
        .map(|(name, _)| name.clone())
        .collect();
    let mut room = MAX_RESULTS;
    // Each round settles what depends on nothing that still waits.
    while !waiting.is_empty() {
        let known = known(declared, outer, &waiting, context);
        let before = waiting.len();
        waiting.retain(|name| {
            let mut value = declared[name].clone();
            let outcome = settle(&mut value, &known, &mut room);
            let settled = matches!(outcome, Ok(true));
            if settled {
                declared.insert(name.clone(), value);
            }
            !settled
        });
        if waiting.len() == before || room == 0 {
            break;
        }
    }
    // With the texts of those that wait there is no unknown name any more.
    let all = known(declared, outer, &[], context);
    for name in waiting {
        let message = match settle(&mut declared[&name].clone(), &all, &mut room) {
            Ok(false) => continue, // is for requests
            Ok(true) => "refers to itself through other properties".to_owned(),
            Err(message) => message,
        };
        faults.push((
            vec!["properties".into(), PathSegment::from(name.as_str())],
            message,
        ));
    }
}

/// The values that expressions may use: all but those that still wait.
fn known(
    declared: &Map<String, Value>,
    outer: &Map<String, Value>,
    waiting: &[String],
    context: &BuildContext<'_>,
) -> Constants {
    let mut values = outer.clone();
    values.extend(declared.clone());
    values.retain(|name, _| !waiting.contains(name));
    Constants::new(values)
        .with_files()
        .witnessed(context.witness())
}

fn has_expression(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains("${") || text.contains("#{"),
        Value::Array(list) => list.iter().any(has_expression),
        Value::Object(map) => map.values().any(has_expression),
        _ => false,
    }
}

/// Evaluates every text of `value`; false if one depends on a request.
fn settle(value: &mut Value, known: &Constants, room: &mut usize) -> Result<bool, String> {
    match value {
        Value::String(text) if has_expression(&Value::String(text.clone())) => {
            let expression = Expression::compile_with(text, known).map_err(|e| e.to_string())?;
            let Some(constant) = expression.constant() else {
                return Ok(false);
            };
            let constant = json(&constant).ok_or("comes to neither JSON nor a text")?;
            let size = constant.to_string().len();
            *room = room.checked_sub(size).ok_or_else(|| {
                *room = 0;
                format!("the properties of a file come to more than {MAX_RESULTS} bytes")
            })?;
            *value = constant;
            Ok(true)
        }
        Value::Array(list) => list.iter_mut().try_fold(true, |all, item| {
            settle(item, known, room).map(|settled| all && settled)
        }),
        Value::Object(map) => map.values_mut().try_fold(true, |all, item| {
            settle(item, known, room).map(|settled| all && settled)
        }),
        _ => Ok(true),
    }
}

fn json(value: &expr::Value<'_>) -> Option<Value> {
    use expr::Value as V;
    Some(match value {
        V::Null => Value::Null,
        V::Bool(b) => (*b).into(),
        V::Integer(n) => (*n).into(),
        V::Float(n) => (*n).into(),
        V::Text(text) => text.as_ref().into(),
        V::List(list) => Value::Array(list.iter().map(json).collect::<Option<_>>()?),
        V::Texts(texts) => texts.iter().map(String::as_str).collect(),
        V::Array(list) => Value::Array(list.to_vec()),
        V::Map(map) => Value::Object(map.clone().into_owned()),
        V::Bytes(_) | V::Object(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::build_context::testing;
    use super::*;

    fn evaluated(declared: &Value) -> (Value, Vec<String>) {
        let context = testing::context(&|_| None);
        let mut declared = declared.as_object().expect("an object").clone();
        let outer = json!({"domain": "example.com"});
        let outer = outer.as_object().expect("an object");
        let mut faults = Vec::new();
        evaluate(&mut declared, outer, &context, &mut faults);
        let messages = faults.into_iter().map(|(_, message)| message).collect();
        (Value::Object(declared), messages)
    }

    #[test]
    fn properties_may_be_expressions_on_others_in_any_order() {
        let (values, faults) = evaluated(&json!({
            "appLocation": "https://${host}:${ports[1]}",
            "host": "app.${domain}",
            "ports": [8444, 8445],
            "group": {"n": "${integer('6')}", "plain": "x"},
        }));
        assert!(faults.is_empty(), "{faults:?}");
        assert_eq!(values["appLocation"], "https://app.example.com:8445");
        assert_eq!(values["group"], json!({"n": 6, "plain": "x"}));
    }

    #[test]
    fn what_depends_on_a_request_stays_for_where_there_is_one() {
        let (values, faults) = evaluated(&json!({"cond": "${request.method == 'GET'}"}));
        assert!(faults.is_empty(), "{faults:?}");
        assert_eq!(values["cond"], "${request.method == 'GET'}");
    }

    #[test]
    fn circles_unknown_names_and_bombs_are_refused() {
        let (_, faults) = evaluated(&json!({"a": "${b}", "b": "x${a}"}));
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].contains("refers to itself"), "{faults:?}");
        let (_, faults) = evaluated(&json!({"a": "${nowhere}"}));
        assert!(faults[0].contains("nowhere"), "{faults:?}");
        let mut bomb = Map::new();
        bomb.insert("p0".to_owned(), "x".repeat(1000).into());
        for i in 1..60 {
            let before = i - 1;
            bomb.insert(
                format!("p{i}"),
                format!("${{p{before}}}${{p{before}}}").into(),
            );
        }
        let (_, faults) = evaluated(&Value::Object(bomb));
        assert!(!faults.is_empty());
    }
}
