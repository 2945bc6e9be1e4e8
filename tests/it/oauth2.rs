//! The `oauth2` plugin, seen through requests to the real program.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Door, Setup, Upstream, http};

const PROXY: &str = "{listen: [\"@PROXY@\"], trusted_ips: [127.0.0.1]}";
const CALLBACK: &str = "https://app.test/back";
/// A verifier of RFC 7636 (Appendix B) and its challenge.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

/// A service whose route the plugin guards, and an application of anna's.
async fn door(upstream: &Upstream, config: Value) -> Door {
    let door = Setup::new().proxy(PROXY).start().await;
    door.expose("api", &upstream.url(""), "api.test").await;
    let mut all = json!({"enable_authorization_code": true, "enable_implicit_grant": true,
        "enable_client_credentials": true, "enable_password_grant": true,
        "provision_key": "login page", "scopes": ["read", "write"],
        "accept_http_if_already_terminated": true});
    let fields = config.as_object().expect("fields").clone();
    all.as_object_mut().expect("fields").extend(fields);
    let plugin = json!({"name": "oauth2", "config": all});
    door.admin_post("/services/api/plugins", &plugin)
        .await
        .expect(201);
    door.admin_post("/consumers", &json!({"username": "anna"}))
        .await
        .expect(201);
    let app = json!({"name": "App", "client_id": "app", "client_secret": "secret",
        "redirect_uris": [CALLBACK]});
    door.admin_post("/consumers/anna/oauth2", &app)
        .await
        .expect(201);
    door
}

async fn post(door: &Door, path: &str, form: &[(&str, &str)]) -> Answer {
    let request = http::client().post(door.proxy_url(path)).form(form);
    let request = request.header("host", "api.test");
    http::send(request.header("x-forwarded-proto", "https")).await
}

/// What an application gets that names itself.
async fn token(door: &Door, form: &[(&str, &str)]) -> Answer {
    let own = [("client_id", "app"), ("client_secret", "secret")];
    post(door, "/oauth2/token", &[&own, form].concat()).await
}

async fn get(door: &Door, path: &str, token: &str) -> Answer {
    let request = http::client().get(door.proxy_url(path));
    let request = request.header("host", "api.test").bearer_auth(token);
    http::send(request.header("x-authenticated-userid", "forged")).await
}

fn text(answer: &Answer, member: &str) -> String {
    let answer = answer.json();
    let text = answer[member].as_str();
    text.unwrap_or_else(|| panic!("{member}: {answer}"))
        .to_owned()
}

/// A code that the login page gets for anna.
async fn code(door: &Door, more: &[(&str, &str)]) -> String {
    let form = [
        ("provision_key", "login page"),
        ("authenticated_userid", "user 7"),
        ("client_id", "app"),
        ("response_type", "code"),
        ("scope", "read"),
        ("state", "a b"),
    ];
    let answer = post(door, "/oauth2/authorize", &[&form, more].concat()).await;
    let uri = text(&answer.expect(200), "redirect_uri");
    let uri: url::Url = uri.parse().expect("an address");
    assert!(uri.as_str().starts_with(CALLBACK), "{uri}");
    let query: std::collections::HashMap<_, _> = uri.query_pairs().collect();
    assert_eq!(query["state"], "a b");
    query["code"].to_string()
}

