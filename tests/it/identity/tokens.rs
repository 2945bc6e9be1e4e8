//! Tokens: how they are got, what they say, what signs them.

use serde_json::{Value, json};

use super::{FOR_DEMO, FOR_ITSELF, assert_error, with};
use crate::support::Setup;
use crate::support::http::{client, send};
use crate::support::issuer::claims_of;
use crate::support::upstream::basic;

#[tokio::test]
async fn client_credentials_give_a_jwt_with_every_claim() {
    let door = Setup::new().start().await;
    let answer = door.token_request(FOR_ITSELF).await.expect(200);
    assert_eq!(answer.header("cache-control"), "no-store");
    let body = answer.json();
    assert_eq!(body["token_type"], "Bearer");
    assert_eq!(body["scope"], "read");
    let left = body["expires_in"].as_i64().expect("seconds");
    assert!((3590..=3600).contains(&left), "{left}");
    assert_eq!(body.get("refresh_token"), None);
    assert_eq!(body.get("id_token"), None);

    let claims = claims_of(body["access_token"].as_str().expect("a token"));
    for (claim, value) in [
        ("sub", json!("orders")),
        ("cts", json!("OAUTH2_STATELESS_GRANT")),
        ("iss", json!(door.proxy_url("/oauth2"))),
        ("tokenName", json!("access_token")),
        ("token_type", json!("Bearer")),
        ("aud", json!("orders")),
        ("grant_type", json!("client_credentials")),
        ("scope", json!(["read"])),
        ("realm", json!("/")),
        ("expires_in", json!(3600)),
    ] {
        assert_eq!(claims[claim], value, "{claim}");
    }
    for claim in ["nbf", "iat", "exp", "auth_time"] {
        assert!(claims[claim].is_i64(), "{claim}: {}", claims[claim]);
    }
    for claim in ["auditTrackingId", "authGrantId", "jti"] {
        assert!(claims[claim].is_string(), "{claim}");
    }
}

#[tokio::test]
async fn password_with_openid_gives_refresh_and_id_token() {
    let door = Setup::new().start().await;
    let body = door.token_request(FOR_DEMO).await.expect(200).json();
    assert!(body["refresh_token"].is_string());
    let claims = claims_of(body["access_token"].as_str().expect("a token"));
    assert_eq!(claims["sub"], "demo");
    assert_eq!(claims["auth_level"], 0);
    let id = claims_of(body["id_token"].as_str().expect("an ID token"));
    for (claim, value) in [
        ("sub", "demo"),
        ("aud", "orders"),
        ("azp", "orders"),
        ("realm", "/"),
    ] {
        assert_eq!(id[claim], value, "{claim}");
    }
    assert_eq!(id["iss"], claims["iss"]);
    for claim in ["exp", "iat", "auth_time"] {
        assert!(id[claim].is_i64(), "{claim}");
    }
}

#[tokio::test]
async fn a_refresh_token_gives_a_new_access_token() {
    let door = Setup::new().start().await;
    let first = door.token_request(FOR_DEMO).await.expect(200).json();
    let refresh = first["refresh_token"].as_str().expect("a refresh token");
    let fields = [
        ("grant_type", "refresh_token"),
        ("client_id", "orders"),
        ("client_secret", "orders-secret"),
        ("refresh_token", refresh),
        ("scope", "profile"),
    ];
    let second = door.token_request(&fields).await.expect(200).json();
    assert_ne!(first["access_token"], second["access_token"]);
    assert_eq!(second["scope"], "profile");
    // The second answer's token, if it brought one, replaces the first.
    let refresh = second["refresh_token"].as_str().unwrap_or(refresh);
    let fields = with(&fields, "refresh_token", refresh);
    let wider = with(&fields, "scope", "profile write");
    let wider = door.token_request(&wider).await;
    assert_eq!(wider.expect(400).json()["error"], "invalid_scope");
    let made_up = door
        .token_request(&with(&fields, "refresh_token", "made-up"))
        .await;
    assert_eq!(made_up.status, 400);
}

#[tokio::test]
async fn every_path_form_of_the_root_realm_is_the_same_realm() {
    let door = Setup::new().start().await;
    let mut issuers = Vec::new();
    for path in [
        "/oauth2/access_token",
        "/oauth2/realms/root/access_token",
        "/oauth2/realms/root/access_token?realm=/",
    ] {
        let answer = send(client().post(door.proxy_url(path)).form(FOR_ITSELF)).await;
        let token = answer.expect(200).json()["access_token"].clone();
        issuers.push(claims_of(token.as_str().expect("a token"))["iss"].clone());
    }
    issuers.dedup();
    assert_eq!(issuers, [json!(door.proxy_url("/oauth2"))]);
}

