//! Attacks on logins and on what upstreams believe, before the openid-connect
//! plugin of the real program.

use serde_json::json;

use crate::openid_connect_rogue::{Stage, id_claims, member, refused, tokens};
use crate::support::Reply;
use crate::support::http::{client, send};

/// Every spelling of a header that upstreams might take for the gateway's word.
fn spellings(name: &str) -> Vec<String> {
    vec![
        name.to_owned(),
        name.to_lowercase(),
        name.to_uppercase(),
        name.replace('-', "_"),
        name.to_lowercase().replace('-', "_"),
        name.replacen('-', "_", 1),
    ]
}

const FORGED: [&str; 8] = [
    "X-Consumer-ID",
    "X-Consumer-Username",
    "X-Consumer-Custom-ID",
    "X-Anonymous-Consumer",
    "X-Credential-Identifier",
    "X-Authenticated-Groups",
    "X-User-Mail",
    "X-ID-Token",
];

const TELLS: &str = ", auth_methods: [bearer], upstream_headers_claims: [email], \
    upstream_headers_names: [X-User-Mail], upstream_id_token_header: x_id_token";

#[tokio::test]
async fn forged_identity_headers_in_every_spelling_on_every_path() {
    let preflight = format!("{TELLS}, run_on_preflight: false");
    let stage = Stage::set(&preflight).await;
    let token = stage.issuer.token();
    for (method, authorization) in [
        ("GET", Some(&token)),
        ("OPTIONS", None),
        ("POST", Some(&token)),
    ] {
        for name in FORGED {
            for spelling in spellings(name) {
                let method = method.parse().expect("a method");
                let mut request = client().request(method, stage.door.proxy_url("/orders"));
                request = request.header("host", "api.test");
                // Twice, and nominated as of this hop alone.
                request = request.header(&spelling, "admin").header(&spelling, "root");
                request = request.header("connection", format!("close, {name}"));
                if let Some(token) = authorization {
                    request = request.header("authorization", format!("Bearer {token}"));
                }
                send(request).await.expect(200);
                let seen = stage.upstream.last();
                let wanted = name.to_lowercase();
                for (key, value) in &seen.headers {
                    let same = key.replace('_', "-") == wanted;
                    let forged = value.contains("admin") || value.contains("root");
                    assert!(!(same && forged), "{spelling}: {key}: {value}");
                }
            }
        }
    }
}

#[tokio::test]
async fn forged_identity_headers_of_the_anonymous_consumer() {
    let config = format!("{TELLS}, anonymous: guest");
    let stage = Stage::set(&config).await;
    let guest = json!({"username": "guest"});
    stage
        .door
        .admin_post("/consumers", &guest)
        .await
        .expect(201);
    for name in FORGED {
        for spelling in spellings(name) {
            let request = client().get(stage.door.proxy_url("/orders"));
            let request = request
                .header("host", "api.test")
                .header(&spelling, "admin");
            send(request).await.expect(200);
            let seen = stage.upstream.last();
            assert_eq!(seen.header("x-consumer-username"), Some("guest"));
            assert_eq!(seen.header("x-anonymous-consumer"), Some("true"));
            let forged = seen.headers.iter().find(|(_, value)| value == "admin");
            assert_eq!(forged, None, "{spelling}");
        }
    }
}

#[tokio::test]
async fn forged_tokens_of_requests_that_pass_without_one() {
    for config in [", anonymous: guest", ", run_on_preflight: false"] {
        let stage = Stage::set(&format!("{TELLS}{config}")).await;
        let guest = json!({"username": "guest"});
        let made = stage.door.admin_post("/consumers", &guest).await;
        made.expect(201);
        for (name, value) in [
            ("Authorization", "Bearer forged"),
            ("AUTHORIZATION", "bearer  forged"),
            ("authorization", "DPoP forged"),
            ("X-Access-Token", "forged"),
            ("access-token", "Bearer forged"),
        ] {
            let method = "OPTIONS".parse().expect("a method");
            let request = client().request(method, stage.door.proxy_url("/orders"));
            let request = request.header("host", "api.test").header(name, value);
            send(request).await.expect(200);
            let seen = stage.upstream.last();
            let forged = seen
                .headers
                .iter()
                .find(|(_, value)| value.contains("forged"));
            assert_eq!(forged, None, "{config} {name}: {value}");
        }
    }
}

