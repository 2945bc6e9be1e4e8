//! A filter asked of a record in memory: of the values of an attribute, by
//! PATCH, and of whole records, to check what the store finds.

#[cfg(test)]
use serde_json::Map;
use serde_json::Value;

use doorward_core::model::query::{Filter, Op, Operand};
use doorward_core::model::user::schema::{self, Attribute};

/// Whether one value of a multi-valued attribute satisfies `filter`, which
/// speaks of its sub-attributes.
pub(in crate::scim) fn element(filter: &Filter, value: &Value) -> bool {
    holds(filter, &mut |attribute| {
        let found = match value {
            Value::Object(members) => members.get(attribute.name()),
            plain if attribute.name() == "value" => Some(plain),
            _ => None,
        };
        found.into_iter().collect()
    })
}

/// Whether `filter` holds, given the values of each attribute.
fn holds<'a>(filter: &Filter, of: &mut impl FnMut(&Attribute) -> Vec<&'a Value>) -> bool {
    match filter {
        Filter::Always => true,
        Filter::Never => false,
        Filter::And(all) => all.iter().all(|one| holds(one, of)),
        Filter::Or(any) => any.iter().any(|one| holds(one, of)),
        Filter::Not(inner) => !holds(inner, of),
        Filter::Present(attribute) => of(attribute).into_iter().any(|value| !is_empty(value)),
        Filter::Compare(attribute, op, operand) => {
            let values = of(attribute);
            if values.is_empty() && *op == Op::NotEqual {
                return true;
            }
            let mut values = values.into_iter();
            values.any(|value| compares(attribute, *op, operand, value))
        }
        Filter::Element(attribute, inner) => {
            of(attribute).into_iter().any(|value| element(inner, value))
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.iter().all(is_empty),
        Value::Object(members) => members.values().all(is_empty),
        _ => false,
    }
}

fn compares(attribute: &Attribute, op: Op, operand: &Operand, value: &Value) -> bool {
    match operand {
        Operand::Text(wanted) => {
            let text = schema::comparable(attribute, value);
            text.is_some_and(|text| by_text(&text, op, wanted))
        }
        Operand::Instant(wanted) => {
            let instant = value.as_str().and_then(|text| {
                let parsed = chrono::DateTime::parse_from_rfc3339(text).ok()?;
                Some(parsed.timestamp_millis())
            });
            instant.is_some_and(|instant| by_order(instant.cmp(wanted), op))
        }
    }
}

fn by_text(text: &str, op: Op, wanted: &str) -> bool {
    match op {
        Op::Contains => text.contains(wanted),
        Op::StartsWith => text.starts_with(wanted),
        Op::EndsWith => text.ends_with(wanted),
        _ => by_order(text.cmp(wanted), op),
    }
}

fn by_order(order: std::cmp::Ordering, op: Op) -> bool {
    match op {
        Op::Equal | Op::Contains | Op::StartsWith | Op::EndsWith => order.is_eq(),
        Op::NotEqual => order.is_ne(),
        Op::Greater => order.is_gt(),
        Op::GreaterOrEqual => order.is_ge(),
        Op::Less => order.is_lt(),
        Op::LessOrEqual => order.is_le(),
    }
}

/// Whether a whole record, as it is shown, satisfies `filter`.
#[cfg(test)]
pub(crate) fn record(filter: &Filter, record: &Map<String, Value>) -> bool {
    holds(filter, &mut |attribute| values(record, attribute))
}

/// The values of an attribute in a record as it is shown.
#[cfg(test)]
fn values<'a>(record: &'a Map<String, Value>, attribute: &Attribute) -> Vec<&'a Value> {
    let mut parts = attribute.path.split('.');
    let top = parts.next().and_then(schema::find);
    let Some(top) = top.and_then(|top| record.get(top.name())) else {
        return Vec::new();
    };
    let many = |value: &'a Value| match value {
        Value::Array(values) => values.iter().collect(),
        value => vec![value],
    };
    let mut found: Vec<&Value> = many(top);
    for part in parts {
        let inside = found.into_iter().filter_map(|value| match value {
            Value::Object(members) => members.get(part),
            plain if part == "value" => Some(plain),
            _ => None,
        });
        found = inside.collect();
    }
    found
}
