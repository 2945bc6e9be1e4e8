//! Clients and realms are changed in the console.

use reqwest::Method;
use serde_json::{Value, json};

use crate::console::{Browser, attribute};
use crate::console_sign_in::{Office, TOKEN};
use crate::console_users::newest;
use crate::support::http::{client, send};

const LIST: &str = "/console/identity/clients";
const SETTINGS: &str = "/console/identity/settings";

pub(crate) async fn rest(
    office: &Office,
    method: Method,
    path: &str,
    body: &Value,
) -> crate::support::Answer {
    let request = client().request(method, office.door.admin_url(path));
    send(request.header("kong-admin-token", TOKEN).json(body)).await
}

/// A client that keeps a secret.
async fn shop(office: &Office) {
    let shop = json!({"client_id": "shop", "client_secret": "old-secret",
        "grant_types": ["client_credentials"], "scope": "orders:read"});
    let made = rest(office, Method::POST, "/identity/clients", &shop).await;
    made.expect(201);
}

async fn record(office: &Office, path: &str) -> Value {
    let answer = rest(office, Method::GET, path, &Value::Null).await;
    answer.expect(200).json()
}

/// The version that the form of a page carries.
async fn version(browser: &mut Browser<'_>, page: &str) -> String {
    let page = browser.get(page).await.expect(200).body;
    attribute(&page, "name=\"version\"", "value").to_owned()
}

async fn token(office: &Office, secret: &str) -> u16 {
    let request = client().post(office.door.proxy_url("/oauth2/access_token"));
    let form = [
        ("grant_type", "client_credentials"),
        ("scope", "orders:read"),
    ];
    send(request.basic_auth("shop", Some(secret)).form(&form))
        .await
        .status
}

/// The address that undoes the newest change of this kind.
async fn undo(browser: &mut Browser<'_>, kind: &str) -> String {
    let page = browser.get(&format!("/console/audit?kind={kind}")).await;
    let page = page.expect(200).body;
    let at = page.find("action=\"/console/undo/").expect("a way back");
    attribute(&page[at..], "", "action").to_owned()
}

