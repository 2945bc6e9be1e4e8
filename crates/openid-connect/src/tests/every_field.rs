//! Settings one by one, with what each does.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::header::SET_COOKIE;
use pingora::http::ResponseHeader;

use super::browser::{self, Browser, answer_to, location};
use super::request_recorder::world;
use super::*;

fn downstream(outcome: &Outcome, name: &str) -> Option<String> {
    let mut fields = outcome.exchange.response_headers.iter();
    let found = fields.find(|(key, _)| key == name);
    found.map(|(_, value)| value.to_str().unwrap().to_owned())
}

fn object(encoded: &str) -> Value {
    serde_json::from_slice(&STANDARD.decode(encoded).unwrap()).unwrap()
}

fn request(target: &str, headers: &str) -> String {
    get_with(headers).replace("/orders", target)
}

#[tokio::test]
async fn the_token_endpoint_is_told_nothing_twice_and_by_nobody_else_who_asks() {
    let names = [
        "scope",
        "client_id",
        "grant_type",
        "username",
        "client_secret",
        "audience",
    ];
    let (world, recorder) = world(json!({
        "auth_methods": ["password"], "audience": ["orders"], "client_arg": "app",
        "token_post_args_names": ["client_id"], "token_post_args_values": ["fixed"],
        "token_post_args_client": names, "client_auth": ["client_secret_post"],
    }));
    let target =
        "/orders?scope=orders&client_id=x&grant_type=x&username=x&client_secret=x&audience=b";
    let headers = "Authorization: Basic YW5uYTpz";
    let outcome = world.ask(&request(target, headers)).await;
    assert_eq!(outcome.code(), (200, "pass"));
    let noted = recorder.at("/token").remove(0);
    for (name, values) in names.iter().zip([
        &["orders"][..],
        &["gateway"],
        &["password"],
        &["anna"],
        &["g-secret"],
        &["orders", "b"],
    ]) {
        assert_eq!(noted.all(name), values, "{name}");
    }
}

/// The cookies that a browser is given, by name.
fn given(outcome: &Outcome, name: &str) -> String {
    let fields = outcome.exchange.response_headers.iter();
    let mut cookies = fields.filter(|(key, _)| key == SET_COOKIE);
    let begin = format!("{name}=");
    let found = cookies.find_map(|(_, value)| {
        let text = value.to_str().unwrap();
        text.starts_with(&begin).then(|| text.to_owned())
    });
    found.unwrap_or_else(|| panic!("no {name}"))
}

#[tokio::test]
async fn the_token_endpoint_is_sent_what_is_configured_and_copied() {
    let (world, recorder) = world(json!({
        "auth_methods": ["password"],
        "token_post_args_names": ["tenant"], "token_post_args_values": ["t1"],
        "token_post_args_client": ["region"],
        "token_headers_names": ["X-Plan"], "token_headers_values": ["gold"],
        "token_headers_client": ["X-Trace"],
    }));
    let headers = "Authorization: Basic YW5uYTpz\r\nX-Trace: 7\r\nX-Other: 8";
    let outcome = world
        .ask(&request("/orders?region=eu&other=1", headers))
        .await;
    assert_eq!(outcome.code(), (200, "pass"));
    let noted = recorder.at("/token").remove(0);
    assert_eq!(noted.form("tenant"), Some("t1"));
    assert_eq!(noted.form("region"), Some("eu"));
    assert_eq!(noted.form("other"), None);
    assert_eq!(noted.header("x-plan"), Some("gold"));
    assert_eq!(noted.header("x-trace"), Some("7"));
    assert_eq!(noted.header("x-other"), None);
}

