//! The `grpc-web` plugin between clients of HTTP/1.1 and HTTP/2 and a server of gRPC.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use reqwest::Method;

use crate::grpc::{client, origin};
use crate::support::http::client as web;
use crate::support::http::send;
use crate::support::{Door, Setup, raw};

/// A server that answers as the last part of the path says.
async fn answer(
    request: Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
) -> Option<()> {
    let text = |name: &str| {
        request
            .headers()
            .get(name)
            .map_or("", |value| value.to_str().unwrap_or(""))
    };
    let asked = format!(
        "{} {} {}",
        request.uri().path(),
        text("content-type"),
        text("te")
    );
    let head = Response::builder()
        .header("content-type", "application/grpc")
        .header("x-asked", asked);
    let path = request.uri().path().to_owned();
    if path.ends_with("Refuse") {
        let head = head
            .header("grpc-status", "7")
            .header("grpc-message", "no%0d%0agrpc-status:0");
        respond.send_response(head.body(()).ok()?, true).ok()?;
        return Some(());
    }
    let mut send = respond.send_response(head.body(()).ok()?, false).ok()?;
    let mut body = request.into_body();
    if path.ends_with("Twice") {
        // Both messages, cut where no message ends.
        let mut whole = Vec::new();
        while let Some(Ok(piece)) = body.data().await {
            let _ = body.flow_control().release_capacity(piece.len());
            whole.extend_from_slice(&piece);
        }
        let both = [whole.clone(), whole].concat();
        for piece in both.chunks(4) {
            let piece = Bytes::copy_from_slice(piece);
            send.send_data(piece, false).ok()?;
        }
    }
    while let Some(Ok(piece)) = body.data().await {
        let _ = body.flow_control().release_capacity(piece.len());
        send.send_data(piece, false).ok()?;
    }
    if path.ends_with("Break") {
        // A message that is none, behind one that is.
        let broken = Bytes::from_static(&[0, 0, 0, 0, 1, 0xff]);
        send.send_data(broken, false).ok()?;
    }
    if path.ends_with("Mute") {
        return send.send_data(Bytes::new(), true).ok();
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    trailers.insert("grpc-message", HeaderValue::from_static("done"));
    send.send_trailers(trailers).ok()
}

async fn door() -> Door {
    let address = origin(answer).await;
    let service = format!(
        r#"
- name: rpc
  protocol: grpc
  host: {}
  port: {}
  retries: 0
  routes:
  - name: whole
    paths: [/pkg.Echo]
    protocols: [http, https]
    plugins: [{{name: grpc-web}}]
  - name: stripped
    paths: [/web]
    protocols: [http, https]
    plugins: [{{name: grpc-web, config: {{pass_stripped_path: true, allow_origin_header: "https://a.test"}}}}]
  - name: described
    paths: [/shop]
    protocols: [http, https]
    plugins: [{{name: grpc-web, config: {{proto: "@DIR@/shop.proto", pass_stripped_path: true}}}}]
  - name: limited
    paths: [/limited]
    protocols: [http, https]
    plugins: [{{name: request-size-limiting, config: {{allowed_payload_size: 1, size_unit: kilobytes}}}}]
"#,
        address.ip(),
        address.port()
    );
    let mut door = Setup::new().services(&service).lay_out();
    door.write("shop.proto", SHOP);
    door.start().await;
    door
}

const SHOP: &str = r#"
syntax = "proto3";
package pkg;
service Echo {
  rpc Say(Word) returns (Word);
  rpc Twice(Word) returns (stream Word);
  rpc Refuse(Word) returns (Word);
  rpc Break(Word) returns (stream Word);
}
message Word { string the_text = 1; int64 number = 2; }
"#;

const WEB: &str = "application/grpc-web+proto";
const TEXT: &str = "application/grpc-web-text";

/// An answer whose body may be no text.
struct Called {
    status: u16,
    headers: HeaderMap,
    bytes: Bytes,
}

impl Called {
    fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().expect("printable"))
    }
}

async fn call(door: &Door, path: &str, kind: &str, body: impl Into<reqwest::Body>) -> Called {
    let request = web().post(door.proxy_url(path));
    let request = request.header("content-type", kind).body(body);
    let response = request.send().await.expect("an answer");
    Called {
        status: response.status().as_u16(),
        headers: response.headers().clone(),
        bytes: response.bytes().await.expect("whole"),
    }
}

