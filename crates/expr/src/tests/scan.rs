//! What is seen of a condition without evaluating it.

use super::*;

const CONDITIONS: &[(&str, Option<&str>)] = &[
    ("${find(request.uri.path, '^/home')}", Some("/home")),
    ("${matches(request.uri.path, '^/home')}", Some("/home")),
    (
        "${matches(request.uri.rawPath, '^/home/.*')}",
        Some("/home/"),
    ),
    (
        "${matchesWithRegex(request.uri.path, '/home/.*')}",
        Some("/home/"),
    ),
    ("${request.uri.path.matches('/home.*')}", Some("/home")),
    ("${request.uri.path.startsWith('/home')}", Some("/home")),
    ("${request.uri.path == '/home'}", Some("/home")),
    ("${'/home' eq request.uri.path}", Some("/home")),
    ("${find(request.uri.path, '^/home') == true}", Some("/home")),
    (
        "${request.method == 'GET' and find(request.uri.path, '^/home')}",
        Some("/home"),
    ),
    (
        "${find(request.uri.path, '^/h') and find(request.uri.path, '^/home')}",
        Some("/home"),
    ),
    (
        "${find(request.uri.path, '^/home/a') or find(request.uri.path, '^/home/b')}",
        Some("/home/"),
    ),
    ("${find(request.uri.path, '^/a') or true}", None),
    (
        "${find(request.uri.path, '^/a') or find(request.uri.path, '^b')}",
        None,
    ),
    ("${not find(request.uri.path, '^/a')}", None),
    ("${find(request.uri.path, '^/a') == false}", None),
    ("${find(request.uri.path, '/a')}", None),
    ("${find(toLowerCase(request.uri.path), '^/a')}", None),
    ("${find(contexts.router.originalUri.path, '^/a')}", None),
    ("${request.uri.path.startsWith('/a', 1)}", None),
    ("${request.uri.path.equalsIgnoreCase('/a')}", None),
    ("${request.uri.path != '/a'}", None),
    ("${request.uri.path.contains('/a')}", None),
    ("${split(request.uri.path, '^/a')}", None),
];

#[test]
fn the_beginning_of_a_path_is_seen() {
    for (source, prefix) in CONDITIONS {
        let expression = Expression::compile(source).expect(source);
        assert_eq!(expression.path_prefix(), *prefix, "{source}");
    }
}

#[test]
fn a_condition_is_as_true_with_its_prefix_as_without() {
    for path in [
        "/home",
        "/home/",
        "/home/a",
        "/home/b%20c",
        "/%68ome",
        "/h",
        "/",
        "/a",
        "/b",
        "b",
        "/other",
        "/%zz",
        "/home/a/%2e%2e",
    ] {
        let uri = path.parse().unwrap_or_else(|_| Uri::from_static("/"));
        let mut request = Request::new(()).into_parts().0;
        request.uri = uri;
        let scope = Scope::new(&request, client());
        for (source, _) in CONDITIONS {
            let expression = Expression::compile(source).expect(source);
            let value = expression.evaluate(&scope) == Value::Bool(true);
            assert_eq!(expression.is_true(&scope), Ok(value), "{source} on {path}");
        }
    }
}

#[test]
fn the_host_is_seen() {
    for (source, host) in [
        ("${request.uri.host == 'a.test'}", Some("a.test")),
        (
            "${request.uri.host.equalsIgnoreCase('a.test')}",
            Some("a.test"),
        ),
        (
            "${request.method == 'GET' and request.uri.host eq 'a.test'}",
            Some("a.test"),
        ),
        (
            "${request.uri.host == 'a' or request.uri.host == 'A'}",
            Some("a"),
        ),
        (
            "${request.uri.host == 'a' or request.uri.host == 'b'}",
            None,
        ),
        ("${request.uri.host != 'a'}", None),
        ("${not (request.uri.host == 'a')}", None),
        ("${request.headers['Host'][0] == 'a'}", None),
        ("${contexts.router.originalUri.host == 'a'}", None),
    ] {
        let expression = Expression::compile(source).expect(source);
        assert_eq!(expression.host(), host, "{source}");
    }
}
