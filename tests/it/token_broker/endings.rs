//! The end of tokens: used twice, revoked, withdrawn, or their people gone.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::{BROKER, FORM, OWN, ask, assert_fault, brokered, post, text, with};
use crate::support::door::IDENTITY;
use crate::support::{Answer, Door, Reply, Setup, Upstream, eventually, http};

const REVOKED: (&str, &str) = (
    "keymanagement.service.access_token_not_approved",
    "Access Token not approved",
);

async fn refresh(door: &Door, token: &str) -> Answer {
    let form = [
        ("grant_type", "refresh_token"),
        ("refresh_token", token),
        ("client_id", "orders"),
        ("client_secret", "orders-secret"),
    ];
    post(door, "/weather/refresh_token", &form).await
}

#[track_caller]
fn assert_spent(answer: Answer) {
    let answer = answer.expect(400);
    let wanted = json!({"ErrorCode": "invalid_request", "Error": "Invalid Refresh Token"});
    assert_eq!(answer.json(), wanted);
}

/// The tokens of an answer: for access, and for the next.
fn both(answer: &Answer) -> (String, String) {
    let body = answer.json();
    (text(&body, "access_token"), text(&body, "refresh_token"))
}

async fn call(door: &Door, token: &str) -> Answer {
    door.get_as(token, "any.test", "/weather/x").await
}

/// The records of the audit log of these kinds, when there are so many.
async fn told(door: &Door, kinds: &str, count: usize) -> Vec<Value> {
    let path = format!("/audit?order=oldest&kind={kinds}");
    eventually("the records", || async {
        let answer = door.admin_get(&path).await.expect(200).json();
        let all = answer["data"].as_array().cloned().unwrap_or_default();
        let ours = |one: &Value| one["details"].get("proxy").is_some();
        let all: Vec<Value> = all.into_iter().filter(ours).collect();
        (all.len() >= count).then_some(all)
    })
    .await
}

/// A provider that gives the same refresh token each time.
async fn provider() -> Upstream {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    Upstream::start(|_| {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let access = format!("given-{next}");
        Reply::Json(
            200,
            json!({"access_token": access, "refresh_token": "same", "expires_in": 60}),
        )
    })
    .await
}

#[tokio::test]
async fn stealing_a_refresh_token_ends_with_its_second_use() {
    let upstream = Upstream::echo().await;
    let door = brokered(&upstream, OWN, "").await;
    let (_, stolen) = both(&ask(&door, &FORM).await.expect(200));
    let thief = both(&refresh(&door, &stolen).await.expect(200));
    let thief = both(&refresh(&door, &thief.1).await.expect(200));
    call(&door, &thief.0).await.expect(200);
    // The owner comes later, with what the owner has.
    assert_spent(refresh(&door, &stolen).await);
    let (code, words) = REVOKED;
    assert_fault(call(&door, &thief.0).await, 401, code, words);
    assert_spent(refresh(&door, &thief.1).await);
    let ended = told(&door, "grant.revoke", 1).await;
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0]["details"]["cause"], "refresh_token_reuse");
    assert_eq!(ended[0]["client"], "orders");
    door.wait_log("the warning", |line| {
        line.contains("refresh token used twice")
    })
    .await;
    // Another sign-in of the same person has nothing to do with it.
    let other = both(&ask(&door, &FORM).await.expect(200));
    refresh(&door, &other.1).await.expect(200);
}

#[tokio::test]
async fn stealing_an_imported_refresh_token_ends_with_its_second_use() {
    let upstream = Upstream::echo().await;
    let provider = provider().await;
    let flows = ", proxy: weather, flows: [\
        {condition: 'proxy.pathsuffix MatchesPath \"/access_token\"', operation: GenerateAccessToken, \
         external_refresh_token: forgerock_refresh_token},\
        {condition: 'proxy.pathsuffix MatchesPath \"/refresh_token\"', operation: RefreshAccessToken},\
        {operation: VerifyAccessToken}]";
    let door = brokered(&upstream, &provider.url("/token"), flows).await;
    let form = with("scope", None);
    // It is the same at each sign-in: the last one has it.
    let first = both(&ask(&door, &form).await.expect(200));
    let second = both(&ask(&door, &form).await.expect(200));
    assert_eq!((&*first.1, &*second.1), ("same", "same"));
    call(&door, &first.0).await.expect(200);
    let thief = both(&refresh(&door, "same").await.expect(200));
    assert_spent(refresh(&door, "same").await);
    let (code, words) = REVOKED;
    assert_fault(call(&door, &thief.0).await, 401, code, words);
    assert_spent(refresh(&door, &thief.1).await);
}

