//! Plugins that observe requests: receivers on loopback see what the real program
//! tells them of requests that it proxied, refused, failed or found no route for.

use std::io::{BufRead as _, BufReader as Reader};
use std::sync::{Arc, mpsc};

use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use crate::support::tls::{Authority, Pair};
use crate::support::{Door, Reply, Setup, Upstream, eventually, http};

/// A receiver of `http-log`.
pub(crate) async fn receiver() -> Upstream {
    Upstream::start(|_| Reply::Json(200, json!({}))).await
}

/// What a receiver got: each record of a body that may be a list.
pub(crate) fn records(receiver: &Upstream) -> Vec<Value> {
    let bodies = receiver.seen().into_iter().map(|seen| {
        let body = serde_json::from_slice(&seen.body);
        body.unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(&seen.body)))
    });
    bodies
        .flat_map(|body: Value| match body {
            Value::Array(list) => list,
            one => vec![one],
        })
        .collect()
}

/// The record of the request for this path, once it is there.
async fn record(receiver: &Upstream, uri: &str) -> Value {
    let of = || async {
        let mut all = records(receiver).into_iter();
        all.find(|record| record["request"]["uri"] == uri)
    };
    eventually(&format!("the record of {uri}"), of).await
}

pub(crate) async fn get(door: &Door, path: &str, headers: &[(&str, &str)]) -> u16 {
    door.get_with(path, headers).await.status
}

#[tokio::test]
async fn http_log_tells_of_requests_that_were_proxied_refused_or_failed() {
    let (upstream, receiver) = (Upstream::echo().await, receiver().await);
    let services = format!(
        "
- name: orders
  url: {}
  routes:
  - name: orders
    paths: [/orders]
    plugins:
    - {{name: correlation-id, config: {{generator: uuid}}}}
    - {{name: key-auth, config: {{key_names: [apikey, order_key]}}}}
- name: away
  url: http://127.0.0.1:1
  retries: 1
  routes:
  - {{name: away, paths: [/away]}}
consumers:
- username: anna
  keyauth_credentials: [{{key: s3cret-of-anna}}]
plugins:
- name: http-log
  config:
    http_endpoint: http://log:s3cret-of-log@{}/records
    headers: {{X-From: door}}
",
        upstream.url(""),
        receiver.address(),
    );
    let door = Setup::new().services(&services).start().await;
    proxied(&door, &receiver).await;
    refused_and_failed(&door, &receiver).await;
    let seen = receiver.last();
    assert_eq!(
        (seen.method.as_str(), seen.target.as_str()),
        ("POST", "/records")
    );
    assert_eq!(seen.header("content-type"), Some("application/json"));
    assert_eq!(seen.header("x-from"), Some("door"));
    let basic = seen.header("authorization").expect("credentials");
    assert!(basic.starts_with("Basic "), "{basic}");
    assert!(!door.log_text().contains("s3cret"), "a secret in the log");
}

async fn proxied(door: &Door, receiver: &Upstream) {
    let key = [
        ("order_key", "s3cret-of-anna"),
        ("x-b", "1"),
        ("cookie", "s=s3cret"),
    ];
    assert_eq!(get(door, "/orders/7?a=1&a=2&b", &key).await, 200);
    let record = record(receiver, "/orders/7?a=1&a=2&b").await;
    let text = record.to_string();
    assert!(!text.contains("s3cret"), "{text}");
    let request = &record["request"];
    assert_eq!(request["method"], "GET");
    assert_eq!(request["headers"]["x-b"], "1");
    assert_eq!(request["headers"]["order_key"], "REDACTED");
    assert_eq!(request["querystring"], json!({"a": ["1", "2"], "b": true}));
    assert_eq!(request["id"].as_str().map(str::len), Some(32));
    let url = format!("http://{}/orders/7?a=1&a=2&b", door.proxy());
    assert_eq!(request["url"], url);
    assert_eq!(record["upstream_uri"], "/7?a=1&a=2&b");
    assert_eq!(record["upstream_status"], "200");
    assert_eq!(record["response"]["status"], 200);
    assert!(record["response"]["size"].as_u64() > Some(100));
    assert!(record["latencies"]["proxy"].as_i64() >= Some(0));
    assert_eq!(record["tries"].as_array().map(Vec::len), Some(1));
    assert_eq!(record["tries"][0]["ip"], "127.0.0.1");
    assert_eq!(record["service"]["name"], "orders");
    assert_eq!(record["route"]["name"], "orders");
    assert_eq!(
        record["route"]["service"],
        json!({"id": record["service"]["id"]})
    );
    assert_eq!(record["consumer"]["username"], "anna");
    let entity = &record["authenticated_entity"];
    assert_eq!(entity["consumer_id"], record["consumer"]["id"]);
    assert_eq!(record["client_ip"], "127.0.0.1");
    assert_eq!(record["source"], "upstream");
    assert_eq!(record["workspace_name"], "default");
    assert_eq!(record["correlation_id"].as_str().map(str::len), Some(36));
}

