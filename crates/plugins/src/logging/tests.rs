#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use doorward_core::model::schema::Source;
use http::{HeaderMap, HeaderValue, Method, Version};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, UdpSocket, UnixDatagram};

use super::custom_fields::RecordConfig;
use super::*;
use crate::delivery::Deliveries;
use crate::testing::{parts, plugin, plugin_with};
use doorward_plugin_api::record::{
    Latencies, RequestFacts, ResponseFacts, TlsFacts, Try, UpstreamFacts,
};
use doorward_plugin_api::{Kind, Parts};

const TARGET: &str = "/a/b?x=1&x=2&apikey=s3cret&flag&my_key=s3cret";

/// Calls `with` with the record of a request with these headers and this status.
pub(crate) fn with_record<T>(
    fields: &[(&'static str, &'static str)],
    status: u16,
    with: impl FnOnce(&RequestRecord<'_>) -> T,
) -> T {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(*name, HeaderValue::from_static(value));
    }
    let tries = [Try {
        address: "127.0.0.1:9000".parse().unwrap(),
        started_ms: 5,
        choice: Duration::from_micros(1500),
        failure: Some(502),
    }];
    let secret_fields = ["my_key".into()];
    let exchange = Exchange {
        correlation_id: Some(HeaderValue::from_static("c-1")),
        ..Exchange::default()
    };
    with(&RequestRecord {
        request: RequestFacts {
            id: Some("0123"),
            method: &Method::GET,
            target: TARGET,
            authority: "a.test:8443",
            port: 8443,
            secure: true,
            version: Version::HTTP_11,
            headers: &headers,
            line_and_body: 120,
            tls: Some(TlsFacts {
                version: "TLSv1.3",
                cipher: "TLS_AES_128_GCM_SHA256",
                client_verified: false,
            }),
        },
        upstream: UpstreamFacts {
            uri: "/up?my_key=s3cret",
            status: Some(status),
            tries: Some(&tries),
            answered: true,
        },
        response: ResponseFacts {
            status,
            headers: Some(&headers),
            body: 99,
        },
        latencies: Latencies {
            request: Duration::from_millis(12),
            gateway: Duration::from_millis(2),
            upstream: Some(Duration::from_millis(9)),
            receive: Duration::from_millis(1),
        },
        waits: &[],
        exchange: &exchange,
        route: None,
        service: None,
        started_ms: 1000,
        secret_fields: &secret_fields,
    })
}

fn shown(fields: &[(&'static str, &'static str)]) -> Value {
    with_record(fields, 200, |record| Value::Object(record::object(record)))
}

#[test]
fn a_record_has_the_fields_of_the_imitated_gateway() {
    let record = shown(&[("x-a", "1"), ("x-b", "1"), ("x-b", "2")]);
    let request = &record["request"];
    assert_eq!(request["id"], "0123");
    assert_eq!(request["method"], "GET");
    // The line and the body of the tests, and three fields of eight bytes.
    assert_eq!(request["size"], 144);
    assert_eq!(request["headers"]["x-a"], "1");
    assert_eq!(request["headers"]["x-b"], json!(["1", "2"]));
    assert_eq!(request["headers"]["host"], "a.test");
    assert_eq!(request["querystring"]["x"], json!(["1", "2"]));
    assert_eq!(request["querystring"]["flag"], true);
    assert_eq!(
        request["tls"],
        json!({"version": "TLSv1.3", "cipher": "TLS_AES_128_GCM_SHA256", "client_verify": "NONE"})
    );
    let url = request["url"].as_str().unwrap();
    assert!(url.starts_with("https://a.test:8443/a/b?x=1"), "{url}");
    assert_eq!(record["upstream_status"], "502, 200");
    assert_eq!(record["response"]["status"], 200);
    assert_eq!(
        record["latencies"],
        json!({"request": 12, "kong": 2, "proxy": 9, "receive": 1})
    );
    let attempt = &record["tries"][0];
    assert_eq!(attempt["ip"], "127.0.0.1");
    assert_eq!(attempt["balancer_latency_ns"], 1_500_000);
    assert_eq!(
        (&attempt["state"], &attempt["code"]),
        (&json!("failed"), &json!(502))
    );
    assert_eq!(record["source"], "upstream");
    assert_eq!(record["started_at"], 1000);
    assert_eq!(record["correlation_id"], "c-1");
    assert_eq!(record["workspace_name"], "default");
    for absent in ["route", "service", "consumer", "authenticated_entity"] {
        assert!(record.get(absent).is_none(), "{absent}");
    }
}

