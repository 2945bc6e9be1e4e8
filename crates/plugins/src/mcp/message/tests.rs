use super::super::member_names::FEW;
use super::*;

fn code(body: &str) -> i64 {
    read(body.as_bytes()).map_or_else(|fault| fault.code, |_| 0)
}

#[test]
fn a_call_is_read_whatever_the_order_of_its_members() {
    let body = br#" {"params":{"arguments":{"name":"x"},"_meta":{},"name":"weather"},
        "method":"tools/call","id":7,"jsonrpc":"2.0"} "#;
    let messages = read(body).expect("a message");
    assert!(!messages.is_batch());
    let message = &messages.all()[0];
    assert_eq!(message.call(), Some((Subject::Tool, "weather")));
    assert_eq!(message.id(), json!(7));
    let answer = read(br#"{"jsonrpc":"2.0","id":"a","result":{}}"#).expect("an answer");
    assert_eq!(answer.all()[0].method, None);
}

#[test]
fn a_completion_calls_the_prompt_or_resource_that_it_refers_to() {
    let complete = |reference: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{{"ref":{reference},
            "argument":{{"name":"x","value":"y"}}}}}}"#
        )
    };
    for (reference, expected) in [
        (
            r#"{"type":"ref/prompt","name":"plan"}"#,
            (Subject::Prompt, "plan"),
        ),
        (
            r#"{"uri":"file:///{p}","type":"ref/resource"}"#,
            (Subject::Resource, "file:///{p}"),
        ),
    ] {
        let body = complete(reference);
        let batch = format!("[{body}]");
        for body in [body, batch] {
            let messages = read(body.as_bytes()).expect("a message");
            let message = &messages.all()[0];
            assert_eq!(message.call(), Some(expected), "{body}");
            assert!(!message.has_name_header());
        }
    }
    for reference in [
        r#""plan""#,
        "{}",
        r#"{"type":"ref/prompt"}"#,
        r#"{"type":"ref/prompt","uri":"file:///a"}"#,
        r#"{"type":"ref/other","name":"plan"}"#,
    ] {
        assert_eq!(code(&complete(reference)), INVALID_PARAMS, "{reference}");
    }
    let twofold = r#"{"type":"ref/prompt","name":"plan","Name":"pay"}"#;
    assert_eq!(code(&complete(twofold)), INVALID_REQUEST);
}

#[test]
fn a_subscription_without_an_address_is_left_to_the_server() {
    let of = |params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"resources/subscribe"{params}}}"#)
    };
    let bare = of("");
    let messages = read(bare.as_bytes()).expect("a message");
    assert_eq!(messages.all()[0].call(), None);
    assert_eq!(code(&of(r#","params":{"uri":7}"#)), INVALID_PARAMS);
}

#[test]
fn a_tool_smuggled_by_a_duplicate_member_is_refused() {
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","n\u0061me":"b"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","Name":"b"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"},"Params":{"name":"b"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"},"param\u017f":{"name":"b"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"b"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","METHOD":"tools/call","params":{"name":"b"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"p":1,"p":2}}}"#,
    ] {
        assert_eq!(code(body), INVALID_REQUEST, "{body}");
    }
}

#[test]
fn a_member_twice_is_found_among_few_and_among_many() {
    for count in [1, FEW - 1, FEW, FEW + 1, 10 * FEW] {
        for place in [0, count / 2, count - 1] {
            let members: Vec<_> = (0..count).map(|n| format!("\"m{n}\":1")).collect();
            let members = members.join(",");
            let body = |more: &str| {
                format!(
                    r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{{members}{more}}}}}"#
                )
            };
            assert_eq!(code(&body("")), 0, "{count}");
            let twice = body(&format!(",\"m{place}\":2"));
            assert_eq!(code(&twice), INVALID_REQUEST, "{twice}");
        }
    }
}

#[test]
fn names_of_inner_objects_are_their_own_however_many_there_are() {
    for count in [1, FEW - 4, FEW, 2 * FEW] {
        let inner: Vec<_> = (0..count).map(|n| format!("\"m{n}\":1")).collect();
        let inner = inner.join(",");
        let body = |more: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"m0":{{{inner}}},"m1":{{{inner},"deep":{{{inner}}}}},"m2":1{more}}}}}"#
            )
        };
        for more in ["", ",\"deep\":{}", ",\"m3\":{\"m0\":1}"] {
            assert_eq!(code(&body(more)), 0, "{more}");
        }
        for twice in [
            ",\"m0\":1",
            ",\"m2\":1",
            ",\"m3\":{\"m0\":1,\"m0\":1}",
            ",\"\\u006d1\":1",
        ] {
            assert_eq!(code(&body(twice)), INVALID_REQUEST, "{twice}");
        }
    }
}

