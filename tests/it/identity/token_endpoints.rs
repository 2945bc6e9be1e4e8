//! Introspection, revocation and userinfo.

use serde_json::{Value, json};

use super::{FOR_DEMO, FOR_ITSELF, assert_error, with};
use crate::support::http::{client, send};
use crate::support::issuer::claims_of;
use crate::support::upstream::basic;
use crate::support::{Answer, Door, Setup};

const IDENTITY: &str = "
  base_url: http://@PROXY@
  realms:
    /:
      users:
        - userName: demo
          password: Ch4ng31t-demo
          displayName: Demo User
          name: {givenName: Demo, familyName: User}
          locale: en-GB
          emails: [{value: demo@example.com, type: work, primary: true, verified: true}]
          phoneNumbers: [{value: \"+44 1\", type: work}]
          addresses: [{streetAddress: 1 Main St, locality: Town, type: work}]
      clients:
        - {client_id: orders, client_secret: orders-secret, grant_types: [client_credentials, password, refresh_token], scope: openid profile email phone address read}
        - {client_id: opaque, client_secret: s, grant_types: [password, refresh_token], scope: openid read, access_token_format: opaque}
        - {client_id: standard, client_secret: s, grant_types: [password, client_credentials], scope: openid read, access_token_format: at+jwt}
        - {client_id: exchanger, client_secret: s, grant_types: [\"urn:ietf:params:oauth:grant-type:token-exchange\"], scope: read, audiences: [standard]}
        - {client_id: other, client_secret: s, grant_types: [client_credentials], scope: read}
        - {client_id: api, client_secret: s, grant_types: [client_credentials], scope: am-introspect-all-tokens}
        - {client_id: app, token_endpoint_auth_method: none, grant_types: [password, refresh_token], scope: openid read}
        - {client_id: signed, client_secret: s, grant_types: [password], scope: openid email, userinfo_signed_response_alg: PS256}
    /alpha:
      users: [{userName: demo, password: Ch4ng31t-demo}]
      clients:
        - {client_id: orders, client_secret: orders-secret, grant_types: [client_credentials, password], scope: openid read}
        - {client_id: api, client_secret: s, grant_types: [client_credentials], scope: am-introspect-all-tokens}
";

async fn door() -> Door {
    Setup::new().identity(IDENTITY).start().await
}

async fn post(door: &Door, path: &str, who: (&str, &str), form: &[(&str, &str)]) -> Answer {
    let request = client().post(door.proxy_url(path)).form(form);
    send(request.header("authorization", basic(who.0, who.1))).await
}

async fn introspect(door: &Door, who: (&str, &str), token: &str) -> Value {
    let form = [("token", token)];
    let answer = post(door, "/oauth2/introspect", who, &form)
        .await
        .expect(200);
    assert_eq!(answer.header("cache-control"), "no-store");
    answer.json()
}

const ORDERS: (&str, &str) = ("orders", "orders-secret");

/// Access and refresh token of the user `demo` for a client.
async fn tokens(door: &Door, id: &str, secret: &str, scope: &str) -> (String, String) {
    let form = with(FOR_DEMO, "client_id", id);
    let form = with(&form, "client_secret", secret);
    let body = door
        .token_request(&with(&form, "scope", scope))
        .await
        .expect(200)
        .json();
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    (text("access_token"), text("refresh_token"))
}

async fn is_dead_everywhere(door: &Door, token: &str) {
    assert_eq!(
        introspect(door, ORDERS, token).await,
        json!({"active": false})
    );
    for path in ["/oauth2/tokeninfo", "/oauth2/userinfo"] {
        assert_error(
            door.get_as(token, "a.test", path).await,
            401,
            "invalid_token",
            "",
        );
    }
    let users = door.get_as(token, "a.test", "/v1/users").await;
    assert_eq!(users.status, 401);
}

#[tokio::test]
async fn introspection_tells_the_owner_everything_of_a_live_token() {
    let door = door().await;
    let (access, refresh) = tokens(&door, "orders", "orders-secret", "openid read").await;
    let claims = claims_of(&access);
    let body = introspect(&door, ORDERS, &access).await;
    for (name, value) in [
        ("active", json!(true)),
        ("scope", json!("openid read")),
        ("realm", json!("/")),
        ("client_id", json!("orders")),
        ("user_id", json!("demo")),
        ("username", json!("demo")),
        ("token_type", json!("Bearer")),
        ("sub", json!("demo")),
        ("auth_level", json!(0)),
        ("exp", claims["exp"].clone()),
        ("iss", claims["iss"].clone()),
        ("authGrantId", claims["authGrantId"].clone()),
        ("auditTrackingId", claims["auditTrackingId"].clone()),
        ("cts", claims["cts"].clone()),
        ("jti", claims["jti"].clone()),
        ("aud", json!("orders")),
    ] {
        assert_eq!(body[name], value, "{name}");
    }
    assert!(body["expires_in"].as_i64().is_some_and(|left| left <= 3600));
    let body = introspect(&door, ORDERS, &refresh).await;
    assert_eq!(body["active"], true);
    assert_eq!(
        body["token_type"], "refresh_token",
        "nobody takes it for an access token"
    );
    assert_eq!(body["client_id"], "orders");
    assert!(body["exp"].is_i64());
    // Opaque ones say the same.
    let (access, _) = tokens(&door, "opaque", "s", "read").await;
    let body = introspect(&door, ("opaque", "s"), &access).await;
    assert_eq!(
        (&body["active"], &body["scope"]),
        (&json!(true), &json!("read"))
    );
}

#[tokio::test]
async fn an_access_token_follows_rfc_9068_where_its_client_wants_it() {
    let door = door().await;
    let (access, _) = tokens(&door, "standard", "s", "openid read").await;
    let header = jsonwebtoken::decode_header(&access).expect("a JWT");
    assert_eq!(header.typ.as_deref(), Some("at+jwt"));
    let claims = claims_of(&access);
    for (name, value) in [
        ("iss", json!(door.proxy_url("/oauth2"))),
        ("sub", json!("demo")),
        ("aud", json!("standard")),
        ("client_id", json!("standard")),
        ("scope", json!("openid read")),
    ] {
        assert_eq!(claims[name], value, "{name}");
    }
    for name in ["exp", "iat", "auth_time"] {
        assert!(claims[name].is_i64(), "{name}: {claims}");
    }
    assert!(claims["jti"].is_string());
    // It is worth what any other is.
    let told = introspect(&door, ("standard", "s"), &access).await;
    assert_eq!(
        (&told["active"], &told["scope"]),
        (&json!(true), &json!("openid read"))
    );
    let answer = door.get_as(&access, "a.test", "/oauth2/tokeninfo").await;
    let told = answer.expect(200).json();
    assert_eq!(told["scope"], json!(["openid", "read"]));
    assert_eq!(told["read"], "");
    let answer = door.get_as(&access, "a.test", "/oauth2/userinfo").await;
    assert_eq!(answer.expect(200).json()["sub"], "demo");
    // Nobody signed in for this one.
    let form = with(FOR_ITSELF, "client_id", "standard");
    let own = door.token_request(&with(&form, "client_secret", "s")).await;
    let own = own.expect(200).json();
    let claims = claims_of(own["access_token"].as_str().expect("a token"));
    assert_eq!(
        (&claims["sub"], &claims["scope"]),
        (&json!("standard"), &json!("read"))
    );
    assert!(claims.get("auth_time").is_none(), "{claims}");
    // What is exchanged for it has one, in the other format.
    let form = [
        (
            "grant_type",
            "urn:ietf:params:oauth:grant-type:token-exchange",
        ),
        (
            "subject_token",
            own["access_token"].as_str().expect("a token"),
        ),
        (
            "subject_token_type",
            "urn:ietf:params:oauth:token-type:access_token",
        ),
    ];
    let given = post(&door, "/oauth2/access_token", ("exchanger", "s"), &form).await;
    let given = given.expect(200).json();
    let claims = claims_of(given["access_token"].as_str().expect("a token"));
    assert_eq!(claims["auth_time"], claims["iat"], "{claims}");
    let form = [("token", access.as_str())];
    post(&door, "/oauth2/token/revoke", ("standard", "s"), &form)
        .await
        .expect(200);
    is_dead_everywhere(&door, &access).await;
}

#[tokio::test]
async fn a_hint_of_the_wrong_kind_changes_nothing() {
    let door = door().await;
    let (access, refresh) = tokens(&door, "orders", "orders-secret", "read").await;
    for token in [&access, &refresh] {
        for hint in ["access_token", "refresh_token", "junk"] {
            let form = [("token", token.as_str()), ("token_type_hint", hint)];
            let answer = post(&door, "/oauth2/introspect", ORDERS, &form).await;
            assert_eq!(answer.json()["active"], true, "{hint}");
        }
    }
}

#[tokio::test]
async fn scanning_for_tokens_of_others_by_introspection_learns_nothing() {
    let door = door().await;
    let (access, refresh) = tokens(&door, "orders", "orders-secret", "read").await;
    let dead = json!({"active": false});
    for token in [
        access.as_str(),
        &refresh,
        "made-up",
        "a.b.c",
        &"x".repeat(5000),
    ] {
        assert_eq!(introspect(&door, ("other", "s"), token).await, dead);
    }
    // A resource server that may ask about all is told of access tokens only,
    // and only of its realm's.
    let api = ("api", "s");
    assert_eq!(introspect(&door, api, &access).await["active"], true);
    assert_eq!(introspect(&door, api, &refresh).await, dead);
    let form = [("token", access.as_str())];
    let path = "/oauth2/realms/root/realms/alpha/introspect";
    assert_eq!(post(&door, path, api, &form).await.expect(200).json(), dead);
    assert_eq!(
        post(&door, path, ORDERS, &form).await.expect(200).json(),
        dead
    );
}

#[tokio::test]
async fn introspection_without_credentials_is_refused() {
    let door = door().await;
    let (access, _) = tokens(&door, "app", "", "read").await;
    let url = door.proxy_url("/oauth2/introspect");
    for form in [
        vec![("token", access.as_str())],
        vec![("token", access.as_str()), ("client_id", "orders")],
        vec![("token", access.as_str()), ("client_id", "app")],
    ] {
        let answer = send(client().post(&url).form(&form)).await;
        assert!(answer.header("www-authenticate").starts_with("Basic"));
        assert_error(answer, 401, "invalid_client", "");
    }
    // Nor does a token stand for its client.
    let answer = send(
        client()
            .post(&url)
            .bearer_auth(&access)
            .form(&[("token", &access)]),
    )
    .await;
    assert_error(answer, 401, "invalid_client", "");
}

#[tokio::test]
async fn introspection_and_revocation_take_one_form_by_post() {
    let door = door().await;
    for path in [
        "/oauth2/introspect",
        "/oauth2/token/revoke",
        "/oauth2/realms/root/introspect",
    ] {
        let get = send(client().get(door.proxy_url(path))).await;
        assert_eq!(get.header("allow"), "POST");
        assert_error(get, 405, "method_not_allowed", "");
        let json = send(
            client()
                .post(door.proxy_url(path))
                .json(&json!({"token": "x"})),
        )
        .await;
        assert_error(json, 400, "invalid_request", "Invalid Content Type");
        let none = post(&door, path, ORDERS, &[]).await;
        assert_error(none, 400, "invalid_request", "Missing parameter: token");
        let twice = post(&door, path, ORDERS, &[("token", "a"), ("token", "b")]).await;
        assert_error(twice, 400, "invalid_request", "");
        let query = format!("{path}?token=x");
        let in_query = post(&door, &query, ORDERS, &[]).await;
        assert_error(in_query, 400, "invalid_request", "");
    }
}

#[tokio::test]
async fn a_revoked_access_token_is_dead_at_once_and_alone() {
    let mut door = door().await;
    let (first, refresh) = tokens(&door, "orders", "orders-secret", "openid read").await;
    let (second, _) = tokens(&door, "orders", "orders-secret", "openid read").await;
    // Known to every cache.
    assert_eq!(introspect(&door, ORDERS, &first).await["active"], true);
    let form = [("token", first.as_str())];
    let answer = post(&door, "/oauth2/token/revoke", ORDERS, &form)
        .await
        .expect(200);
    assert_eq!(answer.json(), json!({}));
    is_dead_everywhere(&door, &first).await;
    for alive in [&second, &refresh] {
        assert_eq!(introspect(&door, ORDERS, alive).await["active"], true);
    }
    // Again, and after a restart: still dead, and no error.
    post(&door, "/oauth2/token/revoke", ORDERS, &form)
        .await
        .expect(200);
    door.kill();
    door.start().await;
    is_dead_everywhere(&door, &first).await;
    assert_eq!(introspect(&door, ORDERS, &second).await["active"], true);
}

#[tokio::test]
async fn a_revoked_refresh_token_takes_its_access_tokens_with_it() {
    let mut door = door().await;
    for (id, secret) in [ORDERS, ("opaque", "s")] {
        let (access, refresh) = tokens(&door, id, secret, "openid read").await;
        let (other, _) = tokens(&door, id, secret, "openid read").await;
        assert_eq!(
            introspect(&door, (id, secret), &access).await["active"],
            true
        );
        let form = [
            ("token", refresh.as_str()),
            ("token_type_hint", "access_token"),
        ];
        post(&door, "/oauth2/token/revoke", (id, secret), &form)
            .await
            .expect(200);
        is_dead_everywhere(&door, &access).await;
        let spent = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.as_str()),
        ];
        let answer = post(&door, "/oauth2/access_token", (id, secret), &spent).await;
        assert_error(answer, 400, "invalid_grant", "");
        assert_eq!(
            introspect(&door, (id, secret), &other).await["active"],
            true
        );
        door.kill();
        door.start().await;
        is_dead_everywhere(&door, &access).await;
    }
}

#[tokio::test]
async fn an_opaque_token_is_revoked_alone() {
    let door = door().await;
    let (access, refresh) = tokens(&door, "opaque", "s", "openid read").await;
    let who = ("opaque", "s");
    assert_eq!(introspect(&door, who, &access).await["active"], true);
    post(&door, "/oauth2/token/revoke", who, &[("token", &access)])
        .await
        .expect(200);
    assert_eq!(
        introspect(&door, who, &access).await,
        json!({"active": false})
    );
    assert_eq!(introspect(&door, who, &refresh).await["active"], true);
}

#[tokio::test]
async fn nobody_revokes_the_tokens_of_another_client() {
    let door = door().await;
    let (access, refresh) = tokens(&door, "orders", "orders-secret", "read").await;
    for token in [&access, &refresh] {
        let form = [("token", token.as_str())];
        let answer = post(&door, "/oauth2/token/revoke", ("other", "s"), &form).await;
        assert_error(answer, 400, "invalid_grant", "");
        assert_eq!(introspect(&door, ORDERS, token).await["active"], true);
        // In another realm it is no token at all.
        let path = "/oauth2/realms/root/realms/alpha/token/revoke";
        post(&door, path, ORDERS, &form).await.expect(200);
        assert_eq!(introspect(&door, ORDERS, token).await["active"], true);
    }
    let form = [("token", access.as_str())];
    let answer = post(&door, "/oauth2/token/revoke", ("orders", "wrong"), &form).await;
    assert_error(answer, 401, "invalid_client", "");
}

#[tokio::test]
async fn a_public_client_revokes_its_own_tokens() {
    let door = door().await;
    let (_, refresh) = tokens(&door, "app", "", "read").await;
    let form = [("token", refresh.as_str()), ("client_id", "app")];
    let url = door.proxy_url("/oauth2/token/revoke");
    send(client().post(&url).form(&form)).await.expect(200);
    let spent = [
        ("grant_type", "refresh_token"),
        ("refresh_token", refresh.as_str()),
        ("client_id", "app"),
    ];
    assert_error(door.token_request(&spent).await, 400, "invalid_grant", "");
    // What never was a token is revoked successfully.
    let form = [("token", "made-up"), ("client_id", "app")];
    send(client().post(&url).form(&form)).await.expect(200);
}

#[tokio::test]
async fn userinfo_tells_what_the_scopes_allow() {
    let door = door().await;
    let scope = "openid profile email phone address";
    let (access, _) = tokens(&door, "orders", "orders-secret", scope).await;
    let answer = door
        .get_as(&access, "a.test", "/oauth2/userinfo")
        .await
        .expect(200);
    assert_eq!(answer.header("cache-control"), "no-store");
    let mut body = answer.json();
    assert!(body["updated_at"].is_i64());
    body.as_object_mut()
        .expect("an object")
        .remove("updated_at");
    assert_eq!(
        body,
        json!({
            "sub": "demo", "name": "Demo User", "given_name": "Demo", "family_name": "User",
            "preferred_username": "demo", "locale": "en-GB",
            "email": "demo@example.com", "email_verified": true,
            "phone_number": "+44 1", "phone_number_verified": false,
            "address": {"street_address": "1 Main St", "locality": "Town",
                        "formatted": body["address"]["formatted"]},
        })
    );
    let (access, _) = tokens(&door, "orders", "orders-secret", "openid").await;
    for path in ["/oauth2/userinfo", "/oauth2/realms/root/userinfo"] {
        let answer = door.get_as(&access, "a.test", path).await.expect(200);
        assert_eq!(answer.json(), json!({"sub": "demo"}));
        // By POST, in the header or in the body.
        let url = door.proxy_url(path);
        let post = send(client().post(&url).bearer_auth(&access))
            .await
            .expect(200);
        assert_eq!(post.json(), json!({"sub": "demo"}));
        let form = [("access_token", access.as_str())];
        let post = send(client().post(&url).form(&form)).await.expect(200);
        assert_eq!(post.json(), json!({"sub": "demo"}));
    }
}

#[tokio::test]
async fn userinfo_refuses_what_is_no_good_access_token() {
    let door = door().await;
    let url = door.proxy_url("/oauth2/userinfo");
    let none = send(client().get(&url)).await;
    assert_eq!(none.header("www-authenticate"), "Bearer realm=\"/\"");
    assert_error(none, 401, "invalid_token", "");
    let id_token = door.token_request(FOR_DEMO).await.expect(200).json()["id_token"].clone();
    let (access, refresh) = tokens(&door, "orders", "orders-secret", "openid").await;
    let wrong = [
        id_token.as_str().expect("a token"),
        &refresh,
        "junk",
        "a.b.c",
    ];
    for token in wrong {
        let answer = send(client().get(&url).bearer_auth(token)).await;
        assert!(answer.header("www-authenticate").contains("invalid_token"));
        assert_error(answer, 401, "invalid_token", "");
    }
    // Never from the address, where it would be logged.
    let answer = send(client().get(format!("{url}?access_token={access}"))).await;
    assert_error(answer, 401, "invalid_token", "");
    let form = [("access_token", access.as_str())];
    let twice = send(client().post(&url).bearer_auth(&access).form(&form)).await;
    assert_error(twice, 400, "invalid_request", "");
    let (no_openid, _) = tokens(&door, "orders", "orders-secret", "read").await;
    let answer = send(client().get(&url).bearer_auth(&no_openid)).await;
    assert!(
        answer
            .header("www-authenticate")
            .contains("scope=\"openid\"")
    );
    assert_error(answer, 403, "insufficient_scope", "");
}

#[tokio::test]
async fn userinfo_is_signed_for_clients_that_registered_so() {
    let door = door().await;
    let (access, _) = tokens(&door, "signed", "s", "openid email").await;
    let answer = door
        .get_as(&access, "a.test", "/oauth2/userinfo")
        .await
        .expect(200);
    assert_eq!(answer.header("content-type"), "application/jwt");
    let header = jsonwebtoken::decode_header(&answer.body).expect("a header");
    assert_eq!(header.alg, jsonwebtoken::Algorithm::PS256);
    let keys = door.get("a.test", "/oauth2/connect/jwk_uri").await.json();
    let keys: jsonwebtoken::jwk::JwkSet = serde_json::from_value(keys).expect("a key set");
    let key = keys.find(&header.kid.expect("a key")).expect("published");
    let key = jsonwebtoken::DecodingKey::from_jwk(key).expect("a key");
    let mut rules = jsonwebtoken::Validation::new(header.alg);
    rules.set_audience(&["signed"]);
    rules.set_issuer(&[door.proxy_url("/oauth2")]);
    rules.required_spec_claims.clear();
    let token = jsonwebtoken::decode::<Value>(&answer.body, &key, &rules).expect("it holds");
    assert_eq!(token.claims["sub"], "demo");
    assert_eq!(token.claims["email"], "demo@example.com");
    // It is no access token.
    let back = door
        .get_as(&answer.body, "a.test", "/oauth2/tokeninfo")
        .await;
    assert_error(back, 401, "invalid_token", "");
}

#[tokio::test]
async fn discovery_names_the_endpoints_of_each_realm() {
    let door = door().await;
    for realm in ["", "/realms/root/realms/alpha"] {
        let issuer = door.proxy_url(&format!("/oauth2{realm}"));
        let path = format!("/oauth2{realm}/.well-known/openid-configuration");
        let metadata = door.get("a.test", &path).await.expect(200).json();
        for (name, end) in [
            ("introspection_endpoint", "introspect"),
            ("revocation_endpoint", "token/revoke"),
            ("userinfo_endpoint", "userinfo"),
        ] {
            assert_eq!(metadata[name], format!("{issuer}/{end}"));
        }
    }
}
