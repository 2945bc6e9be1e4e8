mod reference;

use super::*;
use uuid::Uuid;

fn route(id: u128) -> Route {
    Route {
        id: Uuid::from_u128(id),
        name: None,
        protocols: vec!["http".into(), "https".into()],
        hosts: None,
        paths: None,
        methods: None,
        headers: None,
        snis: None,
        regex_priority: 0,
        strip_path: true,
        preserve_host: false,
        path_handling: Default::default(),
        https_redirect_status_code: 426,
        request_buffering: true,
        response_buffering: true,
        sources: None,
        destinations: None,
        service: None,
        tags: None,
        created_at: 0,
        updated_at: 0,
    }
}

fn strings(list: &[&str]) -> Option<Vec<String>> {
    Some(list.iter().map(|s| (*s).to_owned()).collect())
}

fn hosts(id: u128, list: &[&str]) -> Route {
    Route {
        hosts: strings(list),
        ..route(id)
    }
}

fn paths(id: u128, list: &[&str]) -> Route {
    Route {
        paths: strings(list),
        ..route(id)
    }
}

struct Ask {
    method: Method,
    host: &'static str,
    path: &'static str,
    headers: HeaderMap,
    tls: bool,
    sni: Option<&'static str>,
}

fn get(host: &'static str, path: &'static str) -> Ask {
    Ask {
        method: Method::GET,
        host,
        path,
        headers: HeaderMap::new(),
        tls: false,
        sni: None,
    }
}

/// Id of the matched route.
fn ask(routes: &[Route], ask: &Ask) -> Option<u128> {
    let router = Router::build(routes, None).expect("routes compile");
    let (host, port) = ask.host.split_once(':').unwrap_or((ask.host, "8000"));
    let found = router.find(&Query {
        host,
        port: port.parse().expect("a port"),
        path: ask.path,
        method: &ask.method,
        headers: &ask.headers,
        tls: ask.tls,
        sni: ask.sni,
    })?;
    Some(routes[found.route].id.as_u128())
}

#[test]
fn hosts_match_exactly_whatever_their_case() {
    let routes = [hosts(1, &["a.example"]), hosts(2, &["B.example"])];
    assert_eq!(ask(&routes, &get("A.Example", "/")), Some(1));
    assert_eq!(ask(&routes, &get("b.example:9999", "/")), Some(2));
    assert_eq!(ask(&routes, &get("x.a.example", "/")), None);
    assert_eq!(ask(&routes, &get("", "/")), None);
}

#[test]
fn a_plain_host_beats_a_wildcard() {
    let routes = [
        hosts(9, &["*.example.com"]),
        hosts(8, &["api.example.*"]),
        hosts(1, &["api.example.com"]),
    ];
    assert_eq!(ask(&routes, &get("api.example.com", "/")), Some(1));
    assert_eq!(ask(&routes, &get("www.example.com", "/")), Some(9));
    assert_eq!(ask(&routes, &get("a.b.example.com", "/")), Some(9));
    assert_eq!(ask(&routes, &get("api.example.org", "/")), Some(8));
    assert_eq!(ask(&routes, &get("example.com", "/")), None);
}

#[test]
fn a_host_with_a_port_needs_that_port() {
    let routes = [hosts(1, &["a.example:8080"])];
    assert_eq!(ask(&routes, &get("a.example:8080", "/")), Some(1));
    assert_eq!(ask(&routes, &get("a.example:8081", "/")), None);
}

#[test]
fn paths_are_byte_prefixes_and_the_longest_wins() {
    let routes = [
        paths(1, &["/"]),
        paths(2, &["/foo"]),
        paths(3, &["/foo/bar"]),
    ];
    assert_eq!(ask(&routes, &get("h", "/foobar")), Some(2));
    assert_eq!(ask(&routes, &get("h", "/foo/bar/x")), Some(3));
    assert_eq!(ask(&routes, &get("h", "/x")), Some(1));
}

