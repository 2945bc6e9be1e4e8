//! A client in the same process: it signs people in as any other client does, by
//! the authorization code flow (OpenID Connect Core §3.1), and exchanges codes
//! without a connection to itself.
//!
//! What it keeps of a sign-in is no token. Whether that still counts is asked of
//! what verifiers of access tokens ask ([`bearer::holder`]): grant, client and
//! user; besides, the session must be alive.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State as Shared};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use url::form_urlencoded::Serializer;

use super::federation::LEEWAY;
use super::id_token_hint::is_id_token;
use super::realm::Realm;
use super::{State, bearer, serve};
use doorward_core::jose::json;
use doorward_core::jose::verify::Unverified;
use doorward_core::model::audit::{Actor, Event, Kind, Person, Trace};
use doorward_core::model::secret::Secret;
use doorward_net::http::ClientInfo;
use doorward_net::http::outbound::TokenStatus;
use doorward_oidc_client::authorization::AuthorizationRequest;
use doorward_oidc_client::id_token::{IdTokenContext, Issuer, Rules, check};
use doorward_oidc_client::token_response::{self, TokenResponse, TokenResponseError};
use doorward_store::StoreError;

/// Longest answer of the token endpoint, in bytes.
const ANSWER_MAX: usize = 256 * 1024;

/// A client in the same process.
#[derive(Clone)]
pub struct OwnClient {
    state: Arc<State>,
    realm: String,
    client_id: String,
}

/// What the authorization endpoint is asked.
pub struct SignInRequest<'a> {
    /// Where the browser is sent back to.
    pub redirect_uri: &'a str,
    /// What comes back unchanged.
    pub state: &'a str,
    /// What the ID token must say.
    pub nonce: &'a str,
    /// The code verifier (RFC 7636 §4.1); only its digest is sent.
    pub verifier: &'a str,
    /// The language of the pages.
    pub language: &'a str,
    /// Whether the person has to sign in anew, whatever session there is.
    pub is_fresh: bool,
}

/// What a code is exchanged with.
pub struct CodeExchange<'a> {
    /// The code.
    pub code: &'a str,
    /// As it was sent.
    pub redirect_uri: &'a str,
    /// As it was sent.
    pub nonce: &'a str,
    /// What the sent digest was made of.
    pub verifier: &'a str,
    /// Since when the person must have signed in, in seconds since the epoch;
    /// `None`: whenever.
    pub signed_in_since: Option<i64>,
}

/// A sign-in, as the client keeps it: no token is part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignIn {
    /// Those claims of the access token by which its holder is known.
    claims: Map<String, Value>,
    /// The session at the provider.
    sid: Option<String>,
    /// When the person signed in at the provider (`auth_time`), in seconds since
    /// the epoch.
    #[serde(default)]
    auth_time: Option<i64>,
}

impl SignIn {
    /// Whether the person signed in at the provider within the last `age` seconds.
    pub fn is_within(&self, age: i64, now_ms: i64) -> bool {
        let since = now_ms.div_euclid(1000).saturating_sub(age);
        self.auth_time.is_some_and(|at| at >= since)
    }
}

/// Who signed in, as the store has it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Identifier, name and realm.
    pub person: Person,
    /// The names of all groups that the user is in.
    pub groups: Vec<String>,
}

/// Why a code signs nobody in.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The token endpoint said no, with this error code.
    #[error("the token endpoint answered {0}")]
    Refused(String),
    /// The ID token is not the answer to the request.
    #[error("the ID token is refused: {0}")]
    Token(String),
    /// The provider can't answer now, or has no such realm any more.
    #[error("the provider does not answer")]
    Unavailable,
}

impl OwnClient {
    pub(super) fn new(state: &Arc<State>, realm: &str, client_id: &str) -> Self {
        Self {
            state: Arc::clone(state),
            realm: realm.to_owned(),
            client_id: client_id.to_owned(),
        }
    }

    fn realm(&self) -> Option<Arc<Realm>> {
        self.state.live().realm(&self.realm).cloned()
    }

