//! The fields of a realm's settings, from what is in force above it.

use serde_json::Value;

use doorward_core::model::client::SignAlg;

use super::fields::{Field, Input};

/// Settings whose texts are one of a few.
const CHOICES: [(&str, &[&str]); 6] = [
    ("subject", &["name", "id"]),
    ("access_token_format", &["jwt", "at+jwt", "opaque"]),
    ("unknown_scope", &["refuse", "ignore"]),
    ("second_factor", &["off", "optional", "required"]),
    ("registration.mode", &["disabled", "token", "open"]),
    (
        "client_metadata_documents.mode",
        &["disabled", "listed", "open"],
    ),
];
/// Settings that say how something is signed.
const ALGORITHMS: [&str; 2] = [
    "access_token_signed_response_alg",
    "id_token_signed_response_alg",
];
/// Lists of records, maps of any names, and what may be no record at all.
const JSON: [&str; 5] = [
    "trusted_issuers",
    "federation",
    "acr_values",
    "ldap",
    "scope_groups",
];

/// The fields of the settings, each with the value that counts if it stays empty; those
/// of records have dotted names.
pub(crate) fn of(inherited: &Value) -> Vec<Field> {
    let mut fields = Vec::new();
    for (name, value) in inherited.as_object().into_iter().flatten() {
        match value.as_object().filter(|_| !JSON.contains(&&**name)) {
            Some(below) => {
                let below = below.iter();
                fields.extend(below.map(|(part, value)| field(format!("{name}.{part}"), value)));
            }
            None => fields.push(field(name.clone(), value)),
        }
    }
    fields
}

fn field(name: String, value: &Value) -> Field {
    Field {
        input: input(&name, value),
        name,
        required: false,
        default: value.clone(),
        between: None,
    }
}

fn input(name: &str, value: &Value) -> Input {
    let texts = |all: &[&str]| Input::Choice(all.iter().map(|one| (*one).to_owned()).collect());
    if let Some((_, choices)) = CHOICES.iter().find(|(own, _)| *own == name) {
        return texts(choices);
    }
    if ALGORITHMS.contains(&name) {
        return texts(&SignAlg::OWN.map(SignAlg::as_str));
    }
    if JSON.contains(&name) {
        return Input::Json;
    }
    match value {
        Value::Bool(_) => Input::Switch,
        Value::Number(_) => Input::Number { whole: true },
        Value::Array(_) => Input::Lines,
        // The only list that may be absent.
        Value::Null if name == "admin_addresses" => Input::Lines,
        Value::Null | Value::String(_) => Input::Text,
        Value::Object(_) => Input::Json,
    }
}

#[cfg(test)]
mod tests {
    use doorward_identity::config::RealmSettings;
    use serde_json::json;

    use super::*;

    #[test]
    fn each_setting_has_an_input_that_its_default_passes() {
        let all = json!(RealmSettings::default());
        let fields = of(&all);
        for field in &fields {
            let typed = field.text(&field.default);
            let parsed = field.parse(&typed).expect("what is shown can be typed");
            let is_empty = typed.is_empty();
            assert!(
                is_empty || parsed.as_ref() == Some(&field.default),
                "{field:?}"
            );
            if let (Input::Choice(choices), Some(text)) = (&field.input, field.default.as_str()) {
                assert!(choices.iter().any(|one| one == text), "{field:?}");
            }
        }
        let has = |name: &str| fields.iter().any(|field| field.name == name);
        for (name, _) in CHOICES {
            assert!(has(name), "{name}");
        }
        for name in ALGORITHMS.iter().chain(&JSON) {
            assert!(has(name), "{name}");
        }
    }
}
