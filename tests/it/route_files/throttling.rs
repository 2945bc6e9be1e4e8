//! Throttles as the imitated gateway's users write them, old and new.

use super::*;

/// How many of ten requests pass.
async fn passing(door: &Door, path: &str, headers: &[(&str, &str)]) -> usize {
    let mut passed = 0;
    for _ in 0..10 {
        let answer = get_with(door, path, headers).await;
        match answer.status {
            200 => passed += 1,
            429 => {
                assert_eq!(answer.body, "");
                let wait: u64 = answer.header("retry-after").parse().expect("seconds");
                assert!(wait >= 1);
            }
            other => panic!("{other} {}", answer.body),
        }
    }
    passed
}

/// Hours where the originals have seconds: nothing comes back while a test
/// runs, however slow the machine.
const BEFORE: &str = r#"{
  "name": "throttle-simple",
  "condition": "${matches(request.uri.path, '^/throttle-simple')}",
  "baseURI": "@UPSTREAM@",
  "handler": {
    "type": "Chain",
    "config": {
      "filters": [
        {
          "type": "ThrottlingFilter",
          "name": "ThrottlingFilter-1",
          "config": {
            "requestGroupingPolicy": "${request.headers['UserId'][0]}",
            "rate": {"numberOfRequests": 6, "duration": "10 hours"}
          }
        }
      ],
      "handler": "ClientHandler"
    }
  }
}"#;

const AFTER: &str = r#"{
  "name": "home-throttle-simple",
  "properties": {"rate": {"requests": 6}},
  "baseURI": "@UPSTREAM@",
  "condition": "${find(request.uri.path, '^/home/throttle-simple')}",
  "handler": {
    "type": "Chain",
    "config": {
      "filters": [
        {
          "type": "ThrottlingFilter",
          "config": {
            "rate": {
              "numberOfRequests": NUMBER,
              "duration": "&{rate.duration|10 hours}"
            },
            "cleaningInterval": "${'5 seconds'}",
            "executor": "ScheduledExecutorService"
          }
        }
      ],
      "handler": "ReverseProxyHandler"
    }
  }
}"#;

#[tokio::test]
async fn files_of_before_and_after_the_new_syntax_load_unmodified() {
    let upstream = upstream().await;
    let fill = |text: &str| text.replace("@UPSTREAM@", &upstream.url(""));
    let door = door(&[("00-before.json", &fill(BEFORE))]).await;
    let alice = [("UserId", "alice")];
    assert_eq!(passing(&door, "/throttle-simple/x", &alice).await, 6);
    assert_eq!(
        passing(&door, "/throttle-simple/x", &[("UserId", "bob")]).await,
        6
    );
    // Nobody is neither let through nor counted with others.
    get(&door, "/throttle-simple").await.expect(500);
    get(&door, "/elsewhere").await.expect(404);

    let numbers = [
        "6",
        "\"6\"",
        "\"${integer('6')}\"",
        "\"&{rate.n|6}\"",
        "{\"$int\": \"&{rate.requests}\"}",
    ];
    for (i, number) in numbers.iter().enumerate() {
        let text = fill(AFTER)
            .replace("NUMBER", number)
            .replace("home-", &format!("home-{i}-"));
        put(&door, "01-after.json", &text);
        eventually("the file to be in force", || async {
            let shown = door.admin_get("/route-files/01-after").await;
            let name = format!("home-{i}-throttle-simple");
            (shown.status == 200 && shown.json()["name"] == name.as_str()).then_some(())
        })
        .await;
        let refused = state(&door, "01-after").await;
        assert_eq!(refused["state"], "loaded", "{refused}");
        std::fs::remove_file(door.path("routes/01-after.json")).expect("removed");
        until(&door, "/home/throttle-simple", 404).await;
    }
    put(&door, "01-after.json", &fill(AFTER).replace("NUMBER", "6"));
    until_state(&door, "01-after", "loaded").await;
    // It is loaded a moment before it serves: the first request that passes is counted.
    until(&door, "/home/throttle-simple", 200).await;
    assert_eq!(1 + passing(&door, "/home/throttle-simple", &[]).await, 6);
    let seen = upstream.seen().pop().expect("a request");
    assert_eq!(seen.target, "/home/throttle-simple");
    assert_eq!(
        seen.header("host"),
        Some(upstream.url("").trim_start_matches("http://"))
    );
}

#[tokio::test]
async fn rates_are_mapped_by_a_policy_of_the_heap() {
    let upstream = upstream().await;
    let text = r#"{
  "name": "throttle-mapped",
  "baseURI": "@UPSTREAM@",
  "condition": "${find(request.uri.path, '^/home/throttle-mapped')}",
  "heap": [{
    "name": "by-department", "type": "MappedThrottlingPolicy", "config": {
      "throttlingRateMapper": "${request.headers['X-Department'][0]}",
      "throttlingRatesMapping": {
        "accounts": {"numberOfRequests": 4, "duration": "10 hours"},
        "${'sales'}": {"numberOfRequests": "${integer('3')}", "duration": "10 hours"}
      },
      "defaultRate": {"numberOfRequests": 1, "duration": "10 hours"}
    }
  }],
  "handler": {"type": "Chain", "config": {
    "filters": [{"type": "ThrottlingFilter", "config": {
      "requestGroupingPolicy": "${request.headers['UserId'][0]}",
      "throttlingRatePolicy": "by-department"}}],
    "handler": "ReverseProxyHandler"}}
}"#;
    let door = door(&[(
        "mapped.json",
        &text.replace("@UPSTREAM@", &upstream.url("")),
    )])
    .await;
    let path = "/home/throttle-mapped";
    for (user, department, passed) in [
        ("alice", "accounts", 4),
        ("bob", "accounts", 4),
        ("carol", "sales", 3),
        ("dave", "finance", 1),
    ] {
        let headers = [("UserId", user), ("X-Department", department)];
        assert_eq!(passing(&door, path, &headers).await, passed, "{user}");
    }
    assert_eq!(passing(&door, path, &[("UserId", "erin")]).await, 1);
}

