//! Calls to a server of the Model Context Protocol are counted by tool and user.

use crate::mcp::{door_with, token_of};
use crate::mcp_rules::{post, server, tool};

/// What the page on `mcp` shows: two calls of each user to each tool.
const THROTTLING: &str = r#"
  - name: throttling
    config:
      requestGroupingPolicy: "${contexts.oauth2.accessToken.info.sub} ${request.entity.json['params']['name']}"
      rate: {numberOfRequests: 2, duration: 1 day}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn each_user_has_a_rate_of_each_tool() {
    let upstream = server().await;
    let door = door_with(&upstream, THROTTLING).await;
    door.run_well(&["users", "add", "bob", "--password", "Ch4ng31t-bob"]);
    let resource = door.proxy_url("/mcp");
    let alice = token_of(&door, "alice", &resource).await;
    let bob = token_of(&door, "bob", &resource).await;
    for token in [&alice, &bob] {
        for name in ["weather", "pay"] {
            for status in [200, 200, 429, 429] {
                post(&door, token, &tool(name), &[]).await.expect(status);
            }
        }
    }
    assert_eq!(upstream.seen().len(), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_client_has_a_rate_of_each_tool() {
    let upstream = server().await;
    let by_client = THROTTLING.replace("info.sub", "info.client_id");
    let door = door_with(&upstream, &by_client).await;
    door.run_well(&["users", "add", "bob", "--password", "Ch4ng31t-bob"]);
    let resource = door.proxy_url("/mcp");
    // Of one client for two users, and of another client for itself.
    let alice = token_of(&door, "alice", &resource).await;
    let bob = token_of(&door, "bob", &resource).await;
    let pairs = [
        ("grant_type", "client_credentials"),
        ("client_id", "other"),
        ("client_secret", "other-secret"),
        ("scope", "read"),
        ("resource", &resource),
    ];
    let other = door.token(&pairs).await;
    for (token, statuses) in [
        (&alice, [200, 200, 429]),
        (&bob, [429; 3]),
        (&other, [200, 200, 429]),
    ] {
        for status in statuses {
            post(&door, token, &tool("pay"), &[]).await.expect(status);
        }
    }
}