fn frame(flag: u8, text: &[u8]) -> Vec<u8> {
    let length = u32::try_from(text.len()).expect("short").to_be_bytes();
    [&[flag][..], &length, text].concat()
}

const DONE: &[u8] = b"grpc-status:0\r\ngrpc-message:done\r\n";

#[tokio::test]
async fn a_browser_calls_a_server_of_grpc_over_http_1() {
    let door = door().await;
    let message = frame(0, b"hello");
    let whole = [message.clone(), frame(0x80, DONE)].concat();
    let answer = call(&door, "/pkg.Echo/Say", WEB, message.clone()).await;
    assert_eq!(answer.header("content-type"), WEB);
    assert_eq!(answer.header("access-control-allow-origin"), "*");
    let asked = "/pkg.Echo/Say application/grpc trailers";
    assert_eq!(answer.header("x-asked"), asked);
    assert_eq!(answer.bytes, whole);
    let text = STANDARD.encode(&message);
    let answer = call(&door, "/pkg.Echo/Say", TEXT, text).await;
    assert_eq!(answer.header("content-type"), TEXT);
    assert_eq!(decoded(&answer.bytes), whole);
    let answer = call(&door, "/web/pkg.Echo/Say", WEB, message).await;
    assert_eq!(answer.header("x-asked"), asked);
    assert_eq!(
        answer.header("access-control-allow-origin"),
        "https://a.test"
    );
}

/// Padded texts one after the other.
fn decoded(text: &[u8]) -> Vec<u8> {
    let groups = text.chunks(4);
    groups
        .flat_map(|group| STANDARD.decode(group).expect("Base64"))
        .collect()
}

#[tokio::test]
async fn a_browser_calls_a_server_of_grpc_over_http_2() {
    let door = door().await;
    let mut client = client(&door).await;
    for (path, expected) in [
        ("/pkg.Echo/Say", [frame(0, b"hi"), frame(0x80, DONE)].concat()),
        (
            "/pkg.Echo/Refuse",
            frame(0x80, b"grpc-status:7\r\ngrpc-message:no%0d%0agrpc-status:0\r\nx-asked:/pkg.Echo/Refuse application/grpc trailers\r\n"),
        ),
    ] {
        let request = Request::post(format!("http://{}{path}", door.proxy()))
            .header("content-type", TEXT)
            .body(())
            .expect("a request");
        let (response, mut send) = client.send_request(request, false).expect("sent");
        let text = STANDARD.encode(frame(0, b"hi"));
        // Cut inside a group of digits.
        let (a, b) = text.split_at(3);
        send.send_data(Bytes::from(a.to_owned()), false).expect("sent");
        send.send_data(Bytes::from(b.to_owned()), true).expect("sent");
        let response = response.await.expect("an answer");
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], TEXT);
        let mut body = response.into_body();
        let mut all = String::new();
        while let Some(piece) = body.data().await {
            let piece = piece.expect("whole");
            let _ = body.flow_control().release_capacity(piece.len());
            all.push_str(std::str::from_utf8(&piece).expect("Base64"));
        }
        assert_eq!(decoded(all.as_bytes()), expected);
        let trailers = body.trailers().await.expect("whole");
        assert_eq!(trailers, None, "they are in the body");
    }
}

#[tokio::test]
async fn what_is_no_whole_call_has_no_status_of_success() {
    let door = door().await;
    let answer = call(&door, "/pkg.Echo/Refuse", WEB, frame(0, b"")).await;
    let told = answer.bytes.slice(5..);
    let first = "grpc-status:7\r\ngrpc-message:no%0d%0agrpc-status:0\r\n";
    assert!(told.starts_with(first.as_bytes()), "{told:?}");
    let answer = call(&door, "/pkg.Echo/Mute", WEB, frame(0, b"m")).await;
    let told = "grpc-status:2\r\ngrpc-message:the upstream has told no status\r\n";
    let whole = [frame(0, b"m"), frame(0x80, told.as_bytes())].concat();
    assert_eq!(answer.bytes, whole);
}