#[tokio::test]
async fn an_application_gets_tokens_by_each_grant_and_the_upstream_learns_of_whom() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream, json!({"hide_credentials": true})).await;
    let code = code(&door, &[]).await;
    let form = [("grant_type", "authorization_code"), ("code", &code)];
    let given = token(&door, &form).await.expect(200);
    assert_eq!(given.header("cache-control"), "no-store");
    let body = given.json();
    assert_eq!(
        (&body["token_type"], &body["expires_in"]),
        (&json!("bearer"), &json!(7200))
    );
    let access = text(&given, "access_token");
    let heard = get(&door, "/x", &access).await.expect(200);
    for (header, value) in [
        ("x-consumer-username", "anna"),
        ("x-credential-identifier", "app"),
        ("x-authenticated-scope", "read"),
        ("x-authenticated-userid", "user 7"),
    ] {
        assert_eq!(heard.json()["headers"][header], value, "{header}");
    }
    assert_eq!(heard.json()["headers"]["authorization"], Value::Null);
    // In the query, where nobody else is to see it either.
    let request = http::client().get(door.proxy_url(&format!("/x?a=1&access_token={access}")));
    let heard = http::send(request.header("host", "api.test"))
        .await
        .expect(200);
    assert!(!heard.body.contains(&access), "{}", heard.body);
    let password = [
        ("grant_type", "password"),
        ("provision_key", "login page"),
        ("authenticated_userid", "user 8"),
    ];
    let given = token(&door, &password).await.expect(200);
    get(&door, "/x", &text(&given, "access_token"))
        .await
        .expect(200);
    let form = [("grant_type", "client_credentials"), ("scope", "write")];
    let given = token(&door, &form).await.expect(200);
    assert_eq!(given.json()["refresh_token"], Value::Null);
    get(&door, "/x", &text(&given, "access_token"))
        .await
        .expect(200);
    let form = [
        ("provision_key", "login page"),
        ("authenticated_userid", "user 9"),
        ("client_id", "app"),
        ("response_type", "token"),
    ];
    let answer = post(&door, "/oauth2/authorize", &form).await.expect(200);
    let uri = text(&answer, "redirect_uri");
    let (_, fragment) = uri.split_once('#').expect("a fragment");
    assert!(fragment.contains("access_token=") && !fragment.contains("refresh_token"));
    assert!(!door.log_text().contains(&access));
}

#[tokio::test]
async fn a_code_is_good_once_for_one_client_with_its_verifier() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream, json!({})).await;
    let other = json!({"name": "Other", "client_id": "other", "client_type": "public",
        "redirect_uris": [CALLBACK]});
    door.admin_post("/consumers/anna/oauth2", &other)
        .await
        .expect(201);
    let challenge = [
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
    ];
    let code = code(&door, &challenge).await;
    let form = |verifier| {
        [
            ("grant_type", "authorization_code"),
            ("code", &*code),
            ("code_verifier", verifier),
        ]
    };
    let wrong = "x".repeat(43);
    for (form, error, description) in [
        (
            &form("short")[..],
            "invalid_request",
            "code_verifier must be between 43 and 128 characters",
        ),
        (&form(&wrong)[..], "invalid_grant", "Invalid code"),
        (
            &form("")[..2],
            "invalid_request",
            "code_verifier is required for PKCE authorization requests",
        ),
    ] {
        let body = token(&door, form).await.expect(400).json();
        assert_eq!(
            body,
            json!({"error": error, "error_description": description})
        );
    }
    // Another client with the right verifier.
    let stolen = [&[("client_id", "other")][..], &form(VERIFIER)].concat();
    let refused = post(&door, "/oauth2/token", &stolen)
        .await
        .expect(400)
        .json();
    assert_eq!(refused["error_description"], "Invalid code");
    // Of many at once one gets a token.
    let form = form(VERIFIER);
    let tries = futures_util::future::join_all((0..8).map(|_| token(&door, &form))).await;
    let given = tries.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(given, 1);
    // A public client can't leave the proof out.
    let form = [
        ("provision_key", "login page"),
        ("authenticated_userid", "user 7"),
        ("client_id", "other"),
        ("response_type", "code"),
    ];
    let refused = post(&door, "/oauth2/authorize", &form).await.expect(400);
    assert!(text(&refused, "redirect_uri").contains("required%20for%20public%20clients"));
}

