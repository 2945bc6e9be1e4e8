//! One fetch of a provider: its discovery document when that is due (OpenID
//! Connect Discovery §4, RFC 8414 §3), and its key sets.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::{Map, Value};
use url::Url;

use crate::provider::{Provider, ProviderConfig, ProviderMetadata};
use doorward_core::jose::claims::same_issuer;
use doorward_core::jose::json;
use doorward_core::jose::jwks::{JwksError, KeySet};
use doorward_net::http::outbound::{Answer, OutboundError};
use doorward_oidc_client::metadata::{self, MetadataError, discovery_urls, issuer_of};

/// Why a provider's keys could not be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// The provider gave no answer, or not the one needed.
    #[error("{url}: {error}")]
    Outbound {
        /// What was asked for.
        url: Url,
        /// What went wrong.
        error: OutboundError,
    },
    /// A key set is none.
    #[error("{url}: {error}")]
    Jwks {
        /// Where it came from.
        url: Url,
        /// What is wrong.
        error: JwksError,
    },
    /// The provider names no such thing.
    #[error("no {0}")]
    Missing(&'static str),
    /// The discovery document is of another issuer than the one it was found
    /// at (OpenID Connect Discovery §4.3, RFC 8414 §3.3).
    #[error("{url}: {mismatch}")]
    Issuer {
        /// Where it came from.
        url: Url,
        /// The issuer that it names, and that of the configuration.
        mismatch: String,
    },
    /// The provider names its key set by what can't be used.
    #[error("jwks_uri: {0}")]
    KeySetAddress(MetadataError),
}

impl FetchError {
    /// Whether the discovery document was refused for the issuer that it names.
    pub(crate) fn is_of_issuer(&self) -> bool {
        matches!(self, Self::Issuer { .. })
    }

    /// Whether nothing was said at all: the same host will not answer at another
    /// path either.
    fn is_silence(&self) -> bool {
        matches!(self, Self::Outbound { error, .. }
            if !matches!(error, OutboundError::Status(_) | OutboundError::Json(_)))
    }

    /// Whether the provider has said that there is no such document.
    fn is_absence(&self) -> bool {
        matches!(self, Self::Outbound { error: OutboundError::Status(status), .. }
            if status.is_client_error())
    }
}

type Document = Arc<Map<String, Value>>;

/// Fetches what is due. `previous` is what is known so far.
pub(crate) async fn fetch(
    provider: &Provider,
    previous: Option<&ProviderMetadata>,
) -> Result<ProviderMetadata, FetchError> {
    let asked_ms = provider.clock.now_ms();
    let discovered = if discovery_due(provider, previous) {
        discover(provider).await
    } else {
        Ok(previous.and_then(|metadata| metadata.discovered.clone()))
    };
    // Key sets of one's own make up for a lacking discovery document; further ones
    // only where there is none: one that can't be had now may name the keys.
    let config = &provider.config;
    let makes_up = |error: &FetchError| {
        !error.is_of_issuer()
            && (config.jwks_endpoint.is_some()
                || !config.extra_jwks.is_empty() && error.is_absence())
    };
    let discovered = match discovered {
        Err(error) if makes_up(&error) => previous.and_then(|metadata| metadata.discovered.clone()),
        outcome => outcome?,
    };
    let document = discovered.as_ref().map(|(document, _)| document);
    let sets = key_sets(provider, document, previous).await?;
    let mut keys = KeySet::default();
    for (_, set) in &sets {
        keys.extend(set.clone());
    }
    let issuer = issuer(config, document);
    let address = Url::parse(&issuer).ok();
    Ok(ProviderMetadata {
        undiscovered: document.is_none() && !config.pseudo && config.jwks_endpoint.is_none(),
        token_status: address.and_then(|address| provider.outbound.token_status(&address)),
        issuer,
        keys,
        generation: 0,
        asked_ms,
        discovered,
        sets,
    })
}

fn discovery_due(provider: &Provider, previous: Option<&ProviderMetadata>) -> bool {
    let lifetime = provider.config.rediscovery_lifetime.saturating_mul(1000);
    let fetched = previous.and_then(|metadata| metadata.discovered.as_ref());
    !provider.config.pseudo
        && fetched.is_none_or(|(_, at)| provider.clock.now_ms() - at >= lifetime)
}

