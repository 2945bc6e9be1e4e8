//! Several nodes and one Redis: they count together, or each for itself.

use crate::support::ports::Port;
use crate::support::redis::RedisServer;
use crate::support::{Answer, Door, Reply, Setup, Upstream, eventually, http};

/// A Redis with a password.
fn redis_on(port: Port) -> RedisServer {
    let number = port.number().to_string();
    let directory = tempfile::tempdir().expect("a directory");
    let arguments = ["--requirepass", "open-sesame", "--port", &number];
    RedisServer::start(port, directory, &arguments)
}

/// A node that counts in `redis`.
async fn node(redis: &RedisServer, upstream: &Upstream) -> Door {
    let services = format!(
        "- name: api\n  url: {}\n  routes: [{{name: api, hosts: [api.test]}}]\n  plugins:\n  \
         - name: throttling\n    instance_name: limits\n    config:\n      \
         requestGroupingPolicy: \"${{request.headers['X-User'][0]}}\"\n      \
         rates: [6/6 h, 100/1 day]\n      headers: draft\n",
        upstream.url("")
    );
    let setup = Setup::new().services(&services);
    let mut door = setup.env("REDIS_PASSWORD", "open-sesame").lay_out();
    let section = format!(
        "redis: {{url: 'redis://127.0.0.1:{}', password: '&{{redis.password}}', deadline: 10 s}}\n",
        redis.port.number()
    );
    door.edit(
        "doorward.yaml",
        "telemetry:",
        &format!("{section}telemetry:"),
    );
    door.start().await;
    up(&door, 1).await;
    door
}

async fn up(door: &Door, expected: u8) {
    let line = format!("doorward_redis_up {expected}\n");
    eventually(&line, || async {
        let metrics = door.admin_get("/metrics").await.body;
        metrics.contains(&line).then_some(())
    })
    .await;
}

async fn ask(door: &Door, user: &str) -> Answer {
    let request = http::client().get(door.proxy_url("/"));
    http::send(request.header("host", "api.test").header("x-user", user)).await
}

async fn upstream() -> Upstream {
    Upstream::start(|_| Reply::Json(200, serde_json::json!({}))).await
}

#[tokio::test]
async fn nodes_take_from_one_bucket_and_an_operator_fills_it_for_all() {
    let (redis, upstream) = (redis_on(Port::reserve()), upstream().await);
    let doors = [node(&redis, &upstream).await, node(&redis, &upstream).await];
    for n in 0..6 {
        let answer = ask(&doors[n % 2], "ada").await.expect(200);
        let told = answer.header("ratelimit");
        let hour = format!("\"6/6h\";r={};t=", 5 - n);
        assert!(told.starts_with(&hour), "{told}");
        let day = format!(", \"100/1d\";r={}", 99 - n);
        assert!(told.contains(&day), "{told}");
    }
    for door in &doors {
        for _ in 0..3 {
            let refused = ask(door, "ada").await.expect(429);
            let wait = refused.header("retry-after");
            let state = format!("\"6/6h\";r=0;t={wait}, \"100/1d\";r=94;t=");
            assert!(refused.header("ratelimit").starts_with(&state), "{state}");
        }
        ask(door, "bob").await.expect(200);
    }

    let shown = doors[0]
        .admin_get("/throttling/limits?reveal=1")
        .await
        .expect(200);
    let shown: serde_json::Value = serde_json::from_str(&shown.body).expect("JSON");
    assert_eq!(shown["counters"], "shared");
    assert_eq!(shown["hottest"][0]["partition"], "ada");
    assert_eq!(shown["hottest"][0]["buckets"][0]["remaining"], 0);
    let id = shown["hottest"][0]["id"].as_str().expect("an id");
    let hidden = doors[0].admin_get("/throttling/limits").await.expect(200);
    // Identifiers are hexadecimal digits, and may have the letters of a name among them.
    let names = ["\"ada\"", "\"partition\""].map(|text| hidden.body.contains(text));
    assert!(hidden.body.contains(id), "{}", hidden.body);
    assert_eq!(names, [false, false], "{}", hidden.body);
    doors[0]
        .admin_delete(&format!("/throttling/limits/{id}"))
        .await
        .expect(204);
    ask(&doors[0], "ada").await.expect(200);
    // The other node may think the bucket empty for a second more.
    eventually("the other node to hear of it", || async {
        (ask(&doors[1], "ada").await.status == 200).then_some(())
    })
    .await;
    for door in &doors {
        assert!(!door.log_text().contains("open-sesame"));
    }
}

#[tokio::test]
async fn without_its_redis_a_node_counts_alone_from_where_it_was() {
    let (redis, upstream) = (redis_on(Port::reserve()), upstream().await);
    let door = node(&redis, &upstream).await;
    for _ in 0..4 {
        ask(&door, "ada").await.expect(200);
    }
    let port = redis.stop();
    for expected in [200, 200, 429, 429] {
        ask(&door, "ada").await.expect(expected);
    }
    up(&door, 0).await;
    let gone = |line: &str| line.contains("gives no answer: counting in this process alone");
    door.wait_log("the loss to be said", gone).await;
    let metrics = door.admin_get("/metrics").await.body;
    assert!(
        metrics.contains("doorward_throttle_local_total "),
        "{metrics}"
    );
    assert!(
        !metrics.contains("doorward_throttle_local_total 0\n"),
        "{metrics}"
    );

    let _redis = redis_on(port);
    up(&door, 1).await;
    // The new one is empty: what was counted went with the old one.
    ask(&door, "carol").await.expect(200);
    let said = door.log_text().lines().filter(|line| gone(line)).count();
    assert_eq!(said, 1, "it is said once");
}