#[test]
fn no_secret_is_in_a_record() {
    let record = shown(&[
        ("authorization", "Bearer s3cret"),
        ("proxy-authorization", "Basic s3cret"),
        ("cookie", "session=s3cret"),
        ("set-cookie", "session=s3cret"),
        ("apikey", "s3cret"),
        ("my_key", "s3cret"),
    ]);
    assert_eq!(record["request"]["headers"]["authorization"], "REDACTED");
    assert_eq!(record["request"]["querystring"]["apikey"], "REDACTED");
    assert_eq!(record["upstream_uri"], "/up?my_key=REDACTED");
    assert!(!record.to_string().contains("s3cret"), "{record}");
}

#[test]
fn addresses_in_headers_tell_no_secret_either() {
    let record = shown(&[
        (
            "location",
            "https://a.test/cb?code=s3cret&state=1#access_token=s3cret&x=y",
        ),
        ("referer", "/plain?a=b"),
    ]);
    let headers = &record["response"]["headers"];
    let expected = "https://a.test/cb?code=REDACTED&state=1#access_token=REDACTED&x=y";
    assert_eq!(headers["location"], expected);
    assert_eq!(headers["referer"], "/plain?a=b");
}

#[test]
fn a_program_is_refused_by_name_unless_it_leaves_the_field_out() {
    let config = |program: &str| json!({"path": "/tmp/doorward-unused.log", "custom_fields_by_lua": {"request.headers": program}});
    let message = plugin(&file_log::KIND, &config("return 1")).err().unwrap();
    assert!(
        message.contains("'request.headers' is a program"),
        "{message}"
    );
    assert!(plugin(&file_log::KIND, &config("return nil")).is_ok());
    let config = config("return nil");
    let fields = RecordConfig::read(config.as_object().unwrap()).unwrap();
    let fields = CustomFields::new(&fields).unwrap();
    let mut record = with_record(&[], 200, record::object);
    fields.strip(&mut record);
    assert!(record["request"].get("headers").is_none());
    assert_eq!(record["request"]["method"], "GET");
}

#[test]
fn wrong_configurations_are_refused_with_the_words_of_the_imitated_gateway() {
    let refused = |kind: &Kind, config: Value| plugin(kind, &config).err().unwrap();
    for (config, words) in [
        (json!({}), "http_endpoint: required field missing"),
        (
            json!({"http_endpoint": "a.test/log"}),
            "missing host in url",
        ),
        (
            json!({"http_endpoint": "http://a.test", "headers": {"host": "b"}}),
            "cannot contain 'Host' header",
        ),
        (
            json!({"http_endpoint": "http://u:p@a.test", "headers": {"Authorization": "b"}}),
            "specifying both an 'Authorization' header and user info in 'http_endpoint' is not \
             allowed",
        ),
        (
            json!({"http_endpoint": "http://a.test", "method": "GET"}),
            "expected one of: POST, PUT",
        ),
    ] {
        let message = refused(&http_log::KIND, config);
        assert!(message.contains(words), "{message}");
    }
    let message = refused(&file_log::KIND, json!({"path": "/tmp/*"}));
    assert!(message.contains("not a valid filename"), "{message}");
    let message = refused(&syslog::KIND, json!({"log_level": "fatal"}));
    assert!(
        message.contains("expected one of: debug, info, notice"),
        "{message}"
    );
    assert!(refused(&tcp_log::KIND, json!({"host": "a"})).contains("port: required field missing"));
}

/// Tells `filter` of a request, and waits until its entries are delivered.
async fn log(filter: &dyn Filter, parts: &Parts, status: u16) {
    with_record(&[], status, |record| filter.on_end(record));
    let deliveries = parts.slots.get_or_default::<Deliveries>();
    assert!(deliveries.flush(Duration::from_secs(60)).await);
}

