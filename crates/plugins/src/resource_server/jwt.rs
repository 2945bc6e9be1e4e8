//! `StatelessAccessTokenResolver`: tokens that are signed, verified here.

use url::Url;

use super::Resolver;
use super::client::{self, Client};
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
    settings.known(&[
        "issuer",
        "secretsProvider",
        "verificationSecretId",
        "decryptionSecretId",
        "skewAllowance",
    ]);
    if settings.has("decryptionSecretId") {
        let message = "encrypted tokens are not read: have the issuer sign them and give \
                       verificationSecretId";
        return Err(settings.wrong("decryptionSecretId", message));
    }
    settings.idle(
        &["skewAllowance"],
        "the clocks of issuer and gateway may differ by ten seconds",
    );
    let issuer = settings.required("issuer")?;
    let stores = stores(settings)?;
    let config = match stores.as_slice() {
        [] => by_discovery(settings, &issuer)?,
        [first, rest @ ..] => {
            let mut config = by_key_set(first)?;
            for store in rest {
                config.extra_jwks.push(key_set_url(store)?);
            }
            config
        }
    };
    Ok(Resolver::Jwt(Verifier::new(
        Rules { issuer },
        config,
        parts,
    )))
}

/// The key sets that tokens are verified with; none: those of the issuer.
fn stores<'a>(settings: &Settings<'a>) -> Result<Vec<Declared<'a>>, ConfigError> {
    let mut stores = Vec::new();
    for declared in settings.all_declared("secretsProvider")? {
        match declared.kind.as_str() {
            "SecretsProvider" => stores.extend(declared.settings.all_declared("stores")?),
            _ => stores.push(declared),
        }
    }
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

fn key_set_url(store: &Declared<'_>) -> Result<Url, ConfigError> {
    let settings = &store.settings;
    settings
        .url("jwkUrl")?
        .ok_or_else(|| settings.wrong("jwkUrl", "is required"))
}

fn by_key_set(store: &Declared<'_>) -> Result<ProviderConfig, ConfigError> {
    let settings = &store.settings;
    settings.known(&[
        "jwkUrl",
        "handler",
        "cacheTimeout",
        "cacheMissCacheTimeout",
        "mappings",
        "leaseExpiry",
    ]);
    let url = key_set_url(store)?;
    settings.idle(
        &["cacheMissCacheTimeout"],
        "for an unknown key a set is fetched at most every 30 seconds",
    );
    let lifetime = match settings.length("cacheTimeout")? {
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
        options: Client::read(settings, "handler")?.options,
        rediscovery_lifetime: lifetime,
        issuers_allowed: Vec::new(),
    })
}

fn by_discovery(settings: &Settings<'_>, issuer: &str) -> Result<ProviderConfig, ConfigError> {
    let url = Url::parse(issuer).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
    let message = "must be an http or https URL where no secretsProvider says where the keys are";
    let issuer = url.ok_or_else(|| settings.wrong("issuer", message))?;
    Ok(ProviderConfig::discovered(issuer, client::options()))
}
