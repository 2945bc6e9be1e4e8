//! Requests of every kind on one connection: some go by the gateway's forwarding loop,
//! others by the engine, and the client can't tell which.

use crate::support::raw::Connection;
use crate::support::{Setup, Upstream};

/// A door whose `/h1` goes to `upstream`, and whose `/h2` goes in HTTP/2 to another
/// door that shows what it gets.
async fn doors(upstream: &Upstream) -> [crate::support::Door; 2] {
    let echo = "- {name: echo, protocol: internal, host: echo, routes: [{paths: [/]}]}\n";
    let behind = Setup::new().services(echo).start().await;
    let services = format!(
        "- {{name: one, url: '{}', routes: [{{paths: [/h1], strip_path: false}}]}}\n\
         - {{name: two, url: 'grpc://{}', routes: [{{paths: [/h2], protocols: [http], \
         strip_path: false}}]}}\n",
        upstream.url(""),
        behind.proxy(),
    );
    [Setup::new().services(&services).start().await, behind]
}

#[tokio::test]
async fn one_connection_carries_requests_of_every_kind() {
    let upstream = Upstream::echo().await;
    let [door, _behind] = doors(&upstream).await;
    let mut connection = Connection::open(&door.proxy()).await;
    for round in 0..3 {
        for request in [
            "GET /h1/plain HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "GET /h2/handed/over HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "POST /h1/body HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nhi",
            "GET /h1/named HTTP/1.1\r\nHost: a.test\r\nConnection: x-a\r\nX-A: 1\r\n\r\n",
        ] {
            connection.send(request.as_bytes()).await;
            let answer = connection.response().await;
            assert_eq!(answer.status, 200, "{round}: {request}");
        }
        assert_eq!(upstream.last().header("x-a"), None);
    }
    connection
        .send(b"GET /nowhere HTTP/1.1\r\nHost: a.test\r\n\r\n")
        .await;
    assert_eq!(connection.response().await.status, 404);
}

#[tokio::test]
async fn requests_that_come_before_their_turn_are_answered_in_order() {
    let upstream = Upstream::echo().await;
    let [door, _behind] = doors(&upstream).await;
    let mut connection = Connection::open(&door.proxy()).await;
    let all = "GET /h1/1 HTTP/1.1\r\nHost: a.test\r\n\r\n\
               GET /h2/2 HTTP/1.1\r\nHost: a.test\r\n\r\n\
               POST /h1/3 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nhi\
               GET /h1/4 HTTP/1.1\r\nHost: a.test\r\n\r\n\
               GET /nowhere HTTP/1.1\r\nHost: a.test\r\n\r\n\
               GET /h1/5 HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
    connection.send(all.as_bytes()).await;
    for status in [200, 200, 200, 200, 404, 200] {
        assert_eq!(connection.response().await.status, status);
    }
    let seen = upstream.seen();
    let requests: Vec<_> = (seen.iter())
        .map(|seen| (&*seen.method, &*seen.target))
        .collect();
    let expected = [
        ("GET", "/h1/1"),
        ("POST", "/h1/3"),
        ("GET", "/h1/4"),
        ("GET", "/h1/5"),
    ];
    assert_eq!(requests, expected, "no byte of a request is lost");
}
