//! Whose answers are whose, and what of a request is in the key or goes around it.

use super::*;

#[tokio::test]
async fn users_who_share_a_credential_do_not_share_answers() {
    let header = |name: &'static str, value: &'static str| {
        let field = (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
        move |exchange: &mut Exchange| exchange.vouched.push(field)
    };
    // Tokens that one credential has signed, wherever they are.
    let signed = |signature: &[u8]| {
        let signature = Some(signature.to_vec());
        caller_with(|exchange| exchange.token_signature = signature)
    };
    // Users and scopes of one application.
    let user = |name| caller_with(header("x-authenticated-userid", name));
    let scope = |name| caller_with(header("x-authenticated-scope", name));
    for (one, same, other) in [
        (signed(b"1"), signed(b"1"), signed(b"2")),
        (user("anna"), user("anna"), user("bert")),
        (scope("read"), scope("read"), scope("admin")),
    ] {
        let cache = Cache::new(&json!({}));
        let got = cache.ask_as(one, "GET /", "", &[], "one").await;
        assert_eq!(got.0, "Miss");
        let got = cache.ask_as(other, "GET /", "", &[], "other").await;
        assert_eq!(got, ("Miss".into(), "other".into()));
        let got = cache.ask_as(same, "GET /", "", &[], "").await;
        assert_eq!(got, ("Hit".into(), "one".into()));
    }
}

#[tokio::test]
async fn what_the_upstream_gets_as_authorization_tells_answers_apart() {
    let cache = Cache::new(&json!({}));
    let ask = async |line: &str, fields: &str, body: &str| {
        cache.ask_as(caller(1), line, fields, &[], body).await
    };
    let anna = "Authorization: Basic YW5uYTph\r\n";
    let bert = "Authorization: Basic YmVydDpi\r\n";
    assert_eq!(ask("GET /", anna, "annas").await.0, "Miss");
    assert_eq!(ask("GET /", bert, "berts").await.0, "Miss");
    assert_eq!(ask("GET /", "", "nobodys").await.0, "Miss");
    assert_eq!(ask("GET /", anna, "").await, ("Hit".into(), "annas".into()));
    // A signature is another one for each request, and the credential is the user.
    let signed = |number: u8| {
        let fields = format!("Authorization: hmac username=\"a\", signature=\"{number}\"\r\n");
        let exchange = caller_with(|exchange| exchange.is_signed = true);
        (exchange, fields)
    };
    for (number, status) in [(1, "Miss"), (2, "Hit")] {
        let (exchange, fields) = signed(number);
        let got = cache.ask_as(exchange, "GET /s", &fields, &[], "x").await;
        assert_eq!(got.0, status);
    }
    // Who has signed nothing is told apart by it.
    let (_, fields) = signed(3);
    assert_eq!(ask("GET /s", &fields, "").await.0, "Miss");
}

#[tokio::test]
async fn an_anonymous_consumer_shares_neither_credentials_nor_private_answers() {
    let cache = Cache::new(&json!({}));
    let anonymous = || caller_with(|exchange| exchange.credential = None);
    let fields = "Authorization: Basic YW5uYTph\r\n";
    let got = cache
        .ask_as(anonymous(), "GET /", fields, &[], "annas")
        .await;
    assert_eq!(got.0, "Bypass");
    let private = [("cache-control", "private")];
    let got = cache.ask_as(anonymous(), "GET /", "", &private, "x").await;
    assert_eq!(got.0, "Bypass");
    assert_eq!(
        cache.ask_as(anonymous(), "GET /", "", &[], "all").await.0,
        "Miss"
    );
    assert_eq!(
        cache.ask_as(anonymous(), "GET /", "", &[], "").await.0,
        "Hit"
    );
}

#[tokio::test]
async fn identifiers_of_requests_do_not_tell_answers_apart() {
    let cache = Cache::new(&json!({}));
    let numbered = |id: &'static str| {
        caller_with(|exchange| {
            let id = HeaderValue::from_static(id);
            let name = HeaderName::from_static("kong-request-id");
            exchange.correlation_id = Some(id.clone());
            exchange.vouched.push((name, id));
        })
    };
    for (id, status) in [("1", "Miss"), ("2", "Hit")] {
        let got = cache.ask_as(numbered(id), "GET /", "", &[], "x").await;
        assert_eq!(got.0, status);
    }
}

