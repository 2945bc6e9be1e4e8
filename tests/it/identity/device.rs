//! The device grant, as a device, a browser and attackers meet it.

use serde_json::Value;

use super::authorize::browser::{Browser, Form, between, shown_error};
use crate::support::http::{client, send};
use crate::support::{Answer, Door, Setup};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

const IDENTITY: &str = r#"
  base_url: http://@PROXY@
  realms:
    /:
      settings: {device_polling_interval: 60}
      users:
        - {userName: demo, password: Ch4ng31t-demo}
        - {userName: alice, password: Ch4ng31t-alice}
      clients:
        - client_id: tv
          token_endpoint_auth_method: none
          client_name: 'Telly "><script>alert(1)</script>'
          grant_types: ["urn:ietf:params:oauth:grant-type:device_code", refresh_token]
          scope: openid email offline_access
        - client_id: printer
          client_secret: printer-secret
          grant_types: ["http://oauth.net/grant_type/device/1.0"]
          scope: openid
        - client_id: web
          client_secret: web-secret
          grant_types: [authorization_code]
          scope: openid
    /alpha:
      users: [{userName: demo, password: Ch4ng31t-demo}]
      clients:
        - client_id: tv
          token_endpoint_auth_method: none
          grant_types: ["urn:ietf:params:oauth:grant-type:device_code"]
          scope: openid
"#;

async fn door() -> Door {
    Setup::new().identity(IDENTITY).start().await
}

async fn post(door: &Door, path: &str, fields: &[(&str, &str)]) -> Answer {
    send(client().post(door.proxy_url(path)).form(fields)).await
}

async fn ask(door: &Door, fields: &[(&str, &str)]) -> Answer {
    post(door, "/oauth2/device/code", fields).await
}

/// What the public client is given.
async fn codes(door: &Door) -> Value {
    let answer = ask(door, &[("client_id", "tv"), ("scope", "openid email")]).await;
    answer.expect(200).json()
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

async fn poll(door: &Door, device_code: &str) -> Answer {
    let fields = [
        ("grant_type", GRANT),
        ("client_id", "tv"),
        ("device_code", device_code),
    ];
    post(door, "/oauth2/access_token", &fields).await
}

#[track_caller]
fn error(answer: Answer) -> String {
    text(&answer.expect(400).json(), "error").to_owned()
}

fn page_of(code: &str) -> String {
    format!("/oauth2/device/user?user_code={code}")
}

/// A browser in which `user` is signed in, at the question about this code.
async fn asked<'d>(door: &'d Door, user: &str, code: &str) -> (Browser<'d>, Answer) {
    let browser = Browser::new(door);
    let page = browser.get(&page_of(code)).await.expect(200);
    let page = browser.sign_in(&page, user).await.expect(200);
    (browser, page)
}

#[tokio::test]
async fn polls_from_before_a_restart_count() {
    let mut door = door().await;
    let codes = codes(&door).await;
    let device_code = text(&codes, "device_code");
    assert_eq!(
        error(poll(&door, device_code).await),
        "authorization_pending"
    );
    door.kill();
    door.start().await;
    assert_eq!(error(poll(&door, device_code).await), "slow_down");
}

#[tokio::test]
async fn a_device_gets_tokens_once_its_user_agreed() {
    let door = door().await;
    let answer = ask(&door, &[("client_id", "tv"), ("scope", "openid email")]).await;
    let answer = answer.expect(200);
    assert_eq!(answer.header("cache-control"), "no-store");
    let given = answer.json();
    let page = door.proxy_url("/oauth2/device/user");
    assert_eq!(given["verification_uri"], *page);
    assert!(given["verification_url"].is_null());
    let code = text(&given, "user_code");
    let complete = format!("{page}?user_code={code}");
    assert_eq!(given["verification_uri_complete"], *complete);
    assert_eq!(given["expires_in"], 300);
    assert_eq!(given["interval"], 60);
    let device_code = text(&given, "device_code");
    assert_eq!(
        error(poll(&door, device_code).await),
        "authorization_pending"
    );
    assert_eq!(error(poll(&door, device_code).await), "slow_down");

    let browser = Browser::new(&door);
    let entry = browser.get("/oauth2/device/user").await.expect(200);
    let typed = code.to_lowercase().replace('-', " ");
    let form = Form::of(&entry).with("user_code", &typed);
    let next = browser.post(&form).await.expect(303);
    let page = browser.get(next.header("location")).await.expect(200);
    let page = browser.sign_in(&page, "demo").await.expect(200);
    // The question: for what, to whom, about which device.
    for shown in [
        "Is this your device?",
        "Telly &#34;",
        code,
        "demo",
        "e-mail",
    ] {
        assert!(page.body.contains(shown), "{shown}: {}", page.body);
    }
    assert!(!page.body.contains("<script>alert"));
    let done = browser.approve(&page).await.expect(200);
    assert!(done.body.contains("Your device is connected"));

    let tokens = poll(&door, device_code).await.expect(200);
    assert_eq!(tokens.header("cache-control"), "no-store");
    let tokens = tokens.json();
    assert_eq!(tokens["scope"], "openid email");
    assert!(tokens["id_token"].is_string());
    let access = text(&tokens, "access_token");
    let info = door.proxy_url(&format!("/oauth2/tokeninfo?access_token={access}"));
    let info = send(client().get(info)).await.expect(200).json();
    assert_eq!(
        (text(&info, "sub"), text(&info, "grant_type")),
        ("demo", GRANT)
    );
    let refresh = text(&tokens, "refresh_token");
    let fields = [
        ("grant_type", "refresh_token"),
        ("client_id", "tv"),
        ("refresh_token", refresh),
    ];
    door.token_request(&fields).await.expect(200);
    // Neither code is good for more.
    assert_eq!(error(poll(&door, device_code).await), "invalid_grant");
    let page = browser.get(&page_of(code)).await.expect(400);
    assert_eq!(shown_error(&page), "invalid_user_code");
}

