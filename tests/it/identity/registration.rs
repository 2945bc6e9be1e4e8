//! Clients that register themselves (RFC 7591, OpenID Connect Registration)
//! and look after their record (RFC 7592).

use reqwest::Method;
use serde_json::{Value, json};

use super::assert_error;
use crate::support::http::{client, send};
use crate::support::{Answer, Door, Setup};

const IDENTITY: &str = "
  base_url: http://@PROXY@
  outbound: {allow: [127.0.0.1]}
  realms:
    /:
      settings: {registration: {mode: open, grant_types: [authorization_code, implicit, \
refresh_token, client_credentials], scope: openid profile email read}}
      users: [{userName: demo, password: Ch4ng31t-demo}]
      clients:
        - {client_id: declared, client_secret: declared-secret, grant_types: [client_credentials]}
    /closed:
      settings: {registration: null}
    /invited:
      settings: {registration: {mode: token, max_clients: 3}}
";

const REGISTER: &str = "/oauth2/connect/register";

pub(super) async fn door() -> Door {
    Setup::new().identity(IDENTITY).start().await
}

pub(super) async fn register(door: &Door, members: &Value) -> Answer {
    send(client().post(door.proxy_url(REGISTER)).json(members)).await
}

/// A request of a client about its own record.
async fn own(method: Method, record: &Value, body: Option<&Value>) -> Answer {
    let text = |name: &str| record[name].as_str().expect(name);
    let request = client().request(method, text("registration_client_uri"));
    let request = request.bearer_auth(text("registration_access_token"));
    match body {
        Some(body) => send(request.json(body)).await,
        None => send(request).await,
    }
}

/// `record` as its client sends it back: without what only the provider says.
fn sent_back(record: &Value) -> Value {
    let mut record = record.clone();
    let members = record.as_object_mut().expect("an object");
    for name in [
        "registration_access_token",
        "registration_client_uri",
        "client_id_issued_at",
        "client_secret_expires_at",
    ] {
        members.remove(name);
    }
    record
}

async fn token(door: &Door, record: &Value) -> Answer {
    let text = |name: &str| record[name].as_str().expect(name);
    let request = client()
        .post(door.proxy_url("/oauth2/access_token"))
        .basic_auth(text("client_id"), Some(text("client_secret")));
    send(request.form(&[("grant_type", "client_credentials"), ("scope", "read")])).await
}

pub(super) fn web() -> Value {
    json!({"redirect_uris": ["https://app.example/cb"]})
}

pub(super) fn machine() -> Value {
    json!({"grant_types": ["client_credentials"], "scope": "read", "response_types": []})
}

#[tokio::test]
async fn registration_is_off_unless_it_is_switched_on() {
    let door = Setup::new().start().await;
    let answer = register(&door, &web()).await;
    assert_error(answer, 404, "not_found", "Resource not found");
    let path = "/oauth2/.well-known/openid-configuration";
    let metadata = door.get("a.test", path).await.expect(200).json();
    assert!(metadata.get("registration_endpoint").is_none());
}

#[tokio::test]
async fn the_metadata_name_the_endpoint_of_the_realm() {
    let door = door().await;
    for (realm, endpoint) in [
        ("", Some("/oauth2/connect/register")),
        ("/closed", None),
        (
            "/invited",
            Some("/oauth2/realms/root/realms/invited/connect/register"),
        ),
    ] {
        let path = format!("/oauth2{realm}/.well-known/openid-configuration");
        let metadata = door.get("a.test", &path).await.expect(200).json();
        let wanted = endpoint.map(|path| json!(door.proxy_url(path)));
        assert_eq!(
            metadata.get("registration_endpoint"),
            wanted.as_ref(),
            "{realm}"
        );
    }
    let closed = client()
        .post(door.proxy_url("/oauth2/closed/connect/register"))
        .json(&web());
    send(closed).await.expect(404);
}

