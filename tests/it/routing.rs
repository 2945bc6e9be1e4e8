//! Which requests reach which service, and as what.

use serde_json::json;

use crate::support::raw::exchange;
use crate::support::{Door, Setup, Upstream, http};

/// A door with one service `web` to an echo under `/base`, and `routes`.
async fn door_with(upstream: &Upstream, routes: &str) -> Door {
    let services = format!(
        "- name: web\n  url: {}\n  routes: {routes}\n",
        upstream.url("/base")
    );
    Setup::new().services(&services).start().await
}

/// What the upstream was asked for.
async fn target(door: &Door, host: &str, path: &str) -> String {
    let answer = door.get(host, path).await.expect(200).json();
    answer["target"].as_str().expect("a target").to_owned()
}

#[tokio::test]
async fn a_request_that_no_route_matches_gets_404() {
    let door = Setup::new().start().await;
    let answer = door.get("nowhere.test", "/x").await.expect(404);
    assert_eq!(
        answer.json()["message"],
        "no Route matched with those values"
    );
    assert!(
        answer
            .header("content-type")
            .starts_with("application/json")
    );
}

#[tokio::test]
async fn hosts_match_exactly_or_by_one_wildcard_label() {
    let upstream = Upstream::echo().await;
    let routes = "[{name: exact, hosts: [a.test], paths: [/p]}, {name: left, hosts: ['*.a.test'], paths: [/p]},
                   {name: right, hosts: ['b.*'], paths: [/p]}]";
    let door = door_with(&upstream, routes).await;
    for host in [
        "a.test",
        "x.a.test",
        "x.y.a.test",
        "b.test",
        "b.example",
        "A.TEST",
        "a.test:8000",
    ] {
        door.get(host, "/p").await.expect(200);
    }
    for host in ["b", "xa.test", "a.test.evil", "c.test"] {
        door.get(host, "/p").await.expect(404);
    }
}

#[tokio::test]
async fn a_plain_host_goes_before_a_wildcard_and_a_longer_path_before_a_shorter() {
    let upstream = Upstream::start(|seen| {
        crate::support::Reply::Json(
            200,
            json!({"which": seen.header("x-which"), "target": seen.target}),
        )
    })
    .await;
    let services = format!(
        "- {{name: one, url: '{0}', path: /one, routes: [{{hosts: ['*.a.test']}}]}}\n\
         - {{name: two, url: '{0}', path: /two, routes: [{{hosts: [www.a.test]}}]}}\n\
         - {{name: three, url: '{0}', path: /three, routes: [{{paths: [/long/er]}}]}}\n\
         - {{name: four, url: '{0}', path: /four, routes: [{{paths: [/long]}}]}}\n",
        upstream.url("")
    );
    let door = Setup::new().services(&services).start().await;
    assert_eq!(target(&door, "www.a.test", "/").await, "/two");
    assert_eq!(target(&door, "w3.a.test", "/").await, "/one");
    assert_eq!(target(&door, "c.test", "/long/er/x").await, "/three/x");
    assert_eq!(target(&door, "c.test", "/long/x").await, "/four/x");
}

#[tokio::test]
async fn the_matched_prefix_is_stripped_and_the_service_path_put_in_front() {
    let upstream = Upstream::echo().await;
    let routes = "[{paths: [/strip]}, {paths: [/keep], strip_path: false}]";
    let door = door_with(&upstream, routes).await;
    assert_eq!(
        target(&door, "a.test", "/strip/x?q=1&r=a%20b").await,
        "/base/x?q=1&r=a%20b"
    );
    assert_eq!(target(&door, "a.test", "/strip").await, "/base");
    assert_eq!(target(&door, "a.test", "/keep/x").await, "/base/keep/x");
}

#[tokio::test]
async fn regular_expressions_match_paths_from_their_start() {
    let upstream = Upstream::echo().await;
    let routes = "[{paths: ['~/api/v[0-9]+/users$'], strip_path: false}]";
    let door = door_with(&upstream, routes).await;
    assert_eq!(
        target(&door, "a.test", "/api/v12/users").await,
        "/base/api/v12/users"
    );
    for path in ["/api/vx/users", "/api/v1/users/1", "/x/api/v1/users"] {
        door.get("a.test", path).await.expect(404);
    }
}

#[tokio::test]
async fn methods_and_headers_restrict_a_route() {
    let upstream = Upstream::echo().await;
    let routes =
        "[{hosts: [m.test], methods: [POST]}, {hosts: [h.test], headers: {X-Version: ['2', '3']}}]";
    let door = door_with(&upstream, routes).await;
    door.get("m.test", "/").await.expect(404);
    let post = http::client()
        .post(door.proxy_url("/"))
        .header("host", "m.test");
    http::send(post).await.expect(200);
    door.get("h.test", "/").await.expect(404);
    for (version, status) in [("2", 200), ("3", 200), ("4", 404)] {
        let get = http::client().get(door.proxy_url("/"));
        let get = get.header("host", "h.test").header("x-version", version);
        http::send(get).await.expect(status);
    }
}

