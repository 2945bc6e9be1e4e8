//! Clients that attack the listeners themselves: too slow, too many, or within
//! the bounds of HTTP/2 and against its sense.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::ports::Port;
use crate::support::raw::Connection;
use crate::support::tls::Offer;
use crate::support::{DEADLINE, Door, Setup, eventually, raw};

const MIRROR: &str = "- {name: mirror, protocol: internal, host: echo, routes: [{paths: [/]}]}\n";
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

async fn door(settings: &str) -> Door {
    let proxy = format!("{{listen: [\"@PROXY@\"]{settings}}}");
    Setup::new().proxy(&proxy).services(MIRROR).start().await
}

/// A door with a TLS listener too.
async fn tls_door(port: &Port, settings: &str) -> Door {
    let tls = port.authority();
    door(&format!(", tls: {{listen: [\"{tls}\"]}}{settings}")).await
}

/// Waits for a line of the metrics: what ends a connection is counted after it.
pub(crate) async fn counted(door: &Door, line: &str) {
    eventually(line, || async {
        let metrics = door.admin_get("/metrics").await.expect(200).body;
        metrics.contains(line).then_some(())
    })
    .await;
}

#[tokio::test]
async fn slowloris_a_head_sent_drop_by_drop_is_cut_off() {
    let door = door(", head_seconds: 1").await;
    let mut slow = Connection::open(&door.proxy()).await;
    slow.send(b"GET / HTTP/1.1\r\nHost: a\r\n").await;
    let dripping = async {
        while slow.try_send(b"X-A: b\r\n").await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(DEADLINE, dripping).await.expect("cut off");
    counted(
        &door,
        "doorward_connections_refused_total{listener=\"proxy\",reason=\"too_slow\"} 1",
    )
    .await;
}

#[tokio::test]
async fn a_silent_connection_is_closed() {
    let door = door(", head_seconds: 1").await;
    let mut silent = Connection::open(&door.proxy()).await;
    assert!(silent.is_closed().await);
}

#[tokio::test]
async fn a_request_that_takes_long_is_not_taken_for_a_slow_head() {
    let door = door(", head_seconds: 4").await;
    let longer = Duration::from_secs(5);
    let mut slow = Connection::open(&door.proxy()).await;
    slow.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n")
        .await;
    for _ in 0..50 {
        tokio::time::sleep(longer / 50).await;
        slow.send(b"x").await;
    }
    assert_eq!(slow.response().await.status, 200);
    // Nor is a connection that idles between two requests.
    tokio::time::sleep(longer).await;
    slow.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(slow.response().await.status, 200);
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_cut_off() {
    let port = Port::reserve();
    let door = tls_door(&port, ", handshake_seconds: 1").await;
    let mut silent = Connection::open(&port.authority()).await;
    assert!(silent.is_closed().await);
    let mut half = Connection::open(&port.authority()).await;
    half.send(&[0x16, 3, 1, 2, 0, 1]).await;
    assert!(half.is_closed().await);
    counted(
        &door,
        "doorward_tls_handshake_failures_total{listener=\"proxy\",reason=\"timeout\"} 2",
    )
    .await;
}

#[tokio::test]
async fn http2_over_tls_without_a_request_is_cut_off() {
    let port = Port::reserve();
    let _door = tls_door(&port, ", head_seconds: 1").await;
    let offer = Offer::new().protocols(&["h2"]);
    let mut silent = offer.connect(port.number(), "a.test").expect("connected");
    assert!(silent.closes_within(DEADLINE));
    // The preface alone is no request.
    let mut idle = offer.connect(port.number(), "a.test").expect("connected");
    // It may be cut off before it has said all of that.
    let _ = idle.send(PREFACE);
    let _ = idle.send(&frame(SETTINGS, 0, 0, &[]));
    assert!(idle.closes_within(DEADLINE));
}

#[tokio::test]
async fn garbage_on_a_tls_port_is_refused_and_counted() {
    let port = Port::reserve();
    let door = tls_door(&port, "").await;
    let mut garbage = Connection::open(&port.authority()).await;
    garbage.send(&[0x16; 64]).await;
    assert!(garbage.is_closed().await);
    counted(
        &door,
        "doorward_tls_handshake_failures_total{listener=\"proxy\",reason=\"malformed\"} 1",
    )
    .await;
}

#[tokio::test]
async fn plain_http_on_a_tls_port_is_told_so() {
    let port = Port::reserve();
    let _door = tls_door(&port, "").await;
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let answer = raw::exchange(&port.authority(), request)
        .await
        .expect("an answer");
    assert_eq!(answer.status, 400);
    let told: serde_json::Value = serde_json::from_str(&answer.text()).expect("JSON");
    let message = told["message"].as_str().expect("a message");
    assert!(message.contains("plain HTTP"), "{message}");
    assert!(told["request_id"].is_string(), "{told}");
}

#[tokio::test]
async fn more_connections_than_allowed_are_closed_and_room_comes_back() {
    let door = door(", max_connections: 2").await;
    let mut kept = Vec::new();
    for _ in 0..2 {
        let mut connection = Connection::open(&door.proxy()).await;
        connection.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(connection.response().await.status, 200);
        kept.push(connection);
    }
    let mut surplus = Connection::open(&door.proxy()).await;
    assert!(surplus.is_closed().await);
    counted(
        &door,
        "doorward_connections_refused_total{listener=\"proxy\",reason=\"too_many\"} 1",
    )
    .await;
    // Those who are in go on.
    for connection in &mut kept {
        connection.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(connection.response().await.status, 200);
    }
    drop(kept);
    eventually("room again", || async {
        let answer = raw::exchange(&door.proxy(), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        (answer?.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_admin_listener_asks_no_stranger_for_a_body() {
    let admin = "{listen: \"@ADMIN@\", token: 0123456789abcdef}";
    let mut door = Setup::new().admin(admin).services(MIRROR).lay_out();
    door.spawn();
    door.wait_log("the start", |line| line.contains("ready"))
        .await;
    for line in ["Expect: 100-continue\r\n", ""] {
        let mut stranger = Connection::open(&door.admin()).await;
        let head = format!(
            "POST /services HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\
             Content-Type: application/json\r\n{line}\r\n"
        );
        stranger.send(head.as_bytes()).await;
        // Neither 100 nor a wait for the body.
        assert_eq!(stranger.head().await.status, 401);
    }
}

/// A frame of HTTP/2 (RFC 9113 §4.1).
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len())
        .expect("a short frame")
        .to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// `GET http://a/` in HPACK.
const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 0x01, b'a'];

/// An attacker's connection of HTTP/2 in the clear.
pub(crate) struct Attack(TcpStream);

impl Attack {
    pub(crate) async fn open(address: &str) -> Self {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(PREFACE).await.expect("sent");
        let settings = frame(SETTINGS, 0, 0, &[]);
        stream.write_all(&settings).await.expect("sent");
        Self(stream)
    }

    /// Sends as long as it is taken: until the other side hangs up, or does
    /// not read for a second.
    pub(crate) async fn flood(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(1 << 14) {
            let sent = timeout(Duration::from_secs(1), self.0.write_all(piece)).await;
            if !matches!(sent, Ok(Ok(()))) {
                return;
            }
        }
    }

    /// The kinds of the frames that came, until `last` came or the end, and
    /// the code of a GOAWAY.
    pub(crate) async fn frames(&mut self, last: u8) -> (Vec<u8>, Option<u8>) {
        let mut kinds = Vec::new();
        let mut head = [0; 9];
        while let Ok(Ok(_)) = timeout(DEADLINE, self.0.read_exact(&mut head)).await {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            if self.0.read_exact(&mut payload).await.is_err() {
                break;
            }
            kinds.push(head[3]);
            if head[3] == GOAWAY {
                return (kinds, payload.get(7).copied());
            }
            if head[3] == last {
                break;
            }
        }
        (kinds, None)
    }
}

/// After an attack, others are served and memory has not grown by more than
/// 64 MiB.
async fn unharmed(door: &Door, before_kib: u64) {
    door.get("a", "/").await.expect(200);
    door.admin_get("/status").await.expect(200);
    let grown = door.memory_kib("VmRSS").saturating_sub(before_kib);
    assert!(grown < 64 << 10, "grown by {grown} KiB");
}

/// Both listeners, the proxy's and the admin's.
fn listeners(door: &Door) -> [String; 2] {
    [door.proxy(), door.admin()]
}

#[tokio::test]
async fn rapid_reset_ends_the_connection() {
    let door = door("").await;
    let before = door.memory_kib("VmRSS");
    let cancel = 8_u32.to_be_bytes();
    let mut flood = Vec::new();
    for stream in (1..40_001).step_by(2) {
        flood.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, GET));
        flood.extend(frame(RST_STREAM, 0, stream, &cancel));
    }
    for address in listeners(&door) {
        let mut attack = Attack::open(&address).await;
        attack.flood(&flood).await;
        let (_, code) = attack.frames(GOAWAY).await;
        // ENHANCE_YOUR_CALM, unless the reset overtook it.
        assert!(matches!(code, None | Some(11)), "{code:?}");
        unharmed(&door, before).await;
    }
}

#[tokio::test]
async fn too_many_streams_at_once_are_refused() {
    let door = door("").await;
    let before = door.memory_kib("VmRSS");
    for address in listeners(&door) {
        let mut attack = Attack::open(&address).await;
        // Requests whose bodies never come.
        let post = [&[0x83][..], &GET[1..]].concat();
        let open: Vec<u8> = (1..2001)
            .step_by(2)
            .flat_map(|stream| frame(HEADERS, END_HEADERS, stream, &post))
            .collect();
        attack.flood(&open).await;
        let (kinds, code) = attack.frames(RST_STREAM).await;
        let refused = kinds.last() == Some(&RST_STREAM) || code.is_some();
        assert!(refused, "{kinds:?}");
        unharmed(&door, before).await;
    }
}

#[tokio::test]
async fn continuation_flood_ends_the_connection() {
    let door = door("").await;
    let before = door.memory_kib("VmRSS");
    let mut flood = frame(HEADERS, END_STREAM, 1, GET);
    // A field without an index: `x: y…`.
    let field = [&[0x00, 0x01, b'x', 0x7f, 0x80, 0x01][..], &[b'y'; 255]].concat();
    for _ in 0..200_000 {
        flood.extend(frame(CONTINUATION, 0, 1, &field));
        if flood.len() > 16 << 20 {
            break;
        }
    }
    for address in listeners(&door) {
        let mut attack = Attack::open(&address).await;
        attack.flood(&flood).await;
        attack.frames(GOAWAY).await;
        let mut rest = Vec::new();
        let ended = timeout(DEADLINE, attack.0.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "the connection is still open");
        unharmed(&door, before).await;
    }
}

#[tokio::test]
async fn hpack_bomb_is_not_inflated() {
    let door = door("").await;
    let before = door.memory_kib("VmRSS");
    // One large field into the table, then thousands of one-byte references.
    let mut block = GET.to_vec();
    block.extend([0x40, 0x01, b'x', 0x7f, 0xa1, 0x1e]);
    block.extend([b'y'; 4000]);
    block.extend([0xbe; 12_000]);
    for address in listeners(&door) {
        let mut attack = Attack::open(&address).await;
        for stream in [1, 3, 5, 7] {
            let bomb = frame(HEADERS, END_HEADERS | END_STREAM, stream, &block);
            attack.flood(&bomb).await;
        }
        unharmed(&door, before).await;
    }
}

#[tokio::test]
async fn a_list_of_fields_that_is_too_long_is_refused_like_other_requests() {
    let door = door("").await;
    let mut references = GET.to_vec();
    references.extend([0x40, 0x01, b'x', 0x7f, 0xa1, 0x1e]);
    references.extend([b'y'; 4000]);
    references.extend([0xbe; 20]);
    // The same length in one field, which takes several frames.
    let mut long = GET.to_vec();
    long.extend([0x00, 0x01, b'x', 0x7f, 0xe1, 0xa1, 0x04]);
    long.extend([b'y'; 70_000 - 16]);
    for address in listeners(&door) {
        let mut attack = Attack::open(&address).await;
        for (stream, block) in [(1, &*references), (3, GET), (5, &*long), (7, GET)] {
            let mut pieces = block.chunks(16 << 10).peekable();
            let (mut kind, mut flags) = (HEADERS, END_STREAM);
            while let Some(piece) = pieces.next() {
                let last = if pieces.peek().is_none() {
                    END_HEADERS
                } else {
                    0
                };
                attack
                    .flood(&frame(kind, flags | last, stream, piece))
                    .await;
                (kind, flags) = (CONTINUATION, 0);
            }
            let (kinds, code) = attack.frames(HEADERS).await;
            assert_eq!(code, None);
            assert!(!kinds.contains(&RST_STREAM), "{kinds:?}");
        }
    }
    let is_logged = |line: &str| line.contains("\"refusal\":\"malformed_request\"");
    let line = door.wait_log("a refused request", is_logged).await;
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(line["status"], 400, "{line}");
    counted(&door, "status=\"4xx\"} 2").await;
}

#[tokio::test]
async fn floods_of_pings_and_settings_are_not_queued() {
    let door = door("").await;
    let before = door.memory_kib("VmRSS");
    for one in [frame(PING, 0, 0, &[0; 8]), frame(SETTINGS, 0, 0, &[])] {
        let flood = one.repeat((32 << 20) / one.len());
        for address in listeners(&door) {
            // It reads nothing, so answers can only pile up.
            let mut attack = Attack::open(&address).await;
            attack.flood(&flood).await;
            unharmed(&door, before).await;
        }
    }
}

/// A field, without index and compression.
pub(crate) fn field(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut out = vec![0];
    for text in [name, value] {
        out.push(u8::try_from(text.len()).expect("a short text"));
        out.extend(text);
    }
    out
}

#[tokio::test]
async fn a_malformed_field_of_http2_concerns_its_stream_alone() {
    let door = door("").await;
    for address in listeners(&door) {
        let mut attack = Attack::open(&address).await;
        let mut stream = 1;
        for (name, value, answer) in [
            (&b"X-A"[..], &b"b"[..], RST_STREAM),
            (b"a b", b"c", RST_STREAM),
            (b"", b"c", RST_STREAM),
            (b":other", b"c", RST_STREAM),
            (b":status", b"200", RST_STREAM),
            (b"x", b"a\rb", HEADERS),
            (b"x", b"a\nb", HEADERS),
            (b"x", b"a\0b", HEADERS),
            (b"x", b"a ", HEADERS),
            (b"x", b"\ta", HEADERS),
        ] {
            let bad = [GET, &field(name, value)].concat();
            for (block, answer) in [(&*bad, answer), (GET, HEADERS)] {
                let request = frame(HEADERS, END_HEADERS | END_STREAM, stream, block);
                attack.flood(&request).await;
                let (kinds, code) = attack.frames(answer).await;
                assert_eq!(code, None, "{}", name.escape_ascii());
                assert_eq!(kinds.last(), Some(&answer), "{}", name.escape_ascii());
                stream += 2;
            }
        }
    }
    // Each malformed value is logged and counted as a refused request.
    let is_logged = |line: &str| line.contains("\"refusal\":\"malformed_request\"");
    let line = door.wait_log("a refused request", is_logged).await;
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(
        (&line["status"], &line["method"]),
        (&400.into(), &"GET".into())
    );
    counted(&door, "status=\"4xx\"} 5").await;
}
