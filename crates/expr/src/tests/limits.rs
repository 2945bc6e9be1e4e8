//! Nothing that is written or sent takes long or much.

use proptest::prelude::*;

use super::*;

#[test]
fn deep_or_long_text_is_refused_without_exhausting_the_stack() {
    for text in [
        format!("${{{}1{}}}", "(".repeat(4000), ")".repeat(4000)),
        format!("${{{}1}}", "-".repeat(8000)),
        format!("${{{}1}}", "not ".repeat(2000)),
        format!("${{1{}}}", "+1".repeat(2000)),
        format!("${{request{}}}", ".a".repeat(2000)),
        format!("${{{}1}}", "1?".repeat(2000)),
        format!("${{{}1}}", "a[".repeat(2000)),
        format!("${{{}}}", "trim(".repeat(1500)),
        "x".repeat(MAX_SOURCE + 1),
        "${1}".repeat(1000),
    ] {
        assert!(Expression::compile(&text).is_err());
    }
}

#[test]
fn a_pattern_that_compiles_to_too_much_is_refused() {
    let error = Expression::compile("${find('a', '((a{100}){100}){100}')}").expect_err("refused");
    assert!(error.message.contains("too large"), "{error}");
}

#[test]
fn text_growth_is_bounded() {
    let mut expression = "'aaaaaaaaaaaaaaaa'".to_owned();
    for _ in 0..20 {
        expression.push_str(".replace('a', 'aaaaaaaaaaaaaaaa')");
    }
    let error = Expression::compile(&format!("${{{expression}}}")).expect_err("refused");
    assert!(error.message.contains("too large"), "{error}");
    let of_request = expression.replacen("'aaaaaaaaaaaaaaaa'", "request.headers['X-A'][0]", 1);
    let expression = Expression::compile(&format!("${{{of_request}}}")).expect("compiles");
    let mut request = parts();
    request
        .headers
        .insert("x-a", HeaderValue::from_static("aa"));
    let scope = Scope::new(&request, client());
    assert_eq!(expression.value(&scope), Err(Exceeded));
    assert_eq!(expression.evaluate(&scope), Value::Null);
}

#[test]
fn a_chain_of_conditions_may_be_long() {
    let conditions: Vec<_> = (0..200)
        .map(|i| format!("request.method == 'M{i}'"))
        .collect();
    let source = format!("${{{}}}", conditions.join(" || "));
    assert_eq!(value_of(&source), Value::Bool(false));
}

#[test]
fn lists_are_bounded() {
    let commas = ",x".repeat(2000);
    let source = format!("${{split('{commas}', ',')}}");
    assert!(Expression::compile(&source).is_err());
    let source = "${split(request.entity.string, ',')}";
    assert_eq!(with_body(source, commas.as_bytes()), Err(Exceeded));
    let body = "a=1&".repeat(2000);
    let all = value_with_body("${request.entity.form['a']}", Some(body.as_bytes()));
    assert_eq!(all, Value::Null);
}

#[test]
fn a_body_is_not_parsed_without_bound() {
    let once = "request.entity.json.a == 1";
    let source = format!("${{{}}}", vec![once; 17].join(" && "));
    let error = Expression::compile(&source).expect_err("refused");
    assert!(error.message.contains("more often"), "{error}");
}

/// The value for a POST with `body`.
fn with_body(source: &str, body: &[u8]) -> Result<Value<'static>, Exceeded> {
    let expression = Expression::compile(source).expect(source);
    let request = parts();
    let scope = Scope {
        body: Some(body),
        ..Scope::new(&request, client())
    };
    expression.value(&scope).map(Value::into_owned)
}

/// The value for a GET of `target`.
fn at(source: &str, target: &str) -> Result<Value<'static>, Exceeded> {
    let expression = Expression::compile(source).expect(source);
    let request = Request::get(target).body(()).expect("a request");
    let (request, ()) = request.into_parts();
    let value = expression.value(&Scope::new(&request, client()));
    value.map(Value::into_owned)
}

