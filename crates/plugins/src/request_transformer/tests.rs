#![expect(clippy::unwrap_used, reason = "tests")]

use doorward_net::http::head::UpstreamRequest;
use doorward_plugin_api::filter::RouteContext;
use serde_json::json;

use super::*;
use crate::testing::{decide, plugin, session};

/// The upstream's request line and header fields, or the status of a refusal.
async fn sent(config: &Value, target: &str, lines: &str) -> Result<(String, Vec<String>), u16> {
    let filter = plugin(&KIND, config).unwrap();
    let request = format!("POST {target} HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n");
    let (mut session, _client) = session(&request).await;
    let mut exchange = Exchange {
        route_context: Some(Box::new(RouteContext {
            captures: vec![("user".into(), "anna".into())],
            ..RouteContext::default()
        })),
        ..Exchange::default()
    };
    if let Some(reply) = decide(&*filter, &mut session, &mut exchange).await {
        return Err(reply.status.as_u16());
    }
    let mut request = session.req_header().clone();
    filter.on_upstream_request(&exchange, &mut UpstreamRequest::new(&mut request));
    let fields = request.headers.iter();
    let fields = fields.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
    let mut fields: Vec<_> = fields.collect();
    fields.sort();
    Ok((format!("{} {}", request.method, request.uri), fields))
}

#[tokio::test]
async fn headers_are_removed_renamed_replaced_added_and_appended_in_this_order() {
    let config = json!({
        "remove": {"headers": ["X-A"]},
        "rename": {"headers": ["X-B:X-A"]},
        "replace": {"headers": ["X-A:b:c", "X-Z:absent", "Host:b.test"]},
        "add": {"headers": ["X-A:no", "X-C:c", "host:ignored"]},
        "append": {"headers": ["X-C:d"]},
    });
    let (line, fields) = sent(&config, "/x?b=1&a", "X-A: 1\r\nX-B: 2\r\n")
        .await
        .unwrap();
    assert_eq!(line, "POST /x?b=1&a");
    assert_eq!(fields, ["host: b.test", "x-a: b:c", "x-c: c", "x-c: d"]);
}

#[tokio::test]
async fn the_query_is_changed_in_the_same_order_and_left_alone_without_rules() {
    let config = json!({
        "remove": {"querystring": ["gone"]},
        "rename": {"querystring": ["old:new"]},
        "replace": {"querystring": ["r:a b", "none:x"]},
        "add": {"querystring": ["n:1", "r:no"]},
        "append": {"querystring": ["n:&2"]},
    });
    let (line, _) = sent(&config, "/x?gone=1&old=o&r=1&bare&r=2&new=n", "")
        .await
        .unwrap();
    assert_eq!(line, "POST /x?new=o&r=a%20b&bare&n=1&n=%262");
    let (line, _) = sent(&json!({"remove": {"querystring": ["a"]}}), "/x?a=1", "")
        .await
        .unwrap();
    assert_eq!(line, "POST /x");
    let (line, _) = sent(&json!({}), "/x?a+b=%31", "").await.unwrap();
    assert_eq!(line, "POST /x?a+b=%31");
}

#[tokio::test]
async fn method_and_path_take_the_place_of_the_requests() {
    let config = json!({"http_method": "GET", "replace": {"uri": "/v2/ä b?x"}});
    let (line, _) = sent(&config, "/x?q=1", "").await.unwrap();
    assert_eq!(line, "GET /v2/%C3%A4%20b%3Fx?q=1");
    for method in ["HEAD", "TRACE", "CONNECT"] {
        let message = plugin(&KIND, &json!({ "http_method": method }))
            .err()
            .unwrap();
        assert!(message.contains("can't take the place"), "{message}");
    }
}

#[tokio::test]
async fn templates_see_the_request_as_it_came() {
    let config = json!({
        "remove": {"headers": ["X-A"], "querystring": ["q"]},
        "replace": {"uri": "/users/$(uri_captures.user)"},
        "add": {"headers": ["X-B:$(headers['x-a'])-$(query_params.q or 'none')"],
                "querystring": ["h:$(headers.host)"]},
    });
    let (line, fields) = sent(&config, "/x?q=1", "X-A: 1\r\n").await.unwrap();
    assert_eq!(line, "POST /users/anna?h=a.test");
    assert_eq!(fields, ["host: a.test", "x-b: 1-1"]);
}

