//! Every action of `/json/sessions`.

use serde_json::{Value, json};

use crate::testing::{Answer, Provider, config, request};

const FIRST: &str = "resource=1.2";
const THIRD: &str = "resource=3.1";

async fn session(provider: &Provider, name: &str) -> String {
    let headers = [
        ("x-service-username", name),
        ("x-service-password", "correct horse"),
    ];
    let path = "/json/authenticate";
    let answer = provider.send(request("POST", path, &headers, "")).await;
    let body = answer.json();
    body["tokenId"].as_str().expect("a token").to_owned()
}

/// An action by who holds the session `own`, on the session `named` if any.
async fn act(provider: &Provider, version: &str, action: &str, own: &str, named: &str) -> Answer {
    let path = format!("/json/realms/root/sessions?_action={action}");
    let mut headers = vec![("accept-api-version", version)];
    if !own.is_empty() {
        headers.push(("iplanetdirectorypro", own));
    }
    let mut body = String::new();
    if !named.is_empty() {
        headers.push(("content-type", "application/json"));
        body = json!({"tokenId": named}).to_string();
    }
    provider.send(request("POST", &path, &headers, &body)).await
}

fn refusal(answer: &Answer) -> (u16, String) {
    let body = answer.json();
    let text = body["message"].as_str().unwrap_or_default();
    (answer.status.as_u16(), text.to_owned())
}

#[tokio::test]
async fn the_path_may_name_the_session() {
    let provider = Provider::new().await;
    let token = session(&provider, "demo").await;
    let good = json!({"valid": true, "uid": "demo", "realm": "/"});
    for path in ["/json", "/json/realms/root", "/json/alpha"] {
        let path = format!("{path}/sessions/{token}?_action=validate");
        let headers = [("accept-api-version", FIRST)];
        let answer = provider.send(request("POST", &path, &headers, "")).await;
        assert_eq!(answer.json(), good, "{path}");
    }
    let path = "/json/sessions/junk?_action=validate";
    let answer = provider.send(request("POST", path, &[], "")).await;
    assert_eq!(answer.json(), json!({"valid": false}));
    // Knowing a token is not being signed in.
    let path = format!("/json/sessions/{token}?_action=logout");
    let answer = provider.send(request("POST", &path, &[], "")).await;
    assert_eq!(refusal(&answer), (401, "Access Denied".to_owned()));
}

#[tokio::test]
async fn who_validates_a_token_of_the_body_shows_one_of_their_own() {
    let provider = Provider::new().await;
    let token = session(&provider, "demo").await;
    for version in [FIRST, "resource=2.1", THIRD] {
        let nobody = act(&provider, version, "validate", "", &token).await;
        let (status, text) = refusal(&nobody);
        assert_eq!(status, 400, "{version}: {text}");
        assert!(
            text.contains("/sessions/{token}?_action=validate"),
            "{text}"
        );
        let own = act(&provider, version, "validate", &token, &token).await;
        assert_eq!(own.json()["valid"], true, "{version}");
    }
    let query = format!("validate&tokenId={token}");
    assert_eq!(act(&provider, THIRD, &query, "", "").await.status, 400);
}

#[tokio::test]
async fn every_resource_of_json_is_shown_in_the_view_that_is_asked_for() {
    let provider = Provider::new().await;
    let token = session(&provider, "demo").await;
    let get = async |path: &str| {
        let headers = [("iplanetdirectorypro", token.as_str())];
        provider.send(request("GET", path, &headers, "")).await
    };
    let action = "getSessionInfo&_fields=username,/realm,nothing";
    let info = act(&provider, THIRD, action, &token, "").await;
    assert_eq!(info.json(), json!({"username": "demo", "realm": "/"}));
    let info = get("/json/serverinfo/*?_fields=cookieName,zeroPageLogin/enabled").await;
    let wanted = json!({"cookieName": "iPlanetDirectoryPro", "enabled": false});
    assert_eq!(info.json(), wanted);
    let user = get("/json/users/demo?_fields=username&_prettyPrint=true").await;
    assert_eq!(user.text, "{\n  \"username\": \"demo\"\n}");
    // Refusals are whole, and `authenticate` says all it has to say.
    let refused = get("/json/users/other?_fields=code&_prettyPrint=true").await;
    assert!(refused.text.contains("\n  \"message\": \"Forbidden\""));
    let path = "/json/authenticate?_fields=realm&_prettyPrint=true";
    let answer = provider.send(request("POST", path, &[], "")).await;
    assert!(answer.json()["authId"].is_string(), "{}", answer.text);
    assert!(answer.text.starts_with("{\n"), "{}", answer.text);
}

