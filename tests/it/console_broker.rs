//! The token broker and the export of the audit log in the console.

use reqwest::Method;
use serde_json::{Value, json};

use crate::console_registry::rest;
use crate::console_sign_in::Office;
use crate::console_users::newest;

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
