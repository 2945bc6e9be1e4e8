//! Claims that are told elsewhere (OpenID Connect Core §5.6.2): a token, or the
//! provider's word on it, says where, and by which token they are had.
//!
//! What names such claims is believed already: it is signed, or the provider
//! has said it. Its addresses are obeyed as the provider's own are: over https
//! if the provider is, without redirects, within the same bounds.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use serde_json::{Map, Value};
use url::Url;

use crate::authorize::rules::Rules;
use crate::config::fields::{Fields, wrong};
use crate::decide::refusal::Refusal;
use crate::provider::client::{ProviderClient, object};
use crate::provider::introspection::{Lifetimes, responses};
use crate::provider::single_flight::{Digest, SingleFlight, digest_of};
use crate::provider::token_cache::VerifiedToken;
use crate::provider::verifier::CheckedClaims;
use doorward_plugin_api::ConfigError;

const NAMES: &str = "_claim_names";
const SOURCES: &str = "_claim_sources";
/// Most addresses that are asked about one token.
const SOURCES_MAX: usize = 8;
/// Most tokens whose claims are remembered, about.
const TOKENS: usize = 8 * 1024;
/// Most memory for them, in bytes, about.
const BYTES: u64 = 32 * 1024 * 1024;
/// What a token says itself or not at all.
const OWN: &[&str] = &[
    "iss", "sub", "aud", "exp", "nbf", "iat", "jti", "azp", "cnf", "active", NAMES, SOURCES,
];

/// For how long they are remembered, if they are.
#[derive(Debug)]
pub(crate) struct DistributedClaimsConfig {
    remember: bool,
    lifetimes: Lifetimes,
}

impl DistributedClaimsConfig {
    /// `None`: nobody is asked.
    pub(crate) fn new(fields: &Fields) -> Result<Option<Self>, ConfigError> {
        let name = "resolve_distributed_claims";
        if !fields.claims.resolve_distributed_claims {
            return Ok(None);
        }
        // Anybody could send the gateway anywhere.
        if !fields.checks.verify_signature || !fields.claims.ignore_signature.is_empty() {
            return Err(wrong(name, "needs the signatures of all tokens verified"));
        }
        Ok(Some(Self {
            remember: fields.cache.cache_user_info,
            lifetimes: Lifetimes::new(fields),
        }))
    }
}

/// Whether some claims are told elsewhere.
pub(crate) fn has_distributed_claims(claims: &Map<String, Value>) -> bool {
    claims.contains_key(NAMES) && claims.get(SOURCES).is_some_and(Value::is_object)
}

/// Asks for claims, once a token, and remembers.
pub(crate) struct DistributedClaims {
    config: DistributedClaimsConfig,
    rules: Arc<Rules>,
    provider_client: Arc<ProviderClient>,
    held: ClaimsCache,
    flights: SingleFlight<Arc<FetchedClaims>>,
}

#[derive(Clone)]
struct CachedClaims {
    of: Arc<VerifiedToken>,
    with: Arc<VerifiedToken>,
    until: i64,
}

/// What is known of tokens with all claims.
type ClaimsCache = Cache<Digest, CachedClaims, Weight, ahash::RandomState>;

fn claims_cache() -> ClaimsCache {
    let state = ahash::RandomState::new();
    Cache::with(TOKENS, BYTES, Weight, state, DefaultLifecycle::default())
}

#[derive(Clone)]
struct Weight;

impl Weighter<Digest, CachedClaims> for Weight {
    fn weight(&self, _: &Digest, held: &CachedClaims) -> u64 {
        // What the token says is there with the other claims, too.
        2 * held.of.weight + held.with.weight
    }
}

/// Claims that were told, and about how long they are, in bytes.
#[derive(Default)]
struct FetchedClaims {
    claims: Map<String, Value>,
    length: usize,
}

impl DistributedClaims {
    pub(crate) fn new(
        config: DistributedClaimsConfig,
        rules: &Arc<Rules>,
        provider_client: &Arc<ProviderClient>,
    ) -> Self {
        Self {
            flights: SingleFlight::new(config.lifetimes.refused(), provider_client.timeout()),
            config,
            rules: Arc::clone(rules),
            provider_client: Arc::clone(provider_client),
            held: claims_cache(),
        }
    }

    /// What is known with all claims, if that is remembered.
    pub(crate) fn cached(&self, verified: Arc<VerifiedToken>) -> Option<Arc<VerifiedToken>> {
        if !has_distributed_claims(&verified.token.claims) {
            return Some(verified);
        }
        let held = self.held.get(&about(&verified))?;
        let live = self.provider_client.clock.now_ms() < held.until;
        (live && held.of.is_same(&verified)).then_some(held.with)
    }

    /// What is known with all claims; the rules hold for them, too.
    ///
    /// # Errors
    /// When a source does not tell, or the rules are not met.
    pub(crate) async fn enrich(
        &self,
        verified: Arc<VerifiedToken>,
    ) -> Result<Arc<VerifiedToken>, Refusal> {
        if let Some(complete) = self.cached(Arc::clone(&verified)) {
            return Ok(complete);
        }
        let about = about(&verified);
        let now_ms = self.provider_client.clock.now_ms();
        if let Some(refusal) = self.flights.refused(&about, now_ms) {
            return Err(refusal);
        }
        let sources = sources(&verified.token.claims)?;
        let (provider_client, clock) = (
            Arc::clone(&self.provider_client),
            self.provider_client.clock.clone(),
        );
        let question = move || async move {
            let mut fetched = FetchedClaims::default();
            for source in sources {
                source.ask(&provider_client, &mut fetched).await?;
            }
            Ok(Arc::new(fetched))
        };
        let asked = self.flights.ask(about, question, move || clock.now_ms());
        let with = self.merge(&verified, &*asked.await?)?;
        if self.config.remember {
            let end = verified.token.expires_at;
            let end = end.map(|end| end.saturating_mul(1000));
            let held = CachedClaims {
                until: self.config.lifetimes.until(end, now_ms),
                of: verified,
                with: Arc::clone(&with),
            };
            self.held.insert(about, held);
        }
        Ok(with)
    }

