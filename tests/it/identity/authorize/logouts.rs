//! Clients are told that a session has ended: by post behind the user's back,
//! and by frames of the signed-out page.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::browser::{Browser, between};
use super::{VERIFIER, exchange_as, path, signed_in, told, trusted, with};
use crate::support::http::{client, send};
use crate::support::issuer::{claims_of, forge};
use crate::support::upstream::ReceivedRequest;
use crate::support::{Door, Reply, Setup, Upstream, eventually};

const EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";
const SHOP_CALLBACK: &str = "https://shop.example/cb";
const SHOP: (&str, &str) = ("shop", "0123456789abcdef0123456789abcdef");

/// A door with a client `trusted` that is told nothing, `shop` whose ID tokens
/// are signed with its secret and that listens at `shop`, and `forum`, which
/// listens at `forum` and is told by frames, too.
async fn door(shop: &str, forum: &str) -> Door {
    let mut identity = super::IDENTITY.to_owned();
    let clients = format!(
        r#"        - client_id: shop
          client_secret: {secret}
          grant_types: [authorization_code, refresh_token]
          redirect_uris: ["{SHOP_CALLBACK}"]
          require_consent: false
          id_token_signed_response_alg: HS256
          backchannel_logout_uri: "{shop}"
          backchannel_logout_session_required: true
          scope: openid email offline_access
        - client_id: forum
          client_secret: forum-secret
          grant_types: [authorization_code]
          redirect_uris: ["https://forum.example/cb"]
          post_logout_redirect_uris: ["https://forum.example/bye"]
          require_consent: false
          backchannel_logout_uri: "{forum}"
          frontchannel_logout_uri: "https://forum.example/out?x=1"
          frontchannel_logout_session_required: true
          scope: openid email
        - client_id: machine
"#,
        secret = SHOP.1
    );
    identity = identity.replacen("        - client_id: machine\n", &clients, 1);
    Setup::new().identity(&identity).start().await
}

async fn listener() -> Upstream {
    Upstream::start(|_| Reply::Json(200, json!({}))).await
}

/// Signs a client in at this browser; gives its tokens.
async fn join(door: &Door, browser: &Browser<'_>, id: &str, secret: &str) -> Value {
    let callback = format!("https://{id}.example/cb");
    let request = with(trusted(), "client_id", id);
    let request = with(request, "redirect_uri", &callback);
    let code = told(&browser.get(&path(&request)).await, &callback)["code"].clone();
    let answer = exchange_as(door, (id, secret), &code, &callback, VERIFIER).await;
    answer.expect(200).json()
}

