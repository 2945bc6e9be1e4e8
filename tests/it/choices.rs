//! Settings by which people who come from the imitated gateway choose its ways.

use serde_json::json;

use crate::support::http::{client, send};
use crate::support::ports::Port;
use crate::support::{Answer, Door, Setup, Upstream};

const ECHO: &str = "- {name: echo, protocol: internal, host: echo, \
    routes: [{name: echo-route, paths: [/]}]}\n";

/// A door to `url` with further settings of the proxy.
async fn door(settings: &str, url: &str) -> Door {
    let service =
        format!("- {{name: web, url: '{url}', routes: [{{name: web-route, paths: [/]}}]}}\n");
    Setup::new()
        .proxy(&format!("{{listen: [\"@PROXY@\"]{settings}}}"))
        .services(&service)
        .start()
        .await
}

fn own_headers(answer: &Answer) -> Vec<&str> {
    let mut own: Vec<_> = answer
        .headers
        .keys()
        .map(http::HeaderName::as_str)
        .filter(|name| name.starts_with("x-kong") || matches!(*name, "via" | "server"))
        .collect();
    own.sort_unstable();
    own
}

#[tokio::test]
async fn headers_are_shown_as_they_are_named() {
    let upstream = Upstream::echo().await;
    let silent = door(", headers: [off]", &upstream.url("")).await;
    assert_eq!(
        own_headers(&silent.get("a.test", "/").await.expect(200)),
        [""; 0]
    );
    let refused = silent.get("a.test", "/%00").await;
    assert!(refused.status >= 400, "{}", refused.status);
    assert_eq!(own_headers(&refused), [""; 0]);
    let some = ", headers: [Via, X-Kong-Upstream-Status, X-Kong-Request-Id]";
    let some = door(some, &upstream.url("")).await;
    let answer = some.get("a.test", "/").await.expect(200);
    let wanted = ["via", "x-kong-request-id", "x-kong-upstream-status"];
    assert_eq!(own_headers(&answer), wanted);
    assert_eq!(answer.header("x-kong-upstream-status"), "200");
    // What it is called is said in the body of a refusal in any case.
    let usual = door("", &upstream.url("")).await;
    let answer = usual.get("a.test", "/").await.expect(200);
    let wanted = [
        "via",
        "x-kong-proxy-latency",
        "x-kong-request-id",
        "x-kong-upstream-latency",
    ];
    assert_eq!(own_headers(&answer), wanted);
}

#[tokio::test]
async fn a_refusal_names_its_request_in_the_body_and_in_the_log() {
    let door = Setup::new().start().await;
    let answer = door.get("a.test", "/nowhere").await.expect(404);
    let body = answer.json();
    let id = body["request_id"].as_str().expect("an identifier");
    assert_eq!(id, answer.header("x-kong-request-id"));
    let logged = format!("\"request_id\":\"{id}\"");
    door.wait_log("the request", |line| line.contains(&logged))
        .await;
}

#[tokio::test]
async fn messages_about_upstreams_have_the_type_that_is_set() {
    let nobody = Port::reserve();
    let url = format!("http://{}", nobody.authority());
    for (setting, kind, text) in [
        ("", "text/plain", "request_id: "),
        (
            ", error_default_type: application/json",
            "application/json",
            "\"request_id\":",
        ),
        (
            ", error_default_type: text/html",
            "text/html",
            "<p>request_id: ",
        ),
        (
            ", error_default_type: application/xml",
            "application/xml",
            "<requestid>",
        ),
    ] {
        let door = door(setting, &url).await;
        // Who asks for a type gets it.
        let asked = send(client().get(door.proxy_url("/"))).await;
        assert!(asked.header("content-type").starts_with("application/json"));
        let answer = crate::support::raw::exchange(
            &door.proxy(),
            b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n",
        )
        .await;
        let answer = answer.expect("an answer");
        let told = answer.header("content-type").unwrap_or_default();
        assert!(told.starts_with(kind), "{kind}: {told}");
        assert!(answer.text().contains(text), "{kind}: {}", answer.text());
    }
}

#[tokio::test]
async fn upstreams_and_routes_see_the_ports_that_clients_know() {
    let upstream = Upstream::echo().await;
    let maps = ", port_maps: [\"80:@PROXY_PORT@\"]";
    let door = door(maps, &upstream.url("")).await;
    let answer = door.get("a.test", "/").await.expect(200).json();
    assert_eq!(answer["headers"]["x-forwarded-port"], "80");
}