#[tokio::test]
async fn broken_bodies_and_other_types_are_refused() {
    let door = door().await;
    for text in ["AAAAAAAAA", "AAAAAA=", "%%%%"] {
        let answer = call(&door, "/pkg.Echo/Say", TEXT, text).await;
        assert_eq!(answer.status, 400, "{text}");
    }
    // Chunked, so that nobody knows the end beforehand.
    let request = format!(
        "POST /pkg.Echo/Say HTTP/1.1\r\nHost: a.test\r\nContent-Type: {TEXT}\r\nTransfer-Encoding: \
         chunked\r\nConnection: close\r\n\r\n5\r\nAAAAA\r\n0\r\n\r\n"
    );
    let answer = raw::exchange(&door.proxy(), request.as_bytes()).await;
    assert_eq!(answer.expect("an answer").status, 400);
    let answer = call(&door, "/pkg.Echo/Say", "application/json", "{}").await;
    let told = "transcoding requests require a .proto file defining the service";
    assert_eq!((answer.status, &answer.bytes[..]), (400, told.as_bytes()));
    assert_eq!(answer.header("access-control-allow-origin"), "*");
    // A length beyond all bounds is the server's to refuse: nothing is reserved for it.
    let huge = [&[0, 0xff, 0xff, 0xff, 0xff][..], b"x"].concat();
    let answer = call(&door, "/pkg.Echo/Say", WEB, huge.clone()).await;
    assert!(answer.bytes.starts_with(&huge));
}

#[tokio::test]
async fn a_preflight_is_answered_by_the_gateway() {
    let door = door().await;
    let request = web().request(Method::OPTIONS, door.proxy_url("/web/pkg.Echo/Say"));
    let answer = send(request).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "OK"));
    assert_eq!(
        answer.header("access-control-allow-origin"),
        "https://a.test"
    );
    assert_eq!(answer.header("access-control-allow-methods"), "POST");
}

#[tokio::test]
async fn a_body_over_a_limit_is_refused_on_its_way_to_a_server_of_http_2() {
    let door = door().await;
    let chunk = "x".repeat(0x800);
    let request = format!(
        "POST /limited HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nConnection: \
         close\r\n\r\n800\r\n{chunk}\r\n0\r\n\r\n"
    );
    let answer = raw::exchange(&door.proxy(), request.as_bytes()).await;
    assert_eq!(answer.expect("an answer").status, 413);
}

#[tokio::test]
async fn a_client_that_knows_json_alone_calls_a_server_of_grpc() {
    let door = door().await;
    let json = r#"{"the_text":"hello","number":7}"#;
    let answer = call(&door, "/shop/pkg.Echo/Say", "application/json", json).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), "application/json");
    let asked = "/pkg.Echo/Say application/grpc trailers";
    assert_eq!(answer.header("x-asked"), asked);
    assert_eq!(answer.bytes, json);
    let long = format!(r#"{{"the_text":"{}","number":7}}"#, "x".repeat(200_000));
    let answer = call(
        &door,
        "/shop/pkg.Echo/Say",
        "application/json",
        long.clone(),
    )
    .await;
    assert_eq!(answer.bytes, long);
    // A stream of messages.
    let answer = call(&door, "/shop/pkg.Echo/Twice", "application/json", json).await;
    assert_eq!(answer.bytes, [json, json].concat());
    let framed = frame(0, json.as_bytes());
    let kind = "application/grpc-web+json";
    let answer = call(&door, "/shop/pkg.Echo/Twice", kind, framed.clone()).await;
    assert_eq!(answer.header("content-type"), kind);
    let whole = [framed.clone(), framed.clone(), frame(0x80, DONE)].concat();
    assert_eq!(answer.bytes, whole);
    let kind = "application/grpc-web-text+json";
    let text = STANDARD.encode(&framed);
    let answer = call(&door, "/shop/pkg.Echo/Twice", kind, text).await;
    assert_eq!(decoded(&answer.bytes), whole);
    // How a call went is in the head, where that is all there is.
    let answer = call(&door, "/shop/pkg.Echo/Refuse", "application/json", "{}").await;
    assert_eq!((answer.status, answer.header("grpc-status")), (200, "7"));
    assert!(answer.bytes.is_empty());
}

