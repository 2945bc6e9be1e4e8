//! Tokens that are exchanged before they count.

use axum::Form;
use axum::response::{IntoResponse, Response};
use axum::routing::post;

use super::*;

const OTHER: &str = "http://other.test/realm";

/// A provider that exchanges tokens, and another issuer.
#[derive(Clone)]
struct Desk {
    asked: Arc<Mutex<Vec<Vec<(String, String)>>>>,
    key: Arc<Mutex<TestKey>>,
    other: TestKey,
    /// What it does not give, if it says no.
    error: Arc<Mutex<Option<&'static str>>>,
    opaque: Arc<AtomicBool>,
}

impl Desk {
    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    /// What the last question says by a name.
    fn said(&self, name: &str) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        let said = asked.last().unwrap().iter().filter(|(n, _)| n == name);
        said.map(|(_, value)| value.clone()).collect()
    }

    /// A token of the other issuer.
    fn foreign(&self, more: Value) -> String {
        let mut all = claims(more);
        all["iss"] = OTHER.into();
        self.other.token(&all)
    }
}

async fn exchange(State(desk): State<Desk>, Form(form): Form<Vec<(String, String)>>) -> Response {
    let scope = form.iter().find(|(name, _)| name == "scope");
    let scope = scope.map_or("none", |(_, scope)| scope).to_owned();
    let count = {
        let mut asked = desk.asked.lock().unwrap();
        asked.push(form);
        asked.len()
    };
    if let Some(error) = *desk.error.lock().unwrap() {
        return (StatusCode::BAD_REQUEST, Json(json!({"error": error}))).into_response();
    }
    let token = if desk.opaque.load(Ordering::SeqCst) {
        format!("opaque-{count}")
    } else {
        let more = json!({"scope": scope, "jti": count, "sub": "anna of ours"});
        desk.key.lock().unwrap().token(&claims(more))
    };
    let issued = "urn:ietf:params:oauth:token-type:access_token";
    Json(
        json!({"access_token": token, "issued_token_type": issued, "token_type": "Bearer",
        "expires_in": 600, "scope": scope}),
    )
    .into_response()
}

fn world(mut config: Value) -> (World, Desk) {
    config["client_id"] = json!(["gateway"]);
    config["client_secret"] = json!(["g-secret"]);
    config["auth_methods"] = json!(["bearer"]);
    if config.get("token_endpoint").is_none() {
        config["token_endpoint"] = json!("http://id.test/oauth2/token");
    }
    let world = World::new(config);
    let desk = Desk {
        asked: Arc::default(),
        key: Arc::new(Mutex::new(world.key.clone())),
        other: TestKey::es256("other"),
        error: Arc::default(),
        opaque: Arc::default(),
    };
    let router = Router::new()
        .route("/oauth2/token", post(exchange))
        .route("/elsewhere", post(exchange))
        .with_state(desk.clone());
    let outbound = &world.parts.outbound;
    let base = Url::parse("http://id.test").unwrap();
    outbound.register_local(&base, world.issuer.router().merge(router));
    let keys = jwks(&[&desk.other]);
    let other = Router::new().route("/keys", get(move || async move { Json(keys) }));
    outbound.register_local(&Url::parse("http://other.test").unwrap(), other);
    (world, desk)
}

/// The configuration that exchanges tokens of the other issuer.
fn of_others() -> Value {
    json!({"token_exchange": {"subject_token_issuers": [{"issuer": OTHER}]}})
}

fn text(token: &str) -> String {
    format!("Bearer {token}")
}

#[tokio::test]
async fn a_token_of_another_issuer_is_exchanged_once() {
    let mut config = of_others();
    config["scopes"] = json!(["openid", "read"]);
    config["scopes_required"] = json!(["read"]);
    config["token_exchange"]["request"] = json!({"audience": ["orders", "stock"]});
    let (world, desk) = world(config);
    let token = desk.foreign(json!({"scope": "nothing"}));
    let mut sent = Vec::new();
    for _ in 0..3 {
        let outcome = world.ask_bearer(&token).await;
        assert_eq!(outcome.code(), (200, "pass"));
        let name = outcome.upstream("x-credential-identifier");
        assert_eq!(name, Some("anna of ours"));
        sent.push(outcome.upstream("authorization").unwrap().to_owned());
    }
    assert!(
        sent.iter()
            .all(|one| *one == sent[0] && *one != text(&token))
    );
    assert_eq!(desk.asked(), 1);
    assert_eq!(desk.said("subject_token"), [token.as_str()]);
    assert_eq!(desk.said("audience"), ["orders", "stock"]);
    assert_eq!(desk.said("scope"), ["openid read"]);
    assert!(desk.said("grant_type")[0].ends_with(":token-exchange"));
    assert!(desk.said("subject_token_type")[0].ends_with(":access_token"));
    // Those of the provider itself count as they are.
    let own = world.token(json!({"scope": "read"}));
    let outcome = world.ask_bearer(&own).await;
    assert_eq!(outcome.upstream("authorization"), Some(&*text(&own)));
    // What was given ends, and what it was given for has not.
    world.clock.advance(601_000);
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
    assert_eq!(desk.asked(), 2);
    world.clock.advance(3_600_000);
    let late = world.ask_bearer(&token).await;
    assert_eq!(late.code(), (401, "token_expired"));
    assert_eq!(desk.asked(), 2);
}