#[tokio::test]
async fn the_upstream_sees_its_own_host_unless_the_route_preserves_it() {
    let upstream = Upstream::echo().await;
    let routes = "[{hosts: [own.test]}, {hosts: [kept.test], preserve_host: true}]";
    let door = door_with(&upstream, routes).await;
    door.get("own.test", "/").await.expect(200);
    assert_eq!(
        upstream.last().header("host"),
        Some(upstream.address().to_string().as_str())
    );
    door.get("kept.test", "/").await.expect(200);
    assert_eq!(upstream.last().header("host"), Some("kept.test"));
}

#[tokio::test]
async fn dotted_and_encoded_paths_are_routed_as_what_they_mean() {
    let upstream = Upstream::echo().await;
    let routes = "[{paths: [/public]}]";
    let door = door_with(&upstream, routes).await;
    for path in [
        "/public/../secret",
        "/public/%2e%2e/secret",
        "/x/..//secret",
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
        let answer = exchange(&door.proxy(), request.as_bytes())
            .await
            .expect("an answer");
        assert!(
            matches!(answer.status, 400 | 404),
            "{path}: {}",
            answer.status
        );
    }
    assert!(upstream.seen().is_empty());
    assert_eq!(target(&door, "a.test", "/%70ublic//x").await, "/base/x");
}

#[tokio::test]
async fn a_route_without_service_answers_503() {
    let door = Setup::new().start().await;
    door.admin_post("/routes", &json!({"hosts": ["lost.test"]}))
        .await
        .expect(201);
    let answer = door.get("lost.test", "/").await.expect(503);
    assert_eq!(
        answer.json()["message"],
        "no Service found with those values"
    );
}

#[tokio::test]
async fn a_route_for_https_only_asks_for_an_upgrade() {
    let upstream = Upstream::echo().await;
    let routes = "[{hosts: [s.test], protocols: [https]}]";
    let door = door_with(&upstream, routes).await;
    let answer = door.get("s.test", "/").await.expect(426);
    assert_eq!(answer.json()["message"], "Please use HTTPS protocol");
    assert!(answer.header("upgrade").contains("TLS/1.2"));
}

/// The status and head of the answer to a request as it stands here.
async fn raw(door: &Door, head: &str) -> (u16, String) {
    let request = format!("{head}\r\nConnection: close\r\n\r\n");
    let answer = exchange(&door.proxy(), request.as_bytes()).await;
    let answer = answer.expect("an answer");
    let location = answer.header("location").unwrap_or_default().to_owned();
    (answer.status, location)
}

#[tokio::test]
async fn a_redirect_to_https_keeps_the_target_as_it_was_sent() {
    let upstream = Upstream::echo().await;
    let routes = "[{hosts: [s.test], protocols: [https], https_redirect_status_code: 308}]";
    let door = door_with(&upstream, routes).await;
    let head = "GET /a%2fb//c?x=%20&y HTTP/1.1\r\nHost: s.test:8000";
    let (status, location) = raw(&door, head).await;
    assert_eq!(status, 308);
    assert_eq!(location, "https://s.test/a%2fb//c?x=%20&y");
}

#[tokio::test]
async fn a_query_is_kept_byte_for_byte_and_so_is_a_bare_question_mark() {
    let upstream = Upstream::echo().await;
    let door = door_with(&upstream, "[{paths: [/q]}]").await;
    for (sent, seen) in [
        ("/q/x?", "/base/x?"),
        ("/q/x?a=%2e%2E&&b=//..", "/base/x?a=%2e%2E&&b=//.."),
        ("/%71/%2525?a", "/base/%2525?a"),
    ] {
        let (status, _) = raw(&door, &format!("GET {sent} HTTP/1.1\r\nHost: a.test")).await;
        assert_eq!(status, 200, "{sent}");
        assert_eq!(upstream.last().target, seen);
    }
}

#[tokio::test]
async fn a_host_matches_with_its_port_and_a_final_dot() {
    let upstream = Upstream::echo().await;
    let door = door_with(&upstream, "[{hosts: ['p.test:81', '*.w.test:82']}]").await;
    for (host, status) in [
        ("p.test:81", 200),
        ("P.Test.:81", 200),
        ("p.test:82", 404),
        ("p.test", 404),
        ("x.w.test:82", 200),
        ("x.w.test:81", 404),
    ] {
        let head = format!("GET / HTTP/1.1\r\nHost: {host}");
        assert_eq!(raw(&door, &head).await.0, status, "{host}");
    }
}

#[tokio::test]
async fn a_grpc_route_takes_grpc_only() {
    let upstream = Upstream::echo().await;
    let routes = "[{paths: [/pkg], protocols: [grpc], strip_path: false}]";
    let door = door_with(&upstream, routes).await;
    let answer = door.get("a.test", "/pkg.S/M").await.expect(415);
    assert_eq!(
        answer.json()["message"],
        "Non-gRPC request matched gRPC route"
    );
    let head = "POST /pkg.S/M HTTP/1.1\r\nHost: a.test\r\nContent-Type: application/grpc\r\nContent-Length: 0";
    let request = format!("{head}\r\nConnection: close\r\n\r\n");
    let answer = exchange(&door.proxy(), request.as_bytes()).await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status, 426);
    assert_eq!(answer.header("connection"), Some("close, Upgrade"));
    assert!(answer.header("upgrade").is_some());
}

