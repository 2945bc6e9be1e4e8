//! Authorization requests that clients push (RFC 9126).

use serde_json::{Value, json};

use super::browser::{Browser, shown_error};
use super::{CALLBACK, IDENTITY, VERIFIER, door, exchange, path, signed_in, told, trusted, web};
use crate::identity::dpop::Key;
use crate::identity::{assert_error, with as with_field};
use crate::support::http::{client, send};
use crate::support::{Answer, Door, Setup};

const PAR: &str = "/oauth2/par";

/// The form of client `web`, with a field changed, or left out for "".
fn form<'f>(name: &'f str, value: &'f str) -> Vec<(&'f str, &'f str)> {
    let all = [
        ("client_id", "web"),
        ("client_secret", "web-secret"),
        ("response_type", "code"),
        ("redirect_uri", CALLBACK),
        ("scope", "openid email"),
        ("state", "pushed"),
        ("nonce", "n-1"),
        ("code_challenge", super::CHALLENGE),
        ("code_challenge_method", "S256"),
    ];
    with_field(&all, name, value)
}

async fn push(door: &Door, form: &[(&str, &str)]) -> Answer {
    send(client().post(door.proxy_url(PAR)).form(form)).await
}

/// The address of the request that was pushed.
async fn pushed(door: &Door, form: &[(&str, &str)]) -> String {
    let body = push(door, form).await.expect(201).json();
    body["request_uri"].as_str().expect("a text").to_owned()
}

/// The path of the authorization endpoint with nothing but what is needed.
fn short(client_id: &str, uri: &str) -> String {
    let uri: String = url::form_urlencoded::byte_serialize(uri.as_bytes()).collect();
    format!("/oauth2/authorize?client_id={client_id}&request_uri={uri}")
}

#[tokio::test]
async fn a_pushed_request_needs_only_its_address_and_survives_a_restart() {
    let mut door = door().await;
    let answer = push(&door, &form("", "")).await.expect(201);
    assert_eq!(answer.header("cache-control"), "no-store");
    let body = answer.json();
    assert_eq!(body["expires_in"], 90);
    let uri = body["request_uri"].as_str().expect("a text").to_owned();
    assert!(uri.starts_with("urn:ietf:params:oauth:request_uri:"));
    door.kill();
    door.start().await;

    let browser = Browser::new(&door);
    // What stands beside the address counts for nothing.
    let more = format!("{}&state=other&scope=openid+profile", short("web", &uri));
    let page = browser.get(&more).await.expect(200);
    let page = browser.sign_in(&page, "demo").await.expect(200);
    assert!(page.body.contains("Your e-mail address"), "{}", page.body);
    // A page that is only looked at uses nothing up.
    browser.get(&short("web", &uri)).await.expect(200);
    let answer = browser.approve(&page).await.expect(303);
    let answer = told(&answer, CALLBACK);
    assert_eq!(answer["state"], "pushed");
    assert_eq!(answer["scope"], "openid email");
    exchange(&door, &answer["code"], VERIFIER).await.expect(200);
}

#[tokio::test]
async fn a_replayed_request_uri_is_refused() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    for decision in ["approve", "deny"] {
        let uri = pushed(&door, &form("prompt", "consent")).await;
        let page = browser.get(&short("web", &uri)).await.expect(200);
        let answer = super::browser::Form::of(&page).with(decision, "true");
        let answer = browser.post(&answer).await.expect(303);
        told(&answer, CALLBACK);
        let again = browser.get(&short("web", &uri)).await.expect(400);
        assert_eq!(shown_error(&again), "invalid_request_uri", "{decision}");
        let twice = super::browser::Form::of(&page).with(decision, "true");
        let twice = browser.post(&twice).await.expect(400);
        assert_eq!(shown_error(&twice), "invalid_request_uri", "{decision}");
    }
}

#[tokio::test]
async fn two_browsers_at_once_are_given_one_code() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    let page = browser.get(&path(&web())).await.expect(200);
    let agreed = super::browser::Form::of(&page).with("save_consent", "on");
    browser
        .post(&agreed.with("approve", "true"))
        .await
        .expect(303);
    let uri = pushed(&door, &form("", "")).await;
    let path = short("web", &uri);
    let (one, other) = tokio::join!(browser.get(&path), browser.get(&path));
    let mut statuses = [one.status, other.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [302, 400]);
}

