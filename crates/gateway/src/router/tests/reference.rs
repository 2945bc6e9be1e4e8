//! The router against one written anew from gateway-admin-api §9, which looks
//! at all routes one after the other.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;

/// A request as the reference sees it.
#[derive(Debug, Clone)]
struct Request {
    host: String,
    port: u16,
    path: String,
    method: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    tls: bool,
    sni: Option<&'static str>,
}

fn wild(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.to_lowercase(), name.to_lowercase());
    let (pattern, name) = (pattern.trim_end_matches('.'), name.trim_end_matches('.'));
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => name.ends_with(end),
        (_, Some(start)) => name.starts_with(start),
        _ => name == pattern,
    }
}

fn host_fits(pattern: &str, request: &Request) -> bool {
    // Colons inside brackets are no port's.
    let bracket = pattern.find(']').unwrap_or(0);
    match pattern[bracket..].split_once(':') {
        Some((host, port)) => {
            let host = &pattern[..bracket + host.len()];
            port == request.port.to_string() && wild(host, &request.host)
        }
        None => wild(pattern, &request.host),
    }
}

fn header_fits(name: &str, wanted: &[String], request: &Request) -> bool {
    let mut sent = request
        .headers
        .iter()
        .filter(|(n, _)| n.eq_ignore_ascii_case(name));
    match wanted {
        [one] if one.starts_with("~*") => {
            let regex = regex(&format!("(?i){}", &one[2..]));
            sent.any(|(_, value)| regex.is_match(value))
        }
        many => sent.any(|(_, value)| many.iter().any(|w| w.eq_ignore_ascii_case(value))),
    }
}

/// Compiled once: there are few, and they are asked often.
fn regex(source: &str) -> regex::Regex {
    static KNOWN: LazyLock<Mutex<HashMap<String, regex::Regex>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().expect("no test panics here");
    let compile = || regex::Regex::new(source).expect("a regex");
    known
        .entry(source.to_owned())
        .or_insert_with(compile)
        .clone()
}

fn set<T>(list: &Option<Vec<T>>) -> &[T] {
    list.as_deref().unwrap_or_default()
}

/// The length of the match of everything in `route`, with `path`.
fn fits(route: &Route, path: Option<&String>, request: &Request) -> Option<usize> {
    let all = |list: &Option<Vec<String>>, fits: &dyn Fn(&String) -> bool| {
        set(list).is_empty() || set(list).iter().any(fits)
    };
    let fit = all(&route.hosts, &|host| host_fits(host, request))
        && all(&route.methods, &|method| method == request.method)
        && route
            .headers
            .iter()
            .flatten()
            .all(|(n, values)| header_fits(n, values, request))
        && (!request.tls
            || all(&route.snis, &|sni| {
                request.sni.is_some_and(|asked| wild(sni, asked))
            }));
    let matched = match path {
        None => Some(0),
        Some(path) => match path.strip_prefix('~') {
            Some(regex) => self::regex(&format!("^(?:{regex})"))
                .find(&request.path)
                .map(|found| found.end()),
            None => request
                .path
                .starts_with(path.as_str())
                .then_some(path.len()),
        },
    };
    matched.filter(|_| fit)
}

/// The route that §9 gives the request to, and the length matched.
fn reference(routes: &[Route], request: &Request) -> Option<(usize, usize)> {
    let mut best = None;
    for (position, route) in routes.iter().enumerate() {
        let paths: Vec<Option<&String>> = match set(&route.paths) {
            [] => vec![None],
            paths => paths.iter().map(Some).collect(),
        };
        for path in paths {
            let Some(matched) = fits(route, path, request) else {
                continue;
            };
            let regex = path.is_some_and(|path| path.starts_with('~'));
            let headers = route.headers.as_ref().map_or(0, |h| h.len());
            let kinds = [
                set(&route.methods).is_empty(),
                set(&route.hosts).is_empty(),
                set(&route.paths).is_empty(),
                set(&route.snis).is_empty(),
                headers == 0,
            ];
            let order = (
                kinds.iter().filter(|empty| !**empty).count(),
                !set(&route.hosts).is_empty()
                    && set(&route.hosts).iter().all(|host| !host.contains('*')),
                headers,
                regex,
                if regex { route.regex_priority } else { 0 },
                if regex {
                    0
                } else {
                    path.map_or(0, |path| path.len())
                },
                route.id,
            );
            if best.as_ref().is_none_or(|(known, _, _)| order > *known) {
                best = Some((order, position, matched));
            }
        }
    }
    best.map(|(_, position, matched)| (position, matched))
}