#[tokio::test]
async fn constructs_that_need_backtracking_are_refused_by_name() {
    let door = Setup::new().start().await;
    let route = json!({"paths": ["/ok", "~/a(?=b)"]});
    let answer = door.admin_post("/routes", &route).await.expect(400);
    let text = answer.json().to_string();
    assert!(text.contains("look-ahead '(?='"), "{text}");
    assert!(
        text.contains("~/a(?=b)") || text.contains("/a(?=b)"),
        "{text}"
    );
}

/// What a raw request for `path` is answered with.
async fn status(door: &Door, path: &str) -> u16 {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
    let answer = exchange(&door.proxy(), request.as_bytes()).await;
    answer.expect("an answer").status
}

#[tokio::test]
async fn a_path_is_the_same_however_its_characters_are_spelled() {
    let upstream = Upstream::echo().await;
    let routes = "[{name: fixed, paths: ['/a|b', /é], strip_path: false},
                   {name: expression, paths: ['~/x y/[0-9]+$'], strip_path: false}]";
    let door = door_with(&upstream, routes).await;
    for (path, sent) in [
        ("/a|b", "/base/a%7Cb"),
        ("/a%7cb", "/base/a%7Cb"),
        ("/%C3%A9", "/base/%C3%A9"),
        ("/%c3%a9/{x}", "/base/%C3%A9/%7Bx%7D"),
        ("/x%20y/7", "/base/x%20y/7"),
    ] {
        assert_eq!(status(&door, path).await, 200, "{path}");
        assert_eq!(upstream.last().target, sent, "{path}");
    }
    // Reserved characters mean something else when they are encoded.
    for path in ["/x%20y%2F7", "/x+y/7", "/a%257Cb"] {
        assert_eq!(status(&door, path).await, 404, "{path}");
    }
}

#[tokio::test]
async fn a_route_that_refuses_is_not_passed_by_another_spelling() {
    let upstream = Upstream::echo().await;
    let services = format!(
        "- name: web\n  url: {}\n  routes:\n  - {{name: all, paths: [/]}}\n  \
         - {{name: fixed, paths: ['/in|side', '/h\u{f6}f'], plugins: &no [{{name: request-termination}}]}}\n  \
         - {{name: expression, paths: ['~/[a-z]{{3}} \\d'], plugins: *no}}\n",
        upstream.url("")
    );
    let door = Setup::new().services(&services).start().await;
    for path in [
        "/in|side",
        "/in%7Cside/x",
        "/in%7cside",
        "/%69n%7cside",
        "/x/../in|side",
        "//in%7Cside",
        "/h%C3%B6f",
        "/h%c3%b6f/x",
        "/abc%201",
        "/%61bc%201",
        "/./abc%201/x",
    ] {
        assert_eq!(status(&door, path).await, 503, "{path}");
    }
    assert!(upstream.seen().is_empty());
    for path in ["/inside", "/in%257Cside", "/abc1"] {
        assert_eq!(status(&door, path).await, 200, "{path}");
    }
}

#[tokio::test]
async fn spelling_a_path_otherwise_passes_no_access_control() {
    let upstream = Upstream::echo().await;
    let services = format!(
        "- name: web\n  url: {}\n  routes:\n  - {{name: all, paths: [/]}}\n  \
         - {{name: keys, paths: ['/a{{b}}', '~/k[|]\\d'], plugins: [{{name: key-auth}}, \
         {{name: acl, config: {{allow: [admins]}}}}]}}\n  \
         - {{name: addresses, paths: ['/caf\u{e9} [1]', '~/\u{fc}+$'], plugins: \
         [{{name: ip-restriction, config: {{allow: [192.0.2.1]}}}}]}}\n",
        upstream.url("")
    );
    let door = Setup::new().services(&services).start().await;
    for (path, refused) in [
        ("/a{b}", 401),
        ("/a%7bb%7D/x", 401),
        ("/%61{b%7d", 401),
        ("/y/../a%7Bb}", 401),
        ("/k|7", 401),
        ("/k%7c7", 401),
        ("/%6b%7C%37", 401),
        ("/caf%C3%A9%20[1]", 403),
        ("/caf%c3%a9%20[1]/x", 403),
        ("/%63af%c3%A9%20[%31]", 403),
        ("/%C3%BC", 403),
        ("/%c3%bc%C3%bc", 403),
    ] {
        assert_eq!(status(&door, path).await, refused, "{path}");
    }
    assert!(upstream.seen().is_empty());
    // Reserved characters mean something else when they are encoded, here and upstream.
    for path in ["/caf%C3%A9%20%5B1%5D", "/k%257C7", "/caf%C3%A9+[1]"] {
        assert_eq!(status(&door, path).await, 200, "{path}");
        assert_eq!(upstream.last().target, path);
    }
}
