//! Attacks by the form of a request.

use reqwest::Method;

use super::{APP, FORMS, door, post, tokens};
use crate::support::http::{client, send};

#[tokio::test]
async fn http_parameter_pollution() {
    let door = door().await;
    let good = [
        ("grant_type", "client_credentials"),
        ("scope", "read"),
        ("token", "x"),
        ("client_id", "app"),
        ("client_secret", "app-secret-of-the-app"),
    ];
    for path in FORMS {
        for (name, value) in good {
            for again in [value, "", "other"] {
                let fields = [&good[..], &[(name, again)]].concat();
                let answer = post(&door, path, &fields).await;
                // An empty value is an absent one.
                if again.is_empty() && answer.status == 200 {
                    continue;
                }
                let answer = answer.expect(400).json();
                assert_eq!(answer["error"], "invalid_request", "{path}: {name}");
            }
        }
    }
    for path in ["authorize", "connect/endSession", "tokeninfo", "userinfo"] {
        for name in ["client_id", "state", "access_token"] {
            let query = format!("/oauth2/{path}?{name}=app&{name}=other");
            let answer = door.get("127.0.0.1", &query).await;
            assert!(matches!(answer.status, 400 | 401), "{path}: {answer:?}");
            assert_eq!(answer.header("location"), "");
        }
    }
}

#[tokio::test]
async fn a_body_of_two_media_types_is_no_form() {
    let door = door().await;
    let (form, json) = ("application/x-www-form-urlencoded", "application/json");
    for path in FORMS {
        for (first, second) in [(form, json), (json, form), (form, form)] {
            let request = client().post(door.proxy_url(&format!("/oauth2/{path}")));
            let request = request.header("content-type", first);
            let request = request.header("content-type", second).body(
                "grant_type=client_credentials&scope=read&token=x&client_id=app\
                 &client_secret=app-secret-of-the-app",
            );
            let answer = send(request).await.expect(400).json();
            assert_eq!(answer["error"], "invalid_request", "{path}: {first}");
            assert_eq!(
                answer["error_description"], "Invalid Content Type",
                "{path}"
            );
        }
    }
}

#[tokio::test]
async fn hostile_bodies() {
    let door = door().await;
    let form = "application/x-www-form-urlencoded";
    let flood = format!("token={}", "a".repeat(70_000));
    let many = "a=b&".repeat(10_000);
    let json = "{\"grant_type\":\"client_credentials\"}";
    let nested = format!("grant_type={}", "[".repeat(20_000));
    let cases: [(&str, &[u8], &[u16]); 9] = [
        (form, flood.as_bytes(), &[400, 413]),
        (form, many.as_bytes(), &[400, 401]),
        (form, b"grant_type=\xff\xfe&token=\xff", &[400, 401]),
        (form, b"grant_type=%FF&token=%C0%80", &[400, 401]),
        (form, b"grant_type=%00&token=%00", &[400, 401]),
        (form, b"grant_type=%zz", &[400, 401]),
        (form, nested.as_bytes(), &[400, 401]),
        ("application/json", json.as_bytes(), &[400]),
        ("multipart/form-data; boundary=x", b"--x--", &[400]),
    ];
    let paths = FORMS.iter().map(|path| format!("/oauth2/{path}"));
    let all = paths.chain([
        "/oauth2/authorize".to_owned(),
        "/oauth2/connect/endSession".to_owned(),
    ]);
    for path in all {
        for (kind, body, expected) in cases {
            let request = client().post(door.proxy_url(&path));
            let request = request.header("content-type", kind).body(body.to_vec());
            let answer = send(request).await;
            let page = !FORMS.iter().any(|form| path.ends_with(form));
            assert!(
                expected.contains(&answer.status) || (page && matches!(answer.status, 200 | 303)),
                "{path} {kind} {:?}: {answer:?}",
                String::from_utf8_lossy(&body[..body.len().min(30)])
            );
            if !page && answer.status != 413 {
                let told = answer.json();
                assert!(told["error"].is_string(), "{path}: {told}");
            }
        }
    }
}

