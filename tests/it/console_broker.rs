//! The token broker and the export of the audit log in the console.

use reqwest::Method;
use serde_json::{Value, json};

use crate::console::{Browser, attribute};
use crate::console_registry::rest;
use crate::console_sign_in::Office;
use crate::console_users::newest;
use crate::support::Setup;

const LIST: &str = "/console/broker/applications";

#[tokio::test]
async fn records_of_the_token_broker_are_shown_and_tokens_revoked() {
    let office = Office::open().await;
    let evil = "<script>alert(1)</script>";
    for (list, body) in [
        ("products", json!({"name": "weather", "display_name": evil})),
        (
            "developers",
            json!({"email": "dev@example.com", "first_name": evil, "last_name": "D"}),
        ),
        (
            "applications",
            json!({"name": "app", "developer": "dev@example.com", "products": ["weather"],
                "consumer_secret": "a-hidden-secret"}),
        ),
    ] {
        let made = rest(&office, Method::POST, &format!("/broker/{list}"), &body).await;
        made.expect(201);
    }
    let mut viewer = office.signed_in("vera").await;
    for page in ["products", "products/weather", "developers", "applications"] {
        let body = viewer.get(&format!("/console/broker/{page}")).await;
        let body = body.expect(200).body;
        assert!(!body.contains("<script>alert"), "{page}: {body}");
    }
    viewer.get("/console/broker/nothing").await.expect(404);
    let list = rest(&office, Method::GET, "/broker/applications", &Value::Null).await;
    let list = list.expect(200).json();
    let id = list["data"][0]["id"].as_str().expect("an id").to_owned();
    let page = format!("{LIST}/{id}");
    let body = viewer.get(&page).await.expect(200).body;
    assert!(body.contains("weather"), "{body}");
    assert!(!body.contains("a-hidden-secret"), "{body}");
    assert!(!body.contains("/revoke\""), "nothing to press: {body}");
    let revoke = format!("{page}/revoke");
    viewer.post(&revoke, &[]).await.expect(403);
    let mut operator = office.signed_in("olga").await;
    operator.submit(&revoke, &[]).await.expect(403);
    let answer = operator.post(&revoke, &[]).await.expect(303);
    let body = operator.get(answer.header("location")).await.expect(200);
    assert!(body.body.contains("This is done"), "{}", body.body);
    let told = newest(&office, "token.revoke").await;
    assert_eq!(told["actor"]["name"], "olga", "{told}");
}

#[tokio::test]
async fn the_audit_log_is_exported_as_it_is_narrowed_down() {
    let office = Office::open().await;
    let mut viewer = office.signed_in("vera").await;
    let page = viewer.get("/console/audit?kind=group.create").await;
    let page = page.expect(200).body;
    let way = "href=\"/console/audit/export?kind=group.create\"";
    assert!(page.contains(way), "{page}");
    let answer = viewer.get("/console/audit/export?kind=group.create").await;
    let answer = answer.expect(200);
    assert!(
        answer
            .header("content-disposition")
            .starts_with("attachment")
    );
    let lines: Vec<Value> = answer
        .body
        .lines()
        .map(|line| serde_json::from_str(line).expect("a record"))
        .collect();
    assert_eq!(lines.len(), 3, "{}", answer.body);
    assert!(lines.iter().all(|one| one["event"] == "group.create"));
    let wrong = viewer.get("/console/audit/export?kind=no.such").await;
    wrong.expect(400);
    let mut stranger = crate::console::Browser::new(&office.door);
    stranger.get("/console/audit/export").await.expect(303);
}

/// The address that undoes the newest change of this kind.
async fn way_back(owner: &mut Browser<'_>, kind: &str) -> String {
    let page = owner.get(&format!("/console/audit?kind={kind}")).await;
    let page = page.expect(200).body;
    let at = page.find("action=\"/console/undo/").expect("a way back");
    attribute(&page[at..], "", "action").to_owned()
}

async fn record(office: &Office, path: &str) -> Value {
    let answer = rest(office, Method::GET, path, &Value::Null).await;
    answer.expect(200).json()
}

