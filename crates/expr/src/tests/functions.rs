//! Functions and methods: a row for each line of their description.

use super::*;

#[test]
fn functions_and_methods_do_what_they_say() {
    check_texts(&[
        ("${toUpperCase(request.headers['X-User'][0])}", "ADA"),
        ("${toLowerCase('ÀB')}", "àb"),
        ("${trim('  x ')}", "x"),
        ("${toString(contexts.client.remotePort)}", "4711"),
        (
            "${toString(contexts.oauth2.accessToken.info.aud)}",
            "[a, b]",
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
fn functions_take_null_as_described() {
    check_null(&[
        "${decodeBase64(null)}",
        "${decodeBase64('*')}",
        "${decodeBase64url(null)}",
        "${digestSha256(null)}",
        "${encodeBase64(null)}",
        "${encodeBase64url(null)}",
        "${escapeJson(null)}",
        "${findGroups('a', 'b')}",
        "${formDecodeParameterNameOrValue(null)}",
        "${formEncodeParameterNameOrValue(null)}",
        "${integer(null)}",
        "${integer('')}",
        "${integer('1.5')}",
        "${integer(' 1')}",
        "${integerWithRadix('8', 8)}",
        "${integerWithRadix('1', 99)}",
        "${keyMatch(null, 'a')}",
        "${keyMatch(contexts.oauth2.accessToken.info, 'is')}",
        "${lastElement(null)}",
        "${lastElement(array())}",
        "${matchingGroups(null, 'a')}",
        "${toJson(null)}",
        "${toJson('{')}",
        "${toUpperCase(null)}",
        "${trim(null)}",
        "${urlDecode(null)}",
        "${urlDecode('%zz')}",
        "${urlEncodePathElement(null)}",
    ]);
    check_truth(&[
        ("${bool(null)}", false),
        ("${contains(null, null)}", false),
        ("${contains('a', null)}", false),
        ("${ipMatch(null, '10.0.0.0/8')}", false),
        ("${ipMatch('10.0.0.1', null)}", false),
        ("${matches(null, 'a')}", false),
        ("${matchesWithRegex(null, '.*')}", false),
    ]);
    check_integers(&[
        ("${indexOf(null, 'a')}", -1),
        ("${indexOf('a', null)}", -1),
        ("${length(null)}", 0),
        ("${length(5)}", 0),
    ]);
}

#[test]
fn texts_are_made_of_arguments_that_should_be_texts() {
    check_texts(&[
        ("${toUpperCase(true)}", "TRUE"),
        ("${encodeBase64(5)}", "NQ=="),
        (
            "${urlEncodeQueryParameterNameOrValue(contexts.router.originalUri)}",
            "https://api.example.com:8080/asked/first?x%3D1",
        ),
        ("${'a'.concat(1)}", "a1"),
        ("${array(1, true)[0]}", "1"),
    ]);
    check_integers(&[("${integer(5)}", 5), ("${indexOf(12345, 34)}", 2)]);
    check_truth(&[("${bool(true)}", true), ("${find(404, '^4')}", true)]);
}

#[test]
fn lists_and_maps_have_functions() {
    check_integers(&[
        ("${length(contexts.oauth2.accessToken.info)}", 9),
        ("${length(contexts.oauth2.accessToken.scopes)}", 2),
        ("${length(array('a', 'b', 'c'))}", 3),
        ("${length(split('a,b,,c,,', ','))}", 4),
        ("${length(split(',', ','))}", 0),
        ("${length(split('', ','))}", 1),
        ("${length(split('abc', ''))}", 3),
        ("${contexts.oauth2.accessToken.scopes.size()}", 2),
        ("${contexts.oauth2.accessToken.scopes.indexOf('mail')}", 1),
    ]);
    check_texts(&[
        ("${split('a1b22c', '[0-9]+')[2]}", "c"),
        ("${split('a.b', '\\.')[1]}", "b"),
        ("${lastElement(split('/a/b', '/'))}", "b"),
        ("${findGroups('k=v', '(\\w)=(\\w)')[2]}", "v"),
        ("${matchingGroups('k=v', '(\\w)=(\\w)')[0]}", "k=v"),
        ("${join(array('a', null, 'c'), '-')}", "a--c"),
        ("${keyMatch(request.headers, '^X-G.*')}", "x-groups"),
        ("${keyMatch(request.queryParams, 'p.*')}", "page"),
        ("${keyMatch(attributes.openid, 'is+')}", "iss"),
        (
            "${contexts.oauth2.accessToken.info.getOrDefault('none', 'x')}",
            "x",
        ),
        ("${contexts.oauth2.accessToken.info.get('sub')}", "demo"),
    ]);
    check_truth(&[
        ("${contains(array('a', 'b'), 'b')}", true),
        (
            "${contexts.oauth2.accessToken.scopes.contains('mail')}",
            true,
        ),
        (
            "${contexts.oauth2.accessToken.info.containsKey('sub')}",
            true,
        ),
        ("${array().isEmpty()}", true),
    ]);
}

#[test]
fn parts_of_urls_are_encoded_by_their_own_rules() {
    let all = r"a b/c?d&e=f+g%h@i:j;k,l'm#n~ä";
    for (function, encoded) in [
        (
            "PathElement",
            "a%20b%2Fc%3Fd&e=f+g%25h@i:j;k,l'm%23n~%C3%A4",
        ),
        (
            "QueryParameterNameOrValue",
            "a%20b/c?d%26e%3Df%2Bg%25h@i:j;k,l'm%23n~%C3%A4",
        ),
        ("Fragment", "a%20b/c?d&e=f+g%25h@i:j;k,l'm%23n~%C3%A4"),
        ("UserInfo", "a%20b%2Fc%3Fd&e=f+g%25h%40i:j;k,l'm%23n~%C3%A4"),
    ] {
        let encode = format!("${{urlEncode{function}(\"{all}\")}}");
        assert_eq!(value_of(&encode), text(encoded), "{encode}");
        let decode = format!("${{urlDecode{function}(\"{encoded}\")}}");
        assert_eq!(value_of(&decode), text(all), "{decode}");
    }
    check_texts(&[
        (
            "${formEncodeParameterNameOrValue('a b*c~d+')}",
            "a+b*c%7Ed%2B",
        ),
        ("${formDecodeParameterNameOrValue('a+b%2B')}", "a b+"),
        ("${urlDecodePathElement('a+b')}", "a+b"),
        ("${escapeJson('a\"b\\\\c')}", r#"a\"b\\c"#),
    ]);
}

#[test]
fn texts_have_the_methods_of_the_imitated_language() {
    check_texts(&[
        ("${'aXbX'.replaceAll('[A-Z]', '-$0')}", "a-Xb-X"),
        ("${'k=v'.replaceAll('(?<a>k)=(v)', '$2:${a}')}", "v:k"),
        ("${'aXbX'.replaceFirst('X', '')}", "abX"),
        ("${'a.b'.split('\\.')[1]}", "b"),
        ("${'ab'.repeat(2)}", "abab"),
        ("${'äbc'.substring(1)}", "bc"),
        ("${' x '.strip()}", "x"),
        ("${'Ab'.toUpperCase().toLowerCase()}", "ab"),
    ]);
    check_integers(&[
        ("${'abcb'.lastIndexOf('b')}", 3),
        ("${'abcb'.indexOf('b', 2)}", 3),
        ("${'abcb'.indexOf('z')}", -1),
        ("${'a'.compareTo('b')}", -1),
        ("${'äb'.length()}", 2),
    ]);
    check_truth(&[
        ("${'abc'.matches('b')}", false),
        ("${'abc'.matches('.b.')}", true),
        ("${'abc'.startsWith('b', 1)}", true),
        ("${'abc'.contains('bc')}", true),
        ("${''.isEmpty()}", true),
        ("${' '.isBlank()}", true),
        ("${'5'.equals(5)}", false),
        ("${'a'.equals('a')}", true),
        ("${request.uri.path.startsWith('/Users')}", true),
    ]);
    check_null(&["${'abc'.charAt(3)}", "${'a'.replaceAll('a', '$9')}"]);
}

#[test]
fn addresses_match_ranges_known_at_load_or_not() {
    check_truth(&[
        (
            "${ipMatch(contexts.client.remoteAddress, '192.0.2.0/24')}",
            true,
        ),
        (
            "${ipMatch(contexts.client.remoteAddress, '192.0.2.7')}",
            true,
        ),
        (
            "${ipMatch(contexts.client.remoteAddress, '192.0.2.1-192.0.2.6')}",
            false,
        ),
        ("${ipMatch('2001:db8::1', '2001:db8::/32')}", true),
        ("${ipMatch('2001:db8::1', '0.0.0.0/0')}", false),
        (
            "${ipMatch(request.headers['X-User'][0], '0.0.0.0/0')}",
            false,
        ),
        (
            "${ipMatch('10.1.2.3', '10.0.0.0/'.concat(toString(8)))}",
            true,
        ),
        (
            "${ipMatch('10.1.2.3', request.headers['X-User'][0])}",
            false,
        ),
    ]);
}

#[test]
fn a_matching_header_name_is_spelt_as_it_was_sent() {
    let request = parts();
    let value = |text: &str, sent: &[Box<str>]| {
        let expression = Expression::compile(text).expect(text);
        let scope = Scope {
            sent,
            ..Scope::new(&request, client())
        };
        expression.evaluate(&scope).into_owned()
    };
    let sent = ["X-Gone".into(), "X-gRoups".into()];
    for (expression, wanted) in [
        ("${keyMatch(request.headers, '^x-G.*')}", "X-gRoups"),
        (
            "${request.headers[keyMatch(request.headers, '^x-g.*')][0]}",
            "red,green,,",
        ),
        // A filter has added it.
        ("${keyMatch(request.headers, '^X-User')}", "x-user"),
    ] {
        assert_eq!(value(expression, &sent), text(wanted), "{expression}");
    }
    // It asks for names, which the data path then keeps.
    assert!(asks_for_spelling());
    let expression = "${keyMatch(request.headers, '^X-G.*')}";
    assert_eq!(value(expression, &[]), text("x-groups"));
}
