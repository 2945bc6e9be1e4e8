//! Expressions against requests.

use http::Request;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn parts() -> Parts {
    let request = Request::builder()
        .method("POST")
        .uri("/Users/a%20b?page=2&page=3&q=x+y")
        .header("Host", "api.example.com:8080")
        .header("X-User", "ada")
        .header("x-user", "bob")
        .header("X-Groups", "red,green,,")
        .header("Cookie", "sid=s1; theme=\"dark\"")
        .header("Cookie", "sid=s2")
        .header("User-Agent", "probe/1")
        .body(())
        .expect("a valid request");
    request.into_parts().0
}

fn token() -> AccessToken {
    let claims = json!({
        "sub": "demo", "iss": "http://op", "n": 5, "ok": true, "aud": ["a", "b"],
        "act": {"sub": "robot"}, "empty": "",
    });
    AccessToken {
        token: "abc.def".into(),
        claims: claims.as_object().expect("an object").clone(),
        scopes: vec!["openid".into(), "mail".into()],
        expires_at: Some(1_700_000_000),
    }
}

fn value_of(text: &str) -> Value<'static> {
    let (request, token) = (parts(), token());
    let scope = Scope {
        secure: true,
        certificate: None,
        token: Some(&token),
        ..Scope::new(&request, "192.0.2.7:4711".parse().expect("an address"))
    };
    let expression = match Expression::compile(text) {
        Ok(expression) => expression,
        Err(error) => panic!("{text}: {error}"),
    };
    expression.evaluate(&scope).into_owned()
}

fn text(text: &str) -> Value<'static> {
    Value::Text(text.to_owned().into())
}

fn check_texts(table: &[(&str, &str)]) {
    for (expression, expected) in table {
        assert_eq!(value_of(expression), text(expected), "{expression}");
    }
}

#[test]
fn context_values_are_read_from_the_request() {
    check_texts(&[
        ("${request.method}", "POST"),
        ("${request.version}", "HTTP/1.1"),
        ("${request.uri.scheme}", "https"),
        ("${request.uri.host}", "api.example.com"),
        ("${request.uri.path}", "/Users/a b"),
        ("${request.uri.rawPath}", "/Users/a%20b"),
        ("${request.uri.rawQuery}", "page=2&page=3&q=x+y"),
        (
            "${request.uri.toString()}",
            "https://api.example.com:8080/Users/a%20b?page=2&page=3&q=x+y",
        ),
        ("${request.headers['X-User'][0]}", "ada"),
        ("${request.headers['x-USER'][1]}", "bob"),
        ("${request.headers['X-User'].values[1]}", "bob"),
        ("${request.headers[toLowerCase('X-USER')][0]}", "ada"),
        (
            "${request.headers[contexts.client.userAgent == 'probe/1' ? 'X-User' : 'Host'][0]}",
            "ada",
        ),
        ("${request.headers.Host[0]}", "api.example.com:8080"),
        ("${request.cookies['sid'][1].value}", "s2"),
        ("${request.cookies.theme[0].value}", "dark"),
        ("${request.queryParams['page'][1]}", "3"),
        ("${request.form['q'][0]}", "x y"),
        ("${contexts.client.remoteAddress}", "192.0.2.7"),
        ("${contexts.client.userAgent}", "probe/1"),
        ("${contexts.oauth2.accessToken.token}", "abc.def"),
        ("${contexts.oauth2.accessToken.scopes[1]}", "mail"),
        ("${contexts.oauth2.accessToken.info.sub}", "demo"),
        ("${contexts.oauth2.accessToken.info['sub']}", "demo"),
        ("${contexts.oauth2.accessToken.info.act.sub}", "robot"),
        ("${contexts.oauth2.accessToken.info.aud[1]}", "b"),
        ("${attributes.openid.user_info.sub}", "demo"),
        ("${attributes.openid.sub}", "demo"),
        (
            "${contexts.attributes.attributes.openid.id_token_claims.iss}",
            "http://op",
        ),
    ]);
    assert_eq!(value_of("${request.uri.port}"), Value::Integer(8080));
    assert_eq!(
        value_of("${contexts.client.remotePort}"),
        Value::Integer(4711)
    );
    assert_eq!(value_of("${contexts.client.isSecure}"), Value::Bool(true));
    assert_eq!(
        value_of("${contexts.oauth2.accessToken.expiresAt}"),
        Value::Integer(1_700_000_000_000)
    );
}