#[tokio::test]
async fn another_clients_request_uri_is_refused_like_one_that_never_was() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    let uri = pushed(&door, &form("", "")).await;
    let never = format!("urn:ietf:params:oauth:request_uri:{}", "A".repeat(43));
    let mut pages = Vec::new();
    for (id, uri) in [
        ("trusted", uri.as_str()),
        ("web", &never),
        ("web", "urn:ietf:params:oauth:request_uri:"),
        ("web", &format!("{uri}x")),
        ("web", &format!("{never}{}", "A".repeat(4000))),
    ] {
        let page = browser.get(&short(id, uri)).await.expect(400);
        assert_eq!(shown_error(&page), "invalid_request_uri");
        assert_eq!(page.header("location"), "");
        pages.push(page.body);
    }
    assert_eq!(pages[0], pages[1]);
    // Another realm's client of the same name is another client.
    let there = short("web", &uri).replace("/oauth2/", "/oauth2/realms/root/realms/alpha/");
    let page = browser.get(&there).await.expect(400);
    assert_eq!(shown_error(&page), "invalid_request_uri");
    browser.get(&short("web", &uri)).await.expect(200);
}

#[tokio::test]
async fn a_pushed_request_is_checked_at_once() {
    let door = door().await;
    for (name, value, error) in [
        ("response_type", "", "invalid_request"),
        ("response_type", "bogus", "unsupported_response_type"),
        ("response_type", "code token", "unsupported_response_type"),
        ("response_mode", "bogus", "invalid_request"),
        ("redirect_uri", "https://evil.example/", "invalid_request"),
        ("redirect_uri", "", "invalid_request"),
        ("scope", "nonsense", "invalid_scope"),
        ("prompt", "none login", "invalid_request"),
        ("claims", "{", "invalid_request"),
        ("code_challenge", "short", "invalid_request"),
        ("code_challenge_method", "plain", "invalid_request"),
        ("resource", "https://other.example/", "invalid_target"),
        ("registration", "{}", "registration_not_supported"),
        ("request_uri", "https://app.example/r", "invalid_request"),
        (
            "request_uri",
            "urn:ietf:params:oauth:request_uri:x",
            "invalid_request",
        ),
        ("request", "eyJ.e30.", "invalid_request_object"),
    ] {
        let answer = push(&door, &form(name, value)).await;
        assert_eq!(answer.header("cache-control"), "no-store");
        assert_error(answer, 400, error, "");
    }
    let twice = [&form("", "")[..], &[("state", "2")]].concat();
    assert_error(push(&door, &twice).await, 400, "invalid_request", "");
    let long = "x".repeat(40_000);
    let answer = push(&door, &form("state", &long)).await;
    assert_error(answer, 413, "invalid_request", "");
    let endless = "x".repeat(80_000);
    push(&door, &form("state", &endless)).await.expect(413);
}

#[tokio::test]
async fn only_a_client_that_proves_itself_pushes_and_only_by_post() {
    let door = door().await;
    for (name, value) in [("client_secret", "guess"), ("client_secret", "")] {
        let answer = push(&door, &form(name, value)).await;
        assert_error(answer, 401, "invalid_client", "");
    }
    let nobody = push(&door, &form("client_id", "nobody")).await;
    assert_error(nobody, 401, "invalid_client", "");
    let answer = door.get("a.test", PAR).await;
    assert_eq!((answer.status, answer.header("allow")), (405, "POST"));
    let request = client().post(door.proxy_url(PAR)).json(&json!({}));
    assert_error(send(request).await, 400, "invalid_request", "");
    let query = client().post(door.proxy_url("/oauth2/par?client_secret=web-secret"));
    let query = send(query.form(&form("client_secret", ""))).await;
    assert_error(query, 400, "invalid_request", "");
    // Where the client authenticates by header, its id need not be repeated.
    let request = client().post(door.proxy_url(PAR)).form(&{
        let form = form("client_id", "");
        with_field(&form, "client_secret", "")
    });
    send(request.basic_auth("web", Some("web-secret")))
        .await
        .expect(201);
}

