//! Credentials that the provider is asked about, or gives tokens for.

use std::collections::HashMap;

use axum::Form;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;

use super::*;

type ReceivedRequests = Arc<Mutex<Vec<(String, HashMap<String, String>)>>>;

/// The endpoints of a provider whose opaque tokens begin with `good`.
#[derive(Clone)]
pub(super) struct Endpoints {
    /// `Authorization` and form of each question.
    asked: ReceivedRequests,
    key: TestKey,
    broken: Arc<AtomicBool>,
    /// What introspection answers are signed with.
    signer: Arc<Mutex<Option<TestKey>>>,
    /// Whether opaque tokens have ended.
    pub(super) ended: Arc<AtomicBool>,
    /// What is said to passwords that are not good.
    pub(super) no_password: Arc<Mutex<&'static str>>,
}

impl Endpoints {
    fn note(&self, headers: &HeaderMap, form: HashMap<String, String>) {
        let sent = headers.get("authorization");
        let sent = sent.map_or("", |value| value.to_str().unwrap());
        self.asked.lock().unwrap().push((sent.to_owned(), form));
    }

    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::SeqCst)
    }

    pub(super) fn asked(&self) -> Vec<(String, HashMap<String, String>)> {
        self.asked.lock().unwrap().clone()
    }
}

async fn introspect(
    State(endpoints): State<Endpoints>,
    headers: HeaderMap,
    Form(form): Form<HashMap<String, String>>,
) -> Response {
    let token = form["token"].clone();
    endpoints.note(&headers, form);
    if endpoints.is_broken() {
        return StatusCode::BAD_GATEWAY.into_response();
    }
    let claims = json!({"active": true, "sub": "anna", "scope": "openid read",
        "iss": ISSUER, "exp": NOW + 600, "client_id": "app"});
    if let Some(key) = &*endpoints.signer.lock().unwrap() {
        let header =
            json!({"alg": "ES256", "kid": key.jwk()["kid"], "typ": "token-introspection+jwt"});
        let answer = json!({"iss": ISSUER, "aud": "gateway", "token_introspection": claims});
        let signed = key.sign(&header.to_string(), &answer.to_string());
        let kind = [("content-type", "application/token-introspection+jwt")];
        return (kind, signed).into_response();
    }
    let ended = endpoints.ended.load(Ordering::SeqCst);
    Json(
        if token.starts_with("good") && !ended || token.starts_with("ey") {
            claims
        } else {
            json!({"active": false})
        },
    )
    .into_response()
}

async fn user_info(State(endpoints): State<Endpoints>, headers: HeaderMap) -> Response {
    endpoints.note(&headers, HashMap::new());
    match headers["authorization"].to_str().unwrap() {
        token if token == "Bearer good" || token.starts_with("Bearer ey") => {
            Json(json!({"sub": "anna", "email": "a@b.c"})).into_response()
        }
        _ => StatusCode::UNAUTHORIZED.into_response(),
    }
}

async fn token(
    State(endpoints): State<Endpoints>,
    headers: HeaderMap,
    Form(form): Form<HashMap<String, String>>,
) -> Response {
    let has = |name: &str, value: &str| form.get(name).is_some_and(|sent| sent == value);
    let caller = basic_of("batch", "b-secret");
    let good = match form["grant_type"].as_str() {
        "password" => has("username", "anna") && has("password", "secret"),
        "refresh_token" => has("refresh_token", "r1"),
        _ => {
            let sent = headers.get("authorization");
            let posted = has("client_id", "batch") && has("client_secret", "b-secret");
            sent.is_some_and(|sent| *sent == caller) || posted
        }
    };
    let error = match form["grant_type"].as_str() {
        "client_credentials" => json!({"error": "invalid_client"}),
        "password" => json!({"error": *endpoints.no_password.lock().unwrap()}),
        _ => json!({"error": "invalid_grant"}),
    };
    endpoints.note(&headers, form);
    if !good {
        return (StatusCode::BAD_REQUEST, Json(error)).into_response();
    }
    let token = endpoints
        .key
        .token(&claims(json!({"scope": "openid read"})));
    Json(json!({"access_token": token, "token_type": "Bearer", "expires_in": 600})).into_response()
}

