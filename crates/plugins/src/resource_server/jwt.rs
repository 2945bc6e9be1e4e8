//! `StatelessAccessTokenResolver`: tokens that are signed, verified here.

use url::Url;

use super::Resolver;
use super::client::{self, Client};
use super::secrets;
use crate::chain::object::{AnyValue, Field, Object, Reference, object};
use crate::chain::settings::{Declared, Settings};
use doorward_core::jose::claims::{check_times, same_issuer, time, words};
use doorward_core::jose::verify::{Unverified, VerifyError};
use doorward_expr::duration::Length;
use doorward_openid_connect::provider::verifier::{CheckedClaims, TokenCheck, Verifier};
use doorward_openid_connect::provider::{ProviderConfig, ProviderMetadata};
use doorward_openid_connect::refusal::Refusal;
use doorward_openid_connect::rules::{is_access_token, is_of_login};
use doorward_plugin_api::{ConfigError, Parts};

/// Seconds for which fetched keys count as new.
const KEYS_LIFETIME: i64 = 120;

object! {
    /// A `StatelessAccessTokenResolver`.
    struct Fields<'a> {
        decryption as "decryptionSecretId": AnyValue,
        issuer: String,
        provider as "secretsProvider": Reference,
    }
    idle {
        "verificationSecretId",
        "skewAllowance": "the clocks of issuer and gateway may differ by ten seconds",
    }
}

object! {
    /// A `JwkSetSecretStore` whose options count.
    struct KeySet<'a> {
        further as ..: FurtherKeySet<'a>,
        lifetime as "cacheTimeout": Option<Length>,
        handler: Reference,
    }
    idle {
        "cacheMissCacheTimeout":
            "for an unknown key a set is fetched at most every 30 seconds",
        "mappings",
        "leaseExpiry",
    }
}

object! {
    /// A `JwkSetSecretStore` besides another one.
    pub(crate) struct FurtherKeySet<'a> {
        url as "jwkUrl": Url,
    }
}

/// What a signed token has to say.
pub(super) struct Rules {
    issuer: String,
}

impl TokenCheck for Rules {
    fn check(
        &self,
        parsed: &Unverified<'_>,
        metadata: Option<&ProviderMetadata>,
        now_ms: i64,
    ) -> Result<Option<CheckedClaims>, Refusal> {
        if parsed.algorithm().is_symmetric() {
            return Err(Refusal::UnsupportedAlg);
        }
        let Some(metadata) = metadata else {
            return Ok(None);
        };
        let claims = match parsed.verify(&metadata.keys) {
            Err(VerifyError::UnknownKey) => return Ok(None),
            other => other?,
        };
        let typ = parsed.typ();
        let typ = typ.as_deref();
        if is_of_login(typ, &claims) || !is_access_token(typ, &claims, false) {
            return Err(Refusal::WrongType);
        }
        let iss = claims.get("iss").and_then(serde_json::Value::as_str);
        if !iss.is_some_and(|iss| same_issuer(iss, &self.issuer)) {
            return Err(Refusal::WrongIssuer);
        }
        let end = check_times(&claims, now_ms.div_euclid(1000), 0)?;
        let scopes = claims.get("scope").map(words).unwrap_or_default();
        Ok(Some(CheckedClaims {
            scopes: scopes.into_iter().map(Into::into).collect(),
            expires_at: time(&claims, "exp").ok().flatten(),
            ends_at: end.saturating_mul(1000),
            ends_for_good: true,
            claims,
        }))
    }

    fn remembers(&self) -> bool {
        true
    }
}

/// Reads the resolver's `config`.
pub(super) fn read(settings: &Settings<'_>, parts: &Parts) -> Result<Resolver, ConfigError> {
    let fields = Fields::read(settings)?;
    if fields.decryption.is_given() {
        let message = "encrypted tokens are not read: have the issuer sign them and give \
                       verificationSecretId";
        return Err(fields.decryption.wrong(message));
    }
    let stores = stores(&fields.provider)?;
    let config = match stores.as_slice() {
        [] => by_discovery(&fields.issuer)?,
        [first, rest @ ..] => {
            let mut config = by_key_set(first)?;
            for store in rest {
                let further = FurtherKeySet::read(&store.settings)?;
                config.extra_jwks.push(further.url.value);
            }
            config
        }
    };
    Ok(Resolver::Jwt(Verifier::new(
        Rules {
            issuer: fields.issuer.value,
        },
        config,
        parts,
    )))
}

/// The key sets that tokens are verified with; none: those of the issuer.
fn stores<'a>(provider: &Field<'a, Reference>) -> Result<Vec<Declared<'a>>, ConfigError> {
    let stores = secrets::stores(provider)?;
    match stores
        .iter()
        .find(|store| store.kind != "JwkSetSecretStore")
    {
        None => Ok(stores),
        Some(other) => Err(other.unfit(
            "JwkSetSecretStore with the issuer's key set, or leave secretsProvider out to find it \
             by the issuer's discovery document",
        )),
    }
}

fn by_key_set(store: &Declared<'_>) -> Result<ProviderConfig, ConfigError> {
    let set = KeySet::read(&store.settings)?;
    let url = set.further.url.value;
    let lifetime = match set.lifetime.value {
        Some(Length::Finite(length)) => i64::try_from(length.as_secs()).unwrap_or(i64::MAX),
        Some(Length::Unlimited) => i64::MAX,
        None => KEYS_LIFETIME,
    };
    Ok(ProviderConfig {
        issuer: url.clone(),
        pseudo: true,
        jwks_endpoint: Some(url),
        extra_jwks: Vec::new(),
        discovery_headers: Vec::new(),
        options: Client::read(&set.handler)?.options,
        rediscovery_lifetime: lifetime,
        issuers_allowed: Vec::new(),
    })
}

fn by_discovery(issuer: &Field<'_, String>) -> Result<ProviderConfig, ConfigError> {
    let url = Url::parse(&issuer.value).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
    let message = "must be an http or https URL where no secretsProvider says where the keys are";
    let issuer = url.ok_or_else(|| issuer.wrong(message))?;
    Ok(ProviderConfig::discovered(issuer, client::options()))
}
