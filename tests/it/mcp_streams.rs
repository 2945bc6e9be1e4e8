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

/// A server whose sessions have three events, the second of them a list of tools. It
/// sends those that come after the one that the client names.
async fn resuming_server() -> Upstream {
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
        let session = seen.header("mcp-session-id").unwrap_or("none");
        let after = seen.header("last-event-id").unwrap_or_default();
        let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
        let events = [
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}),
            json!({"jsonrpc": "2.0", "id": 5,
                "result": {"tools": [tool("weather"), tool("delete")]}}),
            json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {}}),
        ];
        let named = events.iter().enumerate();
        let named = named.map(|(at, event)| (format!("{session}-{}", at + 1), event));
        let mut named: Vec<_> = named.collect();
        // An event of another session is none that the server could go on from.
        if let Some(at) = named.iter().position(|(id, _)| id == after) {
            named.drain(..=at);
        }
        let text = named
            .iter()
            .map(|(id, event)| format!("id: {id}\ndata: {event}\n\n"));
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close";
        let text = text.collect::<String>();
        Reply::Raw(format!("{head}\r\n\r\n{text}").into_bytes())
    })
    .await
}

/// Comes back to a stream of a session, with the last event that came.
async fn resume(door: &Door, token: &str, session: &str, event: &str) -> Answer {
    let request = client().get(door.proxy_url("/mcp")).bearer_auth(token);
    let request = request.header("accept", "text/event-stream");
    let request = request.header("mcp-session-id", session);
    send(request.header("last-event-id", event)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_goes_on_behind_the_last_event_for_its_own_user_alone() {
    let upstream = resuming_server().await;
    let rules = "
      rules:
      - {tools: [weather]}
      - {methods: [tools/call], action: deny}
";
    let door = door_with(&upstream, rules).await;
    door.run_well(&["users", "add", "bob", "--password", "Ch4ng31t-bob"]);
    let resource = door.proxy_url("/mcp");
    let alice = token_of(&door, "alice", &resource).await;
    let bob = token_of(&door, "bob", &resource).await;
    begin(&door, &alice, "of-alice").await;
    begin(&door, &bob, "of-bob").await;

    let answer = resume(&door, &alice, "of-alice", "of-alice-1")
        .await
        .expect(200);
    let seen = upstream.last();
    assert_eq!(seen.header("last-event-id"), Some("of-alice-1"));
    assert_eq!(seen.header("mcp-session-id"), Some("of-alice"));
    let ids: Vec<_> = answer
        .body
        .lines()
        .filter(|line| line.starts_with("id:"))
        .collect();
    assert_eq!(ids, ["id: of-alice-2", "id: of-alice-3"], "{}", answer.body);
    // An answer that comes late is filtered as in time.
    assert!(answer.body.contains("weather"), "{}", answer.body);
    assert!(!answer.body.contains("delete"), "{}", answer.body);

    // Nobody comes back to the stream of somebody else, by whatever event.
    let reached = upstream.seen().len();
    for event in ["of-alice-1", "of-bob-1", ""] {
        let refused = resume(&door, &bob, "of-alice", event).await.expect(404);
        assert_eq!(refused.json()["error"]["code"], -32001, "{event}");
    }
    let unsigned = client().get(&resource).header("mcp-session-id", "of-alice");
    send(unsigned.header("last-event-id", "of-alice-1"))
        .await
        .expect(401);
    let two = client().get(&resource).bearer_auth(&bob);
    let two = two
        .header("mcp-session-id", "of-bob")
        .header("mcp-session-id", "of-alice");
    send(two.header("last-event-id", "of-alice-1"))
        .await
        .expect(404);
    assert_eq!(upstream.seen().len(), reached, "nothing was forwarded");

    // In a session of one's own the server sees whose it is, and has no such event.
    let own = resume(&door, &bob, "of-bob", "of-alice-1")
        .await
        .expect(200);
    assert_eq!(upstream.last().header("mcp-session-id"), Some("of-bob"));
    assert!(!own.body.contains("of-alice"), "{}", own.body);
    // A session that is over has no streams to come back to.
    end(&door, &alice, "of-alice").await;
    resume(&door, &alice, "of-alice", "of-alice-1")
        .await
        .expect(404);
}
