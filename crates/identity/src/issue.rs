//! Making tokens: their claims, exact to the interface (2.3).

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::State;
use super::audit;
use super::clients::LiveClient;
use super::context::{NO_CLASS, PASSWORD};
use super::error::Fault;
use super::realm::Realm;
use super::refresh::{self, RefreshToken};
use super::{membership, token_id};
use doorward_core::clock::random_bytes;
use doorward_core::jose::sign::half_hash;
use doorward_core::model::audit::{Kind, PendingAudit};
use doorward_core::model::client::TokenFormat;
use doorward_core::model::grant::{Grant, StoredAccess, StoredRefresh, TokenHash};
use doorward_store::StoreError;

/// The media type of access tokens (RFC 9068 §2.1).
const AT_JWT: &str = "at+jwt";

/// What is to be issued.
#[derive(Clone, Copy, Debug)]
pub(super) struct Issue<'a> {
    pub(super) realm: &'a Realm,
    pub(super) client: &'a LiveClient,
    /// The user's name, or the client's identifier when it acts for itself.
    pub(super) subject: &'a str,
    /// The user, if the subject is one.
    pub(super) user: Option<Uuid>,
    pub(super) scopes: &'a [String],
    pub(super) grant_type: &'a str,
    pub(super) grant_id: &'a str,
    /// In seconds since the epoch.
    pub(super) auth_time: i64,
    pub(super) context: Context<'a>,
    pub(super) now_ms: i64,
    pub(super) request_claims: RequestClaims<'a>,
    pub(super) restrictions: TokenRestrictions<'a>,
}

/// What tokens say because of the authorization request that began their grant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestClaims<'a> {
    pub(super) nonce: Option<&'a str>,
    /// The session that the grant was given in.
    pub(super) sid: Option<&'a str>,
    /// The code that is given beside the ID token.
    pub(super) code: Option<&'a str>,
    /// The state of the request, where the ID token vouches for it.
    pub(super) state: Option<&'a str>,
    /// Claims that the ID token holds beside its own.
    pub(super) id_claims: Option<&'a Map<String, Value>>,
    /// Claims that the userinfo endpoint tells besides those of the scopes.
    pub(super) userinfo_claims: &'a [String],
}

/// What an access token is confined to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TokenRestrictions<'a> {
    /// What it is for; none: for the client.
    pub(super) audience: &'a [String],
    /// The key (RFC 7638 thumbprint) that it is bound to.
    pub(super) bound_to: Option<&'a str>,
    /// Who acts for the subject (RFC 8693 §4.1).
    pub(super) act: Option<&'a Value>,
    /// When it ends at the latest, in seconds since the epoch.
    pub(super) ends_s: Option<i64>,
}

/// How the user signed in.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Context<'a> {
    /// The methods (RFC 8176); none: nobody knows.
    pub(super) amr: &'a [String],
    /// The class; absent: the lowest.
    pub(super) acr: Option<&'a str>,
}

impl<'a> Context<'a> {
    /// That of a grant.
    pub(super) fn of(grant: &'a Grant) -> Self {
        Self {
            amr: &grant.amr,
            acr: grant.acr.as_deref(),
        }
    }

    /// Whether the user showed a password and nothing more. Access tokens say
    /// nothing of it, as they always did.
    fn is_plain(self) -> bool {
        self.acr.is_none_or(|acr| acr == NO_CLASS)
            && matches!(self.amr, [] | [_])
            && self.amr.iter().all(|word| word == PASSWORD)
    }
}

/// A token response (interface 2.3).
#[derive(Debug, Serialize)]
pub(super) struct TokenResponse {
    pub(super) access_token: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refresh_token: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) scope: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id_token: Option<String>,
    /// That of the authorization request whose code this answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) nonce: Option<String>,
    /// Of a token exchange only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) issued_token_type: Option<&'static str>,
    pub(super) token_type: &'static str,
    pub(super) expires_in: i64,
    /// For other parts of this process.
    #[serde(skip)]
    pub(super) user: Option<Uuid>,
}

