//! Streams of the plugin `mcp` last no longer than what they were opened with.

use reqwest::Response;

use crate::mcp::{door_with, token_of};
use crate::support::http::client;
use crate::support::{Door, Reply, Upstream};

const EVENT: &str = "data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\n";

/// A server that sends one event and is silent then.
async fn server() -> Upstream {
    Upstream::start(|_| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        Reply::Unended(format!("{head}{EVENT}").into_bytes())
    })
    .await
}

/// A stream whose first event has come.
async fn opened(door: &Door, token: &str, listens: bool) -> Response {
    let url = door.proxy_url("/mcp");
    let request = if listens {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}"#;
        let request = client().post(url).body(call);
        request.header("mcp-method", "subscriptions/listen")
    } else {
        client().get(url)
    };
    let request = request.header("accept", "application/json, text/event-stream");
    let request = request.header("content-type", "application/json");
    let mut stream = request.bearer_auth(token).send().await.expect("an answer");
    assert_eq!(stream.status(), 200);
    let event = stream.chunk().await.expect("a piece").expect("an event");
    assert_eq!(event, EVENT);
    stream
}

/// Nothing else comes: the stream is cut, or at its end.
async fn ends(mut stream: Response) {
    assert!(!matches!(stream.chunk().await, Ok(Some(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_stream_ends_when_its_token_is_revoked() {
    let upstream = server().await;
    let door = door_with(&upstream, "").await;
    let resource = door.proxy_url("/mcp");
    for listens in [false, true] {
        let token = token_of(&door, "alice", &resource).await;
        let stream = opened(&door, &token, listens).await;
        door.revoke(&token).await;
        ends(stream).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_stream_ends_with_its_user() {
    let upstream = server().await;
    let door = door_with(&upstream, "").await;
    door.run_well(&["users", "add", "anna", "--password", "Ch4ng31t-anna"]);
    let resource = door.proxy_url("/mcp");
    let token = token_of(&door, "anna", &resource).await;
    let stream = opened(&door, &token, false).await;
    door.run_well(&["users", "delete", "anna"]);
    ends(stream).await;
}
