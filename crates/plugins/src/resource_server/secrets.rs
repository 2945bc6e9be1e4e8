//! Secrets that a declaration names and a store holds, read once at load.

use std::path::Path;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::chain::settings::{Declared, Settings};
use doorward_core::model::secret::Secret;
use doorward_plugin_api::ConfigError;

/// Longest secret file, in bytes.
const FILE_MAX: u64 = 64 * 1024;

/// With or without padding, as people write it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The secret that the field `id_field` names, from the stores of
/// `secretsProvider`, or the text of `plain_field`; `None`: neither is there.
pub(crate) fn read(
    settings: &Settings<'_>,
    id_field: &str,
    plain_field: &str,
) -> Result<Option<Secret>, ConfigError> {
    read_of(settings, settings, id_field, plain_field)
}

/// As [`read`], where `secretsProvider` is a field of `outer`.
pub(crate) fn read_of(
    settings: &Settings<'_>,
    outer: &Settings<'_>,
    id_field: &str,
    plain_field: &str,
) -> Result<Option<Secret>, ConfigError> {
    if let Some(text) = settings.text(plain_field)? {
        return Ok(Some(Secret::new(text)));
    }
    let Some(id) = settings.text(id_field)? else {
        return Ok(None);
    };
    let mut stores = Vec::new();
    for declared in outer.all_declared("secretsProvider")? {
        match declared.kind.as_str() {
            "SecretsProvider" => stores.extend(declared.settings.all_declared("stores")?),
            _ => stores.push(declared),
        }
    }
    let wrong = |message: String| settings.wrong(id_field, message);
    if stores.is_empty() {
        let found = environment(&id, Format::Base64).map_err(wrong)?;
        return found.map(Some).ok_or_else(|| wrong(nowhere(&id)));
    }
    for store in &stores {
        if let Some(secret) = held(store, &id)? {
            return Ok(Some(secret));
        }
    }
    Err(wrong(nowhere(&id)))
}

fn nowhere(id: &str) -> String {
    format!(
        "there is no secret {id:?}: set the environment variable {} (base64)",
        variable(id)
    )
}

#[derive(Clone, Copy)]
enum Format {
    Base64,
    Plain,
}

/// The secret `id` of a store, if it has it.
fn held(store: &Declared<'_>, id: &str) -> Result<Option<Secret>, ConfigError> {
    let settings = &store.settings;
    match store.kind.as_str() {
        "SystemAndEnvSecretStore" => {
            let format = format(settings)?;
            environment(id, format).map_err(|message| settings.wrong("format", message))
        }
        "Base64EncodedSecretStore" => {
            let Some(secrets) = settings.object("secrets")? else {
                return Err(settings.wrong("secrets", "is required"));
            };
            let text = secrets.text(id)?;
            text.map(|text| decoded(&text, Format::Base64))
                .transpose()
                .map_err(|message| secrets.wrong(id, message))
        }
        "FileSystemSecretStore" => file(settings, id),
        _ => Err(store
            .unfit("SystemAndEnvSecretStore, FileSystemSecretStore or Base64EncodedSecretStore")),
    }
}

fn format(settings: &Settings<'_>) -> Result<Format, ConfigError> {
    match settings.text("format")?.as_deref() {
        None | Some("BASE64") => Ok(Format::Base64),
        Some("PLAIN") => Ok(Format::Plain),
        Some(_) => Err(settings.wrong("format", "expected BASE64 or PLAIN")),
    }
}

/// `agent.secret.id` is in `AGENT_SECRET_ID`.
fn variable(id: &str) -> String {
    id.to_uppercase().replace('.', "_")
}

fn environment(id: &str, format: Format) -> Result<Option<Secret>, String> {
    match std::env::var(variable(id)) {
        Ok(text) => decoded(&text, format).map(Some),
        Err(_) => Ok(None),
    }
}

fn file(settings: &Settings<'_>, id: &str) -> Result<Option<Secret>, ConfigError> {
    let directory = settings.required("directory")?;
    let suffix = settings.text("suffix")?.unwrap_or_default();
    if id.contains(['/', '\\']) || id.starts_with('.') {
        return Err(settings.wrong("directory", format!("{id:?} is no name of a file in it")));
    }
    let path = Path::new(&directory).join(format!("{id}{suffix}"));
    settings.looks_at(&path);
    match std::fs::metadata(&path) {
        Err(_) => return Ok(None),
        Ok(facts) if !facts.is_file() || facts.len() > FILE_MAX => {
            let message = format!("{} is no file of a secret", path.display());
            return Err(settings.wrong("directory", message));
        }
        Ok(_) => {}
    }
    let text = std::fs::read_to_string(&path)
        .map_err(|error| settings.wrong("directory", format!("{}: {error}", path.display())))?;
    // Editors end a file with a line break that is none of the secret's.
    let text = text.trim_end_matches(['\r', '\n']);
    decoded(text, format(settings)?)
        .map(Some)
        .map_err(|message| settings.wrong("format", format!("{}: {message}", path.display())))
}

/// Never repeats the text: it would end up in a log.
fn decoded(text: &str, format: Format) -> Result<Secret, String> {
    let text = match format {
        Format::Plain => text.to_owned(),
        Format::Base64 => BASE64
            .decode(text.trim())
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .ok_or("is not the base64 of a text")?,
    };
    if text.is_empty() {
        Err("is empty".to_owned())
    } else {
        Ok(Secret::new(text))
    }
}