#[tokio::test]
async fn a_registered_client_gets_all_of_its_metadata() {
    let door = door().await;
    let answer = register(&door, &web()).await.expect(201);
    assert!(answer.header("cache-control").contains("no-store"));
    assert!(answer.header("pragma").contains("no-cache"));
    assert!(
        answer
            .header("content-type")
            .starts_with("application/json")
    );
    let record = answer.json();
    for (name, value) in [
        ("redirect_uris", json!(["https://app.example/cb"])),
        ("grant_types", json!(["authorization_code"])),
        ("response_types", json!(["code"])),
        ("token_endpoint_auth_method", json!("client_secret_basic")),
        ("application_type", json!("web")),
        ("id_token_signed_response_alg", json!("RS256")),
        ("scope", json!("openid profile email read")),
        ("client_secret_expires_at", json!(0)),
    ] {
        assert_eq!(record[name], value, "{name}");
    }
    assert!(record["client_id_issued_at"].as_i64() > Some(1_600_000_000));
    for name in ["client_id", "client_secret", "registration_access_token"] {
        let length = record[name].as_str().map_or(0, str::len);
        assert!(length >= 32, "{name}");
    }
    let address = record["registration_client_uri"].as_str().expect("a URI");
    assert!(address.starts_with(&door.proxy_url("/oauth2/connect/register?client_id=")));
    // A client without secret is told of none.
    let mut public = web();
    public["token_endpoint_auth_method"] = json!("none");
    let public = register(&door, &public).await.expect(201).json();
    assert!(public.get("client_secret").is_none());
    assert!(public.get("client_secret_expires_at").is_none());
}