#[test]
fn a_thousand_more_parameters_do_not_hide_one() {
    let guard = "${not contains(request.queryParams['role'],'admin')}";
    let target = format!("/?role=admin{}", "&role=a".repeat(1024));
    assert_eq!(at(guard, "/?role=admin"), Ok(Value::Bool(false)));
    assert_eq!(at(guard, &target), Err(Exceeded));
    for guard in [
        "${empty request.queryParams['role']}",
        "${request.queryParams['role'] == null}",
        "${request.method == 'PUT' || request.queryParams['role'] == null}",
        "${request.queryParams.containsKey('role') ? 1 : 2}",
    ] {
        assert_eq!(at(guard, &target), Err(Exceeded), "{guard}");
    }
    let deep = format!("/{}admin", "a/".repeat(1024));
    let guard = "${not contains(request.uri.pathElements, 'admin')}";
    assert_eq!(at(guard, &deep), Err(Exceeded));
    assert_eq!(at(guard, "/a/admin"), Ok(Value::Bool(false)));
}

#[test]
fn a_body_of_bytes_that_are_no_text_does_not_hide_what_is_in_it() {
    let guard = "${not find(request.entity.string,'attack')}";
    let mut body = vec![0xff; 64 * 1024 - 6];
    body.extend(b"attack");
    assert_eq!(with_body(guard, &body), Ok(Value::Bool(false)));
    body.truncate(64 * 1024 - 6);
    assert_eq!(with_body(guard, &body), Ok(Value::Bool(true)));
    let guard = "${not contains(urlEncode(request.entity.string),'attack')}";
    assert_eq!(with_body(guard, &body), Err(Exceeded));
}

#[test]
fn a_long_text_does_not_pass_a_pattern_that_looks_back() {
    let guard = "${not matches(request.entity.string, '(?<!x)attack')}";
    assert_eq!(with_body(guard, b"attack"), Ok(Value::Bool(false)));
    let padded = format!("{}attack", "a".repeat(2048));
    assert_eq!(with_body(guard, padded.as_bytes()), Err(Exceeded));
    let hard = format!("{}attack", "a".repeat(60));
    let guard = r"${empty findGroups(request.entity.string, '^(a|aa)+\1(?=x)')}";
    assert_eq!(with_body(guard, hard.as_bytes()), Err(Exceeded));
}

