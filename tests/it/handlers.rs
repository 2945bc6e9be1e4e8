//! Requests on their way through the trees of route files: what runs in which
//! order, where they go, and what comes back.

mod bodies;
mod corners;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

use crate::support::raw::Connection;
use crate::support::upstream::{ReceivedRequest, Reply};
use crate::support::{Door, Setup, Upstream, http};

/// A door with these route files, and the services of [`Setup::new`].
async fn door(files: &[(&str, Value)]) -> Door {
    door_with(Setup::new(), files).await
}

async fn door_with(setup: Setup, files: &[(&str, Value)]) -> Door {
    let mut door = setup.lay_out();
    std::fs::create_dir(door.path("files")).expect("a directory");
    door.edit(
        "doorward.yaml",
        "routes.yaml\"]",
        "routes.yaml\", \"@DIR@/files\"]",
    );
    for (name, content) in files {
        door.write(&format!("files/{name}.json"), &content.to_string());
    }
    door.start().await;
    door
}

fn path_is(prefix: &str) -> String {
    format!("${{matches(request.uri.path, '^{prefix}')}}")
}

fn says(status: u16, entity: &str) -> Value {
    json!({"type": "StaticResponseHandler", "config": {
        "status": status, "headers": {"Content-Type": ["text/plain"]}, "entity": entity}})
}

fn header(message: &str, name: &str, value: &str) -> Value {
    json!({"type": "HeaderFilter", "config": {"messageType": message, "add": {name: [value]}}})
}

fn chain(filters: Vec<Value>, handler: Value) -> Value {
    json!({"type": "Chain", "config": {"filters": filters, "handler": handler}})
}

fn route(upstream: &Upstream, prefix: &str, handler: Value) -> Value {
    json!({"baseURI": upstream.url("/ignored"), "condition": path_is(prefix), "handler": handler})
}

async fn echo() -> Upstream {
    Upstream::start(|seen| match seen.target.as_str() {
        "/missing" => Reply::Json(404, json!({"upstream": "has none"})),
        "/empty" => Reply::Raw(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec()),
        "/gone" => Reply::Close,
        "/long" => Reply::Stream {
            length: 1 << 20,
            chunked: true,
        },
        _ => Reply::Json(200, seen.json()),
    })
    .await
}

/// A filter that logs in: another method, target and body.
fn login(upstream: &Upstream) -> Value {
    json!({"type": "StaticRequestFilter", "config": {
        "method": "POST", "uri": upstream.url("/login"),
        "form": {"user": ["${request.queryParams['u'][0]}"]}}})
}

#[tokio::test]
async fn a_request_goes_to_the_base_uri_with_its_own_path_and_query() {
    let upstream = echo().await;
    let door = door(&[(
        "app",
        route(&upstream, "/app", json!("ReverseProxyHandler")),
    )])
    .await;
    let answer = door
        .get("www.example:8000", "/app/%7Ea//b?x=%2f&y")
        .await
        .expect(200);
    let seen = upstream.last();
    assert_eq!(seen.target, "/app/~a/b?x=%2f&y");
    let authority = upstream.address().to_string();
    assert_eq!(seen.header("host"), Some(authority.as_str()));
    assert_eq!(seen.header("x-forwarded-host"), Some("www.example"));
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(seen.header("x-forwarded-path"), Some("/app/~a/b"));
    assert_eq!(seen.all("via").len(), 1);
    assert!(
        answer.header("via").contains("doorward"),
        "{:?}",
        answer.headers
    );
    let line = door
        .wait_log("a line of the request", |line| line.contains("/app/~a/b"))
        .await;
    assert!(line.contains("app"), "{line}");
    door.get("a.test", "/other").await.expect(404);
    door.get("a.test", "/openig/app").await.expect(404);
}

#[tokio::test]
async fn entity_routes_are_asked_before_route_files() {
    let upstream = echo().await;
    let service = format!(
        "- {{name: web, url: '{}', routes: [{{name: web, paths: [/app/own], strip_path: false}}]}}\n",
        upstream.url("")
    );
    let setup = Setup::new().services(&service);
    let door = door_with(setup, &[("all", json!({"handler": says(200, "file")}))]).await;
    assert_eq!(door.get("a.test", "/app").await.expect(200).body, "file");
    door.get("a.test", "/app/own").await.expect(200);
    assert_eq!(upstream.last().target, "/app/own");
}