#[tokio::test]
async fn requests_that_must_be_pushed_count_in_no_other_way() {
    let section = IDENTITY.replace(
        "        - client_id: native\n",
        "        - client_id: native\n          require_pushed_authorization_requests: true\n",
    );
    let section = section.replace(
        "    /alpha:\n",
        "    /alpha:\n      settings: {require_pushed_authorization_requests: true, pushed_request_lifetime: 600}\n",
    );
    let door = Setup::new().identity(&section).start().await;
    let browser = signed_in(&door, "demo").await;
    let mut native = trusted();
    native.insert("client_id", "native".to_owned());
    native.insert("redirect_uri", "http://127.0.0.1:7/cb".to_owned());
    native.insert("scope", "openid".to_owned());
    let answer = told(&browser.get(&path(&native)).await, "http://127.0.0.1:7/cb");
    assert_eq!(answer["error"], "invalid_request");
    let form: Vec<_> = native.iter().map(|(n, v)| (*n, v.as_str())).collect();
    let uri = pushed(&door, &form).await;
    let page = browser.get(&short("native", &uri)).await.expect(200);
    let answer = browser.approve(&page).await;
    assert!(told(&answer, "http://127.0.0.1:7/cb").contains_key("code"));

    let alpha = "/oauth2/realms/root/realms/alpha";
    let there = path(&web()).replace("/oauth2", alpha);
    assert_eq!(
        told(&browser.get(&there).await, CALLBACK)["error"],
        "invalid_request"
    );
    let metadata = |realm: &str| {
        let path = format!("{realm}/.well-known/openid-configuration");
        let door = &door;
        async move { door.get("a.test", &path).await.expect(200).json() }
    };
    let (top, alpha) = (metadata("/oauth2").await, metadata(alpha).await);
    let demanded = |metadata: &Value| metadata["require_pushed_authorization_requests"].clone();
    assert_eq!(
        (demanded(&top), demanded(&alpha)),
        (json!(false), json!(true))
    );
    let endpoint = &top["pushed_authorization_request_endpoint"];
    assert_eq!(*endpoint, door.proxy_url(PAR));
}

#[tokio::test]
async fn a_code_is_bound_to_the_key_that_was_proven_when_its_request_was_pushed() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    let (key, other) = (Key::make(), Key::make());
    let push_with = async |key: &Key, form: &[(&str, &str)]| {
        let url = door.proxy_url(PAR);
        let proof = key.proof("POST", &url, json!({}));
        send(client().post(&url).form(form).header("dpop", proof)).await
    };
    let thumbprint = other.thumbprint();
    let answer = push_with(&key, &form("dpop_jkt", &thumbprint)).await;
    assert_error(answer, 400, "invalid_dpop_proof", "");
    // No key could ever have such a thumbprint.
    for malformed in [&thumbprint[1..], "!", &format!("{thumbprint}A")] {
        let answer = send(
            client()
                .post(door.proxy_url(PAR))
                .form(&form("dpop_jkt", malformed)),
        );
        let text = "Malformed parameter, dpop_jkt";
        assert_error(answer.await, 400, "invalid_request", text);
    }

    for (by, status) in [(&other, 400), (&key, 200)] {
        let body = push_with(&key, &form("prompt", "consent"))
            .await
            .expect(201)
            .json();
        let uri = body["request_uri"].as_str().expect("a text");
        let page = browser.get(&short("web", uri)).await.expect(200);
        let answer = told(&browser.approve(&page).await, CALLBACK);
        let url = door.proxy_url("/oauth2/access_token");
        let fields = [
            ("grant_type", "authorization_code"),
            ("client_id", "web"),
            ("client_secret", "web-secret"),
            ("code", &answer["code"]),
            ("redirect_uri", CALLBACK),
            ("code_verifier", VERIFIER),
        ];
        let proof = by.proof("POST", &url, json!({}));
        let request = client().post(&url).form(&fields).header("dpop", proof);
        send(request).await.expect(status);
    }
}

#[tokio::test]
async fn answers_smuggled_into_a_pushed_request_are_not_the_users() {
    let door = door().await;
    let browser = signed_in(&door, "demo").await;
    let smuggled = [
        &form("", "")[..],
        &[("approve", "true"), ("decision", "allow"), ("csrf", "x")],
    ]
    .concat();
    let uri = pushed(&door, &smuggled).await;
    let page = browser.get(&short("web", &uri)).await.expect(200);
    assert!(page.body.contains("id=\"approve\""), "{}", page.body);
}

#[tokio::test]
async fn a_flood_of_refused_requests_is_one_line_of_the_log() {
    let door = door().await;
    let uri = pushed(&door, &form("", "")).await;
    let browser = Browser::new(&door);
    // Another client's request, again and again.
    for _ in 0..50 {
        browser.get(&short("trusted", &uri)).await.expect(400);
    }
    let line = "another client's pushed request";
    door.wait_log("the line", |one| one.contains(line)).await;
    let lines = door.log_text().matches(line).count();
    // Ten seconds may have passed on a machine that has much to do.
    assert!(lines < 50, "{lines} lines");
}