#[test]
fn a_name_that_is_almost_one_that_decides_is_refused_and_no_other() {
    let body = |name: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","{name}":1}}"#);
    for alike in [
        "Params",
        "PARAMS",
        "parAms",
        "Result",
        "\\u0050arams",
        "re\u{17f}ult",
        "JSONRPC",
        "Id",
    ] {
        assert_eq!(code(&body(alike)), INVALID_REQUEST, "{alike}");
    }
    for other in [
        "param",
        "paramss",
        "p\u{61}rm\u{e4}",
        "q",
        "iD2",
        "\u{17f}",
        "results",
        "@d",
        "@rror",
    ] {
        assert_eq!(code(&body(other)), 0, "{other}");
    }
    let with_meta = |name: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"a","{name}":1}}}}"#
        )
    };
    assert_eq!(code(&with_meta("_META")), INVALID_REQUEST);
    // It differs from the name in the bit that tells capitals from small letters.
    assert_eq!(code(&with_meta("\u{7f}meta")), 0);
}

#[test]
fn what_is_no_message_is_refused() {
    for body in [
        "",
        "{",
        "{}x",
        "{\"a\":1}\n{\"a\":2}",
        "\u{feff}{}",
        "\"\\ud800\"",
    ] {
        assert_eq!(code(body), PARSE_ERROR, "{body}");
    }
    let deep = "[".repeat(200) + &"]".repeat(200);
    assert_eq!(code(&deep), PARSE_ERROR);
    for body in [
        "1",
        "[]",
        "[1]",
        r#"{"id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":["tools/call"]}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["a"]}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#,
    ] {
        assert_eq!(code(body), INVALID_REQUEST, "{body}");
    }
    for params in ["", r#","params":{}"#, r#","params":{"name":["a"]}"#] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call"{params}}}"#);
        assert_eq!(code(&body), INVALID_PARAMS, "{body}");
    }
    let many = vec![r#"{"jsonrpc":"2.0","method":"x"}"#; MAX_BATCH + 1].join(",");
    assert_eq!(code(&format!("[{many}]")), INVALID_REQUEST);
}

#[test]
fn a_body_that_is_not_utf_8_is_refused_wherever_that_shows() {
    let good = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"é\":\"ü😀\"}";
    assert_eq!(code(good), 0);
    let long = "x".repeat(100);
    for bad in [&b"\xff"[..], b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f"] {
        for before in ["", "xxxxxxxx", "\\n", &long] {
            for name in [true, false] {
                let (open, close) = if name {
                    ("", "\":1}")
                } else {
                    ("a\":\"", "\"}")
                };
                let twice = "\"jsonrpc\":\"2.0\",";
                for members in ["", twice] {
                    let head = format!(
                        "{{\"jsonrpc\":\"2.0\",\"method\":\"ping\",{members}\"{open}{before}"
                    );
                    let body = [head.as_bytes(), bad, before.as_bytes(), close.as_bytes()].concat();
                    let fault = read(&body).expect_err("no message");
                    assert_eq!(
                        fault.code,
                        PARSE_ERROR,
                        "{}",
                        String::from_utf8_lossy(&body)
                    );
                }
            }
        }
    }
}

#[test]
fn a_name_twice_is_found_however_long_it_is_and_however_it_is_spelled() {
    let spellings = |name: &str| {
        let escaped: String = name
            .chars()
            .map(|c| format!("\\u{:04x}", u32::from(c)))
            .collect();
        [name.to_owned(), escaped]
    };
    for others in [0, 1, 2, 3, FEW, 2 * FEW] {
        for length in 0..20 {
            let other: String = (0..others)
                .map(|n| format!("\"{n:09}\":1,\"o{n}\":1,"))
                .collect();
            let name = "x".repeat(length);
            for first in spellings(&name) {
                let once = format!(
                    "{{\"jsonrpc\":\"2.0\",\"method\":\"ping\",\"params\":{{{other}\"{first}\":1"
                );
                assert_eq!(code(&format!("{once}}}}}")), 0, "{once}");
                assert_eq!(code(&format!("{once},\"{name}y\":1}}}}")), 0, "{once}");
                for second in spellings(&name) {
                    let twice = format!("{once},\"{second}\":1}}}}");
                    assert_eq!(code(&twice), INVALID_REQUEST, "{twice}");
                }
            }
        }
    }
}