#[tokio::test]
async fn a_template_without_a_text_ends_the_request() {
    let config = json!({"add": {"headers": ["X-B:$(headers.x_many)"]}});
    assert_eq!(
        sent(&config, "/", "X-Many: 1\r\nX-Many: 2\r\n").await,
        Err(500)
    );
    assert!(sent(&config, "/", "X-Many: 1\r\n").await.is_ok());
}

#[tokio::test]
async fn no_query_adds_headers_and_none_leads_out_of_a_path() {
    let config = json!({"add": {"headers": ["X-B:$(query_params.q)"]}});
    let (_, fields) = sent(&config, "/?q=a%0d%0aX-Admin:1", "").await.unwrap();
    assert_eq!(fields, ["host: a.test", "x-b: a%0D%0AX-Admin:1"]);
    let config = json!({"replace": {"uri": "/files/$(query_params.q)"}});
    for up in ["..", "%2e%2e", "a/../../b", "%252e.", "..%5cb"] {
        assert_eq!(
            sent(&config, &format!("/?q={up}"), "").await,
            Err(400),
            "{up}"
        );
    }
    let (line, _) = sent(&config, "/?q=a..b", "").await.unwrap();
    assert_eq!(line, "POST /files/a..b?q=a..b");
}

#[test]
fn wrong_entries_are_refused_with_the_imitated_words() {
    let refused = |config| plugin(&KIND, &config).err().unwrap();
    for (config, words) in [
        (json!({"add": {"headers": ["X-A"]}}), "invalid value: X-A"),
        (
            json!({"add": {"querystring": ["a"]}}),
            "key 'a' has no value",
        ),
        (
            json!({"remove": {"headers": ["a b"]}}),
            "'a b' is not a valid header",
        ),
        (
            json!({"add": {"headers": ["X-A:$(os.x)"]}}),
            "is not in supported format, error:",
        ),
        (json!({"add": {"headers": null}}), "required field missing"),
        (json!({"add": {"body": ["a"]}}), "key 'a' has no value"),
        (
            json!({"add": {"headers": ["Content-Length:1"]}}),
            "what frames a message",
        ),
        (json!({"http_method": "get"}), "invalid value: get"),
    ] {
        let message = refused(config);
        assert!(message.contains(words), "{message}");
    }
}

/// What takes the place of this body of this type.
async fn changed(config: &Value, content_type: &str, body: &str) -> Option<String> {
    let changed = changed_or_refused(config, content_type, body).await;
    changed.expect("no refusal")
}

/// The same, or the status of a refusal.
async fn changed_or_refused(
    config: &Value,
    content_type: &str,
    body: &str,
) -> Result<Option<String>, u16> {
    let filter = plugin(&KIND, config).unwrap();
    let request =
        format!("POST /?q=1 HTTP/1.1\r\nHost: a.test\r\nContent-Type: {content_type}\r\n\r\n");
    let (mut session, _client) = session(&request).await;
    let mut exchange = Exchange::default();
    if !filter.wants_body(session.req_header(), &exchange) {
        return Ok(None);
    }
    exchange.body = Some(body.to_owned().into());
    if let Some(reply) = decide(&*filter, &mut session, &mut exchange).await {
        assert_eq!(exchange.replacement, None, "nothing is changed by half");
        return Err(reply.status.as_u16());
    }
    let body = exchange.replacement;
    Ok(body.map(|body| String::from_utf8(body.to_vec()).unwrap()))
}

const BODY_RULES: &str = r#"{
    "remove": {"body": ["gone"]}, "rename": {"body": ["old:new"]},
    "replace": {"body": ["r:$(query_params.q)", "none:x"]},
    "add": {"body": ["n:a\"b", "r:no"]}, "append": {"body": ["new:2"]}
}"#;

