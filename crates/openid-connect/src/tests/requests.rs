//! Requests: where the token is found, and what the upstream gets.

use tokio::io::AsyncReadExt;

use super::*;

fn post(content_type: &str, body: &str) -> String {
    format!(
        "POST /orders HTTP/1.1\r\nHost: orders.test\r\nContent-Type: {content_type}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json; charset=utf-8";

#[tokio::test]
async fn a_token_is_found_in_every_configured_place() {
    let world = World::new(json!({}));
    let token = world.token(json!({}));
    for request in [
        get_with(&format!("Authorization: Bearer {token}")),
        get_with(&format!("authorization: bEaReR   {token}")),
        get_with(&format!("Access-Token: {token}")),
        get_with(&format!("X-Access-Token: Bearer {token}")),
        get_with(&format!(
            "Authorization: Basic eDp5\r\nX-Access-Token: {token}"
        )),
        get_with("X: y").replace("/orders", &format!("/orders?a=1&access_token={token}")),
        post(FORM, &format!("a=1&access_token={token}")),
        post(JSON, &json!({"a": [1], "access_token": token}).to_string()),
    ] {
        let outcome = world.ask(&request).await;
        assert_eq!(outcome.code(), (200, "pass"), "{request}");
        let found = outcome.exchange.token.as_ref().unwrap();
        assert_eq!(found.token, token);
        assert_eq!(found.subject(), Some("anna"));
        assert_eq!(found.scopes, ["openid"]);
        let bearer = format!("Bearer {token}");
        assert_eq!(outcome.upstream("authorization"), Some(bearer.as_str()));
        assert_eq!(outcome.upstream("x-credential-identifier"), Some("anna"));
    }
    assert_eq!(world.metric("pass"), 8);
}

#[tokio::test]
async fn a_place_that_is_not_configured_is_not_searched() {
    let token = World::new(json!({})).token(json!({}));
    let header = get_with(&format!("Authorization: Bearer {token}"));
    let query = get_with("X: y").replace("/orders", &format!("/orders?access_token={token}"));
    let form = post(FORM, &format!("access_token={token}"));
    let cookie = get_with(&format!("Cookie: a=b; tok={token}"));
    for (place, allowed) in [("header", 0), ("query", 1), ("body", 2), ("cookie", 3)] {
        let world = World::new(json!({
            "bearer_token_param_type": [place],
            "bearer_token_cookie_name": "tok",
            "verify_signature": false,
        }));
        for (index, request) in [&header, &query, &form, &cookie].into_iter().enumerate() {
            let code = world.ask(request).await.code().0;
            assert_eq!(
                code,
                if index == allowed { 200 } else { 401 },
                "{place} {index}"
            );
        }
    }
}

#[tokio::test]
async fn a_request_without_a_token_gets_a_bare_challenge() {
    let world = World::new(json!({}));
    for request in [
        get_with("X: y"),
        get_with("Authorization: Basic eDp5"),
        get_with("Authorization: Bearerx"),
        get_with("Cookie: session=abc"),
        get_with("X: y").replace("/orders", "/orders?a=b&access_tokens=x"),
        get_with("X-Access-Token: \r\nX: y").replace("/orders", "/orders?access_token="),
        post(FORM, "a=b&access_token="),
        post(JSON, "{\"access_token\":null}"),
        post(JSON, "{\"access_token\":\"a\",\"access_token\":\"b\"}"),
        post(JSON, "[\"a\"]"),
        post(JSON, "\"a\""),
        post(JSON, "not json"),
        post("text/plain", "access_token=x"),
    ] {
        let outcome = world.ask(&request).await;
        assert_eq!(outcome.code(), (401, "no_token"), "{request}");
        let reply = outcome.reply.as_ref().unwrap();
        let challenge = &reply
            .headers
            .iter()
            .find(|(name, _)| name == "www-authenticate");
        assert_eq!(challenge.unwrap().1, "Bearer realm=\"id.test\"");
        assert_eq!(outcome.message(), "Unauthorized");
    }
}

#[tokio::test]
async fn what_is_no_token_is_refused() {
    let world = World::new(json!({}));
    for bad in ["", "x", "a.b.c", "a b", "\"a\"", "opaque-token"] {
        let outcome = world.ask_bearer(bad).await;
        assert_eq!(outcome.code(), (401, "malformed_token"), "{bad}");
    }
    let outcome = world.ask_bearer("a.b.c.d.e").await;
    assert_eq!(outcome.code(), (401, "encrypted_token"));
    assert_eq!(world.issuer.discoveries(), 0);
}

#[tokio::test]
async fn a_body_that_was_read_is_still_there_for_the_upstream() {
    let world = World::new(json!({}));
    let body = format!("access_token={}&a=1", world.token(json!({})));
    let (mut session, _client) = session(&post(FORM, &body)).await;
    let mut exchange = Exchange::default();
    let reply = decide(&*world.filter, &mut session, &mut exchange).await;
    assert!(reply.is_none());
    assert_eq!(exchange.body.as_deref(), Some(body.as_bytes()));
    let replay = session.get_retry_buffer();
    assert_eq!(replay.as_deref(), Some(body.as_bytes()));
}

#[tokio::test]
async fn a_client_that_expects_100_continue_gets_it() {
    let world = World::new(json!({}));
    let body = format!("access_token={}", world.token(json!({})));
    let request = post(FORM, &body).replace("Content-Type", "Expect: 100-continue\r\nContent-Type");
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let (mut session, mut client) = session(&format!("{head}\r\n\r\n")).await;
    let mut exchange = Exchange::default();
    let client = async {
        let mut answer = [0; 25];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 100 Continue\r\n\r\n");
        client.write_all(body.as_bytes()).await.unwrap();
        client
    };
    let server = decide(&*world.filter, &mut session, &mut exchange);
    let (reply, _client) = tokio::join!(server, client);
    assert!(reply.is_none());
    let mut upstream = session.req_header().clone();
    world
        .filter
        .on_upstream_request(&exchange, &mut UpstreamRequest::new(&mut upstream));
    assert!(!upstream.headers.contains_key("expect"));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_comes_hangs_nobody() {
    let world = World::new(json!({}));
    let request = post(FORM, "access_token=x").replace("access_token=x", "");
    let outcome = world.ask(&request).await;
    assert_eq!(outcome.code(), (408, "body_timeout"));
}

#[tokio::test]
async fn bodies_that_cannot_be_replayed_are_not_read() {
    let world = World::new(json!({}));
    let token = world.token(json!({}));
    let long = format!("access_token={token}&pad={}", "x".repeat(65_536));
    let gzip = post(FORM, &format!("access_token={token}"))
        .replace("Content-Type", "Content-Encoding: gzip\r\nContent-Type");
    for request in [&post(FORM, &long), &gzip] {
        let outcome = world.ask(request).await;
        assert_eq!(outcome.code(), (401, "no_token"));
        assert!(outcome.exchange.body.is_none());
    }
}

/// A form in chunks of which nobody knows how many come.
fn chunked(pieces: &[&str]) -> String {
    let mut request = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\
                       Content-Type: application/x-www-form-urlencoded\r\n\r\n"
        .to_owned();
    for piece in pieces {
        request.push_str(&format!("{:x}\r\n{piece}\r\n", piece.len()));
    }
    request + "0\r\n\r\n"
}

#[tokio::test]
async fn a_token_in_a_chunked_form_is_found() {
    let world = World::new(json!({}));
    let token = world.token(json!({}));
    let (start, end) = token.split_at(20);
    let outcome = world.ask(&chunked(&["access_token=", start, end])).await;
    assert_eq!(outcome.code(), (200, "pass"));
    let outcome = world.ask(&chunked(&["a=b"])).await;
    assert_eq!(outcome.code(), (401, "no_token"));
    let outcome = world.ask(&chunked(&[])).await;
    assert_eq!(outcome.code(), (401, "no_token"));
}

#[tokio::test]
async fn a_chunked_form_without_end_is_refused() {
    let world = World::new(json!({}));
    let pad = "x".repeat(40_000);
    let outcome = world.ask(&chunked(&["pad=", &pad, &pad])).await;
    assert_eq!(outcome.code(), (413, "body_too_long"));
}

#[tokio::test]
async fn hidden_credentials_do_not_reach_the_upstream() {
    let world = World::new(json!({
        "hide_credentials": true,
        "upstream_access_token_header": null,
        "bearer_token_param_type": ["header", "query", "cookie"],
        "bearer_token_cookie_name": "tok",
    }));
    let token = world.token(json!({}));
    let outcome = world.ask_bearer(&token).await;
    assert_eq!(outcome.upstream("authorization"), None);
    let outcome = world
        .ask(&get_with(&format!("X-Access-Token: {token}")))
        .await;
    assert_eq!(outcome.upstream("x-access-token"), None);
    let basic = format!("Authorization: Basic eDp5\r\nX-Access-Token: {token}");
    let outcome = world.ask(&get_with(&basic)).await;
    assert_eq!(outcome.upstream("authorization"), Some("Basic eDp5"));
    let outcome = world
        .ask(&get_with(&format!("Cookie: a=b; tok={token}; c=d")))
        .await;
    assert_eq!(outcome.upstream("cookie"), Some("a=b; c=d"));
    for (sent, seen) in [
        (format!("?access_token={token}"), "/orders".to_owned()),
        (
            format!("?a=%2F+x&access%5Ftoken={token}&b"),
            "/orders?a=%2F+x&b".to_owned(),
        ),
    ] {
        let request = get_with("X: y").replace("/orders", &format!("/orders{sent}"));
        let outcome = world.ask(&request).await;
        assert_eq!(outcome.code(), (200, "pass"));
        assert_eq!(outcome.upstream.raw_path(), seen.as_bytes());
    }
}

#[tokio::test]
async fn answers_to_a_token_in_the_query_are_private() {
    let world = World::new(json!({}));
    let request = format!("/orders?access_token={}", world.token(json!({})));
    let outcome = world
        .ask(&get_with("X: y").replace("/orders", &request))
        .await;
    assert!(outcome.exchange.token_in_query);
    let mut response = ResponseHeader::build(200, None).unwrap();
    response
        .insert_header("Cache-Control", "public, max-age=60")
        .unwrap();
    world.filter.on_response(&outcome.exchange, &mut response);
    assert_eq!(response.headers["cache-control"], "private");
    response.insert_header("Cache-Control", "no-store").unwrap();
    world.filter.on_response(&outcome.exchange, &mut response);
    assert_eq!(response.headers["cache-control"], "no-store");
}

#[tokio::test]
async fn a_preflight_passes_only_when_told_so() {
    let options = get_with("Origin: https://a").replace("GET", "OPTIONS");
    let world = World::new(json!({}));
    assert_eq!(world.ask(&options).await.code(), (401, "no_token"));
    let world = World::new(json!({"run_on_preflight": false}));
    assert_eq!(world.ask(&options).await.code(), (200, "pass"));
    assert_eq!(world.ask(&get_with("X: y")).await.code().0, 401);
}

#[tokio::test]
async fn a_preflight_that_passes_brings_no_forged_token() {
    let world = World::new(json!({"run_on_preflight": false}));
    for (sent, seen) in [
        ("Bearer junk", None),
        ("DPoP junk", None),
        ("Basic eDp5", Some("Basic eDp5")),
    ] {
        let request = get_with(&format!("Authorization: {sent}")).replace("GET", "OPTIONS");
        let outcome = world.ask(&request).await;
        assert_eq!(outcome.code(), (200, "pass"), "{sent}");
        assert_eq!(outcome.upstream("authorization"), seen, "{sent}");
    }
}

/// A request with tokens in every place that nobody has looked at.
fn forged(cookies: &str) -> String {
    let headers = format!(
        "Authorization: Bearer forged.by.me\r\nX-Access-Token: forged2\r\n\
         Access-Token: forged3\r\nX-Own: forged4\r\nCookie: {cookies}tok=forged5; a=\u{e9}"
    );
    get_with(&headers).replace("/orders", "/orders?a=1&access_token=forged6")
}

/// What of it reaches the upstream besides.
fn assert_nothing_is_forged(outcome: &Outcome) {
    for name in ["authorization", "x-access-token", "access-token", "x-own"] {
        assert_eq!(outcome.upstream(name), None, "{name}");
    }
    let cookies = outcome.upstream.headers["cookie"].as_bytes();
    assert_eq!(cookies, "a=\u{e9}".as_bytes());
    assert_eq!(outcome.upstream.raw_path(), b"/orders?a=1");
}

fn with_every_place() -> Value {
    json!({"upstream_access_token_header": null, "run_on_preflight": false,
        "bearer_token_param_type": ["header", "query", "body", "cookie"],
        "bearer_token_cookie_name": "tok", "bearer_token_header_name": "X-Own"})
}

#[tokio::test]
async fn tokens_that_nobody_looked_at_do_not_reach_the_upstream_beside_a_session() {
    let (world, _) = super::browser::world(with_every_place());
    let browser = super::browser::Browser::signed_in(&world).await;
    let cookies = format!("session={}; ", browser.0["session"]);
    let outcome = world.ask(&forged(&cookies)).await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert_eq!(outcome.upstream("x-credential-identifier"), Some("anna"));
    assert_nothing_is_forged(&outcome);
    // Each alone, and what only looks as if it were the session's.
    let access = outcome.exchange.token.as_ref().unwrap().token.clone();
    for (header, name) in [
        ("X-Access-Token: forged".to_owned(), "x-access-token"),
        ("Authorization: Bearer forged".to_owned(), "authorization"),
        ("Authorization: Bearer".to_owned(), "authorization"),
        (format!("X-Own: {access}\r\nX-Own: forged"), "x-own"),
    ] {
        let request = get_with(&format!("Cookie: {cookies}\r\n{header}"));
        let outcome = world.ask(&request).await;
        assert_eq!(outcome.code(), (200, "pass"), "{header}");
        assert_eq!(outcome.upstream(name), None, "{header}");
    }
}

#[tokio::test]
async fn tokens_that_nobody_looked_at_do_not_reach_the_upstream_with_a_preflight() {
    let world = World::new(with_every_place());
    let outcome = world.ask(&forged("").replace("GET", "OPTIONS")).await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert_nothing_is_forged(&outcome);
}

#[tokio::test]
async fn a_cookie_beside_the_token_that_counts_must_hold_the_same() {
    let world = World::new(with_every_place());
    let token = world.token(json!({}));
    let bearer = format!("Bearer {token}");
    for (cookies, seen, kept) in [
        (
            format!("tok={token}; a=b"),
            true,
            format!("tok={token}; a=b"),
        ),
        ("tok=; a=b".to_owned(), true, "tok=; a=b".to_owned()),
        ("tok=forged; a=b".to_owned(), false, "a=b".to_owned()),
        (
            format!("tok={token}; tok=forged; a=b"),
            false,
            "a=b".to_owned(),
        ),
    ] {
        let headers = format!("Authorization: {bearer}\r\nCookie: {cookies}");
        let outcome = world.ask(&get_with(&headers)).await;
        assert_eq!(outcome.code(), (200, "pass"), "{cookies}");
        let passed = outcome.upstream("authorization") == Some(&bearer);
        assert_eq!(passed, seen, "{cookies}");
        assert_eq!(outcome.upstream("cookie"), Some(kept.as_str()));
    }
}

#[tokio::test]
async fn a_bound_session_cookie_must_match_the_token() {
    let world = World::new(json!({"jwt_session_cookie": "app"}));
    let bound = world.token(json!({"sid": "s1"}));
    let free = world.token(json!({}));
    for (token, cookie, code) in [
        (&bound, "app=s1", (200, "pass")),
        (&bound, "app=s2", (401, "wrong_session")),
        (&bound, "x=s1", (401, "wrong_session")),
        (&free, "app=s1", (401, "wrong_session")),
    ] {
        let headers = format!("Authorization: Bearer {token}\r\nCookie: {cookie}");
        assert_eq!(
            world.ask(&get_with(&headers)).await.code(),
            code,
            "{cookie}"
        );
    }
}

#[tokio::test]
async fn without_the_bearer_method_no_token_passes() {
    let world = World::new(json!({"auth_methods": ["session", "password"]}));
    let outcome = world.ask_bearer(&world.token(json!({}))).await;
    assert_eq!(outcome.code(), (401, "no_token"));
}

#[tokio::test]
async fn a_repeated_token_is_decided_at_once() {
    let world = World::new(json!({}));
    let token = world.token(json!({}));
    assert_eq!(world.ask_bearer(&token).await.code(), (200, "pass"));
    let (mut session, _client) =
        session(&get_with(&format!("Authorization: Bearer {token}"))).await;
    let mut exchange = Exchange::default();
    let verdict = world.filter.on_request(&mut session, &mut exchange);
    assert!(matches!(verdict, Verdict::Now(Flow::Continue)));
    assert!(exchange.token.is_some());
}

#[test]
fn methods_without_effect_are_named_once() {
    let world = World::new(json!({}));
    let warnings = world.filter.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("authorization_code") && !warnings[0].contains("bearer,"));
    let world = World::new(json!({"auth_methods": ["bearer"], "ssl_verify": true}));
    assert!(world.filter.warnings().is_empty());
    let world = World::new(json!({"auth_methods": ["bearer"], "verify_signature": false}));
    assert!(world.filter.warnings()[0].contains("verify_signature"));
}

#[test]
fn nonsense_is_refused_with_the_field() {
    let world = World::new(json!({}));
    for (config, field) in [
        (json!({"issuer": null}), "issuer"),
        (json!({"issuer": "id"}), "issuer"),
        (json!({"leeway": -1}), "leeway"),
        (json!({"timeout": 0}), "timeout"),
        (json!({"http_version": 3}), "http_version"),
        (json!({"scopes_required": [1]}), "scopes_required"),
        (json!({"enable_hs_signatures": true}), "client_secret"),
        (
            json!({"proof_of_possession_dpop": "strict"}),
            "auth_methods",
        ),
        (
            json!({"proof_of_possession_mtls_from_header": "x-cert"}),
            "proof_of_possession_mtls_from_header",
        ),
        (
            json!({"unauthorized_redirect_uri": ["x"]}),
            "unauthorized_redirect_uri",
        ),
        (
            json!({"bearer_token_param_type": ["cookie"]}),
            "bearer_token_cookie_name",
        ),
    ] {
        match filter(&world.parts, config.clone()) {
            Ok(_) => panic!("{config} was taken"),
            Err(error) => {
                let (named, _) = error.field.split_once('.').unwrap_or((&error.field, ""));
                assert_eq!(named, field, "{config}");
            }
        }
    }
}

#[tokio::test]
async fn null_switches_no_check_off() {
    let mut config = json!({"issuer": ISSUER, "upstream_headers": null});
    for field in &(KIND.schema)().fields {
        let keep = matches!(
            field.name,
            "issuer" | "bearer_token_param_type" | "auth_methods"
        );
        if !keep {
            config[field.name] = Value::Null;
        }
    }
    let world = World::new(config);
    let forger = TestKey::es256("key-1");
    let outcome = world.ask_bearer(&forger.token(&claims(json!({})))).await;
    assert_eq!(outcome.code(), (401, "bad_signature"));
    let expired = world.token(json!({"exp": NOW}));
    assert_eq!(
        world.ask_bearer(&expired).await.code(),
        (401, "token_expired")
    );
    assert_eq!(
        world.ask_bearer(&world.token(json!({}))).await.code().0,
        200
    );
}

#[test]
fn the_least_configuration_is_completed_and_built() {
    let world = World::new(json!({}));
    let least = json!({"issuer": ISSUER, "client_id": ["a"], "client_secret": ["b"]});
    let complete = (KIND.schema)().complete(least.as_object().unwrap().clone());
    let complete = complete.unwrap();
    assert_eq!(complete.len(), (KIND.schema)().fields.len());
    assert!((KIND.build)(&complete, &world.parts).is_ok());
}

#[tokio::test]
async fn a_token_that_tells_no_domain_is_refused_where_one_is_wanted() {
    let config = json!({"auth_methods": ["bearer"], "domains": ["b.c"]});
    let world = World::new(config);
    for (more, code) in [
        (json!({"hd": "b.c"}), (200, "pass")),
        (json!({"hd": "evil.example"}), (403, "wrong_domain")),
        (json!({}), (403, "wrong_domain")),
    ] {
        let outcome = world.ask_bearer(&world.token(more.clone())).await;
        assert_eq!(outcome.code(), code, "{more}");
    }
}

#[tokio::test]
async fn a_cookie_that_is_not_ascii_hides_no_other() {
    let config = json!({"bearer_token_param_type": ["cookie"], "bearer_token_cookie_name": "tok",
        "jwt_session_cookie": "app"});
    let world = World::new(config);
    let token = world.token(json!({"sid": "s-1"}));
    let request = get_with(&format!("Cookie: name=Zoë; app=s-1; tok={token}"));
    assert_eq!(world.ask(&request).await.code(), (200, "pass"));
}
