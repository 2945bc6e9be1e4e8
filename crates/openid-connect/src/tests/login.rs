//! Signing in: to the provider and back, and what must not get in.

use super::browser::{Browser, answer_to, location, world};
use super::*;

#[tokio::test]
async fn a_user_signs_in_and_the_original_request_goes_on() {
    let (world, provider) = world(json!({
        "upstream_headers_claims": ["email"], "upstream_headers_names": ["X-Mail"],
    }));
    let mut browser = Browser::default();
    let back = browser.begin(&world, "/orders?a=%201&b").await;
    assert_eq!(browser.0.len(), 2);
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
async fn the_providers_own_words_are_shown_where_errors_are() {
    for shown in [true, false] {
        let (world, _) = world(json!({ "display_errors": shown }));
        let mut browser = Browser::default();
        let back = browser.begin(&world, "/orders").await;
        let (path, query) = back.split_once('?').unwrap();
        let state = query.split_once('&').unwrap().1;
        let said = "error=access_denied&error_description=No%20such%20%22group%22%0A";
        let outcome = browser.get(&world, &format!("{path}?{said}&{state}")).await;
        assert_eq!(outcome.code(), (401, "login_refused"));
        let wanted = if shown {
            "Unauthorized (login_refused: the provider did not let the user in): \
                 access_denied: No such ?group??"
        } else {
            "Unauthorized"
        };
        assert_eq!(outcome.message(), wanted);
    }
}

#[tokio::test]
async fn an_id_token_that_is_wrong_is_not_called_the_access_token() {
    for (id_token, code) in [
        ("a.b.c.d.e".to_owned(), "encrypted_id_token"),
        ("rubbish".to_owned(), "malformed_id_token"),
        ("x".repeat(20_000), "id_token_too_long"),
        ("eyJhbGciOiJub25lIn0.e30.".to_owned(), "id_token_alg"),
    ] {
        let (world, recorder) = super::request_recorder::world(json!({
            "auth_methods": ["password"], "display_errors": true,
        }));
        let token = world.token(json!({}));
        let answer = json!({"access_token": token, "expires_in": 600, "id_token": id_token});
        recorder.answer("/token", answer);
        let outcome = world.ask(&get_with("Authorization: Basic YW5uYTpz")).await;
        assert_eq!(outcome.code(), (401, code));
        let message = outcome.message();
        assert!(!message.contains("access token"), "{message}");
    }
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
        (json!({"exp": NOW - 1}), (401, "id_token_expired")),
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
    assert_eq!(browser.0.len(), 2, "two small cookies");
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
async fn twenty_tabs_of_a_browser_that_was_never_here_begin_at_the_same_moment() {
    let (world, provider) = world(json!({}));
    let mut browser = Browser::default();
    let mut backs = Vec::new();
    for tab in 0..20 {
        let target = format!("/orders?tab={tab}");
        let outcome = Browser::default().get(&world, &target).await;
        backs.push(answer_to(&outcome));
        browser.take(&outcome);
    }
    let signed_out = browser.clone();
    for back in &backs {
        let outcome = signed_out.clone().get(&world, back).await;
        assert_eq!(outcome.code(), (200, "pass"));
        let elsewhere = Browser::default().get(&world, back).await;
        assert_eq!(elsewhere.code(), (401, "foreign_login"));
    }
    assert_eq!(provider.asked("authorization_code"), 20);
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
    let (world, _) = super::browser::world(json!({
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
async fn a_state_of_an_application_is_no_answer_to_a_login() {
    let (world, _) = world(json!({"redirect_uri": ["https://orders.test/callback"],
        "auth_methods": ["session", "bearer", "authorization_code"]}));
    let token = world.token(json!({}));
    let shown = get_with(&format!("Authorization: Bearer {token}"));
    let elsewhere = shown.replace("Host: orders", "Host: other");
    for (request, target, code) in [
        (&shown, "/callback?state=open", (200, "pass")),
        (&elsewhere, "/callback?state=x&code=x", (200, "pass")),
        (&shown, "/callback?state=x&code=x", (401, "forged_state")),
        (&shown, "/callback?state=x&error=x", (401, "forged_state")),
        (&elsewhere, "/callback?state=dw1.x", (401, "forged_state")),
    ] {
        let outcome = world.ask(&request.replace("/orders", target)).await;
        assert_eq!(outcome.code(), code, "{target}");
    }
    let mut browser = Browser::default();
    let back = browser.begin(&world, "/orders").await;
    location(&browser.get(&world, &back).await);
    let outcome = browser.get(&world, "/callback?state=open").await;
    assert_eq!(outcome.code(), (200, "pass"), "by the session");
}

#[tokio::test]
async fn an_answer_without_a_state_begins_no_other_login() {
    let methods = json!(["session", "bearer", "authorization_code"]);
    for (config, path) in [
        (
            json!({"redirect_uri": ["https://orders.test/callback"]}),
            "/callback",
        ),
        // Without one, the provider leads back to where the login began.
        (json!({}), "/orders"),
    ] {
        let mut config = config;
        config["auth_methods"] = methods.clone();
        let (world, _) = world(config);
        let mut browser = Browser::default();
        let back = browser.begin(&world, "/orders").await;
        for query in [
            "code=abc",
            "error=access_denied",
            "code=abc&iss=http://id.test",
            "response=x.y.z",
        ] {
            let outcome = browser.get(&world, &format!("{path}?{query}")).await;
            assert_eq!(
                outcome.code(),
                (400, "malformed_callback"),
                "{path} {query}"
            );
        }
        // The login itself may still end, and then the page is the application's.
        assert!(matches!(
            browser.get(&world, &back).await.code().0,
            200 | 302
        ));
        let outcome = browser.get(&world, "/orders?code=abc").await;
        assert_eq!(outcome.code(), (200, "pass"), "{path}");
    }
}

#[tokio::test]
async fn a_page_of_an_application_may_have_a_code_of_its_own() {
    let (world, _) = world(json!({}));
    let mut browser = Browser::default();
    let invited = "/invite?code=mine";
    for target in [invited, invited, "/orders", invited, "/invite?error=none"] {
        let outcome = browser.get(&world, target).await;
        match target {
            // The last login began at the same path: this may be its answer.
            "/invite?error=none" => assert_eq!(outcome.code(), (400, "malformed_callback")),
            _ => assert!(location(&outcome).starts_with("http://id.test/oauth2/authorize?")),
        }
    }
    let back = browser.begin(&world, invited).await;
    let outcome = browser.get(&world, &back).await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert_eq!(outcome.upstream.uri.to_string(), invited);
    assert_eq!(browser.get(&world, invited).await.code(), (200, "pass"));
    // Elsewhere than at `redirect_uri` a code is always the application's.
    let (world, _) = super::browser::world(json!({"redirect_uri": ["https://orders.test/cb"]}));
    let mut browser = Browser::default();
    for target in ["/invite?code=a", "/invite?code=b", "/cb"] {
        location(&browser.get(&world, target).await);
    }
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

/// A login that `browser` begins at a host.
async fn begun_at(world: &World, browser: &mut Browser, host: &str) -> String {
    let request = browser.request("/orders?x").replace("orders.test", host);
    let outcome = world.ask(&request).await;
    browser.take(&outcome);
    answer_to(&outcome)
}

#[tokio::test]
async fn open_redirect_by_a_state_that_was_made_at_the_attackers_host() {
    let (world, _) = world(json!({}));
    let mut attacker = Browser::default();
    let back = begun_at(&world, &mut attacker, "evil.test").await;
    let (path, query) = back.split_once('?').unwrap();
    let state = query.split_once('&').unwrap().1;
    let link = format!("{path}?{state}");
    let mut victim = Browser::signed_in(&world).await;
    assert_eq!(
        victim.get(&world, &link).await.code(),
        (401, "foreign_login")
    );
    // Nor with the attacker's cookie, should that have got into the browser.
    let planted = attacker.0["authorization"].clone();
    for mut victim in [victim, Browser::default()] {
        victim.0.insert("authorization".to_owned(), planted.clone());
        for target in [&link, &back] {
            let outcome = victim.get(&world, target).await;
            assert_eq!(outcome.code(), (401, "foreign_login"), "{target}");
        }
    }
}

#[tokio::test]
async fn a_login_leads_back_to_another_host_that_shares_its_cookies() {
    let (world, _) = world(json!({"authorization_cookie_domain": "example.com",
        "redirect_uri": ["http://login.example.com/callback"]}));
    let mut browser = Browser::default();
    let back = begun_at(&world, &mut browser, "app.example.com").await;
    let there = browser
        .request(&back)
        .replace("orders.test", "login.example.com");
    let outcome = world.ask(&there).await;
    assert_eq!(location(&outcome), "http://app.example.com/orders?x");
    let there = there.replace("login.example.com", "login.badexample.com");
    assert_eq!(world.ask(&there).await.code(), (401, "foreign_login"));
}

#[tokio::test]
async fn users_of_issuers_that_are_named_in_place_of_the_discovered_one_get_in() {
    let tenant = json!({"iss": "http://id.test/t1"});
    let (world, provider) = world(json!({"issuers_allowed": ["http://id.test/t1", ISSUER]}));
    *provider.twist.lock().unwrap() = tenant;
    let mut browser = Browser::default();
    let back = browser.begin(&world, "/orders").await;
    assert_eq!(browser.get(&world, &back).await.code(), (200, "pass"));
}

#[tokio::test]
async fn a_page_full_of_requests_that_differ_in_a_header_shows_a_refresh_token_once() {
    let (world, provider) = world(json!({"token_headers_client": ["x-trace"]}));
    let browser = Browser::signed_in(&world).await;
    world.clock.advance(300_000);
    let requests: Vec<_> = (0..6)
        .map(|n| {
            browser
                .request("/orders")
                .replace("Host:", &format!("X-Trace: {n}\r\nHost:"))
        })
        .collect();
    let asks = requests.iter().map(|request| world.ask(request));
    for outcome in futures_util::future::join_all(asks).await {
        assert_eq!(outcome.code(), (200, "pass"));
    }
    assert_eq!(provider.asked("refresh_token"), 1);
}

#[tokio::test]
async fn scopes_that_were_asked_for_are_granted_where_the_answer_names_none() {
    let (world, provider) = world(json!({"scopes": ["openid", "orders"],
        "scopes_required": ["orders"], "audience": ["api"]}));
    provider.opaque.store(true, Ordering::SeqCst);
    let mut browser = Browser::default();
    let back = browser.begin(&world, "/orders").await;
    for target in [&back, "/orders"] {
        assert_eq!(browser.get(&world, target).await.code(), (200, "pass"));
    }
    let (world, provider) = super::browser::world(json!({"scopes_required": ["orders"]}));
    provider.opaque.store(true, Ordering::SeqCst);
    let mut browser = Browser::default();
    let back = browser.begin(&world, "/orders").await;
    let outcome = browser.get(&world, &back).await;
    assert_eq!(outcome.code(), (403, "missing_scope"));
}