async fn discover(provider: &Provider) -> Result<Option<(Document, i64)>, FetchError> {
    let mut failure = None;
    for url in discovery_urls(&provider.config.issuer) {
        let found = document(provider, &url).await;
        let is_own = |url: &Url| provider.outbound.token_status(url).is_some();
        let found =
            found.and_then(|document| check_issuer(&provider.config, &url, document, is_own));
        match found {
            Ok(document) => {
                let now = provider.clock.now_ms();
                return Ok(Some((Arc::new(document), now)));
            }
            Err(error) => {
                let lost = error.is_silence();
                // It may be there, if one of the places could not be looked at.
                failure = Some(
                    failure
                        .filter(|one: &FetchError| !one.is_absence())
                        .unwrap_or(error),
                );
                if lost {
                    break;
                }
            }
        }
    }
    Err(failure.unwrap_or(FetchError::Missing("URL")))
}

async fn document(provider: &Provider, url: &Url) -> Result<Map<String, Value>, FetchError> {
    let lost = |error| FetchError::Outbound {
        url: url.clone(),
        error,
    };
    let mut headers = HeaderMap::new();
    for (name, value) in &provider.config.discovery_headers {
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name.as_bytes()),
            HeaderValue::from_str(value),
        ) {
            headers.append(name, value);
        }
    }
    let outbound = &provider.outbound;
    let answer = outbound.get(url, headers, provider.config.options).await;
    let answer = answer.and_then(ok).map_err(lost)?;
    json::object(&answer.body).map_err(|error| lost(OutboundError::Json(error)))
}

/// Checks that a document that was found at `url` is of the configured issuer, or
/// of one that the configuration allows. The provider in this process, whose
/// addresses `is_own` knows, speaks for itself: each of its realms has one issuer,
/// and several paths.
fn check_issuer(
    config: &ProviderConfig,
    url: &Url,
    document: Map<String, Value>,
    is_own: impl Fn(&Url) -> bool,
) -> Result<Map<String, Value>, FetchError> {
    let configured = issuer_of(&config.issuer);
    let allowed = |named: &str| {
        let mut others = config.issuers_allowed.iter();
        same_issuer(named, &configured)
            || others.any(|other| fits_pattern(other, named))
            || is_own(url) && Url::parse(named).is_ok_and(|named| is_own(&named))
    };
    if metadata::issuer(&document, allowed).is_ok() {
        return Ok(document);
    }
    let named = document.get("issuer").and_then(Value::as_str);
    let named = named.map_or_else(|| "(none)".to_owned(), in_log);
    let mismatch = format!(
        "the metadata names the issuer {named}, not {configured}: configure that issuer, \
         or list it in issuers_allowed"
    );
    let url = url.clone();
    Err(FetchError::Issuer { url, mismatch })
}

/// What a document says, as far as it fits into a line of the log.
fn in_log(text: &str) -> String {
    let visible = text.chars().filter(|c| !c.is_control());
    visible.take(200).collect()
}

/// Whether an issuer is the named one. Providers of many tenants name a pattern
/// (`https://…/{tenantid}/…`): it stands for each issuer that differs there alone.
fn fits_pattern(issuer: &str, named: &str) -> bool {
    let (Some((before, _)), Some((_, after))) = (named.split_once('{'), named.rsplit_once('}'))
    else {
        return same_issuer(issuer, named);
    };
    let after = after.strip_suffix('/').unwrap_or(after);
    let issuer = issuer.strip_suffix('/').unwrap_or(issuer);
    let rest = issuer.strip_prefix(before);
    rest.and_then(|rest| rest.strip_suffix(after))
        .is_some_and(|tenant| !tenant.is_empty() && !tenant.contains('/'))
}

fn ok(answer: Answer) -> Result<Answer, OutboundError> {
    match answer.status {
        StatusCode::OK => Ok(answer),
        status => Err(OutboundError::Status(status)),
    }
}

/// The `iss` to expect: what the provider says of itself.
fn issuer(config: &ProviderConfig, document: Option<&Document>) -> String {
    let discovered = document
        .and_then(|document| document.get("issuer"))
        .and_then(Value::as_str);
    discovered.map_or_else(|| issuer_of(&config.issuer), str::to_owned)
}

/// The configured key sets by URL, the main one first.
///
/// A further set that is out of reach keeps the keys it had. The main set has
/// to be there, except at the start: the others then do what they can.
async fn key_sets(
    provider: &Provider,
    document: Option<&Document>,
    previous: Option<&ProviderMetadata>,
) -> Result<Vec<(Url, KeySet)>, FetchError> {
    let old = |url: &Url| previous.and_then(|metadata| metadata.set(url));
    let mut sets = Vec::new();
    let mut failure = None;
    let lost = || previous.is_some_and(|metadata| metadata.member("jwks_uri").is_some());
    let main = jwks_url(&provider.config, document)?;
    if main.is_none() && document.is_some() && lost() {
        return Err(FetchError::Missing("jwks_uri"));
    }
    if let Some(url) = main {
        match key_set(provider, url.clone()).await {
            Ok(set) if set.is_empty() && old(&url).is_some_and(|old| !old.is_empty()) => {
                return Err(FetchError::Missing("usable keys"));
            }
            Ok(set) => sets.push((url, set)),
            Err(error) if previous.is_some() => return Err(error),
            Err(error) => failure = Some(error),
        }
    }
    for url in &provider.config.extra_jwks {
        match (key_set(provider, url.clone()).await, old(url)) {
            (Ok(set), _) => sets.push((url.clone(), set)),
            (Err(_), Some(old)) => sets.push((url.clone(), old.clone())),
            (Err(error), None) => failure = Some(error),
        }
    }
    match failure {
        Some(error) if sets.is_empty() => Err(error),
        _ => Ok(sets),
    }
}

