//! Answers that would take much memory or much depth to translate.

use bytes::{BufMut, BytesMut};

use super::*;

const JSON: &str = "application/grpc-web+json";
const FILL: &str = "/shop.Shop/Fill";
const WRAP: &str = "/shop.Shop/Wrap";

/// A field that holds these bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = BytesMut::new();
    put_number(&mut field, usize::from(number) << 3 | 2);
    put_number(&mut field, bytes.len());
    field.put_slice(bytes);
    field.to_vec()
}

fn put_number(field: &mut BytesMut, mut number: usize) {
    while number > 0x7f {
        field.put_u8(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    field.put_u8(u8::try_from(number).unwrap());
}

/// An `Any` with a message of this kind.
fn any(kind: &str, message: &[u8]) -> Vec<u8> {
    let url = format!("type.test/{kind}");
    [field(1, url.as_bytes()), field(2, message)].concat()
}

/// Whether the answer of a method is told.
async fn is_told(path: &str, message: &[u8]) -> bool {
    let body = told(JSON, path, &[&framed_message(message)]).await;
    let (done, failed) = (frame(DONE), frame(FAILED));
    assert!(body.ends_with(&done) || body == failed, "either of both");
    body.ends_with(&done)
}

#[tokio::test]
async fn messages_that_hold_each_other_without_end_are_not_told() {
    for (levels, is_fine) in [(2, true), (50, false), (5_000, false)] {
        let item = any("shop.Item", b"");
        let message = (0..levels).fold(item, |inner, _| any("google.protobuf.Any", &inner));
        assert_eq!(is_told(WRAP, &message).await, is_fine, "{levels}");
    }
}

#[tokio::test]
async fn extensions_that_hold_each_other_in_any_without_end_are_not_told() {
    // Sixty are fewer than the decoder takes by itself.
    for (levels, is_fine) in [(20, true), (60, false), (5_000, false)] {
        let node = (0..levels).fold(Vec::new(), |inner, _| field(100, &inner));
        let message = any("shop.Node", &node);
        assert_eq!(is_told(WRAP, &message).await, is_fine, "{levels}");
    }
}

#[tokio::test]
async fn an_answer_that_would_take_much_memory_is_not_told() {
    // Two bytes are a message, an entry, a list of none, or what nobody has described.
    let repeat = |bytes: &[u8]| (bytes.repeat(15_000), bytes.repeat(600_000));
    for (few, many) in [
        repeat(b"\x0a\x00"),
        repeat(b"\x12\x00"),
        repeat(b"\x1a\x00"),
        repeat(b"\x18\x07"),
        repeat(b"\x78\x00"),
        repeat(b"\x7a\x00"),
        repeat(b"\x7b\x7c"),
        (field(3, &[7; 400_000]), field(3, &[7; 4_000_000])),
    ] {
        assert!(is_told(FILL, &few).await, "{:?}", &few[..2]);
        assert!(!is_told(FILL, &many).await, "{:?}", &many[..2]);
        assert!(is_told(WRAP, &any("shop.Basket", &few)).await);
        assert!(!is_told(WRAP, &any("shop.Basket", &many)).await);
        // Each is fine by itself.
        let both = [few.clone(), field(4, &any("shop.Basket", &few))].concat();
        let is_small = few.len() < 100_000;
        assert_eq!(is_told(FILL, &both).await, is_small, "{:?}", &few[..2]);
    }
}

#[tokio::test]
async fn an_any_in_two_parts_is_counted_as_one() {
    let name = field(4, &field(1, b"t/shop.Basket"));
    for (count, is_fine) in [(10_000, true), (600_000, false)] {
        let value = field(4, &field(2, &b"\x0a\x00".repeat(count)));
        let message = [name.clone(), value].concat();
        assert_eq!(is_told(FILL, &message).await, is_fine, "{count}");
    }
}

#[tokio::test]
async fn a_long_text_is_one_value() {
    let item = field(1, &b"x".repeat(4_000_000));
    assert!(is_told(FILL, &field(1, &item)).await);
}