#[tokio::test]
async fn a_product_is_made_changed_and_deleted_after_its_difference_and_undone() {
    let office = Office::open().await;
    let mut owner = office.signed_in("alice").await;
    let new = "/console/broker-form/products";
    let refused = owner.post(new, &[("view", "form"), ("f.name", "")]).await;
    assert!(refused.expect(400).body.contains("f.name"));
    let wrong = [("view", "form"), ("f.name", "weather"), ("f.scopes", "a b")];
    let asked = owner.post(new, &wrong).await.expect(200).body;
    let form = owner.confirm(&asked).await.expect(400).body;
    assert!(form.contains("one scope"), "{form}");
    assert!(form.contains("value=\"weather\""), "as typed: {form}");
    let fields = [
        ("view", "form"),
        ("f.name", "weather"),
        ("f.scopes", "READ\nWRITE"),
        ("f.quota", "100"),
    ];
    let page = owner.agree(new, &fields).await;
    assert_eq!(page, "/console/broker/products/weather?done=change");
    let made = record(&office, "/broker/products/weather").await;
    assert_eq!(made["scopes"], json!(["READ", "WRITE"]));
    assert_eq!(
        (&made["quota"], &made["quota_interval"]),
        (&json!(100), &json!(1))
    );
    let edit = format!("{new}/weather");
    let form = owner.get(&edit).await.expect(200).body;
    let version = attribute(&form, "name=\"version\"", "value").to_owned();
    let fields = [
        ("view", "form"),
        ("version", &version),
        ("f.name", "weather"),
        ("f.scopes", "READ"),
        ("f.quota", ""),
    ];
    owner.agree(&edit, &fields).await;
    let made = record(&office, "/broker/products/weather").await;
    assert_eq!(
        (&made["scopes"], &made["quota"]),
        (&json!(["READ"]), &Value::Null)
    );
    // The form of before is stale, and says who was there in between.
    let stale = owner.post(&edit, &fields).await.expect(409).body;
    assert!(
        stale.contains("alice") && stale.contains("entity.update"),
        "{stale}"
    );
    let back = way_back(&mut owner, "entity.update").await;
    owner.agree(&back, &[]).await;
    let made = record(&office, "/broker/products/weather").await;
    assert_eq!(
        (&made["scopes"], &made["quota"]),
        (&json!(["READ", "WRITE"]), &json!(100))
    );
    let shown = owner.get("/console/broker/products/weather").await;
    let version = attribute(&shown.expect(200).body, "name=\"version\"", "value").to_owned();
    let delete = "/console/broker-delete/products/weather";
    owner.agree(delete, &[("version", &version)]).await;
    let gone = rest(
        &office,
        Method::GET,
        "/broker/products/weather",
        &Value::Null,
    )
    .await;
    gone.expect(404);
    let back = way_back(&mut owner, "entity.delete").await;
    owner.agree(&back, &[]).await;
    assert_eq!(
        record(&office, "/broker/products/weather").await["quota"],
        100
    );
}

#[tokio::test]
async fn a_secret_of_an_application_is_shown_once() {
    let office = Office::open().await;
    let developer = json!({"email": "dev@example.com"});
    rest(&office, Method::POST, "/broker/developers", &developer)
        .await
        .expect(201);
    let mut owner = office.signed_in("alice").await;
    let new = "/console/broker-form/applications";
    let fields = [
        ("view", "form"),
        ("f.name", "app"),
        ("f.developer", "dev@example.com"),
    ];
    let asked = owner.post(new, &fields).await.expect(200).body;
    let shown = owner.confirm(&asked).await.expect(200).body;
    assert!(shown.contains("Keep this secret"), "{shown}");
    let list = record(&office, "/broker/applications").await;
    let id = list["data"][0]["id"].as_str().expect("an id").to_owned();
    let page = owner.get(&format!("{LIST}/{id}")).await.expect(200).body;
    assert!(!page.contains("consumer_secret"), "{page}");
    let version = attribute(&page, "name=\"version\"", "value").to_owned();
    let rotate = format!("/console/broker-secret/applications/{id}");
    let asked = owner.post(&rotate, &[("version", &version)]).await;
    let asked = asked.expect(200).body;
    let shown = owner.confirm(&asked).await.expect(200).body;
    assert!(shown.contains("Keep this secret"), "{shown}");
    assert_eq!(
        newest(&office, "client.secret").await["actor"]["name"],
        "alice"
    );
    // Who takes its deletion back gets another secret, and nobody renews without one.
    let page = owner.get(&format!("{LIST}/{id}")).await.expect(200).body;
    let version = attribute(&page, "name=\"version\"", "value").to_owned();
    let delete = format!("/console/broker-delete/applications/{id}");
    let asked = owner.post(&delete, &[("version", &version)]).await;
    owner.confirm(&asked.expect(200).body).await.expect(303);
    let back = way_back(&mut owner, "").await;
    let asked = owner.post(&back, &[]).await.expect(200).body;
    let shown = owner.confirm(&asked).await.expect(200).body;
    assert!(shown.contains("Keep this secret"), "{shown}");
}

#[tokio::test]
async fn a_viewer_or_an_operator_who_writes_changes_no_record_of_the_broker() {
    let office = Office::open().await;
    let product = json!({"name": "weather"});
    rest(&office, Method::POST, "/broker/products", &product)
        .await
        .expect(201);
    for name in ["vera", "olga"] {
        let mut browser = office.signed_in(name).await;
        let page = browser.get("/console/broker/products/weather").await;
        let page = page.expect(200).body;
        assert!(!page.contains("/console/broker-"), "{page}");
        for path in [
            "broker-form/products",
            "broker-form/products/weather",
            "broker-delete/products/weather",
            "broker-secret/applications/x",
            "broker-apply",
        ] {
            let answer = browser.post(&format!("/console/{path}"), &[]).await;
            assert_eq!(answer.status, 403, "{name}: {path}: {}", answer.body);
        }
    }
}