#[tokio::test]
async fn userinfo_is_sent_what_is_configured_and_told_as_it_came() {
    let (world, recorder) = world(json!({
        "auth_methods": ["userinfo"], "userinfo_accept": "application/jwt",
        "userinfo_query_args_names": ["fields"], "userinfo_query_args_values": ["all"],
        "userinfo_query_args_client": ["lang"],
        "userinfo_headers_names": ["X-Plan"], "userinfo_headers_values": ["gold"],
        "userinfo_headers_client": ["X-Trace"],
        "upstream_user_info_jwt_header": "x-user-jwt",
        "downstream_user_info_jwt_header": "x-user-jwt",
        "downstream_user_info_header": "x-user",
    }));
    let signed = world.key.token(&json!({"sub": "anna", "iss": ISSUER}));
    recorder.answer("/userinfo", json!(signed));
    let headers = "Authorization: Bearer opaque\r\nX-Trace: 7";
    let outcome = world.ask(&request("/orders?lang=de", headers)).await;
    assert_eq!(outcome.code(), (200, "pass"));
    let noted = recorder.at("/userinfo").remove(0);
    assert_eq!(noted.query["fields"], "all");
    assert_eq!(noted.query["lang"], "de");
    assert_eq!(noted.header("accept"), Some("application/jwt"));
    assert_eq!(noted.header("x-plan"), Some("gold"));
    assert_eq!(noted.header("x-trace"), Some("7"));
    assert_eq!(outcome.upstream("x-user-jwt"), Some(&*signed));
    assert_eq!(downstream(&outcome, "x-user-jwt"), Some(signed));
    let told = object(&downstream(&outcome, "x-user").unwrap());
    assert_eq!(told["sub"], "anna");
}

#[tokio::test]
async fn introspection_is_asked_as_configured_and_told_as_it_came() {
    let accept = "application/token-introspection+jwt";
    let (world, recorder) = world(json!({
        "auth_methods": ["introspection"], "introspection_accept": accept,
        "introspection_token_param_name": "t",
        "upstream_introspection_jwt_header": "x-told-jwt",
        "downstream_introspection_jwt_header": "x-told-jwt",
        "downstream_introspection_header": "x-told",
    }));
    let inside = json!({"active": true, "sub": "anna"});
    let claims = json!({"iss": ISSUER, "aud": "gateway", "iat": NOW,
        "token_introspection": inside});
    let head = json!({"alg": "ES256", "typ": "token-introspection+jwt", "kid": "key-1"});
    let signed = world.key.sign(&head.to_string(), &claims.to_string());
    recorder.answer("/introspect", json!(signed));
    let outcome = world.ask_bearer("opaque").await;
    assert_eq!(outcome.code(), (200, "pass"));
    let noted = recorder.at("/introspect").remove(0);
    assert_eq!(noted.form("t"), Some("opaque"));
    assert_eq!(noted.form("token"), None);
    assert_eq!(noted.header("accept"), Some(accept));
    assert_eq!(outcome.upstream("x-told-jwt"), Some(&*signed));
    assert_eq!(downstream(&outcome, "x-told-jwt"), Some(signed));
    let told = object(&downstream(&outcome, "x-told").unwrap());
    assert_eq!(told["sub"], "anna");
}

#[tokio::test]
async fn an_answer_that_does_not_say_active_passes_where_that_is_not_checked() {
    for (check, code) in [(true, (401, "inactive_token")), (false, (200, "pass"))] {
        let (world, recorder) = world(json!({
            "auth_methods": ["introspection"], "introspection_check_active": check,
        }));
        recorder.answer("/introspect", json!({"sub": "anna"}));
        assert_eq!(world.ask_bearer("opaque").await.code(), code);
    }
}

#[tokio::test]
async fn discovery_is_asked_with_headers() {
    let (world, recorder) = world(json!({
        "auth_methods": ["bearer"],
        "discovery_headers_names": ["X-Key"], "discovery_headers_values": ["k"],
    }));
    world.ask_bearer(&world.token(json!({}))).await;
    let noted = recorder.at("/openid-configuration").remove(0);
    assert_eq!(noted.header("x-key"), Some("k"));
    assert_eq!(recorder.at("/keys").remove(0).header("x-key"), None);
}

#[tokio::test]
async fn a_refresh_token_is_looked_for_where_that_is_configured() {
    let (world, recorder) = world(json!({
        "auth_methods": ["refresh_token"], "refresh_token_param_name": "rt",
        "refresh_token_param_type": ["query"],
    }));
    let outcome = world.ask(&get_with("Rt: r1")).await;
    assert_eq!(outcome.code(), (401, "no_token"));
    assert!(recorder.at("/token").is_empty());
    let outcome = world.ask(&request("/orders?rt=r1", "X-A: b")).await;
    assert_eq!(outcome.code(), (200, "pass"));
    assert_eq!(
        recorder.at("/token").remove(0).form("refresh_token"),
        Some("r1")
    );
}

