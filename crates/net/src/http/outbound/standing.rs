//! What a provider in this process knows of its tokens before they expire.

use std::fmt::Debug;

use async_trait::async_trait;
use serde_json::{Map, Value};

use doorward_core::jose::algorithm::Algorithm;

/// Whether the tokens of a provider still stand: neither revoked nor without
/// the client or user that they were given to.
///
/// Who has asked about a token once need not ask again while
/// [`Standing::version`] stays the same.
#[async_trait]
pub trait Standing: Debug + Send + Sync {
    /// Grows with everything that may end a token; below 2^62. Costs a few
    /// atomic loads.
    fn version(&self) -> u64;

    /// Whether the token of these claims, whose signature was verified, still
    /// stands. Of what the provider did not issue as an access token it says
    /// yes: that is not its business.
    ///
    /// # Errors
    /// [`Untold`] when the provider can't tell now.
    async fn stands(&self, claims: &Map<String, Value>) -> Result<bool, Untold>;

    /// Whether DPoP proofs by this algorithm count for the client of the token of
    /// these claims, by its profile. Of what the provider did not issue it says yes.
    ///
    /// # Errors
    /// [`Untold`] when the provider can't tell now.
    async fn takes_proofs_by(
        &self,
        claims: &Map<String, Value>,
        algorithm: Algorithm,
    ) -> Result<bool, Untold>;

    /// What [`Standing::stands`] has to be told of the access token of this text, for
    /// those who keep tokens that came of it, also when it is long over. `None`: the
    /// provider did not issue it as an access token.
    ///
    /// # Errors
    /// [`Untold`] when the provider can't tell now.
    async fn recall(&self, token: &str) -> Result<Option<Map<String, Value>>, Untold>;
}

/// The provider can't tell now; it has logged why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the provider can't tell whether its token still stands")]
pub struct Untold;
