//! `/oauth2[/realms/…]/userinfo` (OpenID Connect Core §5.3): what the user lets
//! a client know.

use axum::body::Body;
use axum::response::Response;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};
use serde_json::{Map, Value, json};

use super::bearer::{self, ValidToken};
use super::error::OAuthError;
use super::form::{self, Form};
use super::{Call, dpop, membership, respond};
use doorward_core::model::user::{User, schema};

/// Every claim that the endpoint may tell, besides `sub`.
pub(super) const CLAIMS: [&str; 19] = [
    "name",
    "given_name",
    "family_name",
    "middle_name",
    "nickname",
    "preferred_username",
    "profile",
    "picture",
    "website",
    "gender",
    "birthdate",
    "zoneinfo",
    "locale",
    "updated_at",
    "email",
    "email_verified",
    "phone_number",
    "phone_number_verified",
    "address",
];

/// What the endpoint tells of the sign-in where it is asked for.
pub(super) const OF_SIGN_IN: [&str; 3] = ["acr", "amr", "auth_time"];

/// The scope that allows this claim; `None`: the claim is not the user's to
/// give.
pub(super) fn scope_of(claim: &str) -> Option<&'static str> {
    match claim {
        "email" | "email_verified" => Some("email"),
        "phone_number" | "phone_number_verified" => Some("phone"),
        "address" => Some("address"),
        other => CLAIMS.contains(&other).then_some("profile"),
    }
}

/// Answers with the claims that the token's scopes allow.
pub(super) async fn answer(call: &Call) -> Result<Response, OAuthError> {
    let by_proof = bearer::with_proof(call.headers()).is_some();
    let answer = claims_of_token(call).await;
    answer.map_err(|error| error.of_resource(by_proof, &dpop::algorithms(|_| true)))
}