#[tokio::test]
async fn a_session_shows_its_users_own_record_and_nobody_elses() {
    let provider = Provider::new().await;
    let token = session(&provider, "demo").await;
    let get = async |path: &str, own: &str| {
        let headers = [
            ("iplanetdirectorypro", own),
            ("accept-api-version", "resource=3.0"),
        ];
        provider.send(request("GET", path, &headers, "")).await
    };
    let answer = get("/json/realms/root/users/DEMO", &token).await;
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(answer.header("content-api-version"), "resource=3.1");
    let record = answer.json();
    for (name, value) in [
        ("_id", json!("demo")),
        ("username", json!("demo")),
        ("realm", json!("/")),
        ("uid", json!(["demo"])),
        ("universalid", json!(["id=demo,ou=user,ou=services"])),
        ("inetUserStatus", json!(["Active"])),
        ("mail", json!(["demo@example.com"])),
        ("createTimestamp", json!(["20270115080000Z"])),
    ] {
        assert_eq!(record[name], value, "{name}");
    }
    assert!(!answer.text.contains("password"), "{}", answer.text);
    let other = get("/json/users/other", &token).await;
    assert_eq!(refusal(&other), (403, "Forbidden".to_owned()));
    let unknown = get("/json/users/nobody", &token).await;
    assert_eq!(
        refusal(&unknown),
        (403, "Forbidden".to_owned()),
        "who exists is not told"
    );
    for own in ["", "junk"] {
        let nobody = get("/json/users/demo", own).await;
        assert_eq!(refusal(&nobody), (401, "Access Denied".to_owned()));
    }
    let elsewhere = get("/json/alpha/users/demo", &token).await;
    assert_eq!(elsewhere.status, 401, "the session is of another realm");
}

#[tokio::test]
async fn times_of_a_session_are_told() {
    let provider = Provider::new().await;
    let token = session(&provider, "demo").await;
    provider.clock.advance(17_000);
    for (action, told) in [
        ("getTimeLeft", json!({"maxtime": 7183})),
        ("getIdle", json!({"idletime": 17})),
        ("getMaxIdle", json!({"maxidletime": 30})),
        ("getMaxSessionTime", json!({"maxsessiontime": 120})),
        ("isActive", json!({"active": true})),
        ("getPropertyNames", json!({"properties": ["AMCtxId"]})),
        (
            "refresh",
            json!({"uid": "demo", "realm": "/", "idletime": 0, "maxidletime": 30,
                "maxsessiontime": 120, "maxtime": 7183}),
        ),
        ("getIdle", json!({"idletime": 0})),
    ] {
        let answer = act(&provider, FIRST, action, &token, "").await;
        assert_eq!(answer.json(), told, "{action}");
    }
    let unknown = act(&provider, FIRST, "isActive", &token, "junk").await;
    assert_eq!(unknown.json(), json!({"active": false}));
}

#[tokio::test]
async fn refreshing_keeps_a_session_and_looking_does_not() {
    let provider = Provider::new().await;
    let token = session(&provider, "demo").await;
    let minute = 60_000;
    provider.clock.advance(20 * minute);
    act(&provider, THIRD, "refresh", &token, "").await;
    provider.clock.advance(20 * minute);
    for action in [
        "getSessionInfo",
        "validate&refresh=false",
        "getIdle",
        "isActive",
        "getProperty",
    ] {
        let answer = act(&provider, THIRD, action, &token, "").await;
        assert_eq!(answer.status, 200, "{action}: {}", answer.text);
    }
    provider.clock.advance(10 * minute);
    let over = act(&provider, THIRD, "validate", &token, "").await;
    assert_eq!(over.json(), json!({"valid": false}));
}

