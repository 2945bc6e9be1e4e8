//! Signing in: to the provider and back, sessions, and what must not get in.

use std::collections::{BTreeMap, HashMap};

use aws_lc_rs::digest::{SHA256, digest};
use axum::Form;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{LOCATION, SET_COOKIE};

use super::*;

/// A provider that gives tokens for the code `NONCE.CHALLENGE`, and counts.
#[derive(Clone)]
struct Provider {
    key: TestKey,
    clock: Clock,
    asked: Arc<Mutex<Vec<HashMap<String, String>>>>,
    /// Claims of ID tokens that are other than they should be.
    twist: Arc<Mutex<Value>>,
    answers: Arc<AtomicUsize>,
    /// At the end of refresh tokens.
    padding: Arc<Mutex<String>>,
    /// The status of refused refreshes; 0: none are.
    refuses: Arc<AtomicUsize>,
}

async fn give(
    State(provider): State<Provider>,
    Form(form): Form<HashMap<String, String>>,
) -> Response {
    provider.asked.lock().unwrap().push(form.clone());
    let invalid = (
        StatusCode::BAD_REQUEST,
        Json(json!({"error": "invalid_grant"})),
    );
    let now = provider.clock.now_secs();
    let mut id = json!({"iss": ISSUER, "sub": "anna", "aud": "gateway", "iat": now,
        "exp": now + 600, "email": "anna@b.c"});
    if let Some(code) = form.get("code") {
        let (nonce, challenge) = code.split_once('.').unwrap();
        let proof = digest(&SHA256, form["code_verifier"].as_bytes());
        if challenge != URL_SAFE_NO_PAD.encode(proof) {
            return invalid.into_response();
        }
        id["nonce"] = json!(nonce);
    } else if provider.refuses.load(Ordering::SeqCst) > 0 {
        let status = provider.refuses.load(Ordering::SeqCst) as u16;
        let status = StatusCode::from_u16(status).unwrap();
        return (status, Json(json!({"error": "invalid_grant"}))).into_response();
    }
    for (name, value) in provider.twist.lock().unwrap().as_object().unwrap() {
        id[name] = value.clone();
    }
    let answers = provider.answers.fetch_add(1, Ordering::SeqCst);
    let access = provider
        .key
        .token(&json!({"iss": ISSUER, "sub": "anna", "iat": now,
        "exp": now + 300, "scope": "openid read", "jti": answers}));
    Json(json!({
        "access_token": access, "token_type": "Bearer", "expires_in": 300,
        "id_token": provider.key.token(&id), "refresh_token": format!("r{answers}{}", provider.padding.lock().unwrap()),
    }))
    .into_response()
}

async fn take(
    State(provider): State<Provider>,
    Form(form): Form<HashMap<String, String>>,
) -> StatusCode {
    provider.asked.lock().unwrap().push(form);
    StatusCode::OK
}

impl Provider {
    fn asked(&self, grant: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        let of = |form: &&HashMap<_, _>| form.get("grant_type").is_some_and(|one| one == grant);
        asked.iter().filter(of).count()
    }
}

fn world(mut config: Value) -> (World, Provider) {
    for (name, value) in [
        ("client_id", json!(["gateway"])),
        ("client_secret", json!(["g-secret"])),
        ("session_secret", json!("a secret of the nodes")),
        (
            "authorization_endpoint",
            json!("http://id.test/oauth2/authorize"),
        ),
        ("token_endpoint", json!("http://id.test/oauth2/token")),
        ("revocation_endpoint", json!("http://id.test/oauth2/revoke")),
    ] {
        if config.get(name).is_none() {
            config[name] = value;
        }
    }
    let world = World::new(config);
    let provider = Provider {
        key: world.key.clone(),
        clock: world.clock.clone(),
        asked: Arc::default(),
        twist: Arc::new(Mutex::new(json!({}))),
        answers: Arc::default(),
        padding: Arc::default(),
        refuses: Arc::default(),
    };
    let router = Router::new()
        .route("/oauth2/token", post(give))
        .route("/oauth2/revoke", post(take))
        .with_state(provider.clone());
    let base = Url::parse("http://id.test").unwrap();
    let outbound = &world.parts.outbound;
    outbound.register_local(&base, world.issuer.router().merge(router));
    (world, provider)
}

/// A browser: keeps cookies.
#[derive(Clone, Default)]
struct Browser(BTreeMap<String, String>);

impl Browser {
    fn request(&self, target: &str) -> String {
        let cookies: Vec<_> = self.0.iter().map(|(n, v)| format!("{n}={v}")).collect();
        get_with(&format!("Cookie: {}", cookies.join("; "))).replace("/orders", target)
    }