#[tokio::test]
async fn what_is_not_remembered_is_exchanged_each_time() {
    let mut general = of_others();
    general["cache_token_exchange"] = json!(false);
    let mut inside = of_others();
    inside["token_exchange"]["cache"] = json!({"enabled": false});
    for config in [general, inside] {
        let (world, desk) = world(config);
        let token = desk.foreign(json!({}));
        for _ in 0..3 {
            assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
        }
        assert_eq!(desk.asked(), 3);
    }
}

#[tokio::test]
async fn what_is_asked_for_is_that_of_the_exchange_that_of_the_plugin_or_nothing() {
    for (request, scope, audience) in [
        (json!(null), vec!["openid"], vec!["orders"]),
        (
            json!({"scopes": ["a", "b"], "audience": ["x"]}),
            vec!["a b"],
            vec!["x"],
        ),
        (
            json!({"empty_scopes": true, "empty_audience": true}),
            vec![],
            vec![],
        ),
    ] {
        let mut config = of_others();
        config["audience"] = json!(["orders"]);
        config["token_exchange"]["request"] = request.clone();
        let (world, desk) = world(config);
        world.ask_bearer(&desk.foreign(json!({}))).await;
        assert_eq!(desk.said("scope"), scope, "{request}");
        assert_eq!(desk.said("audience"), audience, "{request}");
    }
}

#[tokio::test]
async fn own_tokens_are_exchanged_where_they_meet_the_conditions() {
    let subject = json!({"issuer": format!("{ISSUER}/"), "conditions":
        {"missing_scopes": ["read"], "has_audience": ["orders"]}});
    let (world, desk) = world(json!({
        "scopes_required": ["read"],
        "token_exchange": {"subject_token_issuers": [subject], "request": {"scopes": ["read"]}},
    }));
    for (more, asked) in [
        (json!({"scope": "openid"}), 1),
        (json!({"scope": "openid read"}), 1),
        (json!({"scope": "openid", "aud": ["stock", "orders"]}), 2),
    ] {
        let outcome = world.ask_bearer(&world.token(more.clone())).await;
        assert_eq!(outcome.code(), (200, "pass"), "{more}");
        assert_eq!(desk.asked(), asked, "{more}");
    }
    let elsewhere = world.token(json!({"scope": "openid", "aud": "stock"}));
    let outcome = world.ask_bearer(&elsewhere).await;
    assert_eq!(outcome.code(), (403, "missing_scope"));
    // Nobody makes the gateway ask with a token that it can see to be forged.
    let forged = TestKey::es256("key-1").token(&claims(json!({"scope": "openid"})));
    assert_eq!(
        world.ask_bearer(&forged).await.code(),
        (401, "bad_signature")
    );
    assert_eq!(desk.asked(), 2);
}

#[tokio::test]
async fn rules_are_those_of_the_token_that_is_given() {
    let mut config = of_others();
    config["scopes_required"] = json!(["admin"]);
    let (world, desk) = world(config);
    let token = desk.foreign(json!({"scope": "admin"}));
    let outcome = world.ask_bearer(&token).await;
    assert_eq!(outcome.code(), (403, "missing_scope"));
    assert!(
        !outcome
            .upstream
            .headers
            .contains_key("x-credential-identifier")
    );
}

