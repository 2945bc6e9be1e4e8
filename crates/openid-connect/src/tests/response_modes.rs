//! The ways in which a login is asked for and answered.

use std::collections::HashMap;

use axum::Form;
use axum::routing::post;
use http::header::{CONTENT_SECURITY_POLICY, LOCATION};

use super::browser::{Browser, location, world};
use super::*;
use doorward_core::jose::testing::hs256;

fn query_of(address: &str) -> HashMap<String, String> {
    let url = Url::parse(address).unwrap();
    url.query_pairs().into_owned().collect()
}

fn form(browser: &Browser, path: &str, body: &str, more: &str) -> String {
    let cookies: Vec<_> = browser.0.iter().map(|(n, v)| format!("{n}={v}")).collect();
    format!(
        "POST {path} HTTP/1.1\r\nHost: orders.test\r\nCookie: {}\r\n{more}\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        cookies.join("; "),
        body.len()
    )
}

#[tokio::test]
async fn an_answer_in_a_fragment_is_posted_by_a_page() {
    let (world, _) = world(json!({"response_mode": "fragment",
        "redirect_uri": ["http://orders.test/callback"]}));
    let mut browser = Browser::default();
    let asked = query_of(&location(&browser.get(&world, "/orders?a=1").await));
    assert_eq!(asked["response_mode"], "fragment");
    let page = browser.get(&world, "/callback").await;
    let reply = page.reply.as_ref().expect("a page");
    assert_eq!(reply.status, 200);
    let policy = reply
        .headers
        .iter()
        .find(|(n, _)| n == CONTENT_SECURITY_POLICY);
    let policy = policy.expect("a policy").1.to_str().unwrap().to_owned();
    let ReplyBody::Raw(_, html) = &reply.body else {
        panic!("{reply:?}");
    };
    let html = std::str::from_utf8(html).unwrap();
    let nonce = html
        .split("nonce=\"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    assert!(policy.contains(&format!("'nonce-{nonce}'")), "{policy}");
    let answer = format!(
        "code={}.{}&state={}",
        asked["nonce"], asked["code_challenge"], asked["state"]
    );
    let outcome = world.ask(&form(&browser, "/callback", &answer, "")).await;
    assert_eq!(location(&outcome), "http://orders.test/orders?a=1");
    browser.take(&outcome);
    assert!(browser.0.contains_key("session"));
}

/// A signed answer of the provider with other claims.
fn signed(world: &World, asked: &HashMap<String, String>, changes: Value) -> String {
    let mut claims = json!({"iss": ISSUER, "aud": "gateway", "exp": NOW + 60,
        "code": format!("{}.{}", asked["nonce"], asked["code_challenge"]),
        "state": asked["state"]});
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    world.key.token(&claims)
}

#[tokio::test]
async fn a_signed_answer_that_names_its_issuer_twice_is_refused() {
    let config = json!({"response_mode": "jwt", "redirect_uri": ["http://orders.test/back"]});
    let (world, _) = world(config);
    let mut browser = Browser::default();
    let asked = query_of(&location(&browser.get(&world, "/orders").await));
    let head = json!({"alg": "ES256", "kid": "key-1"}).to_string();
    // Two readers could take different ones.
    let payload = format!(
        r#"{{"iss":"{ISSUER}","iss":"{ISSUER}","aud":"gateway","exp":{},"state":"{}"}}"#,
        NOW + 60,
        asked["state"]
    );
    let twice = world.key.sign(&head, &payload);
    let outcome = browser
        .get(&world, &format!("/back?response={twice}"))
        .await;
    assert_eq!(outcome.code(), (401, "wrong_answer"));
}

#[tokio::test]
async fn a_signed_answer_is_of_the_provider_for_this_client_at_this_time() {
    for mode in ["jwt", "query.jwt", "form_post.jwt"] {
        let (world, _) = world(json!({ "response_mode": mode }));
        let mut browser = Browser::default();
        let asked = query_of(&location(&browser.get(&world, "/orders").await));
        assert_eq!(asked["response_mode"], mode);
        let forger = TestKey::es256("key-1");
        let forged = forger.token(&json!({"iss": ISSUER, "aud": "gateway",
            "exp": NOW + 60, "code": "x.y", "state": asked["state"]}));
        let plain = format!("code=x.y&state={}", asked["state"]);
        for (answer, code) in [
            (format!("response={forged}"), (401, "wrong_answer")),
            (plain, (401, "unsigned_answer")),
            (
                format!(
                    "response={}",
                    signed(&world, &asked, json!({"aud": "other"}))
                ),
                (401, "wrong_answer"),
            ),
            (
                format!("response={}", signed(&world, &asked, json!({"exp": NOW}))),
                (401, "wrong_answer"),
            ),
            (
                format!(
                    "response={}",
                    signed(&world, &asked, json!({"iss": "http://evil"}))
                ),
                (401, "mixed_up_issuer"),
            ),
            (
                format!("response={}", signed(&world, &asked, json!({}))),
                (200, "pass"),
            ),
        ] {
            let outcome = match mode {
                "form_post.jwt" => world.ask(&form(&browser, "/orders", &answer, "")).await,
                _ => {
                    browser
                        .clone()
                        .get(&world, &format!("/orders?{answer}"))
                        .await
                }
            };
            assert_eq!(outcome.code(), code, "{mode} {answer}");
        }
    }
}

#[tokio::test]
async fn a_signed_answer_of_a_provider_whose_clock_differs_is_good_within_the_leeway() {
    for times in [
        json!({"exp": NOW - 400}),
        json!({"iat": NOW + 400, "exp": NOW + 460}),
    ] {
        for (leeway, code) in [(600, (200, "pass")), (0, (401, "wrong_answer"))] {
            let (world, _) = world(json!({"response_mode": "jwt", "leeway": leeway}));
            let mut browser = Browser::default();
            let asked = query_of(&location(&browser.get(&world, "/orders").await));
            let answer = signed(&world, &asked, times.clone());
            let target = format!("/orders?response={answer}");
            let outcome = browser.get(&world, &target).await;
            assert_eq!(outcome.code(), code, "{times} {leeway}");
        }
    }
}

/// What two clients with secrets of their own take.
fn two_clients(more: Value) -> Value {
    let mut config = json!({"enable_hs_signatures": true, "client_id": ["gateway", "second"],
        "client_secret": ["g-secret", "s-secret"]});
    for (name, value) in more.as_object().unwrap() {
        config[name] = value.clone();
    }
    config
}

const SECRETS: [(&str, &str); 2] = [("gateway", "g-secret"), ("second", "s-secret")];

#[tokio::test]
async fn the_id_token_of_each_client_is_signed_with_its_own_secret() {
    for (client, own) in SECRETS {
        for (_, secret) in SECRETS {
            let (world, provider) = world(two_clients(json!({})));
            *provider.twist.lock().unwrap() = json!({ "aud": client });
            *provider.secret.lock().unwrap() = Some(secret);
            let mut browser = Browser::default();
            let target = format!("/orders?client_id={client}");
            let back = browser.begin(&world, &target).await;
            let outcome = browser.get(&world, &back).await;
            if secret == own {
                assert_eq!(outcome.code(), (200, "pass"), "{client}")
            } else {
                assert_eq!(outcome.code(), (401, "bad_signature"), "{client}")
            }
        }
    }
}

#[tokio::test]
async fn the_signed_answer_to_each_client_is_signed_with_its_own_secret() {
    for (client, own) in SECRETS {
        let (world, provider) = world(two_clients(json!({"response_mode": "jwt"})));
        *provider.twist.lock().unwrap() = json!({ "aud": client });
        *provider.secret.lock().unwrap() = Some(own);
        let mut browser = Browser::default();
        let target = format!("/orders?client_id={client}");
        let asked = query_of(&location(&browser.get(&world, &target).await));
        let mut claims = json!({"iss": ISSUER, "aud": client, "exp": NOW + 60,
            "code": format!("{}.{}", asked["nonce"], asked["code_challenge"])});
        claims["state"] = json!(asked["state"]);
        let mut codes = Vec::new();
        for (_, secret) in SECRETS {
            let header = r#"{"alg":"HS256"}"#;
            let answer = hs256(secret.as_bytes(), header, &claims.to_string());
            let target = format!("/orders?response={answer}");
            let outcome = browser.clone().get(&world, &target).await;
            codes.push((secret == own, outcome.code().0));
        }
        codes.sort_unstable();
        assert_eq!(codes, [(false, 401), (true, 200)], "{client}");
    }
}

#[tokio::test]
async fn a_bearer_token_may_be_signed_with_the_secret_of_any_client() {
    let (world, _) = world(two_clients(json!({})));
    for (secret, code) in [
        ("g-secret", (200, "pass")),
        ("s-secret", (200, "pass")),
        ("x-secret", (401, "bad_signature")),
    ] {
        let claims = claims(json!({})).to_string();
        let token = hs256(secret.as_bytes(), r#"{"alg":"HS256"}"#, &claims);
        assert_eq!(world.ask_bearer(&token).await.code(), code, "{secret}");
    }
}

/// Adds an endpoint for pushed requests, which notes them.
fn with_pushes(world: &World, more: Router) -> Arc<Mutex<Vec<HashMap<String, String>>>> {
    let pushed = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&pushed);
    let push = move |Form(form): Form<HashMap<String, String>>| {
        noted.lock().unwrap().push(form);
        async {
            (
                StatusCode::CREATED,
                Json(json!({"request_uri": "urn:x:1", "expires_in": 60})),
            )
        }
    };
    let router = world.issuer.router().merge(more);
    let router = router.route("/oauth2/par", post(push));
    let base = Url::parse("http://id.test").unwrap();
    world.parts.outbound.register_local(&base, router);
    pushed
}

#[tokio::test]
async fn a_request_is_pushed_where_that_is_required() {
    let (world, _) = world(json!({
        "require_pushed_authorization_requests": true,
        "client_auth": ["client_secret_post"],
        "pushed_authorization_request_endpoint": "http://id.test/oauth2/par",
    }));
    let pushed = with_pushes(&world, Router::new());
    let mut browser = Browser::default();
    let asked = query_of(&location(&browser.get(&world, "/orders").await));
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert_eq!(asked["request_uri"], "urn:x:1");
    assert_eq!(asked["client_id"], "gateway");
    let pushed = pushed.lock().unwrap().clone();
    assert_eq!(pushed[0]["client_secret"], "g-secret");
    assert_eq!(pushed[0]["response_type"], "code");
    assert!(pushed[0]["state"].starts_with("dw1."));
    let (world, _) = super::browser::world(json!({"require_pushed_authorization_requests": true}));
    let outcome = Browser::default().get(&world, "/orders").await;
    assert_eq!(outcome.code(), (500, "no_endpoint"));
}

#[tokio::test]
async fn a_client_proves_itself_to_push_as_is_configured() {
    for (method, in_form) in [("client_secret_post", true), ("client_secret_basic", false)] {
        let (world, _) = world(json!({
            "require_pushed_authorization_requests": true,
            "pushed_authorization_request_endpoint": "http://id.test/oauth2/par",
            "pushed_authorization_request_endpoint_auth_method": method,
        }));
        let pushed = with_pushes(&world, Router::new());
        location(&Browser::default().get(&world, "/orders").await);
        let pushed = pushed.lock().unwrap().clone();
        assert_eq!(pushed[0].contains_key("client_secret"), in_form, "{method}");
    }
}

#[tokio::test]
async fn a_request_is_signed_where_that_is_required() {
    let (world, _) = world(json!({"require_signed_request_object": true,
        "client_secret": ["0123456789abcdef0123456789abcdef"]}));
    let asked = query_of(&location(&Browser::default().get(&world, "/orders").await));
    let mut names: Vec<_> = asked.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["client_id", "request", "response_type", "scope"]);
    let request = doorward_core::jose::verify::Unverified::parse(&asked["request"]).unwrap();
    assert_eq!(request.typ().as_deref(), Some("oauth-authz-req+jwt"));
    let claims = request
        .verify_hmac(b"0123456789abcdef0123456789abcdef")
        .unwrap();
    assert_eq!(claims["aud"], ISSUER);
    assert_eq!(claims["iss"], "gateway");
    assert_eq!(claims["exp"], NOW + 60);
    assert_eq!(claims["code_challenge_method"], "S256");
    let bare = json!({"require_signed_request_object": true, "client_id": ["a"]});
    let refused = filter(&world.parts, bare).err().expect("refused");
    assert_eq!(refused.field, "client_jwk");
}