#[tokio::test]
async fn records_of_the_broker_that_a_file_declares_name_it_with_their_line() {
    let broker = "
broker:
  products:
  - {name: first}
  - name: weather
    scopes: [READ]
";
    let mut door = Setup::new().lay_out();
    let file = std::fs::read_to_string(door.path("doorward.yaml")).expect("the file");
    let text = format!("{file}{broker}");
    let line = text.lines().position(|line| line == "  - name: weather");
    let line = line.expect("a line") + 1;
    door.write("doorward.yaml", &text);
    door.start().await;
    let mut browser = Browser::new(&door);
    let page = browser.get("/console/broker/products/weather").await;
    let page = page.expect(200).body;
    let place = format!("doorward.yaml:{line}");
    assert!(page.contains(&place), "{place}: {page}");
    let list = browser.get("/console/broker/products").await.expect(200);
    assert!(list.body.contains(&place), "{place}: {}", list.body);
    let form = "/console/broker-form/products/weather";
    let answer = browser.get(form).await.expect(409).body;
    assert!(answer.contains(&place), "{place}: {answer}");
}

#[tokio::test]
async fn records_of_the_broker_are_changed_over_rest_by_version() {
    let office = Office::open().await;
    let made = json!({"name": "weather", "scopes": ["READ"]});
    let made = rest(&office, Method::POST, "/broker/products", &made).await;
    let version = made.expect(201).json()["version"].clone();
    let path = "/broker/products/weather";
    let put = json!({"name": "weather", "version": 1});
    let patch = json!({"display_name": "x", "version": 1});
    let stale = [(Method::PUT, path, put), (Method::PATCH, path, patch)];
    for (method, path, body) in stale {
        let answer = rest(&office, method, path, &body).await.expect(412).json();
        let told = answer["message"].as_str().unwrap_or_default();
        assert!(told.contains("changed meanwhile"), "{answer}");
    }
    let delete = format!("{path}?version=1");
    let refused = rest(&office, Method::DELETE, &delete, &Value::Null).await;
    refused.expect(412);
    let nowhere = json!({"name": "other", "version": 1});
    let nowhere = rest(&office, Method::PUT, "/broker/products/other", &nowhere).await;
    nowhere.expect(412);
    for wrong in [json!("1"), json!(1.5)] {
        let body = json!({"version": wrong});
        rest(&office, Method::PATCH, path, &body).await.expect(400);
    }
    let wrong = format!("{path}?version=x");
    let wrong = rest(&office, Method::DELETE, &wrong, &Value::Null).await;
    wrong.expect(400);
    // Of two changes of one version, one is made.
    let change = |name: &str| json!({"display_name": name, "version": version});
    let (one, two) = (change("one"), change("two"));
    let (one, two) = tokio::join!(
        rest(&office, Method::PATCH, path, &one),
        rest(&office, Method::PATCH, path, &two),
    );
    let mut statuses = [one.status, two.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412]);
    let now = record(&office, path).await["version"].clone();
    assert_ne!(now, version);
    let two = format!("{path}?version={now}&version=1");
    let two = rest(&office, Method::DELETE, &two, &Value::Null).await;
    two.expect(412);
    let delete = format!("{path}?version={now}");
    let gone = rest(&office, Method::DELETE, &delete, &Value::Null).await;
    gone.expect(204);
}

#[tokio::test]
async fn a_stale_secret_of_an_application_is_not_replaced() {
    let office = Office::open().await;
    let developer = json!({"email": "dev@example.com"});
    let made = rest(&office, Method::POST, "/broker/developers", &developer).await;
    made.expect(201);
    let application = json!({"name": "app", "developer": "dev@example.com"});
    let made = rest(&office, Method::POST, "/broker/applications", &application).await;
    let made = made.expect(201).json();
    let path = format!(
        "/broker/applications/{}",
        made["id"].as_str().expect("an id")
    );
    let secret = format!("{path}/secret");
    let body = json!({"version": made["version"]});
    rest(&office, Method::POST, &secret, &body)
        .await
        .expect(200);
    let refused = rest(&office, Method::POST, &secret, &body).await;
    refused.expect(412);
    // Tokens that are revoked count, too.
    let before = record(&office, &path).await["version"].clone();
    let revoked = rest(
        &office,
        Method::DELETE,
        &format!("{path}/tokens"),
        &Value::Null,
    )
    .await;
    revoked.expect(204);
    assert_ne!(record(&office, &path).await["version"], before);
}
