//! Plugins that trace: the context of a request goes on, and receivers on loopback get
//! its spans.

use serde_json::json;

use crate::observation::{get, receiver, records};
use crate::support::{Door, Issuer, Setup, Upstream, eventually, http};

/// A door to `upstream` with this plugin on all requests.
async fn door_to(upstream: &Upstream, plugin: &str) -> Door {
    let services = format!(
        "- {{name: orders, url: '{}', routes: [{{name: orders, paths: [/orders]}}]}}\nplugins:{plugin}",
        upstream.url("")
    );
    Setup::new().services(&services).start().await
}

/// The first body that `receiver` gets.
async fn first_body(receiver: &Upstream) -> Vec<u8> {
    eventually("spans", || async {
        let seen = receiver.seen().into_iter().next()?;
        Some(seen.body)
    })
    .await
}

/// Whether a body has this part.
fn contains(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

#[tokio::test]
async fn zipkin_carries_the_trace_on_and_tells_of_its_spans() {
    let (upstream, receiver) = (Upstream::echo().await, receiver().await);
    let plugin = format!(
        "
- name: zipkin
  config: {{http_endpoint: \"{}\", http_response_header_for_traceid: x-trace}}
",
        receiver.url("/api/v2/spans"),
    );
    let door = door_to(&upstream, &plugin).await;
    let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let request = http::client().get(door.proxy_url("/orders/1?a=b"));
    let request = request.header("traceparent", format!("00-{trace}-{parent}-01"));
    let answer = http::send(request.header("zipkin-tags", "team=a")).await;
    assert_eq!(answer.expect(200).header("x-trace"), trace);
    let spans = eventually("spans", || async {
        let all = records(&receiver);
        (!all.is_empty()).then_some(all)
    })
    .await;
    let [root, proxy, attempt] = &spans[..] else {
        panic!("{spans:?}");
    };
    assert_eq!(
        (&root["name"], &root["kind"]),
        (&json!("GET"), &json!("SERVER"))
    );
    assert_eq!(
        (&root["traceId"], &root["parentId"]),
        (&json!(trace), &json!(parent))
    );
    assert_eq!(root["tags"]["http.path"], "/orders/1");
    assert_eq!(root["tags"]["http.status_code"], "200");
    assert_eq!(root["tags"]["team"], "a");
    assert_eq!(proxy["name"], "GET (proxy)");
    assert_eq!(proxy["parentId"], root["id"]);
    assert_eq!(proxy["tags"]["kong.service_name"], "orders");
    assert_eq!(proxy["remoteEndpoint"]["serviceName"], "orders");
    assert_eq!(attempt["name"], "GET (balancer try 1)");
    assert_eq!(attempt["parentId"], root["id"]);
    // The upstream's parent is the span of the way to it.
    let span = proxy["id"].as_str().expect("an id");
    let sent = upstream.last();
    let sent = sent.header("traceparent");
    assert_eq!(sent, Some(&*format!("00-{trace}-{span}-01")));
    // Who was not sampled before is not here.
    let request = http::client().get(door.proxy_url("/orders"));
    let request = request.header("traceparent", format!("00-{trace}-{parent}-00"));
    http::send(request).await.expect(200);
    assert_eq!(get(&door, "/nowhere", &[]).await, 404);
    assert_eq!(records(&receiver).len(), 3);
}

#[tokio::test]
async fn opentelemetry_posts_spans_as_protobuf() {
    let (upstream, receiver) = (Upstream::echo().await, receiver().await);
    let plugin = format!(
        "
- name: opentelemetry
  config:
    traces_endpoint: \"{}\"
    sampling_rate: 1
    headers: {{X-Tenant: a}}
    resource_attributes: {{service.name: door}}
    queue: {{max_coalescing_delay: 0}}
",
        receiver.url("/v1/traces"),
    );
    let door = door_to(&upstream, &plugin).await;
    assert_eq!(get(&door, "/orders/1?token=s3cret", &[]).await, 200);
    let body = eventually("spans", || async {
        let seen = receiver.seen().into_iter().next()?;
        assert_eq!(seen.header("content-type"), Some("application/x-protobuf"));
        assert_eq!(seen.header("x-tenant"), Some("a"));
        Some(seen.body)
    })
    .await;
    let sent = upstream.last();
    let traceparent = sent.header("traceparent").expect("a context");
    let [_, trace, span, flags] = traceparent.split('-').collect::<Vec<_>>()[..] else {
        panic!("{traceparent}");
    };
    assert_eq!(flags, "01");
    let has = |part: &[u8]| contains(&body, part);
    let digits = |text: &str| -> Vec<u8> {
        let starts = (0..text.len()).step_by(2);
        let pairs = starts.map(|at| u8::from_str_radix(&text[at..at + 2], 16));
        pairs.map(|byte| byte.expect("digits")).collect()
    };
    assert!(has(&digits(trace)) && has(&digits(span)), "{traceparent}");
    for text in [
        "door",
        "kong-internal",
        "kong.balancer",
        "try_count",
        "/orders",
        "http.route",
    ] {
        assert!(has(text.as_bytes()), "{text}");
    }
    assert!(!has(b"s3cret") && !has(b"service.name\x12\x06\x0a\x04kong"));
}

#[tokio::test]
async fn opentelemetry_posts_records_of_requests_as_logs() {
    let (upstream, receiver) = (Upstream::echo().await, receiver().await);
    let plugin = format!(
        "
- name: opentelemetry
  config: {{logs_endpoint: \"{}\", sampling_rate: 0, queue: {{max_batch_size: 1}}}}
",
        receiver.url("/v1/logs"),
    );
    let door = door_to(&upstream, &plugin).await;
    assert_eq!(get(&door, "/orders/1?token=s3cret&a=b", &[]).await, 200);
    assert_eq!(get(&door, "/nowhere", &[]).await, 404);
    let mut seen = eventually("records", || async {
        let seen = receiver.seen();
        (seen.len() == 2).then_some(seen)
    })
    .await;
    // A busy machine may be done with the second request before it tells of the first.
    seen.sort_by_key(|one| contains(&one.body, b"\"status\":404"));
    let has = |at: usize, part: &[u8]| contains(&seen[at].body, part);
    assert!(seen.iter().all(|one| one.target == "/v1/logs"));
    for part in [
        "INFO",
        "request.id",
        "kong-internal",
        "\"status\":200",
        "a=b",
    ] {
        assert!(has(0, part.as_bytes()), "{part}");
    }
    for part in ["WARN", "/nowhere", "\"status\":404"] {
        assert!(has(1, part.as_bytes()), "{part}");
    }
    assert!(has(0, b"token=REDACTED") && !has(0, b"s3cret"));
    // The record names the trace that the upstream knows, also one without spans.
    let sent = upstream.last();
    let trace = sent.header("traceparent").expect("a context");
    let trace = trace.split('-').nth(1).expect("an id");
    assert!(has(0, format!("\"w3c\":\"{trace}\"").as_bytes()), "{trace}");
}

#[tokio::test]
async fn a_filter_that_waits_has_a_span_and_so_has_what_it_asked() {
    let (issuer, receiver) = (Issuer::start().await, receiver().await);
    let services = format!(
        "
- name: orders
  url: http://127.0.0.1:9
  routes: [{{name: orders, paths: [/orders]}}]
  plugins:
  - name: openid-connect
    config:
      issuer: {issuer}
      auth_methods: [introspection]
      introspection_endpoint: {issuer}/introspect?key=s3cret
      client_id: [door]
      client_secret: [s3cret]
  - name: opentelemetry
    config: {{traces_endpoint: \"{}\", sampling_rate: 1, queue: {{max_batch_size: 1}}}}
",
        receiver.url("/v1/traces"),
        issuer = issuer.url(),
    );
    let door = Setup::new().services(&services).start().await;
    let headers = [("authorization", "Bearer 0paque-t0ken")];
    let status = get(&door, "/orders/1", &headers).await;
    assert!(status >= 400, "{status}");
    let body = first_body(&receiver).await;
    let has = |part: &str| contains(&body, part.as_bytes());
    let asked = format!("{}/introspect", issuer.url());
    for text in [
        "kong.access.plugin.openid-connect",
        "kong.internal.request",
        "POST",
        &asked,
    ] {
        assert!(has(text), "{text}");
    }
    assert!(!has("s3cret") && !has("0paque-t0ken") && !has("kong.balancer"));
}

#[tokio::test]
async fn the_provider_has_a_span_and_so_has_each_operation_of_the_store() {
    let receiver = receiver().await;
    let plugins = format!(
        "
plugins:
- name: opentelemetry
  config: {{traces_endpoint: \"{}\", sampling_rate: 1, queue: {{max_batch_size: 1}}}}
",
        receiver.url("/v1/traces"),
    );
    let door = Setup::new().services(&plugins).start().await;
    door.user_token("alice", "read").await;
    let body = first_body(&receiver).await;
    let has = |part: &str| contains(&body, part.as_bytes());
    for text in [
        "kong.internal.upstream",
        "kong.database.query",
        "db.system",
        "write",
        "db.collection.name",
        "tokens",
    ] {
        assert!(has(text), "{text}");
    }
    // No statement, no value.
    for text in ["INSERT", "SELECT", "alice", "orders-secret", "batch"] {
        assert!(!has(text), "{text}");
    }
}
