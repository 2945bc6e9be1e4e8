//! Tokens that the provider gave, and the answers in which they come.

use http::{HeaderName, HeaderValue, StatusCode};

use crate::decide::refusal::Refusal;
use crate::headers::token_set::TokenSet;
use crate::provider::client::object;
use crate::provider::token_endpoint::id_token_identity::Identity;
use doorward_core::model::secret::Secret;
use doorward_net::http::outbound::Answer;
use doorward_net::http::provider_error::describe;
use doorward_oidc_client::token_response::{self, TokenResponseError};

/// Tokens that the provider gave.
#[derive(Debug)]
pub(crate) struct Tokens {
    pub(crate) access: Secret,
    pub(crate) id: Option<Secret>,
    pub(crate) refresh: Option<Secret>,
    /// Granted scopes, where the answer names them.
    pub(crate) scope: Option<String>,
    /// When the access token ends, in milliseconds, where the answer tells.
    pub(crate) ends_at: Option<i64>,
    /// Headers of the answer that are for the client.
    pub(crate) replayed: Vec<(HeaderName, HeaderValue)>,
    /// The client that they are for, if that is a caller and not the gateway's.
    pub(crate) caller: Option<(String, Secret)>,
    pub(crate) identity: Identity,
}

impl Tokens {
    /// About the memory they take, in bytes.
    pub(crate) fn weight(&self) -> u64 {
        let others = [&self.id, &self.refresh].into_iter().flatten();
        let tokens = others.chain([&self.access]).map(|one| one.expose().len());
        let replayed = self.replayed.iter();
        let replayed = replayed.map(|(name, value)| 64 + name.as_str().len() + value.len());
        let caller = self.caller.as_ref();
        let caller = caller.map(|(id, secret)| id.len() + secret.expose().len());
        let scope = self.scope.as_ref().map(String::len);
        let texts = scope.into_iter().chain(caller);
        // The claims of both tokens take a few times their length besides.
        let claims = self.id.as_ref().map_or(0, |id| {
            10 * id.expose().len() + 4 * self.access.expose().len()
        });
        512 + (claims + texts.chain(tokens).chain(replayed).sum::<usize>()) as u64
    }

    /// What came with the access token.
    pub(crate) fn token_set(&self) -> TokenSet<'_> {
        TokenSet {
            id_token: self.id.as_ref().map(Secret::expose),
            refresh_token: self.refresh.as_ref().map(Secret::expose),
            session_id: None,
            scope: self.scope.as_deref(),
            replayed: &self.replayed,
        }
    }
}

/// Reads a token response.
pub(crate) fn read(answer: &Answer, own_client: bool, now_ms: i64) -> Result<Tokens, Refusal> {
    let body = object(answer);
    let response = match token_response::read(answer.status, body.as_ref()) {
        Ok(response) => response,
        Err(TokenResponseError::Refused { error, description }) => {
            let said = (error.as_deref(), description.as_deref());
            return Err(refused(answer.status, said, own_client));
        }
        Err(_) => return Err(Refusal::ProviderMalformed),
    };
    let lifetime = response.lifetime;
    Ok(Tokens {
        access: response.access_token.ok_or(Refusal::ProviderMalformed)?,
        id: response.id_token,
        refresh: response.refresh_token,
        scope: response.scope,
        replayed: Vec::new(),
        caller: None,
        identity: Identity::default(),
        ends_at: lifetime.map(|life| now_ms.saturating_add(life.saturating_mul(1000))),
    })
}

/// What a refusal of the token endpoint means: one of what was shown, unless it is
/// of the gateway itself. Some providers refuse with 200, or without a word; other
/// statuses without one are of whatever stands before them.
fn refused(
    status: StatusCode,
    (error, description): (Option<&str>, Option<&str>),
    own_client: bool,
) -> Refusal {
    let refusal = match error {
        _ if status == StatusCode::TOO_MANY_REQUESTS => Refusal::ProviderError,
        Some("invalid_client") if own_client => Refusal::ClientRefused,
        Some("unauthorized_client") if own_client => Refusal::ProviderRefuses,
        Some("unsupported_grant_type") => Refusal::ProviderRefuses,
        None if !matches!(status.as_u16(), 400 | 401 | 403) => Refusal::ProviderMalformed,
        _ => Refusal::WrongCredentials,
    };
    if own_client {
        let said = describe(error.unwrap_or_default(), description);
        if error == Some("invalid_grant") {
            // Anybody can send wrong passwords: these hide no other refusal.
            doorward_net::telemetry::warn_limited!(%status, error = said, "the token endpoint does not take a grant");
        } else {
            doorward_net::telemetry::warn_limited!(%status, error = said, "the token endpoint gives no tokens");
        }
    }
    refusal
}
