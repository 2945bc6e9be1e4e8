//! Secrets that every node of a store knows, and nobody has to configure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Store, StoreError};
use doorward_core::clock::random_bytes;
use doorward_core::jose::keys::KeyError;
use doorward_core::jose::vault::Vault;
use doorward_core::model::secret::Secret;

/// Why there is no such secret.
#[derive(Debug, thiserror::Error)]
pub enum SharedSecretError {
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No master key of this node opens it, or it is damaged.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// The secret of this name: 32 random bytes, the same for all nodes of the
/// store, also for two that begin at once. It is made when there is none, and
/// encrypted with the vault's master key of now.
///
/// # Errors
/// [`SharedSecretError`].
pub async fn shared_secret(
    store: &Store,
    vault: &Vault,
    name: &'static str,
) -> Result<Vec<u8>, SharedSecretError> {
    let made = Secret::new(STANDARD.encode(random_bytes::<32>()));
    let made = vault.seal_text(name, &made)?.unwrap_or(made);
    let stored = store.secret(name, &made).await?;
    if let Some(sealed) = vault.seal_text(name, &stored)? {
        store.replace_secret(name, &stored, &sealed).await?;
    }
    Ok(vault.open_text(name, &stored)?)
}
