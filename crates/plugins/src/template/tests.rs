#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use doorward_core::model::consumer::Consumer;
use doorward_plugin_api::filter::RouteContext;
use http::HeaderValue;
use http::header::HOST;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn rendered(text: &str, exchange: &Exchange) -> Result<String, Failed> {
    let request = http::Request::builder()
        .uri("/a?q1=v1&q2=x&q2=y&enc=%0d%0aX:1&bare")
        .header(HOST, "a.test:8000")
        .header("X-Many", "1")
        .header("X-Many", "2")
        .header("x-userinfo", "forged")
        .header("X-Consumer-Username", "forged")
        .body(())
        .unwrap();
    let (parts, ()) = request.into_parts();
    let request = Request {
        parts: &parts,
        exchange,
    };
    Template::read(text).unwrap().render(&request)
}

fn text(text: &str) -> String {
    let captures = [("0", "/a/b"), ("1", "b"), ("user", "b"), ("2", "12")];
    let captures = captures.map(|(name, text)| (name.into(), text.into()));
    let exchange = Exchange {
        route_context: Some(Box::new(RouteContext {
            records: None,
            captures: captures.into(),
            owned_headers: [HeaderName::from_static("x-userinfo")].into(),
        })),
        ..Exchange::default()
    };
    rendered(text, &exchange).unwrap()
}

#[test]
fn members_of_the_request_are_found_in_every_spelling() {
    for (template, value) in [
        ("plain", "plain"),
        ("", ""),
        ("$(headers.host)", "a.test:8000"),
        ("a $(headers['HOST']) b", "a a.test:8000 b"),
        ("$(headers.x_many[2])", "2"),
        ("$(headers[\"x-many\"][1])", "1"),
        ("$(headers.none)", ""),
        ("$(query_params.q1)$(query_params['q1'])", "v1v1"),
        ("$(query_params.q2[2])", "y"),
        ("$(query_params.bare)", ""),
        ("$(uri_captures.user)", "b"),
        (
            "$(uri_captures[\"user\"]) $(uri_captures[0]) $(uri_captures[1])",
            "b /a/b b",
        ),
        ("$(uri_captures.none or 'default')", "default"),
        ("$('$(literal)')", "$(literal)"),
    ] {
        assert_eq!(text(template), value, "{template}");
    }
}

#[test]
fn operators_and_functions_of_the_subset() {
    for (template, value) in [
        ("$('a' .. 'b' .. 1)", "ab1"),
        ("$(query_params.q1 == 'v1' and 'yes' or 'no')", "yes"),
        ("$(query_params.q1 ~= 'v1' and 'yes' or 'no')", "no"),
        ("$(not headers.none and 'none')", "none"),
        ("$(false)$(nil)$(true)", "true"),
        ("$((headers.none or query_params.q1) .. '!')", "v1!"),
        ("$(string.sub('abcdef', 2, 3))", "bc"),
        ("$(string.sub('abcdef', -2))", "ef"),
        ("$(string.sub('abc', 3, 1))", ""),
        ("$(string.upper(query_params.q1))", "V1"),
        ("$(string.len('abc'))", "3"),
        ("$(type(query_params.q2))", "table"),
        ("$(tonumber('12') == 12 and 'same')", "same"),
        ("$(tostring(nil))", "nil"),
        ("$(10 * uri_captures[2] + 1)", "121"),
        ("$(7 % 3 .. '-' .. 7 - 2 * 3 .. '-' .. 1 / 4)", "1-1-0.25"),
        ("$(0.1 + 0.2)", "0.3"),
        ("$(2 < 10 and 'less')$('b' >= 'a' and 'more')", "lessmore"),
        ("$(shared.version or 'none')", "none"),
        ("$(false and missing())", ""),
    ] {
        assert_eq!(text(template), value, "{template}");
    }
}

#[test]
fn what_has_no_text_fails_and_is_not_half_a_text() {
    for template in [
        "a$(headers.x_many)",
        "$(nil .. 'a')",
        "$(string.sub('a'  , 'b'))",
        "$(10 * uri_captures.user)",
        "$(10 * headers.none)",
        "$(1 / 0)",
        "$(1 < 'a')",
        "$(missing())",
        "$(missing.method(headers.host, 1) == 'table' and 'a')",
    ] {
        assert_eq!(
            rendered(template, &Exchange::default()),
            Err(Failed),
            "{template}"
        );
    }
}

#[test]
fn a_forged_identity_header_is_never_read() {
    assert_eq!(text("$(headers['x-userinfo'])"), "");
    assert_eq!(text("$(headers['x-consumer-username'])"), "");
    let consumer = Consumer {
        id: Uuid::from_u128(1),
        username: Some("anna".to_owned()),
        custom_id: None,
        tags: None,
        created_at: 0,
        updated_at: 0,
    };
    let name = HeaderName::from_static("x-userinfo");
    let exchange = Exchange {
        consumer: Some(Arc::new(consumer.into())),
        vouched: vec![(name, HeaderValue::from_static("verified"))],
        ..Exchange::default()
    };
    let all = "$(headers['X-Consumer-Username']) $(headers.x_userinfo)";
    assert_eq!(rendered(all, &exchange).as_deref(), Ok("anna verified"));
}

#[test]
fn what_is_not_in_the_subset_is_refused_by_name() {
    for (template, words) in [
        ("$(os.execute('ls'))", "unknown name near 'os.execute"),
        ("$(math.floor(1.5))", "unknown name near 'math.floor"),
        ("$(header.host)", "unknown name near 'header.host"),
        ("$(shared.x = 1)", "expected ')'"),
        ("$(missing(1)", "expected ')'"),
        ("$(headers.host", "expected ')'"),
        ("$(headers)", "expected '['"),
        ("$(headers.)", "expected a name"),
        ("$('a)", "a text without an end"),
        ("$()", "unknown name"),
        ("$(string.rep('a', 100))", "unknown name near 'string.rep"),
        ("$(string.sub('a'))", "wrong number of arguments"),
    ] {
        let message = Template::read(template).unwrap_err();
        assert!(message.contains(words), "{message}");
        let begins = format!("value '{template}' is not in supported format, error:");
        assert!(message.starts_with(&begins), "{message}");
    }
    let deep = format!("$({}1{})", "(".repeat(50), ")".repeat(50));
    assert!(
        Template::read(&deep)
            .unwrap_err()
            .contains("too many brackets")
    );
    let long = format!("$(1{})", " .. 1".repeat(200));
    assert!(
        Template::read(&long)
            .unwrap_err()
            .contains("too many values")
    );
}

proptest! {
    #[test]
    fn no_text_is_a_panic(text in "[ -~]{0,40}|(\\$\\(|\\)|'|headers|\\.|\\[|\\]|[0-9é-]| or |\\.\\.){0,12}") {
        if let Ok(template) = Template::read(&text) {
            let (parts, ()) = http::Request::new(()).into_parts();
            let exchange = Exchange::default();
            let _ = template.render(&Request { parts: &parts, exchange: &exchange });
        }
    }
}
