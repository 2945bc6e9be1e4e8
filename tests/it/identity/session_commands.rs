//! Sessions at the operator's desk: `doorward sessions` and
//! `/identity/sessions` of the admin listener.

use std::process::Output;

use serde_json::{Value, json};

use super::authorize::browser::Browser;
use crate::support::http::{client, send};
use crate::support::{Door, Reply, Setup, Upstream, eventually};

const SECTION: &str = r#"
  base_url: http://@PROXY@
  realms:
    /:
      users:
        - {userName: demo, password: Ch4ng31t-demo}
        - {userName: alice, password: Ch4ng31t-alice}
      clients:
        - client_id: shop
          client_secret: shop-secret
          grant_types: [authorization_code, refresh_token]
          redirect_uris: ["https://shop.example/cb"]
          require_consent: false
          require_pkce: false
          backchannel_logout_uri: "@SHOP@"
          scope: openid
    /staff:
      users: [{userName: anna, password: Ch4ng31t-anna}]
"#;

async fn door(shop: &Upstream) -> Door {
    let section = SECTION.replace("@SHOP@", &shop.url("/logout"));
    Setup::new().identity(&section).start().await
}

async fn shop() -> Upstream {
    Upstream::start(|_| Reply::Json(200, json!({}))).await
}

async fn session(door: &Door, realm: &str, user: &str) -> String {
    let request = client()
        .post(door.proxy_url(&format!("/json{realm}/authenticate")))
        .header("x-service-username", user)
        .header("x-service-password", format!("Ch4ng31t-{user}"));
    let body = send(request).await.expect(200).json();
    body["tokenId"].as_str().expect("a token").to_owned()
}

async fn name(door: &Door, token: &str) -> Option<String> {
    let request = client()
        .post(door.proxy_url("/json/sessions?_action=validate"))
        .header("iPlanetDirectoryPro", token);
    let body = send(request).await.expect(200).json();
    body["sessionUid"].as_str().map(str::to_owned)
}

/// Signs `shop` in at a new browser of `user`; gives its tokens.
async fn shopping(door: &Door, user: &str) -> Value {
    let browser = Browser::new(door);
    let address = "/oauth2/authorize?client_id=shop&response_type=code&scope=openid&state=s\
        &redirect_uri=https%3A%2F%2Fshop.example%2Fcb";
    let page = browser.get(address).await.expect(200);
    let page = browser.sign_in(&page, user).await;
    let answer = match page.header("location") {
        at if at.starts_with('/') => browser.get(at).await,
        _ => page,
    };
    let location = url::Url::parse(answer.header("location")).expect("an address");
    let code = location.query_pairs().find(|(name, _)| name == "code");
    let code = code.expect("a code").1.into_owned();
    door.token_request(&[
        ("grant_type", "authorization_code"),
        ("client_id", "shop"),
        ("client_secret", "shop-secret"),
        ("redirect_uri", "https://shop.example/cb"),
        ("code", &code),
    ])
    .await
    .expect(200)
    .json()
}

fn run(door: &Door, line: &str) -> Output {
    let mut words: Vec<_> = line.split_whitespace().collect();
    words.extend(["-c", "doorward.yaml"]);
    door.run(&words)
}

