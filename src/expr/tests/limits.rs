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
    assert_eq!(value_of(&format!("${{{expression}}}")), Value::Null);
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
    assert_eq!(value_of(&source), Value::Null);
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
