use serde_json::json;

use crate::testing::{Answer, Provider, request};

const PATH: &str = "/json/realms/root/sessions";

async fn session(provider: &Provider, name: &str) -> String {
    let headers = [
        ("x-service-username", name),
        ("x-service-password", "correct horse"),
    ];
    let answer = provider
        .send(request("POST", "/json/authenticate", &headers, ""))
        .await;
    answer.json()["tokenId"]
        .as_str()
        .expect("a token")
        .to_owned()
}

async fn act(provider: &Provider, action: &str, token: &str) -> Answer {
    let path = format!("{PATH}?_action={action}");
    let headers = [
        ("iplanetdirectorypro", token),
        ("accept-api-version", "resource=2.1"),
    ];
    provider.send(request("POST", &path, &headers, "")).await
}

#[tokio::test]
async fn a_session_is_valid_until_logout() {
    let provider = Provider::new().await;
    let token = session(&provider, "demo").await;
    let valid = act(&provider, "validate", &token).await;
    let body = valid.json();
    assert_eq!(
        (&body["valid"], &body["uid"], &body["realm"]),
        (&json!(true), &json!("demo"), &json!("/"))
    );
    assert_eq!(body["sessionUid"].as_str().map(str::len), Some(36));
    let by_cookie = provider
        .send(request(
            "POST",
            &format!("{PATH}?_action=getSessionInfo"),
            &[("cookie", &format!("a=b; iPlanetDirectoryPro={token}"))],
            "",
        ))
        .await;
    assert_eq!(by_cookie.json()["username"], "demo");
    assert_eq!(
        by_cookie.json()["maxSessionExpirationTime"],
        "2027-01-15T10:00:00Z"
    );
    assert!(by_cookie.header("warning").starts_with("100 CREST"));

    let out = act(&provider, "logout", &token).await;
    assert_eq!(out.json(), json!({"result": "Successfully logged out"}));
    assert!(out.header("set-cookie").contains("Max-Age=0"));
    assert_eq!(
        act(&provider, "validate", &token).await.json(),
        json!({"valid": false})
    );
    assert_eq!(
        act(&provider, "logout", &token).await.json()["message"],
        "Access Denied"
    );
    assert_eq!(act(&provider, "logout", "junk").await.status, 401);
}

#[tokio::test]
async fn sessions_end_when_idle_and_at_the_latest_when_old() {
    let provider = Provider::new().await;
    let token = session(&provider, "demo").await;
    let minute = 60_000;
    for _ in 0..5 {
        provider.clock.advance(20 * minute);
        assert_eq!(
            act(&provider, "validate", &token).await.json()["valid"],
            true
        );
    }
    provider.clock.advance(20 * minute);
    assert_eq!(
        act(&provider, "validate", &token).await.json()["valid"],
        false
    );
    let idle = session(&provider, "demo").await;
    provider.clock.advance(30 * minute);
    assert_eq!(
        act(&provider, "validate", &idle).await.json()["valid"],
        false
    );
}

#[tokio::test]
async fn nobody_ends_the_session_of_another_user() {
    let provider = Provider::new().await;
    let (own, foreign) = (
        session(&provider, "demo").await,
        session(&provider, "other").await,
    );
    let path = format!("{PATH}?_action=logout");
    let headers = [
        ("iplanetdirectorypro", own.as_str()),
        ("content-type", "application/json"),
    ];
    let body = json!({"tokenId": foreign}).to_string();
    let answer = provider.send(request("POST", &path, &headers, &body)).await;
    assert_eq!(answer.status, 403);
    assert_eq!(
        act(&provider, "validate", &foreign).await.json()["valid"],
        true
    );
}

