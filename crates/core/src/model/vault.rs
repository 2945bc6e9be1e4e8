//! The Vault record, and references to what vaults hold: `{vault://env/NAME}`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

/// Where secrets are looked up that other records only refer to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vault {
    /// Assigned identifier.
    pub id: Uuid,
    /// What references call it, unique.
    pub prefix: String,
    /// The kind of vault; `env` is the only one.
    pub name: String,
    /// A note for operators.
    #[serde(default)]
    pub description: Option<String>,
    /// The settings of the kind.
    #[serde(default)]
    pub config: Map<String, Value>,
    /// Labels for filtering lists.
    #[serde(default)]
    pub tags: Option<Vec<String>>,
    /// Creation time, in seconds since the epoch.
    pub created_at: i64,
    /// Last change, in seconds since the epoch.
    #[serde(default)]
    pub updated_at: i64,
}

const OPENING: &str = "{vault://";

/// Whether a text, as a whole, is a reference.
pub fn is_reference(text: &str) -> bool {
    text.starts_with(OPENING) && text.ends_with('}')
}

/// What a reference says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VaultReference {
    /// The kind of vault, or the prefix of a record.
    pub vault: String,
    /// The secret in it.
    pub resource: String,
    /// A member of the secret, which is then a JSON object.
    pub key: Option<String>,
    /// Settings for this reference alone.
    pub options: Vec<(String, String)>,
    /// An older version of the secret.
    pub version: Option<String>,
}

impl VaultReference {
    /// Reads a text that [`is_reference`].
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "expected {vault://VAULT/RESOURCE}".to_owned();
        let inside = text
            .strip_prefix(OPENING)
            .and_then(|rest| rest.strip_suffix('}'));
        let inside = inside.ok_or_else(wrong)?;
        let (inside, version) = match inside.split_once('#') {
            Some((inside, version)) => (inside, Some(version.to_owned())),
            None => (inside, None),
        };
        let (path, query) = inside.split_once('?').unwrap_or((inside, ""));
        let (vault, path) = path.split_once('/').ok_or_else(wrong)?;
        let (resource, key) = match path.rsplit_once('/') {
            // An end without a key says that there is none.
            Some((resource, "")) => (resource, None),
            Some((resource, key)) => (resource, Some(decoded(key).ok_or_else(wrong)?)),
            None => (path, None),
        };
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let options = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decoded(name)?, decoded(value)?))
        });
        let reference = Self {
            vault: decoded(vault).ok_or_else(wrong)?,
            resource: decoded(resource).ok_or_else(wrong)?,
            key,
            options: options.collect::<Option<_>>().ok_or_else(wrong)?,
            version,
        };
        if reference.vault.is_empty() || reference.resource.is_empty() {
            return Err(wrong());
        }
        Ok(reference)
    }

    /// The environment variable that it means, where `prefix` is that of the vault.
    pub fn variable(&self, prefix: &str) -> Result<String, String> {
        let option = self.options.iter().find(|(name, _)| name == "prefix");
        let prefix = option.map_or(prefix, |(_, prefix)| prefix);
        let mut name = format!("{prefix}{}", self.resource);
        match self.version.as_deref() {
            None | Some("1") => {}
            Some("2") => name.push_str("_previous"),
            Some(version) => return Err(format!("version {version}: expected 1 or 2")),
        }
        let name = name.replace(['-', '/'], "_").to_uppercase();
        if name.contains(['\0', '=']) {
            return Err(format!("'{name}' is no environment variable"));
        }
        Ok(name)
    }

    /// What it stands for, in the value of the variable.
    ///
    /// # Errors
    /// That the value has no such member, or is empty. It does not show the value.
    pub fn pick(&self, value: String) -> Result<String, String> {
        let value = match &self.key {
            None => value,
            Some(key) => {
                let object: Value = serde_json::from_str(&value)
                    .map_err(|_| format!("it is no JSON object with a member '{key}'"))?;
                let member = object.get(key).and_then(Value::as_str);
                member
                    .ok_or_else(|| format!("it is no JSON object with a text '{key}'"))?
                    .to_owned()
            }
        };
        if value.is_empty() {
            return Err("it is empty".to_owned());
        }
        Ok(value)
    }
}

/// A percent-encoded text; `None`: it is broken.
fn decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits = [bytes.next()?, bytes.next()?];
        let digits = std::str::from_utf8(&digits).ok()?;
        out.push(u8::from_str_radix(digits, 16).ok()?);
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(text: &str) -> Result<String, String> {
        VaultReference::parse(text)?.variable("p-")
    }

    #[test]
    fn a_reference_names_an_environment_variable() {
        for (text, name) in [
            ("{vault://env/my-secret}", "P_MY_SECRET"),
            ("{vault://env/my-secret?prefix=ssl_}", "SSL_MY_SECRET"),
            ("{vault://env/a/key}", "P_A"),
            ("{vault://env/a%2Fb/}", "P_A_B"),
            ("{vault://env/a#2}", "P_A_PREVIOUS"),
            ("{vault://env/a#1}", "P_A"),
        ] {
            assert_eq!(variable(text).as_deref(), Ok(name), "{text}");
        }
        for text in [
            "{vault://env}",
            "{vault:///a}",
            "{vault://env/}",
            "{vault://env/%4}",
            "{vault://env/a#9}",
        ] {
            assert!(variable(text).is_err(), "{text}");
        }
        assert!(!is_reference("x{vault://env/a}") && !is_reference("{vault://env/a"));
    }

    #[test]
    fn an_empty_secret_is_none_and_a_wrong_one_is_not_shown() {
        let pick = |text: &str, value: &str| {
            let reference = VaultReference::parse(text).expect("a reference");
            reference.pick(value.to_owned())
        };
        assert_eq!(pick("{vault://env/a}", "x").as_deref(), Ok("x"));
        assert_eq!(
            pick("{vault://env/a/k}", r#"{"k":"x"}"#).as_deref(),
            Ok("x")
        );
        assert!(pick("{vault://env/a}", "").is_err());
        for value in ["secret", r#"{"k":7}"#, r#"{"k":""}"#, "[]"] {
            let error = pick("{vault://env/a/k}", value).expect_err("is refused");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
