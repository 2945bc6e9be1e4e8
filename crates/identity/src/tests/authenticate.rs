use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::testing::{Answer, PASSWORD_GRANT, Provider, config, request};
use doorward_core::model::grant::TokenHash;
use doorward_net::http::ClientInfo;

const PATH: &str = "/json/realms/root/authenticate";
const VERSION: (&str, &str) = ("accept-api-version", "resource=2.1");
const JSON: (&str, &str) = ("content-type", "application/json");

async fn sign_in(provider: &Provider, name: &str, password: &str) -> Answer {
    let headers = [
        VERSION,
        JSON,
        ("x-service-username", name),
        ("x-service-password", password),
    ];
    provider.send(request("POST", PATH, &headers, "")).await
}

fn message(answer: &Answer) -> (u16, String) {
    let body = answer.json();
    assert_eq!(body["code"], answer.status.as_u16());
    assert_eq!(
        Some(body["reason"].as_str().unwrap_or_default()),
        answer.status.canonical_reason()
    );
    (
        answer.status.as_u16(),
        body["message"].as_str().unwrap_or_default().to_owned(),
    )
}

#[tokio::test]
async fn both_header_pairs_give_a_session_that_is_kept() {
    let provider = Provider::new().await;
    for (name, password) in [
        ("X-Service-Username", "X-Service-Password"),
        ("x-openam-username", "X-OPENAM-PASSWORD"),
    ] {
        let headers = [VERSION, (name, "demo"), (password, "correct horse")];
        let answer = provider.send(request("POST", PATH, &headers, "")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let body = answer.json();
        assert_eq!(body.as_object().map(serde_json::Map::len), Some(3));
        assert_eq!(
            (&body["successUrl"], &body["realm"]),
            (&json!("/"), &json!("/"))
        );
        let token = body["tokenId"].as_str().expect("a token");
        assert!(
            answer
                .header("set-cookie")
                .starts_with(&format!("iPlanetDirectoryPro={token}; Path=/; HttpOnly"))
        );
        assert_eq!(
            answer.header("cache-control"),
            "no-cache, no-store, must-revalidate"
        );
        assert_eq!(answer.header("content-api-version"), "resource=2.1");
        assert!(!answer.headers.contains_key("warning"));
        let other = provider.other_process().await;
        let session = other.session(TokenHash::of(token)).await.expect("a lookup");
        assert!(session.is_some(), "the session is not durable");
    }
}

#[tokio::test]
async fn every_path_form_reaches_its_realm() {
    let provider = Provider::new().await;
    let headers = [
        VERSION,
        ("x-service-username", "demo"),
        ("x-service-password", "alpha pass"),
    ];
    for path in [
        "/json/realms/root/realms/alpha/authenticate",
        "/json/realms/alpha/authenticate",
        "/json/alpha/authenticate",
        "/json/authenticate?realm=/alpha",
    ] {
        let answer = provider.send(request("POST", path, &headers, "")).await;
        assert_eq!(answer.json()["realm"], "/alpha", "{path}");
    }
    let unknown = provider
        .send(request(
            "POST",
            "/json/realms/root/realms/x/authenticate",
            &headers,
            "",
        ))
        .await;
    let text = "Realm \"/x\" not found".to_owned();
    assert_eq!(message(&unknown), (404, text));
    let path = "/json/authenticate?realm=/x";
    let unknown = provider.send(request("POST", path, &headers, "")).await;
    assert_eq!(message(&unknown), (400, "Invalid realm, /x".to_owned()));
}

#[tokio::test]
async fn nobody_learns_from_authenticate_who_exists() {
    let provider = Provider::new().await;
    let unknown = sign_in(&provider, "nobody", "x").await;
    assert_eq!(message(&unknown), (401, "Authentication Failed".to_owned()));
    for (name, password) in [
        ("demo", "wrong"),
        ("gone", "wrong"),
        ("demo", ""),
        ("x' OR 1=1 --", "x"),
    ] {
        let answer = sign_in(&provider, name, password).await;
        assert_eq!(
            (answer.status, &answer.text),
            (unknown.status, &unknown.text),
            "{name}"
        );
    }
    let long = "x".repeat(3000);
    assert_eq!(sign_in(&provider, &long, &long).await.text, unknown.text);
    // Only who has the password learns that the user is deactivated.
    let gone = sign_in(&provider, "gone", "correct horse").await;
    assert_eq!(message(&gone), (401, "User not Active".to_owned()));
    for name in ["demo", "nobody"] {
        for _ in 0..12 {
            sign_in(&provider, name, "wrong").await;
        }
        let locked = sign_in(&provider, name, "correct horse").await;
        assert_eq!(
            message(&locked),
            (401, "Your account has been locked.".to_owned())
        );
    }
}

#[tokio::test]
async fn parallel_guesses_get_no_more_tries_than_serial_ones() {
    let provider = Provider::new().await;
    let guesses = (0..40).map(|_| sign_in(&provider, "demo", "wrong"));
    let answers = futures_util::future::join_all(guesses).await;
    let tried = answers
        .iter()
        .filter(|answer| answer.text.contains("Authentication Failed"))
        .count();
    assert_eq!(tried, 10);
}

#[tokio::test]
async fn many_right_passwords_at_once_lock_nobody_out() {
    let provider = Provider::new().await;
    let logins = (0..40).map(|_| sign_in(&provider, "demo", "correct horse"));
    for answer in futures_util::future::join_all(logins).await {
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
}

#[tokio::test]
async fn a_flood_that_was_shed_locks_nobody_out() {
    let mut config = config();
    config["hashing"]["parallel"] = json!(1);
    config["hashing"]["queue"] = json!(0);
    let provider = Provider::with(config).await;
    let flood = (0..60).map(|_| sign_in(&provider, "demo", "wrong"));
    let answers = futures_util::future::join_all(flood).await;
    let shed = answers.iter().filter(|answer| answer.status == 503).count();
    assert!(shed > 50, "{shed}");
    let right = sign_in(&provider, "demo", "correct horse").await;
    assert_eq!(right.status, 200, "{}", right.text);
}

#[tokio::test]
async fn encoded_words_carry_other_letters() {
    let mut config = config();
    config["realms"]["/"]["users"][1] = json!({"userName": "d\u{e9}mo", "password": "p\u{e4}ss"});
    let provider = Provider::with(config).await;
    let answer = sign_in(&provider, "=?UTF-8?B?ZMOpbW8=?=", "=?UTF-8?Q?p=C3=A4ss?=").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

#[tokio::test]
async fn versions_are_matched_and_named() {
    let provider = Provider::new().await;
    let ask = async |version: &[(&str, &str)]| {
        let mut headers = vec![
            ("x-service-username", "demo"),
            ("x-service-password", "wrong"),
        ];
        headers.extend_from_slice(version);
        provider.send(request("POST", PATH, &headers, "")).await
    };
    let old = ask(&[("accept-api-version", "resource=1.1")]).await;
    assert_eq!(old.json(), json!({"errorMessage": "Authentication Failed"}));
    assert_eq!(old.header("content-api-version"), "resource=1.2");
    let none = ask(&[]).await;
    assert_eq!(none.header("content-api-version"), "resource=2.1");
    assert!(none.header("warning").starts_with("100 chf "));
    let unknown = ask(&[("accept-api-version", "resource=999.0")]).await;
    assert_eq!(unknown.status, 404);
    let broken = ask(&[("accept-api-version", "latest")]).await;
    assert_eq!(
        message(&broken),
        (
            400,
            "Version string is in an invalid format: latest".to_owned()
        )
    );
}

#[tokio::test]
async fn no_session_is_made_when_none_is_wanted() {
    let provider = Provider::new().await;
    let path = format!("{PATH}?noSession=true&goto=/home");
    let headers = [
        VERSION,
        ("x-service-username", "demo"),
        ("x-service-password", "correct horse"),
    ];
    let answer = provider.send(request("POST", &path, &headers, "")).await;
    assert_eq!(
        answer.json(),
        json!({"message": "Authentication Successful", "successUrl": "/home", "realm": "/"})
    );
    assert!(!answer.headers.contains_key("set-cookie"));
}

#[tokio::test]
async fn goto_never_leads_to_another_origin() {
    let provider = Provider::new().await;
    let headers = [
        VERSION,
        ("x-service-username", "demo"),
        ("x-service-password", "correct horse"),
    ];
    for evil in [
        "https://evil.example",
        "//evil.example",
        "/%5Cevil.example",
        "javascript:1",
        "/%0d%0ax",
    ] {
        let path = format!("{PATH}?goto={evil}");
        let answer = provider.send(request("POST", &path, &headers, "")).await;
        assert_eq!(answer.json()["successUrl"], "/", "{evil}");
    }
}

#[tokio::test]
async fn bodies_and_methods_are_checked() {
    let provider = Provider::new().await;
    let send = async |headers: &[(&str, &str)], body: &str| {
        provider
            .send(request("POST", PATH, headers, body))
            .await
            .status
            .as_u16()
    };
    let named = [
        VERSION,
        JSON,
        ("x-service-username", "demo"),
        ("x-service-password", "correct horse"),
    ];
    assert_eq!(send(&named, "{}").await, 200);
    assert_eq!(
        send(&[VERSION, ("content-type", "text/plain")], "hello").await,
        415
    );
    assert_eq!(send(&[VERSION, JSON], "{").await, 400);
    assert_eq!(send(&[VERSION, JSON], "[]").await, 400);
    assert_eq!(send(&[VERSION, JSON], &" ".repeat(100_000)).await, 413);
    assert_eq!(provider.get(PATH).await.status, 405);
    let path = format!("{PATH}?authIndexType=magic");
    let index = provider.send(request("POST", &path, &named, "")).await;
    assert_eq!(
        message(&index),
        (400, "Unknown Authentication Index Type".to_owned())
    );
}

#[tokio::test]
async fn callbacks_lead_to_the_same_session() {
    let provider = Provider::new().await;
    let asked = provider.send(request("POST", PATH, &[VERSION], "")).await;
    assert_eq!(asked.status, 200);
    let mut form = asked.json();
    assert_eq!(form["callbacks"][0]["type"], "NameCallback");
    assert_eq!(form["callbacks"][1]["input"][0]["name"], "IDToken2");
    let send = async |form: &Value| {
        provider
            .send(request("POST", PATH, &[VERSION, JSON], &form.to_string()))
            .await
    };
    form["callbacks"][0]["input"][0]["value"] = json!("demo");
    form["callbacks"][1]["input"][0]["value"] = json!("wrong");
    assert_eq!(send(&form).await.status, 401);
    form["callbacks"][1]["input"][0]["value"] = json!("correct horse");
    assert!(send(&form).await.json()["tokenId"].is_string());

    let mut forged = form.clone();
    forged["authId"] = json!(provider.client_token().await);
    assert_eq!(send(&forged).await.status, 400);
    provider.clock.advance(300_000);
    assert_eq!(
        message(&send(&form).await),
        (408, "Session has timed out".to_owned())
    );

    let named = [VERSION, ("x-service-username", "demo")];
    let rest = provider.send(request("POST", PATH, &named, "")).await;
    let mut form = rest.json();
    assert_eq!(form["callbacks"].as_array().map(Vec::len), Some(2));
    assert_eq!(form["callbacks"][0]["input"][0]["value"], "demo");
    form["callbacks"][1]["input"][0]["value"] = json!("correct horse");
    assert_eq!(send(&form).await.status, 200);
}

#[tokio::test]
async fn callbacks_in_another_order_or_number_are_refused() {
    let provider = Provider::new().await;
    let asked = provider.send(request("POST", PATH, &[VERSION], "")).await;
    let mut form = asked.json();
    form["callbacks"][0]["input"][0]["value"] = json!("demo");
    form["callbacks"][1]["input"][0]["value"] = json!("correct horse");
    let (name, password) = (&form["callbacks"][0], &form["callbacks"][1]);
    for callbacks in [
        json!([password, name]),
        json!([password]),
        json!([name, password, password]),
        json!([name, name]),
        json!("none"),
    ] {
        let body = json!({"authId": form["authId"], "callbacks": callbacks});
        let request = request("POST", PATH, &[VERSION, JSON], &body.to_string());
        let answer = provider.send(request).await;
        let text = "The callbacks are not those that were sent, or are in another order";
        assert_eq!(message(&answer), (400, text.to_owned()), "{body}");
    }
    // None of them has spent the sign-in.
    let request = request("POST", PATH, &[VERSION, JSON], &form.to_string());
    assert_eq!(provider.send(request).await.status, 200);
}

#[tokio::test]
async fn an_auth_id_is_good_once_on_all_nodes_and_after_a_restart() {
    let provider = Provider::new().await;
    let asked = provider.send(request("POST", PATH, &[VERSION], "")).await;
    let mut form = asked.json();
    form["callbacks"][0]["input"][0]["value"] = json!("demo");
    form["callbacks"][1]["input"][0]["value"] = json!("correct horse");
    let send = async |provider: &Provider, form: &Value| {
        let headers = [VERSION, JSON];
        let request = request("POST", PATH, &headers, &form.to_string());
        provider.send(request).await
    };
    // Of many at once, one signs in.
    let all = (0..8).map(|_| send(&provider, &form));
    let all = futures_util::future::join_all(all).await;
    let good = all.iter().filter(|answer| answer.status == 200);
    assert_eq!(good.count(), 1, "{all:?}");
    let ended = (408, "Session has timed out".to_owned());
    assert_eq!(message(&send(&provider, &form).await), ended);
    let provider = provider.restarted(config()).await;
    assert_eq!(message(&send(&provider, &form).await), ended);
}

#[tokio::test]
async fn a_passed_on_auth_id_is_good_once_also_where_no_session_is_made() {
    let provider = Provider::new().await;
    let path = format!("{PATH}?noSession=true");
    let asked = provider.send(request("POST", &path, &[VERSION], "")).await;
    let mut form = asked.json();
    form["callbacks"][0]["input"][0]["value"] = json!("demo");
    form["callbacks"][1]["input"][0]["value"] = json!("correct horse");
    for status in [200, 408] {
        let request = request("POST", PATH, &[VERSION, JSON], &form.to_string());
        assert_eq!(provider.send(request).await.status, status);
    }
}

#[tokio::test]
async fn the_administrator_signs_in_from_allowed_addresses_only() {
    let mut config = config();
    config["realms"]["/"]["users"][1] = json!({"userName": "amAdmin", "password": "correct horse"});
    config["realms"]["/"]["settings"] = json!({"admin_addresses": ["10.0.0.0/8", "::1"]});
    let provider = Provider::with(config).await;
    let from = async |address: &str, headers: &[(&str, &str)], body: &str| {
        let mut request = request("POST", PATH, headers, body);
        let addr: SocketAddr = address.parse().expect("an address");
        request.extensions_mut().insert(ClientInfo {
            addr,
            secure: false,
        });
        provider.send(request).await
    };
    let password = ("x-service-password", "correct horse");
    for name in [
        "amadmin",
        "AMADMIN",
        "=?utf-8?q?amadmin?=",
        "=?utf-8?b?YW1BZG1pbg==?=",
    ] {
        let headers = [VERSION, ("x-service-username", name), password];
        let refused = from("192.0.2.1:5", &headers, "").await;
        assert_eq!(refused.status, 403, "{name}");
        assert!(refused.text.contains("<title>403 Forbidden</title>"));
        assert!(refused.header("content-type").starts_with("text/html"));
        assert_eq!(from("10.1.2.3:5", &headers, "").await.status, 200, "{name}");
        assert_eq!(from("[::ffff:10.1.2.3]:5", &headers, "").await.status, 200);
    }
    // A second pair of headers or a callback is no way around.
    let headers = [
        VERSION,
        ("x-service-username", "demo"),
        password,
        ("x-openam-username", "amadmin"),
    ];
    assert_eq!(from("192.0.2.1:5", &headers, "").await.status, 403);
    let mut form = from("192.0.2.1:5", &[VERSION], "").await.json();
    form["callbacks"][0]["input"][0]["value"] = json!("amadmin");
    form["callbacks"][1]["input"][0]["value"] = json!("correct horse");
    let submitted = from("192.0.2.1:5", &[VERSION, JSON], &form.to_string()).await;
    assert_eq!(submitted.status, 403);
    let grant = PASSWORD_GRANT.replace("demo", "amadmin") + "&scope=openid";
    assert_eq!(
        provider.token(&grant).await.oauth_error().1,
        "invalid_grant"
    );
    let demo = [VERSION, ("x-service-username", "demo"), password];
    assert_eq!(from("192.0.2.1:5", &demo, "").await.status, 200);
}