#[test]
fn what_is_missing_is_null() {
    for expression in [
        "${null}",
        "${request.headers['None'][0]}",
        "${request.headers['None']}",
        "${request.headers['X-User'][7]}",
        "${request.cookies['none'][0].value}",
        "${request.form['none'][0]}",
        "${contexts.oauth2.accessToken.info.none}",
        "${contexts.oauth2.accessToken.info.none.deeper[3]}",
        "${contexts.oauth2.accessToken.info.aud[9]}",
        "${request.headers['None'][0].trim()}",
        "${toLowerCase(null)}",
        "${toString(null)}",
        "${split(null, ',')}",
        "${join(null, ',')}",
        "${findGroups(null, 'x')}",
        "${integer('x')}",
        "${env['DOORWARD_NO_SUCH_VARIABLE']}",
        "${system['user.home']}",
        "${9223372036854775807 + 1}",
        "${-(-9223372036854775807 - 1)}",
        "${1 % 0}",
        "${'a' * 2}",
        "${request.uri.fragment}",
        "${'abc'.substring(2, 1)}",
        "${'abc'.substring(4)}",
        "${request.headers < 3}",
    ] {
        assert_eq!(value_of(expression), Value::Null, "{expression}");
    }
}

#[test]
fn operators_bind_as_documented() {
    for (expression, expected) in [
        ("${1 + 2 * 3 == 7}", true),
        ("${(1 + 2) * 3 == 9}", true),
        ("${-1 + 3 == 2 and not (1 gt 2)}", true),
        ("${7 mod 4 == 3 && 7 div 2 == 3.5}", true),
        ("${1 lt 2 == true}", true),
        ("${false && false || true}", true),
        ("${true || false && false}", true),
        ("${!false ? true : false}", true),
        ("${false ? true : false ? false : true}", true),
        ("${'10' lt '9'}", true),
        ("${'10' lt 9}", false),
        ("${'5' == 5}", true),
        ("${null == null}", true),
        ("${null != 'a'}", true),
        ("${null lt 1}", false),
        ("${null ge null}", true),
        ("${empty null && empty '' && not empty 'a'}", true),
        ("${empty request.headers['None']}", true),
        ("${empty request.headers['X-User']}", false),
        ("${contexts.oauth2.accessToken.info.n ge 5}", true),
        ("${contexts.oauth2.accessToken.info.ok}", true),
        ("${1e3 == 1000}", true),
        ("${2 ne 2.0}", false),
    ] {
        assert_eq!(value_of(expression), Value::Bool(expected), "{expression}");
    }
    assert_eq!(value_of("${7 / 2}"), Value::Float(3.5));
    assert_eq!(value_of("${'5' + '3'}"), Value::Integer(8));
}

