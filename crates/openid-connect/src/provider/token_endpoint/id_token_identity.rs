//! What the ID token of a token response says of its user: verified once, however
//! many requests the response is for.

use std::sync::OnceLock;

use serde_json::{Map, Value};

use crate::config::Config;
use crate::decide::refusal::Refusal;
use crate::provider::client::ProviderClient;
use crate::provider::id_token_verification::verify_id_token;
use crate::provider::introspection::RequestContext;
use crate::provider::merged_claims::MergedClaims;
use crate::provider::token_endpoint::TokenGrant;
use crate::session::of_user;

/// What is known by the ID token of a response, if it was verified.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    claims: OnceLock<Map<String, Value>>,
    /// With what is known of the access token.
    pub(crate) merged: MergedClaims,
}

/// What the ID token says of its user that came with an access token, for the
/// client that asked; `None`: none came.
///
/// # Errors
/// What is wrong with it: as with a login, nobody is let in by tokens of which
/// one does not hold.
pub(crate) async fn identity<'a>(
    config: &Config,
    provider: &ProviderClient,
    given: &'a TokenGrant,
    context: &RequestContext<'_>,
) -> Result<Option<&'a Map<String, Value>>, Refusal> {
    let tokens = &given.tokens;
    let Some(id) = &tokens.id else {
        return Ok(None);
    };
    let verified = &tokens.identity.claims;
    if let Some(claims) = verified.get() {
        return Ok(Some(claims));
    }
    let own = context.client.map(|client| client.id.as_str());
    let client = match &tokens.caller {
        Some((id, secret)) => (id.as_str(), Some(secret)),
        None => (own.unwrap_or_default(), None),
    };
    let claims = verify_id_token(
        config,
        provider,
        id.expose(),
        tokens.access.expose(),
        client,
        None,
        given.method,
    )
    .await?;
    Ok(Some(verified.get_or_init(|| of_user(claims))))
}