#[tokio::test]
async fn information_grows_with_the_version() {
    let provider = Provider::new().await;
    let token = session(&provider, "demo").await;
    let info = async |version| {
        let answer = act(&provider, version, "getSessionInfo", &token, "").await;
        answer.json()
    };
    let second = info("resource=2.0").await;
    assert_eq!(
        second,
        json!({
            "username": "demo",
            "universalId": "id=demo,ou=user,ou=services",
            "realm": "/",
            "latestAccessTime": "2027-01-15T08:00:00Z",
            "maxIdleExpirationTime": "2027-01-15T08:30:00Z",
            "maxSessionExpirationTime": "2027-01-15T10:00:00Z",
        })
    );
    let third = info(THIRD).await;
    let name = third["properties"]["AMCtxId"].as_str().expect("a name");
    let properties = act(&provider, THIRD, "getSessionProperties", &token, "").await;
    assert_eq!(properties.json(), json!({"AMCtxId": name}));
    let valid = act(&provider, "resource=2.1", "validate", &token, "").await;
    assert_eq!(valid.json()["sessionUid"], name);
    let unknown = act(&provider, THIRD, "getSessionInfo", "junk", "").await;
    assert_eq!(refusal(&unknown), (401, "Access Denied".to_owned()));
    assert_eq!(
        act(&provider, "resource=4.0", "validate", &token, "")
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn protected_actions_want_a_session() {
    let provider = Provider::new().await;
    for action in [
        "logout",
        "getSessionInfo",
        "refresh",
        "getTimeLeft",
        "getIdle",
        "getMaxIdle",
        "getMaxSessionTime",
        "isActive",
        "getProperty",
        "setProperty",
    ] {
        let answer = act(&provider, THIRD, action, "", "").await;
        assert_eq!(
            answer.json(),
            json!({"code": 401, "reason": "Unauthorized", "message": "Access Denied"}),
            "{action}"
        );
    }
    let token = session(&provider, "demo").await;
    let set = act(&provider, THIRD, "updateSessionProperties", &token, "").await;
    assert_eq!(refusal(&set), (403, "Forbidden".to_owned()));
    for action in ["logoutEverybody", "", "%00"] {
        assert_eq!(
            act(&provider, THIRD, action, &token, "").await.status,
            400,
            "{action}"
        );
    }
}

#[tokio::test]
async fn sessions_of_others_are_the_administrators_business() {
    let mut config = config();
    config["realms"]["/"]["users"][1] = json!({"userName": "amAdmin", "password": "correct horse"});
    let provider = Provider::with(config).await;
    let (demo, admin) = (
        session(&provider, "demo").await,
        session(&provider, "amadmin").await,
    );
    for action in [
        "getSessionInfo",
        "getTimeLeft",
        "refresh",
        "logout",
        "isActive",
    ] {
        let answer = act(&provider, THIRD, action, &demo, &admin).await;
        assert_eq!(refusal(&answer), (403, "Forbidden".to_owned()), "{action}");
    }
    let info = act(&provider, THIRD, "getSessionInfo", &admin, &demo).await;
    assert_eq!(info.json()["username"], "demo");
    let out = act(&provider, THIRD, "logout", &admin, &demo).await;
    assert_eq!(out.json(), json!({"result": "Successfully logged out"}));
    let again = act(&provider, THIRD, "logout", &admin, &demo).await;
    assert_eq!(again.json(), json!({"result": "Token has expired"}));
    let own = act(&provider, THIRD, "validate", &admin, "").await;
    assert_eq!(own.json()["valid"], true);
}

#[tokio::test]
async fn a_realms_amadmin_is_nobody_special() {
    let mut config = config();
    config["realms"]["/alpha"]["users"][0] =
        json!({"userName": "amadmin", "password": "correct horse"});
    let provider = Provider::with(config).await;
    let headers = [
        ("x-service-username", "amadmin"),
        ("x-service-password", "correct horse"),
    ];
    let path = "/json/alpha/authenticate";
    let answer = provider
        .send(request("POST", path, &headers, ""))
        .await
        .json();
    let admin = answer["tokenId"].as_str().expect("a token").to_owned();
    let demo = session(&provider, "demo").await;
    let answer = act(&provider, THIRD, "logout", &admin, &demo).await;
    assert_eq!(answer.status, 403);
}

#[tokio::test]
async fn logout_csrf_by_a_cookie_that_a_foreign_page_sends() {
    let provider = Provider::new().await;
    let token = session(&provider, "demo").await;
    let cookie = format!("iPlanetDirectoryPro={token}");
    let path = "/json/sessions?_action=logout";
    let send = async |site: &str, more: &[(&str, &str)]| {
        let headers = [&[("cookie", &*cookie), ("sec-fetch-site", site)], more].concat();
        provider.send(request("POST", path, &headers, "")).await
    };
    assert_eq!(send("cross-site", &[]).await.status, 401);
    assert_eq!(send("same-site", &[]).await.status, 401);
    let out = send("same-origin", &[]).await;
    assert_eq!(out.json(), json!({"result": "Successfully logged out"}));
    let cleared: Vec<_> = out.headers.get_all("set-cookie").iter().collect();
    assert_eq!(cleared.len(), 2, "{cleared:?}");
}

#[tokio::test]
async fn the_header_may_be_named_as_the_cookie_is_with_tls() {
    let mut config = config();
    config["base_url"] = json!("https://id.example");
    let provider = Provider::with(config).await;
    let info = provider.get("/json/serverinfo/*").await.json();
    assert_eq!(info["cookieName"], "__Host-iPlanetDirectoryPro");
    assert_eq!(info["secureCookie"], true);
    let token = session(&provider, "demo").await;
    let path = "/json/sessions?_action=validate";
    for name in ["__host-iplanetdirectorypro", "iplanetdirectorypro"] {
        let headers = [(name, token.as_str())];
        let answer: Value = provider
            .send(request("POST", path, &headers, ""))
            .await
            .json();
        assert_eq!(answer["valid"], true, "{name}");
    }
}