#[track_caller]
fn said(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn refused(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn sessions_are_listed_and_ended_on_the_command_line() {
    let shop = shop().await;
    let door = door(&shop).await;
    let tokens = shopping(&door, "demo").await;
    let demo = session(&door, "", "demo").await;
    let alice = session(&door, "", "alice").await;
    let anna = session(&door, "/staff", "anna").await;

    let listed = said(&run(&door, "sessions list"));
    assert_eq!(listed.lines().count(), 3, "{listed}");
    assert!(!listed.contains(&demo), "a token is shown");
    let of_demo: Value =
        serde_json::from_str(&said(&run(&door, "sessions list --user demo --json"))).expect("JSON");
    assert_eq!(of_demo.as_array().map(Vec::len), Some(2));
    let of_shop: Value =
        serde_json::from_str(&said(&run(&door, "sessions list --client shop --json")))
            .expect("JSON");
    assert_eq!(of_shop[0]["clients"], json!(["shop"]));
    assert_eq!(of_shop[0]["user"], "demo");
    let id = of_shop[0]["id"].as_str().expect("a name");
    let shown = door.admin_get(&format!("/identity/sessions/{id}")).await;
    assert_eq!(
        shown.expect(200).json(),
        of_shop[0],
        "the admin listener agrees"
    );
    let staff = said(&run(&door, "sessions list --realm /staff"));
    assert!(
        staff.contains("anna") && staff.lines().count() == 1,
        "{staff}"
    );

    // One by its name, with its tokens; its client is told.
    assert_eq!(
        said(&run(&door, &format!("sessions end {id}"))),
        "1 session ended\n"
    );
    eventually("the client to be told", || {
        let seen = shop.seen().len();
        async move { (seen == 1).then_some(()) }
    })
    .await;
    let access = tokens["access_token"].as_str().expect("an access token");
    let info = door.proxy_url(&format!("/oauth2/tokeninfo?access_token={access}"));
    eventually("the token to end", || {
        let info = info.clone();
        async move { (send(client().get(info)).await.status == 401).then_some(()) }
    })
    .await;
    assert!(name(&door, &demo).await.is_some());

    let ended = said(&run(&door, "sessions end --user demo --json"));
    let ended: Value = serde_json::from_str(&ended).expect("JSON");
    assert_eq!(ended, json!({"ended": 1}));
    assert_eq!(name(&door, &demo).await, None);
    assert!(name(&door, &alice).await.is_some() && name(&door, &anna).await.is_some());
    assert_eq!(
        said(&run(&door, "sessions end --client shop")),
        "0 sessions ended\n"
    );
}

#[tokio::test]
async fn what_can_not_be_meant_ends_nothing() {
    let shop = shop().await;
    let door = door(&shop).await;
    let alice = session(&door, "", "alice").await;
    let own = name(&door, &alice).await.expect("a name");
    for (line, wanted) in [
        ("sessions end", "required"),
        (
            "sessions end --user nobody",
            "there is no user nobody in realm /",
        ),
        (
            "sessions end --client no",
            "there is no client no in realm /",
        ),
        ("sessions end junk", "there is no session junk in realm /"),
        ("sessions show junk", "there is no session junk in realm /"),
        ("sessions list --realm /x", "the store has no realm /x"),
    ] {
        let text = refused(&run(&door, line));
        assert!(text.contains(wanted), "{line}: {text}");
    }
    let both = format!("sessions end {own} junk");
    refused(&run(&door, &both));
    refused(&run(&door, &format!("sessions end {own} --user alice")));
    let other = format!("sessions end {own} --realm /staff");
    refused(&run(&door, &other));
    assert_eq!(name(&door, &alice).await, Some(own));
}

#[tokio::test]
async fn the_admin_listener_pages_and_refuses_what_it_does_not_know() {
    let shop = shop().await;
    let door = door(&shop).await;
    for _ in 0..5 {
        session(&door, "", "demo").await;
    }
    session(&door, "", "alice").await;
    let mut next = Some("/identity/sessions?user=demo&size=2".to_owned());
    let mut names = Vec::new();
    let mut pages = 0;
    while let Some(path) = next {
        let page = door.admin_get(&path).await.expect(200).json();
        let data = page["data"].as_array().expect("a list").clone();
        names.extend(data.into_iter().map(|one| one["id"].clone()));
        next = page["next"].as_str().map(str::to_owned);
        pages += 1;
    }
    assert_eq!((names.len(), pages), (5, 3));
    names.dedup();
    assert_eq!(names.len(), 5, "no session twice");
    for (path, status) in [
        ("/identity/sessions?size=0", 400),
        ("/identity/sessions?size=x", 400),
        ("/identity/sessions?offset=x", 400),
        ("/identity/sessions?realm=/x", 404),
        ("/identity/sessions?user=a&user=b", 400),
        ("/identity/sessions?user=%zz", 400),
        ("/identity/sessions/junk", 404),
    ] {
        let answer = door.admin_get(path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(answer.json()["message"].is_string(), "{path}");
    }
    let unknown = door.admin_get("/identity/sessions?user=nobody").await;
    assert_eq!(unknown.expect(200).json()["data"], json!([]));
    door.admin_delete("/identity/sessions").await.expect(400);
    let none = door.admin_delete("/identity/sessions?user=nobody").await;
    assert_eq!(none.expect(200).json(), json!({"ended": 0}));
    let all = door.admin_delete("/identity/sessions?user=demo").await;
    assert_eq!(all.expect(200).json(), json!({"ended": 5}));
    let left = door
        .admin_get("/identity/sessions")
        .await
        .expect(200)
        .json();
    assert_eq!(left["data"][0]["user"], "alice");
    assert_eq!(left["data"].as_array().map(Vec::len), Some(1));
}