#[tokio::test]
async fn a_form_of_this_site_is_sent_again_after_the_login() {
    let own = "Sec-Fetch-Site: same-origin\r\n";
    let (world, _) = world(json!({"preserve_request_body": 100}));
    for (more, method, body) in [
        (own, "POST", "a=b&c=d"),
        ("Origin: http://evil.test\r\n", "GET", ""),
    ] {
        let mut browser = Browser::default();
        let outcome = world.ask(&form(&browser, "/orders", "a=b&c=d", more)).await;
        browser.take(&outcome);
        let asked = query_of(&location(&outcome));
        let back = format!(
            "/orders?code={}.{}&state={}",
            asked["nonce"], asked["code_challenge"], asked["state"]
        );
        let outcome = browser.get(&world, &back).await;
        assert_eq!(outcome.code(), (200, "pass"));
        assert_eq!(outcome.upstream.method.as_str(), method);
        let sent = outcome.exchange.replacement.as_deref().unwrap_or_default();
        assert_eq!(sent, body.as_bytes());
    }
    let (world, _) = super::browser::world(json!({"preserve_request_body": 100,
        "redirect_uri": ["http://orders.test/callback"]}));
    let mut browser = Browser::default();
    let outcome = world.ask(&form(&browser, "/orders?x", "a=b", own)).await;
    browser.take(&outcome);
    let asked = query_of(&location(&outcome));
    let back = format!(
        "/callback?code={}.{}&state={}",
        asked["nonce"], asked["code_challenge"], asked["state"]
    );
    let outcome = browser.get(&world, &back).await;
    let reply = outcome.reply.as_ref().expect("a page");
    let ReplyBody::Raw(_, html) = &reply.body else {
        panic!("{reply:?}");
    };
    let html = std::str::from_utf8(html).unwrap();
    assert!(
        html.contains("action=\"http://orders.test/orders?x\""),
        "{html}"
    );
    assert!(html.contains("name=\"a\" value=\"b\""), "{html}");
}