#[test]
fn text_and_expressions_mix() {
    check_texts(&[
        ("plain", "plain"),
        ("", ""),
        ("a-${request.method}-${1 + 1}-b", "a-POST-2-b"),
        ("x${request.headers['None'][0]}y", "xy"),
        (r"\${request.method}", "${request.method}"),
        ("${'}'}{", "}{"),
        ("$5 {x} ${true}", "$5 {x} true"),
        (r"${'it\'s'}", "it's"),
        (r#"${"a\"b"}"#, "a\"b"),
        (r"${'a\\b'}", r"a\b"),
        (r"${'\d'}", r"\d"),
        ("${7 / 2}!", "3.5!"),
        ("${4 / 2}!", "2.0!"),
    ]);
}

#[test]
fn functions_and_methods_do_what_they_say() {
    check_texts(&[
        ("${toUpperCase(request.headers['X-User'][0])}", "ADA"),
        ("${toLowerCase('ÀB')}", "àb"),
        ("${trim('  x ')}", "x"),
        ("${toString(contexts.client.remotePort)}", "4711"),
        (
            "${toString(contexts.oauth2.accessToken.info.aud)}",
            r#"["a","b"]"#,
        ),
        (
            "${join(split(request.headers['X-Groups'][0], ','), '+')}",
            "red+green",
        ),
        (
            "${join(contexts.oauth2.accessToken.scopes, ' ')}",
            "openid mail",
        ),
        ("${findGroups(request.uri.path, '^/(\\w+)/')[1]}", "Users"),
        ("${urlEncode('a b&c')}", "a+b%26c"),
        ("${urlDecode('a+b%26c')}", "a b&c"),
        ("${encodeBase64('hello')}", "aGVsbG8="),
        ("${decodeBase64('aGVsbG8=')}", "hello"),
        (
            "${encodeBase64url(digestSha256('abc'))}",
            "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0",
        ),
        ("${lastElement(array('a', 'b'))}", "b"),
        (
            "${keyMatch(contexts.oauth2.accessToken.info, 'is.')}",
            "iss",
        ),
        ("${'a'.concat('b').concat(\"c\")}", "abc"),
        ("${'/x/y'.substring(1, 2)}", "x"),
        ("${'aXbX'.replace('X', '--')}", "a--b--"),
        ("${'abc'.charAt(1)}", "b"),
    ]);
    for (expression, expected) in [
        ("${contains(request.uri.path, 'Users')}", true),
        (
            "${contains(contexts.oauth2.accessToken.scopes, 'mail')}",
            true,
        ),
        (
            "${contains(contexts.oauth2.accessToken.info.aud, 'c')}",
            false,
        ),
        ("${contains(null, 'x')}", false),
        ("${matches('xay', 'a')}", true),
        ("${find(request.uri.path, '^/Users')}", true),
        ("${find(null, 'x')}", false),
        ("${matchesWithRegex('xay', 'a')}", false),
        ("${matchesWithRegex('ab', 'a|ab')}", true),
        ("${'abc'.matches('a.c')}", true),
        ("${'abc'.startsWith('ab') && 'abc'.endsWith('bc')}", true),
        ("${bool('TRUE')}", true),
        ("${bool('yes')}", false),
        (
            "${ipMatch(contexts.client.remoteAddress, '192.0.2.0/24')}",
            true,
        ),
        ("${ipMatch('10.0.0.5', '10.0.0.1-10.0.0.4')}", false),
        ("${ipMatch('::ffff:10.0.0.5', '10.0.0.5')}", true),
        ("${ipMatch('nonsense', '10.0.0.0/8')}", false),
        ("${request.headers.containsKey('X-User')}", true),
        ("${'Ab'.equalsIgnoreCase('aB')}", true),
    ] {
        assert_eq!(value_of(expression), Value::Bool(expected), "{expression}");
    }
    assert_eq!(value_of("${length('äb')}"), Value::Integer(2));
    assert_eq!(value_of("${length(null)}"), Value::Integer(0));
    assert_eq!(value_of("${indexOf('abc', 'c')}"), Value::Integer(2));
    assert_eq!(value_of("${indexOf('abc', 'z')}"), Value::Integer(-1));
    assert_eq!(
        value_of("${integerWithRadix('ff', 16)}"),
        Value::Integer(255)
    );
}

#[test]
fn what_can_not_exist_is_refused_with_its_column() {
    for (expression, column, words) in [
        ("${reqest.method}", 3, "begins with `request`"),
        ("${request.nope}", 11, "only `method`"),
        ("ä${request.method.x}", 19, "a text has no members"),
        (
            "${contexts.client.remotePort[0]}",
            30,
            "a number has no members",
        ),
        ("${request.headers['a b']}", 19, "name of a header"),
        ("${nope(1)}", 3, "only `array`"),
        ("${'a'.nope()}", 7, "only `charAt`"),
        ("${read('/etc/passwd')}", 3, "never touch files"),
        ("${toLowerCase()}", 3, "takes 1 arguments, not 0"),
        ("${find('a', '(')}", 13, "bad pattern"),
        ("${find('a', request.method)}", 21, "must be a constant"),
        ("${find('a', '(?=x)')}", 13, "bad pattern"),
        ("${request.method", 17, "no closing"),
        ("${}", 3, "instead of a value"),
        ("${1 +}", 6, "instead of a value"),
        ("${(1}", 5, "instead of `)`"),
        ("${1 2}", 5, "instead of an operator"),
        ("${'abc}", 3, "not closed"),
        ("${a # b}", 5, "does not begin"),
        ("${99999999999999999999}", 3, "too large"),
        (
            "${request.cookies[request.method]}",
            27,
            "must be a constant",
        ),
        ("${request[0]}", 11, "must be a constant name"),
        ("${instanceof}", 3, "reserved"),
    ] {
        let error = Expression::compile(expression).expect_err(expression);
        assert_eq!(error.column, column, "{expression}: {error}");
        assert!(error.message.contains(words), "{expression}: {error}");
    }
}

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
fn a_text_is_expected_and_other_types_are_null() {
    let request = parts();
    let scope = Scope {
        secure: false,
        certificate: None,
        token: None,
        ..Scope::new(
            &request,
            "[::ffff:192.0.2.7]:1".parse().expect("an address"),
        )
    };
    let text = |source: &str| {
        let expression = Expression::compile(source).expect("compiles");
        expression.text(&scope).map(Cow::into_owned)
    };
    assert_eq!(text("${contexts.client.remotePort}"), None);
    assert_eq!(text("${request.headers['X-User']}"), None);
    assert_eq!(text("${request.uri}"), None);
    assert_eq!(text("${contexts.oauth2.accessToken.info.sub}"), None);
    assert_eq!(
        text("${contexts.client.remoteAddress}"),
        Some("192.0.2.7".into())
    );
}

#[test]
fn a_header_that_is_not_utf8_still_has_a_value() {
    let mut request = parts();
    let value = http::HeaderValue::from_bytes(b"caf\xe9").expect("a valid header value");
    request.headers.insert("x-raw", value);
    let scope = Scope {
        secure: false,
        certificate: None,
        token: None,
        ..Scope::new(&request, "192.0.2.7:1".parse().expect("an address"))
    };
    let expression = Expression::compile("${request.headers['X-Raw'][0]}").expect("compiles");
    assert_eq!(expression.text(&scope).as_deref(), Some("café"));
}

#[test]
fn values_at_load_need_no_request() {
    assert_eq!(at_load("${integer('6')}"), Ok(Value::Integer(6)));
    assert_eq!(at_load("10 ${'s'}"), Ok(text("10 s")));
    let path = std::env::var("PATH").expect("a PATH");
    assert_eq!(at_load("${env['PATH']}"), Ok(text(&path)));
    assert!(at_load("${request.method}").is_err());
}

#[test]
fn common_partitions_are_evaluated_without_a_copy() {
    let (request, token) = (parts(), token());
    let scope = Scope {
        secure: false,
        certificate: None,
        token: Some(&token),
        ..Scope::new(&request, "192.0.2.7:1".parse().expect("an address"))
    };
    for source in [
        "${request.headers['X-User'][0]}",
        "${contexts.oauth2.accessToken.info.sub}",
        "${toLowerCase(request.headers['X-User'][0])}",
        "${request.uri.rawPath}",
        "fixed",
    ] {
        let expression = Expression::compile(source).expect("compiles");
        assert!(
            matches!(expression.text(&scope), Some(Cow::Borrowed(_))),
            "{source}"
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text_compiles_or_is_refused(source in any::<String>()) {
        evaluate_if_it_compiles(&source);
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

#[test]
fn a_clients_certificate_is_read_by_its_members() {
    let request = http::Request::new(()).into_parts().0;
    let key = rcgen::KeyPair::generate().expect("a key");
    let der = rcgen::CertificateParams::new(vec!["worker.test".to_owned()])
        .and_then(|params| params.self_signed(&key))
        .expect("a certificate");
    let certificate = crate::x509::ClientCertificate::read(der.der()).expect("facts");
    let evaluate = |text: &str, certificate| {
        let scope = Scope {
            secure: true,
            certificate,
            token: None,
            ..Scope::new(&request, "192.0.2.7:1".parse().expect("an address"))
        };
        let expression = Expression::compile(text).expect("compiles");
        expression.text(&scope).map(std::borrow::Cow::into_owned)
    };
    let fingerprint = "${contexts.client.certificate.fingerprint}";
    let found = evaluate(fingerprint, Some(&certificate));
    assert_eq!(found, Some(certificate.fingerprint.clone()));
    assert_eq!(evaluate(fingerprint, None), None);
    let name = "${contexts.client.certificate.names[0]}";
    let found = evaluate(name, Some(&certificate));
    assert_eq!(found.as_deref(), Some("worker.test"));
}

#[test]
fn constants_are_used_by_their_names() {
    let names = json!({"limit": 6, "hosts": ["a", "b"], "site": {"name": "shop"}});
    let constants = Constants::new(names.as_object().expect("an object").clone());
    for (source, expected) in [
        ("${limit}", Value::Integer(6)),
        ("${hosts[1]}", text("b")),
        ("${site.name}", text("shop")),
        ("${site['none']}", Value::Null),
        ("x-${site.name}", text("x-shop")),
    ] {
        assert_eq!(at_load_with(source, &constants), Ok(expected), "{source}");
    }
    assert!(Expression::compile("${limit}").is_err());
}
