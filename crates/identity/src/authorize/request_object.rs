//! Request objects: authorization requests as JWTs that the client signed
//! (RFC 9101, OpenID Connect Core §6).

use serde_json::{Map, Value};

use super::authorization_response::AuthorizationError;
use crate::Call;
use crate::clients::LiveClient;
use doorward_core::jose::claims::{CLOCK_SKEW, check_times, time};
use doorward_core::jose::verify::{Unverified, unsigned_claims};
use doorward_core::model::client::RequestAlg;

/// Most members of a request object.
const MEMBERS_MAX: usize = 100;

/// The longest life, and the greatest age, of a request object of a client that
/// follows FAPI 2.0 Message Signing (§5.3.1), in seconds.
const STRICT_LIFE: i64 = 3600;

/// What is about the object and no parameter of the request.
const ABOUT: [&str; 7] = ["iss", "aud", "exp", "nbf", "iat", "jti", "sub"];

/// The content of a request object.
#[derive(Debug)]
pub(super) struct RequestObject {
    /// The parameters; never `request` or `request_uri`.
    pub(super) parameters: Vec<(String, String)>,
}

fn invalid(description: &'static str) -> AuthorizationError {
    AuthorizationError::new("invalid_request_object", description)
}

/// Opens a request object of `client`. `at_ms` is when its user came with it:
/// signing in takes its time.
///
/// # Errors
/// `invalid_request_object`, whatever is wrong with it.
pub(super) async fn open(
    call: &Call,
    client: &LiveClient,
    text: &str,
    at_ms: i64,
) -> Result<RequestObject, AuthorizationError> {
    let metadata = &client.client.metadata;
    let registered = metadata.request_object_signing_alg;
    let signs = client.needs_signed_requests()
        || client.is_fapi2()
        || matches!(registered, Some(RequestAlg::Signed(_)));
    let unsigned = unsigned_claims(text).ok().filter(|_| !signs);
    let (claims, signed) = match unsigned {
        Some(claims) if client.may_leave_objects_unsigned(&call.realm) => (claims, false),
        Some(_) => {
            let text = "Request objects must be signed";
            return Err(AuthorizationError::new("request_not_supported", text));
        }
        None => (verified(call, client, registered, text).await?, true),
    };
    check_claims(call, client, &claims, signed)?;
    check_times_of(client, &claims, at_ms.div_euclid(1000))?;
    let parameters = parameters(&claims)?;
    Ok(RequestObject { parameters })
}

/// The claims, if the client signed them in the way that it registered.
async fn verified(
    call: &Call,
    client: &LiveClient,
    registered: Option<RequestAlg>,
    text: &str,
) -> Result<Map<String, Value>, AuthorizationError> {
    let token = Unverified::parse(text).map_err(|_| invalid("The request object is malformed"))?;
    let kind = token.typ();
    if !matches!(kind.as_deref(), None | Some("jwt" | "oauth-authz-req+jwt")) {
        return Err(invalid("The JWT is no request object"));
    }
    let used = token.algorithm().as_sign_alg();
    let wrong = || invalid("The signature of the request object is not valid");
    match registered {
        Some(RequestAlg::Signed(alg)) if alg != used => return Err(wrong()),
        Some(RequestAlg::None) | None if used.is_shared() => return Err(wrong()),
        _ => {}
    }
    if !client.may_sign_by(used) {
        return Err(wrong());
    }
    let claims = if used.is_shared() {
        let secret = client.plain_secret().ok_or_else(wrong)?;
        token.verify_hmac(secret.expose().as_bytes())
    } else {
        let keys = &call.state.client_keys;
        keys.verify(client, &token, call.now_ms).await
    };
    claims.map_err(|_| wrong())
}

