#![expect(clippy::unwrap_used, reason = "tests")]

mod translation;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::testing::{decide, plugin, session};
use doorward_plugin_api::filter::{BodyDecoder, BodyFilter};

#[test]
fn an_origin_that_is_no_value_of_a_header_is_refused() {
    let broken = json!({"allow_origin_header": "a\r\nSet-Cookie: b=c"});
    assert!(plugin(&KIND, &broken).is_err());
}

/// The answer of the plugin to this head, and what filters know then.
async fn asked(method: &str, fields: &str) -> (Option<Reply>, Exchange) {
    let filter = plugin(&KIND, &json!({})).unwrap();
    let request = format!("{method} /a.B/C HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n");
    let (mut session, _client) = session(&request).await;
    let mut exchange = Exchange::default();
    let reply = decide(&*filter, &mut session, &mut exchange).await;
    (reply, exchange)
}

#[tokio::test]
async fn only_media_types_of_protobuf_go_on() {
    for (kind, text) in [
        ("application/grpc-web", false),
        ("application/grpc-web+proto", false),
        ("Application/gRPC-Web-Text", true),
        ("application/grpc-web-text+proto; charset=utf-8", true),
    ] {
        let (reply, exchange) = asked("POST", &format!("Content-Type: {kind}\r\n")).await;
        assert!(reply.is_none(), "{kind}");
        assert_eq!(exchange.decoder.is_some(), text, "{kind}");
        assert!(exchange.whole_path);
    }
    for fields in [
        "",
        "Content-Type: application/grpc\r\n",
        "Content-Type: application/json\r\n",
        "Content-Type: application/grpc-web+json\r\n",
        "Content-Type: application/grpc-web-text+json\r\n",
        "Content-Type: application/grpc-webs\r\n",
        "Content-Type: application/grpc-web\r\nContent-Type: application/grpc-web-text\r\n",
    ] {
        let (reply, exchange) = asked("POST", fields).await;
        let reply = reply.unwrap();
        assert_eq!(reply.status, 400, "{fields}");
        assert!(matches!(&reply.body, ReplyBody::Own(body) if body == NEEDS_PROTO));
        assert_eq!(exchange.refusal.as_deref(), Some("no_grpc_web"));
    }
}

#[tokio::test]
async fn a_browser_is_told_what_it_may_send() {
    let (reply, exchange) = asked("OPTIONS", "").await;
    let reply = reply.unwrap();
    assert_eq!(reply.status, 200);
    assert!(matches!(&reply.body, ReplyBody::Own(body) if body == "OK"));
    let told: Vec<_> = reply
        .headers
        .iter()
        .chain(&exchange.response_headers)
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
        .collect();
    let all = [
        ("content-type", "application/grpc-web-text+proto"),
        ("access-control-allow-methods", "POST"),
        (
            "access-control-allow-headers",
            "content-type,x-grpc-web,x-user-agent",
        ),
        ("access-control-allow-origin", "*"),
    ];
    assert_eq!(told, all);
}

fn decoded(pieces: &[&[u8]]) -> Option<Vec<u8>> {
    let mut decoder = Base64Decoder::default();
    let mut all = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        let mut body = Some(Bytes::copy_from_slice(piece));
        decoder.piece(&mut body, index + 1 == pieces.len()).ok()?;
        all.extend_from_slice(&body?);
    }
    Some(all)
}

#[test]
fn broken_base64_is_refused_wherever_it_is_cut() {
    for text in [
        "AAAA=",
        "A",
        "AB",
        "ABC",
        "AB=",
        "A===",
        "====",
        "AAA=A",
        "AA=A",
        "AB==",
        "AA A",
        "AA\r\n",
        "AA-_",
        "AAAAAAAAA",
    ] {
        for cut in 0..=text.len() {
            let (a, b) = text.as_bytes().split_at(cut);
            assert_eq!(decoded(&[a, b]), None, "{text} at {cut}");
        }
    }
    assert_eq!(decoded(&[b"AA==AAA=", b"AAAA"]), Some(vec![0; 6]));
}

#[test]
fn a_further_try_begins_with_the_first_digit() {
    let mut decoder = Base64Decoder::default();
    let mut body = Some(Bytes::from_static(b"AAAAA"));
    decoder.piece(&mut body, false).unwrap();
    decoder.restart();
    let mut body = Some(Bytes::from_static(b"AQID"));
    decoder.piece(&mut body, true).unwrap();
    assert_eq!(body.unwrap(), [1_u8, 2, 3][..]);
}

proptest! {
    #[test]
    fn texts_are_what_they_were_made_of(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..5),
        size in 1_usize..9,
    ) {
        let text: String = parts.iter().map(|part| STANDARD.encode(part)).collect();
        let mut pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
        pieces.push(b"");
        prop_assert_eq!(decoded(&pieces), Some(parts.concat()));
    }

    #[test]
    fn no_text_is_too_odd_to_be_looked_at(pieces in prop::collection::vec("[A-D=+/ ]{0,7}", 0..6)) {
        let pieces: Vec<&[u8]> = pieces.iter().map(|piece| piece.as_bytes()).collect();
        let whole = pieces.concat();
        prop_assert_eq!(decoded(&pieces).unwrap_or_default(), decoded(&[&whole]).unwrap_or_default());
    }
}

