//! Bytes as hexadecimal digits.

/// The digits of each byte.
static PAIRS: [[u8; 2]; 256] = {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [DIGITS[byte >> 4], DIGITS[byte & 15]];
        byte += 1;
    }
    pairs
};

/// `bytes` as lower-case hexadecimal digits, two for each.
pub fn encode(bytes: impl AsRef<[u8]>) -> String {
    let bytes = bytes.as_ref();
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.extend(PAIRS[usize::from(*byte)].map(char::from));
    }
    text
}

/// Writes the digits of `bytes` to the beginning of `text`, as far as there is room.
pub fn write(bytes: &[u8], text: &mut [u8]) {
    for (byte, digits) in bytes.iter().zip(text.chunks_exact_mut(2)) {
        digits.copy_from_slice(&PAIRS[usize::from(*byte)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_two_digits() {
        assert_eq!(encode([]), "");
        assert_eq!(encode([0x00, 0x0f, 0x10, 0xa9, 0xff]), "000f10a9ff");
        let all: String = (0..=255).map(|byte: u8| format!("{byte:02x}")).collect();
        assert_eq!(encode((0..=255).collect::<Vec<u8>>()), all);
        let mut text = *b"------";
        write(&[0xa9, 0x0f], &mut text);
        assert_eq!(&text, b"a90f--");
    }
}