async fn join_both(door: &Door, browser: &Browser<'_>) -> (Value, Value) {
    let shop = join(door, browser, SHOP.0, SHOP.1).await;
    (shop, join(door, browser, "forum", "forum-secret").await)
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// The logout token that a client was posted.
fn logout_token(seen: &ReceivedRequest) -> String {
    assert_eq!(seen.method, "POST");
    let kind = seen.header("content-type");
    assert_eq!(kind, Some("application/x-www-form-urlencoded"));
    let mut fields = url::form_urlencoded::parse(&seen.body);
    let (name, token) = fields.next().expect("a field");
    assert_eq!((name.as_ref(), fields.next()), ("logout_token", None));
    token.into_owned()
}

async fn told_to(listener: &Upstream) -> ReceivedRequest {
    eventually("the client to be told", || {
        let seen = listener.seen().last().cloned();
        async move { seen }
    })
    .await
}

fn header_of(token: &str) -> Value {
    let header = token.split('.').next().unwrap_or_default();
    let header = URL_SAFE_NO_PAD.decode(header).expect("base64url");
    serde_json::from_slice(&header).expect("JSON")
}

async fn is_good(door: &Door, tokens: &Value) -> bool {
    let token = text(tokens, "access_token");
    let url = door.proxy_url(&format!("/oauth2/tokeninfo?access_token={token}"));
    send(client().get(url)).await.status == 200
}

fn end(hint: &str) -> String {
    format!("/oauth2/connect/endSession?id_token_hint={hint}")
}

#[tokio::test]
async fn every_client_of_the_session_is_told_in_a_token_of_its_kind() {
    let (at_shop, at_forum) = (listener().await, listener().await);
    let door = door(&at_shop.url("/logout"), &at_forum.url("/logout")).await;
    let browser = signed_in(&door, "demo").await;
    let (shop, forum) = join_both(&door, &browser).await;
    let id_token = claims_of(text(&shop, "id_token"));
    browser.get(&end(text(&shop, "id_token"))).await.expect(200);
    for (listener, client_id, alg) in [(&at_shop, "shop", "HS256"), (&at_forum, "forum", "RS256")] {
        let seen = told_to(listener).await;
        assert_eq!(seen.target, "/logout");
        let token = logout_token(&seen);
        let header = header_of(&token);
        assert_eq!(
            (text(&header, "typ"), text(&header, "alg")),
            ("logout+jwt", alg)
        );
        let claims = claims_of(&token);
        assert_eq!(claims["iss"], id_token["iss"]);
        assert_eq!(claims["sub"], id_token["sub"]);
        assert_eq!(claims["sid"], id_token["sid"]);
        assert_eq!(claims["aud"], client_id);
        assert_eq!(claims["events"], json!({EVENT: {}}));
        assert!(claims.get("nonce").is_none());
        assert!(text(&claims, "jti").len() >= 22);
        let life = claims["exp"].as_i64().zip(claims["iat"].as_i64());
        assert_eq!(life.map(|(exp, iat)| exp - iat), Some(120));
    }
    assert!(!is_good(&door, &shop).await && !is_good(&door, &forum).await);
    let silent = path(&with(trusted(), "prompt", "none"));
    let answer = told(&browser.get(&silent).await, "https://trusted.example/cb");
    assert_eq!(answer["error"], "login_required");
}

#[tokio::test]
async fn a_logout_token_is_no_id_token_hint_and_no_access_token() {
    let (at_shop, at_forum) = (listener().await, listener().await);
    let door = door(&at_shop.url("/"), &at_forum.url("/")).await;
    let browser = signed_in(&door, "demo").await;
    let (_, forum) = join_both(&door, &browser).await;
    browser
        .get(&end(text(&forum, "id_token")))
        .await
        .expect(200);
    let token = logout_token(&told_to(&at_forum).await);
    let other = signed_in(&door, "demo").await;
    other.get(&end(&token)).await.expect(400);
    let url = door.proxy_url(&format!("/oauth2/tokeninfo?access_token={token}"));
    send(client().get(url)).await.expect(401);
}

#[tokio::test]
async fn a_client_that_is_down_is_told_after_a_crash_and_keeps_no_other_waiting() {
    let up = Arc::new(AtomicBool::new(false));
    let is_up = Arc::clone(&up);
    let at_shop = Upstream::start(move |_| {
        if is_up.load(Ordering::Relaxed) {
            Reply::Json(200, json!({}))
        } else {
            Reply::Json(503, json!({}))
        }
    })
    .await;
    let at_forum = listener().await;
    let mut door = door(&at_shop.url("/logout"), &at_forum.url("/logout")).await;
    let sid = {
        let browser = signed_in(&door, "demo").await;
        let (shop, _) = join_both(&door, &browser).await;
        browser.get(&end(text(&shop, "id_token"))).await.expect(200);
        told_to(&at_forum).await;
        told_to(&at_shop).await;
        claims_of(text(&shop, "id_token"))["sid"].clone()
    };
    door.wait_log("the failure", |line| {
        line.contains("is not told of a logout yet") && line.contains("shop")
    })
    .await;
    let metrics = door.admin_get("/metrics").await.expect(200).body;
    assert!(
        metrics.contains("doorward_backchannel_logouts_total{outcome=\"failed\"}"),
        "{metrics}"
    );
    door.kill();
    up.store(true, Ordering::Relaxed);
    let before = at_shop.seen().len();
    door.start().await;
    let seen = eventually("the client to be told again", || {
        let seen = at_shop.seen().get(before).cloned();
        async move { seen }
    })
    .await;
    assert_eq!(claims_of(&logout_token(&seen))["sid"], sid);
    eventually("the success to be counted", || {
        let metrics = door.admin_get("/metrics");
        async move {
            // Twice, where the other client's was not settled before the crash.
            let text = metrics.await.body;
            let told = "doorward_backchannel_logouts_total{outcome=\"delivered\"} ";
            let mut counts = text.lines().filter_map(|line| line.strip_prefix(told));
            counts.any(|count| count != "0").then_some(())
        }
    })
    .await;
}

#[tokio::test]
async fn an_operator_lists_and_ends_sessions() {
    let (at_shop, at_forum) = (listener().await, listener().await);
    let door = door(&at_shop.url("/"), &at_forum.url("/")).await;
    let demo = signed_in(&door, "demo").await;
    let alice = signed_in(&door, "alice").await;
    let (shop, _) = join_both(&door, &demo).await;
    let sid = claims_of(text(&shop, "id_token"))["sid"].clone();
    let sid = sid.as_str().expect("a name").to_owned();

    let all = door
        .admin_get("/identity/sessions")
        .await
        .expect(200)
        .json();
    assert_eq!(all["data"].as_array().map(Vec::len), Some(2));
    let first = door.admin_get("/identity/sessions?size=1").await.json();
    let next = door
        .admin_get(text(&first, "next"))
        .await
        .expect(200)
        .json();
    assert_ne!(first["data"][0]["id"], next["data"][0]["id"]);
    assert_eq!(next["next"], Value::Null);
    for (query, count) in [
        ("user=DEMO", 1),
        ("user=nobody", 0),
        ("client_id=shop", 1),
        ("client_id=shop&user=alice", 0),
        ("realm=/alpha", 0),
    ] {
        let found = door.admin_get(&format!("/identity/sessions?{query}")).await;
        let found = found.expect(200).json();
        assert_eq!(
            found["data"].as_array().map(Vec::len),
            Some(count),
            "{query}"
        );
    }
    let one = format!("/identity/sessions/{sid}");
    let shown = door.admin_get(&one).await.expect(200).json();
    assert_eq!(shown["user"], "demo");
    assert_eq!(shown["clients"], json!(["forum", "shop", "trusted"]));
    let cookie = demo.cookie("iPlanetDirectoryPro").expect("a session");
    assert!(!shown.to_string().contains(&cookie), "no token is shown");
    door.admin_get(&format!("{one}?realm=/alpha"))
        .await
        .expect(404);

    door.admin_delete("/identity/sessions").await.expect(400);
    door.admin_delete(&one).await.expect(204);
    door.admin_delete(&one).await.expect(404);
    assert!(!is_good(&door, &shop).await);
    let told = claims_of(&logout_token(&told_to(&at_shop).await));
    assert_eq!(told["sid"], sid.as_str());

    join(&door, &alice, "forum", "forum-secret").await;
    let both = "/identity/sessions?client_id=forum&user=alice";
    let ended = door.admin_delete(both).await.expect(200).json();
    assert_eq!(ended["ended"], 1);
    let page = alice.get(&path(&trusted())).await.expect(200);
    assert!(page.body.contains("name=\"password\""));
}

#[tokio::test]
async fn clients_are_told_when_a_script_signs_out_or_the_user_goes() {
    let (at_shop, at_forum) = (listener().await, listener().await);
    let door = door(&at_shop.url("/"), &at_forum.url("/")).await;
    let demo = signed_in(&door, "demo").await;
    join_both(&door, &demo).await;
    let token = demo.cookie("iPlanetDirectoryPro").expect("a session");
    let url = door.proxy_url("/json/sessions?_action=logout");
    let request = client().post(url).header("iPlanetDirectoryPro", &token);
    send(request).await.expect(200);
    told_to(&at_shop).await;
    told_to(&at_forum).await;

    let added = door
        .command(&[
            "users",
            "add",
            "carol",
            "-c",
            "doorward.yaml",
            "--password-stdin",
        ])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .and_then(|mut child| {
            use std::io::Write as _;
            child
                .stdin
                .take()
                .expect("piped")
                .write_all(b"Ch4ng31t-carol\n")?;
            child.wait()
        });
    assert!(added.expect("it runs").success());
    let carol = signed_in(&door, "carol").await;
    let (shop, _) = join_both(&door, &carol).await;
    assert!(
        door.run(&["users", "delete", "carol", "-c", "doorward.yaml"])
            .status
            .success()
    );
    let sid = claims_of(text(&shop, "id_token"))["sid"].clone();
    eventually("the client to be told of the user's end", || {
        let seen = at_shop.seen();
        let tokens = seen.iter().map(|seen| claims_of(&logout_token(seen)));
        let found = tokens.into_iter().find(|claims| claims["sid"] == sid);
        async move { found.filter(|claims| claims["sub"] == "carol") }
    })
    .await;
}

#[tokio::test]
async fn the_signed_out_page_tells_clients_by_frames_and_goes_on() {
    let (at_shop, at_forum) = (listener().await, listener().await);
    let door = door(&at_shop.url("/"), &at_forum.url("/")).await;
    let browser = signed_in(&door, "demo").await;
    let (_, forum) = join_both(&door, &browser).await;
    let hint = text(&forum, "id_token");
    let sid = claims_of(hint)["sid"].as_str().expect("a name").to_owned();
    let link = format!(
        "{}&post_logout_redirect_uri=https://forum.example/bye&state=a%26b",
        end(hint)
    );
    let page = browser.get(&link).await.expect(200);
    let frame = between(&page.body, "<iframe src=\"", "\"").expect("a frame");
    let frame = url::Url::parse(&frame).expect("a URL");
    assert!(frame.as_str().starts_with("https://forum.example/out?x=1&"));
    let pairs: Vec<_> = frame.query_pairs().into_owned().collect();
    assert_eq!(pairs[1], ("iss".to_owned(), door.proxy_url("/oauth2")));
    assert_eq!(pairs[2], ("sid".to_owned(), sid));
    assert_eq!(page.body.matches("<iframe").count(), 1);
    let policy = page.header("content-security-policy");
    assert!(
        policy.contains("frame-src https://forum.example;"),
        "{policy}"
    );
    let next = "https://forum.example/bye?state=a%26b";
    let shown = between(&page.body, "id=\"continue\" href=\"", "\"");
    assert_eq!(shown.as_deref(), Some(next));
    // Where scripts run, the page goes on when the frames are there.
    let by_itself = "<noscript><meta http-equiv=\"refresh\" content=\"";
    let by_itself = between(&page.body, by_itself, "\"");
    assert!(by_itself.is_some_and(|text| text.ends_with(&format!(";url={next}"))));
    assert_eq!(browser.cookie("iPlanetDirectoryPro"), None);
}

#[tokio::test]
async fn forged_id_token_hints_sign_nobody_out() {
    let (at_shop, at_forum) = (listener().await, listener().await);
    let door = door(&at_shop.url("/"), &at_forum.url("/")).await;
    let browser = signed_in(&door, "demo").await;
    let (shop, forum) = join_both(&door, &browser).await;
    let good = claims_of(text(&forum, "id_token"));
    let by_secret = claims_of(text(&shop, "id_token"));
    let id_header = header_of(text(&forum, "id_token"));
    let signature = |token: &str| {
        let part = token.rsplit('.').next().unwrap_or_default();
        URL_SAFE_NO_PAD.decode(part).expect("base64url")
    };
    let forged = [
        forge(&json!({"alg": "none"}), &good, b""),
        forge(&json!({"alg": "none", "typ": "JWT"}), &by_secret, b""),
        forge(&json!({"alg": "HS256"}), &good, &[0; 32]),
        forge(&json!({"alg": "HS256"}), &by_secret, &[0; 32]),
        // The signature of another token.
        forge(&id_header, &by_secret, &signature(text(&forum, "id_token"))),
        text(&forum, "access_token").to_owned(),
    ];
    let stranger = Browser::new(&door);
    for hint in forged {
        for browser in [&browser, &stranger] {
            browser.get(&end(&hint)).await.expect(400);
        }
    }
    assert!(is_good(&door, &shop).await && is_good(&door, &forum).await);
    assert!(at_shop.seen().is_empty() && at_forum.seen().is_empty());
}

#[tokio::test]
async fn logout_csrf_by_a_form_of_another_site() {
    let (at_shop, at_forum) = (listener().await, listener().await);
    let door = door(&at_shop.url("/"), &at_forum.url("/")).await;
    let browser = signed_in(&door, "demo").await;
    let page = browser.get("/oauth2/connect/endSession").await.expect(200);
    let form = super::browser::Form::of(&page).with("logout-yes", "true");
    let foreign = [("sec-fetch-site", "cross-site")];
    let again = browser.post_with(&form, &foreign).await.expect(200);
    assert!(again.body.contains("id=\"logout-yes\""));
    let bare = form.clone().with("csrf", "");
    browser.post(&bare).await.expect(200);
    let silent = path(&with(trusted(), "prompt", "none"));
    let answer = told(&browser.get(&silent).await, "https://trusted.example/cb");
    assert!(answer.contains_key("code"), "{answer:?}");
}
