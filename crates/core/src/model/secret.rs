//! A secret text: readable only on purpose.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

/// A password, key or token from the configuration.
///
/// `Debug` shows `[redacted]`; memory is wiped on drop; comparison takes the
/// same time whatever the position of the first difference.
#[derive(Clone, Default, Serialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself: for hashing, signing and sending, never for logging.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether `candidate` is this secret, in constant time for equal lengths.
    pub fn matches(&self, candidate: &str) -> bool {
        self.0.as_bytes().ct_eq(candidate.as_bytes()).into()
    }
}

/// What a declared secret is refused with that [`is_template`].
pub const TEMPLATE: &str = "is a template that nothing fills in, and would be the secret itself: \
     did you mean &{name}, an environment variable, or &{file:PATH}?";

/// Whether a key of a configuration file names a secret, several, or an address
/// that may hold one.
pub fn names_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let words = ["secret", "password", "passphrase"];
    let names = [
        "token",
        "master_key",
        "previous_master_keys",
        "store",
        "redis",
    ];
    words.iter().any(|word| key.contains(word)) || names.contains(&key.as_str())
}

/// Whether a secret as a file has it is in truth a variable of some other program.
/// Hashes of passwords begin with `$` too; no field of a file takes any.
pub fn is_template(written: &str) -> bool {
    let written = written.trim_start();
    written.starts_with('$') || written.contains("${") || written.contains("{{")
}

impl<'de> Deserialize<'de> for Secret {
    /// The error never repeats the value: it would end up in a log.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)
            .map(Self)
            .map_err(|_| serde::de::Error::custom("expected a string: put it in quotes"))
    }
}

/// In constant time for equal lengths.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.matches(&other.0)
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_other_programs_are_no_secrets() {
        for written in [
            "${env.SECRET}",
            "$SECRET",
            "{{ secret }}",
            "postgres://u:${PW}@h/d",
            "&{a|${b}}",
        ] {
            assert!(is_template(written), "{written}");
        }
        for written in [
            "&{orders.secret}",
            "pa$$word",
            "a{b}",
            "&{file:/run/secret}",
            "",
        ] {
            assert!(!is_template(written), "{written}");
        }
    }
}
