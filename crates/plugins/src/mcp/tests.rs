#![expect(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use serde_json::json;

use super::*;
use crate::testing::{decide, plugin, session};
use doorward_core::model::token::AccessToken;

fn config() -> Value {
    json!({
        "resource": "https://mcp.test/mcp",
        "issuer": "https://login.test",
        "scopes_required": ["tools", "files"],
        "allowed_origins": ["https://app.test"],
    })
}

async fn answered(config: &Value, head: &str) -> Option<(u16, String)> {
    let filter = plugin(&KIND, config).unwrap();
    let (mut session, _client) = session(&format!("{head}\r\n\r\n")).await;
    let reply = decide(&*filter, &mut session, &mut Exchange::default()).await?;
    let challenge = reply
        .headers
        .iter()
        .find(|(name, _)| name == WWW_AUTHENTICATE);
    let challenge = challenge.map_or("", |(_, value)| value.to_str().unwrap());
    Some((reply.status.as_u16(), challenge.to_owned()))
}

#[tokio::test]
async fn who_shows_no_token_is_told_where_the_metadata_are_and_of_no_error() {
    let challenge = "Bearer resource_metadata=\
        \"https://mcp.test/.well-known/oauth-protected-resource/mcp\", scope=\"tools files\"";
    let answer = answered(&config(), "POST /mcp HTTP/1.1\r\nHost: mcp.test").await;
    assert_eq!(answer, Some((401, challenge.to_owned())));
}

#[tokio::test]
async fn a_token_in_the_query_is_refused() {
    let head = "POST /mcp?x=1&access_token=abc HTTP/1.1\r\nHost: mcp.test";
    let (status, challenge) = answered(&config(), head).await.unwrap();
    assert_eq!(status, 400);
    assert!(
        challenge.starts_with("Bearer error=\"invalid_request\", "),
        "{challenge}"
    );
}

#[tokio::test]
async fn a_page_of_another_origin_may_not_call() {
    let request =
        |origin: &str| format!("POST /mcp HTTP/1.1\r\nHost: mcp.test\r\nOrigin: {origin}");
    for foreign in [
        "https://evil.test",
        "null",
        "https://app.test.evil.test",
        "http://mcp.test",
    ] {
        let answer = answered(&config(), &request(foreign)).await;
        assert_eq!(answer, Some((403, String::new())), "{foreign}");
    }
    // No page has two origins, and a server may go by either.
    let both = "https://app.test\r\nOrigin: https://mcp.test";
    let answer = answered(&config(), &request(both)).await;
    assert_eq!(answer, Some((403, String::new())));
    // They may, and need a token like everybody.
    for known in ["https://app.test", "https://mcp.test"] {
        let (status, _) = answered(&config(), &request(known)).await.unwrap();
        assert_eq!(status, 401, "{known}");
    }
}

#[tokio::test]
async fn a_page_that_asks_what_it_may_send_needs_no_token() {
    let head = "OPTIONS /mcp HTTP/1.1\r\nHost: mcp.test\r\nOrigin: https://app.test\r\n\
        Access-Control-Request-Method: POST";
    assert_eq!(answered(&config(), head).await, Some((204, String::new())));
    // An OPTIONS of a program is a request like any other.
    let head = "OPTIONS /mcp HTTP/1.1\r\nHost: mcp.test";
    assert_eq!(answered(&config(), head).await.unwrap().0, 401);
}

#[test]
fn metadata_say_what_is_set_and_nothing_else() {
    let mut config = config();
    config["resource_name"] = json!("Weather");
    let filter = plugin(&KIND, &config).unwrap();
    let resource = &filter.protected_resource()[0];
    assert_eq!(
        (&*resource.host, resource.port, &*resource.path),
        ("mcp.test", None, "/mcp")
    );
    let metadata: Value = serde_json::from_slice(&resource.metadata).unwrap();
    let expected = json!({
        "resource": "https://mcp.test/mcp",
        "authorization_servers": ["https://login.test"],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["tools", "files"],
        "resource_name": "Weather",
    });
    assert_eq!(metadata, expected);
}

#[test]
fn what_can_be_no_resource_or_origin_is_refused() {
    for resource in [
        "/mcp",
        "urn:x",
        "https://u@a.test",
        "https://a.test?b",
        "https://a.test/\"x",
    ] {
        let config = json!({"resource": resource, "issuer": "https://login.test"});
        assert!(
            plugin(&KIND, &config).err().unwrap().contains("resource"),
            "{resource}"
        );
    }
    let mut config = config();
    config["allowed_origins"] = json!(["https://app.test/"]);
    assert!(
        plugin(&KIND, &config)
            .err()
            .unwrap()
            .contains("allowed_origins")
    );
    config["allowed_origins"] = json!([]);
    config["scopes_required"] = json!(["a b"]);
    assert!(
        plugin(&KIND, &config)
            .err()
            .unwrap()
            .contains("scopes_required")
    );
}

fn with_rules(rules: &Value) -> Value {
    let mut config = config();
    config["rules"] = rules.clone();
    config
}