#[tokio::test]
async fn a_user_who_goes_keeps_no_token_of_the_broker() {
    let upstream = Upstream::echo().await;
    let provisioning = "        - {client_id: provisioning, client_secret: p, \
                        grant_types: [client_credentials], scope: 'scim:write'}\n";
    let service = format!(
        "- name: weather\n  url: {}\n  routes: [{{paths: [/weather]}}]\n  plugins:\n  \
         - {{name: token-broker, config: {{base_path: /weather, token_endpoint: '{OWN}'}}}}\n",
        upstream.url("")
    );
    let door = Setup::new()
        .identity(&format!(
            "\n  base_url: http://@PROXY@{IDENTITY}{provisioning}{BROKER}"
        ))
        .services(&service)
        .start()
        .await;
    let grant = [
        ("grant_type", "client_credentials"),
        ("client_id", "provisioning"),
        ("client_secret", "p"),
        ("scope", "scim:write"),
    ];
    let scim = door.token(&grant).await;
    let users = door.proxy_url("/scim/v2/Users");
    let request = |request: reqwest::RequestBuilder| {
        let request = request.bearer_auth(&scim);
        http::send(request.header("content-type", "application/scim+json"))
    };
    let sign_in = async |name: &'static str, password: &'static str| {
        let mut form = with("username", Some(name));
        form.retain(|(member, _)| *member != "password");
        form.push(("password", password));
        both(&ask(&door, &form).await.expect(200))
    };
    let (code, words) = REVOKED;
    for change in ["deactivate", "password", "delete"] {
        let made = json!({"schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"],
                          "userName": "anna", "password": "Ch4ng31t-anna"});
        let made = request(http::client().post(&users).body(made.to_string())).await;
        let path = format!("{users}/{}", text(&made.expect(201).json(), "id"));
        let anna = sign_in("Anna", "Ch4ng31t-anna").await;
        let demo = sign_in("demo", "Ch4ng31t-demo").await;
        let anna = both(&refresh(&door, &anna.1).await.expect(200));
        call(&door, &anna.0).await.expect(200);
        let patch = |member: &str, value: Value| {
            let operation = json!({"op": "replace", "path": member, "value": value});
            let body = json!({"schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"],
                              "Operations": [operation]});
            request(http::client().patch(&path).body(body.to_string()))
        };
        let done = match change {
            "deactivate" => patch("active", json!(false)).await,
            "password" => patch("password", json!("Ch4ng31t-other")).await,
            _ => request(http::client().delete(&path)).await,
        };
        assert!(matches!(done.status, 200 | 204), "{change}: {}", done.body);
        assert_fault(call(&door, &anna.0).await, 401, code, words);
        assert_spent(refresh(&door, &anna.1).await);
        call(&door, &demo.0).await.expect(200);
        refresh(&door, &demo.1).await.expect(200);
        request(http::client().delete(&path)).await;
    }
    let issued = told(&door, "token.issue", 1).await;
    assert_eq!(issued[0]["user"]["name"], "Anna");
}