#[test]
fn a_regex_beats_a_prefix_and_regex_priority_orders_them() {
    let low = paths(9, &["~/v\\d+/a"]);
    let high = Route {
        regex_priority: 5,
        ..paths(1, &["~/v1/.*$"])
    };
    let routes = [paths(3, &["/v1/a/b/c"]), low, high];
    assert_eq!(ask(&routes, &get("h", "/v1/a/b/c")), Some(1));
    assert_eq!(ask(&routes, &get("h", "/v2/a")), Some(9));
    assert_eq!(
        ask(&routes, &get("h", "/x/v2/a")),
        None,
        "anchored at the start"
    );
}

#[test]
fn more_kinds_of_attributes_win_over_better_ones() {
    let both = Route {
        methods: strings(&["GET"]),
        ..paths(1, &["/"])
    };
    let routes = [paths(2, &["/a/very/long/path"]), both];
    assert_eq!(ask(&routes, &get("h", "/a/very/long/path")), Some(1));
}

#[test]
fn a_candidate_that_fails_lets_the_next_one_try() {
    let post = Route {
        methods: strings(&["POST"]),
        ..paths(1, &["/a"])
    };
    let routes = [post, paths(2, &["/"])];
    assert_eq!(ask(&routes, &get("h", "/a")), Some(2));
    let mut question = get("h", "/a");
    question.method = Method::POST;
    assert_eq!(ask(&routes, &question), Some(1));
}

#[test]
fn unknown_methods_can_be_routed_too() {
    let purge = Route {
        methods: strings(&["PURGE"]),
        ..route(1)
    };
    let mut question = get("h", "/");
    assert_eq!(ask(std::slice::from_ref(&purge), &question), None);
    question.method = Method::from_bytes(b"PURGE").expect("a method");
    assert_eq!(ask(&[purge], &question), Some(1));
}

#[test]
fn headers_are_anded_by_name_and_ored_by_value() {
    let mut wanted = route(1);
    wanted.headers = Some(
        [
            ("x-a".to_owned(), vec!["One".to_owned(), "two".to_owned()]),
            ("x-b".to_owned(), vec!["~*^v\\d$".to_owned()]),
        ]
        .into(),
    );
    let routes = [wanted];
    let mut question = get("h", "/");
    question
        .headers
        .append("x-a", "ONE".parse().expect("a value"));
    assert_eq!(ask(&routes, &question), None);
    question
        .headers
        .append("x-b", "no".parse().expect("a value"));
    assert_eq!(ask(&routes, &question), None);
    question
        .headers
        .append("x-b", "V7".parse().expect("a value"));
    assert_eq!(ask(&routes, &question), Some(1));
}

#[test]
fn the_greater_id_wins_a_tie() {
    let routes = [paths(2, &["/a"]), paths(7, &["/a"]), paths(5, &["/a"])];
    assert_eq!(ask(&routes, &get("h", "/a")), Some(7));
}

#[test]
fn many_routes_of_one_host_behave_as_few_do() {
    let mut routes: Vec<Route> = (0..200)
        .map(|i| Route {
            hosts: strings(&["h"]),
            paths: Some(vec![format!("/svc-{i:03}/"), format!("~/re-{i:03}/\\d+$")]),
            ..route(i + 1)
        })
        .collect();
    routes.push(hosts(1000, &["h"]));
    assert_eq!(ask(&routes, &get("h", "/svc-042/x")), Some(43));
    assert_eq!(ask(&routes, &get("h", "/re-199/12")), Some(200));
    assert_eq!(ask(&routes, &get("h", "/re-199/x")), Some(1000));
    assert_eq!(ask(&routes, &get("h", "/svc-200/")), Some(1000));
    assert_eq!(ask(&routes, &get("other", "/svc-042/x")), None);
}

#[test]
fn a_broken_expression_names_its_path() {
    let error = Router::build(&[paths(1, &["/ok", "~/(("])], None).expect_err("refused");
    assert_eq!(error.field, "paths.2");
    assert!(error.message.starts_with("invalid regex"), "{error}");
}

#[test]
fn a_regex_that_would_fill_memory_is_refused() {
    let error = Router::build(&[paths(1, &["~/(a{1000}){1000}"])], None).expect_err("refused");
    assert!(error.message.contains("size limit"), "{error}");
}

