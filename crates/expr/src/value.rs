//! Values of expressions, and how they convert and compare.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::{Map, Value as Json};

use super::context::Object;
use super::parse::Binary;

/// What an expression evaluates to; borrows from the request where it can.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// Missing, or what evaluation that failed comes to.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number with a fraction.
    Float(f64),
    /// A text.
    Text(Cow<'a, str>),
    /// Bytes that are no text, a digest for instance.
    Bytes(Cow<'a, [u8]>),
    /// A list.
    List(Vec<Value<'a>>),
    /// A list of texts.
    Texts(&'a [String]),
    /// A list inside claims, constants or JSON.
    Array(Cow<'a, [Json]>),
    /// An object of JSON, or all claims.
    Map(Cow<'a, Map<String, Json>>),
    /// A part of the context that is not a plain value, the headers for
    /// instance.
    Object(Object),
}

/// A number as arithmetic sees it.
#[derive(Clone, Copy)]
pub(super) enum Number {
    Integer(i64),
    Float(f64),
}

impl<'a> Value<'a> {
    /// The value of a claim.
    pub(super) fn of_json(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(b) => Self::Bool(*b),
            Json::Number(n) => match (n.as_i64(), n.as_f64()) {
                (Some(n), _) => Self::Integer(n),
                (None, Some(n)) => Self::Float(n),
                (None, None) => Self::Null,
            },
            Json::String(text) => Self::borrowed_text(text),
            Json::Array(list) => Self::Array(Cow::Borrowed(list)),
            Json::Object(map) => Self::Map(Cow::Borrowed(map)),
        }
    }

    /// The value of JSON that nobody else needs.
    pub fn of_owned_json(json: Json) -> Self {
        match json {
            Json::String(text) => Self::owned_text(text),
            Json::Array(list) => Self::Array(Cow::Owned(list)),
            Json::Object(map) => Self::Map(Cow::Owned(map)),
            plain => Value::of_json(&plain).into_owned(),
        }
    }

    pub(super) fn borrowed_text(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }

    /// A text that was made here.
    pub(super) fn owned_text(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }

    /// The same value, borrowing from this one.
    pub(super) fn by_ref(&'a self) -> Self {
        match self {
            Self::Text(text) => Self::borrowed_text(text),
            Self::Array(list) => Self::Array(Cow::Borrowed(list)),
            Self::Map(map) => Self::Map(Cow::Borrowed(map)),
            Self::Bytes(bytes) => Self::Bytes(Cow::Borrowed(bytes)),
            Self::List(list) => Self::List(list.iter().map(Value::by_ref).collect()),
            other => other.clone(),
        }
    }

    /// The value without a borrow; what only exists inside a request is null.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Self::Null | Self::Object(_) => Value::Null,
            Self::Array(list) => Value::Array(Cow::Owned(list.into_owned())),
            Self::Map(map) => Value::Map(Cow::Owned(map.into_owned())),
            Self::Bool(b) => Value::Bool(b),
            Self::Integer(n) => Value::Integer(n),
            Self::Float(n) => Value::Float(n),
            Self::Text(text) => Value::Text(Cow::Owned(text.into_owned())),
            Self::Bytes(bytes) => Value::Bytes(Cow::Owned(bytes.into_owned())),
            Self::Texts(list) => {
                let list = list.iter().map(|text| Value::owned_text(text.clone()));
                Value::List(list.collect())
            }
            Self::List(list) => Value::List(list.into_iter().map(Value::into_owned).collect()),
        }
    }

    /// A plain value as a text: null is the empty text; `None` for what is not
    /// plain.
    pub(super) fn into_text(self) -> Option<Cow<'a, str>> {
        match self {
            Self::Null => Some(Cow::Borrowed("")),
            Self::Text(text) => Some(text),
            Self::Bool(b) => Some(Cow::Borrowed(if b { "true" } else { "false" })),
            Self::Integer(n) => Some(Cow::Owned(n.to_string())),
            Self::Float(n) => Some(Cow::Owned(float(n))),
            Self::Bytes(_)
            | Self::List(_)
            | Self::Texts(_)
            | Self::Array(_)
            | Self::Map(_)
            | Self::Object(_) => None,
        }
    }

    /// The value as a condition: null is false, of texts only `true` (in any
    /// case) is true; what is no condition gives `None`.
    pub(super) fn truth(&self) -> Option<bool> {
        match self {
            Self::Null => Some(false),
            Self::Bool(b) => Some(*b),
            Self::Text(text) => Some(text.eq_ignore_ascii_case("true")),
            _ => None,
        }
    }

    /// The value as a number: null and the empty text are zero, other texts
    /// are read; what is no number gives `None`.
    pub(super) fn number(&self) -> Option<Number> {
        match self {
            Self::Null => Some(Number::Integer(0)),
            Self::Integer(n) => Some(Number::Integer(*n)),
            Self::Float(n) => Some(Number::Float(*n)),
            Self::Text(text) if text.is_empty() => Some(Number::Integer(0)),
            // Words such as `inf` and `nan` are no numbers here.
            Self::Text(text) if text.bytes().all(|b| b"+-.0123456789eE".contains(&b)) => {
                match text.parse() {
                    Ok(n) => Some(Number::Integer(n)),
                    Err(_) => text.parse().ok().map(Number::Float),
                }
            }
            _ => None,
        }
    }

    /// Elements, members, or characters; `None` for what has no length.
    pub(super) fn length(&self) -> Option<usize> {
        match self {
            Self::Null => Some(0),
            Self::Text(text) => Some(text.chars().count()),
            Self::Bytes(bytes) => Some(bytes.len()),
            Self::List(list) => Some(list.len()),
            Self::Texts(list) => Some(list.len()),
            Self::Array(list) => Some(list.len()),
            Self::Map(map) => Some(map.len()),
            Self::Bool(_) | Self::Integer(_) | Self::Float(_) | Self::Object(_) => None,
        }
    }

    /// The elements of a list.
    pub(super) fn elements(self) -> Option<Vec<Value<'a>>> {
        match self {
            Self::List(list) => Some(list),
            Self::Texts(list) => Some(list.iter().map(|t| Self::borrowed_text(t)).collect()),
            Self::Array(Cow::Borrowed(list)) => Some(list.iter().map(Value::of_json).collect()),
            Self::Array(Cow::Owned(list)) => {
                Some(list.into_iter().map(Value::of_owned_json).collect())
            }
            _ => None,
        }
    }

    /// The element or member at `key`; null where there is none.
    pub(super) fn at(self, key: &Value<'_>) -> Value<'a> {
        let found = match (self, key) {
            (Self::Map(Cow::Borrowed(map)), Value::Text(key)) => {
                map.get(&**key).map(Value::of_json)
            }
            (Self::Map(Cow::Owned(mut map)), Value::Text(key)) => {
                map.remove(&**key).map(Value::of_owned_json)
            }
            (Self::Array(Cow::Borrowed(list)), key) => {
                key.as_index().and_then(|i| list.get(i)).map(Value::of_json)
            }
            (Self::Array(Cow::Owned(mut list)), key) => key
                .as_index()
                .filter(|i| *i < list.len())
                .map(|i| Value::of_owned_json(list.swap_remove(i))),
            (Self::Texts(list), key) => {
                let found = key.as_index().and_then(|i| list.get(i));
                found.map(|text| Self::borrowed_text(text))
            }
            (Self::List(mut list), key) => key
                .as_index()
                .filter(|i| *i < list.len())
                .map(|i| list.swap_remove(i)),
            _ => None,
        };
        found.unwrap_or(Value::Null)
    }

    pub(super) fn as_index(&self) -> Option<usize> {
        match self.number()? {
            Number::Integer(n) if !matches!(self, Self::Null) => usize::try_from(n).ok(),
            _ => None,
        }
    }
}

impl Number {
    pub(super) fn as_float(self) -> f64 {
        match self {
            #[expect(
                clippy::cast_precision_loss,
                reason = "as the expression language defines"
            )]
            Self::Integer(n) => n as f64,
            Self::Float(n) => n,
        }
    }
}

