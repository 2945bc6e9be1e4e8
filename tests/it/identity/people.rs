//! Sessions, user queries, realms, and what files declare of them.

use serde_json::{Value, json};

use super::{FOR_DEMO, FOR_ITSELF, assert_error, with};
use crate::support::Setup;
use crate::support::http::{client, send};
use crate::support::issuer::claims_of;

#[tokio::test]
async fn a_user_authenticates_by_either_pair_of_headers() {
    let door = Setup::new().start().await;
    for (path, user, password) in [
        (
            "/json/realms/root/authenticate",
            "X-Service-Username",
            "X-Service-Password",
        ),
        (
            "/json/authenticate",
            "X-OpenAM-Username",
            "X-OpenAM-Password",
        ),
    ] {
        let request = client()
            .post(door.proxy_url(path))
            .header(user, "demo")
            .header(password, "Ch4ng31t-demo")
            .header("content-type", "application/json")
            .header("accept-api-version", "resource=2.1");
        let answer = send(request).await.expect(200);
        assert!(
            answer
                .header("content-api-version")
                .contains("resource=2.1")
        );
        assert!(answer.header("cache-control").contains("no-store"));
        let body = answer.json();
        assert!(
            body["tokenId"]
                .as_str()
                .is_some_and(|token| token.len() > 20)
        );
        assert!(
            body["successUrl"]
                .as_str()
                .is_some_and(|path| path.starts_with('/'))
        );
        assert_eq!(body["realm"], "/");
    }
}

#[tokio::test]
async fn wrong_credentials_do_not_tell_whether_the_user_exists() {
    let door = Setup::new().start().await;
    let mut bodies = Vec::new();
    for (user, password) in [("demo", "wrong"), ("nobody", "wrong")] {
        let request = client()
            .post(door.proxy_url("/json/realms/root/authenticate"))
            .header("x-service-username", user)
            .header("x-service-password", password);
        let body = send(request).await.expect(401).json();
        assert_eq!(body["code"], 401);
        assert_eq!(body["reason"], "Unauthorized");
        assert_eq!(body["message"], "Authentication Failed");
        bodies.push(body);
    }
    assert_eq!(bodies[0], bodies[1]);
}

#[tokio::test]
async fn versions_of_the_authenticate_resource_are_negotiated() {
    let door = Setup::new().start().await;
    for (version, status) in [
        ("resource=2.0", 200),
        ("protocol=1.0,resource=2.1", 200),
        ("resource=999.0", 404),
        ("nonsense", 400),
    ] {
        let request = client()
            .post(door.proxy_url("/json/authenticate"))
            .header("x-service-username", "demo")
            .header("x-service-password", "Ch4ng31t-demo")
            .header("accept-api-version", version);
        let answer = send(request).await;
        assert_eq!(answer.status, status, "{version}: {}", answer.body);
    }
}

#[tokio::test]
async fn unknown_realms_have_their_own_answers() {
    let door = Setup::new().start().await;
    let url = door.proxy_url("/json/realms/root/realms/nowhere/authenticate");
    let request = client().post(url).header("x-service-username", "demo");
    let answer = send(request.header("x-service-password", "x"))
        .await
        .expect(404);
    assert_eq!(answer.json()["message"], "Realm \"/nowhere\" not found");
    let url = door.proxy_url("/oauth2/realms/root/realms/nowhere/access_token");
    let answer = send(client().post(url).form(FOR_ITSELF)).await;
    assert_error(answer, 404, "not_found", "");
}

#[tokio::test]
async fn users_are_found_by_filter() {
    let door = Setup::new().start().await;
    let token = door.client_token("read").await;
    let query = |filter: &str| {
        let mut url = url::Url::parse(&door.proxy_url("/v1/users")).expect("a URL");
        url.query_pairs_mut().append_pair("filter", filter);
        client().get(url).bearer_auth(&token)
    };
    let list = send(query("userName eq \"demo\"")).await.expect(200).json();
    assert_eq!(
        list["schemas"],
        json!(["urn:ietf:params:scim:api:messages:2.0:ListResponse"])
    );
    assert_eq!(list["totalResults"], 1);
    assert_eq!(list["itemsPerPage"], 1);
    assert_eq!(list["pagedResultsCookie"], Value::Null);
    let user = &list["Resources"][0];
    assert_eq!(user["userName"], "demo");
    assert_eq!(user["displayName"], "Demo User");
    assert_eq!(user["accountStatus"], "Active");
    assert_eq!(user["emails"][0]["value"], "demo@example.com");
    assert!(uuid::Uuid::parse_str(user["id"].as_str().expect("an id")).is_ok());
    assert!(user["meta"]["lastModified"].is_string());
    assert!(
        !list.to_string().contains("Ch4ng31t"),
        "no password, no hash"
    );
    assert!(!list.to_string().contains("argon2"));

    for (filter, count) in [
        ("userName eq \"DEMO\"", 1),
        ("userName sw \"a\" or emails.value co \"example\"", 2),
        ("emails[type eq \"work\" and value ew \".com\"]", 1),
        (
            "not (userName eq \"demo\") and accountStatus eq \"Active\"",
            1,
        ),
        ("displayName pr", 1),
        ("userName eq \"nobody\"", 0),
    ] {
        let list = send(query(filter)).await.expect(200).json();
        assert_eq!(list["totalResults"], count, "{filter}");
    }
    for filter in [
        "userName eq",
        "userName xx \"a\"",
        "(userName pr",
        "userName eq \"a",
    ] {
        let error = send(query(filter)).await.expect(400).json();
        assert_eq!(error["scimType"], "invalidFilter", "{filter}");
        assert_eq!(error["status"], "400");
    }
}