#[tokio::test]
async fn a_script_gets_an_answer_that_it_can_read() {
    let (world, _) = world(json!({"scripts_unauthorized": true,
        "unauthorized_redirect_uri": ["https://app.test/who"]}));
    let script = "Origin: https://app.test\r\nSec-Fetch-Mode: cors";
    let outcome = world.ask(&get_with(script)).await;
    assert_eq!(outcome.code(), (401, "no_token"));
    let reply = outcome.reply.as_ref().expect("an answer");
    let header = |name: &str| {
        let found = reply.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.to_str().unwrap())
    };
    assert_eq!(
        header("access-control-allow-origin"),
        Some("https://app.test")
    );
    assert_eq!(header("access-control-allow-credentials"), Some("true"));
    assert!(header("www-authenticate").is_some());
    assert_eq!(header(LOCATION.as_str()), None);
    let ReplyBody::Raw(_, body) = &reply.body else {
        panic!("{reply:?}");
    };
    let body: Value = serde_json::from_slice(body).unwrap();
    assert_eq!(body["login"], "http://orders.test/orders");
    let outcome = world.ask(&get_with("Sec-Fetch-Mode: navigate")).await;
    assert_eq!(outcome.reply.unwrap().status, 302);
    let (world, _) = super::browser::world(json!({}));
    let outcome = world.ask(&get_with(script)).await;
    assert_eq!(outcome.reply.unwrap().status, 302, "unless enabled");
}

