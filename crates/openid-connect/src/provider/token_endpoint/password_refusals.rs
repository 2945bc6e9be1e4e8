//! What the provider has said to passwords: some let nobody use them, others
//! not this client. Who may be a client as well is taken for one then, without
//! a question more each time.

use quick_cache::sync::Cache;
use serde_json::Value;

use crate::provider::client::object;
use crate::provider::client_auth::Client;
use crate::provider::single_flight::{Digest, digest_of};
use doorward_core::model::secret::Secret;
use doorward_net::http::outbound::Answer;

/// For how long the provider is believed that a client may not ask with
/// passwords, in milliseconds.
const CLIENT_MS: i64 = 60_000;
/// The same of a password alone, at least.
const PASSWORD_MS: i64 = 1_000;
/// Most of these that are remembered.
const HELD: usize = 4 * 1024;

/// What is not asked with a password for a while, and until when.
pub(crate) struct PasswordRefusals(Cache<Digest, i64>);

/// Who asks with which password.
#[derive(Clone, Copy)]
pub(crate) struct Password {
    client: Digest,
    pair: Digest,
}

impl Password {
    pub(crate) fn new(client: Option<&Client>, name: &str, secret: &Secret) -> Self {
        let client = client.map_or(&b""[..], |client| client.id.as_bytes());
        Self {
            client: digest_of([client]),
            pair: digest_of([client, name.as_bytes(), secret.expose().as_bytes()]),
        }
    }
}

impl PasswordRefusals {
    pub(crate) fn new() -> Self {
        Self(Cache::new(HELD))
    }

    /// Whether the provider has refused so at `now_ms` that it is of no use to
    /// ask with this password.
    pub(crate) fn has(&self, password: &Password, now_ms: i64) -> bool {
        let of = |about: &Digest| self.0.get(about).is_some_and(|until| now_ms < until);
        of(&password.client) || of(&password.pair)
    }

    /// Notes what an answer says of the client, or for `refused_ms` of the
    /// password alone: what was asked for may differ from request to request.
    pub(crate) fn record(
        &self,
        answer: &Answer,
        password: &Password,
        now_ms: i64,
        refused_ms: i64,
    ) {
        let error = object(answer).and_then(|body| {
            let error = body.get("error").and_then(Value::as_str)?;
            Some(error.to_owned())
        });
        let (about, life) = match error.as_deref() {
            Some("unauthorized_client" | "unsupported_grant_type") => (password.client, CLIENT_MS),
            Some("invalid_scope" | "access_denied") => (password.pair, refused_ms.max(PASSWORD_MS)),
            _ => return,
        };
        self.0.insert(about, now_ms.saturating_add(life));
    }
}