    /// What the token says counts more than what others say.
    fn merge(
        &self,
        verified: &VerifiedToken,
        fetched: &FetchedClaims,
    ) -> Result<Arc<VerifiedToken>, Refusal> {
        let token = &verified.token;
        let mut claims = token.claims.clone();
        claims.remove(NAMES);
        claims.remove(SOURCES);
        for (name, value) in &fetched.claims {
            claims.entry(name.as_str()).or_insert_with(|| value.clone());
        }
        self.rules.check_permissions(&claims)?;
        let checked = CheckedClaims {
            scopes: self.rules.scopes(&claims),
            claims,
            expires_at: token.expires_at,
            ends_at: verified.ends_at,
            ends_for_good: verified.ends_for_good,
        };
        let (revocation, responses) =
            (Arc::clone(&verified.revocation), verified.responses.clone());
        let (length, generation) = (fetched.length, verified.generation);
        Ok(checked.verified_with(&token.token, length, generation, revocation, responses))
    }
}

/// The token and every word about it: userinfo may name sources, too.
fn about(verified: &VerifiedToken) -> Digest {
    let claims = &verified.token.claims;
    let named = [NAMES, SOURCES].map(|name| claims.get(name).map(Value::to_string));
    let named = named.iter().flatten().map(String::as_bytes);
    digest_of([verified.token.token.as_bytes()].into_iter().chain(named))
}

/// Somebody who tells claims.
struct Source {
    endpoint: Url,
    token: Option<String>,
    /// Which ones.
    names: Vec<String>,
}

/// Who tells which claims. Those that come in the token itself (§5.6.1) and
/// those without a source are nobody's.
fn sources(claims: &Map<String, Value>) -> Result<Vec<Source>, Refusal> {
    let (Some(Value::Object(names)), Some(Value::Object(all))) =
        (claims.get(NAMES), claims.get(SOURCES))
    else {
        return Ok(Vec::new());
    };
    let mut sources = Vec::new();
    for (key, source) in all {
        let of_it = names.iter().filter(|(_, named)| *named == key);
        let of_it = of_it.filter(|(name, _)| !OWN.contains(&name.as_str()));
        let of_it: Vec<String> = of_it.map(|(name, _)| name.clone()).collect();
        let Some(endpoint) = source.get("endpoint").and_then(Value::as_str) else {
            continue;
        };
        if of_it.is_empty() {
            continue;
        }
        let token = source.get("access_token").and_then(Value::as_str);
        sources.push(Source {
            endpoint: Url::parse(endpoint).map_err(|_| Refusal::ClaimsElsewhere)?,
            token: token.map(str::to_owned),
            names: of_it,
        });
    }
    if sources.len() <= SOURCES_MAX {
        Ok(sources)
    } else {
        Err(Refusal::ClaimsElsewhere)
    }
}

impl Source {
    async fn ask(
        &self,
        provider_client: &ProviderClient,
        fetched: &mut FetchedClaims,
    ) -> Result<(), Refusal> {
        let answer =
            provider_client.get_at(&self.endpoint, self.token.as_deref(), HeaderMap::new());
        let answer = answer.await?;
        if answer.status != StatusCode::OK {
            provider_client.warn_once(&self.endpoint, &format!("status {}", answer.status));
            return Err(Refusal::ClaimsElsewhere);
        }
        let claims = match responses::jwt(&answer) {
            None => object(&answer).ok_or(Refusal::ProviderMalformed)?,
            Some(token) => {
                responses::claims_signed_by_provider(&*provider_client.metadata().await?, &token)?
            }
        };
        for name in &self.names {
            // Of a claim that is not told nobody knows what it would have forbidden.
            let Some(value) = claims.get(name) else {
                provider_client.warn_once(&self.endpoint, &format!("no claim {name:?}"));
                return Err(Refusal::ClaimsElsewhere);
            };
            fetched.length += name.len() + value.to_string().len();
            fetched.claims.insert(name.clone(), value.clone());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::revocation::RevocationStatus;

    fn verified(claims: Map<String, Value>, length: usize) -> Arc<VerifiedToken> {
        let checked = CheckedClaims {
            claims,
            scopes: Vec::new(),
            expires_at: None,
            ends_at: i64::MAX,
            ends_for_good: false,
        };
        checked.verified("t", length, 0, RevocationStatus::default())
    }

    #[test]
    fn a_flood_of_long_claims_stays_within_the_bound() {
        let held = claims_cache();
        for n in 0_u32..2_000 {
            let mut claims = Map::new();
            claims.insert("groups".to_owned(), Value::from("g".repeat(60_000)));
            let one = CachedClaims {
                of: verified(Map::new(), 0),
                with: verified(claims, 60_000),
                until: i64::MAX,
            };
            held.insert(digest_of([&n.to_be_bytes()[..]]), one);
        }
        let count = held.len() as u64;
        assert!(count * 60_000 <= BYTES + BYTES / 8, "{count}");
    }
}
