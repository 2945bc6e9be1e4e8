//! Telling the gateway's own verifiers at once when a token has ended: revoked
//! alone or with its grant, its user gone or deactivated, its client gone.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::State;
use super::bearer;
use super::clients::LiveClient;
use super::error::Fault;
use super::membership;
use super::realm::{Live, Realm};
use doorward_core::jose::algorithm::Algorithm;
use doorward_net::http::outbound::{StatusUnavailable, TokenStatus};

/// The claims by which a token is known to stand.
const RECALLED: [&str; 9] = [
    "tokenName",
    "iss",
    "realm",
    "authGrantId",
    "jti",
    "client_id",
    "aud",
    "auth_level",
    "sub",
];

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("identity provider")
    }
}

/// Who issued a token, by its claims.
enum Issuer {
    Realm(Arc<Realm>),
    /// A realm that is gone.
    Gone,
    /// Another provider.
    Other,
}

fn issuer(live: &Live, claims: &Map<String, Value>) -> Issuer {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    let issuer = text("iss").unwrap_or_default();
    let realm = text("realm").and_then(|path| live.realm(path));
    match realm.filter(|realm| realm.issuer == issuer) {
        Some(realm) => Issuer::Realm(Arc::clone(realm)),
        None => {
            let below = issuer.strip_prefix(live.base_url.as_str());
            if below.is_some_and(|rest| rest.starts_with("/oauth2")) {
                Issuer::Gone
            } else {
                Issuer::Other
            }
        }
    }
}

impl State {
    /// Whether the client of a token that a realm has issued is such; `true` for tokens
    /// of others.
    async fn client_of(
        &self,
        claims: &Map<String, Value>,
        is: impl FnOnce(&LiveClient) -> bool,
    ) -> Result<bool, StatusUnavailable> {
        let realm = match issuer(&self.live(), claims) {
            Issuer::Realm(realm) => realm,
            Issuer::Gone => return Ok(false),
            Issuer::Other => return Ok(true),
        };
        let client_id = bearer::client_id(claims);
        let client = self.clients.find(&self.store, &realm, client_id).await;
        let client = client.map_err(|error| {
            tracing::error!(%error, "no word on the client of a token of ours");
            StatusUnavailable
        })?;
        Ok(client.is_some_and(|client| is(&client)))
    }
}

impl State {
    /// Whether the user of a token may be granted these scopes.
    async fn may_be_granted(
        &self,
        realm: &Arc<Realm>,
        claims: &Map<String, Value>,
        scopes: &[String],
    ) -> Result<bool, Fault> {
        let client_id = bearer::client_id(claims);
        let client = self.clients.find(&self.store, realm, client_id).await?;
        let holder = bearer::holder(self, realm, claims, &bearer::digests(claims)).await?;
        let Some((client, holder)) = client.zip(holder) else {
            return Ok(false);
        };
        let user = holder.user.map(|user| user.id);
        let granted = membership::permitted_scopes(self, realm, &client, user, scopes).await?;
        Ok(granted.len() == scopes.len())
    }
}

#[async_trait]
impl TokenStatus for State {
    fn version(&self) -> u64 {
        // Each only grows, so the sum changes when one does.
        self.revocations.version()
            + self.clients.generation()
            + self.users.generation()
            + self.store.generation()
    }

    async fn is_active(&self, claims: &Map<String, Value>) -> Result<bool, StatusUnavailable> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        if text("tokenName") != Some("access_token") {
            return Ok(true);
        }
        let realm = match issuer(&self.live(), claims) {
            Issuer::Realm(realm) => realm,
            Issuer::Gone => return Ok(false),
            Issuer::Other => return Ok(true),
        };
        let digests = bearer::digests(claims);
        let holder = bearer::holder(self, &realm, claims, &digests).await;
        let holder = holder.map_err(|error| {
            tracing::error!(%error, "no word on a token of ours");
            StatusUnavailable
        });
        holder.map(|holder| holder.is_some())
    }

    async fn accepts_proofs_by(
        &self,
        claims: &Map<String, Value>,
        algorithm: Algorithm,
    ) -> Result<bool, StatusUnavailable> {
        let alg = algorithm.as_sign_alg();
        self.client_of(claims, |client| client.may_sign_by(alg))
            .await
    }

    async fn may_have_scopes(
        &self,
        claims: &Map<String, Value>,
        scopes: &[String],
    ) -> Result<bool, StatusUnavailable> {
        let may = |client: &LiveClient| scopes.iter().all(|one| client.scopes.contains(one));
        if !self.client_of(claims, may).await? {
            return Ok(false);
        }
        let Issuer::Realm(realm) = issuer(&self.live(), claims) else {
            return Ok(true);
        };
        if !scopes
            .iter()
            .any(|scope| realm.settings.scope_groups.contains_key(scope))
        {
            return Ok(true);
        }
        let may = self.may_be_granted(&realm, claims, scopes).await;
        may.map_err(|error| {
            tracing::error!(%error, "no word on the user of a token of ours");
            StatusUnavailable
        })
    }

    async fn claims_of(
        &self,
        token: &str,
    ) -> Result<Option<Map<String, Value>>, StatusUnavailable> {
        let issued = bearer::issued(self, token).await.map_err(|error| {
            tracing::error!(%error, "no word on a token of ours");
            StatusUnavailable
        })?;
        let claims = issued.map(|issued| issued.claims.clone());
        let is_access = |claims: &Map<String, Value>| {
            claims.get("tokenName").and_then(Value::as_str) == Some("access_token")
        };
        Ok(claims.filter(is_access).map(|mut claims| {
            claims.retain(|name, _| RECALLED.contains(&name.as_str()));
            claims
        }))
    }
}