#[tokio::test]
async fn an_operator_ends_all_that_somebody_has() {
    let upstream = Upstream::echo().await;
    let provider = provider().await;
    let door = brokered(&upstream, &provider.url("/token"), "").await;
    let (code, words) = REVOKED;
    let mut form = with("username", Some("Björk"));
    form.retain(|(member, _)| *member != "scope");
    for way in ["rest", "cli"] {
        let bjork = both(&ask(&door, &form).await.expect(200));
        let other = both(&ask(&door, &with("scope", None)).await.expect(200));
        call(&door, &bjork.0).await.expect(200);
        if way == "rest" {
            let body = json!({"end_user": "BJÖRK"});
            let done = door.admin_post("/broker/tokens/revoke", &body).await;
            done.expect(204);
        } else {
            let words = ["broker", "revoke", "-c", "doorward.yaml", "--user", "björk"];
            let done = door.run(&words);
            assert!(done.status.success(), "{done:?}");
            eventually("the end", || async {
                (call(&door, &bjork.0).await.status == 401).then_some(())
            })
            .await;
        }
        assert_fault(call(&door, &bjork.0).await, 401, code, words);
        assert_spent(refresh(&door, &bjork.1).await);
        call(&door, &other.0).await.expect(200);
    }
    for wrong in [
        json!({"end_user": " "}),
        json!({"end_user": "a", "token": "b"}),
        json!({"user": "a"}),
    ] {
        let refused = door.admin_post("/broker/tokens/revoke", &wrong).await;
        refused.expect(400);
    }
}

#[tokio::test]
async fn a_scope_that_is_taken_from_the_products_is_gone_from_old_tokens() {
    let upstream = Upstream::echo().await;
    let provider = provider().await;
    let flows = ", proxy: weather, flows: [\
        {condition: 'proxy.pathsuffix MatchesPath \"/access_token\"', operation: GenerateAccessToken},\
        {condition: 'proxy.pathsuffix MatchesPath \"/refresh_token\"', operation: RefreshAccessToken},\
        {condition: 'proxy.pathsuffix MatchesPath \"/write\"', operation: VerifyAccessToken, \
         scope: [WRITE]},\
        {operation: VerifyAccessToken}]";
    let door = brokered(&upstream, &provider.url("/token"), flows).await;
    let write = async |token: &str| door.get_as(token, "any.test", "/weather/write").await;
    let (access, next) = both(
        &ask(&door, &with("scope", Some("READ WRITE")))
            .await
            .expect(200),
    );
    write(&access).await.expect(200);
    door.edit(
        "doorward.yaml",
        "scopes: [READ, WRITE, openid]",
        "scopes: [READ]",
    );
    eventually("the other products", || async {
        (write(&access).await.status == 403).then_some(())
    })
    .await;
    call(&door, &access).await.expect(200);
    let answer = refresh(&door, &next).await.expect(200);
    assert_eq!(text(&answer.json(), "scope"), "READ");
    let (access, next) = both(&answer);
    write(&access).await.expect(403);
    // It does not come back with the product's.
    door.edit("doorward.yaml", "scopes: [READ]", "scopes: [READ, WRITE]");
    let form = [
        ("grant_type", "refresh_token"),
        ("refresh_token", &*next),
        ("client_id", "orders"),
        ("client_secret", "orders-secret"),
        ("scope", "WRITE"),
    ];
    let refused = post(&door, "/weather/refresh_token", &form).await;
    assert_eq!(refused.expect(400).json()["ErrorCode"], "invalid_scope");
}

