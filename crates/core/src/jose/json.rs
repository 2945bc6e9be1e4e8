//! Strict JSON: what every parser must understand in the same way.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Reads exactly one JSON object in which no member of any object is repeated.
///
/// Two readers of a repeated member may take different values, and a token
/// would then mean one thing to us and another to the upstream (RFC 8725 §2.6).
/// Nesting is bounded by serde_json (128 levels), size by the caller.
///
/// # Errors
/// What is wrong, and where.
pub fn object(text: &[u8]) -> Result<Map<String, Value>, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = StrictValue.deserialize(&mut reader)?;
    reader.end()?;
    match value {
        Value::Object(members) => Ok(members),
        _ => Err(serde_json::Error::custom("not an object")),
    }
}

#[derive(Clone, Copy)]
struct StrictValue;

impl<'de> DeserializeSeed<'de> for StrictValue {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(self)?;
            if members.contains_key(&name) {
                let shown: String = name.chars().take(64).collect();
                return Err(A::Error::custom(format_args!("repeated member {shown:?}")));
            }
            members.insert(name, value);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_reads_as_serde_json_reads_it() {
        let text = r#"{"a":[1,-2,0.5,"x",null,true,{"b":{}}],"c":18446744073709551615}"#;
        let plain: Value = serde_json::from_str(text).expect("it is JSON");
        assert_eq!(object(text.as_bytes()).map(Value::Object).ok(), Some(plain));
    }

    #[test]
    fn repeated_members_are_refused_at_every_level() {
        for text in [
            r#"{"aud":"a","aud":"b"}"#,
            r#"{"x":{"a":1,"a":1}}"#,
            r#"{"x":[{"a":1,"\u0061":2}]}"#,
        ] {
            assert!(object(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn anything_but_one_object_is_refused() {
        for text in [
            "", "[]", "1", "\"x\"", "null", "{} {}", "{}x", "{", "{\"a\":}",
        ] {
            assert!(object(text.as_bytes()).is_err(), "{text}");
        }
        assert!(object(&[b'[', 0xff, b']']).is_err());
        let deep = format!("{}{}", "{\"a\":".repeat(2000), "1");
        assert!(object(deep.as_bytes()).is_err());
    }
}
