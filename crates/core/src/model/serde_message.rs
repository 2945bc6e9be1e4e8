//! What a deserializer finds wrong, in the words of whoever wrote the value.

use super::suggestion;

/// The message of a deserializer without the names of the program's own types,
/// and without the value, which may be secret: `expected a whole number from 0
/// to 65535`. A name that is not known is told with the one that was probably
/// meant.
pub fn plain(message: &str) -> String {
    for (before, says_kind) in [
        ("invalid type: ", true),
        ("invalid value: ", false),
        ("invalid length ", false),
    ] {
        if let Some(rest) = message.strip_prefix(before)
            && let Some(at) = rest.rfind(", expected ")
        {
            let wanted = expected_type(&rest[at + ", expected ".len()..]);
            return match actual_type(&rest[..at]).filter(|_| says_kind) {
                Some(found) if found != wanted => format!("expected {wanted}, not {found}"),
                _ => format!("expected {wanted}"),
            };
        }
    }
    if message.starts_with("data did not match any variant") {
        return "has none of the forms that it may have".to_owned();
    }
    let told = match message.strip_prefix("unknown variant ") {
        Some(rest) => format!("unknown value {rest}"),
        None => message.to_owned(),
    };
    match suggested(message) {
        Some(near) => format!("{told}; did you mean `{near}`?"),
        None => told,
    }
}

/// The name that was probably meant by ``unknown field `a`, expected one of
/// `b`, `c` ``.
fn suggested(message: &str) -> Option<&str> {
    let rest = ["unknown field `", "unknown variant `"]
        .iter()
        .find_map(|before| message.strip_prefix(before))?;
    let (name, known) = rest.split_once("`, expected ")?;
    let known = known.split('`').skip(1).step_by(2);
    suggestion::nearest(name, known)
}

/// A type, as the deserializer calls it.
fn expected_type(name: &str) -> &str {
    match name {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "u128" | "usize" => "a whole number that is not negative",
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "a mapping",
        name if name.starts_with("struct ") => "a mapping",
        name if name.starts_with("enum ") || name.ends_with("identifier") => "a word",
        name => name,
    }
}

/// The kind of value that was found, as the deserializer calls it.
fn actual_type(name: &str) -> Option<&'static str> {
    let kinds = [
        ("string", "a string"),
        ("integer", "a number"),
        ("floating point", "a number"),
        ("boolean", "true or false"),
        ("sequence", "a list"),
        ("map", "a mapping"),
        ("null", "nothing"),
        ("unit", "nothing"),
    ];
    let known = kinds.iter().find(|(kind, _)| name.starts_with(kind));
    known.map(|(_, word)| *word)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase", deny_unknown_fields)]
    #[expect(dead_code, reason = "only its reading is tested")]
    struct Sample {
        listen: Vec<String>,
        mode: Option<Mode>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Mode {
        Optional,
        Required,
    }

    fn message_of<T: DeserializeOwned + std::fmt::Debug>(value: Value) -> String {
        let error = serde_json::from_value::<T>(value).expect_err("refused");
        plain(&error.to_string())
    }

    #[test]
    fn types_have_the_names_that_people_have_for_them() {
        let whole = "expected a whole number from 0 to 4294967295";
        assert_eq!(
            message_of::<u32>(json!("x")),
            format!("{whole}, not a string")
        );
        assert_eq!(message_of::<u32>(json!(-1)), whole);
        assert_eq!(
            message_of::<u32>(json!(1.5)),
            format!("{whole}, not a number")
        );
        assert_eq!(
            message_of::<u16>(json!(70_000)),
            "expected a whole number from 0 to 65535"
        );
        assert_eq!(
            message_of::<bool>(json!(5)),
            "expected true or false, not a number"
        );
        assert_eq!(
            message_of::<Vec<u8>>(json!({})),
            "expected a list, not a mapping"
        );
        assert_eq!(
            message_of::<Sample>(json!("x")),
            "expected a mapping, not a string"
        );
    }

    #[test]
    fn a_name_that_is_near_a_known_one_is_taken_for_it() {
        let field = message_of::<Sample>(json!({"lisen": []}));
        assert!(field.starts_with("unknown field `lisen`"), "{field}");
        assert!(field.ends_with("did you mean `listen`?"), "{field}");
        let value = message_of::<Sample>(json!({"listen": [], "mode": "requird"}));
        assert!(value.starts_with("unknown value `requird`"), "{value}");
        assert!(value.ends_with("did you mean `required`?"), "{value}");
        let far = message_of::<Sample>(json!({"zzz": 1}));
        assert!(!far.contains("did you mean"), "{far}");
    }

    #[test]
    fn no_value_is_quoted() {
        assert!(!message_of::<u32>(json!("sesame")).contains("sesame"));
        assert!(!message_of::<u8>(json!(12_345)).contains("12345"));
    }
}
