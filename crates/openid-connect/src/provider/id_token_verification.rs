//! ID tokens, verified with the keys of the provider.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::config::Config;
use crate::config::methods::Method;
use crate::decide::refusal::Refusal;
use crate::provider::ProviderMetadata;
use crate::provider::client::ProviderClient;
use crate::provider::id_token::Expected;
use crate::provider::introspection::RequestContext;
use crate::provider::token_cache::VerifiedToken;
use crate::session::of_user;
use doorward_core::model::secret::Secret;

/// The claims of an ID token that holds.
///
/// # Errors
/// What is wrong with it, or why nobody can say.
pub(crate) async fn verify_id_token(
    config: &Config,
    provider: &ProviderClient,
    id: &str,
    access: &str,
    (client, secret): (&str, Option<&Secret>),
    nonce: Option<&str>,
    by: Method,
) -> Result<Map<String, Value>, Refusal> {
    let signed = !config.signature_exemptions.has(by);
    let expected = Expected {
        client,
        secret,
        nonce,
        access,
        now: provider.clock.now_secs(),
    };
    let id_tokens = &config.id_tokens;
    let look = |metadata: &ProviderMetadata| id_tokens.verify(id, metadata, &expected, signed);
    match provider.with_keys(look).await {
        Ok((claims, _)) => Ok(claims),
        Err(refusal) => Err(provider.stale_keys_or(refusal.of_id_token(), id)),
    }
}

/// What is known of a token, and what the ID token says that came beside
/// it: of the same user, for one of our clients.
///
/// # Errors
/// What is wrong with the ID token.
pub(crate) async fn with_id_token(
    config: &Config,
    provider: &ProviderClient,
    verified: Arc<VerifiedToken>,
    id_token: &str,
    context: &RequestContext<'_>,
) -> Result<Arc<VerifiedToken>, Refusal> {
    let client = context.client.ok_or(Refusal::WrongIdToken)?;
    let access = verified.token.token.as_ref();
    // Anybody could write one: as with bearer tokens, its signature counts.
    let by = Method::Bearer;
    let claims = verify_id_token(
        config,
        provider,
        id_token,
        access,
        (&client.id, None),
        None,
        by,
    )
    .await?;
    let same = match verified.token.claims.get("sub") {
        Some(subject) => Some(subject) == claims.get("sub"),
        // Of a token without a user it must be said that they belong
        // together: the hash was compared.
        None => claims.contains_key("at_hash"),
    };
    if same {
        Ok(verified.with(of_user(claims), id_token.len(), verified.responses.clone()))
    } else {
        Err(Refusal::WrongIdToken)
    }
}