#[tokio::test]
async fn assertions_are_signed_with_the_algorithm_of_the_client() {
    for (alg, wanted) in [(json!([]), "HS256"), (json!(["HS512"]), "HS512")] {
        let (world, recorder) = world(json!({
            "auth_methods": ["introspection"], "client_auth": ["client_secret_jwt"],
            "client_id": ["gateway"], "client_secret": ["a secret that is long enough ".repeat(3)],
            "client_alg": alg,
        }));
        world.ask_bearer("opaque").await;
        let noted = recorder.at("/introspect").remove(0);
        let assertion = noted.form("client_assertion").unwrap();
        let head = assertion.split('.').next().unwrap();
        let head: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(head).unwrap()).unwrap();
        assert_eq!(head["alg"], wanted);
    }
}

#[tokio::test]
async fn cookies_are_what_is_configured() {
    let (world, _) = browser::world(json!({
        "session_cookie_domain": "orders.test", "session_cookie_http_only": false,
        "session_cookie_same_site": "Strict", "session_cookie_secure": true,
        "session_cookie_path": "/o",
        "authorization_cookie_domain": "orders.test", "authorization_cookie_http_only": false,
        "authorization_cookie_same_site": "None", "authorization_cookie_secure": true,
        "authorization_cookie_path": "/a",
    }));
    let mut browser = Browser::default();
    let begun = browser.get(&world, "/orders").await;
    let ended = browser.get(&world, &answer_to(&begun)).await;
    assert_eq!(ended.code(), (200, "pass"));
    for (outcome, name, path, same_site) in [
        (&begun, "authorization", "/a", "None"),
        (&ended, "session", "/o", "Strict"),
    ] {
        let cookie = given(outcome, name);
        let attributes: Vec<_> = cookie.split("; ").skip(1).collect();
        for wanted in [
            "Domain=orders.test".to_owned(),
            "Secure".to_owned(),
            format!("Path={path}"),
            format!("SameSite={same_site}"),
        ] {
            assert!(attributes.contains(&&*wanted), "{wanted}: {cookie}");
        }
        assert!(!attributes.contains(&"HttpOnly"), "{cookie}");
    }
}

#[tokio::test]
async fn the_newer_names_of_lifetimes_count() {
    for (config, seconds) in [
        (json!({"session_rolling_timeout": 100}), 100),
        (json!({"session_absolute_timeout": 100}), 100),
        (json!({"session_cookie_idletime": 100}), 105),
        (json!({"session_cookie_lifetime": 100}), 100),
    ] {
        let (world, _) = browser::world(config.clone());
        let mut browser = Browser::signed_in(&world).await;
        let mut copy = browser.clone();
        world.clock.advance((seconds - 1) * 1000);
        assert_eq!(
            browser.get(&world, "/orders").await.code(),
            (200, "pass"),
            "{config}"
        );
        world.clock.advance(1000);
        // Who shows the cookie of the login has no session any more.
        assert_eq!(copy.get(&world, "/orders").await.code().0, 302, "{config}");
    }
    for name in [
        "authorization_rolling_timeout",
        "authorization_cookie_lifetime",
    ] {
        let mut config = json!({});
        config[name] = json!(100);
        let (world, _) = browser::world(config);
        let mut browser = Browser::default();
        let back = browser.begin(&world, "/orders").await;
        world.clock.advance(101_000);
        let outcome = browser.get(&world, &back).await;
        assert_eq!(outcome.code(), (401, "login_expired"), "{name}");
    }
}

#[tokio::test]
async fn a_login_asks_with_copied_arguments_and_without_a_challenge() {
    let (world, _) = browser::world(json!({
        "authorization_query_args_names": ["tenant"], "authorization_query_args_values": ["t1"],
        "authorization_query_args_client": ["login_hint"],
        "require_proof_key_for_code_exchange": false,
    }));
    let outcome = Browser::default()
        .get(&world, "/orders?login_hint=anna&x=y")
        .await;
    let url = Url::parse(&location(&outcome)).unwrap();
    let asked: std::collections::HashMap<_, _> = url.query_pairs().into_owned().collect();
    assert_eq!(asked["tenant"], "t1");
    assert_eq!(asked["login_hint"], "anna");
    assert!(!asked.contains_key("x"));
    assert!(!asked.contains_key("code_challenge"));
}