/// Checks who made the object, for whom, and that it is nothing else.
fn check_claims(
    call: &Call,
    client: &LiveClient,
    claims: &Map<String, Value>,
    signed: bool,
) -> Result<(), AuthorizationError> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    let needed = signed && client.needs_signed_requests();
    let is_client = |name: &str| text(name) == Some(client.id());
    if (claims.contains_key("iss") || needed) && !is_client("iss") {
        return Err(invalid(
            "The issuer of the request object is not the client",
        ));
    }
    let issuer = &call.realm.issuer;
    let for_us = match claims.get("aud") {
        None => !needed,
        Some(Value::String(one)) => one == issuer,
        Some(Value::Array(several)) => several.iter().any(|one| one == issuer),
        Some(_) => false,
    };
    if !for_us {
        return Err(invalid("The request object is for somebody else"));
    }
    // It travels through browsers: whoever found it there could bring it as a
    // client assertion (RFC 9101 §10.8).
    if signed && is_client("sub") {
        return Err(invalid("A request object must not name its client as sub"));
    }
    if claims.contains_key("request") || claims.contains_key("request_uri") {
        return Err(invalid("A request object can't hold another one"));
    }
    if claims.contains_key("client_id") && !is_client("client_id") {
        return Err(invalid("The request object is of another client"));
    }
    Ok(())
}

/// Checks the times of the object at `now`, in seconds. Where nobody insists, it
/// may have none.
fn check_times_of(
    client: &LiveClient,
    claims: &Map<String, Value>,
    now: i64,
) -> Result<(), AuthorizationError> {
    let wrong = || invalid("The request object has expired or is not valid yet");
    let strict = client.is_fapi2();
    let of = |name: &str| time(claims, name).map_err(|_| wrong());
    let (begins, ends) = (of("nbf")?, of("exp")?);
    if ends.is_some() || strict {
        check_times(claims, now, CLOCK_SKEW).map_err(|_| wrong())?;
    }
    for start in [begins, of("iat")?].into_iter().flatten() {
        if start > now.saturating_add(CLOCK_SKEW) {
            return Err(wrong());
        }
    }
    if !strict {
        return Ok(());
    }
    let (Some(begins), Some(ends)) = (begins, ends) else {
        return Err(invalid("The request object needs nbf and exp"));
    };
    let oldest = now.saturating_sub(STRICT_LIFE + CLOCK_SKEW);
    if ends.saturating_sub(begins) > STRICT_LIFE || begins < oldest {
        Err(invalid("The request object is valid for more than an hour"))
    } else {
        Ok(())
    }
}

/// The members as parameters: texts as they are, several values as parameters
/// that repeat, objects (`claims`) as JSON.
fn parameters(claims: &Map<String, Value>) -> Result<Vec<(String, String)>, AuthorizationError> {
    let mut all = Vec::new();
    let mut add = |name: &str, value: &Value| {
        let text = match value {
            Value::Null => return,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        all.push((name.to_owned(), text));
    };
    for (name, value) in claims {
        match value {
            _ if ABOUT.contains(&name.as_str()) => {}
            Value::Array(several) if name == "resource" => {
                several.iter().for_each(|one| add(name, one));
            }
            value => add(name, value),
        }
    }
    if all.len() > MEMBERS_MAX {
        Err(invalid("The request object has too many members"))
    } else {
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(claims: Value) -> Result<Vec<(String, String)>, AuthorizationError> {
        parameters(claims.as_object().expect("an object"))
    }

    #[test]
    fn members_become_the_parameters_that_they_stand_for() {
        let all = of(json!({
            "iss": "app", "aud": "x", "jti": "1", "state": "a b", "max_age": 300,
            "claims": {"id_token": {"acr": null}}, "nonce": null,
            "resource": ["https://a", "https://b"],
        }));
        let all = all.expect("parameters");
        let pairs: Vec<_> = all.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        for pair in [
            ("state", "a b"),
            ("max_age", "300"),
            ("claims", r#"{"id_token":{"acr":null}}"#),
            ("resource", "https://a"),
            ("resource", "https://b"),
        ] {
            assert!(pairs.contains(&pair), "{pair:?}: {pairs:?}");
        }
        assert_eq!(pairs.len(), 5);
    }

    #[test]
    fn a_flood_of_members_is_refused() {
        let many: Map<String, Value> = (0..=MEMBERS_MAX)
            .map(|n| (n.to_string(), json!("x")))
            .collect();
        assert!(parameters(&many).is_err());
        let several: Vec<_> = (0..=MEMBERS_MAX).map(|n| n.to_string()).collect();
        assert!(of(json!({"resource": several})).is_err());
    }
}