#[tokio::test]
async fn what_a_client_says_of_itself_is_echoed() {
    let door = door().await;
    let key = json!({"kty": "EC", "crv": "P-256", "kid": "one", "use": "sig", "alg": "ES256",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"});
    let all = json!({
        "application_type": "web",
        "redirect_uris": ["https://app.example/cb", "https://app.example/cb?more=1"],
        "post_logout_redirect_uris": ["https://app.example/bye"],
        "response_types": ["code", "code id_token", "id_token"],
        "grant_types": ["authorization_code", "implicit", "refresh_token"],
        "client_name": "Example",
        "client_name#de": "Beispiel",
        "tos_uri#pt-BR": "https://app.example/tos-br",
        "contacts": ["ops@app.example"],
        "logo_uri": "https://app.example/logo.png",
        "client_uri": "https://app.example/",
        "policy_uri": "https://app.example/policy",
        "tos_uri": "https://app.example/tos",
        "jwks": {"keys": [key]},
        "token_endpoint_auth_method": "private_key_jwt",
        "token_endpoint_auth_signing_alg": "ES256",
        "id_token_signed_response_alg": "ES256",
        "userinfo_signed_response_alg": "RS256",
        "default_max_age": 3600,
        "require_auth_time": true,
        "default_acr_values": ["0"],
        "initiate_login_uri": "https://app.example/login",
        "request_object_signing_alg": "ES256",
        "request_uris": ["https://app.example/request#2"],
        "require_pushed_authorization_requests": true,
        "require_signed_request_object": true,
        "backchannel_logout_uri": "https://app.example/back",
        "backchannel_logout_session_required": true,
        "frontchannel_logout_uri": "https://app.example/front",
        "frontchannel_logout_session_required": true,
        "dpop_bound_access_tokens": true,
        "scope": "openid email",
        "software_id": "example",
        "software_version": "1.0",
    });
    let record = register(&door, &all).await.expect(201).json();
    for (name, value) in all.as_object().expect("an object") {
        assert_eq!(&record[name], value, "{name}");
    }
    assert!(record.get("client_secret").is_none());
    let read = own(Method::GET, &record, None).await.expect(200).json();
    assert_eq!(read, record);
}

#[tokio::test]
async fn unknown_members_and_those_of_operators_are_ignored() {
    let door = door().await;
    let mut members = machine();
    for (name, value) in [
        ("surprise", json!({"a": [1]})),
        ("client_id", json!("declared")),
        ("client_secret", json!("chosen")),
        ("access_token_lifetime", json!(2_000_000)),
        ("require_consent", json!(false)),
        ("audiences", json!(["https://api.example"])),
        ("owner", json!("file")),
        ("realm", json!("/closed")),
        ("client_name", Value::Null),
    ] {
        members[name] = value;
    }
    let record = register(&door, &members).await.expect(201).json();
    assert_ne!(record["client_id"], "declared");
    assert_ne!(record["client_secret"], "chosen");
    for name in [
        "surprise",
        "access_token_lifetime",
        "require_consent",
        "audiences",
        "owner",
        "realm",
        "client_name",
    ] {
        assert!(record.get(name).is_none(), "{name}");
    }
    let answer = token(&door, &record).await.expect(200).json();
    let left = answer["expires_in"].as_i64();
    assert!(matches!(left, Some(3599 | 3600)), "{left:?}");
}

#[tokio::test]
async fn a_registered_client_works_at_once_and_its_removal_ends_all() {
    let door = door().await;
    let record = register(&door, &machine()).await.expect(201).json();
    let answer = token(&door, &record).await.expect(200).json();
    let access = answer["access_token"].as_str().expect("a token");
    let info = format!("/oauth2/tokeninfo?access_token={access}");
    door.get("a.test", &info).await.expect(200);

    let gone = own(Method::DELETE, &record, None).await.expect(204);
    assert!(gone.body.is_empty());
    assert!(gone.header("cache-control").contains("no-store"));
    door.get("a.test", &info).await.expect(401);
    assert_error(token(&door, &record).await, 401, "invalid_client", "");
    for method in [Method::GET, Method::DELETE] {
        assert_error(own(method, &record, None).await, 401, "invalid_token", "");
    }
    let put = own(Method::PUT, &record, Some(&sent_back(&record))).await;
    assert_error(put, 401, "invalid_token", "");
}

/// The statuses of a token request by Basic and by form.
async fn both_ways(door: &Door, record: &Value) -> [u16; 2] {
    let text = |name: &str| record[name].as_str().expect(name);
    let form = [
        ("grant_type", "client_credentials"),
        ("scope", "read"),
        ("client_id", text("client_id")),
        ("client_secret", text("client_secret")),
    ];
    [
        token(door, record).await.status,
        door.token_request(&form).await.status,
    ]
}

#[tokio::test]
async fn who_names_no_authentication_may_use_either_way_with_a_secret() {
    let door = door().await;
    let record = register(&door, &machine()).await.expect(201).json();
    assert_eq!(record["token_endpoint_auth_method"], "client_secret_basic");
    assert_eq!(both_ways(&door, &record).await, [200, 200]);
    // What is told and sent back changes nothing.
    let same = sent_back(&record);
    own(Method::PUT, &record, Some(&same)).await.expect(200);
    assert_eq!(both_ways(&door, &record).await, [200, 200]);
    for (method, statuses) in [
        ("client_secret_basic", [200, 401]),
        ("client_secret_post", [401, 200]),
    ] {
        let mut members = machine();
        members["token_endpoint_auth_method"] = json!(method);
        let record = register(&door, &members).await.expect(201).json();
        assert_eq!(both_ways(&door, &record).await, statuses, "{method}");
    }
}

#[tokio::test]
async fn a_replacement_is_whole() {
    let door = door().await;
    let mut members = machine();
    members["client_name"] = json!("Before");
    let record = register(&door, &members).await.expect(201).json();
    let mut change = sent_back(&record);
    let members = change.as_object_mut().expect("an object");
    members.remove("client_name");
    members.insert("contacts".to_owned(), json!(["a@b.example"]));
    let changed = own(Method::PUT, &record, Some(&change)).await.expect(200);
    assert!(changed.header("cache-control").contains("no-store"));
    let changed = changed.json();
    assert!(changed.get("client_name").is_none());
    assert_eq!(changed["contacts"], json!(["a@b.example"]));
    for name in [
        "client_id",
        "client_secret",
        "client_id_issued_at",
        "registration_access_token",
        "registration_client_uri",
    ] {
        assert_eq!(changed[name], record[name], "{name}");
    }
    token(&door, &record).await.expect(200);
    let read = own(Method::GET, &record, None).await.expect(200).json();
    assert_eq!(read, changed);
}

#[tokio::test]
async fn a_client_can_give_up_its_secret_and_get_it_again() {
    let door = door().await;
    let mut members = web();
    members["token_endpoint_auth_method"] = json!("none");
    let record = register(&door, &members).await.expect(201).json();
    let mut change = sent_back(&record);
    change["token_endpoint_auth_method"] = json!("client_secret_post");
    let changed = own(Method::PUT, &record, Some(&change)).await.expect(200);
    let secret = changed.json()["client_secret"].clone();
    assert!(secret.is_string());
    // Also where the secret itself is needed from now on.
    change["id_token_signed_response_alg"] = json!("HS256");
    let changed = own(Method::PUT, &record, Some(&change)).await.expect(200);
    assert_eq!(changed.json()["client_secret"], secret);
    // A longer MAC needs a longer key, which stays when a short one would do.
    change["id_token_signed_response_alg"] = json!("HS512");
    let changed = own(Method::PUT, &record, Some(&change)).await.expect(200);
    let long = changed.json()["client_secret"].clone();
    assert!(long.as_str().expect("a secret").len() >= 64, "{long}");
    change["client_secret"] = long.clone();
    change["id_token_signed_response_alg"] = json!("RS256");
    let changed = own(Method::PUT, &record, Some(&change)).await.expect(200);
    assert_eq!(changed.json()["client_secret"], long);
    let read = own(Method::GET, &record, None).await.expect(200);
    assert_eq!(read.json()["client_secret"], long);
    change["token_endpoint_auth_method"] = json!("none");
    change["id_token_signed_response_alg"] = json!("RS256");
    let changed = own(Method::PUT, &record, Some(&change)).await.expect(200);
    assert!(changed.json().get("client_secret").is_none());
}

#[tokio::test]
async fn a_replacement_names_its_client_and_nothing_of_the_providers() {
    let door = door().await;
    let record = register(&door, &web()).await.expect(201).json();
    let base = sent_back(&record);
    for (name, value, text) in [
        (
            "client_id",
            json!("declared"),
            "client_id: must be that of the client",
        ),
        (
            "client_id",
            Value::Null,
            "client_id: must be that of the client",
        ),
        (
            "client_secret",
            json!("mine"),
            "client_secret: must be that of the client",
        ),
        (
            "registration_access_token",
            record["registration_access_token"].clone(),
            "registration_access_token: must not be sent",
        ),
        (
            "client_id_issued_at",
            json!(5),
            "client_id_issued_at: must not be sent",
        ),
    ] {
        let mut change = base.clone();
        change[name] = value;
        let answer = own(Method::PUT, &record, Some(&change)).await;
        assert_error(answer, 400, "invalid_client_metadata", text);
    }
    let mut change = base.clone();
    change["redirect_uris"] = json!(["https://app.example/cb#fragment"]);
    let answer = own(Method::PUT, &record, Some(&change)).await;
    assert_error(answer, 400, "invalid_redirect_uri", "");
}

#[tokio::test]
async fn the_token_of_one_client_opens_no_other_record() {
    let door = door().await;
    let one = register(&door, &web()).await.expect(201).json();
    let mut other = register(&door, &web()).await.expect(201).json();
    let refused = "The access token provided is expired, revoked, malformed, or invalid for other \
                   reasons.";
    other["registration_access_token"] = one["registration_access_token"].clone();
    let known = other["client_id"].as_str().expect("text").to_owned();
    for id in [known.as_str(), "declared", "nobody", ""] {
        let address = format!("{REGISTER}?client_id={id}");
        other["registration_client_uri"] = json!(door.proxy_url(&address));
        for method in [Method::GET, Method::DELETE] {
            let answer = own(method, &other, None).await;
            assert!(answer.header("www-authenticate").contains("invalid_token"));
            assert_error(answer, 401, "invalid_token", refused);
        }
    }
    let address = format!("{REGISTER}?client_id=declared");
    let bare = door.get("a.test", &address).await.expect(401);
    assert_eq!(bare.header("www-authenticate"), "Bearer realm=\"/\"");
    // Nor in another realm.
    let id = one["client_id"].as_str().expect("text");
    let address = format!("/oauth2/invited/connect/register?client_id={id}");
    let mut moved = one.clone();
    moved["registration_client_uri"] = json!(door.proxy_url(&address));
    own(Method::GET, &moved, None).await.expect(401);
    own(Method::GET, &one, None).await.expect(200);
}

#[tokio::test]
async fn an_initial_token_is_good_for_as_many_clients_as_it_says() {
    let door = door().await;
    let address = door.proxy_url("/oauth2/realms/root/realms/invited/connect/register");
    let post = |token: Option<String>| {
        let request = client().post(&address).json(&web());
        send(match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        })
    };
    let bare = post(None).await;
    assert_eq!(bare.header("www-authenticate"), "Bearer realm=\"/invited\"");
    assert_error(bare, 401, "invalid_token", "");
    assert_error(post(Some("x".repeat(43))).await, 401, "invalid_token", "");
    let make = |realm: &str, uses: Value| {
        let path = format!("/identity/initial-tokens?realm={realm}");
        let wish = json!({"uses": uses});
        let door = &door;
        async move {
            let made = door.admin_post(&path, &wish).await.expect(201).json();
            let text = made["initial_access_token"].as_str().expect("a token");
            text.to_owned()
        }
    };
    let elsewhere = make("/", json!(1)).await;
    assert_error(post(Some(elsewhere)).await, 401, "invalid_token", "");
    let twice = make("/invited", json!(2)).await;
    // What is refused for another reason spends nothing.
    let wrong = client().post(&address).json(&json!({})).bearer_auth(&twice);
    assert_error(send(wrong).await, 400, "invalid_redirect_uri", "");
    post(Some(twice.clone())).await.expect(201);
    post(Some(twice.clone())).await.expect(201);
    assert_error(post(Some(twice)).await, 401, "invalid_token", "");
    // The realm has room for three.
    let many = make("/invited", Value::Null).await;
    let last = post(Some(many.clone())).await.expect(201).json();
    let full = post(Some(many.clone())).await;
    assert_eq!(full.header("retry-after"), "3600");
    assert_error(full, 503, "temporarily_unavailable", "");
    own(Method::DELETE, &last, None).await.expect(204);
    post(Some(many)).await.expect(201);
}

#[tokio::test]
async fn strangers_register_only_so_fast() {
    let identity = IDENTITY.replace("mode: open,", "mode: open, rate_per_minute: 3,");
    let door = Setup::new().identity(&identity).start().await;
    let mut refused = None;
    // However long that takes, a minute ends at most once meanwhile.
    for _ in 0..8 {
        let answer = register(&door, &web()).await;
        if answer.status == 429 {
            refused = Some(answer);
            break;
        }
        answer.expect(201);
    }
    let refused = refused.expect("the fourth of a minute is refused");
    let wait: u32 = refused.header("retry-after").parse().expect("seconds");
    assert!((1..=60).contains(&wait));
    assert_error(refused, 429, "temporarily_unavailable", "");
}

#[tokio::test]
async fn emptying_the_cache_of_clients_by_changing_a_record_again_and_again() {
    let identity = IDENTITY.replace("mode: open,", "mode: open, rate_per_minute: 3,");
    let door = Setup::new().identity(&identity).start().await;
    let record = register(&door, &web()).await.expect(201).json();
    let body = sent_back(&record);
    let mut refused = None;
    // However long that takes, a minute ends at most once meanwhile.
    for _ in 0..8 {
        let answer = own(Method::PUT, &record, Some(&body)).await;
        if answer.status == 429 {
            refused = Some(answer);
            break;
        }
        answer.expect(200);
    }
    let refused = refused.expect("the fourth of a minute is refused");
    assert_error(refused, 429, "temporarily_unavailable", "");
    own(Method::GET, &record, None).await.expect(200);
}

#[tokio::test]
async fn joining_a_foreign_sector_without_redirect_uris() {
    let door = door().await;
    let mut members = machine();
    members["subject_type"] = json!("pairwise");
    members["sector_identifier_uri"] = json!("https://victim.example/any-list.json");
    let text = "sector_identifier_uri: needs redirect_uris, to be held against its list";
    let answer = register(&door, &members).await;
    assert_error(answer, 400, "invalid_client_metadata", text);
}

#[tokio::test]
async fn a_record_survives_a_restart_and_is_shown_to_operators() {
    let mut door = door().await;
    let record = register(&door, &machine()).await.expect(201).json();
    let id = record["client_id"].as_str().expect("text");
    let shown = door.admin_get(&format!("/identity/clients/{id}")).await;
    let shown = shown.expect(200);
    assert_eq!(shown.json()["owner"], "client");
    for secret in ["client_secret", "registration_access_token"] {
        let text = record[secret].as_str().expect("text");
        assert!(!shown.body.contains(text), "{secret}");
    }
    door.kill();
    door.start().await;
    let read = own(Method::GET, &record, None).await.expect(200).json();
    assert_eq!(read, record);
    token(&door, &record).await.expect(200);
    // A secret that the operator gave is not the client's to read.
    let path = format!("/identity/clients/{id}/secret");
    door.admin_post(&path, &json!({})).await.expect(200);
    let read = own(Method::GET, &record, None).await.expect(200).json();
    assert!(read.get("client_secret").is_none());
    assert_error(token(&door, &record).await, 401, "invalid_client", "");
    let secret = door.log_text();
    for name in ["client_secret", "registration_access_token"] {
        assert!(
            !secret.contains(record[name].as_str().expect("text")),
            "{name}"
        );
    }
}