#[tokio::test]
async fn route_and_service_are_told_to_those_who_ask_where_that_is_allowed() {
    let upstream = Upstream::echo().await;
    for (setting, told) in [("", false), (", allow_debug_header: true", true)] {
        let door = door(setting, &upstream.url("")).await;
        let ask = client().get(door.proxy_url("/")).header("kong-debug", "1");
        let answer = send(ask).await.expect(200);
        let service = door.admin_get("/services/web").await.expect(200).json();
        assert_eq!(answer.headers.contains_key("kong-route-id"), told);
        if told {
            assert_eq!(answer.header("kong-route-name"), "web-route");
            assert_eq!(answer.header("kong-service-name"), "web");
            assert_eq!(service["id"], answer.header("kong-service-id"));
        }
        let plain = door.get("a.test", "/").await.expect(200);
        assert!(!plain.headers.contains_key("kong-route-id"));
    }
}

#[tokio::test]
async fn certificates_of_upstreams_are_verified_unless_that_is_switched_off() {
    let tls = Port::reserve();
    let proxy = format!(
        "{{listen: [\"@PROXY@\"], tls: {{listen: [\"{}\"]}}}}",
        tls.authority()
    );
    // Its certificate is one that nobody trusts.
    let upstream = Setup::new().proxy(&proxy).services(ECHO);
    let upstream = upstream.start().await;
    let url = format!("https://localhost:{}", tls.number());
    let strict = door("", &url).await;
    strict.get("a.test", "/").await.expect(502);
    let lenient = door(", upstream_verify: false", &url).await;
    lenient.get("a.test", "/").await.expect(200);
    assert!(lenient.log_text().contains("upstream_verify"));
    // A service that says so is verified all the same.
    let service = json!({"name": "checked", "url": url, "tls_verify": true, "retries": 0});
    lenient.admin_post("/services", &service).await.expect(201);
    let route = json!({"hosts": ["checked.test"]});
    lenient
        .admin_post("/services/checked/routes", &route)
        .await
        .expect(201);
    lenient.get("checked.test", "/").await.expect(502);
    drop(upstream);
}

#[tokio::test]
async fn pages_of_origins_that_are_named_may_use_the_admin_api() {
    let admin = "{listen: \"@ADMIN@\", token: 0123456789abcdef, \
                 cors_origins: [\"https://console.example\"]}";
    let mut door = Setup::new().admin(admin).lay_out();
    door.spawn();
    let url = door.admin_url("/services");
    let asks = |origin: &'static str, path: &str| {
        client()
            .request(reqwest::Method::OPTIONS, door.admin_url(path))
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "kong-admin-token")
    };
    crate::support::eventually("the listener", async || {
        let asked = asks("https://console.example", "/services").send().await;
        asked.is_ok().then_some(())
    })
    .await;
    for path in ["/services", "/identity/clients"] {
        let answer = send(asks("https://console.example", path))
            .await
            .expect(204);
        let origin = answer.header("access-control-allow-origin");
        assert_eq!(origin, "https://console.example");
        assert!(
            answer
                .header("access-control-allow-methods")
                .contains("POST")
        );
        let headers = answer.header("access-control-allow-headers");
        assert_eq!(headers, "kong-admin-token");
        send(asks("https://evil.example", path)).await.expect(403);
    }
    let get = |origin: &'static str, token: bool| {
        let request = client().get(&url).header("origin", origin);
        if token {
            request.header("kong-admin-token", "0123456789abcdef")
        } else {
            request
        }
    };
    let read = send(get("https://console.example", true)).await.expect(200);
    let origin = read.header("access-control-allow-origin");
    assert_eq!(origin, "https://console.example");
    send(get("https://console.example", false))
        .await
        .expect(401);
    send(get("https://evil.example", true)).await.expect(403);
}

#[tokio::test]
async fn a_listener_for_both_families_logs_clients_as_they_are() {
    let setup = Setup::new().proxy("{listen: [\"[::]:@PROXY_PORT@\"]}");
    let door = setup.services(ECHO).start().await;
    door.get("a.test", "/mapped").await.expect(200);
    let line = door
        .wait_log("the request", |line| line.contains("\"/mapped\""))
        .await;
    assert!(line.contains("\"127.0.0.1\""), "{line}");
    assert!(!line.contains("::ffff:"), "{line}");
}
