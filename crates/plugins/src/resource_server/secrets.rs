//! Secrets that a declaration names and a store holds, read once at load.

use std::path::Path;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::chain::object::{DeferredValue, Field, Object, Reference, object};
use crate::chain::settings::{Declared, Place, Settings};
use doorward_core::model::secret::Secret;
use doorward_plugin_api::ConfigError;

/// Longest secret file, in bytes.
const FILE_MAX: u64 = 64 * 1024;

/// With or without padding, as people write it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

object! {
    /// The secret of a client.
    pub(crate) struct ClientSecret<'a> {
        plain as "clientSecret": Option<String>,
        id as "clientSecretId": DeferredValue<Option<String>>,
        provider as "secretsProvider": Reference,
    }
}

object! {
    /// The password of a user, without the stores that may have it.
    pub(super) struct Password<'a> {
        plain as "password": Option<String>,
        id as "passwordSecretId": DeferredValue<Option<String>>,
    }
}

object! {
    /// A `SecretsProvider`.
    struct Provider<'a> {
        stores: Reference,
    }
}

object! {
    /// A `SystemAndEnvSecretStore`.
    struct Environment<'a> {
        format: Option<String>,
    }
}

object! {
    /// A `Base64EncodedSecretStore`.
    struct Base64Secrets<'a> {
        /// Secrets by their names.
        secrets: Option<Settings<'a>>,
    }
}

object! {
    /// A `FileSystemSecretStore`.
    struct Files<'a> {
        directory: String,
        suffix: Option<String>,
        format: DeferredValue<Option<String>>,
    }
}

impl ClientSecret<'_> {
    /// The secret, if there is one.
    pub(crate) fn read_secret(&self) -> Result<Option<Secret>, ConfigError> {
        match &self.plain.value {
            Some(text) => Ok(Some(Secret::new(text.clone()))),
            None => stored(&self.id, &self.provider),
        }
    }

    /// The secret, which must be there.
    pub(crate) fn required(&self) -> Result<Secret, ConfigError> {
        let secret = self.read_secret()?;
        secret.ok_or_else(|| self.id.wrong("is required"))
    }
}

impl Password<'_> {
    /// The password, which must be there; `provider` has the stores.
    pub(super) fn required(&self, provider: &Field<'_, Reference>) -> Result<Secret, ConfigError> {
        let secret = match &self.plain.value {
            Some(text) => Some(Secret::new(text.clone())),
            None => stored(&self.id, provider)?,
        };
        secret.ok_or_else(|| self.id.wrong("is required"))
    }
}

/// The stores of a `secretsProvider`: those that it lists, or those of a provider.
pub(crate) fn stores<'a>(
    provider: &Field<'a, Reference>,
) -> Result<Vec<Declared<'a>>, ConfigError> {
    let mut stores = Vec::new();
    for declared in provider.all_declared()? {
        match declared.kind.as_str() {
            "SecretsProvider" => {
                stores.extend(Provider::read(&declared.settings)?.stores.all_declared()?);
            }
            _ => stores.push(declared),
        }
    }
    Ok(stores)
}

/// The secret that a field names, from the stores of `provider`; `None`: it names none.
pub(crate) fn stored(
    field: &Field<'_, DeferredValue<Option<String>>>,
    provider: &Field<'_, Reference>,
) -> Result<Option<Secret>, ConfigError> {
    let Some(id) = field.read()? else {
        return Ok(None);
    };
    let stores = stores(provider)?;
    let wrong = |message: String| field.wrong(message);
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
            let field = Environment::read(settings)?.format;
            let found = environment(id, format(&field, field.value.as_deref())?);
            found.map_err(|message| field.wrong(message))
        }
        "Base64EncodedSecretStore" => {
            let field = Base64Secrets::read(settings)?.secrets;
            let Some(secrets) = &field.value else {
                return Err(field.wrong("is required"));
            };
            let text = secrets.member::<String>(id)?;
            text.value
                .as_deref()
                .map(|text| decoded(text, Format::Base64))
                .transpose()
                .map_err(|message| text.wrong(message))
        }
        "FileSystemSecretStore" => file(&Files::read(settings)?, id),
        _ => Err(store
            .unfit("SystemAndEnvSecretStore, FileSystemSecretStore or Base64EncodedSecretStore")),
    }
}

fn format(place: &Place<'_>, word: Option<&str>) -> Result<Format, ConfigError> {
    match word {
        None | Some("BASE64") => Ok(Format::Base64),
        Some("PLAIN") => Ok(Format::Plain),
        Some(_) => Err(place.wrong("expected BASE64 or PLAIN")),
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

fn file(files: &Files<'_>, id: &str) -> Result<Option<Secret>, ConfigError> {
    let directory = &files.directory;
    let suffix = files.suffix.value.as_deref().unwrap_or_default();
    if id.contains(['/', '\\']) || id.starts_with('.') {
        return Err(directory.wrong(format!("{id:?} is no name of a file in it")));
    }
    let path = Path::new(&directory.value).join(format!("{id}{suffix}"));
    directory.looks_at(&path);
    match std::fs::metadata(&path) {
        Err(_) => return Ok(None),
        Ok(facts) if !facts.is_file() || facts.len() > FILE_MAX => {
            let message = format!("{} is no file of a secret", path.display());
            return Err(directory.wrong(message));
        }
        Ok(_) => {}
    }
    let text = std::fs::read_to_string(&path)
        .map_err(|error| directory.wrong(format!("{}: {error}", path.display())))?;
    // Editors end a file with a line break that is none of the secret's.
    let text = text.trim_end_matches(['\r', '\n']);
    decoded(
        text,
        format(&files.format, files.format.read()?.as_deref())?,
    )
    .map(Some)
    .map_err(|message| files.format.wrong(format!("{}: {message}", path.display())))
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
