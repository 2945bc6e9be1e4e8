#![expect(clippy::unwrap_used, reason = "tests")]

use http::StatusCode;

use super::*;
use crate::testing::plugin;

/// The fields of an answer with these, as `name: value` in order of names.
fn changed(config: &Value, fields: &[(&'static str, &str)]) -> Vec<String> {
    let filter = plugin(&KIND, config).unwrap();
    let mut response = ResponseHeader::build(StatusCode::OK, None).unwrap();
    for (name, value) in fields {
        response.append_header(*name, *value).unwrap();
    }
    filter.on_response(&Exchange::default(), &mut response);
    let fields = response.headers.iter();
    let fields = fields.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
    let mut fields: Vec<_> = fields.collect();
    fields.sort();
    fields
}

#[test]
fn operations_run_in_their_order() {
    let config = json!({
        "remove": {"headers": ["X-A"]},
        "rename": {"headers": ["X-B:X-A"]},
        "replace": {"headers": ["X-A:replaced", "X-Z:absent"]},
        "add": {"headers": ["X-A:added", "X-C:a:b"]},
        "append": {"headers": ["X-C:appended", "X-D:d"]},
    });
    let all = changed(&config, &[("x-a", "1"), ("x-b", "2")]);
    assert_eq!(
        all,
        ["x-a: replaced", "x-c: a:b", "x-c: appended", "x-d: d"]
    );
}

#[test]
fn all_values_of_a_renamed_header_move_and_overwrite_its_target() {
    let config = json!({"rename": {"headers": ["Set-Cookie:X-Cookie", "X-None:X-Cookie"]}});
    let fields = [
        ("set-cookie", "a=1"),
        ("set-cookie", "b=2"),
        ("x-cookie", "old"),
    ];
    assert_eq!(
        changed(&config, &fields),
        ["x-cookie: a=1", "x-cookie: b=2"]
    );
    let same = json!({"rename": {"headers": ["X-A:x-a"]}});
    assert_eq!(changed(&same, &[("x-a", "1")]), ["x-a: 1"]);
}

/// What clients get of a body in these pieces; `None`: as it came.
async fn body(config: &Value, fields: &[(&'static str, &str)], pieces: &[&str]) -> Option<String> {
    let filter = plugin(&KIND, config).unwrap();
    let mut response = ResponseHeader::build(StatusCode::OK, None).unwrap();
    for (name, value) in fields {
        response.append_header(*name, *value).unwrap();
    }
    let request = RequestHeader::build("GET", b"/", None).unwrap();
    let mut exchange = Exchange::default();
    let flow = filter.on_upstream_response(&request, &mut exchange, &mut response);
    let ResponseFlow::Filter(mut filter) = flow.await else {
        return None;
    };
    assert!(!response.headers.contains_key("content-length"));
    assert!(!response.headers.contains_key("content-digest"));
    let mut out = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let mut piece = Some(bytes::Bytes::from(piece.to_string()));
        filter.piece(&mut piece, at + 1 == pieces.len());
        out.extend_from_slice(&piece.unwrap_or_default());
    }
    Some(String::from_utf8(out).unwrap())
}

const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");

#[tokio::test]
async fn members_of_json_objects_are_changed_with_their_types() {
    let config = json!({
        "remove": {"json": ["gone"]},
        "rename": {"json": ["old:new"]},
        "replace": {"json": ["r:5", "none:1"], "json_types": ["number", "number"]},
        "add": {"json": ["b:true", "s:a:b", "n:x"], "json_types": ["boolean", "string", "number"]},
        "append": {"json": ["l:2", "q:\"q\""]},
    });
    let fields = [JSON, ("content-length", "40"), ("content-digest", "x")];
    let got = body(
        &config,
        &fields,
        &[r#"{"gone":1,"old":"o","#, r#""r":1.0,"l":["1"]}"#],
    )
    .await;
    let expected = r#"{"new":"o","r":5,"l":["1","2"],"b":true,"s":"a:b","q":["\"q\""]}"#;
    assert_eq!(got.as_deref(), Some(expected));
    let warnings = plugin(&KIND, &config).unwrap().warnings();
    assert_eq!(warnings, ["add.json: 'n:x' has no effect: no number"]);
}

#[tokio::test]
async fn what_is_no_plain_json_passes_as_it_is() {
    let config = json!({"add": {"json": ["a:1"]}});
    let length = (body::MAX_BODY + 1).to_string();
    for fields in [
        vec![("content-type", "text/html")],
        vec![("content-type", "image/svg+json")],
        vec![("content-type", "application/json-seq")],
        vec![JSON, ("content-encoding", "gzip")],
        vec![JSON, ("content-range", "bytes 0-1/3")],
        vec![JSON, ("content-length", &length)],
    ] {
        assert_eq!(body(&config, &fields, &["{}"]).await, None, "{fields:?}");
    }
    let problem = [("content-type", "application/problem+json; charset=utf-8")];
    let got = body(&config, &problem, &["{}"]).await;
    assert_eq!(got.as_deref(), Some(r#"{"a":"1"}"#));
    for malformed in ["{", "[1]", "", "null"] {
        let got = body(&config, &[JSON], &[malformed]).await;
        assert_eq!(got.as_deref(), Some(malformed));
    }
}

#[tokio::test]
async fn a_body_that_turns_out_too_long_passes_whole_and_unchanged() {
    let config = json!({"remove": {"json": ["a"]}});
    let long = format!(r#"{{"a":1,"b":"{}"#, "x".repeat(body::MAX_BODY));
    let got = body(&config, &[JSON], &[&long, "yy", "\"}"]).await;
    assert_eq!(got, Some(format!("{long}yy\"}}")));
}

#[test]
fn the_gateways_own_json_is_changed_too() {
    let filter = plugin(&KIND, &json!({"add": {"json": ["a:1"]}})).unwrap();
    let change = |fields: &[(&'static str, &'static str)], body: &'static str| {
        let mut response = ResponseHeader::build(StatusCode::UNAUTHORIZED, None).unwrap();
        for (name, value) in fields {
            response.append_header(*name, *value).unwrap();
        }
        let body = Bytes::from_static(body.as_bytes());
        filter.on_own_body(&Exchange::default(), &mut response, &body)
    };
    let changed = change(&[JSON, ("content-length", "15")], r#"{"message":"x"}"#);
    assert_eq!(changed.unwrap(), r#"{"message":"x","a":"1"}"#);
    for (fields, body) in [
        (vec![("content-type", "text/html")], "{}"),
        (vec![JSON], "no object"),
        (vec![JSON, ("content-encoding", "gzip")], "{}"),
    ] {
        assert_eq!(change(&fields, body), None, "{fields:?} {body}");
    }
}

#[test]
fn headers_that_frame_a_message_are_left_to_the_gateway() {
    for config in [
        json!({"add": {"headers": ["Transfer-Encoding:chunked"]}}),
        json!({"replace": {"headers": ["content-length:5"]}}),
        json!({"remove": {"headers": ["Content-Length"]}}),
        json!({"rename": {"headers": ["X-A:Connection"]}}),
    ] {
        let message = plugin(&KIND, &config).err().unwrap();
        assert!(
            message.contains("the gateway writes what frames a message"),
            "{message}"
        );
    }
}

#[test]
fn entries_without_a_colon_and_values_with_line_breaks_are_refused() {
    let refused = |config| plugin(&KIND, &config).err().unwrap();
    assert!(refused(json!({"add": {"headers": ["X-A"]}})).contains("invalid value: X-A"));
    let broken = json!({"add": {"headers": ["X-A:b\r\nX-B: c"]}});
    assert!(refused(broken).contains("invalid value"));
    let message = refused(json!({"rename": {"headers": ["a b:c"]}}));
    assert!(message.contains("'a b' is not a valid header"), "{message}");
    assert!(refused(json!({"add": {"headers": null}})).contains("required field missing"));
}