fn jwks_url(
    config: &ProviderConfig,
    document: Option<&Document>,
) -> Result<Option<Url>, FetchError> {
    if config.jwks_endpoint.is_some() {
        return Ok(config.jwks_endpoint.clone());
    }
    // RFC 8414 §2: it is optional. A pseudo issuer has the further sets alone.
    let named = document.and_then(|document| document.get("jwks_uri"));
    let is_secure = config.issuer.scheme() == "https";
    metadata::address(named, is_secure).map_err(FetchError::KeySetAddress)
}

async fn key_set(provider: &Provider, url: Url) -> Result<KeySet, FetchError> {
    let options = provider.config.options;
    let answer = provider.outbound.get(&url, HeaderMap::new(), options).await;
    match answer.and_then(ok) {
        Ok(answer) => KeySet::parse(&answer.body).map_err(|error| FetchError::Jwks { url, error }),
        Err(error) => Err(FetchError::Outbound { url, error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_are_of_the_issuer_they_were_found_at_or_of_an_allowed_one() {
        let check = |configured: &str, allowed: &[&str], document: Value| {
            let issuer = Url::parse(configured).expect("a URL");
            let options = doorward_net::http::outbound::Options::default();
            let config = ProviderConfig {
                issuers_allowed: allowed.iter().map(|one| (*one).to_owned()).collect(),
                ..ProviderConfig::discovered(issuer.clone(), options)
            };
            let document = document.as_object().cloned().expect("an object");
            check_issuer(&config, &issuer, document, |_| false).is_ok()
        };
        let named = |issuer: &str| serde_json::json!({ "issuer": issuer });
        for configured in [
            "https://h/a",
            "https://h/a/",
            "https://h/a/.well-known/openid-configuration",
            "https://h/.well-known/oauth-authorization-server/a",
            "https://h/a/.well-known/openid-configuration?p=policy",
        ] {
            for good in ["https://h/a", "https://h/a/"] {
                assert!(check(configured, &[], named(good)), "{configured} {good}");
            }
            for bad in ["https://h", "https://h/b", "http://h/a", "https://h/A", ""] {
                assert!(!check(configured, &[], named(bad)), "{configured} {bad}");
            }
            for bad in [
                serde_json::json!({}),
                serde_json::json!({"issuer": ["https://h/a"]}),
            ] {
                assert!(!check(configured, &[], bad.clone()), "{configured} {bad}");
            }
        }
        let tenants = ["https://h/t1/v2", "https://sts/t2/"];
        for (issuer, good) in [
            ("https://h/{tenantid}/v2", true),
            ("https://sts/t2", true),
            ("https://h/t1/v2", true),
            ("https://h/common", true),
            ("https://h/{tenantid}/v1", false),
            ("https://evil/{tenantid}/v2", false),
            ("https://h/t3/v2", false),
            ("{x}", false),
        ] {
            let document = named(issuer);
            assert_eq!(
                check("https://h/common", &tenants, document),
                good,
                "{issuer}"
            );
        }
    }

    #[test]
    fn an_https_provider_cannot_be_downgraded_to_http_keys() {
        let config = |issuer: &str| {
            let issuer = Url::parse(issuer).expect("a URL");
            ProviderConfig::discovered(issuer, doorward_net::http::outbound::Options::default())
        };
        let document = |jwks_uri: &str| {
            let member = ("jwks_uri".to_owned(), Value::from(jwks_uri));
            Arc::new(Map::from_iter([member]))
        };
        let plain = document("http://h/keys");
        let outcome = jwks_url(&config("https://h"), Some(&plain));
        let error = outcome.expect_err("it is on http").to_string();
        assert_eq!(
            error,
            "jwks_uri: it is an http address of an https provider"
        );
        assert!(jwks_url(&config("http://h"), Some(&plain)).is_ok());
        let outcome = jwks_url(&config("https://h"), Some(&document("keys")));
        let error = outcome.expect_err("it is no address").to_string();
        assert_eq!(error, "jwks_uri: it is no usable address");
    }
}