async fn claims_of_token(call: &Call) -> Result<Response, OAuthError> {
    let token = token(call)?;
    let good = bearer::check(&call.state, &token, call.now_ms).await?;
    // What a client gets for itself says nothing of a user, though its identifier
    // may be the name of one.
    let good = good.filter(|good| is_for_us(call, good) && good.user.is_some());
    let good = good.ok_or_else(OAuthError::invalid_token)?;
    let client_id = good.issued.client_id();
    let state = &call.state;
    let client = state.clients.find(&state.store, &good.realm, client_id);
    let client = client.await?.ok_or_else(OAuthError::invalid_token)?;
    dpop::check(call, &client, &token, good.issued.bound_to()).await?;
    if !good.issued.scopes().any(|scope| scope == "openid") {
        return Err(OAuthError::insufficient_scope("openid"));
    }
    let mut claims = claims(&good);
    let user = good.user.as_ref().map(|user| user.id);
    if let Some(groups) = membership::groups_claim(&call.state, user, good.issued.scopes()).await? {
        claims.insert(membership::GROUPS.to_owned(), json!(groups));
    }
    let mut response = match client.client.metadata.userinfo_signed_response_alg {
        None => respond::json(StatusCode::OK, &claims),
        Some(alg) => {
            let mut claims = claims;
            claims.insert("iss".to_owned(), json!(good.realm.issuer));
            claims.insert("aud".to_owned(), json!(client_id));
            let signed = match client.shared_signer(alg) {
                Some(signer) => signer.sign(&claims),
                None => state.keys.signer(alg).await?.sign(&claims),
            };
            let mut response = Response::new(Body::from(signed?));
            let kind = HeaderValue::from_static("application/jwt");
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
    };
    respond::never_stored(&mut response);
    Ok(response)
}

/// Whether the token is of this realm, and was not given for other resources
/// (RFC 8707) than the provider: whoever serves those is not told about users.
fn is_for_us(call: &Call, token: &ValidToken) -> bool {
    let issuer = &token.realm.issuer;
    let here = format!("{issuer}/userinfo");
    let issued = &token.issued;
    let ours = |one: &str| one == issued.client_id() || one == issuer || one == here;
    token.realm.path == call.realm.path && issued.audiences().any(ours)
}

/// The access token: of the header or, in a form post, of the body; never of
/// both, and never of the address (RFC 6750 §2).
fn token(call: &Call) -> Result<String, OAuthError> {
    let mut tried = call.headers().get_all(AUTHORIZATION).iter();
    let (tried, again) = (tried.next().is_some(), tried.next().is_some());
    if again {
        let text = "There is more than one Authorization header";
        return Err(OAuthError::bad("invalid_request", text));
    }
    let form = if call.parts.method == Method::POST && form::is_form(call.headers()) {
        form::read_body(call)?
    } else {
        Form::default()
    };
    let by_form = form.get("access_token");
    let by_header = bearer::from_header(call.headers());
    let by_header = by_header.or_else(|| bearer::with_proof(call.headers()));
    match (by_header, by_form) {
        (Some(_), Some(_)) => {
            let text = "Access Token cannot be provided in both body and header";
            Err(OAuthError::bad("invalid_request", text))
        }
        (Some(token), None) | (None, Some(token)) => Ok(token.to_owned()),
        (None, None) if tried => Err(OAuthError::invalid_token()),
        (None, None) => Err(OAuthError::no_token(&call.realm.path)),
    }
}

/// The claims by scope (OpenID Connect Core §5.4); none that is empty.
fn claims(token: &ValidToken) -> Map<String, Value> {
    let mut claims = Map::new();
    let subject = token.issued.claims.get("sub").cloned();
    claims.insert("sub".to_owned(), subject.unwrap_or_default());
    let Some(user) = &token.user else {
        return claims;
    };
    claims.extend(of_scopes(user, token.issued.scopes()));
    let asked = token.issued.claims.get("userinfo_claims");
    let asked = asked.and_then(Value::as_array);
    if let Some(asked) = asked {
        let asked = asked.iter().filter_map(Value::as_str);
        let asked: Vec<_> = asked.map(str::to_owned).collect();
        claims.extend(named(user, &asked));
        let told = token.issued.sign_in();
        claims.extend(told.into_iter().filter(|(name, _)| asked.contains(name)));
    }
    claims
}

/// The claims of these scopes about `user`; none that is empty.
pub(super) fn of_scopes<'s>(
    user: &User,
    scopes: impl Iterator<Item = &'s str>,
) -> Map<String, Value> {
    let of_scope = |scope| match scope {
        "profile" => profile(user),
        "email" => email(user),
        "phone" => phone(user),
        "address" => address(user),
        _ => Vec::new(),
    };
    scopes
        .flat_map(of_scope)
        .filter(|(_, value)| !is_empty(value))
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Every claim about `user`.
pub(super) fn all(user: &User) -> Map<String, Value> {
    of_scopes(user, ["profile", "email", "phone", "address"].into_iter())
}

/// The claims about `user` that have these names.
pub(super) fn named(user: &User, names: &[String]) -> Map<String, Value> {
    let mut claims = all(user);
    claims.retain(|name, _| names.contains(name));
    claims
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

fn profile(user: &User) -> Vec<(&'static str, Value)> {
    let of = |name: &str| user.profile.get(name).cloned().unwrap_or_default();
    let name_part = |part: &str| {
        let name = user.profile.get("name").and_then(|name| name.get(part));
        name.cloned().unwrap_or_default()
    };
    let mut name = name_part("formatted");
    if is_empty(&name) {
        name = of("displayName");
    }
    if is_empty(&name) {
        let parts = [name_part("givenName"), name_part("familyName")];
        let parts: Vec<_> = parts.iter().filter_map(Value::as_str).collect();
        name = json!(parts.join(" "));
    }
    vec![
        ("name", name),
        ("given_name", name_part("givenName")),
        ("family_name", name_part("familyName")),
        ("middle_name", name_part("middleName")),
        ("nickname", of("nickName")),
        ("preferred_username", json!(user.user_name)),
        ("profile", of("profileUrl")),
        ("picture", main_value(user, "photos")),
        ("website", of("website")),
        ("gender", of("gender")),
        ("birthdate", of("birthdate")),
        ("zoneinfo", of("timezone")),
        ("locale", of("locale")),
        ("updated_at", json!(user.updated_ms.div_euclid(1000))),
    ]
}

/// The primary value of a list of the record, or else its first.
fn main_of<'a>(user: &'a User, list: &str) -> Option<&'a Value> {
    let values = user.profile.get(list)?.as_array()?;
    let primary = values.iter().find(|value| value["primary"] == true);
    primary.or_else(|| values.first())
}

