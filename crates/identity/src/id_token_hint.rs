//! ID tokens of ours that come back as hints (OpenID Connect Core §3.1.2.1,
//! RP-Initiated Logout §2).

use serde_json::{Map, Value};

use super::Call;
use doorward_core::jose::verify::Unverified;

/// What an ID token says of whom it was given for.
#[derive(Debug)]
pub(super) struct IdTokenHint {
    /// The name of its user, whatever the client calls them.
    pub(super) subject: String,
    /// Whether the token says that name itself: it may be shown to whoever
    /// brings the token.
    pub(super) is_subject_claim: bool,
    pub(super) client_id: String,
    /// The session that it was given in.
    pub(super) sid: Option<String>,
}

/// Reads an ID token that this realm issued; also one that has expired.
pub(super) async fn read(call: &Call, token: &str) -> Option<IdTokenHint> {
    let claims = claims(call, token).await?;
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    let (state, client_id) = (&call.state, text("aud")?);
    // A client got it for itself. It stands for no user, though one may have the
    // client's identifier for a name.
    if text("sub") == Some(client_id) {
        return None;
    }
    let client = state.clients.find(&state.store, &call.realm, client_id);
    let subject = match client.await.ok()? {
        Some(client) => {
            let name = state.name_called(&call.realm, &client, text("sub")?);
            name.await.ok()?
        }
        None => {
            let user = state.user_of_subject(&call.realm, text("sub")?);
            let user = user.await.ok()?;
            user.map_or_else(String::new, |user| user.user_name.clone())
        }
    };
    Some(IdTokenHint {
        is_subject_claim: text("sub") == Some(&*subject),
        subject,
        client_id: client_id.to_owned(),
        sid: text("sid").map(str::to_owned),
    })
}

/// The claims of an ID token that this realm issued; also of one that has
/// expired.
pub(super) async fn claims(call: &Call, token: &str) -> Option<Map<String, Value>> {
    let unverified = Unverified::parse(token).ok()?;
    let claims = if unverified.algorithm().is_symmetric() {
        // The secret of the client that it says it is for signed it, or not.
        let claims = unverified.claims_of_anyone().ok()?;
        let client_id = claims.get("aud")?.as_str()?;
        let state = &call.state;
        let client = state.clients.find(&state.store, &call.realm, client_id);
        let client = client.await.ok()??;
        // Other clients' secrets sign no ID tokens of ours.
        let own = client.client.metadata.id_token_signed_response_alg;
        if own != Some(unverified.algorithm().as_sign_alg()) {
            return None;
        }
        let secret = client.plain_secret()?.expose().to_owned();
        unverified.verify_hmac(secret.as_bytes()).ok()?
    } else {
        unverified
            .verify(&call.state.keys.current().verifiers)
            .ok()?
    };
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    if text("tokenName") != Some("id_token") || text("iss") != Some(&call.realm.issuer) {
        return None;
    }
    Some(claims)
}