impl From<Number> for Value<'_> {
    fn from(number: Number) -> Self {
        match number {
            Number::Integer(n) => Self::Integer(n),
            Number::Float(n) => Self::Float(n),
        }
    }
}

/// `+ - * / %` on two values; null where an operand is no number, a whole
/// number overflows, or the divisor is zero. Division always has a fraction.
pub(super) fn arithmetic(operator: Binary, left: &Value<'_>, right: &Value<'_>) -> Value<'static> {
    let (Some(left), Some(right)) = (left.number(), right.number()) else {
        return Value::Null;
    };
    if let (Number::Integer(l), Number::Integer(r)) = (left, right)
        && operator != Binary::Divide
    {
        let result = match operator {
            Binary::Add => l.checked_add(r),
            Binary::Subtract => l.checked_sub(r),
            Binary::Multiply => l.checked_mul(r),
            Binary::Remainder => l.checked_rem(r),
            _ => None,
        };
        return result.map_or(Value::Null, Value::Integer);
    }
    let (l, r) = (left.as_float(), right.as_float());
    let result = match operator {
        Binary::Add => l + r,
        Binary::Subtract => l - r,
        Binary::Multiply => l * r,
        Binary::Divide => l / r,
        Binary::Remainder => l % r,
        _ => return Value::Null,
    };
    if result.is_finite() {
        Value::Float(result)
    } else {
        Value::Null
    }
}