/// The same, where it is a text or has one as its `value`; null: there is none.
fn main_value(user: &User, list: &str) -> Value {
    match main_of(user, list) {
        Some(Value::Object(members)) => members.get("value").cloned().unwrap_or_default(),
        Some(text @ Value::String(_)) => text.clone(),
        _ => Value::Null,
    }
}

fn email(user: &User) -> Vec<(&'static str, Value)> {
    let Some(email) = main_of(user, "emails") else {
        return Vec::new();
    };
    let verified = email.get("verified").and_then(Value::as_bool);
    vec![
        ("email", main_value(user, "emails")),
        ("email_verified", json!(verified.unwrap_or(false))),
    ]
}

fn phone(user: &User) -> Vec<(&'static str, Value)> {
    if main_of(user, "phoneNumbers").is_none() {
        return Vec::new();
    }
    vec![
        ("phone_number", main_value(user, "phoneNumbers")),
        // The record does not say.
        ("phone_number_verified", json!(false)),
    ]
}

fn address(user: &User) -> Vec<(&'static str, Value)> {
    let Some(address) = main_of(user, "addresses").and_then(Value::as_object) else {
        return Vec::new();
    };
    let mut members: Map<String, Value> = [
        ("street_address", "streetAddress"),
        ("locality", "locality"),
        ("region", "region"),
        ("postal_code", "postalCode"),
        ("country", "country"),
    ]
    .into_iter()
    .filter_map(|(claim, name)| {
        let value = address.get(name).filter(|value| !is_empty(value))?;
        Some((claim.to_owned(), value.clone()))
    })
    .collect();
    let formatted = schema::formatted_address(address);
    if !formatted.is_empty() {
        members.insert("formatted".to_owned(), Value::String(formatted));
    }
    vec![("address", Value::Object(members))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_claim_of_the_standard_has_an_attribute() {
        let record = json!({
            "userName": "ann", "profileUrl": "https://x.example/ann",
            "website": "https://ann.example", "gender": "female", "birthdate": "0000-10-31",
            "photos": ["https://x.example/a.png", {"value": "https://x.example/b.png",
                "primary": true}],
            "emails": ["ann@x.example"], "phoneNumbers": ["+1 555 1"],
            "addresses": [{"streetAddress": "Way 1", "locality": "Town", "region": "North",
                "postalCode": "12345", "country": "DE"}],
        });
        let record = record.as_object().cloned().expect("an object");
        let user = crate::new_user("/", &record).expect("a user");
        let claims = all(&user);
        for (claim, value) in [
            ("profile", json!("https://x.example/ann")),
            ("picture", json!("https://x.example/b.png")),
            ("website", json!("https://ann.example")),
            ("gender", json!("female")),
            ("birthdate", json!("0000-10-31")),
            ("email", json!("ann@x.example")),
            ("email_verified", json!(false)),
            ("phone_number", json!("+1 555 1")),
            (
                "address",
                json!({
                    "formatted": "Way 1, Town, North, 12345, DE", "street_address": "Way 1",
                    "locality": "Town", "region": "North", "postal_code": "12345",
                    "country": "DE",
                }),
            ),
        ] {
            assert_eq!(claims.get(claim), Some(&value), "{claim}");
            assert!(
                CLAIMS.contains(&claim) && scope_of(claim).is_some(),
                "{claim}"
            );
        }
    }
}
