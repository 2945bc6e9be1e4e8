//! The types that fields have.

use std::collections::BTreeMap;
use std::ops::Deref;

use http::HeaderName;
use serde_json::Value;
use url::Url;

use super::{FieldValue, not_a, wrong};
use crate::ConfigError;
use doorward_core::model::schema::Type;
use doorward_core::model::secret::Secret;

/// The check of a header's name.
///
/// # Errors
/// What the imitated gateway says of it.
pub fn header_name(text: &str) -> Result<(), String> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if text.is_empty() {
        return Err("length must be at least 1".to_owned());
    }
    if !text.bytes().all(allowed) {
        return Err(format!(
            "bad header name '{text}', allowed characters are A-Z, a-z, 0-9, '_', and '-'"
        ));
    }
    Ok(())
}

/// The check of a URL: it has a scheme and a host.
///
/// # Errors
/// What the imitated gateway says of it.
pub fn url_text(text: &str) -> Result<(), String> {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (scheme, rest),
        None => ("", text.trim_start_matches('/')),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    if host.is_empty() || (scheme.is_empty() && !text.starts_with("//")) {
        return Err("missing host in url".to_owned());
    }
    if scheme.is_empty() {
        return Err("missing scheme in url".to_owned());
    }
    Url::parse(text).map_err(|error| format!("could not parse url. {error}"))?;
    Ok(())
}

/// Null is the default, and without one false: null switches no check off.
impl FieldValue for bool {
    fn kind() -> Type {
        Type::Boolean
    }

    fn of_null(default: Option<&Value>) -> Option<Self> {
        Some(default.and_then(Value::as_bool).unwrap_or(false))
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        value.as_bool().ok_or_else(|| not_a("boolean"))
    }
}

/// A text that says something.
impl FieldValue for String {
    fn kind() -> Type {
        Type::some_text()
    }

    fn is_blank(value: &Value) -> bool {
        value == ""
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let text = value.as_str().ok_or_else(|| not_a("string"))?;
        Ok(text.to_owned())
    }
}

/// A text that may be empty, and then says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnyText(pub String);

impl Deref for AnyText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl FieldValue for AnyText {
    fn kind() -> Type {
        Type::text()
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        <String as FieldValue>::read(value).map(Self)
    }
}

impl FieldValue for Box<str> {
    fn kind() -> Type {
        String::kind()
    }

    fn is_blank(value: &Value) -> bool {
        value == ""
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        <String as FieldValue>::read(value).map(Self::from)
    }
}

impl FieldValue for Secret {
    fn kind() -> Type {
        String::kind()
    }

    fn is_blank(value: &Value) -> bool {
        value == ""
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        <String as FieldValue>::read(value).map(Self::new)
    }
}

impl FieldValue for HeaderName {
    fn kind() -> Type {
        Type::checked(header_name)
    }

    fn is_blank(value: &Value) -> bool {
        value == ""
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        // A field may have a kind of its own that takes more names than the usual one.
        let text = value.as_str().ok_or_else(|| not_a("string"))?;
        Self::try_from(text).map_err(|error| wrong(error.to_string()))
    }
}

impl FieldValue for Url {
    fn kind() -> Type {
        Type::checked(url_text)
    }

    fn is_blank(value: &Value) -> bool {
        value == ""
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let text = value.as_str().ok_or_else(|| not_a("string"))?;
        Self::parse(text).map_err(|error| wrong(format!("could not parse url. {error}")))
    }
}

impl FieldValue for f64 {
    fn kind() -> Type {
        Type::Number
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        value.as_f64().ok_or_else(|| not_a("number"))
    }
}

impl FieldValue for i64 {
    fn kind() -> Type {
        Type::Integer(i64::MIN, i64::MAX)
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        value.as_i64().ok_or_else(|| not_a("whole number"))
    }
}

/// Whole numbers that a schema bounds by their type.
macro_rules! whole_numbers {
    ($($type:ty: $most:expr),*) => {$(
        impl FieldValue for $type {
            fn kind() -> Type {
                Type::Integer(0, $most)
            }

            fn read(value: &Value) -> Result<Self, ConfigError> {
                let number = value.as_i64().ok_or_else(|| not_a("whole number"))?;
                Self::try_from(number)
                    .map_err(|_| wrong(format!("value should be between 0 and {}", $most)))
            }
        }
    )*};
}

whole_numbers!(u16: i64::from(u16::MAX), u32: i64::from(u32::MAX), u64: i64::MAX, usize: i64::MAX);

/// Null is none, and so is an empty text.
impl<T: FieldValue> FieldValue for Option<T> {
    fn kind() -> Type {
        T::kind()
    }

    fn of_null(_default: Option<&Value>) -> Option<Self> {
        Some(None)
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        if T::is_blank(value) {
            return Ok(None);
        }
        T::read(value).map(Some)
    }
}

/// A list in which order counts. Null is an empty one.
impl<T: FieldValue> FieldValue for Vec<T> {
    fn kind() -> Type {
        Type::array(T::kind())
    }

    fn of_null(_default: Option<&Value>) -> Option<Self> {
        Some(Self::new())
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let list = value.as_array().ok_or_else(|| not_a("list"))?;
        let values = list.iter().enumerate().map(|(place, value)| {
            T::read(value).map_err(|error| error.within(&(place + 1).to_string()))
        });
        values.collect()
    }
}

/// Names to values. Null is an empty one.
impl<T: FieldValue> FieldValue for BTreeMap<String, T> {
    fn kind() -> Type {
        Type::Map(Box::new(T::kind()))
    }

    fn of_null(_default: Option<&Value>) -> Option<Self> {
        Some(Self::new())
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let map = value.as_object().ok_or_else(|| not_a("map"))?;
        let values = map.iter().map(|(name, value)| {
            let value = T::read(value).map_err(|error| error.within(name))?;
            Ok((name.clone(), value))
        });
        values.collect()
    }
}

/// Any JSON value: who builds from it checks it. Null is a value.
impl FieldValue for Value {
    fn kind() -> Type {
        Type::Any
    }

    fn of_null(_default: Option<&Value>) -> Option<Self> {
        Some(Self::Null)
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        Ok(value.clone())
    }
}