#[test]
fn expressions_survive_a_rebuild() {
    let routes = [paths(1, &["~/v\\d+"])];
    let first = Router::build(&routes, None).expect("compiles");
    let second = Router::build(&routes, Some(&first)).expect("compiles");
    assert_eq!(first.patterns.len(), second.patterns.len());
}

#[test]
fn server_names_match_in_the_handshake_only() {
    let sni = |id, list: &[&str]| Route {
        snis: strings(list),
        ..route(id)
    };
    let routes = [sni(1, &["a.test"]), sni(2, &["*.b.test", "C.test"])];
    let tls = |sni| Ask {
        tls: true,
        sni,
        ..get("h", "/")
    };
    assert_eq!(ask(&routes, &tls(Some("a.test"))), Some(1));
    assert_eq!(ask(&routes, &tls(Some("A.TEST."))), Some(1));
    assert_eq!(ask(&routes, &tls(Some("x.b.test"))), Some(2));
    assert_eq!(ask(&routes, &tls(Some("c.test"))), Some(2));
    assert_eq!(ask(&routes, &tls(Some("d.test"))), None);
    assert_eq!(ask(&routes, &tls(None)), None);
    assert_eq!(
        ask(&routes, &get("h", "/")),
        Some(2),
        "without TLS there is no server name to ask for"
    );
}

#[test]
fn wildcard_hosts_match_ports_too() {
    let routes = [hosts(1, &["*.example.com:81"]), hosts(2, &["api.*:82"])];
    assert_eq!(ask(&routes, &get("a.example.com:81", "/")), Some(1));
    assert_eq!(ask(&routes, &get("a.example.com:80", "/")), None);
    assert_eq!(ask(&routes, &get("api.org:82", "/")), Some(2));
    assert_eq!(ask(&routes, &get("api.org:81", "/")), None);
}

#[test]
fn a_host_with_a_port_needs_the_listeners_if_none_is_sent() {
    let routes = [hosts(1, &["a.example:8000"])];
    // `ask` takes 8000 for the listener's port.
    assert_eq!(ask(&routes, &get("a.example", "/")), Some(1));
    assert_eq!(ask(&routes, &get("A.example.:8000", "/")), Some(1));
}

#[test]
fn more_header_names_win() {
    let with = |id, names: &[&str]| Route {
        headers: Some(
            names
                .iter()
                .map(|n| ((*n).to_owned(), vec!["1".to_owned()]))
                .collect(),
        ),
        ..route(id)
    };
    let mut question = get("h", "/");
    for name in ["x-a", "x-b"] {
        question.headers.append(name, "1".parse().expect("a value"));
    }
    assert_eq!(
        ask(&[with(9, &["x-a"]), with(1, &["x-a", "x-b"])], &question),
        Some(1)
    );
}

#[test]
fn a_route_with_several_paths_takes_its_place_with_each() {
    let both = Route {
        regex_priority: 7,
        ..paths(1, &["/a/longer/one", "/a", "~/x/\\d"])
    };
    let routes = [both, paths(9, &["/a/longer"]), paths(8, &["~/x"])];
    assert_eq!(ask(&routes, &get("h", "/a/longer/one")), Some(1));
    assert_eq!(ask(&routes, &get("h", "/a/longer/two")), Some(9));
    assert_eq!(ask(&routes, &get("h", "/a/b")), Some(1));
    assert_eq!(ask(&routes, &get("h", "/x/1")), Some(1));
    assert_eq!(ask(&routes, &get("h", "/x/y")), Some(8));
}

#[test]
fn look_around_is_refused_with_its_name_and_path() {
    let error = Router::build(&[paths(1, &["~/a(?!b)"])], None).expect_err("refused");
    assert_eq!(error.field, "paths.1");
    assert!(error.message.contains("negative look-ahead"), "{error}");
}

#[test]
fn a_path_of_any_length_builds() {
    let long = "/a".repeat(200_000);
    let mut routes: Vec<Route> = (1..12).map(|i| paths(i, &["/b"])).collect();
    routes.push(paths(99, &[&long]));
    assert_eq!(ask(&routes, &get("h", "/b")), Some(11));
}