#[tokio::test]
async fn methods_that_an_endpoint_has_not() {
    let door = door().await;
    for path in FORMS {
        for method in [Method::GET, Method::PUT, Method::DELETE, Method::PATCH] {
            let request =
                client().request(method.clone(), door.proxy_url(&format!("/oauth2/{path}")));
            let request = request.header("x-http-method-override", "POST");
            let answer = send(request).await.expect(405);
            assert!(answer.header("allow").contains("POST"), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn host_header_injection() {
    let door = door().await;
    let discovery = "/oauth2/.well-known/openid-configuration";
    let authorize = "/oauth2/authorize?client_id=app&response_type=code&scope=openid&prompt=none\
                     &redirect_uri=https%3A%2F%2Fapp.example%2Fcb";
    let sign_in = authorize.replace("&prompt=none", "");
    for path in [discovery, authorize, &sign_in] {
        let request = client().get(door.proxy_url(path));
        let request = request
            .header("host", "evil.example")
            .header("x-forwarded-host", "evil.example")
            .header("x-forwarded-proto", "https")
            .header("x-forwarded-prefix", "/evil")
            .header("forwarded", "host=evil.example;proto=https");
        let answer = send(request).await;
        let all = format!("{:?} {}", answer.headers, answer.body);
        assert!(!all.contains("evil"), "{path}: {all}");
    }
    // No issuer but the configured one stands in a token.
    let request = client().post(door.proxy_url("/oauth2/access_token"));
    let form = [
        &APP[..],
        &[("grant_type", "client_credentials"), ("scope", "read")],
    ]
    .concat();
    let answer = send(request.header("host", "evil.example").form(&form)).await;
    let token = answer.expect(200).json()["access_token"].to_string();
    let issuer = crate::support::issuer::claims_of(token.trim_matches('"'))["iss"].clone();
    assert_eq!(issuer, door.proxy_url("/oauth2"));
}

#[tokio::test]
async fn secrets_from_a_cache() {
    let door = door().await;
    let tokens = tokens(&door).await;
    let access = tokens["access_token"].as_str().expect("a token");
    let mut answers = Vec::new();
    for path in FORMS {
        for token in [access, "wrong"] {
            let fields = [&APP[..], &[("token", token), ("grant_type", "password")]].concat();
            answers.push((path, post(&door, path, &fields).await));
            answers.push((path, post(&door, path, &[("token", token)]).await));
        }
    }
    for token in [access, "wrong"] {
        let request = client().get(door.proxy_url("/oauth2/userinfo"));
        answers.push(("userinfo", send(request.bearer_auth(token)).await));
        let path = format!("/oauth2/tokeninfo?access_token={token}");
        answers.push(("tokeninfo", door.get("127.0.0.1", &path).await));
    }
    for name in ["demo", "nobody"] {
        let request = client().post(door.proxy_url("/json/authenticate"));
        let request = request
            .header("x-service-username", name)
            .header("x-service-password", "Ch4ng31t-demo");
        answers.push(("authenticate", send(request).await));
    }
    for (path, answer) in answers {
        let control = answer.header("cache-control");
        assert!(
            control.contains("no-store"),
            "{path} {}: {control:?}",
            answer.status
        );
    }
}

#[tokio::test]
async fn markup_and_quotes_in_what_an_error_repeats() {
    let door = door().await;
    let evil = "a\"\\\r\n\tü<script>alert(1)</script>";
    let requests = [
        vec![("grant_type", evil)],
        vec![("grant_type", "client_credentials"), ("scope", evil)],
        vec![("grant_type", "refresh_token"), ("refresh_token", evil)],
        vec![("grant_type", "authorization_code"), ("code", evil)],
        vec![("grant_type", "client_credentials"), ("resource", evil)],
    ];
    for fields in requests {
        let answer = super::ask(&door, &fields).await.expect(400);
        assert!(
            answer
                .header("content-type")
                .starts_with("application/json")
        );
        let told = answer.json()["error_description"].clone();
        let told = told.as_str().unwrap_or_default();
        let legal = |c: char| matches!(c, ' '..='~') && c != '"' && c != '\\';
        assert!(told.chars().all(legal), "{told:?}");
    }
}

#[tokio::test]
async fn a_flood_of_scopes() {
    let door = door().await;
    let scopes: Vec<_> = (0..5_000).map(|number| number.to_string()).collect();
    let fields = [
        ("grant_type", "client_credentials"),
        ("scope", &scopes.join(" ")),
    ];
    let answer = super::ask(&door, &fields).await.expect(400);
    assert_eq!(answer.json()["error"], "invalid_scope");
    assert!(answer.body.len() < 2_000, "{}", answer.body.len());
}
