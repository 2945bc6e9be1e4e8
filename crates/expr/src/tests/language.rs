//! Operators, literals, and texts around expressions.

use super::*;

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
        ("${.5 + 1. == 1.5}", true),
        ("${1 - .5 == 0.5}", true),
        ("${2 + 3 lt 4 * 2 && 'b' gt 'a'}", true),
        ("${not true or true}", true),
        ("${!(true or true)}", false),
        ("${not empty 'a' and empty ''}", true),
        ("${1 == 1 == true}", true),
        ("${5 % 3 * 2 == 4}", true),
        ("${-2 * -3 == 6}", true),
        ("${contexts.oauth2.accessToken.info.ok == 'true'}", true),
        ("${true == 'yes'}", false),
        ("${true == 'TRUE'}", true),
        ("${'a' == 'A'}", false),
        ("${'' == null}", false),
        ("${null == false}", false),
        ("${not null}", true),
        ("${contexts.oauth2.accessToken.info.x == 1.5}", true),
        ("${contexts.oauth2.accessToken.info.nothing == null}", true),
        (
            "${contexts.oauth2.accessToken.scopes == array('openid', 'mail')}",
            true,
        ),
        (
            "${contexts.oauth2.accessToken.info.aud != array('a', 'c')}",
            true,
        ),
        (
            "${contexts.oauth2.accessToken.info == contexts.oauth2.accessToken.info}",
            true,
        ),
        ("${request.uri == request.uri.toString()}", true),
        (
            "${contexts.oauth2.accessToken.scopes == '[openid, mail]'}",
            true,
        ),
        ("${null + null == 0}", true),
        ("${null + 3 == 3}", true),
        ("${2 ne 2.0}", false),
    ] {
        assert_eq!(value_of(expression), Value::Bool(expected), "{expression}");
    }
    assert_eq!(value_of("${7 / 2}"), Value::Float(3.5));
    assert_eq!(value_of("${6 / 2}"), Value::Float(3.0));
    assert_eq!(value_of("${'5' + '3'}"), Value::Integer(8));
    assert_eq!(value_of("${'5' + '3.5'}"), Value::Float(8.5));
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
        ("#{request.method}", "POST"),
        ("a#{1}b${2}", "a1b2"),
        (r"\#{request.method}", "#{request.method}"),
        (r"\\${request.method}", r"\${request.method}"),
        ("${'${'}request.method}", "${request.method}"),
        (
            "is ${contexts.oauth2.accessToken.scopes}",
            "is [openid, mail]",
        ),
        (
            "is ${contexts.oauth2.accessToken.info.act}",
            "is {sub=robot}",
        ),
        (
            "${1e7}|${0.001}|${1e-4}|${1.5e10}",
            "1.0E7|0.001|1.0E-4|1.5E10",
        ),
        ("${contexts.oauth2.accessToken.info.empty}|", "|"),
        ("${\n 1\t}|", "1|"),
        ("${true ? 'a' : 'b'}${false ? 'a' : 'b'}", "ab"),
        ("${null ? 'a' : 'b'}", "b"),
    ]);
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
        "${9223372036854775807 + 1}",
        "${-(-9223372036854775807 - 1)}",
        "${1 % 0}",
        "${1 / 0}",
        "${1.5 / 0.0}",
        "${1.5 mod 0}",
        "${1e308 * 10}",
        "${'inf' + 1}",
        "${'nan' * 1}",
        "${'abc' == 5}",
        "${true + 1}",
        "${true == 5}",
        "${!5}",
        "${5 ? 1 : 2}",
        "${'a' ? null : null}",
        "${array(1)[-1]}",
        "${array(1)['x']}",
        "${contexts.oauth2.accessToken.info['n']['x']}",
        "${null.toString()}",
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
fn every_word_is_a_name_behind_a_dot() {
    for word in [
        "eq", "ne", "lt", "gt", "le", "ge", "and", "or", "not", "div", "mod", "empty",
    ] {
        let source = format!("${{contexts.oauth2.accessToken.info.{word} == null}}");
        let expected = word != "empty";
        assert_eq!(value_of(&source), Value::Bool(expected), "{source}");
    }
}

#[test]
fn word_operators_are_the_signs() {
    for (words, signs) in [
        ("1 eq 1", "1 == 1"),
        ("1 ne 1", "1 != 1"),
        ("1 lt 2", "1 < 2"),
        ("1 gt 2", "1 > 2"),
        ("1 le 1", "1 <= 1"),
        ("1 ge 2", "1 >= 2"),
        ("true and false", "true && false"),
        ("true or false", "true || false"),
        ("not true", "!true"),
        ("7 div 2", "7 / 2"),
        ("7 mod 2", "7 % 2"),
        ("empty null", "empty(null)"),
    ] {
        let (words, signs) = (format!("${{{words}}}"), format!("${{{signs}}}"));
        assert_eq!(value_of(&words), value_of(&signs), "{words}");
        assert_ne!(value_of(&words), Value::Null, "{words}");
    }
}