    /// Whether `issuer` is the realm's (RFC 9207 §2.4).
    pub fn is_issuer(&self, issuer: &str) -> bool {
        self.realm().is_some_and(|realm| realm.issuer == issuer)
    }

    /// The address at which a browser asks for a code (RFC 6749 §4.1.1, RFC 7636
    /// §4.3); `None`: the realm is gone.
    pub fn sign_in_address(&self, request: &SignInRequest<'_>) -> Option<String> {
        let authorization = AuthorizationRequest {
            client_id: &self.client_id,
            redirect_uri: request.redirect_uri,
            scope: "openid",
            state: request.state,
            nonce: request.nonce,
            verifier: Some(request.verifier),
        };
        let parameters = authorization.parameters();
        let mut pairs: Vec<(&str, &str)> = parameters.iter().map(|(n, v)| (&**n, &**v)).collect();
        pairs.push(("ui_locales", request.language));
        if request.is_fresh {
            pairs.push(("max_age", "0"));
        }
        self.address("authorize", &pairs)
    }

    /// The address at which a browser ends its session at the provider (OpenID
    /// Connect RP-Initiated Logout §2); `None`: the realm is gone.
    pub fn sign_out_address(&self, back: &str) -> Option<String> {
        self.address(
            "connect/endSession",
            &[
                ("client_id", &self.client_id),
                ("post_logout_redirect_uri", back),
            ],
        )
    }

    fn address(&self, endpoint: &str, pairs: &[(&str, &str)]) -> Option<String> {
        let realm = self.realm()?;
        let query = Serializer::new(String::new()).extend_pairs(pairs).finish();
        Some(format!("{}/{endpoint}?{query}", realm.issuer))
    }