    async fn get(&mut self, world: &World, target: &str) -> Outcome {
        let outcome = world.ask(&self.request(target)).await;
        self.take(&outcome);
        outcome
    }

    fn take(&mut self, outcome: &Outcome) {
        for (name, value) in &outcome.exchange.response_headers {
            if name != SET_COOKIE {
                continue;
            }
            let value = value.to_str().unwrap();
            let (name, rest) = value.split_once('=').unwrap();
            let (kept, attributes) = rest.split_once(';').unwrap();
            match attributes.contains("Max-Age=0") {
                true => self.0.remove(name),
                false => self.0.insert(name.to_owned(), kept.to_owned()),
            };
        }
    }

    /// Begins a login; the target of the provider's answer.
    async fn begin(&mut self, world: &World, target: &str) -> String {
        let outcome = self.get(world, target).await;
        answer_to(&outcome)
    }

    async fn signed_in(world: &World) -> Self {
        let mut browser = Self::default();
        let back = browser.begin(world, "/orders").await;
        assert_eq!(browser.get(world, &back).await.code(), (200, "pass"));
        browser
    }
}

fn location(outcome: &Outcome) -> String {
    let reply = outcome.reply.as_ref().expect("an answer");
    assert_eq!(reply.status, 302, "{:?}", outcome.exchange.refusal);
    let field = reply.headers.iter().find(|(name, _)| name == LOCATION);
    field.expect("a location").1.to_str().unwrap().to_owned()
}

/// The target to which the provider leads a browser that was sent to it.
fn answer_to(outcome: &Outcome) -> String {
    let url = Url::parse(&location(outcome)).unwrap();
    assert_eq!(url.path(), "/oauth2/authorize");
    let query: HashMap<_, _> = url.query_pairs().into_owned().collect();
    let back = Url::parse(&query["redirect_uri"]).unwrap();
    let code = format!("{}.{}", query["nonce"], query["code_challenge"]);
    format!("{}?code={code}&state={}", back.path(), query["state"])
}

#[tokio::test]
async fn a_user_signs_in_and_the_original_request_goes_on() {
    let (world, provider) = world(json!({
        "upstream_headers_claims": ["email"], "upstream_headers_names": ["X-Mail"],
    }));
    let mut browser = Browser::default();
    let back = browser.begin(&world, "/orders?a=%201&b").await;
    assert_eq!(browser.0.len(), 1);
    let outcome = browser.get(&world, &back).await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert_eq!(outcome.upstream.uri.to_string(), "/orders?a=%201&b");
    assert_eq!(outcome.upstream("x-mail"), Some("anna@b.c"));
    assert_eq!(outcome.upstream("cookie"), None);
    assert!(browser.0.contains_key("session"));
    for _ in 0..3 {
        let outcome = browser.get(&world, "/orders?c").await;
        assert_eq!(outcome.code(), (200, "pass"));
        assert_eq!(outcome.upstream("x-mail"), Some("anna@b.c"));
        assert_eq!(outcome.upstream("x-credential-identifier"), Some("anna"));
        assert!(
            outcome
                .upstream("authorization")
                .unwrap()
                .starts_with("Bearer ey")
        );
        assert_eq!(outcome.upstream("cookie"), None);
    }
    assert_eq!(provider.asked("authorization_code"), 1);
    let asked = provider.asked.lock().unwrap()[0].clone();
    assert_eq!(asked["redirect_uri"], "http://orders.test/orders");
    assert!(!asked.contains_key("scope"));
}

#[tokio::test]
async fn other_cookies_of_the_upstream_stay() {
    let (world, _) = world(json!({}));
    let mut browser = Browser::signed_in(&world).await;
    browser.0.insert("theirs".into(), "1".into());
    browser.0.insert("sessions".into(), "2".into());
    let outcome = browser.get(&world, "/orders").await;
    assert_eq!(outcome.upstream("cookie"), Some("sessions=2; theirs=1"));
}

