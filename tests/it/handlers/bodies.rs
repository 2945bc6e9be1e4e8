//! Bodies on their way through route files, and those that filters put in their place.

use super::*;

fn is_login(seen: &ReceivedRequest, user: &str) {
    assert_eq!(
        (seen.method.as_str(), seen.target.as_str()),
        ("POST", "/login")
    );
    let body = format!("user={user}");
    assert_eq!(String::from_utf8_lossy(&seen.body), body);
    let length = body.len().to_string();
    assert_eq!(seen.all("content-length"), [length.as_str()]);
    assert_eq!(seen.header("transfer-encoding"), None);
}

#[tokio::test]
async fn a_filter_replaces_method_target_and_body() {
    let upstream = echo().await;
    let tree = chain(vec![login(&upstream)], json!("ClientHandler"));
    let door = door(&[(
        "login",
        json!({"condition": path_is("/in"), "handler": tree}),
    )])
    .await;
    let mut connection = Connection::open(&door.proxy()).await;
    let large = "x".repeat(100 << 10);
    let length = large.len();
    for (user, request) in [
        ("a", "GET /in?u=a HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned()),
        ("b", "PUT /in?u=b HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nhi".to_owned()),
        ("c", format!("PUT /in?u=c HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\n\r\n{large}")),
        ("d", "POST /in?u=d HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n1\r\n!\r\n0\r\n\r\n".to_owned()),
        ("e", "GET /in?u=e HTTP/1.1\r\nHost: a.test\r\n\r\n".to_owned()),
    ] {
        connection.send(request.as_bytes()).await;
        assert_eq!(connection.response().await.status, 200, "{user}");
        is_login(&upstream.last(), user);
    }
    // Requests with a long body or one of unknown length have connections of their own.
    let connections: Vec<_> = upstream.seen().iter().map(|seen| seen.connection).collect();
    let [a, b, c, d, e] = connections[..] else {
        panic!("{connections:?}")
    };
    assert!(a == b && b == e && c == d, "{connections:?}");
    connection
        .send(b"HEAD /in?u=f HTTP/1.1\r\nHost: a.test\r\n\r\n")
        .await;
    assert_eq!(connection.head().await.status, 200);
    for (user, body) in [("g", Bytes::new()), ("h", Bytes::from(large.into_bytes()))] {
        let target = format!("http://a.test/in?u={user}");
        let (status, _) = h2_exchange(&door, "POST", &target, body).await;
        assert_eq!(status, 200, "{user}");
        is_login(&upstream.last(), user);
    }
    let line = door
        .wait_log("the first", |line| line.contains("/in"))
        .await;
    assert!(line.contains("GET"), "as the client asked: {line}");
}

#[tokio::test]
async fn a_client_that_waits_to_be_asked_for_a_body_is_asked() {
    let upstream = echo().await;
    let tree = chain(vec![login(&upstream)], json!("ClientHandler"));
    let door = door(&[("login", json!({"handler": tree}))]).await;
    for framing in ["Content-Length: 90000", "Content-Length: 5"] {
        let mut connection = Connection::open(&door.proxy()).await;
        let head = format!(
            "PUT /in?u=a HTTP/1.1\r\nHost: a.test\r\n{framing}\r\nExpect: 100-continue\r\n\r\n"
        );
        connection.send(head.as_bytes()).await;
        assert_eq!(connection.head().await.status, 100, "{framing}");
        let length: usize = framing
            .rsplit(' ')
            .next()
            .expect("a length")
            .parse()
            .expect("it");
        connection.send(&vec![b'x'; length]).await;
        assert_eq!(connection.response().await.status, 200);
        is_login(&upstream.last(), "a");
        assert_eq!(upstream.last().header("expect"), None);
    }
}

#[tokio::test]
async fn bodies_stream_through_route_files() {
    let upstream = echo().await;
    let tree = chain(
        vec![header("RESPONSE", "X-Front", "yes")],
        json!("ReverseProxyHandler"),
    );
    let door = door(&[("app", route(&upstream, "/", tree))]).await;
    let mut connection = Connection::open(&door.proxy()).await;
    connection
        .send(b"PUT /up HTTP/1.1\r\nHost: a.test\r\nContent-Length: 8388608\r\n\r\n")
        .await;
    for _ in 0..32 {
        connection.send(&vec![b'y'; 1 << 18]).await;
    }
    assert_eq!(connection.response().await.status, 200);
    assert_eq!(upstream.last().length, 8_388_608);
    connection
        .send(b"GET /long HTTP/1.1\r\nHost: a.test\r\n\r\n")
        .await;
    let answer = connection.response().await;
    assert_eq!(
        (answer.body.len(), answer.header("x-front")),
        (1 << 20, Some("yes"))
    );
    let (status, body) = h2_exchange(&door, "GET", "http://a.test/long", Bytes::new()).await;
    assert_eq!((status, body.len()), (200, 1 << 20));
    assert_eq!(upstream.last().header("x-forwarded-host"), Some("a.test"));
}

#[tokio::test]
async fn websockets_pass_through_route_files() {
    let upstream = Upstream::start(|_| Reply::WebSocket).await;
    let switch = json!({"type": "SwitchFilter", "config": {
        "onResponse": [{"handler": says(200, "never for an upgrade")}]}});
    let tree = chain(
        vec![header("REQUEST", "X-Way", "ws"), switch],
        json!("ReverseProxyHandler"),
    );
    let door = door(&[("app", route(&upstream, "/chat", tree))]).await;
    let url = format!("ws://{}/chat", door.proxy());
    let (mut socket, response) = tokio_tungstenite::connect_async(url)
        .await
        .expect("switched");
    assert_eq!(response.status(), 101);
    socket.send(Message::text("hello")).await.expect("sent");
    let back = socket.next().await.expect("a message").expect("no error");
    assert_eq!(back.into_text().expect("text").as_str(), "hello");
    assert_eq!(upstream.last().header("x-way"), Some("ws"));
}
