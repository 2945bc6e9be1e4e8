//! Streams of the plugin `mcp` last no longer than what they were opened with.

use futures_util::FutureExt;
use reqwest::Response;
use serde_json::{Value, json};

use crate::mcp::{door_with, token_of};
use crate::mcp_rules::post;
use crate::support::http::{Answer, client, send};
use crate::support::{Door, Reply, Upstream};

const EVENT: &str = "data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\n";

/// A session that the server has begun and no longer knows, and what it says of that.
const FORGOTTEN: &str = "forgotten";
const NOT_HERE: &str = "the server has no such session";

/// A server that sends one event and is silent then. It names sessions, and ends them.
async fn server() -> Upstream {
    Upstream::start(|seen| {
        if seen.method == "DELETE" {
            return Reply::Raw(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec());
        }
        let message: Value = serde_json::from_slice(&seen.body).unwrap_or_default();
        if message["method"] == "initialize" {
            let name = message["id"].as_str().unwrap_or_default();
            let head = format!("HTTP/1.1 200 OK\r\nMcp-Session-Id: {name}\r\n");
            return Reply::Raw(format!("{head}Content-Length: 0\r\n\r\n").into_bytes());
        }
        if seen.header("mcp-session-id") == Some(FORGOTTEN) {
            let head = format!(
                "HTTP/1.1 404 Not Found\r\nContent-Length: {}",
                NOT_HERE.len()
            );
            return Reply::Raw(format!("{head}\r\n\r\n{NOT_HERE}").into_bytes());
        }
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        Reply::Unended(format!("{head}{EVENT}").into_bytes())
    })
    .await
}

/// A stream whose first event has come.
async fn opened(door: &Door, token: &str, listens: bool) -> Response {
    opened_in(door, token, listens, None).await
}

/// The same in a session of the protocol.
async fn opened_in(door: &Door, token: &str, listens: bool, session: Option<&str>) -> Response {
    let url = door.proxy_url("/mcp");
    let request = if listens {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}"#;
        let request = client().post(url).body(call);
        request.header("mcp-method", "subscriptions/listen")
    } else {
        client().get(url)
    };
    let request = request.header("accept", "application/json, text/event-stream");
    let mut request = request.header("content-type", "application/json");
    if let Some(session) = session {
        request = request.header("mcp-session-id", session);
    }
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

/// Opens a session of the protocol by this name.
async fn begin(door: &Door, token: &str, name: &str) {
    let call = json!({"jsonrpc": "2.0", "id": name, "method": "initialize"}).to_string();
    let answer = post(door, token, &call, &[]).await.expect(200);
    assert_eq!(answer.header("mcp-session-id"), name);
}

async fn end(door: &Door, token: &str, name: &str) -> Answer {
    let request = client().delete(door.proxy_url("/mcp")).bearer_auth(token);
    send(request.header("mcp-session-id", name)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_stream_ends_with_its_session_of_the_protocol_and_no_other_does() {
    let upstream = server().await;
    for config in ["", "      end_with_session: false"] {
        let door = door_with(&upstream, config).await;
        door.run_well(&["users", "add", "bob", "--password", "Ch4ng31t-bob"]);
        let resource = door.proxy_url("/mcp");
        let token = token_of(&door, "alice", &resource).await;
        let other = token_of(&door, "bob", &resource).await;
        begin(&door, &token, "one").await;
        begin(&door, &token, "two").await;
        let first = opened_in(&door, &token, false, Some("one")).await;
        let again = opened_in(&door, &token, false, Some("one")).await;
        let mut second = opened_in(&door, &token, false, Some("two")).await;
        let mut outside = opened(&door, &token, false).await;

        // Nobody ends the session of somebody else.
        end(&door, &other, "one").await.expect(404);
        end(&door, &token, "one").await.expect(204);
        ends(first).await;
        ends(again).await;
        // The others are open: nothing has come, and no end.
        for stream in [&mut second, &mut outside] {
            assert!(
                stream.chunk().now_or_never().is_none(),
                "the stream has ended"
            );
        }
        end(&door, &token, "two").await.expect(204);
        ends(second).await;
        drop(outside);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_has_forgotten_a_session_says_so_to_the_stream_itself() {
    let upstream = server().await;
    let door = door_with(&upstream, "").await;
    let resource = door.proxy_url("/mcp");
    let token = token_of(&door, "alice", &resource).await;
    for listens in [false, true] {
        begin(&door, &token, FORGOTTEN).await;
        let mut request = client().get(&resource);
        if listens {
            let call = r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}"#;
            let post = client().post(&resource).body(call);
            request = post.header("mcp-method", "subscriptions/listen");
        }
        let request = request
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
            .header("mcp-session-id", FORGOTTEN)
            .bearer_auth(&token);
        let again = request.try_clone().expect("a request");
        assert_eq!(send(request).await.expect(404).body, NOT_HERE);
        // The gateway has forgotten it, too.
        let answer = send(again).await.expect(404);
        assert_eq!(answer.json()["error"]["code"], -32001, "{}", answer.body);
    }
}