#[tokio::test]
async fn json_objects_and_forms_are_changed_by_the_same_rules() {
    let rules: Value = serde_json::from_str(BODY_RULES).unwrap();
    let json = r#"{"gone":1,"old":"o","r":2,"big":12345678901234567890123}"#;
    let json = changed(&rules, "application/json; charset=utf-8", json).await;
    let expected = r#"{"new":["o","2"],"r":"1","big":12345678901234567890123,"n":"a\"b"}"#;
    assert_eq!(json.as_deref(), Some(expected));
    let form = "gone=1&old=o&r=2&gone=3";
    let form = changed(&rules, "application/x-www-form-urlencoded", form).await;
    assert_eq!(form.as_deref(), Some("new=o&r=1&n=a%22b&new=2"));
}

const IN_PARTS: &str = "multipart/form-data; boundary=xyz";

/// A form in parts: the first line of each is what follows `form-data`.
fn in_parts(parts: &[(&str, &str)]) -> String {
    let part = |(head, value): &(&str, &str)| {
        format!("--xyz\r\nContent-Disposition: form-data; {head}\r\n\r\n{value}\r\n")
    };
    let parts: String = parts.iter().map(part).collect();
    format!("{parts}--xyz--\r\n")
}

#[tokio::test]
async fn forms_in_parts_are_changed_part_by_part() {
    let rules: Value = serde_json::from_str(BODY_RULES).unwrap();
    let file = "name=\"f\"; filename=\"a.txt\"\r\nContent-Type: text/plain";
    let body = in_parts(&[
        ("name=\"gone\"", "1"),
        ("name=\"old\"; filename=\"b\"", "o\r\n"),
        (file, "--xy\r\n"),
        ("name=\"new\"", "n"),
        ("name=\"r\"", "2"),
    ]);
    let expected = in_parts(&[
        ("name=\"old\"; filename=\"b\"", "o\r\n"),
        (file, "--xy\r\n"),
        ("name=\"r\"", "1"),
        ("name=\"n\"", "a\"b"),
    ]);
    let expected = expected.replace("name=\"old\"; filename=\"b\"", "name=\"new\"");
    let changed_body = changed(&rules, IN_PARTS, &body).await;
    assert_eq!(changed_body.as_deref(), Some(&*expected));
    let removes = json!({"remove": {"body": ["gone"]}});
    let untouched = in_parts(&[(file, "x")]);
    assert_eq!(changed(&removes, IN_PARTS, &untouched).await, None);
    let all = changed(&removes, IN_PARTS, &in_parts(&[("name=gone", "1")])).await;
    assert_eq!(all.as_deref(), Some(""));
    let adds = json!({"add": {"body": ["a:1"]}});
    let added = changed(&adds, IN_PARTS, "").await;
    assert_eq!(added, Some(in_parts(&[("name=\"a\"", "1")])));
    // Imitated: renamed first, and nothing is appended.
    let rules = json!({"rename": {"body": ["a:b"]}, "remove": {"body": ["b"]}, "append": {"body": ["c:1"]}});
    let body = in_parts(&[("name=a", "1"), ("name=k", "2")]);
    let kept = in_parts(&[("name=k", "2")]);
    assert_eq!(changed(&rules, IN_PARTS, &body).await, Some(kept));
}

#[tokio::test]
async fn no_second_part_of_a_name_gets_past_a_rule() {
    let rules = json!({"remove": {"body": ["role"]}, "replace": {"body": ["user:me"]}});
    let body = in_parts(&[
        ("name=role", "admin"),
        ("name=user", "root"),
        ("name=\"role\"", "admin"),
        ("filename=x; NAME=user", "root"),
    ]);
    let expected = in_parts(&[("name=\"user\"", "me")]);
    assert_eq!(changed(&rules, IN_PARTS, &body).await, Some(expected));
    // What an upstream might read as such a part is not let through.
    let hidden = "--xyz\nContent-Disposition: form-data; name=role\n\nadmin\n";
    let broken = [
        in_parts(&[("name=a", hidden)]),
        format!("{}{hidden}", in_parts(&[("name=a", "1")])),
        in_parts(&[("name=a; name=role", "admin")]),
        in_parts(&[("name*=UTF-8''role", "admin")]),
        "--xyz\r\n".to_owned(),
        "role=admin".to_owned(),
    ];
    for body in broken {
        let refused = changed_or_refused(&rules, IN_PARTS, &body).await;
        assert_eq!(refused, Err(400), "{body:?}");
    }
    let sound = in_parts(&[("name=a", "1")]);
    for kind in [
        "multipart/form-data",
        "multipart/form-data; boundary=xyz; boundary=abc",
    ] {
        let refused = changed_or_refused(&rules, kind, &sound).await;
        assert_eq!(refused, Err(400), "{kind}");
    }
}