#[tokio::test]
async fn a_policy_in_place_may_delegate_with_a_default() {
    let upstream = upstream().await;
    let text = r#"
name: throttle-default
baseURI: "@UPSTREAM@"
condition: "${find(request.uri.path, '^/home/throttle-default')}"
handler:
  type: Chain
  config:
    handler: ReverseProxyHandler
    filters:
    - type: ThrottlingFilter
      config:
        requestGroupingPolicy: "${request.headers['UserId'][0]}"
        throttlingRatePolicy:
          type: DefaultRateThrottlingPolicy
          config:
            delegateThrottlingRatePolicy: tiers
            defaultRate: {numberOfRequests: 2, duration: 10 hours}
heap:
- name: tiers
  type: MappedThrottlingPolicy
  config:
    throttlingRateMapper: "${request.headers['X-Tier'][0]}"
    throttlingRatesMapping:
      gold: {numberOfRequests: 5, duration: 10 hours}
"#;
    let door = door(&[("d.yaml", &text.replace("@UPSTREAM@", &upstream.url("")))]).await;
    let path = "/home/throttle-default";
    let gold = [("UserId", "alice"), ("X-Tier", "gold")];
    assert_eq!(passing(&door, path, &gold).await, 5);
    assert_eq!(passing(&door, path, &[("UserId", "bob")]).await, 2);
}

#[tokio::test]
async fn buckets_survive_every_change_but_their_own() {
    let upstream = upstream().await;
    let text = BEFORE.replace("@UPSTREAM@", &upstream.url(""));
    let door = door(&[("a.json", &text)]).await;
    let alice = [("UserId", "alice")];
    let path = "/throttle-simple";
    assert_eq!(passing(&door, path, &alice).await, 6);
    // Another file, a change of this one that concerns the throttle not, a
    // broken one, an entity.
    put(&door, "b.json", &answering("b", "/b", 204));
    until(&door, "/b", 204).await;
    put(
        &door,
        "a.json",
        &text.replace("'^/throttle-simple'", "'^/throttle-(simple|other)'"),
    );
    eventually("the change to be in force", || async {
        (get_with(&door, "/throttle-other", &alice).await.status != 404).then_some(())
    })
    .await;
    assert_eq!(passing(&door, path, &alice).await, 0);
    put(&door, "a.json", &text[..300]);
    until_state(&door, "a", "stale").await;
    assert_eq!(passing(&door, path, &alice).await, 0);
    door.expose("other", &upstream.url(""), "other.test").await;
    assert_eq!(passing(&door, path, &alice).await, 0);
    put(
        &door,
        "a.json",
        &text.replace("\"numberOfRequests\": 6", "\"numberOfRequests\": 3"),
    );
    until_state(&door, "a", "loaded").await;
    assert_eq!(passing(&door, path, &alice).await, 3);
}

#[tokio::test]
async fn throttles_of_route_files_are_shown_and_reset() {
    let rate = r#"{"numberOfRequests": 2, "duration": "6 hours"}"#;
    let throttle = format!(
        "{{\"type\": \"ThrottlingFilter\", \"name\": \"limits\", \"config\": {{\"rate\": {rate}}}}}"
    );
    let inner = format!(
        "{{\"handler\": {{\"type\": \"Chain\", \"config\": {{\"filters\": [{throttle}, {throttle}], \
         \"handler\": {{\"type\": \"StaticResponseHandler\", \"config\": {{\"status\": 200}}}}}}}}}}"
    );
    let outer = r#"{"handler": {"type": "Router", "config": {"directory": "nested"}}}"#;
    let door = door(&[("nested/in.json", &inner), ("out.json", outer)]).await;
    for status in [200, 200, 429] {
        assert_eq!(get(&door, "/").await.status, status);
    }
    let list = door.admin_get("/throttling").await.expect(200).json();
    let shown: Vec<_> = list["data"].as_array().expect("a list").iter().collect();
    assert_eq!(shown.len(), 2, "{list}");
    assert_eq!(shown[0]["plugin"]["id"], "out/in/limits", "{list}");
    assert_eq!(shown[1]["plugin"]["id"], "out/in/limits:2", "{list}");
    assert_eq!(shown[0]["plugin"]["name"], "ThrottlingFilter");
    assert_eq!(shown[0]["route_file"]["id"], "out/in");
    let path = "/throttling/out%2Fin%2Flimits";
    let one = door.admin_get(path).await.expect(200).json();
    let hottest = &one["hottest"][0];
    assert_eq!(
        (&hottest["passed"], &hottest["refused"]),
        (&2.into(), &1.into()),
        "{one}"
    );
    assert_eq!(hottest["partition"], serde_json::Value::Null);
    let partition = hottest["id"].as_str().expect("an id").to_owned();
    for path in [path.to_owned(), format!("{path}:2")] {
        door.admin_delete(&format!("{path}/{partition}"))
            .await
            .expect(204);
    }
    assert_eq!(get(&door, "/").await.status, 200);
    door.admin_get("/throttling/out%2Fin%2Fother")
        .await
        .expect(404);
}