#[tokio::test]
async fn a_confidential_client_authenticates_for_codes_and_tokens() {
    let door = door().await;
    let secret = ("client_secret", "printer-secret");
    let answer = ask(&door, &[("client_id", "printer"), ("scope", "openid")]).await;
    assert_eq!(text(&answer.expect(401).json(), "error"), "invalid_client");
    let asked_for = [("client_id", "printer"), secret, ("scope", "openid")];
    let given = ask(&door, &asked_for).await.expect(200).json();
    let code = text(&given, "user_code");
    let (browser, page) = asked(&door, "demo", code).await;
    browser.approve(&page).await.expect(200);
    // By the name that the grant had in drafts, and no refresh token.
    let earlier = "http://oauth.net/grant_type/device/1.0";
    let mut fields = vec![
        ("grant_type", earlier),
        ("client_id", "printer"),
        ("device_code", text(&given, "device_code")),
    ];
    let refused = post(&door, "/oauth2/access_token", &fields).await;
    refused.expect(401);
    fields.push(secret);
    let tokens = post(&door, "/oauth2/access_token", &fields).await;
    let tokens = tokens.expect(200).json();
    assert!(tokens["refresh_token"].is_null(), "{tokens}");
}

#[tokio::test]
async fn who_asks_as_in_drafts_is_answered_in_their_words() {
    let door = door().await;
    let fields = [
        ("client_id", "tv"),
        ("scope", "openid"),
        ("response_type", "token"),
    ];
    let given = ask(&door, &fields).await.expect(200).json();
    assert_eq!(given["verification_url"], given["verification_uri"]);
}

#[tokio::test]
async fn a_request_for_codes_is_read_strictly() {
    let door = door().await;
    let tv = ("client_id", "tv");
    for (fields, status, error) in [
        (
            vec![("client_id", "web"), ("client_secret", "web-secret")],
            400,
            "unauthorized_client",
        ),
        (vec![("client_id", "nobody")], 401, "invalid_client"),
        (vec![tv, ("scope", "admin")], 400, "invalid_scope"),
        (vec![tv], 400, "invalid_scope"),
        (
            vec![tv, ("scope", "openid"), ("scope", "openid")],
            400,
            "invalid_request",
        ),
        (
            vec![
                tv,
                ("scope", "openid"),
                ("resource", "https://other.example"),
            ],
            400,
            "invalid_target",
        ),
        (
            vec![tv, ("scope", "openid"), ("code_challenge_method", "S256")],
            400,
            "invalid_request",
        ),
        (
            vec![tv, ("scope", "openid"), ("code_challenge", "short")],
            400,
            "invalid_request",
        ),
        (
            vec![
                tv,
                ("scope", "openid"),
                (
                    "code_challenge",
                    "longer-than-the-digest-of-any-verifier-there-is",
                ),
                ("code_challenge_method", "S256"),
            ],
            400,
            "invalid_request",
        ),
    ] {
        let answer = ask(&door, &fields).await.expect(status);
        assert_eq!(text(&answer.json(), "error"), error, "{fields:?}");
    }
    let path = door.proxy_url("/oauth2/device/code?client_id=tv&scope=openid");
    send(client().get(&path)).await.expect(405);
    send(client().post(&path)).await.expect(400);
    let metadata = door.proxy_url("/oauth2/.well-known/openid-configuration");
    let metadata = send(client().get(metadata)).await.expect(200).json();
    let endpoint = door.proxy_url("/oauth2/device/code");
    assert_eq!(metadata["device_authorization_endpoint"], *endpoint);
    let grants = metadata["grant_types_supported"]
        .as_array()
        .expect("a list");
    assert!(grants.iter().any(|grant| grant == GRANT));
}