const HOSTS: &[&str] = &[
    "a.test",
    "A.Test",
    "b.test",
    "*.test",
    "*.a.test",
    "a.*",
    "b.a.*",
    "a.test:80",
    "*.test:81",
    "b.*:80",
    "x.y.a.test",
    "a.test.",
    "[::1]",
    "[::1]:80",
];
const PATHS: &[&str] = &[
    "/",
    "/a",
    "/a/b",
    "/ab",
    "/a/",
    "/b",
    "/a/b/c",
    "~/a",
    "~/a/\\d+$",
    "~/[ab]/c",
    "~/(a|b)",
    "~/a/.*/c",
    "~/\\w+/b",
    "~/\\w+/b$",
    "~/A",
    "~/(?i)A/b",
    "~/[a-z]+/[0-9]/b",
];
const HEADERS: &[(&str, &[&str])] = &[
    ("x-a", &["1"]),
    ("x-a", &["2", "One"]),
    ("X-B", &["1"]),
    ("x-b", &["~*^v\\d$"]),
    ("x-c", &["1", "2", "3"]),
    ("x-c", &["~*2"]),
];
const SNIS: &[&str] = &["a.test", "*.test", "a.*", "B.test"];
const METHODS: &[&str] = &["GET", "POST", "PURGE"];

fn some_of(list: &'static [&'static str]) -> impl Strategy<Value = Option<Vec<String>>> {
    let few = subsequence(list, 1..=2.min(list.len()));
    proptest::option::weighted(
        0.4,
        few.prop_map(|few| few.into_iter().map(Into::into).collect()),
    )
}

fn routes(most: usize) -> impl Strategy<Value = Vec<Route>> {
    let headers = proptest::option::weighted(0.3, subsequence(HEADERS, 1..=2));
    let one = (
        some_of(HOSTS),
        some_of(PATHS),
        headers,
        some_of(METHODS),
        some_of(SNIS),
        -1..2_i64,
        any::<u16>(),
    );
    let one = one.prop_map(
        |(hosts, paths, headers, methods, snis, regex_priority, id)| Route {
            hosts,
            paths,
            methods,
            snis,
            regex_priority,
            headers: headers.map(|few| {
                few.into_iter()
                    .map(|(name, values)| {
                        let values = values.iter().map(|v| (*v).to_owned()).collect();
                        (name.to_ascii_lowercase(), values)
                    })
                    .collect()
            }),
            ..route(u128::from(id))
        },
    );
    proptest::collection::vec(one, 1..most).prop_map(|mut routes| {
        routes.sort_by_key(|route| route.id);
        routes.dedup_by_key(|route| route.id);
        routes
    })
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let host = select(vec![
        "a.test",
        "b.test",
        "x.a.test",
        "x.y.a.test",
        "a.example",
        "b.a.org",
        "A.TEST.",
        "",
        "test",
        "[::1]",
    ]);
    let path = select(vec![
        "/", "/a", "/a/b", "/abc", "/a/7", "/a/b/c", "/b/c", "/b", "/zz/b", "/zz/7/b", "/a/x/c/d",
        "/A/b", "/c",
    ]);
    let header = select(vec![
        ("x-a", "1"),
        ("x-a", "ONE"),
        ("x-b", "1"),
        ("x-b", "V1"),
        ("x-c", "2"),
        ("x-d", "1"),
    ]);
    let one = (
        host,
        select(vec![80_u16, 81, 8000]),
        path,
        select(vec!["GET", "POST", "PURGE", "HEAD"]),
        proptest::collection::vec(header, 0..4),
        any::<bool>(),
        select(vec![
            None,
            Some("a.test"),
            Some("b.TEST"),
            Some("a.example."),
        ]),
    );
    let one = one.prop_map(|(host, port, path, method, headers, tls, sni)| Request {
        host: host.to_owned(),
        port,
        path: path.to_owned(),
        method,
        headers,
        tls,
        sni,
    });
    proptest::collection::vec(one, 32)
}

fn agree(routes: &[Route], requests: &[Request]) -> Result<(), TestCaseError> {
    let router = Router::build(routes, None).expect("compiles");
    let all: Vec<&Route> = routes.iter().collect();
    for request in requests {
        let mut headers = HeaderMap::new();
        for (name, value) in &request.headers {
            headers.append(*name, value.parse().expect("a value"));
        }
        let query = Query {
            host: &request.host,
            port: request.port,
            path: &request.path,
            method: &Method::from_bytes(request.method.as_bytes()).expect("a method"),
            headers: &headers,
            tls: request.tls,
            sni: request.sni,
        };
        let found = router.find(&query);
        let expected = reference(routes, request);
        prop_assert_eq!(
            found.map(|f| (f.route, f.matched)),
            expected,
            "{:?}",
            request
        );
        let explained = router
            .compare(&query, &all)
            .find(|stand| stand.fails.is_empty());
        prop_assert_eq!(
            explained.map(|s| (s.route, s.rank, s.matched)),
            found.map(|f| (f.route, f.rank, f.matched)),
            "what is explained is not what is done: {:?}",
            request
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_few_routes_are_chosen_as_the_rules_say(routes in routes(12), requests in requests()) {
        agree(&routes, &requests)?;
    }

    #[test]
    fn many_routes_are_chosen_as_the_rules_say(routes in routes(300), requests in requests()) {
        agree(&routes, &requests)?;
    }
}
