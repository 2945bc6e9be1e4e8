//! Tokens that the provider gave, and the answers in which they come.

use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Map, Value};

use crate::decide::refusal::Refusal;
use crate::headers::token_set::TokenSet;
use crate::provider::client::object;
use crate::provider::token_endpoint::id_token_identity::Identity;
use doorward_core::jose::claims::lifetime;
use doorward_core::model::secret::Secret;
use doorward_net::http::outbound::Answer;
use doorward_net::http::provider_error::describe;

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

/// Reads a token response (RFC 6749 §5).
pub(crate) fn read(answer: &Answer, own_client: bool, now_ms: i64) -> Result<Tokens, Refusal> {
    let body = object(answer);
    let text = |name: &str| body.as_ref()?.get(name)?.as_str();
    if answer.status != StatusCode::OK || text("error").is_some() {
        let said = (text("error"), text("error_description"));
        return Err(refused(answer.status, said, own_client));
    }
    let body = body.as_ref().ok_or(Refusal::ProviderMalformed)?;
    let text = |name| optional_text(body, name);
    let access = text("access_token")?.filter(|token| !token.is_empty());
    let bearer = text("token_type")?.is_none_or(|kind| kind.eq_ignore_ascii_case("bearer"));
    let access = access.filter(|_| bearer);
    let life = lifetime(body).map_err(|_| Refusal::ProviderMalformed)?;
    Ok(Tokens {
        access: Secret::new(access.ok_or(Refusal::ProviderMalformed)?),
        id: text("id_token")?.map(Secret::new),
        refresh: text("refresh_token")?.map(Secret::new),
        scope: scope(body)?,
        replayed: Vec::new(),
        caller: None,
        identity: Identity::default(),
        ends_at: life.map(|life: i64| now_ms.saturating_add(life.saturating_mul(1000))),
    })
}

/// A member that is a text if it is there.
fn optional_text<'b>(body: &'b Map<String, Value>, name: &str) -> Result<Option<&'b str>, Refusal> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Refusal::ProviderMalformed),
    }
}

/// The scopes that were granted, if the answer names them; some providers write a
/// list.
fn scope(body: &Map<String, Value>) -> Result<Option<String>, Refusal> {
    let Some(Value::Array(scopes)) = body.get("scope") else {
        return Ok(optional_text(body, "scope")?.map(str::to_owned));
    };
    let scopes = scopes.iter().map(Value::as_str);
    let scopes: Option<Vec<_>> = scopes.collect();
    let scopes = scopes.ok_or(Refusal::ProviderMalformed)?;
    Ok(Some(scopes.join(" ")))
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