#[derive(Serialize)]
struct AccessClaims<'a> {
    sub: &'a str,
    cts: &'static str,
    /// Of users only.
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_level: Option<i32>,
    #[serde(rename = "auditTrackingId")]
    audit_tracking_id: String,
    iss: &'a str,
    #[serde(rename = "tokenName")]
    token_name: &'static str,
    token_type: &'static str,
    #[serde(rename = "authGrantId")]
    auth_grant_id: &'a str,
    aud: Audience<'a>,
    /// Where the audience is not the client, or RFC 9068 is followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    client_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cnf: Option<Confirmation<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    act: Option<&'a Value>,
    nbf: i64,
    grant_type: &'a str,
    #[serde(skip_serializing_if = "Scope::is_silent")]
    scope: Scope<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_time: Option<i64>,
    /// Where it was more than a password.
    #[serde(skip_serializing_if = "Option::is_none")]
    acr: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    amr: &'a [String],
    realm: &'a str,
    exp: i64,
    iat: i64,
    expires_in: i64,
    jti: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    nonce: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    userinfo_claims: &'a [String],
    /// Of tokens that a server reads by itself (RFC 9068 §2.2.3.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<String>>,
}

impl<'a> AccessClaims<'a> {
    /// Names the client, writes the scopes as one text, and leaves out when nobody
    /// signed in (RFC 9068 §2.2).
    fn follow_rfc9068(&mut self, issue: &Issue<'a>) {
        self.client_id = Some(issue.client.id());
        self.scope = Scope::Text(issue.scopes.join(" "));
        self.auth_time = self.auth_time.filter(|_| issue.user.is_some());
    }
}

/// A list, or as RFC 8693 §4.2 has it.
#[derive(Serialize)]
#[serde(untagged)]
enum Scope<'a> {
    List(&'a [String]),
    Text(String),
}

impl Scope<'_> {
    /// Whether it is a text that says nothing.
    fn is_silent(&self) -> bool {
        matches!(self, Self::Text(text) if text.is_empty())
    }
}

/// One is a string, and not an array.
#[derive(Serialize)]
#[serde(untagged)]
enum Audience<'a> {
    One(&'a str),
    Several(&'a [String]),
}

/// What the token is bound to (RFC 7800, RFC 9449 §6).
#[derive(Serialize)]
struct Confirmation<'a> {
    jkt: &'a str,
}

#[derive(Serialize)]
struct IdClaims<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    c_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    s_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nonce: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sid: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    amr: &'a [String],
    sub: &'a str,
    iss: &'a str,
    aud: &'a str,
    acr: &'a str,
    azp: &'a str,
    auth_time: i64,
    exp: i64,
    iat: i64,
    #[serde(flatten)]
    proprietary: Option<ProprietaryClaims<'a>>,
    #[serde(flatten)]
    others: Option<&'a Map<String, Value>>,
}

/// What ID tokens of the imitated service say besides.
#[derive(Serialize)]
struct ProprietaryClaims<'a> {
    #[serde(rename = "auditTrackingId")]
    audit_tracking_id: String,
    #[serde(rename = "tokenName")]
    token_name: &'static str,
    realm: &'a str,
    #[serde(rename = "tokenType")]
    token_type: &'static str,
}

/// A random handle: 160 bits in 27 characters.
pub(super) fn handle() -> String {
    URL_SAFE_NO_PAD.encode(random_bytes::<20>())
}

/// `override_s` seconds if that is more than 0, else the realm's.
fn lifetime(override_s: Option<u32>, realm_s: u32) -> i64 {
    i64::from(override_s.filter(|seconds| *seconds > 0).unwrap_or(realm_s))
}

/// Makes the access token and, for the scope `openid`, the ID token. An opaque
/// access token is good once the second value is in the store.
pub(super) async fn tokens(
    state: &State,
    issue: &Issue<'_>,
) -> Result<(TokenResponse, Option<StoredAccess>), Fault> {
    let scopes = permitted_scopes(state, issue).await?;
    let issue = &Issue {
        scopes: &scopes,
        ..*issue
    };
    let (mut response, stored) = make_access_token(state, issue).await?;
    if issue.scopes.iter().any(|scope| scope == "openid") {
        let id_token = id_token(state, issue, Some(&response.access_token)).await?;
        response.id_token = Some(id_token);
    }
    Ok((response, stored))
}

/// Puts an access token that came without a refresh token into the store: an
/// opaque one. Of others there is nothing to write.
pub(super) async fn record(state: &State, stored: Option<StoredAccess>) -> Result<(), StoreError> {
    match stored {
        Some(_) => {
            let write = async |audit: Option<&PendingAudit>| {
                let store = &state.store;
                store.record_tokens(None, stored.as_ref(), audit).await
            };
            audit::with(state, Kind::TokenIssue, audit::as_it_is, write).await
        }
        None => Ok(()),
    }
}

