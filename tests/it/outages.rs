//! The store goes away under the running program, in every way that it can, and
//! comes back: what was acknowledged is there, what was not is 503, the gateway
//! goes on, and nothing has to be restarted.

mod files;
mod nodes;
mod silence;

use serde_json::{Value, json};

use crate::support::{Answer, Door};

async fn add_service(door: &Door, name: &str) -> Answer {
    let body = json!({"name": name, "host": "127.0.0.1"});
    door.admin_post("/services", &body).await
}

async fn sign_in(door: &Door) -> Answer {
    door.token_request(&[
        ("grant_type", "password"),
        ("username", "demo"),
        ("password", "Ch4ng31t-demo"),
        ("scope", "openid profile"),
        ("client_id", "orders"),
        ("client_secret", "orders-secret"),
    ])
    .await
}

/// What `/status` says about the store.
async fn about_store(door: &Door) -> Value {
    let status = door.admin_get("/status").await.expect(200).json();
    status["database"].clone()
}

#[track_caller]
fn refused_for_now(answer: &Answer) {
    assert_eq!(answer.status, 503, "{}", answer.body);
    assert!(
        !answer.header("retry-after").is_empty(),
        "{:?}",
        answer.headers
    );
}

async fn writes_are_refused(door: &Door, name: &str) {
    refused_for_now(&add_service(door, name).await);
    refused_for_now(&sign_in(door).await);
}

/// The services that were acknowledged are there after a crash, and none of the
/// others.
async fn survived(door: &mut Door, acknowledged: &[&str], refused: &[&str]) {
    door.kill();
    door.start().await;
    for name in acknowledged {
        let path = format!("/services/{name}");
        door.admin_get(&path).await.expect(200);
    }
    for name in refused {
        let path = format!("/services/{name}");
        door.admin_get(&path).await.expect(404);
    }
}
