use serde_json::json;

use super::*;

#[test]
fn secrets_are_not_shown() {
    let shown = redacted(json!({
        "client_secret": ["a"], "session_secret": null, "cache_tokens_salt": "b",
        "nested": [{"redis_password": "c", "port": 5}], "client_id": ["d"],
        "display_secret_hint": true,
    }));
    let expected = json!({
        "client_secret": "[redacted]", "session_secret": null,
        "cache_tokens_salt": "[redacted]",
        "nested": [{"redis_password": "[redacted]", "port": 5}], "client_id": ["d"],
        "display_secret_hint": true,
    });
    assert_eq!(shown, expected);
}

#[test]
fn what_is_no_method_and_no_address_is_refused_with_what_was_meant() {
    let refused = |method: &str, url: &str| {
        let question = Question {
            method: method.to_owned(),
            ..question(url)
        };
        question.request().expect_err("refused").to_string()
    };
    assert_eq!(
        refused("get", "/a"),
        "method: 'get' is no method; did you mean GET?"
    );
    let foo = refused("foo", "bar");
    assert!(
        foo.starts_with("method: 'foo' is no method: expected GET, "),
        "{foo}"
    );
    let bar = refused("GET", "bar");
    assert!(bar.starts_with("url: 'bar' is neither "), "{bar}");
    assert!(bar.ends_with("did you mean http://bar or /bar?"), "{bar}");
    refused("GET", "*");
    let options = Question {
        method: "OPTIONS".to_owned(),
        ..question("*")
    };
    options.request().expect("a request");
}

fn question(url: &str) -> Question {
    Question {
        url: url.to_owned(),
        ..Question::default()
    }
}

#[test]
fn a_question_is_asked_as_a_client_would_send_it() {
    let request = question("https://A.test:81?x=%2f#part")
        .request()
        .expect("a request");
    assert_eq!(request.raw_path(), b"/?x=%2f");
    assert_eq!(request.headers["host"], "A.test:81");
    assert_eq!(request.method, "GET");
    assert_eq!(
        question("https://A.test:81/").sni().as_deref(),
        Some("a.test")
    );
    assert_eq!(question("https://10.0.0.1/").sni(), None);
    assert_eq!(question("http://a.test/").sni(), None);
    let own = Question {
        headers: json!(["Host: other.test", ["x-a", 1]]),
        ..question("http://a.test/")
    };
    let request = own.request().expect("a request");
    assert_eq!(request.headers["host"], "other.test");
    assert_eq!(request.headers["x-a"], "1");
}

#[test]
fn what_no_request_can_be_is_refused() {
    for url in ["", "ftp://a/", "//:x://"] {
        question(url).request().expect_err(url);
    }
    for headers in [
        json!(5),
        json!(["no colon"]),
        json!({"a b": "c"}),
        json!({"a": {}}),
    ] {
        let question = Question {
            headers,
            ..question("/")
        };
        question.request().expect_err("refused");
    }
}