/// Makes the access token alone.
pub(super) async fn access_token(
    state: &State,
    issue: &Issue<'_>,
) -> Result<(TokenResponse, Option<StoredAccess>), Fault> {
    let scopes = permitted_scopes(state, issue).await?;
    let issue = Issue {
        scopes: &scopes,
        ..*issue
    };
    make_access_token(state, &issue).await
}

/// The scopes of a token: no more than may be granted now, whatever the grant has.
async fn permitted_scopes<'a>(
    state: &State,
    issue: &Issue<'a>,
) -> Result<Cow<'a, [String]>, Fault> {
    let (realm, client) = (issue.realm, issue.client);
    let scopes =
        membership::permitted_scopes(state, realm, client, issue.user, issue.scopes).await?;
    if scopes.is_empty() && !issue.scopes.is_empty() {
        return Err(Fault::ScopesDenied);
    }
    Ok(scopes)
}

async fn make_access_token(
    state: &State,
    issue: &Issue<'_>,
) -> Result<(TokenResponse, Option<StoredAccess>), Fault> {
    let metadata = &issue.client.client.metadata;
    let settings = &issue.realm.settings;
    let iat = issue.now_ms.div_euclid(1000);
    let life = lifetime(
        metadata.access_token_lifetime,
        settings.access_token_lifetime,
    );
    let life = issue
        .restrictions
        .ends_s
        .map_or(life, |ends_s| life.min(ends_s - iat));
    let format = metadata
        .access_token_format
        .unwrap_or(settings.access_token_format);
    let mut claims = access_claims(state, issue, iat, life);
    if format == TokenFormat::AtJwt {
        claims.follow_rfc9068(issue);
    }
    // Introspection of an opaque token tells the groups of that moment.
    if format != TokenFormat::Opaque && !issue.restrictions.audience.is_empty() {
        let scopes = issue.scopes.iter().map(String::as_str);
        claims.groups = membership::short_groups_claim(state, issue.user, scopes).await?;
    }
    audit::tokens(issue);
    audit::traced(&claims.audit_tracking_id);
    let (access_token, stored) = match format {
        TokenFormat::Jwt | TokenFormat::AtJwt => {
            let alg = issue.client.access_token_alg(issue.realm);
            let signer = state.keys.signer(alg).await?;
            let token = match format {
                TokenFormat::AtJwt => signer.sign_as(AT_JWT, &claims)?,
                _ => signer.sign(&claims)?,
            };
            (token, None)
        }
        TokenFormat::Opaque => {
            let token = handle();
            let stored = opaque(&token, issue, &claims)?;
            (token, Some(stored))
        }
    };
    let response = TokenResponse {
        access_token,
        refresh_token: None,
        scope: issue.scopes.join(" "),
        id_token: None,
        nonce: None,
        issued_token_type: None,
        token_type: token_type(issue),
        // What is left, rounded down: a second that has begun is not promised.
        expires_in: ((iat + life) * 1000 - issue.now_ms).div_euclid(1000),
        user: issue.user,
    };
    Ok((response, stored))
}

fn access_claims<'a>(state: &State, issue: &Issue<'a>, iat: i64, life: i64) -> AccessClaims<'a> {
    let said = if issue.context.is_plain() {
        Context::default()
    } else {
        issue.context
    };
    AccessClaims {
        sub: issue.subject,
        cts: "OAUTH2_STATELESS_GRANT",
        auth_level: issue.user.map(|_| 0),
        audit_tracking_id: state.audit_id(),
        iss: &issue.realm.issuer,
        token_name: "access_token",
        token_type: token_type(issue),
        auth_grant_id: issue.grant_id,
        aud: match issue.restrictions.audience {
            [] => Audience::One(issue.client.id()),
            [one] => Audience::One(one),
            several => Audience::Several(several),
        },
        client_id: (!issue.restrictions.audience.is_empty()).then_some(issue.client.id()),
        cnf: issue.restrictions.bound_to.map(|jkt| Confirmation { jkt }),
        act: issue.restrictions.act,
        nbf: iat,
        grant_type: issue.grant_type,
        scope: Scope::List(issue.scopes),
        auth_time: Some(issue.auth_time),
        acr: said.acr,
        amr: said.amr,
        realm: &issue.realm.path,
        exp: iat + life,
        iat,
        expires_in: life,
        // A client that a node with a faster clock made was there.
        jti: token_id::new(issue.now_ms.max(issue.client.client.created_ms), issue.user),
        nonce: issue.request_claims.nonce,
        userinfo_claims: issue.request_claims.userinfo_claims,
        groups: None,
    }
}

