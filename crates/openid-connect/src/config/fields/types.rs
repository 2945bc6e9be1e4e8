//! The types of the plugin's fields that no other plugin has.

use std::ops::Deref;

use serde_json::Value;
use url::Url;
use uuid::Uuid;

use crate::config::address::Address;
use crate::provider::signing_algs;
use doorward_core::jose::algorithm::Algorithm;
use doorward_core::model::schema::{Schema, Type};
use doorward_plugin_api::ConfigError;
use doorward_plugin_api::config;
use doorward_plugin_api::config::{AnyText, FieldValue, not_a, not_one_of};

const SECONDS_MAX: i64 = 315_360_000; // ten years

/// A whole number within bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounded<const MIN: i64, const MAX: i64>(pub(crate) i64);

/// A time that an operator thinks of in seconds.
pub(crate) type Seconds = Bounded<0, SECONDS_MAX>;
/// A wait, in milliseconds.
pub(crate) type Millis = Bounded<0, 2_147_483_646>;
/// A port, or 0.
pub(crate) type Port = Bounded<0, 65_535>;

impl<const MIN: i64, const MAX: i64> FieldValue for Bounded<MIN, MAX> {
    fn kind() -> Type {
        Type::Integer(MIN, MAX)
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let number = i64::read(value)?;
        if !(MIN..=MAX).contains(&number) {
            let message = format!("value should be between {MIN} and {MAX}");
            return Err(wrong_value(message));
        }
        Ok(Self(number))
    }
}

/// A list of texts, of which any may be empty. Null is an empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Texts(pub(crate) Vec<String>);

impl FieldValue for Texts {
    fn kind() -> Type {
        Type::array(Type::text())
    }

    fn of_null(_default: Option<&Value>) -> Option<Self> {
        Some(Self::default())
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        Vec::read(value).map(Self)
    }
}

impl Deref for Texts {
    type Target = Vec<String>;

    fn deref(&self) -> &Vec<String> {
        &self.0
    }
}

/// A list in which nothing is twice and order says nothing. Null is an empty one.
pub(crate) struct Set<T>(Vec<T>);

impl<T: FieldValue> FieldValue for Set<T> {
    fn kind() -> Type {
        Type::set(T::kind())
    }

    fn of_null(_default: Option<&Value>) -> Option<Self> {
        Some(Self(Vec::new()))
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        Vec::read(value).map(Self)
    }
}

impl<T> Deref for Set<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

/// An address on the web.
#[derive(Clone, Debug)]
pub(crate) struct HttpUrl(pub(crate) Url);

/// Reads an address on the web.
pub(crate) fn http_url(text: &str) -> Result<Url, String> {
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(url),
        Ok(_) => Err("missing host in url".into()),
        Err(error) => Err(format!("invalid url: {error}")),
    }
}

impl FieldValue for HttpUrl {
    fn kind() -> Type {
        Type::checked(|text| http_url(text).map(drop))
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let url = http_url(value.as_str().ok_or_else(|| not_a("string"))?);
        url.map(Self)
            .map_err(|_| wrong_value("expected an http or https URL".to_owned()))
    }
}

impl FieldValue for Address {
    fn kind() -> Type {
        HttpUrl::kind()
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let WrittenUrl { text, url } = WrittenUrl::read(value)?;
        Ok(Self::new(&text, url))
    }
}

/// An address on the web, and how its operator wrote it.
#[derive(Clone, Debug)]
pub(crate) struct WrittenUrl {
    pub(crate) text: String,
    pub(crate) url: Url,
}

impl FieldValue for WrittenUrl {
    fn kind() -> Type {
        HttpUrl::kind()
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let HttpUrl(url) = HttpUrl::read(value)?;
        Ok(Self {
            text: value.as_str().unwrap_or_default().to_owned(),
            url,
        })
    }
}

/// The identifier of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordId(pub(crate) Uuid);

fn uuid(text: &str) -> Result<Uuid, String> {
    Uuid::parse_str(text).map_err(|_| "expected a valid UUID".to_owned())
}

impl FieldValue for RecordId {
    fn kind() -> Type {
        Type::checked(|text| uuid(text).map(drop))
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let id = uuid(value.as_str().ok_or_else(|| not_a("string"))?);
        id.map(Self).map_err(wrong_value)
    }
}

/// An algorithm of a signature.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SigningAlg(pub(crate) Algorithm);

impl FieldValue for SigningAlg {
    fn kind() -> Type {
        Type::word(signing_algs::ALL)
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        algorithm(value, signing_algs::ALL).map(Self)
    }
}

/// An algorithm of a DPoP proof.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProofAlg(pub(crate) Algorithm);

impl FieldValue for ProofAlg {
    fn kind() -> Type {
        Type::word(signing_algs::OF_PROOFS)
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        algorithm(value, signing_algs::OF_PROOFS).map(Self)
    }
}

fn algorithm(value: &Value, one_of: &[&str]) -> Result<Algorithm, ConfigError> {
    let name = value.as_str().filter(|name| one_of.contains(name));
    name.and_then(Algorithm::named)
        .ok_or_else(|| not_one_of(one_of))
}

/// A key (RFC 7517 §4, RFC 7518 §6.3.2.7); `ext` is what browsers write. Of its
/// members those are read that are texts, which most are.
pub(crate) struct Jwk(Vec<(String, String)>);

config! {
    struct JwkMembers {
        _key_ops as "key_ops": Texts,
        _x5c as "x5c": Texts,
        #[field(kind(Type::array(Type::Map(Box::new(Type::text())))))]
        _oth as "oth": Value,
        _ext as "ext": Option<bool>,
    }
}

impl Jwk {
    /// A member.
    pub(crate) fn member(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl FieldValue for Jwk {
    fn kind() -> Type {
        let members = Schema::new(JwkMembers::fields());
        Type::Members(members, Box::new(Type::text()))
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let members = value.as_object().ok_or_else(|| not_a("map"))?;
        let texts = members.iter().filter_map(|(name, value)| {
            let value = value.as_str()?;
            Some((name.clone(), value.to_owned()))
        });
        Ok(Self(texts.collect()))
    }
}

config! {
    /// A header, and the claim that it tells.
    pub(crate) struct ClaimHeader {
        /// The name of the header.
        #[field(required)]
        pub(crate) header: AnyText,
        /// The path to the claim.
        #[field(required)]
        pub(crate) path: Texts,
    }
}

fn wrong_value(message: String) -> ConfigError {
    ConfigError {
        field: String::new(),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_that_is_no_url_is_refused() {
        assert!(http_url("https://id.example.com/oauth2").is_ok());
        for bad in [
            "",
            "id.example.com",
            "ftp://id.example.com",
            "file:///etc/passwd",
        ] {
            assert!(http_url(bad).is_err(), "{bad}");
        }
    }
}
