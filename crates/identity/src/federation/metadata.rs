//! What other providers say of themselves (OpenID Connect Discovery §4),
//! fetched when it is needed first, and kept: a provider that is silent for a
//! while is used as it was.

use std::sync::{Arc, Mutex, PoisonError};

use quick_cache::sync::Cache;
use serde_json::{Map, Value};
use url::Url;

use doorward_core::jose::algorithm::Algorithm;
use doorward_core::jose::claims::same_issuer;
use doorward_core::jose::json;
use doorward_core::model::client::AuthMethod;
use doorward_net::http::outbound::{Bounds, ChosenBy, GuardedClient, OutboundError};
use doorward_oidc_client::metadata;

/// Documents kept.
const DOCUMENTS: usize = 1_000;

/// Age from which one is fetched again, in milliseconds.
const LIFE_MS: i64 = 3600 * 1000;

/// The shortest time between two tries to fetch one, in milliseconds: nobody
/// waits for a silent provider again and again.
const PAUSE_MS: i64 = 10 * 1000;

/// Why a provider's metadata can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum MetadataError {
    /// It gave no document.
    #[error("{0}")]
    Outbound(#[from] OutboundError),
    /// It gave none a moment ago.
    #[error("it did not answer a moment ago")]
    Paused,
    /// The document is no JSON object.
    #[error("its metadata is no JSON: {0}")]
    Json(serde_json::Error),
    /// It says that it is somebody else.
    #[error("its metadata is that of another issuer")]
    Issuer,
    /// Something is missing, or no address that may be used.
    #[error("its metadata has no usable {0}")]
    Missing(&'static str),
}

/// What a provider says of itself.
#[derive(Clone, Debug)]
pub(super) struct Metadata {
    /// The `iss` of all that it signs.
    pub(super) issuer: String,
    pub(super) authorization_endpoint: Url,
    pub(super) token_endpoint: Url,
    pub(super) jwks_uri: Url,
    pub(super) userinfo_endpoint: Option<Url>,
    /// Whether its answers say who gives them (RFC 9207).
    pub(super) names_itself: bool,
    /// How it signs ID tokens.
    pub(super) algorithms: Vec<Algorithm>,
    /// How clients may prove who they are.
    pub(super) methods: Vec<AuthMethod>,
}

/// The metadata of providers, by issuer.
pub(super) struct Documents {
    outbound: Arc<GuardedClient>,
    held: Cache<String, Arc<Source>>,
}

#[derive(Default)]
struct Source {
    held: Mutex<CachedMetadata>,
    /// Held while fetching: the others wait for that answer.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Clone, Default)]
struct CachedMetadata {
    metadata: Option<Arc<Metadata>>,
    fetched_ms: i64,
    /// When it was last tried in vain.
    failed_ms: Option<i64>,
}

impl CachedMetadata {
    fn is_fresh(&self, now_ms: i64) -> bool {
        self.metadata.is_some() && now_ms < self.fetched_ms + LIFE_MS
    }

    fn is_paused(&self, now_ms: i64) -> bool {
        self.failed_ms.is_some_and(|at| now_ms < at + PAUSE_MS)
    }
}

impl Documents {
    pub(super) fn new(outbound: Arc<GuardedClient>) -> Self {
        Self {
            outbound,
            held: Cache::new(DOCUMENTS),
        }
    }

    /// What the issuer says of itself, or said last.
    pub(super) async fn of(
        &self,
        issuer: &Url,
        now_ms: i64,
    ) -> Result<Arc<Metadata>, MetadataError> {
        let source = self
            .held
            .get_or_insert_with(issuer.as_str(), || {
                Ok::<_, std::convert::Infallible>(Arc::default())
            })
            .unwrap_or_default();
        if let Some(known) = source.usable(now_ms)? {
            return Ok(known);
        }
        let _fetching = source.fetching.lock().await;
        // Somebody may have fetched it meanwhile.
        if let Some(known) = source.usable(now_ms)? {
            return Ok(known);
        }
        let fetched = fetch(&self.outbound, issuer).await;
        source.keep(issuer, fetched, now_ms)
    }
}

/// Fetches what the issuer says of itself now.
pub(super) async fn fetch(
    outbound: &GuardedClient,
    issuer: &Url,
) -> Result<Metadata, MetadataError> {
    let url = metadata::openid_url(issuer);
    let (by, bounds) = (ChosenBy::Operator, Bounds::default());
    let document = outbound.document(&url, by, bounds).await?;
    let document = json::object(&document).map_err(MetadataError::Json)?;
    Metadata::read(issuer, &document)
}

impl Source {
    fn lock(&self) -> std::sync::MutexGuard<'_, CachedMetadata> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What needs no fetch: it is young, or the last try was a moment ago.
    fn usable(&self, now_ms: i64) -> Result<Option<Arc<Metadata>>, MetadataError> {
        let held = self.lock();
        match (&held.metadata, held.is_paused(now_ms)) {
            (Some(known), paused) if paused || held.is_fresh(now_ms) => Ok(Some(Arc::clone(known))),
            (None, true) => Err(MetadataError::Paused),
            _ => Ok(None),
        }
    }

    fn keep(
        &self,
        issuer: &Url,
        fetched: Result<Metadata, MetadataError>,
        now_ms: i64,
    ) -> Result<Arc<Metadata>, MetadataError> {
        let mut held = self.lock();
        match fetched {
            Ok(metadata) => {
                let metadata = Arc::new(metadata);
                *held = CachedMetadata {
                    metadata: Some(Arc::clone(&metadata)),
                    fetched_ms: now_ms,
                    failed_ms: None,
                };
                Ok(metadata)
            }
            Err(error) => {
                held.failed_ms = Some(now_ms);
                let kept = held.metadata.clone();
                tracing::warn!(
                    %issuer, %error, kept = kept.is_some(),
                    "metadata of a provider could not be fetched"
                );
                kept.ok_or(error)
            }
        }
    }
}

impl Metadata {
    /// Reads a document that was found at `issuer`.
    fn read(issuer: &Url, document: &Map<String, Value>) -> Result<Self, MetadataError> {
        let is_own = |named: &str| same_issuer(named, issuer.as_str());
        let named = metadata::issuer(document, is_own).map_err(|error| match error {
            metadata::MetadataError::Issuer => MetadataError::Issuer,
            _ => MetadataError::Missing("issuer"),
        })?;
        let is_secure = issuer.scheme() == "https";
        let endpoint = |name| {
            let address = metadata::address(document.get(name), is_secure);
            address.map_err(|_| MetadataError::Missing(name))
        };
        let needed = |name| endpoint(name)?.ok_or(MetadataError::Missing(name));
        let supported =
            |name: &str| metadata::names(document.get(name)).map(Iterator::collect::<Vec<_>>);
        let algorithms = supported("id_token_signing_alg_values_supported");
        let algorithms = algorithms.unwrap_or_else(|| vec!["RS256"]);
        let methods = supported("token_endpoint_auth_methods_supported");
        let methods = methods.unwrap_or_else(|| vec!["client_secret_basic"]);
        let method = |name: &str| serde_json::from_value(name.into()).ok();
        let names_itself = document.get("authorization_response_iss_parameter_supported");
        let names_itself = metadata::is_true(names_itself);
        Ok(Self {
            issuer: named.to_owned(),
            authorization_endpoint: needed("authorization_endpoint")?,
            token_endpoint: needed("token_endpoint")?,
            jwks_uri: needed("jwks_uri")?,
            userinfo_endpoint: endpoint("userinfo_endpoint")?,
            names_itself,
            algorithms: algorithms
                .into_iter()
                .filter_map(Algorithm::named)
                .collect(),
            methods: methods.into_iter().filter_map(method).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        json!({
            "issuer": "https://login.example",
            "authorization_endpoint": "https://login.example/authorize?tenant=1",
            "token_endpoint": "https://api.example/token",
            "jwks_uri": "https://login.example/keys",
            "id_token_signing_alg_values_supported": ["RS256", "none", "HS256", "X"],
            "token_endpoint_auth_methods_supported": ["client_secret_post", "tls_client_auth"],
        })
    }

    fn read(issuer: &str, document: &Value) -> Result<Metadata, MetadataError> {
        let issuer = Url::parse(issuer).expect("a URL");
        Metadata::read(&issuer, document.as_object().expect("an object"))
    }

    #[test]
    fn metadata_is_read() {
        let metadata = read("https://login.example/", &document()).expect("good");
        assert_eq!(metadata.issuer, "https://login.example");
        assert_eq!(metadata.algorithms, [Algorithm::Rs256, Algorithm::Hs256]);
        assert_eq!(metadata.methods, [AuthMethod::ClientSecretPost]);
        assert!(!metadata.names_itself && metadata.userinfo_endpoint.is_none());
    }

    #[test]
    fn metadata_of_somebody_else_is_refused() {
        for issuer in ["https://other.example", "https://login.example/x"] {
            let refused = read(issuer, &document());
            assert!(matches!(refused, Err(MetadataError::Issuer)), "{issuer}");
        }
    }

    #[test]
    fn endpoints_that_are_not_safe_are_refused() {
        for (name, value) in [
            ("token_endpoint", json!("http://api.example/token")),
            ("jwks_uri", json!("file:///etc/passwd")),
            ("authorization_endpoint", json!("javascript:alert(1)")),
            (
                "authorization_endpoint",
                json!("https://me:pw@login.example/"),
            ),
            ("userinfo_endpoint", json!(5)),
            ("token_endpoint", Value::Null),
        ] {
            let mut document = document();
            document[name] = value;
            let refused = read("https://login.example", &document);
            assert!(matches!(refused, Err(MetadataError::Missing(_))), "{name}");
        }
    }
}