fn token_type(issue: &Issue<'_>) -> &'static str {
    match issue.restrictions.bound_to {
        Some(_) => "DPoP",
        None => "Bearer",
    }
}

fn opaque(
    token: &str,
    issue: &Issue<'_>,
    claims: &AccessClaims<'_>,
) -> Result<StoredAccess, StoreError> {
    let value = serde_json::to_value(claims);
    let value = value.map_err(StoreError::damaged)?;
    let claims_of: Map<String, Value> = match value {
        Value::Object(claims) => claims,
        _ => Map::new(),
    };
    Ok(StoredAccess {
        hash: TokenHash::of(token),
        grant_id: issue.grant_id.to_owned(),
        claims: claims_of,
        expires_ms: claims.exp * 1000,
    })
}

/// Makes the ID token; it vouches for the access token that is given with it.
pub(super) async fn id_token(
    state: &State,
    issue: &Issue<'_>,
    access_token: Option<&str>,
) -> Result<String, Fault> {
    let iat = issue.now_ms.div_euclid(1000);
    let request_claims = &issue.request_claims;
    let metadata = &issue.client.client.metadata;
    let alg = issue.client.id_token_alg(issue.realm);
    let life = lifetime(
        metadata.id_token_lifetime,
        issue.realm.settings.id_token_lifetime,
    );
    let scopes = issue.scopes.iter().map(String::as_str);
    let claims = IdClaims {
        groups: membership::groups_claim(state, issue.user, scopes).await?,
        at_hash: access_token.map(|token| half_hash(alg, token)),
        c_hash: request_claims.code.map(|code| half_hash(alg, code)),
        s_hash: request_claims.state.map(|state| half_hash(alg, state)),
        nonce: request_claims.nonce,
        sid: request_claims
            .sid
            .filter(|_| issue.client.hears_of_sessions()),
        amr: issue.context.amr,
        sub: issue.subject,
        iss: &issue.realm.issuer,
        aud: issue.client.id(),
        acr: issue.context.acr.unwrap_or(NO_CLASS),
        azp: issue.client.id(),
        auth_time: issue.auth_time,
        exp: iat + life,
        iat,
        proprietary: (issue.client.has_proprietary_claims(issue.realm)).then(|| {
            ProprietaryClaims {
                audit_tracking_id: state.audit_id(),
                token_name: "id_token",
                realm: &issue.realm.path,
                token_type: "JWTToken",
            }
        }),
        others: request_claims.id_claims,
    };
    match issue.client.shared_signer(alg) {
        Some(signer) => Ok(signer.sign(&claims)?),
        None => Ok(state.keys.signer(alg).await?.sign(&claims)?),
    }
}

/// A new refresh token for `grant`, and what the store keeps of it.
pub(super) fn refresh_token(
    realm: &Realm,
    client: &LiveClient,
    grant: Grant,
    now_ms: i64,
) -> (String, StoredRefresh) {
    let token = refresh::new();
    let (family, current) = match RefreshToken::parse(&token) {
        Some(presented) => (presented.family(), presented.hash()),
        None => (TokenHash::of(&token), TokenHash::of(&token)),
    };
    let stored = StoredRefresh {
        family,
        current,
        previous: None,
        expires_ms: refresh_expiry(realm, client, &grant, now_ms),
        grant,
    };
    (token, stored)
}

/// When a refresh token dies that is not used from now on.
pub(super) fn refresh_expiry(
    realm: &Realm,
    client: &LiveClient,
    grant: &Grant,
    now_ms: i64,
) -> i64 {
    let life = lifetime(
        client.client.metadata.refresh_token_lifetime,
        realm.settings.refresh_token_lifetime,
    );
    (now_ms + life * 1000).min(grant.ends_ms)
}

/// When a grant ends that begins now.
pub(super) fn grant_end(realm: &Realm, client: &LiveClient, now_ms: i64) -> i64 {
    let life = lifetime(
        client.client.metadata.grant_lifetime,
        realm.settings.grant_lifetime,
    );
    now_ms + life * 1000
}
