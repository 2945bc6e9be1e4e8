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

#[test]
fn rules_on_bodies_are_refused_with_words() {
    for (operation, rule) in [("remove", "a"), ("add", "a:1"), ("rename", "a:b")] {
        let config = json!({ operation: {"json": [rule]} });
        let message = plugin(&KIND, &config).err().unwrap();
        assert!(message.starts_with(&format!("{operation}.json: can't be done here")));
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