#[tokio::test]
async fn a_file_has_a_line_for_each_request_and_may_be_rotated() {
    let directory = std::env::temp_dir().join(format!("doorward-file-log-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (path, old) = (directory.join("a.log"), directory.join("a.1"));
    let parts = parts();
    for reopen in [false, true] {
        let config = json!({"path": path.to_str().unwrap(), "reopen": reopen});
        let filter = plugin_with(&file_log::KIND, &config, &parts).unwrap();
        log(&*filter, &parts, 200).await;
        log(&*filter, &parts, 404).await;
        std::fs::rename(&path, &old).unwrap();
        log(&*filter, &parts, 500).await;
        let statuses = |path: &std::path::Path| -> Vec<Value> {
            let text = std::fs::read_to_string(path).unwrap();
            let lines = text
                .lines()
                .map(|line| serde_json::from_str::<Value>(line).unwrap());
            lines
                .map(|record| record["response"]["status"].clone())
                .collect()
        };
        assert_eq!(statuses(&old), [200, 404]);
        assert_eq!(statuses(&path), [500]);
        std::fs::remove_file(&path).unwrap();
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[tokio::test]
async fn a_missing_directory_is_a_warning_and_no_error() {
    let filter = plugin(&file_log::KIND, &json!({"path": "/no/such/file"})).unwrap();
    assert!(filter.warnings()[0].contains("can't be appended to"));
}

#[tokio::test]
async fn tcp_lines_go_over_one_connection_and_over_another_when_that_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let parts = parts();
    let config = json!({"host": "127.0.0.1", "port": port});
    let filter = plugin_with(&tcp_log::KIND, &config, &parts).unwrap();
    log(&*filter, &parts, 200).await;
    log(&*filter, &parts, 201).await;
    let (mut first, _) = listener.accept().await.unwrap();
    let mut lines = String::new();
    while lines.matches('\n').count() < 2 {
        let mut buffer = [0; 4096];
        let length = first.read(&mut buffer).await.unwrap();
        assert!(length > 0, "{lines}");
        lines.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
    }
    drop(first);
    log(&*filter, &parts, 202).await;
    let (mut second, _) = listener.accept().await.unwrap();
    drop(filter);
    let mut buffer = vec![0; 65_536];
    let length = second.read(&mut buffer).await.unwrap();
    let text = std::str::from_utf8(&buffer[..length]).unwrap();
    assert!(text.contains("\"status\":202"), "{text}");
}

#[tokio::test]
async fn a_datagram_is_one_record() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let port = socket.local_addr().unwrap().port();
    let parts = parts();
    let config = json!({"host": "127.0.0.1", "port": port});
    let filter = plugin_with(&udp_log::KIND, &config, &parts).unwrap();
    log(&*filter, &parts, 200).await;
    let mut buffer = vec![0; 65_536];
    let (length, _) = socket.recv_from(&mut buffer).await.unwrap();
    let record: Value = serde_json::from_slice(&buffer[..length]).unwrap();
    assert_eq!(record["response"]["status"], 200);
}

#[tokio::test]
async fn loggly_gets_messages_of_syslog_with_its_key_and_tags() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let port = socket.local_addr().unwrap().port();
    let parts = parts();
    let config = json!({"host": "127.0.0.1", "port": port, "key": "k-1", "tags": ["a\"]b"]});
    let filter = plugin_with(&loggly::KIND, &config, &parts).unwrap();
    log(&*filter, &parts, 200).await;
    let mut buffer = vec![0; 65_536];
    let (length, _) = socket.recv_from(&mut buffer).await.unwrap();
    let text = std::str::from_utf8(&buffer[..length]).unwrap();
    assert!(
        text.starts_with("<14>1 1970-01-01T00:00:00.000Z "),
        "{text}"
    );
    let data = " kong - - [k-1@41058 tag=\"a\\\"\\]b\"] {\"client_ip\"";
    assert!(text.contains(data), "{text}");
    let wrong = plugin(&loggly::KIND, &json!({"key": "a b"})).err().unwrap();
    assert!(
        wrong.contains("expected letters, digits and dashes"),
        "{wrong}"
    );
}

#[tokio::test]
async fn syslog_gets_what_is_grave_enough_with_its_priority() {
    let path = std::env::temp_dir().join(format!("doorward-syslog-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let socket = UnixDatagram::bind(&path).unwrap();
    let parts = parts();
    let config = json!({
        "log_level": "warning", "client_errors_severity": "warning",
        "server_errors_severity": "crit", "facility": "local0",
    });
    let schema = (syslog::KIND.schema)();
    let config = schema
        .read(config.as_object().unwrap().clone(), Source::Json)
        .unwrap();
    let config = schema.complete(config).unwrap();
    let filter = syslog::filter(&config, &parts, &path).unwrap();
    for status in [200, 404, 503] {
        log(&*filter, &parts, status).await;
    }
    let mut received = Vec::new();
    for _ in 0..2 {
        let mut buffer = vec![0; 65_536];
        let length = socket.recv(&mut buffer).await.unwrap();
        received.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
    }
    let process = std::process::id();
    assert!(
        received[0].starts_with(&format!("<132>kong[{process}]: {{")),
        "{received:?}"
    );
    assert!(
        received[1].starts_with(&format!("<130>kong[{process}]: {{")),
        "{received:?}"
    );
    std::fs::remove_file(&path).unwrap();
}