    /// Exchanges a code and checks what comes of it. `client` is who brought it.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub async fn exchange(
        &self,
        exchange: &CodeExchange<'_>,
        client: Option<ClientInfo>,
    ) -> Result<SignIn, ExchangeError> {
        let realm = self.realm().ok_or(ExchangeError::Unavailable)?;
        let tokens = self.tokens(&realm, exchange, client).await?;
        let missing = |name: &str| ExchangeError::Token(format!("there is no {name}"));
        let access_token = tokens.access_token.as_ref().map(Secret::expose);
        let access_token = access_token.ok_or_else(|| missing("access_token"))?;
        let id_token = tokens.id_token.as_ref().map(Secret::expose);
        let id_token = id_token.ok_or_else(|| missing("id_token"))?;
        let context = IdTokenContext {
            nonce: Some(exchange.nonce),
            access_token: Some(access_token),
            signed_in_since: exchange.signed_in_since,
        };
        let told = self.verify(&realm, id_token, &context)?;
        let claims = self.state.claims_of(access_token).await;
        let claims = claims.map_err(|_| ExchangeError::Unavailable)?;
        let sid = told.get("sid").and_then(Value::as_str);
        Ok(SignIn {
            claims: claims.ok_or_else(|| missing("access_token"))?,
            sid: sid.map(str::to_owned),
            auth_time: told.get("auth_time").and_then(Value::as_i64),
        })
    }

    /// What the token endpoint answers (RFC 6749 §4.1.3).
    async fn tokens(
        &self,
        realm: &Realm,
        exchange: &CodeExchange<'_>,
        client: Option<ClientInfo>,
    ) -> Result<TokenResponse, ExchangeError> {
        let form = Serializer::new(String::new())
            .extend_pairs([
                ("grant_type", "authorization_code"),
                ("client_id", self.client_id.as_str()),
                ("code", exchange.code),
                ("redirect_uri", exchange.redirect_uri),
                ("code_verifier", exchange.verifier),
            ])
            .finish();
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}/access_token", realm.issuer));
        let request = request.body(Body::from(form));
        let mut request = request.map_err(|_| ExchangeError::Unavailable)?;
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers_mut().insert(CONTENT_TYPE, kind);
        if let Some(client) = client {
            request.extensions_mut().insert(client);
        }
        let response = serve::serve(Shared(Arc::clone(&self.state)), request).await;
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), ANSWER_MAX).await;
        let body = body.map_err(|_| ExchangeError::Unavailable)?;
        if status.is_server_error() {
            return Err(ExchangeError::Unavailable);
        }
        let body = json::object(&body).ok();
        let tokens = token_response::read(status, body.as_ref());
        tokens.map_err(|error| match error {
            TokenResponseError::Refused { error, .. } => {
                ExchangeError::Refused(error.unwrap_or_else(|| "no error code".to_owned()))
            }
            other => ExchangeError::Token(other.to_string()),
        })
    }

    /// The claims of an ID token, if it answers the request.
    fn verify(
        &self,
        realm: &Realm,
        token: &str,
        context: &IdTokenContext<'_>,
    ) -> Result<Map<String, Value>, ExchangeError> {
        let refused = |error: &dyn std::fmt::Display| ExchangeError::Token(error.to_string());
        let parsed = Unverified::parse(token).map_err(|error| refused(&error))?;
        let keys = self.state.keys.current();
        let claims = parsed.verify(&keys.verifiers);
        let claims = claims.map_err(|error| refused(&error))?;
        if !is_id_token(&claims) {
            return Err(refused(&"it is a token of another kind"));
        }
        let rules = Rules {
            issuer: Issuer::Exact(&realm.issuer),
            client_id: &self.client_id,
            acr: &[],
            leeway: LEEWAY,
            checks_validity: true,
        };
        let now = self.state.clock.now_ms().div_euclid(1000);
        let alg = parsed.algorithm().as_sign_alg();
        let checked = check(&claims, &rules, (alg, now), context);
        checked.map_err(|error| refused(&error))?;
        Ok(claims)
    }

    /// Who signed in, if that still counts: neither the grant nor the session has
    /// ended, and the user may sign in. `used`: the session was used just now.
    ///
    /// # Errors
    /// [`StoreError`] if nobody knows.
    pub async fn member(&self, sign_in: &SignIn, used: bool) -> Result<Option<Member>, StoreError> {
        let (state, claims) = (&self.state, &sign_in.claims);
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let Some(realm) = self.realm().filter(|realm| {
            text("iss") == Some(&realm.issuer) && bearer::client_id(claims) == self.client_id
        }) else {
            return Ok(None);
        };
        let digests = bearer::digests(claims);
        let holder = bearer::holder(state, &realm, claims, &digests).await;
        let holder = holder.map_err(|fault| StoreError::Unavailable(fault.to_string(), None))?;
        let Some(user) = holder.and_then(|holder| holder.user) else {
            return Ok(None);
        };
        if let Some(sid) = &sign_in.sid {
            let now_ms = state.clock.now_ms();
            let session = state.session_of(&realm.path, sid, user.id, now_ms).await?;
            match session {
                None => return Ok(None),
                Some(session) if used => state.note_use(&session, now_ms).await?,
                Some(_) => {}
            }
        }
        let groups = state.store.memberships(&[user.id]).await?;
        Ok(Some(Member {
            person: Person {
                id: user.id,
                name: user.user_name.clone(),
                realm: realm.path.clone(),
            },
            groups: groups.into_iter().map(|(_, group)| group.name).collect(),
        }))
    }

    /// Ends a sign-in on behalf of `actor`: its grant is revoked. The session at the
    /// provider is another matter.
    pub async fn end(&self, sign_in: &SignIn, actor: Actor) {
        let state = &self.state;
        let text = |name: &str| sign_in.claims.get(name).and_then(Value::as_str);
        let grant = text("authGrantId").unwrap_or_default();
        let now_ms = state.clock.now_ms();
        if let Err(error) = state.revoke_grant(grant, now_ms, None).await {
            tracing::error!(%error, "a grant could not be revoked");
            return;
        }
        let event = Event::new(Kind::GrantRevoke, actor)
            .realm(&self.realm)
            .client(&self.client_id)
            .with("grant", grant)
            .with("cause", "sign_out");
        state.audit.note(event, Trace::default(), now_ms);
    }
}