#[tokio::test]
async fn a_logout_revokes_what_and_how_it_is_told() {
    let (world, provider) = browser::world(json!({
        "logout_post_arg": "bye", "logout_revoke": true,
        "logout_revoke_access_token": false, "revocation_token_param_name": "t",
        "revocation_endpoint_auth_method": "client_secret_post",
    }));
    let browser = Browser::signed_in(&world).await;
    let post = |body: &str| {
        let more = format!(
            "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let request = browser.request("/orders").replace("GET ", "POST ");
        format!("{}\r\n{more}", request.trim_end_matches("\r\n"))
    };
    let outcome = world.ask(&post("a=b")).await;
    assert_eq!(outcome.code(), (200, "pass"));
    let outcome = world.ask(&post("bye=1")).await;
    assert_eq!(
        outcome.reply.as_ref().map(|reply| reply.status.as_u16()),
        Some(200)
    );
    let asked = provider.asked.lock().unwrap();
    let revoked: Vec<_> = asked.iter().filter(|form| form.contains_key("t")).collect();
    assert_eq!(revoked.len(), 1);
    assert_eq!(revoked[0]["token_type_hint"], "refresh_token");
    assert_eq!(revoked[0]["client_id"], "gateway");
    assert_eq!(revoked[0]["client_secret"], "g-secret");
}

#[tokio::test]
async fn an_upload_of_unknown_length_passes_where_bodies_may_sign_users_out() {
    let (world, _) = browser::world(json!({
        "logout_post_arg": "bye", "id_token_param_name": "id_token",
    }));
    let browser = Browser::signed_in(&world).await;
    let chunk = "x".repeat(40_000);
    let chunk = format!("{:x}\r\n{chunk}\r\n", chunk.len());
    let more = "Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n";
    let bearer = get_with(&format!("Authorization: Bearer {}", world.token(json!({}))));
    for request in [browser.request("/orders"), bearer] {
        let head = request.replace("GET ", "POST ");
        let head = head.trim_end_matches("\r\n");
        let outcome = world
            .ask(&format!("{head}\r\n{more}{chunk}{chunk}0\r\n\r\n"))
            .await;
        assert_eq!(outcome.code(), (200, "pass"), "{head}");
        assert!(outcome.exchange.body.is_none());
    }
}

#[tokio::test]
async fn a_refresh_token_is_not_revoked_where_that_is_off() {
    let (world, provider) = browser::world(json!({
        "logout_query_arg": "bye", "logout_methods": ["GET"], "logout_revoke": true,
        "logout_revoke_refresh_token": false,
    }));
    let mut browser = Browser::signed_in(&world).await;
    browser.get(&world, "/orders?bye").await;
    let asked = provider.asked.lock().unwrap();
    let hints = asked.iter().filter_map(|form| form.get("token_type_hint"));
    assert_eq!(hints.collect::<Vec<_>>(), ["access_token"]);
}

#[tokio::test]
async fn a_session_outlives_what_does_not_end_it() {
    for (name, rule, status) in [
        (
            "forbidden_destroy_session",
            json!({"scopes_required": ["admin"]}),
            403,
        ),
        (
            "unauthorized_destroy_session",
            json!({"issuers_allowed": ["http://x"]}),
            401,
        ),
    ] {
        for ends in [true, false] {
            let (maker, _) = browser::world(json!({}));
            let mut browser = Browser::signed_in(&maker).await;
            let mut config = rule.clone();
            config[name] = json!(ends);
            config["auth_methods"] = json!(["session"]);
            let (world, _) = browser::world(config);
            world.issuer.publish(&[&maker.key]);
            let outcome = browser.get(&world, "/orders").await;
            assert_eq!(outcome.code().0, status, "{name} {ends}");
            assert_eq!(!browser.0.contains_key("session"), ends, "{name}");
        }
    }
}

#[tokio::test]
async fn claims_and_tokens_are_told_to_the_client() {
    let (world, _) = browser::world(json!({
        "downstream_headers_claims": ["email"], "downstream_headers_names": ["x-mail"],
        "downstream_id_token_header": "x-id", "downstream_refresh_token_header": "x-refresh",
        "downstream_access_token_jwk_header": "x-key", "downstream_id_token_jwk_header": "x-id-key",
    }));
    let mut browser = Browser::signed_in(&world).await;
    let outcome = browser.get(&world, "/orders").await;
    assert!(downstream(&outcome, "x-id").unwrap().starts_with("ey"));
    assert_eq!(downstream(&outcome, "x-refresh").as_deref(), Some("r0"));
    assert_eq!(
        object(&downstream(&outcome, "x-key").unwrap())["kid"],
        "key-1"
    );
    assert_eq!(
        object(&downstream(&outcome, "x-id-key").unwrap())["kty"],
        "EC"
    );
    let mut response = ResponseHeader::build(200, None).unwrap();
    world.filter.on_response(&outcome.exchange, &mut response);
    assert_eq!(response.headers["x-mail"], "anna@b.c");
}

#[tokio::test]
async fn groups_and_roles_are_where_the_claims_say() {
    for (kind, refusal) in [("groups", "missing_group"), ("roles", "missing_role")] {
        let mut config = json!({});
        config[format!("{kind}_claim")] = json!(["realm", kind]);
        config[format!("{kind}_required")] = json!(["staff", "a b"]);
        let world = World::new(config);
        for (held, code) in [
            (json!(["staff"]), (200, "pass")),
            (json!(["a", "b"]), (200, "pass")),
            (json!(["a"]), (403, refusal)),
        ] {
            let token = world.token(json!({"realm": {kind: held}}));
            assert_eq!(world.ask_bearer(&token).await.code(), code);
        }
        let token = world.token(json!({kind: ["staff"]}));
        assert_eq!(world.ask_bearer(&token).await.code(), (403, refusal));
    }
}

#[tokio::test]
async fn a_token_is_found_in_a_header_of_its_own() {
    let world = World::new(json!({"bearer_token_header_name": "X-Token"}));
    let header = format!("X-Token: {}", world.token(json!({})));
    assert_eq!(world.ask(&get_with(&header)).await.code(), (200, "pass"));
}

#[tokio::test]
async fn a_token_comes_in_a_header_of_the_very_name_that_is_configured_too() {
    let (world, _) = world(json!({
        "auth_methods": ["refresh_token"], "refresh_token_param_name": "refresh_token",
    }));
    for (headers, code) in [
        ("refresh_token: r-1", (200, "pass")),
        ("Refresh-Token: Bearer r-1", (200, "pass")),
        (
            "refresh_token: r-1\r\nRefresh-Token: r-2",
            (400, "repeated_credentials"),
        ),
        ("refreshtoken: r-1", (401, "no_token")),
    ] {
        let outcome = world.ask(&get_with(headers)).await;
        assert_eq!(outcome.code(), code, "{headers}");
    }
}

#[tokio::test]
async fn an_assertion_is_for_the_endpoint_or_for_the_issuer_as_configured() {
    for (field, audience) in [
        (None, "http://id.test/oauth2/token"),
        (Some("token_endpoint"), "http://id.test/oauth2/token"),
        (Some("issuer"), ISSUER),
    ] {
        let mut config = json!({"auth_methods": ["password"],
            "client_auth": ["client_secret_jwt"], "client_id": ["gateway"],
            "client_secret": ["0123456789abcdef0123456789abcdef"]});
        if let Some(field) = field {
            config["client_assertion_audience"] = json!(field);
        }
        let (world, recorder) = world(config);
        let outcome = world.ask(&get_with("Authorization: Basic YW5uYTpz")).await;
        assert_eq!(outcome.code(), (200, "pass"));
        let noted = recorder.at("/token").remove(0);
        let assertion = noted.form("client_assertion").unwrap().to_owned();
        let claims = URL_SAFE_NO_PAD
            .decode(assertion.split('.').nth(1).unwrap())
            .unwrap();
        let claims: Value = serde_json::from_slice(&claims).unwrap();
        assert_eq!(claims["aud"], audience, "a text, and no list");
    }
}