#[tokio::test]
async fn filters_run_in_order_on_requests_and_in_reverse_on_answers() {
    let upstream = echo().await;
    let inner = chain(
        vec![
            header("REQUEST", "X-Way", "3"),
            header("RESPONSE", "X-Back", "3"),
        ],
        json!("ClientHandler"),
    );
    let tree = chain(
        vec![
            header("RESPONSE", "X-Back", "1"),
            header("REQUEST", "X-Way", "1"),
            header("REQUEST", "X-Way", "2 after ${request.headers['X-Way'][0]}"),
            header("RESPONSE", "X-Back", "2"),
        ],
        inner,
    );
    let door = door(&[("app", route(&upstream, "/", tree))]).await;
    let answer = door.get("a.test", "/").await.expect(200);
    assert_eq!(upstream.last().all("x-way"), ["1", "2 after 1", "3"]);
    let back: Vec<_> = answer.headers.get_all("x-back").iter().collect();
    assert_eq!(back, ["3", "2", "1"]);
}

#[tokio::test]
async fn an_earlier_filter_sees_the_answer_of_a_throttle() {
    let upstream = echo().await;
    let throttle = json!({"type": "ThrottlingFilter", "config": {
        "rate": {"numberOfRequests": 1, "duration": "1 hour"}}});
    let tree = chain(
        vec![
            header("RESPONSE", "X-Front", "yes"),
            throttle,
            header("RESPONSE", "X-Behind", "yes"),
        ],
        json!("ReverseProxyHandler"),
    );
    let door = door(&[("app", route(&upstream, "/", tree))]).await;
    let first = door.get("a.test", "/").await.expect(200);
    assert_eq!(
        (first.header("x-front"), first.header("x-behind")),
        ("yes", "yes")
    );
    let second = door.get("a.test", "/").await.expect(429);
    assert_eq!(
        (second.header("x-front"), second.header("x-behind")),
        ("yes", "")
    );
    assert_eq!(second.header("retry-after"), "3600");
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test]
async fn dispatchers_and_nested_routers_choose() {
    let upstream = echo().await;
    let dispatch = json!({"type": "DispatchHandler", "config": {"bindings": [
        {"condition": "${request.method == 'POST'}", "handler": says(201, "posted")},
        {"condition": path_is("/d/app"), "baseURI": upstream.url(""),
         "handler": "ReverseProxyHandler"},
        {"condition": "${'true'}", "handler": says(200, "a text is not true")},
    ]}});
    let router = json!({"type": "Router", "config": {
        "directory": "@DIR@/nested", "defaultHandler": says(202, "default")}});
    let setup = Setup::new();
    let mut door = setup.lay_out();
    for directory in ["files", "nested"] {
        std::fs::create_dir(door.path(directory)).expect("a directory");
    }
    door.edit(
        "doorward.yaml",
        "routes.yaml\"]",
        "routes.yaml\", \"@DIR@/files\"]",
    );
    let nested = json!({"condition": path_is("/n/in"), "handler": says(200, "nested")});
    door.write("nested/in.json", &nested.to_string());
    let file = json!({"condition": path_is("/d"), "handler": dispatch});
    door.write("files/d.json", &file.to_string());
    let file = json!({"condition": path_is("/n"), "handler": router});
    door.write("files/n.json", &file.to_string());
    door.start().await;

    door.get("a.test", "/d/app/x").await.expect(200);
    assert_eq!(upstream.last().target, "/d/app/x");
    let posted = http::send(http::client().post(door.proxy_url("/d/app"))).await;
    assert_eq!((posted.status, posted.body.as_str()), (201, "posted"));
    let none = door.get("a.test", "/d/none").await.expect(404);
    assert_eq!(none.body, "", "no binding took it");
    assert_eq!(door.get("a.test", "/n/in").await.expect(200).body, "nested");
    assert_eq!(
        door.get("a.test", "/n/out").await.expect(202).body,
        "default"
    );
}