/// Whether two lists have the same elements, or two other values that are not
/// plain are the same.
fn same(left: &Value<'_>, right: &Value<'_>) -> bool {
    match (left.clone().elements(), right.clone().elements()) {
        (Some(left), Some(right)) => {
            left.len() == right.len() && left.iter().zip(&right).all(|(l, r)| same(l, r))
        }
        _ => left == right,
    }
}

/// Whether the value is null, a condition, a number or a text.
pub(super) fn is_plain(value: &Value<'_>) -> bool {
    use Value::{Bool, Float, Integer, Null, Text};
    matches!(value, Null | Bool(_) | Integer(_) | Float(_) | Text(_))
}

/// `< > <= >= == !=` on two values; null where they can't be compared.
pub(super) fn comparison(operator: Binary, left: Value<'_>, right: Value<'_>) -> Value<'static> {
    if !is_plain(&left) && !is_plain(&right) {
        return match operator {
            Binary::Equal => Value::Bool(same(&left, &right)),
            Binary::NotEqual => Value::Bool(!same(&left, &right)),
            _ => Value::Null,
        };
    }
    let one_null = (left == Value::Null) != (right == Value::Null);
    let ordering = if one_null {
        None
    } else {
        match compare(left, right) {
            Some(ordering) => Some(ordering),
            None => return Value::Null,
        }
    };
    Value::Bool(match operator {
        Binary::Equal => ordering == Some(Ordering::Equal),
        Binary::NotEqual => ordering != Some(Ordering::Equal),
        Binary::Less => ordering == Some(Ordering::Less),
        Binary::Greater => ordering == Some(Ordering::Greater),
        // Two nulls are equal, but neither is below or above the other.
        Binary::LessOrEqual => matches!(ordering, Some(Ordering::Less | Ordering::Equal)),
        Binary::GreaterOrEqual => matches!(ordering, Some(Ordering::Greater | Ordering::Equal)),
        _ => return Value::Null,
    })
}

/// Numbers compare as numbers (a text beside one is read as one), conditions
/// as conditions, texts by code point.
fn compare(left: Value<'_>, right: Value<'_>) -> Option<Ordering> {
    use Value::{Bool, Float, Integer, Null};
    match (&left, &right) {
        (Null, Null) => Some(Ordering::Equal),
        (Integer(_) | Float(_), _) | (_, Integer(_) | Float(_)) => {
            match (left.number()?, right.number()?) {
                (Number::Integer(l), Number::Integer(r)) => Some(l.cmp(&r)),
                (l, r) => l.as_float().partial_cmp(&r.as_float()),
            }
        }
        (Bool(_), _) | (_, Bool(_)) => Some(left.truth()?.cmp(&right.truth()?)),
        _ => Some(left.into_text()?.cmp(&right.into_text()?)),
    }
}

/// A number with a fraction: plain between a thousandth and ten millions, with
/// an exponent outside.
pub(super) fn float(n: f64) -> String {
    if n == 0.0 || (1e-3..1e7).contains(&n.abs()) {
        return format!("{n:?}");
    }
    let text = format!("{n:E}");
    match text.split_once('E') {
        Some((digits, exponent)) if !digits.contains('.') => format!("{digits}.0E{exponent}"),
        _ => text,
    }
}
