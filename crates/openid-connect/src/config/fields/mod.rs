//! The `config` of the plugin as it is written, in the order of its schema.
//!
//! Fields come in the order in which the imitated gateway's versions got them. Of
//! those that were renamed later both names are taken. The older one carries the
//! default.

pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod login;
pub(crate) mod sessions;
pub(crate) mod tokens;
pub(crate) mod types;

use std::sync::LazyLock;

use http::HeaderName;

use doorward_core::model::schema::Schema;
use doorward_plugin_api::{ConfigError, config};

use client::{ClientFields, EndpointFields, PlaceFields, ProofFields, ProviderFields};
use connection::{
    ArgumentFields, CacheFields, ConnectionFields, HeaderFields, LifetimeFields, ProxyFields,
};
use login::{LoginFields, RefusalFields, ResponseFields};
use sessions::{CookieFields, SessionFields, StoreFields};
use tokens::{CheckFields, ClaimFields, SubjectFields, TokenFields};

config! {
    /// The fields of `config`.
    pub(crate) struct Fields {
        pub(crate) provider as ..: ProviderFields,
        pub(crate) login as ..: LoginFields,
        pub(crate) places as ..: PlaceFields,
        pub(crate) subject as ..: SubjectFields,
        pub(crate) tokens as ..: TokenFields,
        pub(crate) checks as ..: CheckFields,
        pub(crate) cache as ..: CacheFields,
        pub(crate) connection as ..: ConnectionFields,
        pub(crate) refusals as ..: RefusalFields,
        pub(crate) cookies as ..: CookieFields,
        pub(crate) client as ..: ClientFields,
        pub(crate) endpoints as ..: EndpointFields,
        pub(crate) arguments as ..: ArgumentFields,
        pub(crate) claims as ..: ClaimFields,
        pub(crate) headers as ..: HeaderFields,
        pub(crate) responses as ..: ResponseFields,
        pub(crate) lifetimes as ..: LifetimeFields,
        pub(crate) sessions as ..: SessionFields,
        pub(crate) stores as ..: StoreFields,
        pub(crate) proxies as ..: ProxyFields,
        pub(crate) proofs as ..: ProofFields,
    }
}

/// The fields of `config`.
pub(crate) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(Fields::fields()));
    &SCHEMA
}

/// A configuration error of `field`.
pub(crate) fn wrong(field: &str, message: &str) -> ConfigError {
    ConfigError {
        field: field.to_owned(),
        message: message.to_owned(),
    }
}

/// A header name, `_` read as `-`.
pub(crate) fn header_name(field: &str, text: &str) -> Result<HeaderName, ConfigError> {
    HeaderName::from_bytes(text.replace('_', "-").as_bytes())
        .map_err(|_| wrong(field, "expected the name of a header"))
}

/// The headers in which something of this name may come: with `_` read as `-`,
/// and as it is written.
pub(crate) fn header_names(field: &str, text: &str) -> Result<Vec<HeaderName>, ConfigError> {
    let mut names = vec![header_name(field, text)?];
    let written = HeaderName::from_bytes(text.as_bytes());
    let written = written.map_err(|_| wrong(field, "expected the name of a header"))?;
    if !names.contains(&written) {
        names.push(written);
    }
    Ok(names)
}

/// The pairs of two lists, item by item: each has a name.
pub(crate) fn pairs(
    (one, ones): (&str, &[String]),
    (other, others): (&str, &[String]),
) -> Result<Vec<(String, String)>, ConfigError> {
    if ones.len() != others.len() {
        return Err(wrong(other, &format!("expected as many items as in {one}")));
    }
    Ok(ones.iter().cloned().zip(others.iter().cloned()).collect())
}

#[cfg(test)]
impl Fields {
    /// The fields of a record, of which only some are given.
    pub(crate) fn of(config: &serde_json::Value) -> Result<Self, ConfigError> {
        let mut config = config.as_object().cloned().expect("an object");
        let issuer = || "https://id".into();
        config.entry("issuer").or_insert_with(issuer);
        schema().fill(&mut config);
        Self::read(&config)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::json;

    use super::*;

    #[test]
    fn every_field_has_one_line() {
        let mut seen = HashSet::new();
        for field in &schema().fields {
            assert!(seen.insert(field.name), "{} is described twice", field.name);
        }
    }

    #[test]
    fn the_interface_defaults_come_first_and_exact() {
        let first = &schema().fields[0];
        assert_eq!(first.name, "client_id");
        for (name, default) in [
            ("scopes", json!(["openid"])),
            ("rediscovery_lifetime", json!(300)),
            ("hide_credentials", json!(false)),
            ("verify_parameters", json!(true)),
            ("http_version", json!(1.1)),
            ("authorization_cookie_samesite", json!("off")),
            ("session_memcache_port", json!(11_211)),
        ] {
            let field = schema().field(name).expect("the field is described");
            assert_eq!(field.default, Some(default), "{name}");
        }
    }
}
