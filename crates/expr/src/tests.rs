//! Expressions against requests.

mod context;
mod functions;
mod language;
mod limits;
mod refusals;
mod scan;

use http::{HeaderValue, Request};
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
        .header(
            "Content-Type",
            "application/x-www-form-urlencoded; charset=UTF-8",
        )
        .body(())
        .expect("a valid request");
    request.into_parts().0
}

fn token() -> AccessToken {
    let claims = json!({
        "sub": "demo", "iss": "http://op", "n": 5, "ok": true, "aud": ["a", "b"],
        "act": {"sub": "robot"}, "empty": "", "x": 1.5, "nothing": null,
    });
    AccessToken {
        token: "abc.def".into(),
        claims: claims.as_object().expect("an object").clone(),
        scopes: vec!["openid".into(), "mail".into()],
        expires_at: Some(1_700_000_000),
    }
}

fn client() -> SocketAddr {
    "192.0.2.7:4711".parse().expect("an address")
}

/// The value in an exchange in which everything is known.
fn value_of(text: &str) -> Value<'static> {
    value_with_body(text, Some(b"page=9&name=K%C3%A4the"))
}

fn value_with_body(text: &str, body: Option<&[u8]>) -> Value<'static> {
    let expression = match Expression::compile(text) {
        Ok(expression) => expression,
        Err(error) => panic!("{text}: {error}"),
    };
    let (request, token, mut headers) = (parts(), token(), HeaderMap::new());
    headers.insert("x-up", HeaderValue::from_static("yes"));
    let cookie = "sid=r1; Path=/app; Secure; Max-Age=60";
    headers.append("set-cookie", HeaderValue::from_static(cookie));
    let original = Uri::from_static("/asked/first?x=1");
    let scope = Scope {
        local: "198.51.100.1:8000".parse().ok(),
        secure: true,
        token: Some(&token),
        original: Some(&original),
        body,
        transaction: Some("tx-1"),
        response: Some(Response {
            status: StatusCode::NOT_FOUND,
            reason: None,
            headers: &headers,
        }),
        ..Scope::new(&request, client())
    };
    expression.evaluate(&scope).into_owned()
}

/// The value in an exchange of which only the request is known.
fn value_without_anything(text: &str) -> Value<'static> {
    let request = Request::new(()).into_parts().0;
    let expression = Expression::compile(text).expect(text);
    let scope = Scope::new(&request, client());
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

fn check_truth(table: &[(&str, bool)]) {
    for (expression, expected) in table {
        assert_eq!(value_of(expression), Value::Bool(*expected), "{expression}");
    }
}

fn check_integers(table: &[(&str, i64)]) {
    for (expression, expected) in table {
        assert_eq!(
            value_of(expression),
            Value::Integer(*expected),
            "{expression}"
        );
    }
}

fn check_null(table: &[&str]) {
    for expression in table {
        assert_eq!(value_of(expression), Value::Null, "{expression}");
    }
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

#[test]
fn a_clients_certificate_is_read_by_its_members() {
    let request = http::Request::new(()).into_parts().0;
    let key = rcgen::KeyPair::generate().expect("a key");
    let der = rcgen::CertificateParams::new(vec!["worker.test".to_owned()])
        .and_then(|params| params.self_signed(&key))
        .expect("a certificate");
    let certificate = doorward_core::x509::ClientCertificate::read(der.der()).expect("facts");
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