#[tokio::test]
async fn what_the_user_denies_the_device_is_told() {
    let door = door().await;
    let given = codes(&door).await;
    let (browser, page) = asked(&door, "demo", text(&given, "user_code")).await;
    let form = Form::of(&page);
    // Both buttons at once are a no.
    let form = form.with("approve", "true").with("deny", "true");
    let done = browser.post(&form).await.expect(200);
    assert!(done.body.contains("gets no access"), "{}", done.body);
    for _ in 0..2 {
        let polled = poll(&door, text(&given, "device_code")).await;
        assert_eq!(error(polled), "access_denied");
    }
}

#[tokio::test]
async fn codes_survive_a_kill_and_the_answer_too() {
    let mut door = door().await;
    let (one, other) = (codes(&door).await, codes(&door).await);
    let (browser, page) = asked(&door, "demo", text(&one, "user_code")).await;
    browser.approve(&page).await.expect(200);
    door.kill();
    door.start().await;
    poll(&door, text(&one, "device_code")).await.expect(200);
    let pending = poll(&door, text(&other, "device_code")).await;
    assert_eq!(error(pending), "authorization_pending");
    let (browser, page) = asked(&door, "demo", text(&other, "user_code")).await;
    browser.approve(&page).await.expect(200);
    poll(&door, text(&other, "device_code")).await.expect(200);
}

#[tokio::test]
async fn several_tabs_each_let_their_own_device_in() {
    let door = door().await;
    let (one, other) = (codes(&door).await, codes(&door).await);
    let (browser, first) = asked(&door, "demo", text(&one, "user_code")).await;
    let second = browser.get(&page_of(text(&other, "user_code"))).await;
    let again = browser.get(&page_of(text(&one, "user_code"))).await;
    browser.approve(&second.expect(200)).await.expect(200);
    let deny = Form::of(&first).with("deny", "true");
    browser.post(&deny).await.expect(200);
    // Of two tabs with one device, the first answer counts.
    let late = browser.approve(&again.expect(200)).await.expect(400);
    assert_eq!(shown_error(&late), "invalid_user_code");
    let polled = poll(&door, text(&one, "device_code")).await;
    assert_eq!(error(polled), "access_denied");
    poll(&door, text(&other, "device_code")).await.expect(200);
}

#[tokio::test]
async fn device_code_of_another_client_or_realm() {
    let door = door().await;
    let given = codes(&door).await;
    let (code, device_code) = (text(&given, "user_code"), text(&given, "device_code"));
    // A code of one realm is none in another.
    let alpha = Browser::new(&door);
    let path = format!("/oauth2/realms/root/realms/alpha/device/user?user_code={code}");
    let page = alpha.get(&path).await.expect(400);
    assert_eq!(shown_error(&page), "invalid_user_code");
    let (browser, page) = asked(&door, "demo", code).await;
    browser.approve(&page).await.expect(200);
    let fields = [
        ("grant_type", GRANT),
        ("client_id", "printer"),
        ("client_secret", "printer-secret"),
        ("device_code", device_code),
    ];
    let stolen = post(&door, "/oauth2/access_token", &fields).await;
    assert_eq!(error(stolen), "invalid_grant");
    let fields = [
        ("grant_type", GRANT),
        ("client_id", "tv"),
        ("device_code", device_code),
    ];
    let path = "/oauth2/realms/root/realms/alpha/access_token";
    assert_eq!(error(post(&door, path, &fields).await), "invalid_grant");
    assert_eq!(error(poll(&door, "no-such-code").await), "invalid_grant");
    let query = format!("/oauth2/access_token?device_code={device_code}");
    assert_eq!(
        error(post(&door, &query, &fields[..2]).await),
        "invalid_request"
    );
    poll(&door, device_code).await.expect(200);
}

#[tokio::test]
async fn guessing_user_codes() {
    let door = door().await;
    let given = codes(&door).await;
    let right = text(&given, "user_code");
    let browser = Browser::new(&door);
    let mut seen = 0;
    let stopped = loop {
        let page = browser.get(&page_of("BCDF-GHJK")).await;
        if page.status != 400 {
            break page;
        }
        seen += 1;
        assert!(seen < 50, "nobody stops the guessing");
    };
    let stopped = stopped.expect(429);
    assert_eq!(shown_error(&stopped), "slow_down");
    assert!(!stopped.header("retry-after").is_empty());
    // The right one is not looked at any more, nor told from wrong ones.
    let page = browser.get(&page_of(right)).await.expect(429);
    assert_eq!(shown_error(&page), "slow_down");
    let form = Form::of(&page).with("user_code", right);
    browser.post(&form).await.expect(429);
}