#[tokio::test]
async fn scripts_of_origins_that_are_named_may_ask_first_and_read_answers() {
    let (world, _) = world(json!({"scripts_unauthorized": true,
        "scripts_origins": ["https://app.test", "http://localhost:3000"]}));
    let header = |outcome: &Outcome, name: &str| {
        let reply = outcome.reply.as_ref().expect("an answer");
        let found = reply.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.to_str().unwrap().to_owned())
    };
    let asks = "Sec-Fetch-Mode: cors\r\nAccess-Control-Request-Method: PUT\r\n\
                Access-Control-Request-Headers: authorization, content-type";
    for (origin, named) in [
        ("https://app.test", true),
        ("http://localhost:3000", true),
        ("https://evil.test", false),
        ("https://app.test.evil.test", false),
        ("null", false),
    ] {
        let seen = named.then(|| origin.to_owned());
        let first = get_with(&format!("Origin: {origin}\r\n{asks}")).replace("GET", "OPTIONS");
        let outcome = world.ask(&first).await;
        let code = if named {
            (204, "preflight")
        } else {
            (401, "no_token")
        };
        assert_eq!(outcome.code(), code, "{origin}");
        let allowed = header(&outcome, "access-control-allow-origin");
        assert_eq!(allowed, seen, "{origin}");
        let then = get_with(&format!("Origin: {origin}\r\nSec-Fetch-Mode: cors"));
        let outcome = world.ask(&then).await;
        assert_eq!(outcome.code(), (401, "no_token"), "{origin}");
        let allowed = header(&outcome, "access-control-allow-origin");
        assert_eq!(allowed, seen, "{origin}");
    }
    let asked = get_with(&format!("Origin: https://app.test\r\n{asks}"));
    let outcome = world.ask(&asked.replace("GET", "OPTIONS")).await;
    for (name, value) in [
        ("access-control-allow-methods", "PUT"),
        (
            "access-control-allow-headers",
            "authorization, content-type",
        ),
        ("access-control-allow-credentials", "true"),
    ] {
        assert_eq!(header(&outcome, name).as_deref(), Some(value), "{name}");
    }
    // Nobody may ask for the scripts of every site.
    let (world, _) = super::browser::world(json!({"scripts_unauthorized": true}));
    let outcome = world.ask(&asked.replace("GET", "OPTIONS")).await;
    assert_eq!(outcome.code(), (401, "no_token"));
    assert_eq!(header(&outcome, "access-control-allow-methods"), None);
    for origin in ["app.test", "https://app.test/", "*", "ftp://app.test"] {
        let config = super::browser::complete(json!({"scripts_origins": [origin]}));
        let error = filter(&world.parts, config).err().expect("refused");
        assert_eq!(error.field, "scripts_origins", "{origin}");
    }
}