#[tokio::test]
async fn answers_that_are_not_of_a_login_in_this_browser_are_refused_by_name() {
    let (world, provider) = world(json!({}));
    let mut browser = Browser::default();
    let back = browser.begin(&world, "/orders").await;
    let mut other = Browser::default();
    other.begin(&world, "/orders").await;
    let at = back.rfind('=').unwrap();
    let forged = format!("{}AAAA{}", &back[..at + 30], &back[at + 34..]);
    let (path, query) = back.split_once('?').unwrap();
    let state = query.split_once('&').unwrap().1;
    for (mut who, target, code) in [
        (browser.clone(), forged, (401, "forged_state")),
        (
            browser.clone(),
            back[..back.len() - 3].to_owned(),
            (401, "forged_state"),
        ),
        (other.clone(), back.clone(), (401, "foreign_login")),
        (Browser::default(), back.clone(), (401, "foreign_login")),
        (
            browser.clone(),
            format!("{back}&code=x"),
            (400, "malformed_callback"),
        ),
        (
            browser.clone(),
            format!("{back}&state=x"),
            (400, "malformed_callback"),
        ),
        (
            browser.clone(),
            format!("{path}?{state}"),
            (400, "malformed_callback"),
        ),
        (
            browser.clone(),
            format!("{back}&iss=http%3A%2F%2Fevil"),
            (401, "mixed_up_issuer"),
        ),
        (
            browser.clone(),
            format!("{path}?{state}&code=x.y"),
            (401, "code_refused"),
        ),
    ] {
        let outcome = who.get(&world, &target).await;
        assert_eq!(outcome.code(), code, "{target}");
        assert!(!who.0.contains_key("session"));
    }
    // The last one has used it up.
    let outcome = browser.get(&world, &back).await;
    assert_eq!(outcome.code(), (401, "login_repeated"));
    assert_eq!(provider.asked("authorization_code"), 1);
    let back = browser.begin(&world, "/orders").await;
    let (path, query) = back.split_once('?').unwrap();
    let state = query.split_once('&').unwrap().1;
    let denied = format!("{path}?error=access_denied&{state}");
    assert_eq!(
        browser.get(&world, &denied).await.code(),
        (401, "login_refused")
    );
    let back = browser.begin(&world, "/orders").await;
    world.clock.advance(600_000);
    assert_eq!(
        browser.get(&world, &back).await.code(),
        (401, "login_expired")
    );
}

#[tokio::test]
async fn each_wrong_id_token_is_refused_by_name() {
    for (twist, code) in [
        (json!({"nonce": "other"}), (401, "wrong_nonce")),
        (json!({"iss": "http://evil"}), (401, "wrong_issuer")),
        (json!({"aud": "other"}), (403, "wrong_audience")),
        (json!({"azp": "other"}), (403, "wrong_audience")),
        (json!({"at_hash": "AAAA"}), (401, "wrong_at_hash")),
        (json!({"sub": ""}), (401, "wrong_id_token")),
        (json!({"exp": NOW - 1}), (401, "token_expired")),
    ] {
        let (world, provider) = world(json!({}));
        *provider.twist.lock().unwrap() = twist.clone();
        let mut browser = Browser::default();
        let back = browser.begin(&world, "/orders").await;
        assert_eq!(browser.get(&world, &back).await.code(), code, "{twist}");
        assert!(!browser.0.contains_key("session"));
    }
}

#[tokio::test]
async fn a_session_that_was_changed_cut_moved_or_made_elsewhere_is_none() {
    let (world, _) = world(json!({"auth_methods": ["session", "bearer"]}));
    let (maker, _) = super::signing_in::world(json!({}));
    world.issuer.publish(&[&maker.key]);
    let browser = Browser::signed_in(&maker).await;
    let good = browser.0["session"].clone();
    let shows = |value: String| Browser(BTreeMap::from([("session".to_owned(), value)]));
    let outcome = shows(good.clone()).get(&world, "/orders").await;
    assert_eq!(outcome.code(), (200, "pass"), "one secret: one session");
    let state = browser.0["authorization"].clone();
    for bad in [
        format!("{}A", good),
        good[..good.len() - 4].to_owned(),
        good[1..].to_owned(),
        format!("2{}", &good[1..]),
        good.replacen(&good[40..44], "AAAA", 1),
        state,
    ] {
        let mut browser = shows(bad.clone());
        let outcome = browser.get(&world, "/orders").await;
        assert_eq!(outcome.code(), (401, "broken_session"), "{bad}");
        assert!(browser.0.is_empty(), "the browser forgets it");
    }
    for config in [
        json!({"session_secret": "another"}),
        json!({"session_audience": "another"}),
        json!({"issuer": "http://id.test/other"}),
    ] {
        let mut config = config;
        config["auth_methods"] = json!(["session"]);
        let (world, _) = super::signing_in::world(config);
        let outcome = shows(good.clone()).get(&world, "/orders").await;
        assert_eq!(outcome.code(), (401, "broken_session"));
    }
}