#[tokio::test]
async fn csrf_on_the_question_about_a_device() {
    let door = door().await;
    let given = codes(&door).await;
    let code = text(&given, "user_code");
    let (browser, page) = asked(&door, "demo", code).await;
    let form = Form::of(&page).with("approve", "true");
    let (other, others_page) = asked(&door, "alice", code).await;
    let foreign = Form::of(&others_page).field("csrf").to_owned();
    for csrf in ["", "x", &foreign] {
        let answer = browser.post(&form.clone().with("csrf", csrf)).await;
        assert_eq!(shown_error(&answer.expect(400)), "bad_request", "{csrf}");
    }
    for site in ["cross-site", "same-site"] {
        let answer = browser.post_with(&form, &[("sec-fetch-site", site)]).await;
        answer.expect(400);
    }
    // The question of one code answers no other.
    let second = codes(&door).await;
    let mut moved = form.clone();
    moved.action = page_of(text(&second, "user_code"));
    browser.post(&moved).await.expect(400);
    // No link decides, also not for whoever is signed in.
    let link = format!("{}&approve=true&decision=allow", page_of(code));
    browser.get(&link).await.expect(200);
    for given in [&given, &second] {
        let polled = poll(&door, text(given, "device_code")).await;
        assert_eq!(error(polled), "authorization_pending");
    }
    drop(other);
    // Nor does anybody sign in by another site's form.
    let stranger = Browser::new(&door);
    let page = stranger.get(&page_of(code)).await.expect(200);
    let forged = Form::of(&page)
        .with("csrf", "x")
        .with("username", "demo")
        .with("password", "Ch4ng31t-demo");
    let answer = stranger.post(&forged).await.expect(400);
    assert_eq!(shown_error(&answer), "bad_request");
}

#[tokio::test]
async fn password_guessing_at_the_device_page_meets_the_lock_of_all_sign_ins() {
    let locks = IDENTITY.replace("\n  realms:", "\n  lockout: {failures: 2}\n  realms:");
    let door = Setup::new().identity(&locks).start().await;
    let given = codes(&door).await;
    let browser = Browser::new(&door);
    let page = browser
        .get(&page_of(text(&given, "user_code")))
        .await
        .expect(200);
    let form = |password: &str| {
        let form = Form::of(&page).with("username", "demo");
        form.with("password", password)
    };
    for password in ["wrong", "wrong again", "Ch4ng31t-demo"] {
        let answer = browser.post(&form(password)).await.expect(400);
        assert_eq!(shown_error(&answer), "authentication_failed", "{password}");
        assert!(browser.cookie("iPlanetDirectoryPro").is_none());
    }
}

#[tokio::test]
async fn scripts_decide_with_the_token_of_their_session() {
    let door = door().await;
    let given = codes(&door).await;
    let session = door.proxy_url("/json/authenticate");
    let session = client()
        .post(session)
        .header("x-service-username", "demo")
        .header("x-service-password", "Ch4ng31t-demo");
    let session = send(session).await.expect(200).json();
    let token = text(&session, "tokenId");
    let decide = |csrf: &str| {
        let fields = [
            ("user_code", text(&given, "user_code").to_owned()),
            ("decision", "allow".to_owned()),
            ("csrf", csrf.to_owned()),
        ];
        let request = client().post(door.proxy_url("/oauth2/device/user"));
        let request = request.header("cookie", format!("iPlanetDirectoryPro={token}"));
        send(request.form(&fields))
    };
    decide("").await.expect(400);
    decide(token).await.expect(200);
    poll(&door, text(&given, "device_code")).await.expect(200);
}

#[tokio::test]
async fn clickjacking_and_caching_of_the_device_pages() {
    let door = door().await;
    let given = codes(&door).await;
    let (_, question) = asked(&door, "demo", text(&given, "user_code")).await;
    let browser = Browser::new(&door);
    let entry = browser.get("/oauth2/device/user").await.expect(200);
    let wrong = browser.get(&page_of("x")).await.expect(400);
    for page in [question, entry, wrong] {
        let policy = page.header("content-security-policy");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        assert_eq!(page.header("x-frame-options"), "DENY");
        assert_eq!(page.header("cache-control"), "no-store");
    }
    let german = client().get(door.proxy_url("/oauth2/device/user?ui_locales=de"));
    let german = send(german).await.expect(200);
    assert!(german.body.contains("Gerät verbinden"));
    let action = between(&german.body, "action=\"", "\"").expect("a form");
    assert_eq!(action, "/oauth2/device/user?ui_locales=de");
}
