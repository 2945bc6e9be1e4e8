//! The record that a form was made of. The form carries it: what somebody else has
//! changed meanwhile is told by it.

use std::io::{Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use serde_json::Value;

use super::visit::Visit;

/// Longest record that is carried as it is, in bytes as JSON.
const PLAIN_MAX: usize = 2 << 10;
/// Longest record that is read from a form, in bytes as JSON.
const READ_MAX: u64 = 4 << 20;

/// The record as a form carries it: long ones are compressed.
pub(crate) fn text(record: &Value) -> String {
    let plain = record.to_string();
    if plain.len() <= PLAIN_MAX {
        return plain;
    }
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    let written = encoder.write_all(plain.as_bytes());
    match written.and_then(|()| encoder.finish()) {
        Ok(packed) => STANDARD.encode(packed),
        Err(_) => plain,
    }
}

/// The record that the form of a request was made of; null if it does not say.
pub(crate) fn of(visit: &Visit) -> Value {
    read(visit.field("base"))
}

fn read(text: &str) -> Value {
    let record = if text.starts_with('{') {
        serde_json::from_str(text).ok()
    } else {
        unpacked(text).and_then(|plain| serde_json::from_slice(&plain).ok())
    };
    record.filter(Value::is_object).unwrap_or_default()
}

/// What [`text`] has compressed, if it is not too long.
fn unpacked(text: &str) -> Option<Vec<u8>> {
    let packed = STANDARD.decode(text).ok()?;
    let mut plain = Vec::new();
    let mut decoder = ZlibDecoder::new(&*packed).take(READ_MAX + 1);
    let length = decoder.read_to_end(&mut plain).ok()?;
    (length as u64 <= READ_MAX).then_some(plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn packed(plain: &[u8]) -> String {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(plain).expect("written");
        STANDARD.encode(encoder.finish().expect("packed"))
    }

    #[test]
    fn a_long_record_is_carried_small_and_read_back() {
        let short = json!({"name": "a"});
        assert_eq!(text(&short), short.to_string());
        let routes: Vec<_> = (0..1000).map(|n| format!("/path/{n}")).collect();
        let long = json!({"paths": routes});
        let carried = text(&long);
        assert!(carried.len() * 3 < long.to_string().len());
        assert_eq!([read(&text(&short)), read(&carried)], [short, long]);
    }

    #[test]
    fn a_decompression_bomb_is_no_record() {
        let spaces = " ".repeat(5 << 20);
        let bomb = packed(format!("{{{spaces}}}").as_bytes());
        assert!(bomb.len() < 10_000);
        assert_eq!(read(&bomb), Value::Null);
        assert_eq!(read(&packed(b"{}")), json!({}));
        for wrong in ["", "x", "[]", "null", &packed(b"[]"), "{"] {
            assert_eq!(read(wrong), Value::Null, "{wrong}");
        }
    }
}
