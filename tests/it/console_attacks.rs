//! What other sites, other realms and hostile names try at the console.

use reqwest::Method;
use serde_json::{Value, json};

use crate::console::guarded;
use crate::console_registry::rest;
use crate::console_sign_in::Office;
use crate::support::http::send;
use crate::support::raw::Connection;

/// What a page of the console would do with markup that it took for its own.
const EVIL: &str = "<img src=x onerror=alert(1)>";

/// Every path that a form is posted to, with a record that there is.
const FORMS: [&str; 22] = [
    "preview/services/web",
    "apply/services/web",
    "preview/services",
    "throttling/x/reset",
    "broker/applications/x/revoke",
    "broker-form/products",
    "broker-form/products/weather",
    "broker-delete/products/weather",
    "broker-secret/applications/x",
    "broker-apply",
    "identity/users/new",
    "identity/groups/new",
    "identity/apply",
    "identity/keys/rotate",
    "identity/keys/apply",
    "identity/probes",
    "identity/clients/new",
    "identity/clients/apply",
    "identity/settings",
    "identity/new-realm",
    "identity/change",
    "undo/x",
];

#[tokio::test]
async fn csrf_by_a_form_of_another_site_reaches_no_page() {
    let office = Office::open().await;
    let mut owner = office.signed_in("alice").await;
    let token = owner.form_token().await;
    for path in FORMS {
        let path = format!("/console/{path}");
        for (name, value) in [
            ("origin", "https://evil.example"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            let request = owner.request(Method::POST, &path).header(name, value);
            let answer = send(request.form(&[("form_token", &token)])).await;
            assert_eq!(answer.status, 403, "{path}: {name}: {value}");
        }
        // A page of this origin that does not know the token gets no further either.
        for token in ["", "x", &token[..token.len() - 1]] {
            let answer = owner.submit(&path, &[("form_token", token)]).await;
            assert_eq!(answer.status, 403, "{path}: {token}");
        }
    }
    // A link changes nothing: no such path has another method that does.
    for path in FORMS {
        let answer = owner.get(&format!("/console/{path}")).await;
        assert!(matches!(answer.status, 200 | 404 | 405 | 409), "{path}");
    }
}

#[tokio::test]
async fn clickjacking_finds_no_page_that_stands_in_a_frame() {
    let office = Office::open().await;
    let mut owner = office.signed_in("alice").await;
    for path in [
        "",
        "/gateway/services",
        "/new/services",
        "/identity/users",
        "/identity/keys",
        "/broker-form/products",
        "/audit",
        "/nowhere",
    ] {
        let answer = owner.get(&format!("/console{path}")).await;
        let policy = answer.header("content-security-policy");
        assert!(policy.contains("frame-ancestors 'none'"), "{path}");
        assert!(policy.contains("default-src 'none'"), "{path}");
        assert!(!policy.contains("unsafe"), "{path}");
        assert_eq!(answer.header("x-frame-options"), "DENY", "{path}");
    }
}

/// Makes one of everything whose name a page shows, and gives the pages.
async fn names(office: &Office) -> Vec<String> {
    let tags = json!([EVIL]);
    let mut pages = Vec::new();
    for (list, body, key) in [
        (
            "/services",
            json!({"name": "web", "host": "a.example", "tags": tags}),
            "name",
        ),
        (
            "/routes",
            json!({"name": "shop", "paths": ["/<b>x"], "service": {"name": "web"}, "tags": tags}),
            "name",
        ),
        (
            "/plugins",
            json!({"name": "key-auth", "instance_name": "keys", "tags": tags, "service": {"name": "web"},
                "config": {"key_names": ["x-key"], "realm": EVIL}}),
            "id",
        ),
        (
            "/consumers",
            json!({"username": EVIL, "custom_id": format!("2{EVIL}")}),
            "id",
        ),
        ("/upstreams", json!({"name": "pool", "tags": tags}), "id"),
    ] {
        let made = rest(office, Method::POST, list, &body).await;
        let made = made.expect(201).json();
        let key = made[key].as_str().expect("a key");
        pages.push(format!("/gateway{list}"));
        pages.push(format!("/gateway{list}/{key}"));
        pages.push(format!("/edit{list}/{key}"));
    }
    for (list, body, key) in [
        (
            "/identity/clients",
            json!({"client_id": format!("c{EVIL}"), "client_name": EVIL, "scope": "a",
                "grant_types": ["client_credentials"]}),
            "client_id",
        ),
        (
            "/identity/users",
            json!({"userName": EVIL, "displayName": EVIL, "title": EVIL}),
            "id",
        ),
        ("/identity/groups", json!({"displayName": EVIL}), "id"),
        (
            "/broker/products",
            json!({"name": format!("p{EVIL}"), "display_name": EVIL, "description": EVIL,
                "attributes": {EVIL: EVIL}}),
            "name",
        ),
        (
            "/broker/developers",
            json!({"email": "dev@example.com", "first_name": EVIL, "last_name": EVIL}),
            "email",
        ),
        (
            "/broker/applications",
            json!({"name": EVIL, "developer": "dev@example.com", "callback_url": "javascript:x"}),
            "id",
        ),
    ] {
        let made = rest(office, Method::POST, list, &body).await;
        let made = made.expect(201).json();
        let key = made[key].as_str().expect("a key");
        let key: String = url::form_urlencoded::byte_serialize(key.as_bytes()).collect();
        let key = key.replace('+', "%20");
        pages.push(list.to_owned());
        pages.push(format!("{list}/{key}"));
        match list.strip_prefix("/broker/") {
            Some(kind) => pages.push(format!("/broker-form/{kind}/{key}")),
            None => pages.push(format!("{list}/{key}/edit")),
        }
    }
    pages
}

#[tokio::test]
async fn xss_by_every_displayed_name_stays_text() {
    let office = Office::open().await;
    let mut pages = names(&office).await;
    pages.extend(
        [
            "",
            "/refusals?code=%3Cimg%20src%3Dx%3E",
            "/audit?user=%3Cimg%20src%3Dx%3E",
            "/audit",
            "/identity/sessions?user=%3Cimg%20src%3Dx%3E",
            "/identity/users?q=%3Cimg%20src%3Dx%3E",
            "/gateway/services?q=%3Cimg%20src%3Dx%3E",
            "/identity/clients?q=%3Cimg%20src%3Dx%3E",
            "/nowhere/%3Cimg%20src%3Dx%3E",
        ]
        .map(str::to_owned),
    );
    let mut owner = office.signed_in("alice").await;
    for page in pages {
        let answer = owner.get(&format!("/console{page}")).await;
        assert!(
            matches!(answer.status, 200 | 404),
            "{page}: {}",
            answer.body
        );
        let body = answer.body;
        for markup in ["<img", "<b>x", "href=\"javascript:", "alert(1)\""] {
            assert!(!body.contains(markup), "{page}: {markup}: {body}");
        }
    }
    // What was asked to be explained is shown as text as well.
    let asked = [
        ("method", "GET"),
        ("url", "http://web.example/<img src=x>"),
        ("headers", "x-a: <img src=x>"),
    ];
    let answer = owner.post("/console/explain", &asked).await.body;
    assert!(!answer.contains("<img"), "{answer}");
}

#[tokio::test]
async fn another_realms_owner_is_none_here() {
    let office = Office::open().await;
    // The realm /other has an alice, too, and a group of the owners' name.
    let group = json!({"displayName": "Admins"});
    let made = rest(
        &office,
        Method::POST,
        "/identity/groups?realm=/other",
        &group,
    )
    .await;
    let group = made.expect(201).json();
    let group = group["id"].as_str().expect("an id");
    let users = rest(
        &office,
        Method::GET,
        "/identity/users?realm=/other",
        &Value::Null,
    )
    .await;
    let users = users.expect(200).json();
    let user = users["data"][0]["id"].as_str().expect("an id").to_owned();
    let member = format!("/identity/groups/{group}/members/{user}?realm=/other");
    let joined = rest(&office, Method::PUT, &member, &Value::Null).await;
    assert!(joined.status < 300, "{}", joined.body);
    let (mut browser, address) = office.departed("/console").await;
    let elsewhere = address.replace("/oauth2/", "/oauth2/realms/root/realms/other/");
    let shown = browser.get(&elsewhere).await;
    assert_ne!(shown.status, 303, "no code for the console: {}", shown.body);
    browser.get("/console").await.expect(303);
}

#[tokio::test]
async fn a_console_on_a_host_of_the_proxy_lets_nobody_reach_the_admin_api() {
    let services = "- name: console\n  url: http://@ADMIN@\n  routes:\n  \
                    - {name: console, hosts: [admin.example], paths: [/console], \
                    strip_path: false, preserve_host: true}\n";
    let admin = r#"{listen: "@ADMIN@", hosts: [admin.example]}"#;
    let door = crate::support::Setup::new()
        .admin(admin)
        .services(services)
        .start()
        .await;
    let get = |path: &str| {
        let request = crate::support::http::client().get(door.proxy_url(path));
        crate::support::http::send(request.header("host", "admin.example"))
    };
    let page = get("/console").await.expect(200).body;
    assert!(page.contains("<h1"), "{page}");
    for path in [
        "/services",
        "/status",
        "/console/../services",
        "/console/%2e%2e/services",
    ] {
        let answer = get(path).await;
        assert!(
            [400, 404].contains(&answer.status),
            "{path}: {}",
            answer.status
        );
    }
}

#[tokio::test]
async fn a_stranger_has_one_connection_for_all_that_a_sign_in_needs() {
    let door = guarded().await;
    let authority = door.admin();
    let mut connection = Connection::open(&authority).await;
    for path in [
        "/console",
        "/console/sign-in",
        "/services",
        "/console/sign-in",
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        connection.send(request.as_bytes()).await;
        let answer = connection.response().await;
        assert_ne!(answer.header("connection"), Some("close"), "{path}");
    }
    // A body of a stranger is not read, so nothing can follow it.
    let head = format!("POST /services HTTP/1.1\r\nHost: {authority}\r\nContent-Length: 9\r\n\r\n");
    connection.send(head.as_bytes()).await;
    let answer = connection.response().await;
    assert_eq!(
        (answer.status, answer.header("connection")),
        (401, Some("close"))
    );
}