/// A call over HTTP/2: the body of the answer, and its trailers.
async fn call_over_http_2(
    client: &mut h2::client::SendRequest<Bytes>,
    url: String,
    kind: &str,
    body: Vec<u8>,
) -> (Vec<u8>, Option<HeaderMap>) {
    let request = Request::post(url).header("content-type", kind);
    let request = request.body(()).expect("a request");
    let (response, mut send) = client.send_request(request, false).expect("sent");
    send.send_data(body.into(), true).expect("sent");
    let mut body = response.await.expect("an answer").into_body();
    let mut all = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.expect("whole");
        let _ = body.flow_control().release_capacity(piece.len());
        all.extend_from_slice(&piece);
    }
    (all, body.trailers().await.expect("whole"))
}

#[tokio::test]
async fn trailers_of_success_do_not_follow_an_answer_that_could_not_be_told() {
    let door = door().await;
    let mut client = client(&door).await;
    let json = br#"{"the_text":"a","number":7}"#;
    let url = |method: &str| format!("http://{}/shop/pkg.Echo/{method}", door.proxy());
    let bare = "application/json";
    let (body, trailers) = call_over_http_2(&mut client, url("Say"), bare, json.to_vec()).await;
    assert_eq!(body, json);
    let trailers = trailers.expect("how the call went");
    assert_eq!(trailers["grpc-status"], "0");
    let (body, trailers) = call_over_http_2(&mut client, url("Break"), bare, json.to_vec()).await;
    let fault = br#"{"code":13,"message":"the answer is no message of the description"}"#;
    assert_eq!(body, [&json[..], fault].concat());
    assert_eq!(trailers, None);
    let kind = "application/grpc-web+json";
    let framed = frame(0, json);
    let (body, trailers) = call_over_http_2(&mut client, url("Break"), kind, framed.clone()).await;
    let fault = b"grpc-status:13\r\ngrpc-message:the answer is no message of the description\r\n";
    assert_eq!(body, [framed, frame(0x80, fault)].concat());
    assert_eq!(trailers, None);
}

#[tokio::test]
async fn what_can_not_be_translated_does_not_reach_the_server() {
    let door = door().await;
    for (path, body, status, told) in [
        (
            "/shop/pkg.Echo/Nope",
            "{}",
            400,
            "Unknown path \"/pkg.Echo/Nope\"",
        ),
        (
            "/shop/pkg.Echo/Say",
            "{\"number\":\"<b>\"}",
            400,
            "the body is no pkg.Word in JSON: line 1, column 15",
        ),
    ] {
        let answer = call(&door, path, "application/json", body).await;
        assert_eq!(
            (answer.status, &answer.bytes[..]),
            (status, told.as_bytes())
        );
    }
    let long = format!("{{\"the_text\":\"{}\"}}", "x".repeat(1 << 20));
    let answer = call(&door, "/shop/pkg.Echo/Say", "application/json", long).await;
    assert_eq!(answer.status, 413);
    // The server's own answer is no message of the description.
    let broken = [0, 0xff, 0xff, 0xff, 0xff];
    let kind = "application/grpc-web+json";
    let answer = call(&door, "/shop/pkg.Echo/Say", kind, broken.to_vec()).await;
    assert_eq!(
        (answer.status, &answer.bytes[..]),
        (400, &b"the body has no whole message"[..])
    );
}

#[tokio::test]
async fn a_description_that_is_wrong_leaves_the_old_one_in_force() {
    let door = door().await;
    door.write(
        "broken.proto",
        "syntax = \"proto3\";\nmessage A {\n  B b = 1;\n}\n",
    );
    let plugin = serde_json::json!({"name": "grpc-web", "config":
        {"proto": door.path("broken.proto")}});
    let request = web().post(door.admin_url("/plugins")).json(&plugin);
    let answer = send(request).await.expect(400);
    assert!(
        answer
            .body
            .contains("broken.proto:3:3: name 'B' is not defined"),
        "{}",
        answer.body
    );
    let answer = call(&door, "/shop/pkg.Echo/Say", "application/json", "{}").await;
    assert_eq!(answer.status, 200);
}
