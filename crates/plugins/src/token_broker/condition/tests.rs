//! What conditions mean.

use http::Method;
use pingora::http::RequestHeader;

use super::*;
use crate::token_broker::form::Form;

fn holds(condition: &str) -> bool {
    let mut request =
        RequestHeader::build(Method::POST, b"/weather/access_token?a=1&b=", None).expect("a head");
    request.insert_header("X-Level", "12").expect("a field");
    let form = Form::parse(b"grant_type=password").expect("a form");
    let facts = Facts {
        request: &request,
        base: "/weather",
        suffix: "/access_token",
        body: None,
        body_read: true,
        form: Some(&form),
        client: [127, 0, 0, 1].into(),
        now_ms: 5,
        organization: "acme",
        environment: "test",
        proxy: "weather",
        set: None,
    };
    Condition::compile(condition)
        .unwrap_or_else(|error| panic!("{condition}: {error}"))
        .holds(&facts)
        .expect("everything is known")
}

#[test]
fn every_operator_has_its_forms() {
    for condition in [
        r#"(proxy.pathsuffix MatchesPath "/access_token**") and (request.verb = "POST")"#,
        r#"proxy.pathsuffix ~/ "/access_token**" && request.verb == "POST""#,
        r#"proxy.pathsuffix LikePath "/*" & request.verb is "POST""#,
        r#"request.verb equals "POST" AND request.verb := "post""#,
        r#"request.verb EqualsCaseInsensitive "post""#,
        r#"request.verb != "GET" and request.verb isnot "PUT" and request.verb notequals "X""#,
        r#"request.header.x-level > 9 and request.header.X-LEVEL >= "12""#,
        r#"request.header.x-level < 13 and request.header.x-level lesserthanorequals 12"#,
        r#"request.header.x-level GreaterThan 9 or 1 > 2"#,
        r#"request.path ~ "/w*token" and request.path Matches "*" and request.path like "/*""#,
        r#"request.path ~~ "/[a-z]+/access_token" and request.verb JavaRegex "P(OS|U)T""#,
        r#"request.path =| "/weather" and request.path StartsWith "/w""#,
        r#"!(request.verb = "GET") and not request.verb = "PUT""#,
        r#"request.verb = "GET" || request.verb = "POST""#,
        r#"request.queryparam.a = "1" and request.formparam.grant_type = "password""#,
        r#"request.header.absent = null and request.verb != null"#,
        r#"request.header.x-level.values.count = 1"#,
        r#"proxy.basepath = "/weather" and organization.name = "acme""#,
        r#"environment.name = "test" and apiproxy.name = "weather" and client.ip = "127.0.0.1""#,
        "true",
    ] {
        assert!(holds(condition), "{condition}");
    }
}

#[test]
fn a_variable_that_is_not_set_equals_null_alone() {
    for condition in [
        r#"request.header.absent = "x""#,
        r#"request.header.absent != "x""#,
        r#"request.header.absent > 1"#,
        r#"request.header.absent ~ "*""#,
        r#"request.header.absent != null"#,
        r#"request.header.absent = """#,
        "request.header.absent",
        r#"request.verb > 1"#,
        r#"request.verb = "post""#,
        r#"request.path ~~ "access_token""#,
    ] {
        assert!(!holds(condition), "{condition}");
    }
}

#[test]
fn and_binds_closer_than_or() {
    assert!(holds("true or true and false"));
    assert!(!holds("(true or true) and false"));
}

#[test]
fn what_is_no_condition_is_refused() {
    for text in [
        "",
        "(",
        "(true",
        "true)",
        "request.verb =",
        "= 1",
        r#"request.verb = "POST"#,
        r#"request.verb ~/ "x""#,
        r#"request.verb ~~ "(""#,
        "request.verb ~ request.path",
        "response.status.code = 200",
        "request.verb # 1",
        "a b",
    ] {
        assert!(Condition::compile(text).is_err(), "{text}");
    }
    assert!(Condition::compile(&"!".repeat(4000)).is_err());
    assert!(Condition::compile(&"(".repeat(4000)).is_err());
    assert!(Condition::compile(&" ".repeat(5000)).is_err());
}

/// What is known of a request for `/x` whose body nobody has read.
fn facts(request: &RequestHeader) -> Facts<'_> {
    Facts {
        request,
        base: "/",
        suffix: "/x",
        body: None,
        body_read: false,
        form: None,
        client: [127, 0, 0, 1].into(),
        now_ms: 5,
        organization: "",
        environment: "",
        proxy: "",
        set: None,
    }
}

#[test]
fn a_condition_may_spell_a_character_of_a_path_either_way() {
    let request = RequestHeader::build(Method::GET, b"/", None).expect("a head");
    let facts = Facts {
        base: "/caf%C3%A9",
        suffix: "/a%7Cb%20c",
        body_read: true,
        ..facts(&request)
    };
    for condition in [
        r#"proxy.pathsuffix = "/a|b c" and "/a%7Cb%20c" = proxy.pathsuffix"#,
        r#"proxy.basepath = "/café" and proxy.basepath StartsWith "/caf%C3""#,
        r#"proxy.pathsuffix ~ "/a|b*" and request.path ~ "*/a%7C*""#,
        r#"proxy.pathsuffix MatchesPath "/a|b *" and proxy.pathsuffix ~/ "/a%7Cb%20c""#,
        r#"proxy.pathsuffix ~~ "/a[|]b c" and proxy.pathsuffix ~~ "/a%7Cb%20c""#,
        r#"proxy.pathsuffix != "/a|b" and not proxy.pathsuffix ~~ "/a""#,
    ] {
        let compiled = Condition::compile(condition).expect("a condition");
        assert_eq!(compiled.holds(&facts), Some(true), "{condition}");
    }
}

#[test]
fn a_body_is_asked_for_only_where_it_decides() {
    let mut request = RequestHeader::build(Method::POST, b"/x", None).expect("a head");
    let kind = "application/x-www-form-urlencoded";
    request
        .insert_header("Content-Type", kind)
        .expect("a field");
    let holds = |text| {
        Condition::compile(text)
            .expect("one")
            .holds(&facts(&request))
    };
    assert_eq!(holds(r#"request.formparam.a = "1""#), None);
    assert_eq!(
        holds(r#"request.formparam.a = "1" and request.verb = "GET""#),
        Some(false)
    );
    assert_eq!(
        holds(r#"request.formparam.a = "1" or request.verb = "POST""#),
        Some(true)
    );
    assert_eq!(
        holds(r#"not (request.formparam.a = "1" and request.verb = "POST")"#),
        None
    );
    let plain = RequestHeader::build(Method::POST, b"/x", None).expect("a head");
    let condition = Condition::compile(r#"request.formparam.a = "1""#).expect("one");
    assert_eq!(condition.holds(&facts(&plain)), Some(false));
}