pub(super) fn basic_of(name: &str, secret: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{name}:{secret}")))
}

/// A filter that is the client `gateway` of such a provider.
pub(super) fn world(mut config: Value) -> (World, Endpoints) {
    for (name, value) in [
        ("client_id", json!(["gateway", "second"])),
        ("client_secret", json!(["g-secret"])),
        (
            "introspection_endpoint",
            json!("http://id.test/oauth2/introspect"),
        ),
        ("token_endpoint", json!("http://id.test/oauth2/token")),
        ("userinfo_endpoint", json!("http://id.test/oauth2/userinfo")),
    ] {
        if config.get(name).is_none() {
            config[name] = value;
        }
    }
    let world = World::new(config);
    let endpoints = Endpoints {
        asked: ReceivedRequests::default(),
        key: world.key.clone(),
        broken: Arc::default(),
        ended: Arc::default(),
        signer: Arc::default(),
        no_password: Arc::new(Mutex::new("invalid_grant")),
    };
    let router = Router::new()
        .route("/oauth2/introspect", post(introspect))
        .route("/oauth2/token", post(token))
        .route("/oauth2/userinfo", get(user_info))
        .with_state(endpoints.clone());
    let base = Url::parse("http://id.test").unwrap();
    let outbound = &world.parts.outbound;
    outbound.register_local(&base, world.issuer.router().merge(router));
    (world, endpoints)
}

#[tokio::test]
async fn an_opaque_token_is_introspected_once() {
    let (world, endpoints) = world(json!({"scopes_required": ["read"]}));
    for _ in 0..3 {
        let outcome = world.ask_bearer("good-1").await;
        assert_eq!(outcome.code(), (200, "pass"));
        assert_eq!(outcome.upstream("x-credential-identifier"), Some("anna"));
        assert_eq!(outcome.upstream("authorization"), Some("Bearer good-1"));
    }
    let asked = endpoints.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].0, basic_of("gateway", "g-secret"));
    assert_eq!(asked[0].1["token_type_hint"], "access_token");
    world.clock.advance(601_000);
    let outcome = world.ask_bearer("good-1").await;
    assert_eq!(outcome.code(), (401, "token_expired"));
    assert_eq!(endpoints.asked().len(), 1);
}

#[tokio::test]
async fn a_token_that_is_not_active_is_refused_and_asked_about_once_a_while() {
    let (world, endpoints) = world(json!({"cache_ttl_neg": 10}));
    for _ in 0..3 {
        let outcome = world.ask_bearer("stolen").await;
        assert_eq!(outcome.code(), (401, "inactive_token"));
    }
    assert_eq!(endpoints.asked().len(), 1);
    world.clock.advance(10_001);
    world.ask_bearer("stolen").await;
    assert_eq!(endpoints.asked().len(), 2);
}

#[tokio::test]
async fn rules_hold_for_introspected_tokens_too() {
    for (rule, code) in [
        (
            json!({"scopes_required": ["write"]}),
            (403, "missing_scope"),
        ),
        (
            json!({"issuers_allowed": ["http://x"]}),
            (401, "wrong_issuer"),
        ),
        (
            json!({"audience_required": ["api"]}),
            (403, "wrong_audience"),
        ),
        (json!({"consumer_claim": ["sub"]}), (403, "no_consumer")),
    ] {
        let (world, _) = world(rule);
        assert_eq!(world.ask_bearer("good").await.code(), code);
    }
}

