//! The everyday plugins of the imitated gateway, each seen through one request to
//! the real program, from one declarative file.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Door, Reply, Setup, Upstream, http, raw};

/// A route for each plugin, named like it.
const FILE: &str = r#"
- name: everyday
  url: @UPSTREAM@
  routes:
  - name: correlation-id
    paths: [/correlation-id]
    plugins:
    - {name: correlation-id, config: {echo_downstream: true}}
    - {name: ip-restriction, config: {allow: [127.0.0.1], deny: [192.0.2.0/24]}}
  - name: request-termination
    paths: [/request-termination]
    plugins:
    - {name: correlation-id, config: {echo_downstream: true, generator: uuid}}
    - {name: request-termination, config: {status_code: 418, message: "so long", trigger: stop}}
  - name: echo
    paths: ["~/echo/(?<user>[a-z]+)/([0-9]+)"]
    plugins:
    - {name: request-termination, config: {echo: true, status_code: 404, trigger: X-Debug}}
  - name: request-size-limiting
    paths: [/request-size-limiting]
    plugins:
    - {name: request-size-limiting, config: {allowed_payload_size: 1, size_unit: kilobytes}}
  - name: ip-restriction
    paths: [/ip-restriction]
    plugins:
    - name: ip-restriction
      protocols: [grpc, grpcs, http, https, tcp, tls]
      config: {deny: [127.0.0.0/8], status: 451}
  - name: bot-detection
    paths: [/bot-detection]
    plugins:
    - {name: bot-detection, config: {deny: [^curl/]}}
    - {name: cors, config: {origins: ["https://a.test", "https://b.test"]}}
  - name: cors
    paths: [/cors]
    plugins:
    - {name: cors, config: {origins: ["https://a.test", ".*[.]b[.]test"], credentials: true}}
    - {name: request-termination, config: {status_code: 401, trigger: stop}}
  - name: rate-limiting
    paths: [/rate-limiting]
    plugins:
    - {name: rate-limiting, config: {year: 2, limit_by: ip, policy: local}}
  - name: told
    paths: [/told]
    plugins:
    - {name: correlation-id, config: {header_name: X-Id, echo_downstream: true}}
    - {name: rate-limiting, config: {year: 9, limit_by: ip, policy: local}}
  - name: told-and-read
    paths: [/told-and-read]
    plugins:
    - {name: correlation-id, config: {header_name: X-Id, echo_downstream: true}}
    - {name: rate-limiting, config: {year: 9, limit_by: ip, policy: local}}
    - {name: response-transformer, config: {remove: {headers: [X-None]}}}
  - name: redirect
    paths: [/redirect]
    plugins:
    - name: redirect
      config: {location: "https://b.test/x", status_code: 308, keep_incoming_path: true}
  - name: response-transformer
    paths: [/response-transformer]
    plugins:
    - {name: request-termination, config: {trigger: stop}}
    - name: response-transformer
      config: {rename: {headers: ["X-Upstream:X-Renamed"]}, add: {headers: ["X-Added:a:b"], json: ["own:true"], json_types: [boolean]}}
  - name: request-transformer
    paths: ["~/request-transformer/(?<user>[a-z]+)$"]
    plugins:
    - {name: correlation-id, config: {header_name: X-Id}}
    - name: request-transformer
      config:
        remove: {headers: [X-Gone], querystring: [gone]}
        rename: {headers: ["X-Old:X-New"], querystring: ["old:new"]}
        replace: {uri: "/users/$(uri_captures.user)"}
        add: {headers: ["X-Gone-Too:$(headers['x-gone']) $(query_params.gone)", "X-Twin:$(headers['x-id'])"]}
  - name: request-transformer-sums
    paths: ["~/request-transformer-sums/(?<page>[a-z0-9]+)$"]
    plugins:
    - {name: request-transformer, config: {replace: {uri: "/from/$(10 * (uri_captures.page - 1))"}}}
  - name: request-transformer-missing
    paths: [/request-transformer-missing]
    plugins:
    - {name: request-transformer, config: {add: {querystring: ["a:$(headers.x_sure or missing())"]}}}
