//! What is refused when the configuration is loaded.

use super::*;

#[test]
fn what_can_not_exist_is_refused_with_its_column() {
    for (expression, column, words) in [
        ("${reqest.method}", 3, "did you mean `request`?"),
        ("${request.nope}", 11, "only `method`"),
        ("ä${request.method.x}", 19, "a text has no members"),
        (
            "${contexts.client.remotePort[0]}",
            30,
            "a number has no members",
        ),
        ("${request.headers['a b']}", 19, "name of a header"),
        ("${nope(1)}", 3, "only `array`"),
        ("${tolowercase('A')}", 3, "did you mean `toLowerCase`?"),
        ("${'A'.startWith('A')}", 7, "did you mean `startsWith`?"),
        ("${request.header['A']}", 11, "did you mean `headers`?"),
        ("${contexts.clientt}", 12, "did you mean `client`?"),
        ("${something.else}", 3, "begins with `request`"),
        ("${'a'.nope()}", 7, "only `charAt`"),
        ("${read('/etc/passwd')}", 3, "may read files"),
        ("${readProperties('/etc/passwd')}", 3, "may read files"),
        ("${contexts.ssoToken.value}", 12, "SingleSignOnFilter"),
        ("${contexts.amSession}", 12, "not served"),
        ("${contexts.userProfile}", 12, "attributes.openid"),
        ("${contexts.oauth2Failure.code}", 26, "only `error`"),
        ("${attributes.user}", 14, "only `attributes.openid`"),
        ("${response.entity.string}", 12, "passes through"),
        (
            "${ipMatch(contexts.client.remoteAddress, '10.0.0.0/33')}",
            42,
            "a network",
        ),
        ("${request.cookies['a'][0].nope}", 27, "only `name`"),
        ("${contexts[request.method]}", 20, "constant name"),
        (
            "${pathToUrl(request.uri.path)}",
            3,
            "must not depend on a request",
        ),
        ("${pemCertificate('x')}", 3, "no certificate"),
        ("#{request.methot}", 11, "did you mean `method`?"),
        ("${toLowerCase()}", 3, "takes 1 argument, not 0"),
        ("${find('a', '(')}", 13, "not closed"),
        ("${'a'.matches('[')}", 15, "not closed"),
        ("${find('a', '\\\\y')}", 13, "not an escape"),
        ("${find('a', request.method)}", 21, "must be a constant"),
        ("${find('a', '(?<x')}", 13, "name of a group"),
        ("${request.method", 17, "no closing"),
        ("${}", 3, "instead of a value"),
        ("${1 +}", 6, "instead of a value"),
        ("${(1}", 5, "instead of `)`"),
        ("${1 2}", 5, "instead of an operator"),
        ("${'abc}", 3, "not closed"),
        ("${a # b}", 5, "does not begin"),
        ("${99999999999999999999}", 3, "too large"),
        ("${request[0]}", 11, "must be a constant name"),
        ("${instanceof}", 3, "reserved"),
    ] {
        let error = Expression::compile(expression).expect_err(expression);
        assert_eq!(error.column, column, "{expression}: {error}");
        assert!(error.message.contains(words), "{expression}: {error}");
    }
}

#[test]
fn files_are_read_only_for_configuration_that_is_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("greeting.txt");
    std::fs::write(&path, "hello").expect("written");
    let properties = folder.path().join("a.properties");
    let lines = "# note\nname = Ada\nlong=a\\\n  b\n\nkey\\ x:\\u00e4\nbare\n";
    std::fs::write(&properties, lines).expect("written");
    let constants = Constants::default().with_files();
    let load = |source: String| at_load_with(&source, &constants);
    let (path, properties) = (path.display(), properties.display());
    assert_eq!(load(format!("${{read('{path}')}}")), Ok(text("hello")));
    assert_eq!(load(format!("${{read('{path}.none')}}")), Ok(Value::Null));
    let read = |key: &str| load(format!("${{readProperties('{properties}')['{key}']}}"));
    assert_eq!(read("name"), Ok(text("Ada")));
    assert_eq!(read("long"), Ok(text("ab")));
    assert_eq!(read("key x"), Ok(text("ä")));
    assert_eq!(read("bare"), Ok(text("")));
    assert_eq!(read("none"), Ok(Value::Null));
    assert_eq!(
        load("${pathToUrl('/a b/c')}".to_owned()),
        Ok(text("file:///a%20b/c"))
    );
    for source in [
        "${read(request.uri.path)}",
        "${readProperties(request.method)}",
    ] {
        let error = Expression::compile_with(source, &constants).expect_err(source);
        assert!(
            error.message.contains("must not depend on a request"),
            "{error}"
        );
    }
}

#[test]
fn a_file_that_is_too_long_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("long.txt");
    std::fs::write(&path, "x".repeat(MAX_TEXT + 1)).expect("written");
    let constants = Constants::default().with_files();
    let source = format!("${{read('{}')}}", path.display());
    let error = Expression::compile_with(&source, &constants).expect_err("refused");
    assert!(error.message.contains("longer than"), "{error}");
}

#[test]
fn a_certificate_is_checked_when_it_is_loaded() {
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = rcgen::CertificateParams::new(vec!["a.test".to_owned()])
        .and_then(|params| params.self_signed(&key))
        .expect("a certificate");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pem");
    std::fs::write(&path, certificate.pem()).expect("written");
    let constants = Constants::default().with_files();
    let source = format!("${{pemCertificate(read('{}'))}}", path.display());
    assert_eq!(
        at_load_with(&source, &constants),
        Ok(text(&certificate.pem()))
    );
}