async fn refused_and_failed(door: &Door, receiver: &Upstream) {
    assert_eq!(get(door, "/orders/refused", &[]).await, 401);
    let refused = record(receiver, "/orders/refused").await;
    assert_eq!(refused["response"]["status"], 401);
    assert_eq!(
        (&refused["source"], &refused["upstream_uri"]),
        (&json!("kong"), &json!(""))
    );
    assert_eq!(refused["latencies"]["proxy"], -1);
    assert!(refused.get("tries").is_none() && refused.get("consumer").is_none());
    assert_eq!(get(door, "/away", &[]).await, 502);
    let failed = record(receiver, "/away").await;
    assert_eq!(failed["upstream_status"], "502, 502");
    assert_eq!(failed["tries"][1]["state"], "failed");
    assert_eq!(failed["source"], "kong");
    // What no route takes is told to plugins of everything.
    assert_eq!(get(door, "/nowhere", &[]).await, 404);
    let unmatched = record(receiver, "/nowhere").await;
    assert_eq!(unmatched["response"]["status"], 404);
    assert!(unmatched.get("route").is_none() && unmatched.get("service").is_none());
}

#[tokio::test]
async fn records_wait_for_a_receiver_and_none_is_lost_at_the_end() {
    let receiver = Upstream::start(|seen| match seen.target.as_str() {
        "/fails" => Reply::Json(500, json!({})),
        _ => Reply::Json(200, json!({})),
    })
    .await;
    let services = format!(
        "
- name: echo
  protocol: internal
  host: echo
  routes:
  - name: batches
    paths: [/batches]
    plugins:
    - name: http-log
      config:
        http_endpoint: {0}
        queue: {{max_batch_size: 100, max_coalescing_delay: 3600}}
  - name: fails
    paths: [/fails]
    plugins:
    - name: http-log
      config: {{http_endpoint: {1}, queue: {{max_retry_time: 0}}}}
",
        receiver.url("/batches"),
        receiver.url("/fails"),
    );
    let mut door = Setup::new().services(&services).start().await;
    assert_eq!(get(&door, "/fails", &[]).await, 200);
    let lost = "doorward_deliveries_total{plugin=\"http-log\",outcome=\"failed\"} 1";
    eventually("the loss is counted", || async {
        let metrics = door.admin_get("/metrics").await.body;
        metrics.contains(lost).then_some(())
    })
    .await;
    for _ in 0..3 {
        assert_eq!(get(&door, "/batches", &[]).await, 200);
    }
    assert!(receiver.seen().iter().all(|seen| seen.target != "/batches"));
    door.signal("TERM");
    assert!(door.wait_exit().await.success());
    let batches = receiver
        .seen()
        .into_iter()
        .filter(|seen| seen.target == "/batches");
    let told: usize = batches
        .map(|seen| serde_json::from_slice::<Vec<Value>>(&seen.body).map_or(0, |list| list.len()))
        .sum();
    assert_eq!(told, 3);
}

/// The next line, as JSON.
async fn line(lines: &mut Lines<BufReader<TcpStream>>) -> Value {
    let line = lines.next_line().await.expect("a line").expect("a line");
    serde_json::from_str(&line).expect("JSON")
}

