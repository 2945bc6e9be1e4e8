//! What the upstream and the client get to know besides the token.

use std::collections::HashMap;

use axum::Form;
use axum::routing::{get, post};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;

use super::browser::{Browser, world};
use super::*;

fn decoded(outcome: &Outcome, name: &str) -> Value {
    let sent = outcome
        .upstream(name)
        .unwrap_or_else(|| panic!("no {name}"));
    serde_json::from_slice(&STANDARD.decode(sent).unwrap()).unwrap()
}

fn downstream(outcome: &Outcome, name: &str) -> Option<String> {
    let fields = outcome.exchange.response_headers.iter();
    let mut found = fields.filter(|(key, _)| key == name);
    found
        .next()
        .map(|(_, value)| value.to_str().unwrap().to_owned())
}

/// Adds userinfo, introspection and a token endpoint.
pub(super) fn with_endpoints(world: &World, subject: &'static str) -> Arc<AtomicUsize> {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let key = world.key.clone();
    let user_info = move |headers: HeaderMap| {
        count.fetch_add(1, Ordering::SeqCst);
        let known = headers.contains_key("authorization");
        let said = json!({"sub": subject, "email": "a@b.c", "hd": "b.c", "known": known});
        async move { Json(said) }
    };
    let introspect =
        || async { Json(json!({"active": true, "sub": "anna", "iss": ISSUER, "exp": NOW + 600})) };
    let token = move |Form(form): Form<HashMap<String, String>>| {
        let token = key.token(&claims(json!({"iss": ISSUER})));
        async move {
            let plan = [("x-plan", form["grant_type"].clone())];
            (
                plan,
                Json(json!({"access_token": token, "token_type": "Bearer",
                "refresh_token": "r9", "expires_in": 600, "scope": "openid"})),
            )
        }
    };
    let router = world.issuer.router();
    let router = router
        .route("/oauth2/userinfo", get(user_info))
        .route("/oauth2/introspect", post(introspect))
        .route("/oauth2/token", post(token));
    let base = Url::parse("http://id.test").unwrap();
    world.parts.outbound.register_local(&base, router);
    asked
}

fn endpoints(mut config: Value) -> Value {
    for (name, path) in [
        ("userinfo_endpoint", "userinfo"),
        ("introspection_endpoint", "introspect"),
        ("token_endpoint", "token"),
    ] {
        config[name] = json!(format!("http://id.test/oauth2/{path}"));
    }
    config["client_id"] = json!(["gateway"]);
    config["client_secret"] = json!(["g-secret"]);
    config
}

#[tokio::test]
async fn headers_tell_tokens_keys_and_the_session() {
    let (world, _) = world(json!({
        "upstream_id_token_header": "x_id_token",
        "upstream_refresh_token_header": "x-refresh:bearer",
        "upstream_session_id_header": "x-session",
        "upstream_access_token_jwk_header": "x-key",
        "upstream_id_token_jwk_header": "x-id-key",
        "downstream_access_token_header": "x-access",
        "downstream_session_id_header": "x-session",
    }));
    let mut browser = Browser::signed_in(&world).await;
    let outcome = browser.get(&world, "/orders").await;
    assert!(outcome.upstream("x-id-token").unwrap().starts_with("ey"));
    assert_eq!(outcome.upstream("x-refresh"), Some("Bearer r0"));
    assert_eq!(decoded(&outcome, "x-key")["kid"], "key-1");
    assert_eq!(decoded(&outcome, "x-id-key")["kty"], "EC");
    assert!(downstream(&outcome, "x-access").unwrap().starts_with("ey"));
    let session = outcome.upstream("x-session").map(str::to_owned);
    assert!(session.is_some());
    assert_eq!(downstream(&outcome, "x-session"), session);
    let owned = world.filter.owned_headers();
    for name in ["x-id-token", "x-refresh", "x-session", "x-key"] {
        assert!(owned.iter().any(|one| one == name), "{name} may be forged");
    }
}

#[tokio::test]
async fn a_header_for_what_is_not_known_of_a_request_is_not_the_clients() {
    let world = World::new(json!({"upstream_access_token_header": null,
        "upstream_id_token_header": "authorization:bearer"}));
    let token = world.token(json!({}));
    for header in [
        format!("Authorization: Bearer {token}"),
        format!("X-Access-Token: {token}\r\nAuthorization: Basic eDp5"),
    ] {
        let outcome = world.ask(&get_with(&header)).await;
        assert_eq!(outcome.code(), (200, "pass"));
        assert_eq!(outcome.upstream("authorization"), None, "{header}");
    }
}

