//! Changing files while the program runs: all of a change, or nothing and why.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::tungstenite::Message;

use crate::support::{Door, Reply, Setup, Upstream, eventually, http};

/// A door with one throttled service `api` for host `api.test`.
async fn door_to(upstream: &Upstream) -> Door {
    let service = format!(
        "- name: api\n  url: {}\n  routes:\n  - {{name: api, hosts: [api.test]}}\n  plugins:\n  \
         - name: throttling\n    config: {{rate: {{numberOfRequests: 600, duration: 1 day}}}}\n",
        upstream.url("")
    );
    Setup::new().services(&service).start().await
}

async fn upstream() -> Upstream {
    Upstream::start(|_| Reply::Json(200, serde_json::json!({}))).await
}

/// Waits until a request for `host` gets `status`.
async fn until(door: &Door, host: &str, status: u16) {
    eventually(&format!("{host} to answer {status}"), || async {
        (door.get(host, "/").await.status == status).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_file_replaced_by_rename_is_in_force_by_itself() {
    let upstream = upstream().await;
    let door = door_to(&upstream).await;
    door.get("api.test", "/").await.expect(200);
    door.edit(
        "routes.yaml",
        "hosts: [api.test]",
        "hosts: [api.test, new.test]",
    );
    until(&door, "new.test", 200).await;
    door.edit(
        "routes.yaml",
        "hosts: [api.test, new.test]",
        "hosts: [new.test]",
    );
    until(&door, "api.test", 404).await;
}

#[tokio::test]
async fn a_file_written_in_place_is_noticed() {
    let upstream = upstream().await;
    let door = door_to(&upstream).await;
    let text = std::fs::read_to_string(door.path("routes.yaml")).expect("the file");
    door.write("routes.yaml", &text.replace("api.test", "written.test"));
    until(&door, "written.test", 200).await;
}

#[tokio::test]
async fn sighup_reloads() {
    let upstream = upstream().await;
    let door = door_to(&upstream).await;
    door.edit("routes.yaml", "hosts: [api.test]", "hosts: [hup.test]");
    door.signal("HUP");
    until(&door, "hup.test", 200).await;
}

#[tokio::test]
async fn a_changed_rate_is_in_force_and_no_request_fails() {
    let upstream = upstream().await;
    let door = Arc::new(door_to(&upstream).await);
    let stop = Arc::new(AtomicBool::new(false));
    let knocking = {
        let (door, stop) = (Arc::clone(&door), Arc::clone(&stop));
        tokio::spawn(async move {
            let mut statuses = Vec::new();
            while !stop.load(Ordering::SeqCst) {
                statuses.push(door.get("api.test", "/").await.status);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            statuses
        })
    };
    tokio::time::sleep(Duration::from_millis(100)).await;
    door.edit(
        "routes.yaml",
        "numberOfRequests: 600",
        "numberOfRequests: 1",
    );
    until(&door, "api.test", 429).await;
    stop.store(true, Ordering::SeqCst);
    let statuses = knocking.await.expect("no panic");
    assert!(
        statuses.iter().all(|status| [200, 429].contains(status)),
        "{statuses:?}"
    );
}

#[tokio::test]
async fn buckets_survive_a_change_elsewhere() {
    let upstream = upstream().await;
    let door = door_to(&upstream).await;
    door.edit(
        "routes.yaml",
        "numberOfRequests: 600",
        "numberOfRequests: 3",
    );
    door.edit(
        "routes.yaml",
        "hosts: [api.test]",
        "hosts: [api.test, one.test]",
    );
    until(&door, "one.test", 200).await;
    eventually("the bucket to be empty", || async {
        (door.get("api.test", "/").await.status == 429).then_some(())
    })
    .await;
    door.edit(
        "routes.yaml",
        "hosts: [api.test, one.test]",
        "hosts: [api.test, two.test]",
    );
    until(&door, "two.test", 429).await;
    // So does a change over the Admin API.
    door.expose("other", &upstream.url(""), "other.test").await;
    door.get("api.test", "/").await.expect(429);
}

#[tokio::test]
async fn a_broken_file_changes_nothing_and_the_log_points_at_it() {
    for (from, to, place) in [
        // A wrong type, an unknown key, a broken expression, no YAML at all.
        (
            "numberOfRequests: 600",
            "numberOfRequests: many",
            "numberOfRequests",
        ),
        ("  url:", "  reties: 3\n  url:", "reties"),
        (
            "hosts: [api.test]",
            "hosts: [api.test], paths: ['~/(']",
            "paths",
        ),
        ("- name: api", "- name: [api", "routes.yaml:"),
    ] {
        let upstream = upstream().await;
        let door = door_to(&upstream).await;
        door.clear_log();
        door.edit("routes.yaml", from, to);
        let line = door
            .wait_log("the error", |line| {
                line.contains("routes.yaml:") && line.contains(place)
            })
            .await;
        let after = line.split("routes.yaml:").nth(1).expect("a place");
        assert!(
            after.starts_with(|c: char| c.is_ascii_digit()),
            "a line number: {line}"
        );
        door.get("api.test", "/").await.expect(200);
        let metrics = door.admin_get("/metrics").await.expect(200).body;
        assert!(
            metrics.contains("doorward_reloads_total{result=\"failed\"}"),
            "{metrics}"
        );

        let file = door.path("doorward.yaml");
        let check = door.run(&["check", "-c", file.to_str().expect("UTF-8")]);
        assert_eq!(check.status.code(), Some(1));
        let said = String::from_utf8_lossy(&check.stdout) + String::from_utf8_lossy(&check.stderr);
        assert!(
            said.contains("routes.yaml:") && said.contains(place),
            "{said}"
        );

        door.edit("routes.yaml", to, from);
        door.edit("routes.yaml", "hosts: [api.test]", "hosts: [mended.test]");
        until(&door, "mended.test", 200).await;
    }
}

#[tokio::test]
async fn one_broken_part_keeps_the_good_parts_of_a_change_out() {
    let upstream = upstream().await;
    let door = door_to(&upstream).await;
    door.clear_log();
    let broken = "\n- {name: broken, url: 'http://127.0.0.1:9', nonsense: 1}\n";
    door.edit(
        "routes.yaml",
        "- name: api\n",
        &format!("{}- name: api\n", broken.trim_start_matches('\n')),
    );
    door.edit("routes.yaml", "hosts: [api.test]", "hosts: [half.test]");
    door.wait_log("the error", |line| line.contains("nonsense"))
        .await;
    door.get("half.test", "/").await.expect(404);
    door.get("api.test", "/").await.expect(200);
}

#[tokio::test]
async fn requests_and_web_sockets_in_flight_go_on() {
    let upstream = Upstream::start(|seen| match seen.header("upgrade") {
        Some(_) => Reply::WebSocket,
        None => Reply::Later(
            Duration::from_secs(2),
            Box::new(Reply::Json(200, serde_json::json!({}))),
        ),
    })
    .await;
    let service = format!(
        "- {{name: api, url: '{}', routes: [{{hosts: [api.test, '127.0.0.1']}}]}}\n",
        upstream.url("")
    );
    let door = Setup::new().services(&service).start().await;
    let url = format!("ws://{}/", door.proxy());
    let (mut socket, _) = tokio_tungstenite::connect_async(url)
        .await
        .expect("switched");
    let slow = http::client()
        .get(door.proxy_url("/"))
        .header("host", "api.test");
    let slow = tokio::spawn(http::send(slow));
    eventually("the request to arrive", || async {
        (upstream.seen().len() == 2).then_some(())
    })
    .await;
    door.edit(
        "routes.yaml",
        "hosts: [api.test, '127.0.0.1']",
        "hosts: [gone.test]",
    );
    until_routed(&door, "gone.test").await;
    slow.await.expect("no panic").expect(200);
    socket
        .send(Message::text("still here"))
        .await
        .expect("sent");
    let back = socket.next().await.expect("a message").expect("no error");
    assert_eq!(back.into_text().expect("text").as_str(), "still here");
}

/// Waits until `host` has a route, without waiting for its upstream's answer.
async fn until_routed(door: &Door, host: &str) {
    eventually("the route to be in force", || async {
        let request = http::builder().timeout(Duration::from_millis(500)).build();
        let request = request
            .expect("a client")
            .get(door.proxy_url("/"))
            .header("host", host);
        match http::try_send(request).await {
            Ok(answer) => (answer.status != 404).then_some(()),
            Err(_) => Some(()),
        }
    })
    .await;
}

#[tokio::test]
async fn files_may_be_added_to_and_taken_from_a_watched_directory() {
    let upstream = upstream().await;
    let mut door = Setup::new().lay_out();
    std::fs::create_dir(door.path("routes.d")).expect("a directory");
    let main = std::fs::read_to_string(door.path("doorward.yaml")).expect("the file");
    let both = "routes.yaml\", \"@DIR@/routes.d/\"";
    door.write("doorward.yaml", &main.replace("routes.yaml\"", both));
    door.start().await;
    let text = format!(
        "_format_version: \"3.0\"\nservices:\n- {{name: extra, url: '{}', routes: [{{hosts: [extra.test]}}]}}\n",
        upstream.url("")
    );
    door.write("routes.d/extra.yaml", &text);
    until(&door, "extra.test", 200).await;
    std::fs::remove_file(door.path("routes.d/extra.yaml")).expect("removed");
    until(&door, "extra.test", 404).await;
}

#[tokio::test]
async fn users_and_clients_of_the_file_follow_it() {
    let door = Setup::new().start().await;
    let fields = [
        ("grant_type", "client_credentials"),
        ("client_id", "late"),
        ("client_secret", "late-secret"),
        ("scope", "read"),
    ];
    door.token_request(&fields).await.expect(401);
    let late = "      clients:\n        - {client_id: late, client_secret: late-secret, \
                grant_types: [client_credentials], scope: read}\n";
    door.edit("doorward.yaml", "      clients:\n", late);
    let token = eventually("the client to be known", || async {
        let answer = door.token_request(&fields).await;
        (answer.status == 200).then(|| answer.json()["access_token"].clone())
    })
    .await;
    assert!(token.is_string());
    door.edit("doorward.yaml", late, "      clients:\n");
    eventually("the client to be forgotten", || async {
        (door.token_request(&fields).await.status == 401).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_broken_main_file_changes_nothing_and_is_named() {
    let upstream = upstream().await;
    let door = door_to(&upstream).await;
    door.clear_log();
    door.edit("doorward.yaml", "telemetry:", "telemtry:");
    door.wait_log("the error", |line| {
        line.contains("doorward.yaml:") && line.contains("telemtry")
    })
    .await;
    door.get("api.test", "/").await.expect(200);
    door.client_token("read").await;
}

#[tokio::test]
async fn a_name_is_never_declared_and_stored_at_once() {
    let upstream = upstream().await;
    let mut door = door_to(&upstream).await;
    door.expose("taken", &upstream.url(""), "taken.test").await;
    door.clear_log();
    let declared = "- {name: taken, url: 'http://127.0.0.1:9', routes: [{hosts: [other.test]}]}\n";
    door.edit(
        "routes.yaml",
        "- name: api\n",
        &format!("{declared}- name: api\n"),
    );
    door.wait_log("the refusal", |line| {
        line.contains("routes.yaml:") && line.contains("taken")
    })
    .await;
    door.get("other.test", "/").await.expect(404);
    door.get("taken.test", "/").await.expect(200);

    // Nor does it start so, and it says why.
    door.kill();
    door.spawn();
    assert_eq!(door.wait_exit().await.code(), Some(2));
    let log = door.log_text();
    assert!(log.contains("taken"), "{log}");
}

#[tokio::test]
async fn a_declared_service_cannot_leave_what_refers_to_it_behind() {
    let upstream = upstream().await;
    let door = door_to(&upstream).await;
    let route = serde_json::json!({"hosts": ["stored.test"]});
    door.admin_post("/services/api/routes", &route)
        .await
        .expect(201);
    door.get("stored.test", "/").await.expect(200);
    door.clear_log();
    door.write("routes.yaml", "_format_version: \"3.0\"\nservices: []\n");
    door.wait_log("the refusal", |line| line.contains("not reloaded"))
        .await;
    door.get("stored.test", "/").await.expect(200);
    door.get("api.test", "/").await.expect(200);
}

#[tokio::test]
async fn entities_stay_as_they_are_when_the_identity_provider_refuses() {
    let upstream = upstream().await;
    let door = door_to(&upstream).await;
    let added = door.run(&[
        "users",
        "add",
        "carol",
        "--no-password",
        "-c",
        "doorward.yaml",
    ]);
    assert!(added.status.success(), "{added:?}");
    door.clear_log();
    // Only the store knows that the name is taken.
    door.edit(
        "doorward.yaml",
        "      users:\n",
        "      users:\n        - {userName: carol, password: Ch4ng31t-carol}\n",
    );
    door.edit("routes.yaml", "hosts: [api.test]", "hosts: [half.test]");
    door.wait_log("the refusal", |line| {
        line.contains("not reloaded") && line.contains("carol")
    })
    .await;
    door.clear_log();
    door.signal("HUP");
    door.wait_log("the refusal again", |line| line.contains("not reloaded"))
        .await;
    door.get("half.test", "/").await.expect(404);
    door.get("api.test", "/").await.expect(200);
    delete_carol(&door);
    door.signal("HUP");
    until(&door, "half.test", 200).await;
}

fn delete_carol(door: &Door) {
    let deleted = door.run(&["users", "delete", "carol", "-c", "doorward.yaml"]);
    assert!(deleted.status.success(), "{deleted:?}");
}
