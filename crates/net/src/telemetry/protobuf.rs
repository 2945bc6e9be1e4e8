//! Protocol buffers, as far as OTLP needs them: fields are appended to bytes.

/// Wire types.
const FIXED64: u8 = 1;
const BYTES: u8 = 2;

/// Appends a number of variable length.
fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        let [low, ..] = number.to_le_bytes();
        out.push(low | 0x80);
        number >>= 7;
    }
    let [low, ..] = number.to_le_bytes();
    out.push(low);
}

/// The number of variable length at the beginning of `bytes`, and what follows it.
pub(super) fn split_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let length = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)? + 1;
    let (digits, rest) = bytes.split_at(length);
    let digits = digits.iter().rev();
    let number = digits.fold(0_u64, |number, byte| number << 7 | u64::from(byte & 0x7f));
    Some((number, rest))
}

fn tag(out: &mut Vec<u8>, field: u8, wire: u8) {
    varint(out, u64::from(field) << 3 | u64::from(wire));
}

/// Appends a text, bytes or a message.
pub fn bytes(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    tag(out, field, BYTES);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Appends a whole number that is not negative.
pub fn number(out: &mut Vec<u8>, field: u8, value: u64) {
    tag(out, field, 0);
    varint(out, value);
}

/// Appends a number of eight bytes.
pub fn fixed64(out: &mut Vec<u8>, field: u8, value: u64) {
    tag(out, field, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a message that `write` fills.
pub fn message(out: &mut Vec<u8>, field: u8, write: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    write(&mut inner);
    bytes(out, field, &inner);
}

/// Appends an attribute with a text for its value.
pub fn text_attribute(out: &mut Vec<u8>, field: u8, name: &str, value: &str) {
    message(out, field, |out| {
        bytes(out, 1, name.as_bytes());
        message(out, 2, |out| bytes(out, 1, value.as_bytes()));
    });
}

/// Appends an attribute with a number for its value.
pub fn number_attribute(out: &mut Vec<u8>, field: u8, name: &str, value: u64) {
    message(out, field, |out| {
        bytes(out, 1, name.as_bytes());
        message(out, 2, |out| number(out, 3, value));
    });
}

/// Appends the attributes of a resource: what the operator has `chosen`, and what of
/// `own` is known and was not chosen.
pub fn resource<T: AsRef<str>>(out: &mut Vec<u8>, own: &[(&str, &str)], chosen: &[(T, T)]) {
    let is_chosen = |name: &str| chosen.iter().any(|(other, _)| other.as_ref() == name);
    for (name, value) in own {
        if !value.is_empty() && !is_chosen(name) {
            text_attribute(out, 1, name, value);
        }
    }
    for (name, value) in chosen {
        text_attribute(out, 1, name.as_ref(), value.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_the_specification() {
        let mut out = Vec::new();
        number(&mut out, 1, 150);
        bytes(&mut out, 2, b"testing");
        fixed64(&mut out, 7, 1);
        message(&mut out, 16, |inner| number(inner, 1, 0));
        let expected = [
            &[0x08, 0x96, 0x01][..],
            &[0x12, 0x07],
            b"testing",
            &[0x39, 1, 0, 0, 0, 0, 0, 0, 0],
            &[0x82, 0x01, 0x02, 0x08, 0x00],
        ];
        assert_eq!(out, expected.concat());
    }

    #[test]
    fn a_number_is_read_as_it_was_written() {
        for number in [0, 1, 127, 128, 300, u64::MAX] {
            let mut out = Vec::new();
            varint(&mut out, number);
            out.push(7);
            assert_eq!(split_varint(&out), Some((number, &[7][..])), "{number}");
        }
        assert_eq!(split_varint(b""), None);
        assert_eq!(split_varint(&[0x80; 11]), None);
    }
}