#[tokio::test]
async fn each_no_of_the_provider_has_its_name() {
    for (error, code) in [
        ("invalid_request", (401, "exchange_refused")),
        ("invalid_grant", (401, "exchange_refused")),
        ("invalid_target", (403, "exchange_beyond")),
        ("invalid_scope", (403, "exchange_beyond")),
        ("unauthorized_client", (500, "provider_refuses")),
        ("invalid_client", (500, "client_refused")),
    ] {
        let (world, desk) = world(of_others());
        *desk.error.lock().unwrap() = Some(error);
        let token = desk.foreign(json!({}));
        assert_eq!(world.ask_bearer(&token).await.code(), code, "{error}");
        assert_eq!(world.ask_bearer(&token).await.code(), code, "{error}");
        // What is the client's fault is not asked again and again.
        let asked = if code.0 == 500 { 2 } else { 1 };
        assert_eq!(desk.asked(), asked, "{error}");
    }
}

#[tokio::test]
async fn tokens_of_strangers_expired_and_other_ones_are_no_question() {
    let (world, desk) = world(of_others());
    let mut stranger = claims(json!({}));
    stranger["iss"] = "http://stranger.test".into();
    for (token, code) in [
        (desk.other.token(&stranger), (401, "unknown_key")),
        (
            desk.foreign(json!({"exp": NOW - 1})),
            (401, "token_expired"),
        ),
        (
            desk.foreign(json!({"nbf": NOW + 100})),
            (401, "token_not_yet_valid"),
        ),
        (desk.foreign(json!({"at_hash": "x"})), (401, "wrong_type")),
        ("opaque".to_owned(), (401, "malformed_token")),
    ] {
        assert_eq!(world.ask_bearer(&token).await.code(), code);
    }
    assert_eq!(desk.asked(), 0);
}

#[tokio::test]
async fn a_forged_foreign_token_is_no_question_where_signatures_are_verified() {
    let (world, desk) = world(json!({"token_exchange": {"subject_token_issuers": [
        {"issuer": OTHER, "verify_signature": true, "jwks_uri": "http://other.test/keys"},
    ]}}));
    let good = desk.foreign(json!({}));
    assert_eq!(world.ask_bearer(&good).await.code(), (200, "pass"));
    let mut all = claims(json!({}));
    all["iss"] = OTHER.into();
    let forged = TestKey::es256("other").token(&all);
    assert_eq!(
        world.ask_bearer(&forged).await.code(),
        (401, "bad_signature")
    );
    let unknown = TestKey::es256("another").token(&all);
    assert_eq!(
        world.ask_bearer(&unknown).await.code(),
        (401, "unknown_key")
    );
    assert_eq!(desk.asked(), 1);
}

#[tokio::test]
async fn an_endpoint_alone_exchanges_every_token_of_the_provider() {
    let (world, desk) = world(json!({"token_exchange_endpoint": "http://id.test/elsewhere"}));
    let token = world.token(json!({"scope": "read"}));
    for token in [token.as_str(), "opaque"] {
        let outcome = world.ask_bearer(token).await;
        assert_eq!(outcome.code(), (200, "pass"));
        assert_ne!(outcome.upstream("authorization"), Some(&*text(token)));
        assert_eq!(desk.said("subject_token"), [token]);
    }
    let foreign = world.ask_bearer(&desk.foreign(json!({}))).await;
    assert_eq!(foreign.code(), (401, "unknown_key"));
    assert_eq!(desk.asked(), 2);
}

#[tokio::test]
async fn a_token_that_nobody_can_read_counts_by_what_came_with_it() {
    let mut config = of_others();
    config["scopes_required"] = json!(["read"]);
    config["token_exchange"]["request"] = json!({"scopes": ["read"]});
    let (world, desk) = world(config);
    desk.opaque.store(true, Ordering::SeqCst);
    let token = desk.foreign(json!({}));
    for _ in 0..2 {
        let outcome = world.ask_bearer(&token).await;
        assert_eq!(outcome.code(), (200, "pass"));
        assert_eq!(outcome.upstream("authorization"), Some("Bearer opaque-1"));
    }
}

#[tokio::test]
async fn a_remembered_token_whose_key_is_gone_is_exchanged_again() {
    let (world, desk) = world(of_others());
    let token = desk.foreign(json!({}));
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
    let next = TestKey::es256("key-2");
    world.issuer.publish(&[&next]);
    *desk.key.lock().unwrap() = next.clone();
    world.clock.advance(301_000);
    // Somebody shows a token of the new key: the old one is seen to be gone.
    let other = next.token(&claims(json!({})));
    assert_eq!(world.ask_bearer(&other).await.code(), (200, "pass"));
    let outcome = world.ask_bearer(&token).await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert_eq!(desk.asked(), 2);
}