#[tokio::test]
async fn a_base_uri_may_be_of_each_request() {
    let (one, two) = (echo().await, echo().await);
    let base = format!(
        "${{request.headers['X-To'][0] == 'two' ? '{}' : \
         request.headers['X-To'][0] == 'one' ? '{}' : request.headers['X-Else'][0]}}",
        two.url(""),
        one.url("")
    );
    let door = door(&[(
        "app",
        json!({"baseURI": base, "handler": "ReverseProxyHandler"}),
    )])
    .await;
    let ask = async |name: &'static str, value: String| {
        let request = http::client().get(door.proxy_url("/x"));
        http::send(request.header(name, value)).await
    };
    ask("x-to", "two".to_owned()).await.expect(200);
    ask("x-to", "one".to_owned()).await.expect(200);
    ask("x-to", "two".to_owned()).await.expect(200);
    assert_eq!((one.seen().len(), two.seen().len()), (1, 2));
    ask("x-none", String::new()).await.expect(500);
    ask("x-else", "not a base".to_owned()).await.expect(500);
    ask("x-else", format!("http://{}/ignored", "a".repeat(3000)))
        .await
        .expect(500);
    ask("x-else", "internal://elsewhere".to_owned())
        .await
        .expect(500);
    let echoed = ask("x-else", "internal://echo/ignored".to_owned())
        .await
        .expect(200);
    assert_eq!(echoed.json()["path"], "/x");
}

#[tokio::test]
async fn a_handler_without_a_base_uri_asks_no_host_that_a_client_names() {
    let upstream = echo().await;
    let door = door(&[("open", json!({"handler": "ReverseProxyHandler"}))]).await;
    let host = upstream.address().to_string();
    let answer = door.get(&host, "/").await.expect(502);
    assert!(answer.body.contains("no upstream"), "{}", answer.body);
    // In HTTP/2 the target names it.
    let (status, _) = h2_exchange(&door, "GET", &format!("http://{host}/"), Bytes::new()).await;
    assert_eq!(status, 502);
    let mut connection = Connection::open(&door.proxy()).await;
    let absolute = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
    connection.send(absolute.as_bytes()).await;
    assert_eq!(connection.response().await.status, 502);
    assert!(upstream.seen().is_empty());
    door.wait_log("the reason", |line| line.contains("no_base_uri"))
        .await;
}

#[tokio::test]
async fn static_answers_are_framed_by_the_gateway() {
    let answer = json!({"type": "StaticResponseHandler", "config": {
        "status": 200, "reason": "Very Well", "headers": {
            "X-Path": ["${request.uri.path}"], "Content-Type": ["text/html"]},
        "entity": "<p>${request.uri.path}</p>"}});
    let bare = json!({"type": "StaticResponseHandler", "config": {
        "status": 204, "entity": "never sent"}});
    let door = door(&[
        (
            "bare",
            json!({"condition": path_is("/bare"), "handler": bare}),
        ),
        (
            "page",
            json!({"condition": path_is("/page"), "handler": answer}),
        ),
    ])
    .await;
    let mut connection = Connection::open(&door.proxy()).await;
    let ask = |method: &str, path: &str| {
        format!("{method} {path} HTTP/1.1\r\nHost: a.test\r\n\r\n").into_bytes()
    };
    connection.send(&ask("GET", "/bare")).await;
    let none = connection.response().await;
    assert_eq!((none.status, none.header("content-length")), (204, None));
    connection.send(&ask("HEAD", "/page")).await;
    let head = connection.head().await;
    assert_eq!(head.header("content-length"), Some("12"));
    connection
        .send(&ask("GET", "/page/%0d%0aSet-Cookie:%20a=b"))
        .await;
    let injected = connection.response().await;
    assert_eq!(injected.status, 400, "control bytes go nowhere");
    let mut connection = Connection::open(&door.proxy()).await;
    connection.send(&ask("GET", "/page")).await;
    let page = connection.response().await;
    assert_eq!((page.status, page.text().as_str()), (200, "<p>/page</p>"));
    assert_eq!(page.header("x-path"), Some("/page"));
    assert_eq!(page.header("content-type"), Some("text/html"));
}