#[test]
fn json_that_is_too_deep_is_not_taken_for_none() {
    let guard = "${request.entity.json.role != 'admin'}";
    let deep = format!(
        r#"{{"role":"admin","x":{}{}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    assert_eq!(with_body(guard, deep.as_bytes()), Err(Exceeded));
    assert_eq!(
        with_body(guard, br#"{"role":"user"}"#),
        Ok(Value::Bool(true))
    );
}

#[test]
fn a_body_is_not_read_more_often_by_another_name() {
    let body = format!("\"{}\"", "a".repeat(60_000));
    for once in [
        "empty toJson(request.entity.string)",
        "empty request.form['b']",
    ] {
        let source = format!("${{{}}}", [once; 30].join(" || "));
        let few = format!("${{{}}}", [once; 10].join(" || "));
        let body = if once.contains("form") {
            "a".repeat(60_000)
        } else {
            body.clone()
        };
        let not = |source: &str| with_body(&source.replace("empty", "not empty"), body.as_bytes());
        let outcome = if once.contains("form") {
            not(&source)
        } else {
            with_body(&source, body.as_bytes())
        };
        assert_eq!(outcome, Err(Exceeded), "{once}");
        let outcome = if once.contains("form") {
            not(&few)
        } else {
            with_body(&few, body.as_bytes())
        };
        assert_eq!(outcome, Ok(Value::Bool(false)), "{once}");
    }
}

#[test]
fn a_condition_waits_for_the_body_only_where_it_looks_at_it() {
    let source = "${find(request.uri.path,'^/%') and request.entity.json.kind=='x'}";
    let judge = |source: &str, method: &str| {
        let expression = Expression::compile(source).expect(source);
        let request = Request::builder().method(method).uri("/upload");
        let (request, ()) = request.body(()).expect("a request").into_parts();
        expression.is_true_before_body(&Scope::new(&request, client()))
    };
    assert_eq!(judge(source, "POST"), Ok(Some(false)));
    let source = "${request.method == 'POST' and request.entity.json.kind=='x'}";
    assert_eq!(judge(source, "GET"), Ok(Some(false)));
    assert_eq!(judge(source, "POST"), Ok(None));
    for looks in [
        "${empty request.entity}",
        "${toString(request.entity) == ''}",
        "${not request.entity.empty}",
        "${request.entity.json == null}",
    ] {
        assert_eq!(judge(looks, "POST"), Ok(None), "{looks}");
    }
    // A form is looked for only in a body that is one.
    assert_eq!(judge("${empty request.form['a']}", "POST"), Ok(Some(true)));
}

#[test]
fn what_grows_and_then_shrinks_may_be_long_in_between() {
    let body = "a".repeat(40_000);
    for (source, length) in [
        ("${length(request.entity.string.replace('a','b'))}", 40_000),
        (
            "${length(toUpperCase(urlEncodePathElement(request.entity.string)))}",
            40_000,
        ),
    ] {
        assert_eq!(
            with_body(source, body.as_bytes()),
            Ok(Value::Integer(length))
        );
    }
    let blanks = " ".repeat(50_000);
    let source = "${empty urlEncodePathElement(request.entity.string)}";
    assert_eq!(with_body(source, blanks.as_bytes()), Err(Exceeded));
    let long = "ΐ".repeat(32_000);
    let source = "${empty toUpperCase(request.entity.string)}";
    assert_eq!(with_body(source, long.as_bytes()), Err(Exceeded));
    let source = "${empty request.entity.string.replaceAll('a', '$0$0$0$0')}";
    assert_eq!(with_body(source, body.as_bytes()), Err(Exceeded));
}

#[test]
fn a_malformed_escape_does_not_hide_the_path_or_the_query() {
    for (source, target) in [
        ("${find(request.uri.path, '^/admin')}", "/admin/%ff"),
        ("${find(request.uri.path, '^/admin')}", "/%61dmin/%FF%zz%"),
        ("${request.uri.path.startsWith('/admin')}", "/admin%c3"),
        (
            "${contains(request.uri.pathElements, 'admin')}",
            "/%ff/admin",
        ),
        ("${find(request.uri.query, 'debug=1')}", "/?debug=1&q=100%"),
        (
            "${find(request.uri.query, 'debug=1')}",
            "/?%64ebug=1&q=%ff%",
        ),
        ("${request.uri.path == '/100%'}", "/100%"),
    ] {
        assert_eq!(
            at(source, target),
            Ok(Value::Bool(true)),
            "{source} {target}"
        );
        let expression = Expression::compile(source).expect(source);
        let (request, ()) = Request::get(target)
            .body(())
            .expect("a request")
            .into_parts();
        assert_eq!(
            expression.is_true(&Scope::new(&request, client())),
            Ok(true)
        );
    }
}

fn any_expression() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "request",
        "contexts",
        "client",
        "headers",
        "info",
        "attributes",
        "openid",
        "uri",
        "'X-User'",
        "'a|b'",
        "1",
        "2.5",
        "null",
        "true",
        "empty ",
        "not ",
        "-",
        "(",
        ")",
        "[",
        "]",
        ".",
        ",",
        "?",
        ":",
        "+",
        "*",
        " div ",
        "%",
        "==",
        " lt ",
        "&&",
        "||",
        "toString(",
        "find(",
        "split(",
        "substring(",
        "join(",
        "array(",
        "length(",
        ".values",
        "[0]",
        "request.headers['X-User'][0]",
        "contexts.oauth2.accessToken.info",
        "9223372036854775807",
        "}",
        "${",
        "\\",
        "'",
        "é",
    ]);
    prop::collection::vec(word, 0..40).prop_map(|words| format!("${{{}}}", words.concat()))
}