#[tokio::test]
async fn an_exchange_that_can_not_be_is_refused_by_name() {
    let parts = World::new(json!({})).parts;
    let subject = json!({"issuer": OTHER});
    for (config, field) in [
        (
            json!({"token_exchange": {"subject_token_issuers": []}, "client_id": ["a"]}),
            "token_exchange.subject_token_issuers",
        ),
        (
            json!({"token_exchange": {"subject_token_issuers": [subject, subject]},
                "client_id": ["a"]}),
            "token_exchange.subject_token_issuers",
        ),
        (
            json!({"token_exchange": {"subject_token_issuers": [subject]}}),
            "client_id",
        ),
        (
            json!({"token_exchange_endpoint": "http://id.test/x", "client_id": ["a"],
                "proof_of_possession_dpop": "optional", "auth_methods": ["bearer"]}),
            "proof_of_possession_dpop",
        ),
    ] {
        let error = filter(&parts, config.clone()).err();
        assert_eq!(
            error.map(|error| error.field).as_deref(),
            Some(field),
            "{config}"
        );
    }
}

#[tokio::test]
async fn the_token_that_was_shown_reaches_no_upstream() {
    let cookie = "bearer_token_cookie_name";
    for config in [
        json!({}),
        json!({"upstream_access_token_header": "x-given"}),
    ] {
        let mut config = config;
        config["token_exchange"] = of_others()["token_exchange"].clone();
        config["bearer_token_param_type"] = json!(["header", "query", "body", "cookie"]);
        config[cookie] = json!("tok");
        config["bearer_token_header_name"] = json!("X-Own");
        let name = match config["upstream_access_token_header"].as_str() {
            Some(name) => name.to_owned(),
            None => "authorization".to_owned(),
        };
        let (world, desk) = world(config);
        let token = desk.foreign(json!({}));
        let with_body = |kind: &str, body: &str| {
            format!(
                "POST /orders HTTP/1.1\r\nHost: h\r\nContent-Type: {kind}\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            )
        };
        for request in [
            get_with(&format!("Authorization: Bearer {token}")),
            get_with(&format!("Access-Token: {token}")),
            get_with(&format!("X-Access-Token: Bearer {token}")),
            get_with(&format!("X-Own: {token}")),
            get_with(&format!("Cookie: a=b; tok={token}")),
            get_with("X: y").replace("/orders", &format!("/orders?a=b&access_token={token}")),
            with_body(
                "application/x-www-form-urlencoded",
                &format!("a=b&access_token={token}"),
            ),
            with_body(
                "application/json",
                &json!({"a": 12345678901234567890123_f64, "access_token": token}).to_string(),
            ),
        ] {
            let outcome = world.ask(&request).await;
            assert_eq!(outcome.code(), (200, "pass"), "{request}");
            let given = outcome.exchange.token.as_ref().unwrap().token.clone();
            assert!(outcome.upstream(&name).unwrap().ends_with(&given));
            let head = format!("{:?}", outcome.upstream);
            assert!(!head.contains(&token), "{head}");
            let exchange = &outcome.exchange;
            let body = exchange.replacement.as_ref().or(exchange.body.as_ref());
            let body = String::from_utf8_lossy(body.map_or(&b""[..], |body| body));
            assert!(!body.contains(&token), "{body}");
        }
    }
}

#[tokio::test]
async fn a_token_in_a_json_is_taken_out_however_it_is_written_or_the_request_refused() {
    let (world, desk) = world(json!({"token_exchange_endpoint": "http://id.test/elsewhere"}));
    desk.opaque.store(true, Ordering::SeqCst);
    for (written, left) in [
        ("o/1", Some(r#"{"n":1.00,"access_token":""}"#)),
        (r"o\/1", Some(r#"{"n":1.00,"access_token":""}"#)),
        (r"o\u002f1", None),
    ] {
        let body = format!(r#"{{"n":1.00,"access_token":"{written}"}}"#);
        let request = format!(
            "POST /orders HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let outcome = world.ask(&request).await;
        let code = left.map_or((400, "malformed_request"), |_| (200, "pass"));
        assert_eq!(outcome.code(), code, "{written}");
        let replacement = outcome.exchange.replacement.as_deref();
        assert_eq!(replacement, left.map(str::as_bytes), "{written}");
    }
}

#[tokio::test]
async fn a_token_that_counts_as_it_is_stays_where_it_was() {
    let (world, _) = world(of_others());
    let own = world.token(json!({}));
    let header = format!("X-Access-Token: {own}");
    let outcome = world.ask(&get_with(&header)).await;
    assert_eq!(outcome.upstream("x-access-token"), Some(&*own));
}
