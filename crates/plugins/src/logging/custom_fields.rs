//! `custom_fields_by_lua`: programs are refused, fields can be left out.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::settings::wrong;
use doorward_plugin_api::{ConfigError, config};

/// The one program that is understood: the field is left out.
const LEAVES_OUT: &str = "return nil";

config! {
    /// What all log plugins have in `config`.
    pub(super) struct RecordConfig {
        /// Members of records, by path with dots, each with the program return nil, which
        /// leaves it out. Other programs are refused.
        custom_fields_by_lua: BTreeMap<String, String>,
    }
}

/// Fields that records leave out, each by its path.
#[derive(Debug, Default)]
pub(super) struct CustomFields(Vec<Box<[Box<str>]>>);

/// Whether a program leaves its field out of records: no other one is understood.
pub fn leaves_field_out(program: &str) -> bool {
    program.trim() == LEAVES_OUT
}

impl CustomFields {
    /// What the programs leave out.
    ///
    /// # Errors
    /// [`ConfigError`] for a program that would have to be run.
    pub(super) fn new(config: &RecordConfig) -> Result<Self, ConfigError> {
        let mut paths = Vec::new();
        for (name, program) in &config.custom_fields_by_lua {
            if !leaves_field_out(program) {
                let message = format!(
                    "'{name}' is a program, and none is run here: the one that can be \
                     understood is '{LEAVES_OUT}', which leaves the field out"
                );
                return Err(wrong("custom_fields_by_lua", message));
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