"#;

/// A door with the file, and its upstream.
async fn door() -> (Door, Upstream) {
    let upstream = Upstream::start(|seen| {
        let body = seen.json().to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\nX-Upstream: here\r\nKong-Request-ID: upstreams\r\n\
             Access-Control-Allow-Origin: https://upstream.test\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        Reply::Raw(format!("{head}{body}").into_bytes())
    })
    .await;
    let file = FILE.replace("@UPSTREAM@", &upstream.url(""));
    let door = Setup::new().services(&file).start().await;
    (door, upstream)
}

async fn ask(door: &Door, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = http::client().request(method, door.proxy_url(path));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    http::send(request).await
}

async fn get(door: &Door, path: &str, headers: &[(&str, &str)]) -> Answer {
    ask(door, Method::GET, path, headers).await
}

/// What the upstream says that it got.
fn sent(answer: Answer, field: &str) -> Value {
    answer.expect(200).json()["headers"][field].clone()
}

#[tokio::test]
async fn every_plugin_of_one_file_does_what_it_is_for() {
    let (door, _upstream) = door().await;
    correlation_id(&door).await;
    request_termination(&door).await;
    echo(&door).await;
    request_size_limiting(&door).await;
    ip_restriction(&door).await;
    bot_detection(&door).await;
    cors(&door).await;
    rate_limiting(&door).await;
    told(&door).await;
    redirect(&door).await;
    response_transformer(&door).await;
    request_transformer(&door).await;
}

async fn correlation_id(door: &Door) {
    let answer = get(door, "/correlation-id", &[]).await;
    let told = answer.header("kong-request-id").to_owned();
    assert!(told.ends_with("#1"), "{told}");
    assert_eq!(answer.headers.get_all("kong-request-id").iter().count(), 1);
    assert_eq!(sent(answer, "kong-request-id"), told);
    // A client's own stays, and its Connection header does not take it away.
    let headers = [
        ("kong-request-id", "mine"),
        ("connection", "kong-request-id"),
    ];
    let answer = get(door, "/correlation-id", &headers).await;
    assert_eq!(answer.header("kong-request-id"), "mine");
    assert_eq!(sent(answer, "kong-request-id"), "mine");
}

