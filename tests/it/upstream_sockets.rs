//! Upstreams on Unix sockets of the same machine.

use serde_json::json;

use crate::support::raw::Connection;
use crate::support::{Door, Setup, Upstream, eventually, http};

/// A gateway whose listener is a socket, before `upstream`.
async fn behind(upstream: &Upstream) -> Door {
    let service = format!(
        "- {{name: app, url: '{}', routes: [{{paths: [/], preserve_host: true}}]}}\n",
        upstream.url("")
    );
    let proxy = "{listen: [\"unix:@DIR@/app.sock\", \"@PROXY@\"], workers: 1}";
    Setup::new().proxy(proxy).services(&service).start().await
}

async fn door_to(socket: &str) -> Door {
    let service = format!(
        "- {{name: app, url: 'http://app.test/base', socket: {socket}, retries: 1, \
         routes: [{{name: app, paths: [/app]}}]}}\n"
    );
    Setup::new().services(&service).start().await
}

#[tokio::test]
async fn requests_of_each_kind_go_to_a_socket() {
    let upstream = Upstream::echo().await;
    let mut app = behind(&upstream).await;
    let socket = app.path("app.sock").display().to_string();
    let door = door_to(&socket).await;
    for _ in 0..3 {
        door.get("a.test", "/app/x?y=1").await.expect(200);
    }
    let seen = upstream.last();
    assert_eq!(seen.target, "/base/x?y=1");
    // The name is for the upstream, and nobody is asked for its address.
    assert_eq!(seen.header("host"), Some("app.test"));
    let long = http::client().post(door.proxy_url("/app"));
    http::send(long.body(vec![b'x'; 300_000])).await.expect(200);
    assert_eq!(upstream.last().length, 300_000);
    let two = http::builder().http2_prior_knowledge();
    let two = two.build().expect("a client");
    http::send(two.get(door.proxy_url("/app")))
        .await
        .expect(200);
    let socket = b"GET /app HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\n\
        Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let mut connection = Connection::open(&door.proxy()).await;
    connection.send(socket).await;
    assert_eq!(connection.head().await.status, 200);
    // A server that is gone, and one that is back.
    app.signal("TERM");
    assert!(app.wait_exit().await.success());
    door.get("a.test", "/app").await.expect(502);
    app.start().await;
    eventually("the server to be back", || async {
        let answer = door.get("a.test", "/app").await;
        (answer.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_admin_api_leads_to_no_socket_of_the_machine() {
    let door = Setup::new().start().await;
    let service = json!({"name": "app", "host": "app.test", "socket": "/run/docker.sock"});
    let refused = door.admin_post("/services", &service).await.expect(400);
    assert!(refused.body.contains("only files"), "{}", refused.body);
    let plain = json!({"name": "app", "host": "app.test"});
    door.admin_post("/services", &plain).await.expect(201);
    let request = http::client().patch(door.admin_url("/services/app"));
    let changed = request.json(&json!({"socket": "/run/docker.sock"}));
    http::send(changed).await.expect(400);
    let kept = door.admin_get("/services/app").await.expect(200).json();
    assert!(kept.get("socket").is_none(), "{kept}");
}

#[test]
fn what_is_no_socket_is_refused_at_its_key() {
    for fields in [
        "url: 'http://app.test', socket: app.sock",
        "url: 'http://app.test', socket: /run/../etc/app.sock",
        "url: 'http://app.test', socket: ''",
        "protocol: internal, host: echo, socket: /run/app.sock",
        "url: 'http://group', socket: /run/app.sock",
    ] {
        let service = format!("- {{name: app, {fields}}}\nupstreams:\n- {{name: group}}\n");
        let door = Setup::new().services(&service).lay_out();
        let output = door.run(&["check", "-c", "doorward.yaml"]);
        assert_eq!(output.status.code(), Some(1), "{fields}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("socket"), "{fields}: {said}");
    }
}
