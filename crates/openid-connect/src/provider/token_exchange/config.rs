//! What is exchanged, and what is asked for.

use std::collections::HashSet;

use serde_json::{Map, Value};
use url::Url;

use crate::config::fields::{Fields, wrong};
use crate::provider::extras::Extras;
use crate::provider::introspection::Lifetimes;
use crate::provider::{ProviderConfig, issuer_of};
use doorward_core::jose::claims::{find, same_issuer, words};
use doorward_plugin_api::ConfigError;

/// The configuration of the exchange.
#[derive(Debug)]
pub(crate) struct TokenExchangeConfig {
    /// Of whom tokens are exchanged; `None`: every token is.
    pub(crate) subjects: Option<Vec<Subject>>,
    pub(crate) scope: Option<String>,
    pub(crate) audience: Vec<String>,
    pub(crate) extras: Extras,
    pub(crate) remember: bool,
    pub(crate) lifetimes: Lifetimes,
    pub(crate) leeway: i64,
    /// Whether the provider's own tokens need a good signature.
    pub(crate) verify: bool,
}

/// An issuer of tokens that are exchanged.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) issuer: String,
    pub(crate) conditions: Conditions,
    /// Whose keys its tokens are verified with, if they are.
    pub(crate) keys: Option<ProviderConfig>,
}

/// Which tokens of the provider itself are exchanged: those that meet every
/// condition, and none without any.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    scopes_claim: Vec<String>,
    audience_claim: Vec<String>,
    has_scopes: Vec<String>,
    missing_scopes: Vec<String>,
    has_audience: Vec<String>,
    missing_audience: Vec<String>,
}

impl TokenExchangeConfig {
    /// `None`: nothing is exchanged. `provider` is how the plugin's own
    /// provider is reached: others are, too.
    pub(crate) fn new(
        fields: Fields<'_>,
        provider: &ProviderConfig,
    ) -> Result<Option<Self>, ConfigError> {
        let record = fields.object("token_exchange")?;
        let endpoint = fields.url("token_exchange_endpoint")?;
        if record.is_none() && endpoint.is_none() {
            return Ok(None);
        }
        let inside = NestedFields("token_exchange", record);
        let subjects = match record {
            Some(_) => Some(subjects(inside, fields, provider)?),
            None => None,
        };
        if fields.texts("client_id")?.is_empty() {
            let message = "token_exchange and token_exchange_endpoint need a client";
            return Err(wrong("client_id", message));
        }
        for name in ["proof_of_possession_dpop", "proof_of_possession_mtls"] {
            if fields.is_changed(name) {
                let message = "a token that is exchanged proves nothing any more: off";
                return Err(wrong(name, message));
            }
        }
        let request = inside.record("request")?;
        let cache = inside.record("cache")?;
        let wanted = |name: &str, empty: &str, general: &str| {
            if request.flag(empty, false)? {
                return Ok(Vec::new());
            }
            match request.texts(name)? {
                none if none.is_empty() => fields.texts(general),
                some => Ok::<_, ConfigError>(some),
            }
        };
        let scopes = wanted("scopes", "empty_scopes", "scopes")?.join(" ");
        let lifetimes = Lifetimes::new(fields)?;
        Ok(Some(Self {
            subjects,
            scope: Some(scopes).filter(|scope| !scope.is_empty()),
            audience: wanted("audience", "empty_audience", "audience")?,
            extras: Extras::new(fields, "token_post_args", "token_headers")?,
            remember: fields.flag("cache_token_exchange")? && cache.flag("enabled", true)?,
            lifetimes: match cache.integer("ttl")? {
                Some(ttl) => lifetimes.of_unknown(ttl.saturating_mul(1000)),
                None => lifetimes,
            },
            leeway: fields.integer("leeway")?.unwrap_or(0),
            verify: fields.flag("verify_signature")?,
        }))
    }
}

fn subjects(
    inside: NestedFields<'_>,
    fields: Fields<'_>,
    provider: &ProviderConfig,
) -> Result<Vec<Subject>, ConfigError> {
    let field = "token_exchange.subject_token_issuers";
    let mut seen = HashSet::new();
    let mut subjects = Vec::new();
    for item in inside.records("subject_token_issuers")? {
        let url = item.url("issuer")?;
        let url = url.ok_or_else(|| wrong(field, "each needs an issuer"))?;
        let issuer = issuer_of(&url);
        if !seen.insert(issuer.clone()) {
            return Err(wrong(field, &format!("{issuer} is there twice")));
        }
        let jwks_endpoint = item.url("jwks_uri")?;
        let keys = item
            .flag("verify_signature", false)?
            .then(|| ProviderConfig {
                issuer: url,
                pseudo: jwks_endpoint.is_some(),
                jwks_endpoint,
                extra_jwks: Vec::new(),
                discovery_headers: Vec::new(),
                issuers_allowed: Vec::new(),
                ..provider.clone()
            });
        subjects.push(Subject {
            issuer,
            conditions: Conditions::new(item.record("conditions")?, fields)?,
            keys,
        });
    }
    if subjects.is_empty() {
        Err(wrong(field, "required field missing"))
    } else {
        Ok(subjects)
    }
}

/// The fields of a record inside the configuration, with its name.
#[derive(Clone, Copy)]
struct NestedFields<'a>(&'static str, Option<&'a Map<String, Value>>);