#[tokio::test]
async fn tokens_of_a_declared_application_are_revoked_together() {
    let upstream = Upstream::echo().await;
    let door = brokered(&upstream, OWN, "").await;
    let (access, next) = both(&ask(&door, &FORM).await.expect(200));
    call(&door, &access).await.expect(200);
    let done = door
        .admin_delete("/broker/applications/orders/tokens")
        .await;
    done.expect(204);
    let (code, words) = REVOKED;
    assert_fault(call(&door, &access).await, 401, code, words);
    assert_spent(refresh(&door, &next).await);
    // Also when the file is read again.
    door.edit("doorward.yaml", "name: orders app", "name: another name");
    eventually("the other name", || async {
        let list = door.admin_get("/broker/applications").await.expect(200);
        list.body.contains("another name").then_some(())
    })
    .await;
    assert_fault(call(&door, &access).await, 401, code, words);
    let (access, _) = both(&ask(&door, &FORM).await.expect(200));
    call(&door, &access).await.expect(200);
    let words = [
        "broker",
        "apps",
        "revoke-tokens",
        "-c",
        "doorward.yaml",
        "orders",
    ];
    let done = door.run(&words);
    assert!(done.status.success(), "{done:?}");
    eventually("the end", || async {
        (call(&door, &access).await.status == 401).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_audit_log_knows_what_became_of_every_token() {
    let upstream = Upstream::echo().await;
    let provider = Upstream::start(|seen| {
        let form = String::from_utf8_lossy(&seen.body).into_owned();
        if form.contains("wrong") {
            Reply::Json(400, json!({"error": "invalid_grant"}))
        } else {
            Reply::Json(
                200,
                json!({"access_token": "g1ven-t0ken", "expires_in": 60}),
            )
        }
    })
    .await;
    let flows = ", proxy: weather, flows: [\
        {condition: 'proxy.pathsuffix MatchesPath \"/access_token\"', operation: GenerateAccessToken},\
        {condition: 'proxy.pathsuffix MatchesPath \"/refresh_token\"', operation: RefreshAccessToken},\
        {condition: 'proxy.pathsuffix MatchesPath \"/revoke\"', operation: InvalidateToken},\
        {operation: VerifyAccessToken}]";
    let door = brokered(&upstream, &provider.url("/token"), flows).await;
    let form = with("scope", Some("READ"));
    let (access, next) = both(&ask(&door, &form).await.expect(200));
    assert_eq!(access, "g1ven-t0ken");
    let mut wrong = form.clone();
    wrong.retain(|(member, _)| *member != "password");
    wrong.push(("password", "wrong-Pa55"));
    ask(&door, &wrong).await.expect(401);
    ask(&door, &with("client_id", Some("nobody-knows")))
        .await
        .expect(401);
    let (access, next) = both(&refresh(&door, &next).await.expect(200));
    post(&door, "/weather/revoke", &[("token", &access)])
        .await
        .expect(200);
    call(&door, &access).await.expect(401);
    call(&door, "unknown-t0ken").await.expect(401);
    refresh(&door, &next).await.expect(400);
    let outcomes = |all: &[Value]| {
        let line = |one: &Value| {
            let member = |name: &str| one[name].as_str().unwrap_or("-").to_owned();
            let grant = one["details"]["grant_type"]
                .as_str()
                .unwrap_or("-")
                .to_owned();
            [member("event"), member("client"), member("reason"), grant].join(" ")
        };
        let mut lines: Vec<String> = all.iter().map(line).collect();
        lines.sort_unstable();
        lines
    };
    let all = told(&door, "token.issue,token.revoke,token.refuse", 8).await;
    assert_eq!(
        outcomes(&all),
        [
            "token.issue - invalid_client -",
            "token.issue orders - password",
            "token.issue orders - refresh_token",
            "token.issue orders external_authorization -",
            "token.issue orders invalid_refresh_token -",
            "token.refuse - invalid_token -",
            "token.refuse orders token_revoked -",
            "token.revoke orders - -",
        ]
    );
    let issued = &all[0];
    assert_eq!(issued["actor"], json!({"type": "client", "id": "orders"}));
    assert_eq!(issued["details"]["end_user"], "demo");
    assert_eq!(issued["details"]["scope"], json!(["READ"]));
    assert_eq!(issued["details"]["proxy"], "weather");
    assert_eq!(issued["address"], "127.0.0.1");
    assert!(issued["request_id"].is_string());
    let log = door.admin_get("/audit/export").await.expect(200).body;
    for secret in [
        "g1ven-t0ken",
        "wrong-Pa55",
        "nobody-knows",
        "unknown-t0ken",
        &access,
        &next,
    ] {
        assert!(!log.contains(secret), "{secret} is in the audit log");
    }
}

#[tokio::test]
async fn a_refresh_has_attributes_of_its_own() {
    let upstream = Upstream::echo().await;
    let provider = provider().await;
    let flows = ", proxy: weather, flows: [\
        {condition: 'proxy.pathsuffix MatchesPath \"/access_token\"', operation: GenerateAccessToken, \
         attributes: {tier: {value: gold, display: true}, kept: {value: '1', display: true}}},\
        {condition: 'proxy.pathsuffix MatchesPath \"/refresh_token\"', operation: RefreshAccessToken, \
         attributes: {tier: {value: silver, display: true}}},\
        {operation: VerifyAccessToken}]";
    let door = brokered(&upstream, &provider.url("/token"), flows).await;
    let answer = ask(&door, &with("scope", None)).await.expect(200);
    assert_eq!(text(&answer.json(), "tier"), "gold");
    let answer = refresh(&door, &both(&answer).1).await.expect(200).json();
    assert_eq!(
        (&*text(&answer, "tier"), &*text(&answer, "kept")),
        ("silver", "1")
    );
}

#[tokio::test]
async fn the_token_endpoint_challenges_clients_and_speaks_of_no_token() {
    let upstream = Upstream::echo().await;
    let door = brokered(&upstream, OWN, ", realm: weather").await;
    let request = http::client().post(door.proxy_url("/weather/access_token"));
    let request = request.basic_auth("orders", Some("wrong"));
    let form = [
        ("grant_type", "password"),
        ("username", "demo"),
        ("password", "Ch4ng31t-demo"),
    ];
    let answer = http::send(request.form(&form)).await.expect(401);
    assert_eq!(answer.header("www-authenticate"), "Basic realm=\"weather\"");
    for form in [
        with("client_id", Some("nobody")),
        with("password", Some("wrong")),
    ] {
        let answer = ask(&door, &form).await.expect(401);
        assert_eq!(answer.header("www-authenticate"), "Basic realm=\"weather\"");
    }
    let answer = call(&door, "x").await.expect(401);
    assert!(
        answer
            .header("www-authenticate")
            .starts_with("Bearer realm=\"weather\",error=")
    );
}

/// Gives the provider a token back.
async fn revoke_at_provider(door: &Door, token: &str) {
    let form = [
        ("token", token),
        ("client_id", "orders"),
        ("client_secret", "orders-secret"),
    ];
    post(door, "/oauth2/token/revoke", &form).await.expect(200);
}

#[tokio::test]
async fn a_token_that_is_revoked_at_the_provider_opens_nothing_at_the_broker() {
    let upstream = Upstream::echo().await;
    let mut door = brokered(&upstream, OWN, "").await;
    let (code, words) = REVOKED;
    let bystander = both(&ask(&door, &FORM).await.expect(200));
    // The provider's own token, which is the broker's, too.
    let first = both(&ask(&door, &FORM).await.expect(200));
    call(&door, &first.0).await.expect(200);
    revoke_at_provider(&door, &first.0).await;
    assert_fault(call(&door, &first.0).await, 401, code, words);
    assert_spent(refresh(&door, &first.1).await);
    // One that the broker made when it was refreshed.
    let second = both(&ask(&door, &FORM).await.expect(200));
    let next = both(&refresh(&door, &second.1).await.expect(200));
    call(&door, &next.0).await.expect(200);
    revoke_at_provider(&door, &second.0).await;
    assert_fault(call(&door, &next.0).await, 401, code, words);
    assert_spent(refresh(&door, &next.1).await);
    call(&door, &bystander.0).await.expect(200);
    // A restart changes nothing.
    door.kill();
    door.start().await;
    assert_fault(call(&door, &first.0).await, 401, code, words);
    assert_fault(call(&door, &next.0).await, 401, code, words);
    assert_spent(refresh(&door, &next.1).await);
    call(&door, &bystander.0).await.expect(200);
    refresh(&door, &bystander.1).await.expect(200);
}

#[tokio::test]
async fn the_end_of_a_grant_at_the_provider_ends_the_tokens_that_the_broker_made() {
    let upstream = Upstream::echo().await;
    let flows = ", proxy: weather, flows: [\
        {condition: 'proxy.pathsuffix MatchesPath \"/access_token\"', operation: GenerateAccessToken, \
         external_access_token: '', external_refresh_token: forgerock_refresh_token},\
        {condition: 'proxy.pathsuffix MatchesPath \"/refresh_token\"', operation: RefreshAccessToken},\
        {operation: VerifyAccessToken}]";
    let door = brokered(&upstream, OWN, flows).await;
    let given = both(&ask(&door, &FORM).await.expect(200));
    assert_eq!(given.0.len(), 28, "of the broker's own making");
    call(&door, &given.0).await.expect(200);
    // The refresh token is the provider's: with it, its grant ends.
    revoke_at_provider(&door, &given.1).await;
    let (code, words) = REVOKED;
    assert_fault(call(&door, &given.0).await, 401, code, words);
    assert_spent(refresh(&door, &given.1).await);
}