/// What the lists of a caller with these scopes and groups show of `body`, which
/// comes in pieces of this size.
fn shown(config: &Value, token: Value, answer: (&str, &str), size: usize) -> String {
    let (media_type, body) = answer;
    let complete = (KIND.schema)()
        .complete(config.as_object().unwrap().clone())
        .unwrap();
    let config = Config::read(&complete, &Default::default()).unwrap();
    let token = AccessToken {
        token: String::new(),
        scopes: token["scope"]
            .as_str()
            .unwrap_or_default()
            .split(' ')
            .map(str::to_owned)
            .collect(),
        claims: token.as_object().unwrap().clone(),
        expires_at: None,
    };
    let exchange = Exchange::default();
    let request = RequestHeader::build("POST", b"/mcp", None).unwrap();
    let decided = config.rules.of(&token, &request, &exchange);
    let listing = lists::Listing {
        decisions: decided.decisions().into(),
        rules: config.rules.clone(),
        shows_step_up: config.shows_step_up,
        resumed: false,
    };
    let mut response = ResponseHeader::build(200, None).unwrap();
    response.insert_header("content-type", media_type).unwrap();
    response
        .insert_header("content-length", body.len())
        .unwrap();
    let ResponseFlow::Filter(mut filter) = listing.flow(&mut response) else {
        return "not filtered".to_owned();
    };
    assert!(!response.headers.contains_key("content-length"));
    let mut out = Vec::new();
    let mut pieces = body.as_bytes().chunks(size).peekable();
    while let Some(piece) = pieces.next() {
        let mut piece = Some(Bytes::copy_from_slice(piece));
        filter.piece(&mut piece, pieces.peek().is_none());
        out.extend_from_slice(&piece.unwrap_or_default());
    }
    String::from_utf8(out).unwrap()
}

fn rules() -> Value {
    with_rules(&json!([
        {"tools": ["delete_*"], "groups_required": ["admins"], "scopes_required": ["write"]},
        {"tools": ["pay"], "scopes_required": ["write"]},
        {"resources": ["file:///secret/*"], "action": "deny"},
    ]))
}

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"pay"},{"name":"delete_all","x":1.0},{"name":"weather"}],"nextCursor":"n","resources":[{"uri":"file:///secret/a"},{"uri":"file:///b"}]}}"#;

#[test]
fn lists_show_what_may_be_called_and_nothing_else() {
    let poor = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"weather"}],"nextCursor":"n","resources":[{"uri":"file:///b"}]}}"#;
    let token = json!({"scope": "tools"});
    for size in [1, 7, 10_000] {
        let answer = ("application/json", LIST);
        assert_eq!(shown(&rules(), token.clone(), answer, size), poor);
    }
    let rich = json!({"scope": "write", "groups": ["admins"]});
    let all = shown(
        &rules(),
        rich,
        ("application/json; charset=utf-8", LIST),
        99,
    );
    assert!(all.contains(r#"{"name":"delete_all","x":1.0}"#), "{all}");
    assert!(!all.contains("secret"), "{all}");
    let mut config = rules();
    config["lists_show_step_up"] = json!(true);
    let all = shown(&config, token, ("application/json", LIST), 99);
    // The group is missing, and no scope helps.
    assert!(all.contains("pay") && !all.contains("delete_all"), "{all}");
}

#[test]
fn events_with_lists_are_filtered_and_others_pass_as_they_are() {
    let other = ": hi\r\n\r\nid: 7\ndata: {\"jsonrpc\":\"2.0\",\ndata: \"method\":\"x\"}\n\n";
    let token = json!({"scope": "tools"});
    for end in ["\n", "\r\n", "\r"] {
        let stream = format!("{other}event: message{end}id: 8{end}data: {LIST}{end}{end}{other}");
        for size in [1, 3, 10_000] {
            let answer = ("text/event-stream", &*stream);
            let seen = shown(&rules(), token.clone(), answer, size);
            let (before, rest) = seen.split_once("event: message").unwrap();
            assert_eq!(before, other);
            assert!(rest.starts_with("\nid: 8\ndata: {"), "{rest}");
            assert!(rest.contains("weather") && !rest.contains("pay"), "{rest}");
            assert!(rest.ends_with(other), "{rest:?}");
        }
    }
    // An event that the stream breaks off is no exception.
    let seen = shown(
        &rules(),
        token,
        ("text/event-stream", &format!("data:{LIST}")),
        9,
    );
    assert!(seen.contains("weather") && !seen.contains("pay"), "{seen}");
}

#[test]
fn a_list_that_can_not_be_read_is_not_shown() {
    let token = json!({"scope": "tools"});
    let seen = shown(
        &rules(),
        token.clone(),
        (
            "application/json",
            "{\"result\":{\"tools\":[{\"name\":\"pay\"}",
        ),
        9,
    );
    assert!(!seen.contains("pay") && seen.contains("-32603"), "{seen}");
    let seen = shown(&rules(), token, ("text/plain", LIST), 9);
    assert_eq!(seen, "not filtered");
}
