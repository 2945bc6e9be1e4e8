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
    if !is_id_token(&claims) || text("iss") != Some(&call.realm.issuer) {
        return None;
    }
    Some(claims)
}

/// Whether claims that a key of ours has signed are those of an ID token. One
/// with proprietary claims names itself. One without has what neither logout
/// tokens nor answers of `userinfo` have: a sign-in of its authorized party, and
/// an end (OpenID Connect Core §2).
pub(super) fn is_id_token(claims: &Map<String, Value>) -> bool {
    if let Some(name) = claims.get("tokenName") {
        return name == "id_token";
    }
    let is_number = |name: &str| claims.get(name).is_some_and(Value::is_i64);
    let party = claims.get("azp").and_then(Value::as_str);
    party.is_some()
        && party == claims.get("aud").and_then(Value::as_str)
        && ["auth_time", "iat", "exp"].into_iter().all(is_number)
        && !claims.contains_key("events")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn is_one(claims: Value) -> bool {
        claims.as_object().is_some_and(is_id_token)
    }

    #[test]
    fn an_id_token_is_known_with_and_without_proprietary_claims() {
        assert!(is_one(json!({"tokenName": "id_token", "aud": "app"})));
        let claims = json!({"aud": "app", "azp": "app", "auth_time": 1, "iat": 1, "exp": 2});
        assert!(is_one(claims));
    }

    #[test]
    fn nothing_else_that_is_signed_is_an_id_token() {
        for other in [
            json!({"tokenName": "access_token", "aud": "app", "azp": "app", "auth_time": 1,
                   "iat": 1, "exp": 2}),
            // A logout token, and an answer of userinfo.
            json!({"aud": "app", "iat": 1, "exp": 2, "events": {}, "sid": "s"}),
            json!({"aud": "app", "azp": "app", "auth_time": 1, "iat": 1, "exp": 2,
                   "events": {}}),
            json!({"aud": "app", "sub": "demo", "auth_time": 1}),
            json!({"aud": ["app", "other"], "azp": "app", "auth_time": 1, "iat": 1, "exp": 2}),
            json!({"aud": "app", "azp": "other", "auth_time": 1, "iat": 1, "exp": 2}),
        ] {
            assert!(!is_one(other.clone()), "{other}");
        }
    }
}