#[tokio::test]
async fn twenty_tabs_sign_in_at_once_in_any_order() {
    let (world, provider) = world(json!({}));
    let mut browser = Browser::default();
    let mut backs = Vec::new();
    for tab in 0..20 {
        backs.push((
            tab,
            browser.begin(&world, &format!("/orders?tab={tab}")).await,
        ));
    }
    assert_eq!(browser.0.len(), 1, "one small cookie");
    backs.reverse();
    // Each tab comes back with what the browser had when it began.
    let signed_out = browser.clone();
    for (tab, back) in &backs {
        let outcome = signed_out.clone().get(&world, back).await;
        assert_eq!(outcome.code(), (200, "pass"), "{tab}");
    }
    assert_eq!(provider.asked("authorization_code"), 20);
    let mut signed_in = Browser::signed_in(&world).await;
    signed_in.0.extend(browser.0);
    for (tab, back) in backs {
        let outcome = signed_in.get(&world, &back).await;
        let wanted = format!("http://orders.test/orders?tab={tab}");
        assert_eq!(location(&outcome), wanted, "late and repeated ones go on");
    }
    assert_eq!(provider.asked("authorization_code"), 21);
}

#[tokio::test]
async fn a_hundred_requests_on_an_expiring_session_refresh_once() {
    let (world, provider) = world(json!({"auth_methods": ["session", "authorization_code"]}));
    let browser = Browser::signed_in(&world).await;
    world.clock.advance(300_000);
    let request = browser.request("/orders");
    let asks = (0..100).map(|_| world.ask(&request));
    let mut renewed = browser.clone();
    for outcome in futures_util::future::join_all(asks).await {
        assert_eq!(outcome.code(), (200, "pass"));
        renewed.take(&outcome);
    }
    assert_eq!(provider.asked("refresh_token"), 1);
    // One that comes late with the old session gets the same tokens.
    assert_eq!(world.ask(&request).await.code(), (200, "pass"));
    assert_eq!(provider.asked("refresh_token"), 1);
    assert_ne!(renewed.0["session"], browser.0["session"]);
    world.clock.advance(200_000);
    assert_eq!(renewed.get(&world, "/orders").await.code(), (200, "pass"));
    assert_eq!(provider.asked("refresh_token"), 1);
}

#[tokio::test]
async fn a_session_ends_when_the_provider_refuses_and_not_when_it_is_silent() {
    let (world, provider) = world(json!({}));
    let mut browser = Browser::signed_in(&world).await;
    world.clock.advance(300_000);
    provider.refuses.store(503, Ordering::SeqCst);
    let outcome = browser.get(&world, "/orders").await;
    assert_eq!(outcome.code(), (500, "provider_unavailable"));
    provider.refuses.store(0, Ordering::SeqCst);
    assert_eq!(browser.get(&world, "/orders").await.code(), (200, "pass"));
    world.clock.advance(300_000);
    provider.refuses.store(400, Ordering::SeqCst);
    let outcome = browser.get(&world, "/orders").await;
    assert_eq!(outcome.code(), (401, "session_over"));
    assert!(!browser.0.contains_key("session"));
    browser.begin(&world, "/orders").await;
}

#[tokio::test]
async fn a_refreshed_id_token_of_another_user_ends_the_session() {
    let (world, provider) = world(json!({}));
    let mut browser = Browser::signed_in(&world).await;
    world.clock.advance(300_000);
    *provider.twist.lock().unwrap() = json!({"sub": "mallory"});
    let outcome = browser.get(&world, "/orders").await;
    assert_eq!(outcome.code(), (401, "session_over"));
}

#[tokio::test]
async fn an_idle_session_is_over_and_a_used_one_is_renewed() {
    let (world, _) = world(json!({"session_idling_timeout": 100}));
    let mut browser = Browser::signed_in(&world).await;
    for _ in 0..2 {
        let before = browser.0["session"].clone();
        world.clock.advance(60_000);
        assert_eq!(browser.get(&world, "/orders").await.code(), (200, "pass"));
        assert_ne!(browser.0["session"], before);
    }
    world.clock.advance(100_000);
    browser.begin(&world, "/orders").await;
    assert!(!browser.0.contains_key("session"));
}