#[tokio::test]
async fn a_request_for_a_part_gets_the_whole_or_goes_around_the_cache() {
    let cache = Cache::new(&json!({}));
    let range = "Range: bytes=0-1\r\n";
    assert_eq!(cache.status("GET /", range, &[]).await, "Bypass");
    assert_eq!(cache.status("GET /", "", &[]).await, "Miss");
    let got = cache.ask("GET /", range, &[], "no").await;
    assert_eq!(got, ("Hit".into(), "body".into()));
}

#[tokio::test]
async fn poisoning_by_conditions_ranges_and_expectations_is_not_stored() {
    let codes = [200, 206, 304, 412, 416, 417];
    let cache = Cache::new(&json!({"response_code": codes}));
    for status in &codes[1..] {
        let (mut session, _client) = session("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
        let mut exchange = Exchange::default();
        let passed = decide(&*cache.filter, &mut session, &mut exchange).await;
        assert!(passed.is_none(), "{status}");
        let mut response = ResponseHeader::build(*status, None).unwrap();
        response
            .insert_header(header::CONTENT_TYPE, "text/plain")
            .unwrap();
        let request = session.req_header();
        let flow = cache
            .filter
            .on_upstream_response(request, &mut exchange, &mut response);
        assert!(matches!(flow.await, ResponseFlow::Continue), "{status}");
    }
    // A condition of the client says nothing of a whole answer.
    let fields = "If-None-Match: \"a\"\r\n";
    assert_eq!(cache.status("GET /", fields, &[]).await, "Miss");
    assert_eq!(cache.status("GET /", fields, &[]).await, "Hit");
    assert_eq!(cache.status("GET /", "", &[]).await, "Hit");
}

#[tokio::test]
async fn a_stale_answer_is_for_those_who_take_one_unless_its_origin_forbids_it() {
    let cache = Cache::new(&json!({"cache_control": true, "storage_ttl": 100}));
    let takes_stale = "Cache-Control: max-stale=5\r\n";
    for (path, directives, status) in [
        ("GET /a", "max-age=1", "Hit"),
        ("GET /b", "max-age=1, must-revalidate", "Refresh"),
        ("GET /c", "max-age=1, proxy-revalidate", "Refresh"),
        ("GET /d", "s-maxage=1", "Refresh"),
    ] {
        let answer = [("cache-control", directives)];
        assert_eq!(cache.status(path, "", &answer).await, "Miss");
        cache.parts.clock.advance(3000);
        let got = cache.status(path, takes_stale, &answer).await;
        assert_eq!(got, status, "{directives}");
    }
}

#[tokio::test]
async fn cache_control_of_a_client_is_without_effect_where_it_is_not_asked_for() {
    let cache = Cache::new(&json!({}));
    let fields = |directive| format!("Cache-Control: {directive}\r\n");
    assert_eq!(
        cache.status("GET /", &fields("only-if-cached"), &[]).await,
        "Miss"
    );
    for directive in ["no-store", "no-cache", "max-age=0", "only-if-cached"] {
        let got = cache.status("GET /", &fields(directive), &[]).await;
        assert_eq!(got, "Hit", "{directive}");
    }
}

#[tokio::test]
async fn overrides_count_with_underscores_too() {
    let cache = Cache::new(&json!({}));
    for header in [
        "X_Original_URL",
        "x_http-method_override",
        "X-Forwarded_Server",
    ] {
        let fields = format!("{header}: evil\r\n");
        let got = cache.status("GET /", &fields, &[]).await;
        assert_eq!(got, "Bypass", "{header}");
    }
    assert_eq!(cache.status("GET /", "X_Other: a\r\n", &[]).await, "Miss");
}

#[tokio::test]
async fn a_long_key_tells_requests_apart_to_its_end() {
    let cache = Cache::new(&json!({}));
    let long = "x".repeat(4000);
    for end in ["a", "b"] {
        let line = format!("GET /?{long}{end}");
        let got = cache.ask(&line, "", &[], end).await;
        assert_eq!(got, ("Miss".into(), end.into()));
        assert_eq!(
            cache.ask(&line, "", &[], "").await,
            ("Hit".into(), end.into())
        );
    }
}