#[tokio::test]
async fn a_refresh_token_is_good_once_unless_it_is_to_stay() {
    let upstream = Upstream::echo().await;
    for reuse in [false, true] {
        let door = door(&upstream, json!({"reuse_refresh_token": reuse})).await;
        let code = code(&door, &[]).await;
        let form = [("grant_type", "authorization_code"), ("code", &code)];
        let given = token(&door, &form).await.expect(200);
        let (access, refresh) = (text(&given, "access_token"), text(&given, "refresh_token"));
        get(&door, "/x", &access).await.expect(200);
        let form = [
            ("grant_type", "refresh_token"),
            ("refresh_token", &*refresh),
        ];
        let next = token(&door, &form).await.expect(200);
        get(&door, "/x", &access).await.expect(401);
        get(&door, "/x", &text(&next, "access_token"))
            .await
            .expect(200);
        assert_eq!(text(&next, "refresh_token") == refresh, reuse);
        token(&door, &form)
            .await
            .expect(if reuse { 200 } else { 400 });
    }
}

#[tokio::test]
async fn the_members_of_an_answer_stand_in_the_order_that_clients_compare() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream, json!({})).await;
    let open = code(&door, &[]).await;
    let form = [
        ("grant_type", "authorization_code"),
        ("code", &*open),
        ("state", "wot"),
    ];
    let given = token(&door, &form).await.expect(200);
    let told = given.json();
    let wanted = format!(
        "{{\"refresh_token\":{},\"token_type\":\"bearer\",\"state\":\"wot\",\"access_token\":{},\"expires_in\":{}}}",
        told["refresh_token"], told["access_token"], told["expires_in"]
    );
    assert_eq!(given.body, wanted);
}

#[tokio::test]
async fn tokens_and_codes_survive_the_end_of_the_process_and_lie_there_as_hashes() {
    let upstream = Upstream::echo().await;
    let mut door = door(&upstream, json!({})).await;
    let open = code(&door, &[]).await;
    let form = [("grant_type", "client_credentials")];
    let access = text(&token(&door, &form).await.expect(200), "access_token");
    door.kill();
    for file in std::fs::read_dir(door.dir()).expect("a directory") {
        let path = file.expect("a file").path();
        let bytes = std::fs::read(&path).unwrap_or_default();
        for secret in [&access, &open] {
            let found = bytes.windows(secret.len()).any(|w| w == secret.as_bytes());
            assert!(!found, "{}", path.display());
        }
    }
    door.start().await;
    get(&door, "/x", &access).await.expect(200);
    let form = [("grant_type", "authorization_code"), ("code", &*open)];
    token(&door, &form).await.expect(200);
}

#[tokio::test]
async fn a_token_ends_with_its_service_its_application_and_by_the_admin_api() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream, json!({})).await;
    door.expose("other", &upstream.url(""), "other.test").await;
    let plugin = json!({"name": "oauth2", "config": {"enable_client_credentials": true}});
    let made = door.admin_post("/services/other/plugins", &plugin).await;
    let key = made.expect(201).json()["config"]["provision_key"].clone();
    assert_eq!(key.as_str().map(str::len), Some(32));
    let form = [("grant_type", "client_credentials")];
    let mut given = Vec::new();
    for _ in 0..2 {
        given.push(text(&token(&door, &form).await.expect(200), "access_token"));
    }
    let elsewhere = http::client().get(door.proxy_url("/x"));
    let elsewhere = elsewhere
        .header("host", "other.test")
        .bearer_auth(&given[0]);
    let refused = http::send(elsewhere).await.expect(401);
    assert_eq!(refused.json()["error"], "invalid_token");
    let told = "Bearer error=\"invalid_token\" error_description=\"The access token is invalid \
        or has expired\"";
    assert_eq!(refused.header("www-authenticate"), told);
    let listed = door
        .admin_get("/oauth2/app/oauth2_tokens?size=1")
        .await
        .expect(200);
    assert_eq!(listed.json()["data"][0]["access_token"], "**");
    assert_ne!(listed.json()["next"], Value::Null);
    let path = format!("/oauth2_tokens/{}", given[0]);
    door.admin_get(&path).await.expect(200);
    door.admin_delete(&path).await.expect(204);
    door.admin_get(&path).await.expect(404);
    get(&door, "/x", &given[0]).await.expect(401);
    get(&door, "/x", &given[1]).await.expect(200);
    door.admin_delete("/consumers/anna/oauth2/app")
        .await
        .expect(204);
    get(&door, "/x", &given[1]).await.expect(401);
    let audit = door.admin_get("/audit?size=100").await.expect(200);
    assert!(!audit.body.contains(&given[0]), "{}", audit.body);
}