#[tokio::test]
async fn tokens_are_given_out_where_that_is_configured() {
    let (world, _) = world(json!({"login_action": "response", "login_tokens": ["access_token"]}));
    let mut browser = Browser::default();
    let back = browser.begin(&world, "/orders").await;
    let outcome = browser.get(&world, &back).await;
    let reply = outcome.reply.expect("an answer");
    assert_eq!(reply.status, 200);
    let ReplyBody::Raw("application/json", body) = &reply.body else {
        panic!("{reply:?}");
    };
    let tokens: Value = serde_json::from_slice(body).unwrap();
    assert_eq!(tokens.as_object().unwrap().len(), 1);
    let (world, _) = super::signing_in::world(json!({
        "login_action": "redirect", "login_redirect_uri": ["https://app.test/in"],
    }));
    let mut browser = Browser::default();
    let back = browser.begin(&world, "/orders").await;
    let address = location(&browser.get(&world, &back).await);
    assert!(
        address.starts_with("https://app.test/in#id_token=ey"),
        "{address}"
    );
}

#[tokio::test]
async fn a_path_that_looks_like_a_host_leads_nowhere_else() {
    let (world, _) = world(json!({"redirect_uri": ["http://orders.test/callback"]}));
    for target in [
        "//evil.test/x",
        "/\\evil.test",
        "/%5Cevil.test?u=//evil.test",
    ] {
        let mut browser = Browser::default();
        let back = browser.begin(&world, target).await;
        let address = location(&browser.get(&world, &back).await);
        let address = Url::parse(&address).unwrap();
        assert_eq!(address.host_str(), Some("orders.test"), "{target}");
    }
    let mut browser = Browser::default();
    let outcome = browser.get(&world, "/callback?code=x&state=x").await;
    assert_eq!(outcome.code(), (401, "forged_state"));
}

#[tokio::test]
async fn an_answer_may_come_as_a_form() {
    let (world, _) = world(json!({"response_mode": "form_post"}));
    let mut browser = Browser::default();
    let back = browser.begin(&world, "/orders?a=1").await;
    let (path, query) = back.split_once('?').unwrap();
    let cookie = format!("authorization={}", browser.0["authorization"]);
    let form = format!(
        "POST {path} HTTP/1.1\r\nHost: orders.test\r\nCookie: {cookie}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{query}",
        query.len()
    );
    let outcome = world.ask(&form).await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert_eq!(outcome.upstream.method, Method::GET);
    assert_eq!(outcome.upstream.uri.to_string(), "/orders?a=1");
    assert_eq!(outcome.exchange.replacement.as_deref(), Some(&b""[..]));
}

#[tokio::test]
async fn a_session_that_is_too_big_is_refused_by_name() {
    let (world, provider) = world(json!({}));
    *provider.twist.lock().unwrap() = json!({"photo": "x".repeat(11_000)});
    *provider.padding.lock().unwrap() = "x".repeat(16_000);
    let mut browser = Browser::default();
    let back = browser.begin(&world, "/orders").await;
    let outcome = browser.get(&world, &back).await;
    assert_eq!(outcome.code(), (500, "session_too_big"));
    assert!(!browser.0.contains_key("session"));
}

#[tokio::test]
async fn a_logout_revokes_forgets_and_goes_on_to_the_provider() {
    let (world, provider) = world(json!({
        "logout_query_arg": "logout", "logout_methods": ["GET"], "logout_revoke": true,
        "logout_redirect_uri": ["https://app.test/bye"],
        "end_session_endpoint": "http://id.test/oauth2/end",
    }));
    let mut browser = Browser::signed_in(&world).await;
    let outcome = browser.get(&world, "/orders?logout=1").await;
    let address = Url::parse(&location(&outcome)).unwrap();
    assert_eq!(address.path(), "/oauth2/end");
    let query: HashMap<_, _> = address.query_pairs().into_owned().collect();
    assert!(query["id_token_hint"].starts_with("ey"));
    assert_eq!(query["client_id"], "gateway");
    assert_eq!(query["post_logout_redirect_uri"], "https://app.test/bye");
    assert!(!browser.0.contains_key("session"));
    let revoked = provider.asked.lock().unwrap()[1..].to_vec();
    let hints: Vec<_> = revoked
        .iter()
        .map(|form| form["token_type_hint"].as_str())
        .collect();
    assert_eq!(hints, ["refresh_token", "access_token"]);
    browser.begin(&world, "/orders").await;
}

#[tokio::test]
async fn a_logout_takes_a_method_and_a_trigger() {
    let (world, _) = world(json!({"logout_uri_suffix": "/logout"}));
    let mut browser = Browser::signed_in(&world).await;
    assert_eq!(
        browser.get(&world, "/orders/logout").await.code(),
        (200, "pass")
    );
    let post = browser.request("/orders/logout").replace("GET ", "DELETE ");
    let outcome = world.ask(&post).await;
    assert_eq!(outcome.reply.as_ref().unwrap().status, 200);
    browser.take(&outcome);
    assert!(!browser.0.contains_key("session"));
}