#[tokio::test]
async fn the_user_api_wants_a_valid_token() {
    let door = Setup::new().start().await;
    let none = door.get("a.test", "/v1/users").await.expect(401);
    assert!(none.header("www-authenticate").starts_with("Bearer"));
    door.get_as("made.up.token", "a.test", "/v1/users")
        .await
        .expect(401);
}

#[tokio::test]
async fn a_realm_below_the_root_has_its_own_users_clients_and_issuer() {
    let identity = "
  base_url: http://@PROXY@
  realms:
    /: {}
    /staff:
      users: [{userName: eve, password: Ch4ng31t-eve}]
      clients: [{client_id: desk, client_secret: desk-secret, grant_types: [password], scope: openid}]
";
    let door = Setup::new().identity(identity).start().await;
    let fields = [
        ("grant_type", "password"),
        ("client_id", "desk"),
        ("client_secret", "desk-secret"),
        ("username", "eve"),
        ("password", "Ch4ng31t-eve"),
        ("scope", "openid"),
    ];
    let mut issuers = Vec::new();
    for path in [
        "/oauth2/realms/root/realms/staff/access_token",
        "/oauth2/realms/staff/access_token",
    ] {
        let answer = send(client().post(door.proxy_url(path)).form(&fields)).await;
        let token = answer.expect(200).json()["access_token"].clone();
        let claims = claims_of(token.as_str().expect("a token"));
        assert_eq!(claims["realm"], "/staff");
        issuers.push(claims["iss"].clone());
    }
    assert_eq!(issuers[0], issuers[1]);
    assert_ne!(issuers[0], door.proxy_url("/oauth2"));
    assert_error(door.token_request(&fields).await, 401, "invalid_client", "");
}

#[tokio::test]
async fn a_deactivated_user_gets_in_nowhere() {
    let identity = "
  base_url: http://@PROXY@
  realms:
    /:
      users: [{userName: demo, password: Ch4ng31t-demo, accountStatus: Deactivated}]
      clients: [{client_id: orders, client_secret: orders-secret, grant_types: [password], scope: openid}]
";
    let door = Setup::new().identity(identity).start().await;
    let fields = with(FOR_DEMO, "scope", "openid");
    assert_error(door.token_request(&fields).await, 400, "invalid_grant", "");
    let request = client()
        .post(door.proxy_url("/json/authenticate"))
        .header("x-service-username", "demo")
        .header("x-service-password", "Ch4ng31t-demo");
    assert_eq!(
        send(request).await.expect(401).json()["message"],
        "User not Active"
    );
}

#[tokio::test]
async fn a_secret_that_no_environment_gives_stops_the_start() {
    let identity = "
  base_url: http://@PROXY@
  realms: {/: {clients: [{client_id: a, client_secret: '&{no.such.secret}', grant_types: [client_credentials]}]}}
";
    let mut door = Setup::new().identity(identity).lay_out();
    door.spawn();
    assert_eq!(
        door.wait_exit().await.code(),
        Some(2),
        "{}",
        door.log_text()
    );
    assert!(
        door.log_text().contains("no.such.secret"),
        "{}",
        door.log_text()
    );
}

#[tokio::test]
async fn a_secret_from_the_environment_works_and_is_never_printed() {
    let identity = "
  base_url: http://@PROXY@
  realms: {/: {clients: [{client_id: orders, client_secret: '&{orders.secret}', grant_types: [client_credentials], scope: read}]}}
";

    let setup = Setup::new()
        .identity(identity)
        .env("ORDERS_SECRET", "from-the-environment");
    let door = setup.start().await;
    let fields = with(FOR_ITSELF, "client_secret", "from-the-environment");
    door.token_request(&fields).await.expect(200);
    assert!(!door.log_text().contains("from-the-environment"));
}
