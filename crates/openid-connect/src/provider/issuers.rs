//! Whose tokens count: the provider's own, or those that the configuration
//! names in its place (`issuers_allowed`).

use serde_json::{Map, Value};

use crate::config::fields::Fields;
use doorward_core::jose::claims::same_issuer;

/// The issuers that the configuration names.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllowedIssuers(Vec<String>);

impl AllowedIssuers {
    pub(crate) fn new(fields: &Fields) -> Self {
        Self(fields.claims.issuers_allowed.to_vec())
    }

    /// Whether the claims are of an issuer that counts, where the provider calls
    /// itself `discovered`.
    pub(crate) fn fit(&self, claims: &Map<String, Value>, discovered: &str) -> bool {
        let issuer = claims.get("iss").and_then(Value::as_str);
        issuer.is_some_and(|issuer| self.has(issuer, discovered))
    }

    /// As [`AllowedIssuers::fit`], of an issuer by its name.
    pub(crate) fn has(&self, issuer: &str, discovered: &str) -> bool {
        if self.0.is_empty() {
            same_issuer(issuer, discovered)
        } else {
            self.0.iter().any(|allowed| same_issuer(issuer, allowed))
        }
    }

    /// Whether an answer of the authorization endpoint that names this issuer is
    /// of the provider (RFC 9207). It alone was asked, so others do not count
    /// whose tokens would; but some call themselves by a pattern
    /// (`https://…/{tenantid}/…`), which nobody is called in an answer.
    pub(crate) fn answers_as(&self, issuer: &str, discovered: &str) -> bool {
        same_issuer(issuer, discovered)
            || (discovered.contains('{') && self.has(issuer, discovered))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn issuers(config: Value) -> AllowedIssuers {
        AllowedIssuers::new(&Fields::of(&config).expect("valid"))
    }

    #[test]
    fn issuers_that_are_named_take_the_place_of_the_discovered_one() {
        let own = issuers(json!({}));
        assert!(own.has("https://id/", "https://id"));
        assert!(!own.has("https://a", "https://id"));
        let named = issuers(json!({"issuers_allowed": ["https://a", "https://b"]}));
        assert!(named.has("https://b/", "https://id"));
        assert!(!named.has("https://id", "https://id"));
    }

    #[test]
    fn mix_up_with_an_issuer_whose_tokens_count_but_who_was_not_asked() {
        let named = issuers(json!({"issuers_allowed": ["https://id/t1", "https://other"]}));
        assert!(!named.answers_as("https://other", "https://id"));
        assert!(named.answers_as("https://id", "https://id"));
        assert!(named.answers_as("https://id/t1", "https://id/{tenantid}"));
        assert!(!named.answers_as("https://id/t2", "https://id/{tenantid}"));
    }
}