#[tokio::test]
async fn a_client_is_changed_after_its_difference_and_back_again() {
    let office = Office::open().await;
    shop(&office).await;
    let mut owner = office.signed_in("alice").await;
    let edit = format!("{LIST}/shop/edit");
    let form = owner.get(&edit).await.expect(200).body;
    assert!(form.contains("value=\"orders:read\""), "{form}");
    let seen = attribute(&form, "name=\"version\"", "value").to_owned();
    let fields = [
        ("version", seen.as_str()),
        ("view", "form"),
        ("f.client_name", "The <shop>"),
        ("f.scope", "orders:read orders:write"),
        ("f.grant_types", "client_credentials"),
    ];
    let shown = owner.post(&edit, &fields).await.expect(200).body;
    for text in ["The &#60;shop&#62;", "orders:read orders:write", "scope"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    assert!(!shown.contains("grant_types"), "nothing but what differs");
    let before = record(&office, "/identity/clients/shop").await;
    assert_eq!(before["scope"], "orders:read", "nothing is changed yet");
    owner.confirm(&shown).await.expect(303);
    let after = record(&office, "/identity/clients/shop").await;
    assert_eq!(after["client_name"], "The <shop>");
    assert_eq!(token(&office, "old-secret").await, 200, "the secret stays");
    let told = newest(&office, "client.update").await;
    assert_eq!(told["actor"]["name"], "alice", "{told}");
    // The old form is stale, and says who was there in between.
    let page = owner.post(&edit, &fields).await.expect(409).body;
    assert!(page.contains("user alice / console"), "{page}");
    assert!(
        page.contains("client.update (client_name, scope)"),
        "{page}"
    );
    let back = undo(&mut owner, "client.update").await;
    owner.agree(&back, &[]).await;
    let after = record(&office, "/identity/clients/shop").await;
    assert_eq!(after["scope"], "orders:read");
    assert_eq!(after.get("client_name"), None, "{after}");
    owner.post(&back, &[]).await.expect(409);
}

#[tokio::test]
async fn the_form_of_a_client_refuses_what_would_be_no_safe_client() {
    let office = Office::open().await;
    let web = json!({"client_id": "web", "token_endpoint_auth_method": "none",
        "redirect_uris": ["https://a.example/cb"], "response_types": ["code"]});
    rest(&office, Method::POST, "/identity/clients", &web)
        .await
        .expect(201);
    let mut owner = office.signed_in("alice").await;
    let edit = format!("{LIST}/web/edit");
    let seen = version(&mut owner, &edit).await;
    for (name, value) in [
        ("f.redirect_uris", "http://a.example/cb"),
        ("f.redirect_uris", "JavaScript:alert(1)"),
        (
            "f.redirect_uris",
            "https://a.example/cb\nhttps://*.evil.example/",
        ),
        ("f.require_pkce", "false"),
        ("f.grant_types", "<script>alert(1)</script>"),
        ("f.jwks", "{"),
        ("f.default_max_age", "soon"),
    ] {
        let fields = [("version", seen.as_str()), ("view", "form"), (name, value)];
        let page = owner.post(&edit, &fields).await;
        assert_eq!(page.status, 400, "{name} {value}: {}", page.body);
        let told = page.body.contains(&format!("href=\"#{name}\""));
        assert!(
            told && !page.body.contains("<script>alert"),
            "{}",
            page.body
        );
    }
    let form = owner.get(&edit).await.expect(200).body;
    let text = form.split("class=\"code\" rows=\"20\" spellcheck=\"false\">\n");
    let text = text.last().unwrap_or_default();
    let text = text.split("</textarea>").next().unwrap_or_default();
    let text = text.replace("&#34;", "\"").replace("\"web\"", "\"other\"");
    let fields = [
        ("version", seen.as_str()),
        ("view", "json"),
        ("record", text.as_str()),
    ];
    let page = owner.post(&edit, &fields).await.expect(400).body;
    assert!(
        page.contains("The identifier can&#39;t be changed"),
        "{page}"
    );
    let kept = record(&office, "/identity/clients/web").await;
    assert_eq!(kept["redirect_uris"], json!(["https://a.example/cb"]));
}

#[tokio::test]
async fn a_new_secret_is_shown_once_and_the_old_one_is_refused() {
    let office = Office::open().await;
    shop(&office).await;
    let mut owner = office.signed_in("alice").await;
    let page = format!("{LIST}/shop");
    let seen = version(&mut owner, &page).await;
    let fields = [("realm", "/"), ("version", seen.as_str())];
    let shown = owner.post(&format!("{page}/secret"), &fields).await;
    let shown = shown.expect(200).body;
    assert!(shown.contains("refused at once"), "{shown}");
    assert_eq!(
        token(&office, "old-secret").await,
        200,
        "nothing is changed yet"
    );
    let once = owner.confirm(&shown).await.expect(200).body;
    let secret = once.split("client_secret</td>").nth(1).expect("a secret");
    let secret = secret.split("class=\"code\">").nth(1).expect("a secret");
    let secret = secret.split('<').next().expect("a secret").to_owned();
    assert_eq!(token(&office, "old-secret").await, 401);
    assert_eq!(token(&office, &secret).await, 200);
    let again = owner.get(&page).await.expect(200).body;
    assert!(!again.contains(&secret), "{again}");
    // It is in no record of the audit log, and no difference.
    let log = owner.get("/console/audit").await.expect(200).body;
    assert!(!log.contains(&secret), "{log}");
}

#[tokio::test]
async fn a_deleted_client_comes_back_with_another_secret() {
    let office = Office::open().await;
    shop(&office).await;
    let mut owner = office.signed_in("alice").await;
    let page = format!("{LIST}/shop");
    let seen = version(&mut owner, &page).await;
    let fields = [("realm", "/"), ("version", seen.as_str())];
    let shown = owner.post(&format!("{page}/delete"), &fields).await;
    let shown = shown.expect(200).body;
    assert!(shown.contains("gone for good"), "{shown}");
    owner.confirm(&shown).await.expect(303);
    owner.get(&page).await.expect(404);
    assert_eq!(token(&office, "old-secret").await, 401);
    let back = undo(&mut owner, "client.delete").await;
    let shown = owner.post(&back, &[]).await.expect(200).body;
    assert!(!shown.contains("old-secret"), "{shown}");
    let once = owner.confirm(&shown).await.expect(200).body;
    assert!(once.contains("Keep this secret"), "{once}");
    assert_eq!(token(&office, "old-secret").await, 401, "that one is gone");
    let after = record(&office, "/identity/clients/shop").await;
    assert_eq!(after["scope"], "orders:read");
}

#[tokio::test]
async fn clients_and_realms_of_the_file_name_it_and_are_not_changed() {
    let office = Office::open().await;
    let file = office.door.path("doorward.yaml");
    let file = std::fs::read_to_string(file).expect("the file");
    let lines: Vec<_> = file.lines().collect();
    let mut owner = office.signed_in("alice").await;
    for page in [&format!("{LIST}/hr"), "/console/identity/realms/other"] {
        let body = owner.get(page).await.expect(200).body;
        assert!(body.contains("declared in a file"), "{body}");
        let line = if page.ends_with("hr") {
            "- client_id: hr"
        } else {
            "/other:"
        };
        let line = lines.iter().position(|one| one.trim() == line);
        let place = format!("doorward.yaml:{}", line.expect("a line") + 1);
        assert!(body.contains(&place), "{place}: {body}");
        let list = if page.ends_with("hr") {
            LIST
        } else {
            "/console/identity/realms"
        };
        let listed = owner.get(list).await.expect(200).body;
        assert!(listed.contains(&format!("{place}</")), "{place}: {listed}");
        assert!(
            !body.contains("name=\"version\""),
            "nothing to press: {body}"
        );
    }
    owner.get(&format!("{LIST}/hr/edit")).await.expect(409);
    let settings = format!("{SETTINGS}?realm=%2Fother");
    owner.get(&settings).await.expect(409);
    let fields = [("realm", "/"), ("version", "x")];
    for action in ["edit", "delete", "secret"] {
        let answer = owner.post(&format!("{LIST}/hr/{action}"), &fields).await;
        assert_eq!(answer.status, 409, "{action}: {}", answer.body);
    }
    let fields = [("realm", "/other"), ("version", "x")];
    for page in [SETTINGS, &format!("{SETTINGS}/delete")] {
        owner.post(page, &fields).await.expect(409);
    }
}

#[tokio::test]
async fn a_client_of_another_realm_is_not_reached_by_its_identifier() {
    let office = Office::open().await;
    let other = json!({"client_id": "far", "grant_types": ["client_credentials"], "scope": "a"});
    let path = "/identity/clients?realm=/other";
    rest(&office, Method::POST, path, &other).await.expect(201);
    let mut owner = office.signed_in("alice").await;
    owner.get(&format!("{LIST}/far")).await.expect(404);
    owner.get(&format!("{LIST}/far/edit")).await.expect(404);
    let fields = [("realm", "/"), ("version", "x")];
    for action in ["edit", "delete", "secret"] {
        let answer = owner.post(&format!("{LIST}/far/{action}"), &fields).await;
        assert_eq!(answer.status, 404, "{action}: {}", answer.body);
    }
    let page = format!("{LIST}/far?realm=%2Fother");
    owner.get(&page).await.expect(200);
}

#[tokio::test]
async fn a_realm_is_made_set_and_deleted_after_its_difference() {
    let office = Office::open().await;
    let mut owner = office.signed_in("alice").await;
    let new = "/console/identity/new-realm";
    owner.get(new).await.expect(200);
    owner.post(new, &[("f.path", "staff")]).await.expect(400);
    owner.agree(new, &[("f.path", "/staff")]).await;
    let page = "/console/identity/realms/staff";
    let body = owner.get(page).await.expect(200).body;
    assert!(body.contains("access_token_lifetime"), "{body}");
    let form = format!("{SETTINGS}?realm=%2Fstaff");
    let seen = version(&mut owner, &form).await;
    let fields = [
        ("realm", "/staff"),
        ("version", seen.as_str()),
        ("view", "form"),
        ("f.access_token_lifetime", "120"),
        ("f.second_factor", "required"),
        ("f.registration.max_clients", "7"),
        ("f.cors_origins", "https://a.example\nhttps://b.example"),
        ("f.users_scope", ""),
    ];
    let wrong = [&fields[..3], &[("f.access_token_lifetime", "0")]].concat();
    let refused = owner.post(SETTINGS, &wrong).await.expect(400).body;
    assert!(
        refused.contains("href=\"#f.access_token_lifetime\""),
        "{refused}"
    );
    owner.agree(SETTINGS, &fields).await;
    let realm = record(&office, "/identity/realms/staff").await;
    let set = &realm["settings"];
    assert_eq!(set["access_token_lifetime"], 120);
    assert_eq!(
        set["cors_origins"],
        json!(["https://a.example", "https://b.example"])
    );
    assert_eq!(set["registration"]["max_clients"], 7, "{set}");
    assert_eq!(
        set["registration"]["mode"], "disabled",
        "as it was in force"
    );
    assert_eq!(set.get("users_scope"), None, "{set}");
    // A change of the realm above shows where it comes from.
    let body = owner.get(page).await.expect(200).body;
    assert!(body.contains(">120<"), "{body}");
    assert!(
        body.contains("href=\"/console/identity/realms/root\""),
        "{body}"
    );
    // The form that was open before is stale.
    let stale = owner.post(SETTINGS, &fields).await.expect(409).body;
    assert!(stale.contains("realm.update"), "{stale}");
    // An empty field asks for the realm above again.
    let seen = version(&mut owner, &form).await;
    let fields = [
        ("realm", "/staff"),
        ("version", seen.as_str()),
        ("view", "form"),
        ("f.access_token_lifetime", ""),
    ];
    owner.agree(SETTINGS, &fields).await;
    let realm = record(&office, "/identity/realms/staff").await;
    assert_eq!(realm["settings"].get("access_token_lifetime"), None);
    let back = undo(&mut owner, "realm.update").await;
    owner.agree(&back, &[]).await;
    let realm = record(&office, "/identity/realms/staff").await;
    assert_eq!(realm["settings"]["access_token_lifetime"], 120);
    let seen = version(&mut owner, page).await;
    let fields = [("realm", "/staff"), ("version", seen.as_str())];
    owner.agree(&format!("{SETTINGS}/delete"), &fields).await;
    owner.get(page).await.expect(404);
    let back = undo(&mut owner, "realm.delete").await;
    owner.agree(&back, &[]).await;
    let realm = record(&office, "/identity/realms/staff").await;
    assert_eq!(realm["settings"]["second_factor"], "required");
}

#[tokio::test]
async fn secrets_of_a_realm_are_neither_shown_nor_lost() {
    let office = Office::open().await;
    let provider = json!({"name": "corp", "issuer": "https://idp.example",
        "client_id": "door", "client_secret": "a-hidden-secret"});
    let realm = json!({"path": "/staff", "settings": {"federation": [provider]}});
    rest(&office, Method::POST, "/identity/realms", &realm)
        .await
        .expect(201);
    let mut owner = office.signed_in("alice").await;
    let form = format!("{SETTINGS}?realm=%2Fstaff");
    let body = owner.get(&form).await.expect(200).body;
    assert!(!body.contains("a-hidden-secret"), "{body}");
    assert!(body.contains("A secret is set"), "{body}");
    let seen = attribute(&body, "name=\"version\"", "value").to_owned();
    let with = |fields: &[(&'static str, &'static str)]| -> Vec<(&str, &str)> {
        let first = [
            ("realm", "/staff"),
            ("version", seen.as_str()),
            ("view", "form"),
        ];
        first.into_iter().chain(fields.iter().copied()).collect()
    };
    // What stays empty stays; the other provider of the JSON is masked in the page.
    let fields = with(&[("f.federation", ""), ("f.code_lifetime", "30")]);
    let shown = owner.post(SETTINGS, &fields).await.expect(200).body;
    assert!(!shown.contains("federation"), "{shown}");
    let other = r#"[{"name": "b", "issuer": "https://b.example", "client_id": "door", "client_secret": "another-secret"}]"#;
    let fields = with(&[("f.federation", other)]);
    let shown = owner.post(SETTINGS, &fields).await.expect(200).body;
    assert!(!shown.contains("another-secret"), "{shown}");
    assert!(shown.contains("b.example"), "{shown}");
    assert!(shown.contains("be brought back"), "{shown}");
    owner.confirm(&shown).await.expect(303);
    let page = owner.get("/console/audit?kind=realm.update").await;
    let page = page.expect(200).body;
    assert!(
        !page.contains("/console/undo/"),
        "nobody knows the old one: {page}"
    );
}

#[tokio::test]
async fn a_viewer_who_writes_changes_no_client_and_no_realm() {
    let office = Office::open().await;
    shop(&office).await;
    let mut owner = office.signed_in("alice").await;
    let seen = version(&mut owner, &format!("{LIST}/shop")).await;
    let fields = [("realm", "/"), ("version", seen.as_str())];
    let shown = owner.post(&format!("{LIST}/shop/delete"), &fields).await;
    let shown = shown.expect(200).body;
    for name in ["vera", "olga"] {
        let mut other = office.signed_in(name).await;
        let page = other.get(&format!("{LIST}/shop")).await.expect(200).body;
        assert!(!page.contains("name=\"version\""), "{page}");
        other.get(&format!("{LIST}/shop/edit")).await.expect(403);
        other
            .get(&format!("{SETTINGS}?realm=%2F"))
            .await
            .expect(403);
        other.get("/console/identity/new-realm").await.expect(403);
        for path in [
            &format!("{LIST}/shop/edit"),
            &format!("{LIST}/shop/delete"),
            &format!("{LIST}/shop/secret"),
            SETTINGS,
            &format!("{SETTINGS}/delete"),
            "/console/identity/new-realm",
        ] {
            other.post(path, &fields).await.expect(403);
        }
        other.confirm(&shown).await.expect(403);
    }
    // Neither does a form without its token, nor one of another site.
    owner
        .submit(&format!("{LIST}/shop/delete"), &fields)
        .await
        .expect(403);
    record(&office, "/identity/clients/shop").await;
}
