//! What the provider has signed: verified with the keys at hand, and once more
//! with newer ones where these may tell.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::decide::refusal::Refusal;
use crate::provider::ProviderMetadata;
use crate::provider::client::ProviderClient;
use doorward_core::jose::verify::{Unverified, VerifyError};
use doorward_core::model::secret::Secret;

/// The claims of a token that the provider signed, with one of its keys or with
/// one of the `secrets` for HMAC, where there are some; `Ok(None)`: newer keys
/// may tell.
///
/// # Errors
/// What is wrong with the signature.
pub(crate) fn claims(
    parsed: &Unverified<'_>,
    metadata: &ProviderMetadata,
    secrets: &[Secret],
) -> Result<Option<Map<String, Value>>, Refusal> {
    let by_secret = |secret: &Secret| parsed.verify_hmac(secret.expose().as_bytes());
    let claims = match secrets {
        [] => parsed.verify(&metadata.keys),
        _ if !parsed.algorithm().is_symmetric() => parsed.verify(&metadata.keys),
        [others @ .., last] => {
            let mut found = others.iter().filter_map(|one| by_secret(one).ok());
            found.next().map_or_else(|| by_secret(last), Ok)
        }
    };
    match claims {
        Err(VerifyError::UnknownKey) => Ok(None),
        other => Ok(Some(other?)),
    }
}

impl ProviderClient {
    /// What `look` finds with what is known of the provider: where its keys do
    /// not suffice (`Ok(None)`), once more with newer ones.
    ///
    /// # Errors
    /// What `look` refuses, [`ProviderMetadata::no_matching_key`], or as [`ProviderClient::metadata`].
    pub(crate) async fn with_keys<T: Send>(
        &self,
        look: impl Fn(&ProviderMetadata) -> Result<Option<T>, Refusal> + Send + Sync,
    ) -> Result<(T, Arc<ProviderMetadata>), Refusal> {
        let mut last = false;
        loop {
            let metadata = self.metadata().await?;
            match look(&metadata)? {
                Some(found) => return Ok((found, metadata)),
                None if last => return Err(metadata.no_matching_key()),
                None => last = !self.wait_for_newer_keys().await,
            }
        }
    }

    /// The claims of a token that the provider signed, perhaps with one of the
    /// `secrets`, and what is known of it.
    ///
    /// # Errors
    /// What is wrong with the signature, or as [`ProviderClient::metadata`].
    pub(crate) async fn signed(
        &self,
        parsed: &Unverified<'_>,
        secrets: &[Secret],
    ) -> Result<(Map<String, Value>, Arc<ProviderMetadata>), Refusal> {
        self.with_keys(|metadata| claims(parsed, metadata, secrets))
            .await
    }
}