#[tokio::test]
async fn signed_tokens_are_verified_here_unless_all_are_introspected() {
    let (world, endpoints) = world(json!({}));
    let token = world.token(json!({}));
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
    assert!(endpoints.asked().is_empty());
    let (world, endpoints) = super::introspection::world(json!({"introspect_jwt_tokens": true}));
    let token = world.token(json!({}));
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
    assert_eq!(endpoints.asked().len(), 1);
    let methods = json!({"auth_methods": ["introspection"]});
    let (world, endpoints) = super::introspection::world(methods);
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
    assert_eq!(endpoints.asked().len(), 1);
}

#[tokio::test]
async fn answers_are_not_shared_between_clients_nor_kept_when_told_not_to() {
    let (world, endpoints) = world(json!({}));
    let request = get_with("Authorization: Bearer good");
    let second = request.replace("/orders", "/orders?client_id=second");
    for request in [&request, &second, &request, &second] {
        assert_eq!(world.ask(request).await.code(), (200, "pass"));
    }
    let asked = endpoints.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[1].0, basic_of("second", "g-secret"));
    let (world, endpoints) = super::introspection::world(json!({"cache_introspection": false}));
    for _ in 0..2 {
        assert_eq!(world.ask(&request).await.code(), (200, "pass"));
    }
    assert_eq!(endpoints.asked().len(), 2);
}

