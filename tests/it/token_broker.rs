//! The token broker: a provider's tokens for registered applications, and
//! paths that need them.

mod attacks;
mod endings;
mod issued_tokens;
mod page;
mod path_attacks;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::door::IDENTITY;
use crate::support::{Answer, Door, Reply, Setup, Upstream, eventually, http};

/// What the file declares of the broker: an application whose key is the
/// provider's client.
pub(crate) const BROKER: &str = "
broker:
  organization: acme
  environment: test
  products:
  - {name: weather, proxies: [weather], environments: [test], scopes: [READ, WRITE, openid]}
  - {name: reports premium, api_resources: [/reports/**]}
  developers:
  - {email: dev@example.com, first_name: Dev}
  applications:
  - {name: orders app, developer: dev@example.com, consumer_key: orders,
     consumer_secret: orders-secret, products: [weather, reports premium]}
";

/// A door with a proxy `/weather` in front of `upstream`; `config` are further
/// lines of the plugin's configuration in YAML flow style.
async fn brokered(upstream: &Upstream, endpoint: &str, config: &str) -> Door {
    let service = format!(
        "- name: weather\n  url: {}\n  routes: [{{paths: [/weather]}}]\n  plugins:\n  \
         - {{name: token-broker, config: {{base_path: /weather, token_endpoint: '{endpoint}'\
         {config}}}}}\n",
        upstream.url("")
    );
    Setup::new()
        .identity(&format!("\n  base_url: http://@PROXY@{IDENTITY}{BROKER}"))
        .services(&service)
        .start()
        .await
}

const OWN: &str = "http://@PROXY@/oauth2/access_token";

const FORM: [(&str, &str); 6] = [
    ("grant_type", "password"),
    ("username", "demo"),
    ("password", "Ch4ng31t-demo"),
    ("client_id", "orders"),
    ("client_secret", "orders-secret"),
    ("scope", "openid"),
];

async fn ask(door: &Door, form: &[(&str, &str)]) -> Answer {
    post(door, "/weather/access_token", form).await
}

/// Changes the record of the broker at this path of the Admin API.
async fn changed(door: &Door, path: &str, change: Value) {
    let answer = door.admin_json(Method::PATCH, path, &change).await;
    answer.expect(200);
}

async fn post(door: &Door, path: &str, form: &[(&str, &str)]) -> Answer {
    http::send(http::client().post(door.proxy_url(path)).form(form)).await
}

/// The form with a member replaced; none: left out.
fn with(name: &'static str, value: Option<&'static str>) -> Vec<(&'static str, &'static str)> {
    let others = FORM.into_iter().filter(|(known, _)| *known != name);
    others.chain(value.map(|value| (name, value))).collect()
}

fn text(answer: &Value, member: &str) -> String {
    let value = answer[member].as_str();
    value
        .unwrap_or_else(|| panic!("{member} is a text in {answer}"))
        .to_owned()
}

#[track_caller]
fn assert_fault(answer: Answer, status: u16, code: &str, text: &str) {
    let answer = answer.expect(status);
    let fault = json!({"fault": {"faultstring": text, "detail": {"errorcode": code}}});
    assert_eq!(answer.json(), fault);
    assert_eq!(answer.header("content-type"), "application/json");
    if status == 401 {
        let challenge = format!(
            "Bearer realm=\"null\",error=\"invalid_token\",error_description=\"{code}: {text}\""
        );
        assert_eq!(answer.header("www-authenticate"), challenge);
    }
}

const INVALID: (&str, &str) = ("oauth.v2.InvalidAccessToken", "Invalid access token");

/// A proxy with tokens of the broker's own.
const FLOWS: &str = ", proxy: weather, flows: [\
    {name: token, condition: '(proxy.pathsuffix MatchesPath \"/token\") and (request.verb = \"POST\")', \
     operation: GenerateAccessToken, external_authorization: false, \
     attributes: {tier: {value: gold, display: true}}},\
    {name: end, condition: 'proxy.pathsuffix MatchesPath \"/revoke\" and request.formparam.token != null', \
     operation: InvalidateToken},\
    {name: open, condition: 'proxy.pathsuffix MatchesPath \"/health\"', operation: none},\
    {name: write, condition: 'request.verb != \"GET\"', operation: VerifyAccessToken, scope: [WRITE]},\
    {name: api, operation: VerifyAccessToken}]";

#[tokio::test]
async fn a_password_becomes_a_token_that_opens_the_proxy() {
    let upstream = Upstream::echo().await;
    let door = brokered(&upstream, OWN, "").await;
    let answer = ask(&door, &FORM).await.expect(200);
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.header("cache-control"), "no-store");
    let names: Vec<String> = serde_json::from_str::<serde_json::Map<_, _>>(&answer.body)
        .expect("an object")
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let mut wanted = [
        "refresh_token_expires_in",
        "refresh_token_status",
        "api_product_list",
        "api_product_list_json",
        "organization_name",
        "developer.email",
        "token_type",
        "issued_at",
        "client_id",
        "access_token",
        "refresh_token",
        "application_name",
        "scope",
        "refresh_token_issued_at",
        "expires_in",
        "refresh_count",
        "status",
    ];
    wanted.sort_unstable();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, wanted);
    let body = answer.json();
    for (member, value) in [
        ("refresh_token_expires_in", "2591999"),
        ("refresh_token_status", "approved"),
        ("api_product_list", "[weather, reports premium]"),
        ("organization_name", "acme"),
        ("developer.email", "dev@example.com"),
        ("token_type", "BearerToken"),
        ("client_id", "orders"),
        ("scope", "openid"),
        ("expires_in", "1799"),
        ("refresh_count", "0"),
        ("status", "approved"),
    ] {
        assert_eq!(text(&body, member), value, "{member}");
    }
    assert_eq!(
        body["api_product_list_json"],
        json!(["weather", "reports premium"])
    );
    assert_eq!(text(&body, "refresh_token").len(), 32);
    assert_eq!(text(&body, "application_name").len(), 36);
    assert_eq!(
        text(&body, "issued_at"),
        text(&body, "refresh_token_issued_at")
    );
    assert_eq!(text(&body, "issued_at").len(), 13);
    let token = text(&body, "access_token");
    // It is the provider's own: that knows it too.
    let known = http::client()
        .get(door.proxy_url("/oauth2/tokeninfo"))
        .bearer_auth(&token);
    http::send(known).await.expect(200);
    assert!(upstream.seen().is_empty());
    for path in ["/weather/today", "/weather", "/weather/reports/1"] {
        door.get_as(&token, "any.test", path).await.expect(200);
    }
    let sent = format!("Bearer {token}");
    assert_eq!(upstream.last().header("authorization"), Some(sent.as_str()));
    let log = door.log_text();
    for secret in [&token, "Ch4ng31t-demo", "orders-secret"] {
        assert!(!log.contains(secret));
    }
}

#[tokio::test]
async fn a_request_without_a_good_token_is_told_so_in_the_gateways_own_words() {
    let upstream = Upstream::echo().await;
    let door = brokered(&upstream, OWN, "").await;
    let (code, words) = INVALID;
    assert_fault(door.get("any.test", "/weather/x").await, 401, code, words);
    for field in [
        "Bearer",
        "Bearer ",
        "Basic eDp5",
        "Bearer nobodys",
        "nobodys",
    ] {
        let request = http::client().get(door.proxy_url("/weather/x"));
        let answer = http::send(request.header("authorization", field)).await;
        assert_fault(answer, 401, code, words);
    }
    // A token of the provider that did not come through the broker.
    let stranger = door.user_token("alice", "openid").await;
    let answer = door.get_as(&stranger, "any.test", "/weather/x").await;
    assert_fault(answer, 401, code, words);
    let two = http::client()
        .get(door.proxy_url("/weather/x"))
        .header("authorization", "Bearer a")
        .header("authorization", "Bearer b");
    assert_fault(http::send(two).await, 401, code, words);
    let xml = http::client()
        .get(door.proxy_url("/weather/x"))
        .header("accept", "application/xml");
    let answer = http::send(xml).await.expect(401);
    assert_eq!(answer.header("content-type"), "application/xml");
    assert!(answer.body.starts_with("<fault><faultstring>"));
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn what_the_token_endpoint_cannot_take_is_told_and_gives_nothing() {
    let upstream = Upstream::echo().await;
    let door = brokered(&upstream, OWN, "").await;
    for (form, status, code, words) in [
        (
            with("grant_type", None),
            400,
            "invalid_request",
            "Required param : grant_type",
        ),
        (
            with("grant_type", Some("client_credentials")),
            400,
            "invalid_request",
            "Unsupported grant type : client_credentials",
        ),
        (
            with("username", None),
            400,
            "invalid_request",
            "Required param : username",
        ),
        (
            with("password", Some("")),
            400,
            "invalid_request",
            "Required param : password",
        ),
        (
            with("client_id", None),
            400,
            "invalid_request",
            "The request is missing a required parameter : client_id",
        ),
        // The provider knows it, the broker does not.
        (
            with("client_id", Some("other")),
            401,
            "invalid_client",
            "ClientId is Invalid",
        ),
        (
            with("client_secret", Some("wrong")),
            401,
            "invalid_client",
            "ClientId is Invalid",
        ),
        (
            with("password", Some("wrong")),
            401,
            "invalid_request",
            "External authorization failed",
        ),
        (
            with("scope", Some("read")),
            400,
            "invalid_scope",
            "Invalid Scope",
        ),
    ] {
        let answer = ask(&door, &form).await.expect(status);
        assert_eq!(
            answer.json(),
            json!({"ErrorCode": code, "Error": words}),
            "{form:?}"
        );
    }
    let mut twice = FORM.to_vec();
    twice.push(("client_id", "orders"));
    let answer = ask(&door, &twice).await.expect(400);
    assert_eq!(answer.json()["ErrorCode"], "invalid_request");
    let json = http::client()
        .post(door.proxy_url("/weather/access_token"))
        .json(&json!({"grant_type": "password"}));
    http::send(json).await.expect(400);
    // The flow is for POST: others meet the protected path.
    let (code, words) = INVALID;
    let get = door.get("any.test", "/weather/access_token").await;
    assert_fault(get, 401, code, words);
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn a_broken_provider_is_a_fault_that_shows_nothing_of_its_reply() {
    let upstream = Upstream::echo().await;
    let provider = Upstream::start(|seen| {
        let form = String::from_utf8_lossy(&seen.body).into_owned();
        let asked = |word: &str| form.contains(&format!("username={word}&"));
        let good = json!({"access_token": "s3cret-token", "expires_in": 60});
        match () {
            () if asked("slow") => Reply::Hang,
            () if asked("gone") => Reply::Close,
            () if asked("page") => {
                Reply::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n<html>s3cret>".to_vec())
            }
            () if asked("away") => Reply::Raw(
                b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n".to_vec(),
            ),
            () if asked("huge") => Reply::Json(200, json!({"access_token": "s".repeat(2 << 20)})),
            () if asked("long") => Reply::Json(200, json!({"access_token": "s".repeat(70 << 10)})),
            () if asked("fail") => Reply::Json(503, json!({"error": "s3cret"})),
            () if asked("none") => Reply::Json(200, json!({"token": "s3cret"})),
            () if asked("deny") => {
                Reply::Json(400, json!({"error": "invalid_grant", "x": "s3cret"}))
            }
            () => Reply::Json(200, good),
        }
    })
    .await;
    let door = brokered(&upstream, &provider.url("/token"), ", timeout: 5000").await;
    for (user, status, code) in [
        ("slow", 500, "steps.servicecallout.ExecutionFailed"),
        ("gone", 500, "steps.servicecallout.ExecutionFailed"),
        (
            "page",
            500,
            "steps.extractvariables.SourceMessageNotAvailable",
        ),
        ("away", 500, "steps.servicecallout.ExecutionFailed"),
        ("huge", 500, "steps.servicecallout.ExecutionFailed"),
        ("long", 500, "steps.servicecallout.ExecutionFailed"),
        ("fail", 500, "steps.servicecallout.ExecutionFailed"),
        (
            "none",
            500,
            "steps.extractvariables.SourceMessageNotAvailable",
        ),
    ] {
        let answer = ask(&door, &with("username", Some(user)))
            .await
            .expect(status);
        assert_eq!(
            answer.json()["fault"]["detail"]["errorcode"],
            code,
            "{user}"
        );
        assert!(!answer.body.contains("s3cret"));
    }
    let answer = ask(&door, &with("username", Some("deny")))
        .await
        .expect(401);
    assert!(!answer.body.contains("s3cret"), "{}", answer.body);
    // What the provider got: the fields, and no other grant type.
    let mut form = with("username", Some("anna"));
    form.push(("extra", "1"));
    let good = ask(&door, &form).await.expect(200).json();
    assert_eq!(text(&good, "access_token"), "s3cret-token");
    assert_eq!(text(&good, "expires_in"), "60");
    let sent = String::from_utf8_lossy(&provider.last().body).into_owned();
    assert_eq!(
        sent,
        "grant_type=password&username=anna&password=Ch4ng31t-demo&client_id=orders\
         &client_secret=orders-secret&scope=openid"
    );
    assert!(!door.log_text().contains("s3cret"));
}

#[tokio::test]
async fn a_refresh_token_is_good_once_and_ends_the_access_token() {
    let upstream = Upstream::echo().await;
    let door = brokered(&upstream, OWN, "").await;
    let first = ask(&door, &FORM).await.expect(200).json();
    let refresh = text(&first, "refresh_token");
    let form = |token: &str, secret: &str| {
        [
            ("grant_type", "refresh_token".to_owned()),
            ("refresh_token", token.to_owned()),
            ("client_id", "orders".to_owned()),
            ("client_secret", secret.to_owned()),
        ]
    };
    let again = |token: String, secret: &'static str| {
        let form = form(&token, secret);
        let request = http::client().post(door.proxy_url("/weather/refresh_token"));
        http::send(request.form(&form))
    };
    again(refresh.clone(), "wrong").await.expect(401);
    let second = again(refresh.clone(), "orders-secret")
        .await
        .expect(200)
        .json();
    assert_eq!(text(&second, "refresh_count"), "1");
    assert_eq!(text(&second, "access_token").len(), 28);
    assert_eq!(text(&second, "scope"), "openid");
    assert_ne!(text(&second, "refresh_token"), refresh);
    let (code, words) = INVALID;
    let old = text(&first, "access_token");
    assert_fault(
        door.get_as(&old, "any.test", "/weather/x").await,
        401,
        code,
        words,
    );
    let new = text(&second, "access_token");
    door.get_as(&new, "any.test", "/weather/x")
        .await
        .expect(200);
    let spent = again(refresh, "orders-secret").await.expect(400);
    assert_eq!(
        spent.json(),
        json!({"ErrorCode": "invalid_request", "Error": "Invalid Refresh Token"})
    );
}

#[tokio::test]
async fn what_an_operator_changes_is_in_force_for_the_next_request() {
    let upstream = Upstream::echo().await;
    let config = ", split_codes: true";
    let door = brokered(&upstream, OWN, config).await;
    let token = text(&ask(&door, &FORM).await.expect(200).json(), "access_token");
    let call = || door.get_as(&token, "any.test", "/weather/x");
    call().await.expect(200);
    // A product and an application of the operator's own.
    let product =
        json!({"name": "own", "api_resources": ["/x"], "quota": 2, "quota_time_unit": "hour"});
    door.admin_post("/broker/products", &product)
        .await
        .expect(201);
    let answer = door
        .admin_post("/broker/products", &product)
        .await
        .expect(409);
    assert_eq!(answer.json()["code"], 5);
    let wrong = door
        .admin_post(
            "/broker/products",
            &json!({"name": "p", "api_resources": ["/", "x"]}),
        )
        .await
        .expect(400);
    assert_eq!(wrong.json()["name"], "schema violation", "{}", wrong.body);
    let application = json!({"name": "a", "developer": "dev@example.com", "products": ["own"]});
    let made = door.admin_post("/broker/applications", &application).await;
    let made = made.expect(201).json();
    let path = format!("/broker/applications/{}", text(&made, "id"));
    assert_eq!(text(&made, "consumer_key").len(), 32);
    assert_eq!(text(&made, "consumer_secret").len(), 32);
    let shown = door.admin_get(&path).await.expect(200);
    assert!(shown.json().get("consumer_secret").is_none());
    // Declared ones are changed in the file.
    let declared = door
        .admin_delete("/broker/products/weather")
        .await
        .expect(409);
    assert_eq!(declared.json()["code"], 12);
    let list = door
        .admin_get("/broker/products?size=1")
        .await
        .expect(200)
        .json();
    assert_eq!(list["data"][0]["name"], "own");
    let next = door.admin_get(list["next"].as_str().expect("more")).await;
    assert_eq!(
        next.expect(200).json()["data"][0]["name"],
        "reports premium"
    );
    let refused = door
        .admin_delete("/broker/developers/dev@example.com")
        .await;
    refused.expect(409);
    // One token is revoked, by its text.
    let body = json!({"token": token});
    door.admin_post("/broker/tokens/revoke", &body)
        .await
        .expect(204);
    assert_fault(
        call().await,
        401,
        "keymanagement.service.access_token_not_approved",
        "Access Token not approved",
    );
    door.admin_post("/broker/tokens/revoke", &json!({"token": "x"}))
        .await
        .expect(404);
    let unknown = door.get_as("nobodys", "any.test", "/weather/x").await;
    assert_fault(
        unknown,
        401,
        "keymanagement.service.invalid_access_token",
        "Invalid Access Token",
    );
    changed(&door, &path, json!({"status": "revoked"})).await;
    door.admin_delete(&path).await.expect(204);
    door.admin_get(&path).await.expect(404);
}

#[tokio::test]
async fn a_route_file_has_the_same_broker() {
    let upstream = Upstream::echo().await;
    let door = Setup::new()
        .identity(&format!("\n  base_url: http://@PROXY@{IDENTITY}{BROKER}"))
        .lay_out();
    let route = json!({
        "name": "weather",
        "baseURI": upstream.url(""),
        "condition": "${matches(request.uri.path, '^/weather')}",
        "handler": {"type": "Chain", "config": {
            "filters": [{"type": "TokenBrokerFilter", "config": {
                "basePath": "/weather",
                "tokenEndpoint": door.fill(OWN),
                "proxy": "weather",
            }}],
            "handler": "ReverseProxyHandler",
        }},
    });
    door.write("weather.json", &route.to_string());
    door.edit(
        "doorward.yaml",
        "entities: [",
        "entities: [\"@DIR@/weather.json\", ",
    );
    let mut door = door;
    door.start().await;
    let (code, words) = INVALID;
    assert_fault(door.get("any.test", "/weather/x").await, 401, code, words);
    let token = text(&ask(&door, &FORM).await.expect(200).json(), "access_token");
    door.get_as(&token, "any.test", "/weather/x")
        .await
        .expect(200);
    assert_eq!(upstream.last().target, "/weather/x");
}
