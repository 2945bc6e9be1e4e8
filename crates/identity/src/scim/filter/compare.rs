//! What a comparison in a filter means, by the type of the attribute.

use chrono::DateTime;
use serde_json::Value;

use doorward_core::model::query::{Filter, Op, Operand};
use doorward_core::model::user::name;
use doorward_core::model::user::schema::{self, Attribute, Schema, Type};

use super::Target;

pub(super) fn op(word: &str) -> Option<Op> {
    let ops = [
        ("eq", Op::Equal),
        ("ne", Op::NotEqual),
        ("co", Op::Contains),
        ("sw", Op::StartsWith),
        ("ew", Op::EndsWith),
        ("gt", Op::Greater),
        ("ge", Op::GreaterOrEqual),
        ("lt", Op::Less),
        ("le", Op::LessOrEqual),
    ];
    let found = ops.iter().find(|(name, _)| word.eq_ignore_ascii_case(name));
    found.map(|(_, op)| *op)
}

pub(super) fn is_operator(word: &str) -> bool {
    word.eq_ignore_ascii_case("pr") || op(word).is_some()
}

/// Why a comparison makes no sense; `true`: the operator is at fault, else the
/// value.
pub(super) struct ComparisonError(pub(super) bool, pub(super) &'static str);

pub(super) fn compare(
    schema: &Schema,
    target: Target,
    op: Op,
    value: &Value,
) -> Result<Filter, ComparisonError> {
    let attribute = match target {
        Target::Known(attribute) => attribute,
        // Without a value nothing is true of it but being different.
        Target::Unknown => {
            let differs = (op == Op::NotEqual) != value.is_null();
            let equal_to_none = op == Op::Equal && value.is_null();
            return Ok(if (op == Op::NotEqual && differs) || equal_to_none {
                Filter::Always
            } else {
                Filter::Never
            });
        }
    };
    if value.is_null() {
        let present = Filter::Present(attribute);
        return match op {
            Op::Equal => Ok(Filter::Not(Box::new(present))),
            Op::NotEqual => Ok(present),
            _ => Err(ComparisonError(
                true,
                "null can only be compared by eq and ne",
            )),
        };
    }
    let attribute = match attribute.kind {
        Type::ComplexMany => schema
            .part(attribute, "value")
            .ok_or(ComparisonError(true, "name a sub-attribute to compare"))?,
        Type::Complex => return Err(ComparisonError(true, "name a sub-attribute to compare")),
        Type::Free => return Err(ComparisonError(true, "it can only be asked for by pr")),
        // It has the address in it under which the client came.
        _ if is_address(attribute) => return Err(ComparisonError(true, "compare the id instead")),
        _ => attribute,
    };
    let operand = operand(attribute, op, value)?;
    Ok(Filter::Compare(attribute, op, operand))
}

fn operand(attribute: &Attribute, op: Op, value: &Value) -> Result<Operand, ComparisonError> {
    let by_text = matches!(op, Op::Contains | Op::StartsWith | Op::EndsWith);
    match attribute.kind {
        Type::Boolean => {
            if !matches!(op, Op::Equal | Op::NotEqual) {
                return Err(ComparisonError(
                    true,
                    "true and false can only be compared by eq and ne",
                ));
            }
            let flag = match value {
                Value::Bool(flag) => Some(*flag),
                Value::String(text) => text.to_ascii_lowercase().parse().ok(),
                _ => None,
            };
            let flag = flag.ok_or(ComparisonError(false, "expected true or false"))?;
            Ok(Operand::Text(flag.to_string()))
        }
        Type::Instant => {
            if by_text {
                return Err(ComparisonError(
                    true,
                    "instants can't be compared by co, sw and ew",
                ));
            }
            let instant = value
                .as_str()
                .and_then(|text| DateTime::parse_from_rfc3339(text).ok());
            let instant = instant.ok_or(ComparisonError(
                false,
                "expected an instant like \"2026-01-31T12:00:00Z\"",
            ))?;
            Ok(Operand::Instant(instant.timestamp_millis()))
        }
        // The whole of a name is looked up as one that signs in.
        _ if attribute.path == "userName" && matches!(op, Op::Equal | Op::NotEqual) => value
            .as_str()
            .map(|text| Operand::Text(name::key(text)))
            .ok_or(ComparisonError(false, "expected a string in double quotes")),
        _ => schema::comparable(attribute, value)
            .map(Operand::Text)
            .ok_or(ComparisonError(false, "expected a string in double quotes")),
    }
}

/// Whether its value is an address that is made for each answer.
fn is_address(attribute: &Attribute) -> bool {
    ["meta.location", "groups.$ref", "members.$ref"].contains(&attribute.path)
}