#[tokio::test]
async fn a_trusted_proxy_says_where_the_browser_is() {
    let (world, _) = world(json!({}));
    let request = get_with("X-Forwarded-Host: shop.example\r\nX-Forwarded-Port: 8443");
    for (trusted, wanted) in [
        (true, "https://shop.example:8443/orders"),
        (false, "https://orders.test/orders"),
    ] {
        let (mut session, _client) = session(&request).await;
        let mut exchange = Exchange {
            trusted,
            secure: true,
            ..Exchange::default()
        };
        let reply = decide(&*world.filter, &mut session, &mut exchange)
            .await
            .unwrap();
        let found = reply.headers.iter().find(|(name, _)| name == LOCATION);
        let asked = query_of(found.unwrap().1.to_str().unwrap());
        assert_eq!(asked["redirect_uri"], wanted);
    }
}

#[tokio::test]
async fn a_login_leads_back_through_a_proxy_that_takes_a_prefix_off() {
    let (world, _) = world(json!({"logout_uri_suffix": "/shop/bye", "logout_methods": ["GET"]}));
    let ask = async |browser: &mut Browser, target: &str, trusted| {
        let request = browser.request(target);
        let request = request.trim_end_matches("\r\n");
        let request = format!("{request}\r\nX-Forwarded-Prefix: /shop\r\n\r\n");
        let (mut session, _client) = session(&request).await;
        let mut exchange = Exchange {
            trusted,
            ..Exchange::default()
        };
        let reply = decide(&*world.filter, &mut session, &mut exchange).await;
        let outcome = Outcome {
            reply,
            exchange,
            upstream: session.req_header().clone(),
        };
        browser.take(&outcome);
        outcome
    };
    let mut browser = Browser::default();
    let stranger = ask(&mut browser, "/orders?a=b", false).await;
    let asked = query_of(&location(&stranger));
    assert_eq!(asked["redirect_uri"], "http://orders.test/orders");
    let begun = ask(&mut browser, "/orders?a=b", true).await;
    let asked = query_of(&location(&begun));
    assert_eq!(asked["redirect_uri"], "http://orders.test/shop/orders");
    let code = format!("{}.{}", asked["nonce"], asked["code_challenge"]);
    let back = format!("code={code}&state={}", asked["state"]);
    // Elsewhere, it leads to where the browser began.
    let mut elsewhere = browser.clone();
    let outcome = ask(&mut elsewhere, &format!("/cb?{back}"), true).await;
    assert_eq!(location(&outcome), "http://orders.test/shop/orders?a=b");
    let outcome = ask(&mut elsewhere, "/bye", false).await;
    assert_eq!(outcome.code(), (200, "pass"));
    let outcome = ask(&mut elsewhere, "/bye", true).await;
    assert!(outcome.reply.is_some(), "a logout");
    // At the same place, the request goes on as the gateway knows it.
    let begun = ask(&mut browser, "/orders?a=b", true).await;
    let asked = query_of(&location(&begun));
    let code = format!("{}.{}", asked["nonce"], asked["code_challenge"]);
    let back = format!("/orders?code={code}&state={}", asked["state"]);
    let outcome = ask(&mut browser, &back, true).await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert_eq!(outcome.upstream.uri.to_string(), "/orders?a=b");
}