#[tokio::test]
async fn secrets_of_applications_are_shown_once_and_tokens_can_be_made_by_operators() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream, json!({})).await;
    let body = json!({"name": "Made"});
    let made = door.admin_post("/consumers/anna/oauth2", &body).await;
    let made = made.expect(201);
    let (id, secret) = (text(&made, "client_id"), text(&made, "client_secret"));
    assert_eq!((id.len(), secret.len()), (32, 32));
    let path = format!("/oauth2/{id}");
    let shown = door.admin_get(&path).await.expect(200).json();
    assert_eq!(
        (&shown["client_secret"], &shown["hash_secret"]),
        (&json!("**"), &json!(false))
    );
    // What is read can be written back.
    let back = json!({"name": "New", "client_secret": "**"});
    door.admin_json(Method::PATCH, &path, &back)
        .await
        .expect(200);
    let form = [
        ("grant_type", "client_credentials"),
        ("client_id", &id),
        ("client_secret", &secret),
    ];
    post(&door, "/oauth2/token", &form).await.expect(200);
    for (uri, message) in [
        ("nowhere", "cannot parse 'nowhere'"),
        (
            "https://a.test/#x",
            "fragment not allowed in 'https://a.test/#x'",
        ),
    ] {
        let wrong = json!({"name": "x", "redirect_uris": [uri]});
        let refused = door.admin_post("/consumers/anna/oauth2", &wrong).await;
        assert!(refused.expect(400).body.contains(message));
    }
    let service = door.admin_get("/services/api").await.json()["id"].clone();
    let token = json!({"credential": {"id": shown["id"]}, "service": {"id": service},
        "expires_in": 60, "access_token": "by hand"});
    let made = door.admin_post("/oauth2_tokens", &token).await.expect(201);
    assert_eq!(text(&made, "access_token"), "by hand");
    door.admin_post("/oauth2_tokens", &token).await.expect(409);
    get(&door, "/x", "by hand").await.expect(401);
    let token = json!({"credential": {"id": shown["id"]}, "service": {"id": service},
        "expires_in": 60});
    let made = door.admin_post("/oauth2_tokens", &token).await.expect(201);
    get(&door, "/x", &text(&made, "access_token"))
        .await
        .expect(200);
}

/// A form in parts with a boundary of its own.
fn in_parts(fields: &[(&str, &str)]) -> String {
    let part = |(name, value): &(&str, &str)| {
        format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    format!("{}--x--\r\n", fields.iter().map(part).collect::<String>())
}

async fn post_parts(door: &Door, path: &str, fields: &[(&str, &str)]) -> Answer {
    let request = http::client().post(door.proxy_url(path));
    let request = request.header("content-type", "multipart/form-data; boundary=x");
    let request = request.header("host", "api.test").body(in_parts(fields));
    http::send(request.header("x-forwarded-proto", "https")).await
}

#[tokio::test]
async fn forms_in_parts_bring_parameters_and_tokens() {
    let upstream = Upstream::echo().await;
    let door = door(&upstream, json!({"hide_credentials": true})).await;
    let grant = [
        ("grant_type", "client_credentials"),
        ("client_id", "app"),
        ("client_secret", "secret"),
        ("scope", "read"),
    ];
    let answer = post_parts(&door, "/oauth2/token", &grant).await;
    let token = text(&answer.expect(200), "access_token");

    let fields = [("a", "1"), ("access_token", token.as_str())];
    post_parts(&door, "/", &fields).await.expect(200);
    assert_eq!(upstream.last().body, in_parts(&fields[..1]).as_bytes());
    // Twice is none.
    let twice = [fields[1], fields[1]];
    post_parts(&door, "/", &twice).await.expect(401);
}