#[tokio::test]
async fn no_value_of_a_request_makes_a_part() {
    let rules = json!({"rename": {"body": ["a:$(query_params.name)"]}, "add": {"body": ["b:1"]}});
    let filter = plugin(&KIND, &rules).unwrap();
    let request = format!(
        "POST /?name=x%22%0D%0A%0D%0A HTTP/1.1\r\nHost: a.test\r\nContent-Type: {IN_PARTS}\r\n\r\n"
    );
    let (mut session, _client) = session(&request).await;
    let mut exchange = Exchange {
        body: Some(in_parts(&[("name=a", "1")]).into()),
        ..Exchange::default()
    };
    let reply = decide(&*filter, &mut session, &mut exchange).await;
    assert!(reply.is_none());
    // Whoever sends the form knows its boundary.
    let inside = "x%0D%0A--xyz%0D%0AContent-Disposition:%20form-data;%20name=role";
    let rules = json!({"remove": {"body": ["role"]}, "add": {"body": ["b:$(query_params.b)"]}});
    let filter = plugin(&KIND, &rules).unwrap();
    let lines = format!("Host: a.test\r\nContent-Type: {IN_PARTS}\r\n\r\n");
    let request = format!("POST /?b={inside} HTTP/1.1\r\n{lines}");
    let (mut other, _client) = crate::testing::session(&request).await;
    let mut injected = Exchange {
        body: Some(in_parts(&[("name=a", "1")]).into()),
        ..Exchange::default()
    };
    let reply = decide(&*filter, &mut other, &mut injected).await;
    assert_eq!(reply.map(|reply| reply.status.as_u16()), Some(400));
    assert_eq!(injected.replacement, None);
    let expected = in_parts(&[("name=\"x%22%0D%0A%0D%0A\"", "1"), ("name=\"b\"", "1")]);
    assert_eq!(exchange.replacement, Some(expected.into()));
}

#[tokio::test]
async fn malformed_and_other_bodies_pass_unchanged() {
    let rules: Value = serde_json::from_str(BODY_RULES).unwrap();
    for body in [r#"{"gone":1"#, "[1]", "gone", r#"{"gone":1}}"#] {
        assert_eq!(
            changed(&rules, "application/json", body).await,
            None,
            "{body}"
        );
    }
    assert_eq!(changed(&rules, "text/plain", r#"{"gone":1}"#).await, None);
    let nothing = changed(&rules, "application/json", "").await;
    assert_eq!(
        nothing.as_deref(),
        Some(r#"{"n":"a\"b","r":"no","new":["2"]}"#)
    );
    let removes = json!({"remove": {"body": ["gone"]}});
    assert_eq!(changed(&removes, "application/json", "").await, None);
}

#[tokio::test]
async fn a_type_that_a_rule_gives_counts_for_the_body() {
    let rules = json!({"replace": {"headers": ["Content-Type:application/json"]},
                       "add": {"body": ["a:1"]}});
    let body = changed(&rules, "text/plain", "{}").await;
    assert_eq!(body.as_deref(), Some(r#"{"a":"1"}"#));
}

#[tokio::test]
async fn a_form_without_a_body_to_be_in_joins_the_query() {
    let filter = plugin(&KIND, &json!({"http_method": "GET"})).unwrap();
    let request = "POST /x?a=1 HTTP/1.1\r\nHost: a.test\r\n\
                   Content-Type: application/x-www-form-urlencoded\r\n\r\n";
    let (mut session, _client) = session(request).await;
    let mut exchange = Exchange::default();
    assert!(filter.wants_body(session.req_header(), &exchange));
    exchange.body = Some("b=2&c=d+e".into());
    assert!(
        decide(&*filter, &mut session, &mut exchange)
            .await
            .is_none()
    );
    let mut request = session.req_header().clone();
    filter.on_upstream_request(&exchange, &mut UpstreamRequest::new(&mut request));
    assert_eq!(request.uri, "/x?a=1&b=2&c=d%20e");
}