impl<'a> NestedFields<'a> {
    fn value(self, name: &str) -> Option<&'a Value> {
        self.1?.get(name).filter(|value| !value.is_null())
    }

    fn wrong(self, name: &str, expected: &str) -> ConfigError {
        wrong(
            &format!("{}.{name}", self.0),
            &format!("expected {expected}"),
        )
    }

    fn flag(self, name: &str, default: bool) -> Result<bool, ConfigError> {
        let flag = self.value(name).map_or(Some(default), Value::as_bool);
        flag.ok_or_else(|| self.wrong(name, "a boolean"))
    }

    fn integer(self, name: &str) -> Result<Option<i64>, ConfigError> {
        let number = self.value(name).map(|value| {
            let number = value.as_i64().filter(|number| *number >= 0);
            number.ok_or_else(|| self.wrong(name, "an integer that is not negative"))
        });
        number.transpose()
    }

    fn url(self, name: &str) -> Result<Option<Url>, ConfigError> {
        let url = self.value(name).map(|value| {
            let url = value.as_str().and_then(|text| Url::parse(text).ok());
            url.ok_or_else(|| self.wrong(name, "a URL"))
        });
        url.transpose()
    }

    fn items(self, name: &str) -> Result<&'a [Value], ConfigError> {
        match self.value(name) {
            None => Ok(&[]),
            Some(Value::Array(items)) => Ok(items),
            Some(_) => Err(self.wrong(name, "an array")),
        }
    }

    fn texts(self, name: &str) -> Result<Vec<String>, ConfigError> {
        let items = self.items(name)?.iter();
        let texts = items.map(|item| item.as_str().map(str::to_owned));
        let texts: Option<_> = texts.collect();
        texts.ok_or_else(|| self.wrong(name, "an array of strings"))
    }

    fn record(self, name: &'static str) -> Result<Self, ConfigError> {
        let record = self.value(name).map(|value| {
            let record = value.as_object();
            record.ok_or_else(|| self.wrong(name, "a record"))
        });
        Ok(Self(name, record.transpose()?))
    }

    fn records(self, name: &'static str) -> Result<Vec<Self>, ConfigError> {
        let record = |item: &'a Value| {
            let record = item.as_object();
            let record = record.ok_or_else(|| self.wrong(name, "an array of records"))?;
            Ok(Self(name, Some(record)))
        };
        self.items(name)?.iter().map(record).collect()
    }
}

impl Subject {
    pub(crate) fn matches(&self, issuer: &str) -> bool {
        same_issuer(&self.issuer, issuer)
    }
}

impl Conditions {
    fn new(inside: NestedFields<'_>, fields: Fields<'_>) -> Result<Self, ConfigError> {
        let all = |name: &str| {
            let items = inside.texts(name)?;
            let split = items.iter().flat_map(|item| item.split_whitespace());
            Ok::<_, ConfigError>(split.map(str::to_owned).collect::<Vec<_>>())
        };
        Ok(Self {
            scopes_claim: fields.texts("scopes_claim")?,
            audience_claim: fields.texts("audience_claim")?,
            has_scopes: all("has_scopes")?,
            missing_scopes: all("missing_scopes")?,
            has_audience: all("has_audience")?,
            missing_audience: all("missing_audience")?,
        })
    }

    /// Whether there are any and the token meets all of them.
    pub(crate) fn are_met(&self, claims: &Map<String, Value>) -> bool {
        let held = |claim: &[String]| find(claims, claim).map(words).unwrap_or_default();
        let (scopes, audience) = (held(&self.scopes_claim), held(&self.audience_claim));
        let conditions = [
            (&self.has_scopes, &scopes, true),
            (&self.missing_scopes, &scopes, false),
            (&self.has_audience, &audience, true),
            (&self.missing_audience, &audience, false),
        ];
        let mut any = false;
        for (wanted, held, has) in conditions {
            if wanted.is_empty() {
                continue;
            }
            any = true;
            let holds = |word: &String| held.iter().any(|one| one == word);
            if wanted.iter().all(holds) != has {
                return false;
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn met(conditions: &Value, claims: &Value) -> bool {
        let (config, empty) = (conditions.as_object().expect("an object"), Map::new());
        let fields = Fields(&empty);
        let inside = NestedFields("conditions", Some(config));
        let conditions = Conditions::new(inside, fields).expect("valid");
        conditions.are_met(claims.as_object().expect("an object"))
    }

    #[test]
    fn every_condition_counts_and_none_exchanges_nothing() {
        let token = json!({"scope": "openid read", "aud": ["a", "b"]});
        for (conditions, wanted) in [
            (json!({}), false),
            (json!({"has_scopes": [], "missing_audience": null}), false),
            (json!({"has_scopes": ["read"]}), true),
            (json!({"has_scopes": ["read", "write"]}), false),
            (json!({"missing_scopes": ["write"]}), true),
            (json!({"missing_scopes": ["read", "write"]}), true),
            (json!({"missing_scopes": ["read openid"]}), false),
            (json!({"has_audience": ["a", "b"]}), true),
            (json!({"missing_audience": ["c"]}), true),
            (
                json!({"has_audience": ["a"], "missing_scopes": ["read"]}),
                false,
            ),
            (
                json!({"has_audience": ["a"], "missing_scopes": ["write"]}),
                true,
            ),
        ] {
            assert_eq!(met(&conditions, &token), wanted, "{conditions}");
        }
    }
}
