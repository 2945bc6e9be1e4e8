//! The Vault schema.

use std::sync::LazyLock;

use super::common;
use crate::vaults::ENV;
use doorward_core::model::schema::{Field, Schema, Type};

/// The fields of a vault.
pub fn vault() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let mut fields = common();
        let config = Schema::new(vec![Field::new("prefix", Type::checked(variable_prefix))]);
        fields.extend([
            Field::new("prefix", Type::checked(prefix))
                .required()
                .unique(),
            Field::new("name", Type::checked(name)).required(),
            Field::new("description", Type::some_text()),
            Field::new("config", Type::Record(config)).required(),
        ]);
        Schema::new(fields)
    });
    &SCHEMA
}

fn prefix(text: &str) -> Result<(), String> {
    if text == ENV {
        return Err(format!("must not be one of: {ENV}"));
    }
    let mut bytes = text.bytes();
    let first = bytes.next().is_some_and(|byte| byte.is_ascii_lowercase());
    let rest = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let last = text.ends_with(|end: char| end != '-');
    if !first || text.len() < 2 || !bytes.all(rest) || !last {
        return Err(format!("invalid value: {text}"));
    }
    Ok(())
}

fn name(text: &str) -> Result<(), String> {
    if text != ENV {
        return Err(format!("vault '{text}' is not installed"));
    }
    Ok(())
}

fn variable_prefix(text: &str) -> Result<(), String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !text.bytes().all(allowed) {
        return Err(format!("invalid value: {text}"));
    }
    Ok(())
}