#[tokio::test]
async fn the_server_says_which_cookie_it_uses() {
    let provider = Provider::new().await;
    for path in [
        "/json/serverinfo/*",
        "/json/realms/root/realms/alpha/serverinfo/%2A",
        "/json/serverinfo/*?realm=alpha",
    ] {
        let answer = provider.get(path).await;
        let info = answer.json();
        assert_eq!(info["cookieName"], "iPlanetDirectoryPro", "{path}");
        assert_eq!(info["FQDN"], "localhost");
        assert_eq!(info["secureCookie"], false);
        assert_eq!(info["domains"], json!([]));
        assert_eq!(info["zeroPageLogin"]["enabled"], false);
        let realm = if path.contains("alpha") {
            "/alpha"
        } else {
            "/"
        };
        assert_eq!(info["realm"], realm, "{path}");
        let version = answer.header("content-api-version");
        assert_eq!(version, "resource=1.1");
    }
    let cookies = provider.get("/json/serverinfo/cookieDomains").await;
    assert_eq!(cookies.json()["domains"], json!([]));
    assert_eq!(provider.get("/json/serverinfo/other").await.status, 404);
    assert_eq!(provider.get("/json/serverinfo/").await.status, 404);
    let post = request("POST", "/json/serverinfo/*", &[], "");
    assert_eq!(provider.send(post).await.status, 405);
}

#[tokio::test]
async fn strangers_are_not_told_the_version() {
    let provider = Provider::new().await;
    let path = "/json/serverinfo/version";
    let refused = provider.get(path).await;
    assert_eq!(
        refused.json(),
        json!({"code": 401, "reason": "Unauthorized", "message": "Access Denied"})
    );
    let ask = async |provider: &Provider, name: &str| {
        let token = session(provider, name).await;
        let headers = [("iplanetdirectorypro", token.as_str())];
        provider.send(request("GET", path, &headers, "")).await
    };
    let refused = ask(&provider, "demo").await;
    assert_eq!(
        refused.json(),
        json!({"code": 403, "reason": "Forbidden", "message": "Forbidden"}),
        "only the administrator is told"
    );
    let mut config = crate::testing::config();
    config["realms"]["/"]["users"][1]["userName"] = json!("amAdmin");
    let provider = Provider::with(config).await;
    let told = ask(&provider, "amadmin").await;
    assert_eq!(told.json()["version"], env!("CARGO_PKG_VERSION"));
}

#[tokio::test]
async fn a_session_that_may_idle_for_a_minute_lives_while_it_is_used() {
    let mut config = crate::testing::config();
    config["session"] = json!({"idle_minutes": 1});
    let provider = Provider::with(config).await;
    let token = session(&provider, "demo").await;
    for _ in 0..10 {
        provider.clock.advance(50_000);
        let answer = act(&provider, "validate", &token).await;
        assert_eq!(answer.json()["valid"], true);
    }
    provider.clock.advance(60_000);
    let answer = act(&provider, "validate", &token).await;
    assert_eq!(answer.json()["valid"], false);
}

#[tokio::test]
async fn a_slash_behind_the_path_changes_nothing() {
    let provider = Provider::new().await;
    let token = session(&provider, "demo").await;
    let named = [("iplanetdirectorypro", token.as_str())];
    let path = "/json/realms/root/sessions/?_action=getSessionInfo";
    let answer = provider.send(request("POST", path, &named, "")).await;
    assert_eq!(answer.json()["username"], "demo", "{}", answer.json());
}

#[tokio::test]
async fn a_wrong_method_is_told_the_right_ones() {
    let provider = Provider::new().await;
    for (path, allowed) in [
        ("/json/authenticate", "POST"),
        ("/json/realms/root/sessions", "POST"),
    ] {
        let answer = provider.get(path).await;
        assert_eq!(
            (answer.status.as_u16(), answer.header("allow")),
            (405, allowed)
        );
    }
    let answer = provider.send(request("PUT", "/v1/users", &[], "")).await;
    assert_eq!(
        (answer.status.as_u16(), answer.header("allow")),
        (405, "GET, POST")
    );
}