#[tokio::test]
async fn a_header_made_of_a_request_smuggles_nothing() {
    let upstream = echo().await;
    let tree = chain(
        vec![
            header("REQUEST", "X-Copy", "${request.queryParams['v'][0]}"),
            header("RESPONSE", "X-Copy", "${request.queryParams['v'][0]}"),
        ],
        json!("ReverseProxyHandler"),
    );
    let door = door(&[("app", route(&upstream, "/", tree))]).await;
    let answer = door
        .get(
            "a.test",
            "/?v=a%0d%0aContent-Length:%200%0d%0a%0d%0aGET%20/evil%20HTTP/1.1",
        )
        .await
        .expect(200);
    assert_eq!(answer.header("x-copy"), "");
    assert_eq!(upstream.last().header("x-copy"), None);
    // What a client nominates away is not what a filter has set.
    let mut connection = Connection::open(&door.proxy()).await;
    let nominated = "GET /?v=set HTTP/1.1\r\nHost: a.test\r\nX-Copy: client\r\n\
         Connection: keep-alive, x-copy\r\n\r\n";
    connection.send(nominated.as_bytes()).await;
    assert_eq!(connection.response().await.status, 200);
    assert_eq!(upstream.last().all("x-copy"), ["set"]);
    assert_eq!(upstream.seen().len(), 2);
}

/// A switch on answers: 404 and failures of the upstream get a page.
fn switched() -> Value {
    let cases = json!([
        {"condition": "${response.status.code == 404}",
         "handler": says(200, "instead of ${response.status.code}")},
        {"condition": "${response.status.code == 502}", "handler": says(503, "later")},
    ]);
    let switch = json!({"type": "SwitchFilter", "config": {
        "onRequest": [{"condition": path_is("/divert"), "handler": says(202, "diverted")}],
        "onResponse": cases}});
    chain(
        vec![header("RESPONSE", "X-Front", "yes"), switch],
        json!("ReverseProxyHandler"),
    )
}

#[tokio::test]
async fn a_switch_replaces_answers_and_keeps_the_connection() {
    let upstream = echo().await;
    let door = door(&[("app", route(&upstream, "/", switched()))]).await;
    let mut connection = Connection::open(&door.proxy()).await;
    for (path, status, body) in [
        ("/missing", 200, "instead of 404"),
        ("/empty", 200, "instead of 404"),
        ("/divert", 202, "diverted"),
        ("/missing", 200, "instead of 404"),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n");
        connection.send(request.as_bytes()).await;
        let answer = connection.response().await;
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (status, body),
            "{path}"
        );
        assert_eq!(answer.header("x-front"), Some("yes"), "{path}");
    }
    connection
        .send(b"HEAD /missing HTTP/1.1\r\nHost: a.test\r\n\r\n")
        .await;
    let head = connection.head().await;
    assert_eq!(
        (head.status, head.header("content-length")),
        (200, Some("14"))
    );
    connection
        .send(b"POST /missing HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc")
        .await;
    assert_eq!(connection.response().await.text(), "instead of 404");
    connection
        .send(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
        .await;
    assert_eq!(connection.response().await.status, 200);
}

#[tokio::test]
async fn a_switch_sees_the_failure_of_an_upstream() {
    let upstream = echo().await;
    let door = door(&[("app", route(&upstream, "/", switched()))]).await;
    let answer = door.get("a.test", "/gone").await.expect(503);
    assert_eq!(
        (answer.body.as_str(), answer.header("x-front")),
        ("later", "yes")
    );
    let (status, body) = h2_exchange(&door, "GET", "http://a.test/missing", Bytes::new()).await;
    assert_eq!((status, &*body), (200, &b"instead of 404"[..]));
    let (status, body) = h2_exchange(&door, "GET", "http://a.test/empty", Bytes::new()).await;
    assert_eq!((status, &*body), (200, &b"instead of 404"[..]));
}

