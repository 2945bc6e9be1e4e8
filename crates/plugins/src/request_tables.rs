//! Headers and parameters of a request as JSON, as the imitated gateway shows them.

use serde_json::{Map, Value, json};
use url::form_urlencoded;

/// Most parameters that are told apart.
const PARAMETERS: usize = 100;
/// What stands in the place of a secret.
pub(crate) const REDACTED: &str = "REDACTED";

/// One value by itself, several as a list.
pub(crate) fn one_or_list(values: impl Iterator<Item = Value>) -> Value {
    let mut values: Vec<Value> = values.collect();
    match (values.pop(), values.is_empty()) {
        (Some(one), true) => one,
        (last, _) => {
            values.extend(last);
            values.into()
        }
    }
}

/// The parameters of a query or a form: texts, `true` where there is no `=`, or
/// lists. Those that are secrets are redacted.
pub(crate) fn parameters(text: &str, is_secret: impl Fn(&str) -> bool) -> Map<String, Value> {
    let mut object: Map<String, Value> = Map::new();
    let parts = text.split('&').filter(|part| !part.is_empty());
    for part in parts.take(PARAMETERS) {
        let Some((name, value)) = form_urlencoded::parse(part.as_bytes()).next() else {
            continue;
        };
        let value: Value = if is_secret(&name) {
            REDACTED.into()
        } else if part.contains('=') {
            value.into_owned().into()
        } else {
            true.into()
        };
        put(&mut object, &name, value);
    }
    object
}

/// Puts a value into an object in which names may have several.
pub(crate) fn put(object: &mut Map<String, Value>, name: &str, value: Value) {
    match object.get_mut(name) {
        None => drop(object.insert(name.to_owned(), value)),
        Some(Value::Array(list)) => list.push(value),
        Some(one) => *one = json!([one.take(), value]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_texts_flags_and_lists_and_secrets_are_redacted() {
        let found = parameters("a=1&b&a=x%20y&a&token=t&&c=", |name| name == "token");
        let expected = json!({
            "a": ["1", "x y", true], "b": true, "c": "", "token": "REDACTED",
        });
        assert_eq!(Value::Object(found), expected);
        let many: String = (0..200).map(|n| format!("p{n}=1&")).collect();
        assert_eq!(parameters(&many, |_| false).len(), PARAMETERS);
    }
}
