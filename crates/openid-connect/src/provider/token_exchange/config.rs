//! What is exchanged, and what is asked for.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::config::fields::client::{
    ExchangeConditions, ExchangeRequest, ProofRequirement, SubjectIssuer,
};
use crate::config::fields::types::{Bounded, HttpUrl, Texts};
use crate::config::fields::{Fields, wrong};
use crate::provider::ProviderConfig;
use crate::provider::extras::Extras;
use crate::provider::introspection::Lifetimes;
use doorward_core::jose::claims::{find, same_issuer, words};
use doorward_oidc_client::metadata::issuer_of;
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
        fields: &Fields,
        provider: &ProviderConfig,
    ) -> Result<Option<Self>, ConfigError> {
        let record = fields.endpoints.token_exchange.as_ref();
        if record.is_none() && fields.endpoints.token_exchange_endpoint.is_none() {
            return Ok(None);
        }
        let subjects = match record {
            Some(record) => Some(subjects(&record.subject_token_issuers, fields, provider)?),
            None => None,
        };
        if fields.provider.client_id.is_empty() {
            let message = "token_exchange and token_exchange_endpoint need a client";
            return Err(wrong("client_id", message));
        }
        for (name, requirement) in [
            (
                "proof_of_possession_dpop",
                fields.proofs.proof_of_possession_dpop,
            ),
            (
                "proof_of_possession_mtls",
                fields.proofs.proof_of_possession_mtls,
            ),
        ] {
            if requirement != ProofRequirement::Off {
                let message = "a token that is exchanged proves nothing any more: off";
                return Err(wrong(name, message));
            }
        }
        let usual = ExchangeRequest::default();
        let request = record.and_then(|record| record.request.as_ref());
        let request = request.unwrap_or(&usual);
        let cache = record.and_then(|record| record.cache.as_ref());
        let wanted = |named: &Texts, empty: bool, general: &Texts| match (empty, named.is_empty()) {
            (true, _) => Vec::new(),
            (false, true) => general.to_vec(),
            (false, false) => named.to_vec(),
        };
        let scopes = wanted(
            &request.scopes,
            request.empty_scopes,
            &fields.provider.scopes,
        );
        let scopes = scopes.join(" ");
        let lifetimes = Lifetimes::new(fields);
        Ok(Some(Self {
            subjects,
            scope: Some(scopes).filter(|scope| !scope.is_empty()),
            audience: wanted(
                &request.audience,
                request.empty_audience,
                &fields.client.audience,
            ),
            extras: Extras::new(&fields.arguments.of_tokens())?,
            remember: fields.cache.cache_token_exchange && cache.is_none_or(|cache| cache.enabled),
            lifetimes: match cache.and_then(|cache| cache.ttl) {
                Some(Bounded(ttl)) => lifetimes.of_unknown(ttl.saturating_mul(1000)),
                None => lifetimes,
            },
            leeway: fields.checks.leeway.0,
            verify: fields.checks.verify_signature,
        }))
    }
}

fn subjects(
    issuers: &[SubjectIssuer],
    fields: &Fields,
    provider: &ProviderConfig,
) -> Result<Vec<Subject>, ConfigError> {
    let field = "token_exchange.subject_token_issuers";
    let mut seen = HashSet::new();
    let mut subjects = Vec::new();
    for item in issuers {
        let HttpUrl(url) = &item.issuer;
        let issuer = issuer_of(url);
        if !seen.insert(issuer.clone()) {
            return Err(wrong(field, &format!("{issuer} is there twice")));
        }
        let keys = item.verify_signature.then(|| ProviderConfig {
            issuer: url.clone(),
            pseudo: item.jwks_uri.is_some(),
            jwks_endpoint: item.jwks_uri.as_ref().map(|url| url.0.clone()),
            extra_jwks: Vec::new(),
            discovery_headers: Vec::new(),
            issuers_allowed: Vec::new(),
            ..provider.clone()
        });
        subjects.push(Subject {
            issuer,
            conditions: Conditions::new(item.conditions.as_ref(), fields),
            keys,
        });
    }
    if subjects.is_empty() {
        Err(wrong(field, "required field missing"))
    } else {
        Ok(subjects)
    }
}

impl Subject {
    pub(crate) fn matches(&self, issuer: &str) -> bool {
        same_issuer(&self.issuer, issuer)
    }
}

impl Conditions {
    fn new(conditions: Option<&ExchangeConditions>, fields: &Fields) -> Self {
        let none = ExchangeConditions::default();
        let conditions = conditions.unwrap_or(&none);
        let all = |items: &Texts| {
            let split = items.iter().flat_map(|item| item.split_whitespace());
            split.map(str::to_owned).collect()
        };
        Self {
            scopes_claim: fields.subject.scopes_claim.to_vec(),
            audience_claim: fields.subject.audience_claim.to_vec(),
            has_scopes: all(&conditions.has_scopes),
            missing_scopes: all(&conditions.missing_scopes),
            has_audience: all(&conditions.has_audience),
            missing_audience: all(&conditions.missing_audience),
        }
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
        let fields = Fields::of(&json!({})).expect("valid");
        let conditions = ExchangeConditions::read(conditions.as_object().expect("an object"));
        let conditions = Conditions::new(Some(&conditions.expect("valid")), &fields);
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