#[tokio::test]
async fn refused_token_requests_say_why() {
    let door = Setup::new().start().await;
    let cases = [
        (
            with(FOR_ITSELF, "grant_type", ""),
            400,
            "invalid_request",
            "Grant type is not set",
        ),
        (
            with(FOR_ITSELF, "grant_type", "x"),
            400,
            "unsupported_grant_type",
            "Grant type is not supported",
        ),
        (
            with(FOR_ITSELF, "client_secret", "wrong"),
            401,
            "invalid_client",
            "Client authentication failed",
        ),
        (
            with(FOR_ITSELF, "client_id", "nobody"),
            401,
            "invalid_client",
            "Client authentication failed",
        ),
        (
            with(FOR_ITSELF, "client_id", ""),
            401,
            "invalid_client",
            "Client authentication failed",
        ),
        (
            with(FOR_ITSELF, "scope", "read bogus"),
            400,
            "invalid_scope",
            "Unknown/invalid scope(s): [bogus]",
        ),
        (
            with(FOR_DEMO, "username", ""),
            400,
            "invalid_request",
            "Missing parameter, 'username'",
        ),
        (
            with(FOR_DEMO, "password", ""),
            400,
            "invalid_request",
            "Missing parameter, 'password'",
        ),
        (
            with(FOR_DEMO, "password", "wrong"),
            400,
            "invalid_grant",
            "The provided access grant is invalid, expired, or revoked.",
        ),
        (
            with(FOR_DEMO, "username", "nobody"),
            400,
            "invalid_grant",
            "The provided access grant is invalid, expired, or revoked.",
        ),
    ];
    for (pairs, status, error, text) in cases {
        assert_error(door.token_request(&pairs).await, status, error, text);
    }
    // `other` is not registered for the password grant.
    let other = with(
        &with(FOR_DEMO, "client_id", "other"),
        "client_secret",
        "other-secret",
    );
    assert_error(
        door.token_request(&other).await,
        400,
        "unauthorized_client",
        "",
    );
}

#[tokio::test]
async fn client_credentials_may_come_in_a_basic_header() {
    let door = Setup::new().start().await;
    let form = [("grant_type", "client_credentials"), ("scope", "read")];
    let url = door.proxy_url("/oauth2/access_token");
    let request = client().post(&url).form(&form);
    let good = request.header("authorization", basic("orders", "orders-secret"));
    send(good).await.expect(200);
    let request = client().post(&url).form(&form);
    let bad = send(request.header("authorization", basic("orders", "wrong"))).await;
    assert!(bad.header("www-authenticate").starts_with("Basic realm="));
    assert_error(bad, 401, "invalid_client", "");
}

#[tokio::test]
async fn the_token_endpoint_takes_one_form_by_post() {
    let door = Setup::new().start().await;
    let url = door.proxy_url("/oauth2/access_token");
    let get = send(client().get(&url)).await;
    assert_error(
        get,
        405,
        "method_not_allowed",
        "Required Method: POST found: GET",
    );
    let json = send(
        client()
            .post(&url)
            .json(&json!({"grant_type": "client_credentials"})),
    )
    .await;
    assert_error(json, 400, "invalid_request", "Invalid Content Type");
    let mut repeated = FOR_ITSELF.to_vec();
    repeated.push(("scope", "write"));
    assert_error(
        door.token_request(&repeated).await,
        400,
        "invalid_request",
        "",
    );
}

#[tokio::test]
async fn tokeninfo_shows_the_claims_and_each_scope() {
    let door = Setup::new().start().await;
    let token = door.user_token("demo", "openid profile").await;
    let path = format!("/oauth2/realms/root/tokeninfo?access_token={token}");
    let answer = door.get("a.test", &path).await.expect(200);
    assert!(answer.header("cache-control").contains("no-store"));
    let info = answer.json();
    assert_eq!(info["access_token"], token.as_str());
    assert_eq!(info["sub"], "demo");
    assert_eq!(info["realm"], "/");
    let mut scopes: Vec<_> = info["scope"].as_array().expect("a list").clone();
    scopes.sort_by_key(Value::to_string);
    assert_eq!(scopes, [json!("openid"), json!("profile")]);
    assert_eq!(info["openid"], "");
    assert_eq!(info["profile"], "");
    assert!(info["expires_in"].as_i64().is_some_and(|left| left <= 3600));

    let by_header = door.get_as(&token, "a.test", "/oauth2/tokeninfo").await;
    assert_eq!(by_header.expect(200).json()["sub"], "demo");
    let both = door.get_as(&token, "a.test", &path).await;
    assert_error(
        both,
        400,
        "invalid_request",
        "Access Token cannot be provided in both query and header",
    );
    for path in [
        "/oauth2/tokeninfo",
        "/oauth2/tokeninfo?access_token=made.up.token",
    ] {
        let text = "The access token provided is expired, revoked, malformed, or invalid for other reasons.";
        assert_error(door.get("a.test", path).await, 401, "invalid_token", text);
    }
}

#[tokio::test]
async fn discovery_and_keys_describe_what_signs_the_tokens() {
    let door = Setup::new().start().await;
    let path = "/oauth2/.well-known/openid-configuration";
    let discovery = door.get("a.test", path).await.expect(200).json();
    assert_eq!(discovery["issuer"], door.proxy_url("/oauth2"));
    let keys = discovery["jwks_uri"].as_str().expect("a URL");
    assert!(keys.starts_with(&door.proxy_url("/oauth2")), "{keys}");
    assert!(
        discovery["token_endpoint"]
            .as_str()
            .expect("a URL")
            .ends_with("/access_token")
    );

    let keys = send(client().get(keys)).await.expect(200).json();
    let token = door.client_token("read").await;
    let header = jsonwebtoken::decode_header(&token).expect("a header");
    let found = keys["keys"].as_array().expect("a list");
    let kid = header.kid.expect("a key id");
    let key = found
        .iter()
        .find(|key| key["kid"] == kid.as_str())
        .expect("the signing key");
    let jwk: jsonwebtoken::jwk::Jwk = serde_json::from_value(key.clone()).expect("a JWK");
    let key = jsonwebtoken::DecodingKey::from_jwk(&jwk).expect("a key");
    let mut rules = jsonwebtoken::Validation::new(header.alg);
    rules.set_audience(&["orders"]);
    jsonwebtoken::decode::<Value>(&token, &key, &rules).expect("a signature that holds");
    assert!(
        found.iter().all(|key| key.get("d").is_none()),
        "no private key"
    );
}
