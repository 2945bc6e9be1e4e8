//! What was acknowledged is there after `kill -9`.

mod kills;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::sync::Mutex;

use crate::support::{Setup, Upstream, http};

#[tokio::test]
async fn acknowledged_writes_survive_a_kill_under_parallel_load() {
    let mut door = Setup::new().start().await;
    for round in 0..3 {
        let acknowledged = Arc::new(Mutex::new(BTreeSet::new()));
        let done = Arc::new(AtomicUsize::new(0));
        let url = door.admin_url("/services");
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let (acknowledged, done) = (Arc::clone(&acknowledged), Arc::clone(&done));
                let url = url.clone();
                tokio::spawn(async move {
                    for n in 0.. {
                        let name = format!("s-{round}-{writer}-{n}");
                        let body = json!({"name": name, "host": "127.0.0.1"});
                        match http::try_send(http::client().post(&url).json(&body)).await {
                            Ok(answer) if answer.status == 201 => {
                                acknowledged.lock().await.insert(name);
                                done.fetch_add(1, Ordering::SeqCst);
                            }
                            _ => return,
                        }
                    }
                })
            })
            .collect();
        crate::support::eventually("some writes", || async {
            (done.load(Ordering::SeqCst) >= 40).then_some(())
        })
        .await;
        door.kill();
        for writer in writers {
            writer.await.expect("no panic");
        }
        door.start().await;
        for name in acknowledged.lock().await.iter() {
            door.admin_get(&format!("/services/{name}"))
                .await
                .expect(200);
        }
    }
}

#[tokio::test]
async fn routes_and_plugins_are_in_force_after_a_kill() {
    let upstream = Upstream::echo().await;
    let mut door = Setup::new().start().await;
    door.expose("api", &upstream.url(""), "api.test").await;
    let form = [
        ("name", "throttling"),
        ("config.rate.numberOfRequests", "1"),
        ("config.rate.duration", "1 day"),
    ];
    let made = door
        .admin_form("/services/api/plugins", &form)
        .await
        .expect(201)
        .json();
    door.kill();
    door.start().await;
    let path = format!("/plugins/{}", made["id"].as_str().expect("an id"));
    assert_eq!(door.admin_get(&path).await.expect(200).json(), made);
    door.get("api.test", "/").await.expect(200);
    door.get("api.test", "/").await.expect(429);
}

#[tokio::test]
async fn tokens_and_keys_outlive_the_process() {
    let mut door = Setup::new().start().await;
    let fields = [
        ("grant_type", "password"),
        ("client_id", "orders"),
        ("client_secret", "orders-secret"),
        ("username", "demo"),
        ("password", "Ch4ng31t-demo"),
        ("scope", "openid"),
    ];
    let tokens = door.token_request(&fields).await.expect(200).json();
    door.kill();
    door.start().await;
    let access = tokens["access_token"].as_str().expect("a token");
    door.get_as(access, "a.test", "/oauth2/tokeninfo")
        .await
        .expect(200);
    let refresh = [
        ("grant_type", "refresh_token"),
        ("client_id", "orders"),
        ("client_secret", "orders-secret"),
        (
            "refresh_token",
            tokens["refresh_token"].as_str().expect("a token"),
        ),
    ];
    door.token_request(&refresh).await.expect(200);
}

#[tokio::test]
async fn a_write_is_refused_whole_or_made_whole() {
    let door = Setup::new().start().await;
    let before = door.admin_get("/services").await.expect(200).json();
    // The second name is taken: PUT of a batch of one, twice, then a bad one.
    let service = json!({"name": "one", "host": "127.0.0.1"});
    door.admin_post("/services", &service).await.expect(201);
    door.admin_post("/services", &service).await.expect(409);
    door.admin_post("/services", &json!({"name": "two", "host": ""}))
        .await
        .expect(400);
    let after = door.admin_get("/services").await.expect(200).json();
    let count = |list: &serde_json::Value| list["data"].as_array().map_or(0, Vec::len);
    assert_eq!(count(&after), count(&before) + 1);
}

#[tokio::test]
async fn tokens_for_clients_touch_no_disk() {
    let mut door = Setup::new().lay_out();
    door.edit("doorward.yaml", "access_log: stdout", "access_log: off");
    door.start().await;
    // Keys are made beside the first requests and stored then.
    door.wait_log("the last key", |line| line.contains("RS256"))
        .await;
    door.client_token("read").await;
    let written = || {
        let io = std::fs::read_to_string(format!("/proc/{}/io", door.pid()));
        let io = io.expect("the process is there");
        let line = io.lines().find(|line| line.starts_with("write_bytes:"));
        line.expect("a figure of the process").to_owned()
    };
    crate::support::eventually("the disk to be left alone", || async {
        let before = written();
        for _ in 0..50 {
            door.client_token("read").await;
        }
        (written() == before).then_some(())
    })
    .await;
}

#[cfg(unix)]
#[tokio::test]
async fn the_state_directory_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let door = Setup::new().start().await;
    let mode = std::fs::metadata(door.path("data"))
        .expect("the directory")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}