#[tokio::test]
async fn a_kept_body_slips_past_the_filters_of_its_own_route_by_that_of_the_callback() {
    let (world, _) = world(json!({"preserve_request_body": 100}));
    let own = "Sec-Fetch-Site: same-origin\r\n";
    let routes = [1, 2].map(|n| Some(uuid::Uuid::from_u128(n)));
    for (back_by, passes) in [(routes[0], true), (routes[1], false), (None, false)] {
        let mut browser = Browser::default();
        let ask = async |request: &str, route| {
            let (mut session, _client) = session(request).await;
            let mut exchange = Exchange {
                route,
                ..Exchange::default()
            };
            let reply = decide(&*world.filter, &mut session, &mut exchange).await;
            Outcome {
                reply,
                exchange,
                upstream: session.req_header().clone(),
            }
        };
        let outcome = ask(&form(&browser, "/orders", "a=b", own), routes[0]).await;
        browser.take(&outcome);
        let asked = query_of(&location(&outcome));
        let back = format!(
            "/orders?code={}.{}&state={}",
            asked["nonce"], asked["code_challenge"], asked["state"]
        );
        let outcome = ask(&browser.request(&back), back_by).await;
        if passes {
            assert_eq!(outcome.upstream.method, Method::POST)
        } else {
            // A page sends it again: to where it was sent.
            let reply = outcome.reply.expect("a page");
            let ReplyBody::Raw(_, html) = &reply.body else {
                panic!("{reply:?}");
            };
            let html = std::str::from_utf8(html).unwrap();
            assert!(html.contains("action=\"http://orders.test/orders\""));
        }
    }
}

#[tokio::test]
async fn the_provider_gets_addresses_as_they_were_registered_with_it() {
    let (world, provider) = world(json!({
        "redirect_uri": ["http://Orders.test:80"],
        "logout_redirect_uri": ["https://app.example.com"],
        "logout_query_arg": "bye", "logout_methods": ["GET"],
        "end_session_endpoint": "http://id.test/oauth2/end",
    }));
    let mut browser = Browser::default();
    let asked = query_of(&location(&browser.get(&world, "/orders").await));
    assert_eq!(asked["redirect_uri"], "http://Orders.test:80");
    let code = format!("{}.{}", asked["nonce"], asked["code_challenge"]);
    let back = format!("/?code={code}&state={}", asked["state"]);
    let outcome = browser.get(&world, &back).await;
    assert_eq!(location(&outcome), "http://orders.test/orders");
    let redeemed = provider.asked.lock().unwrap()[0].clone();
    assert_eq!(redeemed["redirect_uri"], "http://Orders.test:80");
    let asked = query_of(&location(&browser.get(&world, "/orders?bye").await));
    let back = asked["post_logout_redirect_uri"].as_str();
    assert_eq!(back, "https://app.example.com");
}
