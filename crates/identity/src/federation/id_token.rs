//! Checking ID tokens that answer requests of ours (OpenID Connect Core
//! §3.1.3.7).

use serde_json::{Map, Value};

use super::Provider;
use super::metadata::Metadata;
use super::refusal::IdTokenError;
use crate::Call;
use doorward_core::jose::verify::Unverified;
use doorward_net::http::outbound::ChosenBy;
use doorward_oidc_client::id_token::{IdTokenContext, Issuer, Rules, check, may_be_id_token};

/// How far the provider's clock and ours may differ, in seconds.
pub(crate) const LEEWAY: i64 = 60;

/// The claims of an ID token, if it is the provider's answer to our request.
pub(super) async fn verify(
    call: &Call,
    (provider, metadata): (&Provider, &Metadata),
    token: &str,
    context: &IdTokenContext<'_>,
) -> Result<Map<String, Value>, IdTokenError> {
    let parsed = Unverified::parse(token)?;
    if !may_be_id_token(&parsed) {
        return Err(IdTokenError::Kind);
    }
    let algorithm = parsed.algorithm();
    let allowed = match provider.written.id_token_signed_response_alg {
        Some(only) => algorithm.as_sign_alg() == only,
        // Who can read the secret could sign for the provider.
        None => !algorithm.is_symmetric() && metadata.algorithms.contains(&algorithm),
    };
    if !allowed {
        return Err(IdTokenError::Algorithm);
    }
    let claims = match (algorithm.is_symmetric(), provider.secret()) {
        (true, Some(secret)) => parsed.verify_hmac(secret.expose().as_bytes())?,
        (true, None) => return Err(IdTokenError::Algorithm),
        (false, _) => {
            let source = Some((ChosenBy::Operator, metadata.jwks_uri.as_str()));
            let keys = &call.state.client_keys;
            keys.verify_with(None, source, &parsed, call.now_ms).await?
        }
    };
    let now = call.now_ms.div_euclid(1000);
    let rules = Rules {
        issuer: Issuer::Exact(&metadata.issuer),
        client_id: &provider.written.client_id,
        acr: &provider.written.require_acr,
        leeway: LEEWAY,
        checks_validity: true,
    };
    let alg = algorithm.as_sign_alg();
    check(&claims, &rules, (alg, now), context)?;
    Ok(claims)
}