#[tokio::test]
async fn clients_prove_themselves_as_configured() {
    for (auth, member) in [
        ("client_secret_post", "client_secret"),
        ("client_secret_jwt", "client_assertion"),
        ("private_key_jwt", "client_assertion"),
    ] {
        let (world, endpoints) = world(json!({
            "introspection_endpoint_auth_method": auth,
            "client_jwk": [{"kty": "OKP", "crv": "Ed25519",
                "d": "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",
                "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}],
        }));
        assert_eq!(
            world.ask_bearer("good").await.code(),
            (200, "pass"),
            "{auth}"
        );
        let asked = endpoints.asked();
        assert_eq!(asked[0].0, "", "{auth}");
        assert_eq!(asked[0].1["client_id"], "gateway");
        assert!(asked[0].1.contains_key(member), "{auth}");
    }
}

#[tokio::test]
async fn an_endpoint_that_fails_lets_nobody_pass_and_is_asked_again() {
    let (world, endpoints) = world(json!({}));
    endpoints.broken.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        let outcome = world.ask_bearer("good").await;
        assert_eq!(outcome.code(), (500, "provider_error"));
    }
    endpoints.broken.store(false, Ordering::SeqCst);
    assert_eq!(world.ask_bearer("good").await.code(), (200, "pass"));
}

#[tokio::test]
async fn a_hundred_requests_with_a_new_token_ask_once() {
    let (world, endpoints) = world(json!({}));
    let asks = (0..100).map(|_| world.ask_bearer("good"));
    for outcome in futures_util::future::join_all(asks).await {
        assert_eq!(outcome.code(), (200, "pass"));
    }
    assert_eq!(endpoints.asked().len(), 1);
}

#[tokio::test]
async fn userinfo_vouches_for_a_token() {
    let (world, endpoints) = world(json!({
        "auth_methods": ["userinfo"],
        "upstream_headers_claims": ["email"], "upstream_headers_names": ["X-Mail"],
    }));
    for _ in 0..2 {
        let outcome = world.ask_bearer("good").await;
        assert_eq!(outcome.code(), (200, "pass"));
        assert_eq!(outcome.upstream("x-mail"), Some("a@b.c"));
    }
    assert_eq!(endpoints.asked().len(), 1);
    assert_eq!(
        world.ask_bearer("bad").await.code(),
        (401, "inactive_token")
    );
}

#[tokio::test]
async fn a_token_that_userinfo_vouched_for_ends_when_it_says() {
    let (world, endpoints) = world(json!({"auth_methods": ["userinfo"]}));
    let token = world.token(json!({"exp": world.clock.now_secs() + 6}));
    for _ in 0..2 {
        assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
    }
    assert_eq!(endpoints.asked().len(), 1);
    world.clock.advance(7000);
    let outcome = world.ask_bearer(&token).await;
    assert_eq!(outcome.code(), (401, "token_expired"));
}

#[tokio::test]
async fn userinfo_need_not_say_for_whom_a_token_is() {
    for (method, code) in [
        (json!({"audience": ["api"]}), (200, "pass")),
        (
            json!({"audience_required": ["api"]}),
            (403, "wrong_audience"),
        ),
    ] {
        let mut config = method;
        config["auth_methods"] = json!(["userinfo"]);
        let (world, _) = world(config);
        assert_eq!(world.ask_bearer("good").await.code(), code);
    }
}

#[tokio::test]
async fn signed_answers_are_read_after_the_provider_has_changed_its_key() {
    let (world, endpoints) = world(json!({
        "auth_methods": ["introspection"],
        "introspection_accept": "application/token-introspection+jwt",
    }));
    *endpoints.signer.lock().unwrap() = Some(world.key.clone());
    assert_eq!(world.ask_bearer("good-1").await.code(), (200, "pass"));
    let next = TestKey::es256("key-2");
    world.issuer.publish(&[&next]);
    *endpoints.signer.lock().unwrap() = Some(next);
    assert_eq!(world.ask_bearer("good-2").await.code(), (200, "pass"));
    // A key that nobody has published is still none.
    *endpoints.signer.lock().unwrap() = Some(TestKey::es256("key-3"));
    let outcome = world.ask_bearer("good-3").await;
    assert_eq!(outcome.code(), (500, "provider_malformed"));
}

#[tokio::test]
async fn metadata_are_fetched_again_for_plugins_that_only_introspect() {
    let (world, _) = world(json!({"auth_methods": ["introspection"]}));
    assert_eq!(world.ask_bearer("good-1").await.code(), (200, "pass"));
    assert_eq!(world.issuer.discoveries(), 1);
    world.clock.advance(301_000);
    assert_eq!(world.ask_bearer("good-2").await.code(), (200, "pass"));
    while world.issuer.discoveries() < 2 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_access_token_in_a_form_does_not_reach_the_upstream() {
    let (world, _) = world(json!({"hide_credentials": true, "upstream_access_token_header": null}));
    let token = world.token(json!({}));
    let body = format!("a=%20b&access_token={token}&c=d");
    let form = format!(
        "POST /orders HTTP/1.1\r\nHost: orders.test\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let outcome = world.ask(&form).await;
    assert_eq!(outcome.code(), (200, "pass"));
    let left = outcome.exchange.replacement.as_deref();
    assert_eq!(left, Some(&b"a=%20b&c=d"[..]));
}

/// A filter whose provider says this of every token, and the token with these claims.
fn introspecting(config: Value, said: Value, token: Value) -> (World, String) {
    let mut all = json!({"introspect_jwt_tokens": true,
        "upstream_headers_claims": ["email"], "upstream_headers_names": ["X-Mail"]});
    for (name, value) in config.as_object().unwrap() {
        all[name] = value.clone();
    }
    let (world, recorder) = super::request_recorder::world(all);
    recorder.answer("/introspect", said);
    let token = world.token(token);
    (world, token)
}

#[tokio::test]
async fn what_an_answer_leaves_out_the_token_that_it_vouches_for_says_itself() {
    let own = json!({"scope": "read", "email": "a@b.c", "exp": NOW - 10});
    let rule = json!({"scopes_required": ["read"]});
    let (world, token) = introspecting(rule.clone(), json!({"active": true}), own.clone());
    for _ in 0..2 {
        let outcome = world.ask_bearer(&token).await;
        assert_eq!(
            outcome.code(),
            (200, "pass"),
            "its times are the provider's"
        );
        assert_eq!(outcome.upstream("x-credential-identifier"), Some("anna"));
        assert_eq!(outcome.upstream("x-mail"), Some("a@b.c"));
        assert_eq!(outcome.exchange.token.unwrap().scopes, ["read"]);
    }
    // What the provider says counts first.
    let said = json!({"active": true, "scope": "openid"});
    let (world, token) = introspecting(rule.clone(), said, own.clone());
    let outcome = world.ask_bearer(&token).await;
    assert_eq!(outcome.code(), (403, "missing_scope"));
    let said = json!({"active": true, "sub": "told"});
    let (world, token) = introspecting(rule, said, own.clone());
    let outcome = world.ask_bearer(&token).await;
    assert_eq!(outcome.upstream("x-credential-identifier"), Some("told"));
    for (rule, code) in [
        (json!({"audience": ["api"]}), (403, "wrong_audience")),
        (
            json!({"claims_forbidden": ["email"]}),
            (403, "forbidden_claim"),
        ),
        (json!({"roles_required": ["admin"]}), (403, "missing_role")),
    ] {
        let (world, token) = introspecting(rule.clone(), json!({"active": true}), own.clone());
        assert_eq!(world.ask_bearer(&token).await.code(), code, "{rule}");
    }
}

#[tokio::test]
async fn an_answer_that_is_early_or_an_error_makes_no_token_good() {
    for (said, code) in [
        (json!({"active": true}), (200, "pass")),
        (
            json!({"active": true, "nbf": NOW, "iat": NOW}),
            (200, "pass"),
        ),
        (
            json!({"active": true, "nbf": NOW + 600}),
            (401, "token_not_yet_valid"),
        ),
        (
            json!({"active": true, "iat": NOW + 600}),
            (401, "token_not_yet_valid"),
        ),
        (
            json!({"active": true, "nbf": "soon"}),
            (401, "malformed_times"),
        ),
        (
            json!({"active": true, "error": "x"}),
            (401, "inactive_token"),
        ),
    ] {
        let (world, token) = introspecting(json!({}), said.clone(), json!({}));
        assert_eq!(world.ask_bearer(&token).await.code(), code, "{said}");
    }
}

#[tokio::test]
async fn a_token_that_nobody_vouches_for_says_nothing_itself() {
    let config = json!({"scopes_required": ["read"], "introspection_check_active": false});
    let own = json!({"scope": "read"});
    for said in [json!({"active": false}), json!({"active": true})] {
        let (world, token) = introspecting(config.clone(), said, own.clone());
        let outcome = world.ask_bearer(&token).await;
        assert_eq!(outcome.code(), (403, "missing_scope"));
    }
}

#[tokio::test]
async fn a_bound_token_stays_bound_where_an_answer_does_not_say_so() {
    let config = json!({"proof_of_possession_dpop": "optional",
        "auth_methods": ["bearer", "introspection"]});
    let bound = json!({"cnf": {"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"}});
    let (world, token) = introspecting(config.clone(), json!({"active": true}), bound);
    let outcome = world.ask_bearer(&token).await;
    assert_eq!(outcome.code(), (401, "unproven_token"));
    let (world, token) = introspecting(config, json!({"active": true}), json!({}));
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
}

#[tokio::test]
async fn a_signed_token_that_is_introspected_needs_the_cookie_of_its_session_too() {
    for config in [
        json!({"introspect_jwt_tokens": true, "jwt_session_cookie": "app"}),
        json!({"auth_methods": ["introspection"], "jwt_session_cookie": "app"}),
    ] {
        let (world, _) = world(config);
        let token = world.token(json!({"sid": "s-1"}));
        for (cookie, code) in [
            ("app=s-1", (200, "pass")),
            ("app=s-2", (401, "wrong_session")),
            ("other=s-1", (401, "wrong_session")),
        ] {
            let shown = format!("Cookie: {cookie}\r\nAuthorization: Bearer {token}");
            assert_eq!(world.ask(&get_with(&shown)).await.code(), code, "{cookie}");
        }
        assert_eq!(world.ask_bearer("good").await.code(), (200, "pass"));
    }
}
