//! What a provider in this process knows of its tokens before they expire.

use std::fmt::Debug;

use async_trait::async_trait;
use serde_json::{Map, Value};

use doorward_core::jose::algorithm::Algorithm;

/// Whether the access tokens of a provider in this process are still active:
/// neither revoked nor without the client or user that they were issued to.
///
/// An answer about a token holds while [`TokenStatus::version`] stays the same.
#[async_trait]
pub trait TokenStatus: Debug + Send + Sync {
    /// Grows with everything that may end a token; below 2^62. Costs a few
    /// atomic loads.
    fn version(&self) -> u64;

    /// Whether the token of these claims is active. The caller has verified its
    /// signature. A token that the provider did not issue as an access token
    /// counts as active.
    ///
    /// # Errors
    /// [`StatusUnavailable`] when the provider can't tell now.
    async fn is_active(&self, claims: &Map<String, Value>) -> Result<bool, StatusUnavailable>;

    /// Whether the client of the token of these claims may sign DPoP proofs by this
    /// algorithm. A token that the provider did not issue allows every algorithm.
    ///
    /// # Errors
    /// [`StatusUnavailable`] when the provider can't tell now.
    async fn accepts_proofs_by(
        &self,
        claims: &Map<String, Value>,
        algorithm: Algorithm,
    ) -> Result<bool, StatusUnavailable>;

    /// Whether the client of the token of these claims may be given all of these
    /// scopes. A token that the provider did not issue may have every scope.
    ///
    /// # Errors
    /// [`StatusUnavailable`] when the provider can't tell now.
    async fn may_have_scopes(
        &self,
        _claims: &Map<String, Value>,
        _scopes: &[String],
    ) -> Result<bool, StatusUnavailable> {
        Ok(true)
    }

    /// The claims of this access token that [`TokenStatus::is_active`] needs, also
    /// when the token has expired. `None`: the provider did not issue it as an
    /// access token.
    ///
    /// # Errors
    /// [`StatusUnavailable`] when the provider can't tell now.
    async fn claims_of(&self, token: &str)
    -> Result<Option<Map<String, Value>>, StatusUnavailable>;
}

/// The provider can't tell now; it has logged why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the provider can't tell whether its token still stands")]
pub struct StatusUnavailable;