/// What clients get of a body that these trailers end.
fn body(text: bool, pieces: &[&'static str], trailers: &[(&'static str, &str)]) -> Vec<u8> {
    let mut filter = AnswerBody::new(text, StatusCode::OK, None);
    let mut all = Vec::new();
    for piece in pieces {
        let mut body = Some(Bytes::from_static(piece.as_bytes()));
        filter.piece(&mut body, false);
        all.extend_from_slice(&body.unwrap());
    }
    let mut fields = HeaderMap::new();
    for (name, value) in trailers {
        fields.append(*name, HeaderValue::from_str(value).unwrap());
    }
    if !trailers.is_empty() {
        filter.trailers(&fields);
    }
    let mut body = None;
    filter.piece(&mut body, true);
    all.extend_from_slice(&body.take().unwrap());
    filter.piece(&mut body, true);
    assert_eq!(body, None, "one frame of trailers is all");
    all
}

fn frame(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap().to_be_bytes();
    [&[0x80][..], &length, text.as_bytes()].concat()
}

#[test]
fn trailers_are_the_last_frame_of_the_body() {
    let trailers = [("x-a", "b"), ("grpc-message", "gone"), ("grpc-status", "5")];
    let expected = frame("grpc-status:5\r\ngrpc-message:gone\r\nx-a:b\r\n");
    let plain = body(false, &["one", "two"], &trailers);
    assert_eq!(plain, [b"onetwo", &expected[..]].concat());
    let text = body(true, &["on", "two"], &trailers);
    let expected = ["b24=dHdv", &STANDARD.encode(expected)].concat();
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}

#[test]
fn no_message_of_an_upstream_makes_another_status() {
    let trailers = [
        ("grpc-status", "7"),
        ("grpc-status", "0"),
        ("grpc-message", "no%0d%0agrpc-status:0"),
        ("set-cookie", "a=b"),
    ];
    let one = "grpc-status:7\r\ngrpc-message:no%0d%0agrpc-status:0\r\n";
    assert_eq!(body(false, &[], &trailers), frame(one));
    assert!(HeaderValue::from_bytes(b"no\r\ngrpc-status:0").is_err());
}

#[test]
fn trailers_without_end_are_cut_off_behind_the_status() {
    let long = "x".repeat(40 << 10);
    let trailers = [("x-a", long.as_str()), ("grpc-status", "0"), ("x-b", "c")];
    let short = "grpc-status:0\r\ngrpc-message:\r\nx-b:c\r\n";
    assert_eq!(body(false, &[], &trailers), frame(short));
}

#[test]
fn an_answer_without_a_status_is_no_success() {
    let told = "grpc-status:2\r\ngrpc-message:the upstream has told no status\r\n";
    assert_eq!(body(false, &[], &[]), frame(told));
}

/// What becomes of an answer with these fields.
async fn answered(kind: &str, fields: &[(&'static str, &str)]) -> (ResponseFlow, ResponseHeader) {
    let filter = plugin(&KIND, &json!({})).unwrap();
    let mut request = RequestHeader::build("POST", b"/a.B/C", None).unwrap();
    request.insert_header(CONTENT_TYPE, kind).unwrap();
    let mut response = ResponseHeader::build(200, None).unwrap();
    for (name, value) in fields {
        response.append_header(*name, *value).unwrap();
    }
    let mut exchange = Exchange::default();
    let flow = filter.on_upstream_response(&request, &mut exchange, &mut response);
    (flow.await, response)
}

#[tokio::test]
async fn a_head_that_is_all_there_is_becomes_a_body() {
    let fields = [
        ("content-type", "application/grpc"),
        ("grpc-status", "16"),
        ("set-cookie", "session=stolen"),
        ("x-detail", "d"),
    ];
    let (flow, _) = answered("application/grpc-web-text", &fields).await;
    let ResponseFlow::Replace(reply) = flow else {
        panic!("another answer takes its place");
    };
    let kind = HeaderValue::from_static("application/grpc-web-text");
    assert_eq!(reply.headers, [(CONTENT_TYPE, kind)]);
    let ReplyBody::Own(body) = reply.body else {
        panic!("a body of its own");
    };
    let text = frame("grpc-status:16\r\ngrpc-message:\r\nx-detail:d\r\n");
    assert_eq!(STANDARD.decode(body).unwrap(), text);
}

#[tokio::test]
async fn an_answer_that_is_no_grpc_passes_as_it_is() {
    let fields = [("content-type", "text/html"), ("content-length", "3")];
    let (flow, head) = answered("application/grpc-web", &fields).await;
    assert!(matches!(flow, ResponseFlow::Continue));
    assert_eq!(head.headers["content-type"], "text/html");
    assert_eq!(head.headers["content-length"], "3");
    let fields = [
        ("content-type", "application/grpc+proto"),
        ("access-control-allow-origin", "a"),
    ];
    let (flow, head) = answered("application/grpc-web", &fields).await;
    assert!(matches!(flow, ResponseFlow::Filter(_)));
    assert_eq!(head.headers["content-type"], "application/grpc-web");
    assert!(!head.headers.contains_key("access-control-allow-origin"));
}
