//! Request objects that a client has elsewhere and names by `request_uri`
//! (RFC 9101 §5.2, OpenID Connect Core §6.2).
//!
//! Only addresses that the client registered are asked, and only as its keys
//! are: what strangers may name is the guard's to say.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use quick_cache::sync::Cache;
use url::Url;

use super::authorization_response::AuthorizationError;
use super::request_object::{self, RequestObject};
use crate::Call;
use crate::clients::LiveClient;
use doorward_core::jose::verify::TOKEN_MAX;
use doorward_core::model::grant::TokenHash;
use doorward_net::http::outbound::{Bounds, ChosenBy};

/// Longest address (RFC 9101 §5.2), in bytes.
const URI_MAX: usize = 512;

/// Objects kept in memory.
const KEPT: usize = 256;

/// How long an object is believed, in milliseconds: its user signs in
/// meanwhile. Whoever changes it sooner says so by another fragment.
const LIFE_MS: i64 = 60 * 1000;

/// How long one is believed whose address holds the digest of its content.
const DIGESTED_LIFE_MS: i64 = 3600 * 1000;

/// How long nobody asks again where there was none, in milliseconds.
const PAUSE_MS: i64 = 5 * 1000;

/// Request objects that were fetched, by who chose their address.
pub(crate) struct References(Cache<(ChosenBy, String), Arc<FetchedObject>>);

/// What was found at an address.
struct FetchedObject {
    text: Option<String>,
    ends_ms: i64,
}

impl References {
    pub(crate) fn new() -> Self {
        Self(Cache::new(KEPT))
    }
}

/// Opens the request object at `uri`.
///
/// # Errors
/// `invalid_request_uri` where there is none, and as [`request_object::open`].
pub(super) async fn open(
    call: &Call,
    client: &LiveClient,
    uri: &str,
    at_ms: i64,
) -> Result<RequestObject, AuthorizationError> {
    let registered = &client.client.metadata.request_uris;
    if uri.len() > URI_MAX || !registered.iter().any(|known| is_same(known, uri)) {
        let text = "The request_uri is not registered";
        return Err(AuthorizationError::new("invalid_request_uri", text));
    }
    let fetched = fetch(call, client.chosen_by(), uri).await;
    let silent = || {
        let text = "There is no request object at the request_uri";
        AuthorizationError::new("invalid_request_uri", text)
    };
    let text = fetched.text.as_deref().ok_or_else(silent)?;
    request_object::open(call, client, text, at_ms).await
}

/// Whether both are one address: fragments tell versions of its content.
fn is_same(known: &str, asked: &str) -> bool {
    let address = |uri: &str| uri.split('#').next().map(str::to_owned);
    known == asked || address(known) == address(asked)
}

async fn fetch(call: &Call, by: ChosenBy, uri: &str) -> Arc<FetchedObject> {
    let cache = &call.state.references.0;
    let key = (by, uri.to_owned());
    if let Some(known) = cache.get(&key)
        && call.now_ms < known.ends_ms
    {
        return known;
    }
    let text = match document(call, by, uri).await {
        Ok(text) => Some(text),
        Err(error) => {
            doorward_net::telemetry::warn_limited!(
                uri,
                error,
                "a request object could not be fetched"
            );
            None
        }
    };
    let digest = |text: &String| URL_SAFE_NO_PAD.encode(TokenHash::of(text).0);
    let fragment = uri.split_once('#').map(|(_, fragment)| fragment);
    let life_ms = match &text {
        None => PAUSE_MS,
        Some(text) if fragment == Some(&digest(text)) => DIGESTED_LIFE_MS,
        Some(_) => LIFE_MS,
    };
    let fetched = Arc::new(FetchedObject {
        text,
        ends_ms: call.now_ms + life_ms,
    });
    cache.insert(key, Arc::clone(&fetched));
    fetched
}

async fn document(call: &Call, by: ChosenBy, uri: &str) -> Result<String, String> {
    let mut url = Url::parse(uri).map_err(|error| error.to_string())?;
    url.set_fragment(None);
    let bounds = Bounds {
        body: TOKEN_MAX,
        ..Bounds::default()
    };
    let body = call.state.outbound.document(&url, by, bounds).await;
    let body = body.map_err(|error| error.to_string())?;
    let text = std::str::from_utf8(&body).map_err(|error| error.to_string())?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_the_registered_one_but_for_its_fragment() {
        let known = "https://app.example/request.jwt";
        assert!(is_same(known, known));
        assert!(is_same(known, "https://app.example/request.jwt#abc"));
        assert!(is_same("https://app.example/request.jwt#old", known));
        for other in [
            "https://app.example/request.jwt?x",
            "https://app.example/request.jw",
            "https://app.example/request.jwt/..",
            "http://app.example/request.jwt",
            "https://APP.example/request.jwt",
            "",
        ] {
            assert!(!is_same(known, other), "{other}");
        }
    }
}
