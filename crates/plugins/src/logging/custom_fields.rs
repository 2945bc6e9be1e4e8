//! `custom_fields_by_lua`: programs are refused, fields can be left out.

use serde_json::{Map, Value};

use crate::settings::{Settings, wrong};
use doorward_core::model::schema::{Field, Type};
use doorward_plugin_api::ConfigError;

const FIELD: &str = "custom_fields_by_lua";

/// The one program that is understood: the field is left out.
const LEAVES_OUT: &str = "return nil";

/// The field of `config`.
pub(super) fn field() -> Field {
    Field::new(FIELD, Type::Map(Box::new(Type::checked(check_program))))
}

fn check_program(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("length must be at least 1".to_owned());
    }
    Ok(())
}

/// Fields that records leave out, each by its path.
#[derive(Debug, Default)]
pub(super) struct CustomFields(Vec<Box<[Box<str>]>>);

impl CustomFields {
    /// Reads a complete `config`.
    ///
    /// # Errors
    /// [`ConfigError`] for a program that would have to be run.
    pub(super) fn read(config: Settings<'_>) -> Result<Self, ConfigError> {
        let programs = config.get(FIELD).and_then(Value::as_object);
        let mut paths = Vec::new();
        for (name, program) in programs.into_iter().flatten() {
            if program.as_str().map(str::trim) != Some(LEAVES_OUT) {
                let message = format!(
                    "'{name}' is a program, and none is run here: the one that can be \
                     understood is '{LEAVES_OUT}', which leaves the field out"
                );
                return Err(wrong(FIELD, message));
            }
            paths.push(name.split('.').map(Box::from).collect());
        }
        Ok(Self(paths))
    }

    /// Takes the fields out of a record.
    pub(super) fn strip(&self, record: &mut Map<String, Value>) {
        for path in &self.0 {
            let Some((last, front)) = path.split_last() else {
                continue;
            };
            let mut inner = Some(&mut *record);
            for name in front {
                inner = inner.and_then(|object| object.get_mut(&**name)?.as_object_mut());
            }
            if let Some(object) = inner {
                object.remove(&**last);
            }
        }
    }
}
