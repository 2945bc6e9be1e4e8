//! Vaults: what references in records stand for.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::entities::{Entities, Table};
use doorward_core::model::schema::{Schema, Type};
use doorward_core::model::vault::{Vault, VaultReference, is_reference};

/// The one kind of vault.
pub(crate) const ENV: &str = "env";

/// The vaults of a configuration, by what references call them.
pub(crate) struct Vaults(HashMap<Box<str>, Box<str>>);

impl Vaults {
    pub(crate) fn of(entities: &Entities) -> Self {
        let records = entities.vaults.iter();
        let prefixes = records.map(|record| {
            let prefix = record.value.config.get("prefix").and_then(Value::as_str);
            let name: Box<str> = record.value.prefix.as_str().into();
            (name, prefix.unwrap_or_default().into())
        });
        let mut all: HashMap<Box<str>, Box<str>> = prefixes.collect();
        all.insert(ENV.into(), Box::default());
        Self(all)
    }

    /// What a reference stands for. A secret that is not there is an error, and never
    /// an empty text.
    ///
    /// # Errors
    /// Why there is none, with the reference, and without any secret.
    pub(crate) fn resolve(&self, text: &str) -> Result<String, String> {
        let told = |why: String| format!("{text} can't be resolved: {why}");
        let reference = VaultReference::parse(text).map_err(told)?;
        let prefix = self.0.get(reference.vault.as_str());
        let prefix = prefix.ok_or_else(|| told(format!("no vault '{}'", reference.vault)))?;
        let name = reference.variable(prefix).map_err(told)?;
        let value = std::env::var(&name);
        let value =
            value.map_err(|_| told(format!("the environment variable {name} is not set")))?;
        let told = |why| told(format!("the environment variable {name}: {why}"));
        reference.pick(value).map_err(told)
    }

    /// A record with what the references in its referenceable fields stand for;
    /// `None`: there are none.
    ///
    /// # Errors
    /// The dotted path of the field whose reference can't be resolved, and why.
    pub(crate) fn resolved(
        &self,
        schema: &Schema,
        record: &Map<String, Value>,
    ) -> Result<Option<Map<String, Value>>, (String, String)> {
        if !record.values().any(refers) {
            return Ok(None);
        }
        let mut record = record.clone();
        self.resolve_in(schema, &mut record, "")?;
        Ok(Some(record))
    }

    fn resolve_in(
        &self,
        schema: &Schema,
        record: &mut Map<String, Value>,
        path: &str,
    ) -> Result<(), (String, String)> {
        for field in &schema.fields {
            let Some(value) = record.get_mut(field.name) else {
                continue;
            };
            let path = format!("{path}{}", field.name);
            match (&field.kind, value) {
                (Type::Record(inside), Value::Object(map)) => {
                    self.resolve_in(inside, map, &format!("{path}."))?;
                }
                (_, value) if field.referenceable => {
                    self.resolve_values(value)
                        .map_err(|message| (path, message))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn resolve_values(&self, value: &mut Value) -> Result<(), String> {
        match value {
            Value::String(text) if is_reference(text) => {
                *text = self.resolve(text)?;
                Ok(())
            }
            Value::Array(list) => list.iter_mut().try_for_each(|one| self.resolve_values(one)),
            Value::Object(map) => map
                .values_mut()
                .try_for_each(|one| self.resolve_values(one)),
            _ => Ok(()),
        }
    }
}

/// Whether there is a reference in a value.
pub(crate) fn refers(value: &Value) -> bool {
    match value {
        Value::String(text) => is_reference(text),
        Value::Array(list) => list.iter().any(refers),
        Value::Object(map) => map.values().any(refers),
        _ => false,
    }
}

/// Whether references may stand for something else than before.
pub(crate) fn differ(vaults: &Table<Vault>, before: Option<&Entities>) -> bool {
    before.is_some_and(|before| !vaults.is_same(&before.vaults))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use doorward_core::model::schema::Field;

    #[test]
    fn only_referenceable_fields_are_resolved_at_any_depth() {
        let inside = Schema::new(vec![
            Field::new("password", Type::text()).referenceable(),
            Field::new("host", Type::text()),
        ]);
        let schema = Schema::new(vec![
            Field::new("redis", Type::Record(inside)),
            Field::new("secrets", Type::array(Type::text())).referenceable(),
            Field::new("note", Type::text()),
        ]);
        let reference = "{vault://env/path}";
        let record = json!({"redis": {"password": reference, "host": reference},
            "secrets": ["x", reference], "note": reference});
        let record = record.as_object().expect("a record");
        let vaults = Vaults::of(&Entities::default());
        let resolved = vaults
            .resolved(&schema, record)
            .expect("resolved")
            .expect("changed");
        let path = std::env::var("PATH").expect("a path");
        assert_eq!(
            resolved["redis"],
            json!({"password": path, "host": reference})
        );
        assert_eq!(resolved["secrets"], json!(["x", path]));
        assert_eq!(resolved["note"], reference);
        let wrong = json!({"redis": {"password": "{vault://env/no-such-variable-here}"}});
        let wrong = vaults.resolved(&schema, wrong.as_object().expect("a record"));
        let (field, message) = wrong.expect_err("is refused");
        assert_eq!(field, "redis.password");
        assert!(
            message.contains("NO_SUCH_VARIABLE_HERE is not set"),
            "{message}"
        );
        let none = json!({"note": "x"});
        let none = vaults.resolved(&schema, none.as_object().expect("a record"));
        assert_eq!(none, Ok(None));
    }
}