#[tokio::test]
async fn open_redirects_by_what_a_login_leads_back_to() {
    let stage = Stage::set(", redirect_uri: ['http://api.test/callback']").await;
    stage.answer(|issuer, nonce| {
        let id_token = issuer.sign(&id_claims(issuer, nonce, &json!({})));
        Reply::Json(200, tokens(issuer, &id_token))
    });
    for target in [
        "//evil.test/",
        "///evil.test/",
        "/%5cevil.test/",
        "/%5c%5cevil.test",
        "/@evil.test/",
        "/x@evil.test",
        "/%09/evil.test",
        "/%0d%0aLocation:%20http://evil.test/",
        "/.evil.test",
        "/orders?next=https://evil.test/",
        "/javascript:alert(1)",
        "/http://evil.test/",
    ] {
        let answer = stage.door.get("api.test", target).await;
        if answer.status == 400 {
            continue; // not even looked at
        }
        let answer = answer.expect(302);
        let cookie = answer
            .header("set-cookie")
            .split(';')
            .next()
            .expect("a pair")
            .to_owned();
        let url = url::Url::parse(answer.header("location")).expect("a URL");
        assert_eq!(format!("http://{}", url.authority()), stage.issuer.url());
        let asked: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        assert_eq!(member(&asked, "redirect_uri"), "http://api.test/callback");
        *stage.nonce.lock().expect("not poisoned") = member(&asked, "nonce").to_owned();
        let back = format!("/callback?code=c&state={}", member(&asked, "state"));
        let answer = stage.get(&back, &cookie).await.expect(302);
        let location = answer.header("location");
        assert!(
            location.starts_with("http://api.test/"),
            "{target}: {location}"
        );
        let url = url::Url::parse(location).expect("a URL");
        assert_eq!(url.host_str(), Some("api.test"), "{target}: {location}");
    }
}

#[tokio::test]
async fn a_login_is_asked_for_at_another_host_than_the_request_names() {
    let stage = Stage::set("").await;
    for host in [
        "api.test@evil.test",
        "api.test/evil",
        "api.test\\evil.test",
        "evil.test#api.test",
    ] {
        let request = client().get(stage.door.proxy_url("/orders"));
        let answer = send(request.header("host", host)).await;
        assert!(
            matches!(answer.status, 400 | 404),
            "{host}: {}",
            answer.status
        );
    }
    let request = client().get(stage.door.proxy_url("/orders"));
    let request = request
        .header("host", "api.test")
        .header("x-forwarded-host", "evil.test");
    let answer = send(request.header("forwarded", "host=evil.test"))
        .await
        .expect(302);
    assert!(!answer.header("location").contains("evil.test"));
}

#[tokio::test]
async fn duplicated_parameters_of_a_callback() {
    let stage = Stage::set("").await;
    let (cookie, asked) = stage.begin("/orders").await;
    let state = member(&asked, "state");
    for (query, status, code) in [
        (
            format!("code=a&code=b&state={state}"),
            400,
            "malformed_callback",
        ),
        (
            format!("code=a&state={state}&state={state}"),
            400,
            "malformed_callback",
        ),
        (
            format!("code=a&state={state}&iss=a&iss=b"),
            400,
            "malformed_callback",
        ),
        (
            format!("code=a&state={state}&iss=http://evil.test"),
            401,
            "mixed_up_issuer",
        ),
        (
            format!("error=x&error=y&state={state}"),
            400,
            "malformed_callback",
        ),
        (format!("code=&state={state}"), 400, "malformed_callback"),
    ] {
        let before = refused(&stage.door, code).await;
        stage
            .get(&format!("/orders?{query}"), &cookie)
            .await
            .expect(status);
        assert_eq!(refused(&stage.door, code).await, before + 1, "{query}");
    }
    let log = stage.door.log_text();
    assert!(!log.contains(state), "nothing that could be used: {log}");
}

#[tokio::test]
async fn a_code_of_another_login_is_injected() {
    let stage = Stage::set("").await;
    // The provider binds the code to the other login's nonce.
    stage.answer(|issuer, _| {
        let id_token = issuer.sign(&id_claims(issuer, "nonce-of-the-attacker", &json!({})));
        Reply::Json(200, tokens(issuer, &id_token))
    });
    stage.login().await.expect(401);
    assert!(stage.counted("wrong_nonce").await);
}

#[tokio::test]
async fn a_state_of_another_browser_and_two_cookies_of_one_name() {
    let stage = Stage::set("").await;
    let (mine, asked) = stage.begin("/orders").await;
    let (other, _) = stage.begin("/orders").await;
    let back = format!("/orders?code=c&state={}", member(&asked, "state"));
    stage.get(&back, &other).await.expect(401);
    assert!(stage.counted("foreign_login").await);
    // Whoever plants a second cookie decides nothing.
    let answer = stage.get(&back, &format!("{other}; {mine}")).await;
    assert_ne!(answer.status, 200);
    stage.get(&back, "").await.expect(401);
}