#[tokio::test]
async fn files_connections_and_datagrams_get_records() {
    let tcp = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let udp = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let services = format!(
        "
- name: echo
  protocol: internal
  host: echo
  routes:
  - {{name: echo, paths: [/echo]}}
plugins:
- {{name: file-log, config: {{path: \"@DIR@/requests.log\"}}}}
- {{name: tcp-log, config: {{host: 127.0.0.1, port: {}}}}}
- name: udp-log
  config:
    host: 127.0.0.1
    port: {}
    custom_fields_by_lua: {{request.headers: return nil}}
",
        tcp.local_addr().expect("an address").port(),
        udp.local_addr().expect("an address").port(),
    );
    let door = Setup::new().services(&services).start().await;
    assert_eq!(get(&door, "/echo/1", &[]).await, 200);
    let (connection, _) = tcp.accept().await.expect("a connection");
    let mut lines = BufReader::new(connection).lines();
    assert_eq!(line(&mut lines).await["request"]["uri"], "/echo/1");
    assert_eq!(get(&door, "/echo/2", &[]).await, 200);
    assert_eq!(line(&mut lines).await["request"]["uri"], "/echo/2");
    let mut buffer = vec![0; 65_536];
    let (length, _) = udp.recv_from(&mut buffer).await.expect("a datagram");
    let record: Value = serde_json::from_slice(&buffer[..length]).expect("JSON");
    assert_eq!(record["request"]["method"], "GET");
    assert!(record["request"].get("headers").is_none());
    let path = door.path("requests.log");
    let text = eventually("two lines", || async {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        (text.lines().count() == 2).then_some(text)
    })
    .await;
    let last: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
    assert_eq!(
        (&last["request"]["uri"], &last["source"]),
        (&json!("/echo/2"), &json!("upstream"))
    );
}

#[tokio::test]
async fn no_secret_of_the_identity_provider_is_in_a_record() {
    let receiver = receiver().await;
    let plugin = format!(
        "
plugins:
- {{name: http-log, config: {{http_endpoint: \"{}\"}}}}
",
        receiver.url("/records")
    );
    let door = Setup::new().services(&plugin).start().await;
    let path = "/json/sessions/s3cret-session?_action=logout&code=s3cret";
    let answer = http::send(http::client().post(door.proxy_url(path))).await;
    assert_ne!(answer.status, 404);
    let record = record(&receiver, "/json/sessions/*").await;
    assert_eq!(record["upstream_uri"], "");
    assert!(!record.to_string().contains("s3cret"), "{record}");
}

#[tokio::test]
async fn a_plugin_that_can_not_be_built_leaves_the_old_one_in_force() {
    let receiver = receiver().await;
    let services = format!(
        "
- name: echo
  protocol: internal
  host: echo
  routes:
  - {{name: echo, paths: [/echo]}}
plugins:
- {{name: http-log, config: {{http_endpoint: \"{}\"}}}}
",
        receiver.url("/records")
    );
    let door = Setup::new().services(&services).start().await;
    door.edit(
        "routes.yaml",
        "/records\"}",
        "/records\", custom_fields_by_lua: {a: return 1}}",
    );
    door.signal("HUP");
    let words = "'a' is a program";
    door.wait_log(words, |log| log.contains(words)).await;
    assert_eq!(get(&door, "/echo", &[]).await, 200);
    assert_eq!(record(&receiver, "/echo").await["response"]["status"], 200);
}

#[tokio::test]
async fn prometheus_counts_under_the_names_of_the_imitated_gateway() {
    let upstream = Upstream::echo().await;
    let services = format!(
        "
- name: orders
  url: {}
  routes:
  - name: orders
    paths: [/orders]
    plugins:
    - {{name: key-auth}}
    - name: prometheus
      config:
        per_consumer: true
        status_code_metrics: true
        latency_metrics: true
        bandwidth_metrics: true
        upstream_health_metrics: true
  - {{name: others, paths: [/others]}}
- name: balanced
  host: pool
  routes:
  - {{name: balanced, paths: [/balanced]}}
upstreams:
- name: pool
  targets: [{{target: \"127.0.0.1:9\"}}]
consumers:
- username: anna
  keyauth_credentials: [{{key: key-of-anna}}]
",
        upstream.url("")
    );
    let door = Setup::new().services(&services).start().await;
    assert_eq!(
        get(&door, "/orders", &[("apikey", "key-of-anna")]).await,
        200
    );
    assert_eq!(get(&door, "/orders", &[]).await, 401);
    assert_eq!(get(&door, "/others", &[]).await, 200);
    let page = door.admin_get("/metrics").await.expect(200).body;
    let labels = "service=\"orders\",route=\"orders\"";
    for line in [
        format!(
            "kong_http_requests_total{{{labels},code=\"200\",source=\"service\",\
             workspace=\"default\",consumer=\"anna\"}} 1"
        ),
        format!(
            "kong_http_requests_total{{{labels},code=\"401\",source=\"kong\",\
             workspace=\"default\",consumer=\"\"}} 1"
        ),
        format!("kong_request_latency_ms_count{{{labels},workspace=\"default\"}} 2"),
        format!("kong_upstream_latency_ms_count{{{labels},workspace=\"default\"}} 1"),
        format!("kong_kong_latency_ms_bucket{{{labels},workspace=\"default\",le=\"6000\"}} 2"),
        "# TYPE kong_request_latency_ms histogram".to_owned(),
        "kong_upstream_target_health{upstream=\"pool\",target=\"127.0.0.1:9\",\
         address=\"127.0.0.1:9\",state=\"healthchecks_off\",subsystem=\"http\"} 1"
            .to_owned(),
        "kong_datastore_reachable 1".to_owned(),
        "kong_nginx_metric_errors_total 0".to_owned(),
    ] {
        assert!(page.contains(&line), "{line} in\n{page}");
    }
    let bandwidth = format!("kong_bandwidth_bytes{{{labels},direction=\"egress\"");
    assert!(page.contains(&bandwidth), "{page}");
    assert!(page.contains("kong_node_info{node_id=\""), "{page}");
    assert!(
        !page.contains("route=\"others\",code"),
        "a route without the plugin"
    );
}

/// The lines of the next `count` datagrams.
async fn datagrams(socket: &UdpSocket, count: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for _ in 0..count {
        let mut buffer = vec![0; 65_536];
        let (length, _) = socket.recv_from(&mut buffer).await.expect("a datagram");
        lines.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
    }
    lines
}

#[tokio::test]
async fn statsd_and_datadog_tell_of_services_and_consumers() {
    let upstream = Upstream::echo().await;
    let statsd = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let datadog = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let services = format!(
        "
- name: orders.v1
  url: {}
  routes:
  - {{name: orders, paths: [/orders], plugins: [{{name: key-auth}}]}}
consumers:
- username: anna
  custom_id: \"7\"
  keyauth_credentials: [{{key: key-of-anna}}]
plugins:
- name: statsd
  config:
    host: 127.0.0.1
    port: {}
    metrics:
    - {{name: request_count, stat_type: counter, sample_rate: 1}}
    - {{name: status_count_per_user, stat_type: counter, sample_rate: 1,
       consumer_identifier: username}}
    - {{name: unique_users, stat_type: set}}
- name: datadog
  config:
    host: 127.0.0.1
    port: {}
    metrics:
    - {{name: request_count, stat_type: counter, sample_rate: 1, tags: [\"app:kong\", prod]}}
",
        upstream.url(""),
        statsd.local_addr().expect("an address").port(),
        datadog.local_addr().expect("an address").port(),
    );
    let door = Setup::new().services(&services).start().await;
    assert_eq!(
        get(&door, "/orders", &[("apikey", "key-of-anna")]).await,
        200
    );
    assert_eq!(
        datagrams(&statsd, 3).await,
        [
            "kong.service.orders_v1.request.count:1|c",
            "kong.service.orders_v1.user.anna.status.200:1|c",
            "kong.service.orders_v1.user.uniques:7|s",
        ]
    );
    let line = "kong.request.count:1|c|#name:orders_v1,status:200,consumer:7,app:kong,prod";
    assert_eq!(datagrams(&datadog, 1).await, [line]);
    // What no route takes has no service.
    assert_eq!(get(&door, "/nowhere", &[]).await, 404);
    let lines = datagrams(&statsd, 1).await;
    assert_eq!(lines, ["kong.global.unmatched.request.count:1|c"]);
}

/// A TLS server that passes the lines on that it receives; its port.
fn tls_receiver(pair: &Pair) -> (u16, mpsc::Receiver<String>) {
    // Another test of this process may have been first.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a key");
    let config = ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![pair.der.clone()], key);
    let config = Arc::new(config.expect("a certificate"));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let connection = ServerConnection::new(config.clone()).expect("a connection");
            let lines = Reader::new(StreamOwned::new(connection, socket)).lines();
            for line in lines.map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        }
    });
    (port, receiver)
}

#[tokio::test]
async fn tcp_log_verifies_the_certificate_of_its_receiver() {
    let authority = Authority::new();
    let (port, lines) = tls_receiver(&authority.client("logs.test"));
    let services = format!(
        "
- name: echo
  protocol: internal
  host: echo
  routes:
  - {{name: echo, paths: [/echo]}}
plugins:
- name: tcp-log
  config: {{host: 127.0.0.1, port: {port}, tls: true, tls_sni: logs.test}}
"
    );
    let setup = Setup::new().services(&services);
    let door = setup.clone().start().await;
    assert_eq!(get(&door, "/echo/stranger", &[]).await, 200);
    let lost = "doorward_deliveries_total{plugin=\"tcp-log\",outcome=\"failed\"} 1";
    eventually("an unknown authority is refused", || async {
        let metrics = door.admin_get("/metrics").await.body;
        metrics.contains(lost).then_some(())
    })
    .await;
    let mut door = setup.env("SSL_CERT_FILE", "ca.pem").lay_out();
    door.write("ca.pem", &authority.pem());
    door.start().await;
    assert_eq!(get(&door, "/echo/known", &[]).await, 200);
    let line = tokio::task::spawn_blocking(move || lines.recv()).await;
    let line = line.expect("a task").expect("a line");
    assert!(line.contains("/echo/known"), "{line}");
}