async fn request_termination(door: &Door) {
    get(door, "/request-termination", &[]).await.expect(200);
    let answer = get(door, "/request-termination?stop", &[])
        .await
        .expect(418);
    assert_eq!(answer.body, r#"{"message":"so long"}"#);
    assert_eq!(
        answer.header("content-type"),
        "application/json; charset=utf-8"
    );
    // A refusal of a later plugin has the identifier too.
    assert_eq!(answer.header("kong-request-id").len(), 36);
}

async fn echo(door: &Door) {
    get(door, "/echo/anna/7", &[]).await.expect(200);
    let request = |body: Vec<u8>| {
        let request = http::client().post(door.proxy_url("/echo/anna/7?a=1&a=2&b"));
        let request = request.header("x-debug", "1").header("cookie", "c=d");
        http::send(
            request
                .header("content-type", "application/json")
                .body(body),
        )
    };
    let answer = request(br#"{"n": [1]}"#.to_vec()).await.expect(404);
    assert_eq!(answer.header("cache-control"), "no-store");
    let echo = answer.json();
    assert_eq!(echo["message"], "Not found");
    assert_eq!(echo["matched_route"]["name"], "echo");
    assert_eq!(echo["matched_service"]["name"], "everyday");
    let service = &echo["matched_service"]["id"];
    assert_eq!(echo["matched_route"]["service"]["id"], *service);
    let shown = &echo["request"];
    let authority = door.proxy();
    let (host, port) = authority.rsplit_once(':').expect("a port");
    assert_eq!(shown["host"], host);
    assert_eq!(shown["port"].to_string(), port);
    assert_eq!(shown["headers"]["host"], *authority);
    assert_eq!(shown["headers"]["cookie"], "c=d");
    for (field, expected) in [
        ("scheme", json!("http")),
        ("method", json!("POST")),
        ("path", json!("/echo/anna/7")),
        ("query", json!({"a": ["1", "2"], "b": true})),
        ("raw_body", json!("{\"n\": [1]}")),
        ("body", json!({"n": [1]})),
        (
            "uri_captures",
            json!({"named": {"user": "anna"}, "unnamed": ["anna", "7"]}),
        ),
    ] {
        assert_eq!(shown[field], expected, "{field}");
    }
    let id = door.admin_get("/").await.json()["node_id"].clone();
    assert_eq!(echo["kong"]["node_id"], id);
    // A body is shown whole or not at all.
    request(vec![b' '; 64 * 1024 + 1]).await.expect(413);
}

async fn request_size_limiting(door: &Door) {
    let post = |length: usize| {
        let request = http::client().post(door.proxy_url("/request-size-limiting"));
        http::send(request.body(vec![b'a'; length]))
    };
    post(1024).await.expect(200);
    let answer = post(1025).await.expect(413);
    assert_eq!(answer.json()["message"], "Request size limit exceeded");
    // Without an announced length the gateway counts.
    let chunks = |count: usize| {
        let chunk = format!("200\r\n{}\r\n", "a".repeat(512));
        format!(
            "POST /request-size-limiting HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\
             Transfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n",
            chunk.repeat(count)
        )
    };
    for (count, status) in [(2, 200), (3, 413)] {
        let mut connection = raw::Connection::open(&door.proxy()).await;
        connection.try_send(chunks(count).as_bytes()).await;
        let answer = connection.response().await;
        assert_eq!(answer.status, status, "{}", answer.text());
        // The form of the announced length's refusal, for a client that names none.
        let refused = answer
            .text()
            .contains(r#"{"message":"Request size limit exceeded""#);
        assert_eq!(refused, status == 413, "{}", answer.text());
    }
}

async fn ip_restriction(door: &Door) {
    let forged = [("x-forwarded-for", "10.0.0.1"), ("x-real-ip", "10.0.0.1")];
    let answer = get(door, "/ip-restriction", &forged).await.expect(451);
    let message = "IP address not allowed: 127.0.0.1";
    assert_eq!(answer.json()["message"], message);
}

async fn bot_detection(door: &Door) {
    let path = "/bot-detection";
    get(door, path, &[("user-agent", "Mozilla/5.0")])
        .await
        .expect(200);
    let headers = [("user-agent", "curl/8.5"), ("origin", "https://b.test")];
    let answer = get(door, path, &headers).await.expect(403);
    assert_eq!(answer.json()["message"], "Forbidden");
    // A script may read the refusal of a plugin that ran before cors.
    let allowed = answer.header("access-control-allow-origin");
    assert_eq!(allowed, "https://b.test");
}

async fn cors(door: &Door) {
    let origin = |origin: &'static str| [("origin", origin)];
    let allowed = |answer: &Answer| answer.header("access-control-allow-origin").to_owned();
    let answer = get(door, "/cors", &origin("https://x.b.test"))
        .await
        .expect(200);
    assert_eq!(allowed(&answer), "https://x.b.test");
    assert_eq!(answer.header("access-control-allow-credentials"), "true");
    assert_eq!(answer.header("vary"), "Origin");
    let answer = get(door, "/cors?stop", &origin("https://a.test"))
        .await
        .expect(401);
    assert_eq!(allowed(&answer), "https://a.test");
    let answer = get(door, "/cors", &origin("https://b.test.evil.test"))
        .await
        .expect(200);
    assert_eq!(allowed(&answer), "");
    let preflight = [
        ("origin", "https://a.test"),
        ("access-control-request-method", "PUT"),
        ("access-control-request-headers", "x-a"),
    ];
    let answer = ask(door, Method::OPTIONS, "/cors", &preflight)
        .await
        .expect(200);
    assert_eq!(answer.body, "");
    assert_eq!(allowed(&answer), "https://a.test");
    assert_eq!(answer.header("access-control-allow-headers"), "x-a");
    assert!(
        answer
            .header("access-control-allow-methods")
            .starts_with("GET,HEAD,PUT")
    );
}

async fn rate_limiting(door: &Door) {
    for left in ["1", "0"] {
        let answer = get(door, "/rate-limiting", &[]).await.expect(200);
        assert_eq!(answer.header("x-ratelimit-remaining-year"), left);
        assert_eq!(answer.header("ratelimit-limit"), "2");
    }
    let forged = [("x-forwarded-for", "10.0.0.1")];
    let answer = get(door, "/rate-limiting", &forged).await.expect(429);
    assert_eq!(answer.json()["message"], "API rate limit exceeded");
    let reset = answer.header("ratelimit-reset");
    assert_eq!(answer.header("retry-after"), reset);
}

/// Clients get the same fields in the same order, whether or not a filter looks for them
/// in the head.
async fn told(door: &Door) {
    let names = async |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n");
        let mut connection = raw::Connection::open(&door.proxy()).await;
        connection.send(request.as_bytes()).await;
        let answer = connection.response().await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("x-ratelimit-remaining-year"), Some("8"));
        let names = answer.headers.into_iter().map(|(name, _)| name);
        names.collect::<Vec<_>>()
    };
    let told = names("/told").await;
    assert_eq!(told, names("/told-and-read").await);
    let own = [
        "x-id",
        "x-ratelimit-limit-year",
        "x-ratelimit-remaining-year",
        "ratelimit-limit",
        "ratelimit-remaining",
        "ratelimit-reset",
    ];
    let first = told.iter().position(|name| name == own[0]);
    let first = first.expect("the identifier");
    let lower: Vec<_> = told.iter().map(|name| name.to_lowercase()).collect();
    assert_eq!(lower[first..first + own.len()], own);
    assert_eq!(lower[first + own.len()..], ["date", "connection"]);
}

async fn redirect(door: &Door) {
    let answer = get(door, "/redirect/a?b=c", &[]).await.expect(308);
    assert_eq!(answer.header("location"), "https://b.test/redirect/a?b=c");
    assert_eq!(answer.body, "redirecting");
}

async fn response_transformer(door: &Door) {
    let answer = get(door, "/response-transformer", &[]).await.expect(200);
    assert_eq!(answer.header("x-renamed"), "here");
    assert_eq!(answer.header("x-upstream"), "");
    assert_eq!(answer.header("x-added"), "a:b");
    let answer = get(door, "/response-transformer?stop", &[])
        .await
        .expect(503);
    assert_eq!(answer.header("x-added"), "a:b");
    assert_eq!(
        answer.json(),
        json!({"message": "Service unavailable", "own": true})
    );
    let length = answer.body.len().to_string();
    assert_eq!(answer.header("content-length"), length);
}

async fn request_transformer(door: &Door) {
    let headers = [
        ("x-gone", "1"),
        ("x-old", "2"),
        ("connection", "x-gone-too"),
    ];
    let path = "/request-transformer/anna?gone=3&old=4";
    let answer = get(door, path, &headers).await.expect(200).json();
    assert_eq!(answer["target"], "/users/anna?new=4");
    let headers = &answer["headers"];
    assert_eq!(headers["x-gone"], Value::Null);
    assert_eq!(headers["x-new"], "2");
    assert_eq!(headers["x-gone-too"], "1 3");
    // What a filter before has made counts as sent.
    assert!(headers["x-id"].is_string());
    assert_eq!(headers["x-twin"], headers["x-id"]);
    // Sums of what is a number, and of what is none.
    let answer = get(door, "/request-transformer-sums/3", &[]).await;
    assert_eq!(answer.expect(200).json()["target"], "/from/20");
    let answer = get(door, "/request-transformer-sums/three", &[]).await;
    let message = "An unexpected error occurred";
    assert_eq!(answer.expect(500).json()["message"], message);
    // A function that nobody has fails where a request comes to it.
    let missing = "/request-transformer-missing";
    get(door, missing, &[("x-sure", "1")]).await.expect(200);
    let answer = get(door, missing, &[]).await.expect(500);
    assert_eq!(answer.json()["message"], message);
}

#[tokio::test]
async fn the_admin_api_knows_the_plugins_and_their_errors() {
    let (door, _upstream) = door().await;
    let root = door.admin_get("/").await.expect(200).json();
    let enabled = door.admin_get("/plugins/enabled").await.expect(200).json();
    for (name, priority) in [
        ("correlation-id", 100_001),
        ("bot-detection", 2500),
        ("cors", 2000),
        ("ip-restriction", 990),
        ("request-size-limiting", 951),
        ("rate-limiting", 910),
        ("request-transformer", 801),
        ("response-transformer", 800),
        ("redirect", 779),
        ("request-termination", 2),
    ] {
        let available = &root["plugins"]["available_on_server"][name];
        assert_eq!(available["priority"], priority, "{name}");
        let names = enabled["enabled_plugins"].as_array().expect("a list");
        assert!(names.contains(&json!(name)), "{name}");
        let schema = door.admin_get(&format!("/schemas/plugins/{name}")).await;
        assert!(schema.expect(200).body.contains("\"config\""), "{name}");
    }
    let wrong = json!({"name": "rate-limiting", "config": {"second": 20, "hour": 10}});
    let answer = door.admin_post("/plugins", &wrong).await.expect(400).json();
    let message = answer["message"].as_str().expect("a message");
    let words = "The limit for hour(10.0) cannot be lower than the limit for second(20.0)";
    assert!(message.contains(words), "{message}");
    assert_eq!(answer["name"], "schema violation");
}

#[tokio::test]
async fn wrong_fields_of_plugins_are_told_in_the_imitated_shape() {
    let door = Setup::new().start().await;
    let directory = json!({"ldap_host": "not a host", "base_dn": "o=a", "attribute": "uid"});
    let endpoint = |headers: Value| json!({"http_endpoint": "http://a.test", "headers": headers});
    let limits = |limits: Value| json!({ "limits": { "video": limits } });
    let tag = json!({"static_tags": [{"name": "lc", "value": "a"}]});
    let reserved = "must not be one of: error, http.method, http.path, http.status_code, \
                    kong.balancer.state, kong.balancer.try, kong.consumer, kong.credential, \
                    kong.node.id, kong.route, kong.service, lc, peer.hostname";
    for (name, config, fields) in [
        (
            "ldap-auth",
            directory,
            json!({"ldap_host": "invalid value: not a host"}),
        ),
        // What is wrong within a map is told of the map, without the key.
        (
            "http-log",
            endpoint(json!({"X-A": ""})),
            json!({"headers": "length must be at least 1"}),
        ),
        (
            "http-log",
            endpoint(json!({"X-A": 1})),
            json!({"headers": "expected a string"}),
        ),
        (
            "response-ratelimiting",
            limits(json!({"second": 0})),
            json!({"limits": {"second": "value must be greater than 0"}}),
        ),
        (
            "response-ratelimiting",
            limits(json!({"second": 2, "minute": 1})),
            json!({"limits":
                "the limit for minute(1.0) cannot be lower than the limit for second(2.0)"}),
        ),
        ("zipkin", tag, json!({"static_tags": [{"name": reserved}]})),
        (
            "oauth2",
            json!({"enable_password_grant": true, "mandatory_scope": true}),
            json!({
                "@entity": ["failed conditional validation given value of field \
                            'mandatory_scope'"],
                "scopes": "required field missing",
            }),
        ),
    ] {
        let plugin = json!({ "name": name, "config": config });
        let answer = door.admin_post("/plugins", &plugin).await.expect(400);
        assert_eq!(
            answer.json()["fields"],
            json!({ "config": fields }),
            "{name}"
        );
    }
    let route = json!({"headers": {"x-a": "b"}});
    let answer = door.admin_post("/routes", &route).await.expect(400).json();
    assert_eq!(answer["fields"], json!({"headers": "expected an array"}));
}