/// Well-formed expressions of every kind.
fn well_formed() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "null",
        "true",
        "1",
        "2.5",
        "'a,b'",
        "'/Users'",
        "request.uri.path",
        "request.uri",
        "request.headers['X-User']",
        "request.headers['X-User'][0]",
        "request.entity.json",
        "request.form",
        "contexts.oauth2.accessToken.info",
        "contexts.client.remoteAddress",
        "response.status.code",
        "attributes.openid",
        "session.x",
        "'10.0.0.1'",
        "request.cookies['sid'][0].value",
        "request.entity.bytes",
        "contexts.oauth2",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(5, 40, 3, |inner| {
        let operators = vec![
            "+", "-", "*", "/", "%", "<", ">=", "==", "!=", "&&", "||", "mod", "eq",
        ];
        let functions = vec![
            "trim",
            "length",
            "toString",
            "toUpperCase",
            "integer",
            "bool",
            "digestSha256",
            "encodeBase64",
            "urlEncode",
            "toJson",
            "escapeJson",
            "lastElement",
            "urlDecode",
            "urlEncodePathElement",
            "array",
        ];
        let methods = vec![
            "substring",
            "indexOf",
            "concat",
            "contains",
            "startsWith",
            "equals",
            "get",
            "charAt",
            "repeat",
            "containsKey",
            "getFirst",
        ];
        let patterns = vec![
            "find",
            "split",
            "findGroups",
            "keyMatch",
            "matchesWithRegex",
        ];
        prop_oneof![
            (
                inner.clone(),
                prop::sample::select(operators),
                inner.clone()
            )
                .prop_map(|(a, o, b)| format!("({a} {o} {b})")),
            (prop::sample::select(functions), inner.clone()).prop_map(|(f, a)| format!("{f}({a})")),
            (inner.clone(), prop::sample::select(methods), inner.clone())
                .prop_map(|(a, m, b)| format!("({a}).{m}({b})")),
            (prop::sample::select(patterns), inner.clone())
                .prop_map(|(f, a)| format!("{f}({a}, '(?<=.)[a-z,]+|(b)')")),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("empty {a} or not join({a}, {b})")),
        ]
    })
}

/// Whether no part of a value is longer than allowed.
fn is_bounded(value: &Value<'_>) -> bool {
    match value {
        Value::Text(text) => text.len() <= MAX_TEXT,
        Value::List(list) => list.len() <= MAX_LIST && list.iter().all(is_bounded),
        _ => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text_compiles_or_is_refused(source in any::<String>()) {
        evaluate_if_it_compiles(&source);
    }

    #[test]
    fn what_is_well_formed_compiles_and_stays_within_bounds(source in well_formed()) {
        let source = format!("${{{source}}}");
        match Expression::compile(&source) {
            Ok(_) => {
                prop_assert!(is_bounded(&value_of(&source)));
                let mixed = format!("x{source}");
                prop_assert!(is_bounded(&value_of(&mixed)));
            }
            // Members of what never has any are refused.
            Err(error) => prop_assert!(error.message.contains("members"), "{source}: {error}"),
        }
    }

    #[test]
    fn any_mix_of_words_compiles_or_is_refused(source in any_expression()) {
        evaluate_if_it_compiles(&source);
    }
}

fn evaluate_if_it_compiles(source: &str) {
    match Expression::compile(source) {
        Ok(_) => drop(value_of(source)),
        Err(error) => assert!(error.column <= source.chars().count() + 1),
    }
}