#[tokio::test]
async fn userinfo_adds_what_the_token_does_not_say() {
    let config = json!({"auth_methods": ["bearer"], "search_user_info": true,
        "upstream_user_info_header": "x-user", "upstream_headers_claims": ["email"],
        "upstream_headers_names": ["x-mail"]});
    let world = World::new(endpoints(config.clone()));
    let asked = with_endpoints(&world, "anna");
    let token = world.token(json!({}));
    for _ in 0..3 {
        let outcome = world.ask_bearer(&token).await;
        assert_eq!(outcome.code(), (200, "pass"));
        assert_eq!(outcome.upstream("x-mail"), Some("a@b.c"));
        assert_eq!(decoded(&outcome, "x-user")["known"], true);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    let world = World::new(endpoints(config));
    with_endpoints(&world, "mallory");
    let outcome = world.ask_bearer(&world.token(json!({}))).await;
    assert_eq!(outcome.code(), (401, "wrong_user_info"));
}

#[tokio::test]
async fn introspection_and_login_tokens_are_told_where_configured() {
    let world = World::new(endpoints(json!({"auth_methods": ["introspection"],
        "upstream_introspection_header": "x-told"})));
    with_endpoints(&world, "anna");
    let outcome = world.ask_bearer("opaque").await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert_eq!(decoded(&outcome, "x-told")["active"], true);
    let world = World::new(endpoints(json!({"auth_methods": ["introspection"],
        "login_methods": ["introspection"], "login_action": "response",
        "login_tokens": ["access_token", "introspection"]})));
    with_endpoints(&world, "anna");
    let outcome = world.ask_bearer("opaque").await;
    let Some(ReplyBody::Raw(_, body)) = outcome.reply.as_ref().map(|reply| &reply.body) else {
        panic!("{outcome:?}");
    };
    let body: Value = serde_json::from_slice(body).unwrap();
    assert_eq!(body["access_token"], "opaque");
    assert_eq!(body["introspection"]["active"], true);
}

#[tokio::test]
async fn headers_of_the_token_endpoint_are_replayed() {
    let config = json!({"auth_methods": ["password"], "token_headers_replay": ["X-Plan"],
        "token_headers_prefix": "idp-", "upstream_refresh_token_header": "x-refresh"});
    let world = World::new(endpoints(config));
    with_endpoints(&world, "anna");
    let outcome = world.ask(&get_with("Authorization: Basic YTpi")).await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert_eq!(
        downstream(&outcome, "idp-x-plan").as_deref(),
        Some("password")
    );
    assert_eq!(outcome.upstream("x-refresh"), Some("r9"));
}

#[tokio::test]
async fn an_id_token_beside_adds_its_claims_and_must_be_good() {
    let config = json!({"auth_methods": ["bearer"], "client_id": ["gateway"],
        "id_token_param_name": "x_id_token", "hide_credentials": true,
        "upstream_headers_claims": ["email"], "upstream_headers_names": ["x-mail"]});
    let world = World::new(config);
    let token = world.token(json!({}));
    let ask = |id: String| {
        let request = get_with(&format!(
            "Authorization: Bearer {token}\r\nX-ID-Token: {id}"
        ));
        let world = &world;
        async move { world.ask(&request).await }
    };
    let id = |changes: Value| {
        let mut claims = json!({"iss": ISSUER, "sub": "anna", "aud": "gateway", "iat": NOW,
            "exp": NOW + 60, "email": "anna@b.c"});
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        world.key.token(&claims)
    };
    let outcome = ask(id(json!({}))).await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert_eq!(outcome.upstream("x-mail"), Some("anna@b.c"));
    assert_eq!(outcome.upstream("x-id-token"), None);
    for (changes, code) in [
        (json!({"sub": "mallory"}), (401, "wrong_id_token")),
        (json!({"aud": "other"}), (403, "wrong_audience")),
        (json!({"exp": NOW}), (401, "id_token_expired")),
    ] {
        assert_eq!(ask(id(changes)).await.code(), code);
    }
}

#[tokio::test]
async fn a_refusal_leads_to_the_address_of_the_chosen_client() {
    let world = World::new(json!({"auth_methods": ["bearer"], "client_id": ["a", "b"],
        "unauthorized_redirect_uri": ["https://a.test/in", "https://b.test/in"],
        "forbidden_redirect_uri": ["https://a.test/no", "https://b.test/no"],
        "scopes_required": ["admin"]}));
    let token = world.token(json!({}));
    for (headers, wanted) in [
        (String::new(), "https://a.test/in"),
        ("X-Client-ID: b".to_owned(), "https://b.test/in"),
        ("Client-ID: 2".to_owned(), "https://b.test/in"),
        (
            format!("Client-ID: b\r\nAuthorization: Bearer {token}"),
            "https://b.test/no",
        ),
    ] {
        let outcome = world.ask(&get_with(&headers)).await;
        assert_eq!(super::browser::location(&outcome), wanted, "{headers}");
    }
}

#[tokio::test]
async fn an_exempt_grant_needs_no_signature_and_nobody_else_gets_by() {
    let config = json!({"auth_methods": ["password", "bearer"], "ignore_signature": ["password"]});
    let mut world = World::new(endpoints(config));
    let stranger = TestKey::es256("key-9");
    let own = std::mem::replace(&mut world.key, stranger);
    with_endpoints(&world, "anna");
    let outcome = world.ask(&get_with("Authorization: Basic YTpi")).await;
    assert_eq!(outcome.code(), (200, "pass"));
    let outcome = world.ask_bearer(&world.token(json!({}))).await;
    assert_eq!(outcome.code(), (401, "unknown_key"));
    drop(own);
    let everyone = json!({"ignore_signature": ["bearer"]});
    assert!(filter(&world.parts, everyone).is_err());
}

#[tokio::test]
async fn tokens_for_one_client_are_kept_out_of_shared_caches() {
    for (config, wanted) in [
        (
            json!({"downstream_access_token_header": "x-token"}),
            "no-store",
        ),
        (
            json!({"downstream_headers_claims": ["sub"],
            "downstream_headers_names": ["x-user"]}),
            "private",
        ),
        (json!({}), "public, max-age=600"),
    ] {
        let world = World::new(config.clone());
        let outcome = world.ask_bearer(&world.token(json!({}))).await;
        assert_eq!(outcome.code(), (200, "pass"));
        let mut response = ResponseHeader::build(200, None).unwrap();
        let public = "public, max-age=600";
        response.insert_header("cache-control", public).unwrap();
        world.filter.on_response(&outcome.exchange, &mut response);
        assert_eq!(response.headers["cache-control"], wanted, "{config}");
    }
    let config = json!({"auth_methods": ["password"], "token_headers_replay": ["X-Plan"]});
    let world = World::new(endpoints(config));
    with_endpoints(&world, "anna");
    let outcome = world.ask(&get_with("Authorization: Basic YTpi")).await;
    let mut response = ResponseHeader::build(200, None).unwrap();
    world.filter.on_response(&outcome.exchange, &mut response);
    assert_eq!(response.headers["cache-control"], "no-store");
}

#[tokio::test]
async fn a_leaked_id_token_beside_a_token_without_a_user_vouches_for_nobody() {
    let config = json!({"auth_methods": ["bearer"], "client_id": ["gateway"],
        "id_token_param_name": "x_id_token"});
    let world = World::new(config);
    let mut all = claims(json!({}));
    all.as_object_mut().unwrap().remove("sub");
    let token = world.key.token(&all);
    let id = |more: Value| {
        let mut claims = json!({"iss": ISSUER, "sub": "anna", "aud": "gateway", "iat": NOW,
            "exp": NOW + 60});
        for (name, value) in more.as_object().unwrap() {
            claims[name] = value.clone();
        }
        world.key.token(&claims)
    };
    let hash =
        doorward_core::jose::sign::half_hash(doorward_core::model::client::SignAlg::ES256, &token);
    for (id, code) in [
        (id(json!({})), (401, "wrong_id_token")),
        (id(json!({"at_hash": hash})), (200, "pass")),
    ] {
        let request = get_with(&format!(
            "Authorization: Bearer {token}\r\nX-ID-Token: {id}"
        ));
        assert_eq!(world.ask(&request).await.code(), code);
    }
}

#[tokio::test]
async fn a_domain_that_is_told_beside_the_token_counts_like_its_own() {
    for (allowed, code) in [("b.c", (200, "pass")), ("corp.c", (403, "wrong_domain"))] {
        let asking = json!({"auth_methods": ["bearer"], "domains": [allowed],
            "search_user_info": true});
        let world = World::new(endpoints(asking));
        with_endpoints(&world, "anna");
        let token = world.token(json!({}));
        assert_eq!(world.ask_bearer(&token).await.code(), code, "userinfo");
        let shown = json!({"auth_methods": ["bearer"], "client_id": ["gateway"],
            "domains": [allowed], "id_token_param_name": "x_id_token"});
        let world = World::new(shown);
        let (token, id) = (
            world.token(json!({})),
            world.token(json!({"aud": "gateway", "tokenName": "id_token", "hd": "b.c"})),
        );
        let both = format!("Authorization: Bearer {token}\r\nX-ID-Token: {id}");
        assert_eq!(world.ask(&get_with(&both)).await.code(), code, "ID token");
    }
}

#[tokio::test]
async fn userinfo_may_leave_out_who_only_where_no_token_says() {
    for (method, more, code) in [
        ("bearer", json!({"sub": null}), (200, "pass")),
        ("bearer", json!({}), (500, "provider_malformed")),
        ("userinfo", json!({}), (500, "provider_malformed")),
        (
            "userinfo",
            json!({"sub": null}),
            (500, "provider_malformed"),
        ),
    ] {
        let config = json!({"auth_methods": [method], "search_user_info": method == "bearer",
            "upstream_headers_claims": ["login"], "upstream_headers_names": ["x-login"]});
        let world = World::new(endpoints(config));
        let user_info = || async { Json(json!({"login": "anna"})) };
        let router = world.issuer.router();
        let router = router.route("/oauth2/userinfo", get(user_info));
        let base = Url::parse("http://id.test").unwrap();
        world.parts.outbound.register_local(&base, router);
        let outcome = world.ask_bearer(&world.token(more.clone())).await;
        assert_eq!(outcome.code(), code, "{method} {more}");
        if code.0 == 200 {
            assert_eq!(outcome.upstream("x-login"), Some("anna"));
        }
    }
}
