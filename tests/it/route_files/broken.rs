//! Broken files: reported by line and key, and never a route lost.

use super::*;

/// A good file that answers 201 on `/a`, and ways to break it: what to
/// replace, by what, and what the error says.
const BREAKS: &[(&str, &str, &str)] = &[
    (
        "\"status\": 201",
        "\"status\": \"many\"",
        "a.json:2: handler.config.status: ",
    ),
    (
        "StaticResponseHandler",
        "NoSuchHandler",
        "a.json:2: handler.type: 'NoSuchHandler'",
    ),
    (
        "StaticResponseHandler",
        "ScriptableHandler",
        "a.json:2: handler.type: ScriptableHandler is not served",
    ),
    ("find(", "no_such_function(", "a.json:1: condition: "),
    (
        "\"handler\"",
        "\"handlre\"",
        "a.json:1: required field missing: handler",
    ),
    ("{\"status\": 201}", "{\"status\": 201", "a.json:2: "),
    ("{\"status\": 201}}}", "{\"stat", "a.json:2: "),
    (
        "201",
        "\"&{no.such.token}\"",
        "a.json:2: handler.config.status: configuration token 'no.such.token'",
    ),
];

/// The files are told a moment before the whole is counted.
async fn until_current(door: &Door) {
    eventually("the status to be current", || async {
        let status = door.admin_get("/status").await.expect(200).json();
        let configuration = &status["configuration"];
        let fine = configuration["errors"] == serde_json::json!([]);
        (fine && configuration["current"] == true).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_broken_file_keeps_its_last_good_version_and_recovers() {
    let good = answering("a", "/a", 201);
    let door = door(&[("a.json", &good), ("b.json", &answering("b", "/b", 202))]).await;
    for (from, to, message) in BREAKS {
        assert!(good.contains(from), "{from}");
        door.clear_log();
        put(&door, "a.json", &good.replacen(from, to, 1));
        let line = door
            .wait_log("the error", |line| line.contains(message))
            .await;
        assert!(line.contains("last good version"), "{line}");
        let stale = until_state(&door, "a", "stale").await;
        assert!(
            stale["errors"][0]
                .as_str()
                .is_some_and(|error| error.contains(message)),
            "{stale}"
        );
        let status = door.admin_get("/status").await.expect(200).json();
        let told = status["configuration"]["errors"].to_string();
        assert!(told.contains("a.json:"), "{told}");
        assert_eq!(status["configuration"]["current"], false);
        assert_eq!(status["configuration"]["route_files"]["stale"], 1);
        eventually("the metrics to tell", || async {
            let metrics = door.admin_get("/metrics").await.expect(200).body;
            let told = metrics.contains("doorward_route_files{state=\"stale\"} 1")
                && metrics.contains("doorward_config_current 0");
            told.then_some(())
        })
        .await;
        get(&door, "/a").await.expect(201);
        get(&door, "/b").await.expect(202);

        let check = door.run(&["check", "-c", "doorward.yaml"]);
        assert_eq!(check.status.code(), Some(1));
        let said = String::from_utf8_lossy(&check.stderr);
        assert!(said.contains(message), "{said}");

        put(&door, "a.json", &good);
        until_state(&door, "a", "loaded").await;
        until_current(&door).await;
    }
}

#[tokio::test]
async fn a_removed_file_has_no_route_even_after_it_was_broken() {
    let door = door(&[("a.json", &answering("a", "/a", 201))]).await;
    put(&door, "a.json", "");
    until_state(&door, "a", "stale").await;
    get(&door, "/a").await.expect(201);
    std::fs::remove_file(door.path("routes/a.json")).expect("removed");
    until(&door, "/a", 404).await;
    door.admin_get("/route-files/a").await.expect(404);
    until_current(&door).await;
}

#[tokio::test]
async fn a_broken_file_does_not_stop_the_start_and_check_tells_everything() {
    let files = [
        ("a.json", answering("a", "/a", 201)),
        ("b.json", answering("b", "/b", 20)),
        (
            "c.json",
            "{\"handler\":\n{\"type\": \"Nope\"},\n\"heap\": [{}]}".to_owned(),
        ),
    ];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let mut door = laid_out(Setup::new(), &files);
    door.edit("routes.yaml", "services:", "servics: []\nservices:");
    let check = door.run(&["check", "-c", "doorward.yaml"]);
    assert_eq!(check.status.code(), Some(1));
    let said = String::from_utf8_lossy(&check.stderr);
    for told in [
        "routes.yaml:2: servics",
        "b.json:2: handler.config.status",
        "c.json:2: handler.type",
        "c.json:3: heap[0]",
    ] {
        assert!(said.contains(told), "{told} is not in {said}");
    }
    door.edit("routes.yaml", "servics: []\n", "");
    door.start().await;
    get(&door, "/a").await.expect(201);
    assert_eq!(state(&door, "b").await["state"], "refused");
    let metrics = door.admin_get("/metrics").await.expect(200).body;
    assert!(
        metrics.contains("doorward_route_files{state=\"refused\"} 2"),
        "{metrics}"
    );
    put(&door, "b.json", &answering("b", "/b", 202));
    until(&door, "/b", 202).await;
}

#[tokio::test]
async fn entities_and_route_files_do_not_keep_one_another_out() {
    let upstream = upstream().await;
    let service = format!(
        "- {{name: api, url: '{}', routes: [{{hosts: [api.test]}}]}}\n",
        upstream.url("")
    );
    let door = door_with(
        Setup::new().services(&service),
        &[("a.json", &answering("a", "/a", 201))],
    )
    .await;
    // A broken entity file: the route file changes all the same.
    door.edit("routes.yaml", "name: api", "nmae: api");
    door.wait_log("the error", |line| {
        line.contains("routes.yaml:") && line.contains("nmae")
    })
    .await;
    put(&door, "a.json", &answering("a", "/a", 203));
    until(&door, "/a", 203).await;
    door.get("api.test", "/").await.expect(200);
    // A broken route file: the entities change all the same.
    put(&door, "a.json", "{");
    until_state(&door, "a", "stale").await;
    door.edit("routes.yaml", "nmae: api", "name: api");
    door.edit("routes.yaml", "hosts: [api.test]", "hosts: [new.test]");
    eventually("the entity to change", || async {
        (door.get("new.test", "/").await.status == 200).then_some(())
    })
    .await;
    get(&door, "/a").await.expect(203);
}

#[tokio::test]
async fn a_file_replaced_by_rename_with_an_old_time_is_noticed() {
    let door = door(&[("a.json", &answering("a", "/a", 201))]).await;
    put(&door, "new", &answering("a", "/a", 202));
    let file = std::fs::File::options()
        .write(true)
        .open(door.path("routes/new"))
        .expect("the file");
    file.set_modified(std::time::UNIX_EPOCH)
        .expect("an old time");
    std::fs::rename(door.path("routes/new"), door.path("routes/a.json")).expect("renamed");
    until(&door, "/a", 202).await;
}

#[tokio::test]
async fn a_request_in_flight_finishes_on_the_route_it_began_with() {
    let upstream = Upstream::start(|_| {
        Reply::Later(
            std::time::Duration::from_secs(1),
            Box::new(Reply::Json(200, serde_json::json!({}))),
        )
    })
    .await;
    let text = format!(
        "{{\"handler\": \"ReverseProxyHandler\", \"baseURI\": \"{}\"}}",
        upstream.url("")
    );
    let door = door(&[("a.json", &text)]).await;
    let slow = http::client()
        .get(door.proxy_url("/slow"))
        .header("host", "files.test");
    let slow = tokio::spawn(http::send(slow));
    eventually("the request to arrive", || async {
        (upstream.seen().len() == 1).then_some(())
    })
    .await;
    std::fs::remove_file(door.path("routes/a.json")).expect("removed");
    until(&door, "/gone", 404).await;
    slow.await.expect("no panic").expect(200);
}