#[tokio::test]
async fn a_long_answer_that_is_replaced_is_not_waited_for() {
    let upstream = echo().await;
    let switch = json!({"type": "SwitchFilter", "config": {
        "onResponse": [{"condition": path_is("/long"), "handler": says(200, "short")}]}});
    let tree = chain(vec![switch], json!("ReverseProxyHandler"));
    let door = door(&[("app", route(&upstream, "/", tree))]).await;
    let mut connection = Connection::open(&door.proxy()).await;
    for path in ["/long", "/", "/long", "/"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n");
        connection.send(request.as_bytes()).await;
        let answer = connection.response().await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.text() == "short", path == "/long", "{path}");
    }
    let (status, body) = h2_exchange(&door, "GET", "http://a.test/long", Bytes::new()).await;
    assert_eq!((status, &*body), (200, &b"short"[..]));
}

#[tokio::test]
async fn an_upstream_entity_balances_a_base_uri_of_its_name() {
    let (one, two) = (echo().await, echo().await);
    let upstreams = format!(
        "upstreams:\n- name: pool.test\n  targets: [{{target: '{}'}}, {{target: '{}'}}]\n",
        one.address(),
        two.address()
    );
    let file = json!({"baseURI": "http://pool.test", "handler": "ReverseProxyHandler"});
    let door = door_with(Setup::new().services(&upstreams), &[("app", file)]).await;
    for _ in 0..4 {
        door.get("a.test", "/").await.expect(200);
    }
    assert_eq!((one.seen().len(), two.seen().len()), (2, 2));
}

#[tokio::test]
async fn explain_tells_what_a_route_file_makes_of_a_request() {
    let upstream = echo().await;
    let service =
        "- {name: own, url: 'http://127.0.0.1:9', routes: [{name: own, paths: [/app/own]}]}\n";
    let tree = chain(
        vec![header("REQUEST", "X-Way", "1")],
        json!("ReverseProxyHandler"),
    );
    let files = [("app", route(&upstream, "/app", tree))];
    let door = door_with(Setup::new().services(service), &files).await;
    let ask = async |path: &str| {
        let question = json!({"url": format!("http://a.test{path}")});
        door.admin_post("/explain", &question)
            .await
            .expect(200)
            .json()
    };
    let told = ask("/app/x").await;
    assert_eq!(told["file_route"]["id"], "app", "{told}");
    assert_eq!(told["file_route"]["shadowed"], false);
    assert_eq!(told["file_route"]["destination"], upstream.url(""));
    let steps = told["file_route"]["steps"].to_string();
    assert!(
        steps.contains("HeaderFilter") && steps.contains("proxies"),
        "{steps}"
    );
    assert_eq!(told["refusal"], Value::Null);
    let told = ask("/app/own").await;
    assert_eq!(
        (&told["file_route"]["shadowed"], &told["route"]["name"]),
        (&json!(true), &json!("own"))
    );
    let told = ask("/none").await;
    assert_eq!(
        (&told["file_route"], &told["refusal"]["status"]),
        (&Value::Null, &json!(404))
    );
    let output = door.run(&[
        "explain",
        "GET",
        "http://a.test/app/x",
        "-c",
        "doorward.yaml",
    ]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.contains("file      app"),
        "{text}"
    );
}

/// One request on an HTTP/2 connection of its own.
async fn h2_exchange(door: &Door, method: &str, target: &str, body: Bytes) -> (u16, Vec<u8>) {
    let stream = TcpStream::connect(door.proxy())
        .await
        .expect("a connection");
    let (client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    let mut client = client.ready().await.expect("ready");
    let request = ::http::Request::builder().method(method).uri(target);
    let request = request.body(()).expect("a request");
    let (answer, mut sender) = client.send_request(request, body.is_empty()).expect("sent");
    if !body.is_empty() {
        sender.send_data(body, true).expect("sent");
    }
    let answer = answer.await.expect("an answer");
    let status = answer.status().as_u16();
    let mut stream = answer.into_body();
    let mut all = Vec::new();
    while let Some(piece) = stream.data().await {
        let piece = piece.expect("no error");
        let _ = stream.flow_control().release_capacity(piece.len());
        all.extend_from_slice(&piece);
    }
    (status, all)
}
