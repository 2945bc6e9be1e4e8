//! Header compression of HTTP/2 (RFC 7541): whole field blocks read, and written
//! without a table.

use std::collections::VecDeque;
use std::sync::LazyLock;

/// Largest table of a connection: what a server allows that says nothing (RFC 9113
/// §6.5.2).
const TABLE: usize = 4096;
/// What an entry counts beyond its text (RFC 7541 §4.1).
const OVERHEAD: usize = 32;
/// Longest list of fields that is kept, by the same count: what the engine takes.
const LIST: usize = 64 << 10;

/// A block that can't be read: the table is lost, and the connection with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Undecodable;

/// The fields of a block, in their order.
#[derive(Debug, Default)]
pub(super) struct Fields {
    text: Vec<u8>,
    /// Where each name and each value ends.
    ends: Vec<(usize, usize)>,
    /// Whether there are more than are kept.
    pub(super) too_many: bool,
}

impl Fields {
    /// Each field's name and value.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut begin = 0;
        self.ends.iter().map(move |&(name, value)| {
            let field = (&self.text[begin..name], &self.text[name..value]);
            begin = value;
            field
        })
    }

    fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
        self.too_many = false;
    }

    fn begin(&self) -> usize {
        self.ends.last().map_or(0, |&(_, value)| value)
    }

    /// Ends a field whose text was appended; its name ends at `name`.
    fn push(&mut self, name: usize) {
        let length = self.text.len() + OVERHEAD * (self.ends.len() + 1);
        if self.too_many || length > LIST {
            self.too_many = true;
            let begin = self.begin();
            self.text.truncate(begin);
        } else {
            self.ends.push((name, self.text.len()));
        }
    }
}

/// An entry of the table.
#[derive(Debug)]
struct Entry {
    text: Box<[u8]>,
    name: usize,
}

/// Reads the blocks of one direction of a connection.
#[derive(Debug)]
pub(super) struct Decoder {
    entries: VecDeque<Entry>,
    size: usize,
    limit: usize,
}

impl Decoder {
    pub(super) fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            size: 0,
            limit: TABLE,
        }
    }

    /// Reads a whole block.
    pub(super) fn decode(
        &mut self,
        mut block: &[u8],
        fields: &mut Fields,
    ) -> Result<(), Undecodable> {
        fields.clear();
        let mut resizable = true;
        while let Some(&first) = block.first() {
            if first & 0xe0 == 0x20 {
                let limit = integer(&mut block, 5)?;
                if !resizable || limit > TABLE {
                    return Err(Undecodable);
                }
                self.limit = limit;
                self.evict(0);
                continue;
            }
            resizable = false;
            if first & 0x80 != 0 {
                let index = integer(&mut block, 7)?;
                let (name, value) = self.entry(index)?;
                if !fields.too_many {
                    fields.text.extend_from_slice(name);
                    let end = fields.text.len();
                    fields.text.extend_from_slice(value);
                    fields.push(end);
                }
                continue;
            }
            let kept = first & 0x40 != 0;
            let begin = fields.text.len();
            match integer(&mut block, if kept { 6 } else { 4 })? {
                0 => string(&mut block, &mut fields.text)?,
                index => {
                    let (name, _) = self.entry(index)?;
                    fields.text.extend_from_slice(name);
                }
            }
            let name = fields.text.len();
            string(&mut block, &mut fields.text)?;
            if kept {
                self.insert(&fields.text[begin..], name - begin);
            }
            fields.push(name);
        }
        Ok(())
    }

    /// Name and value of an entry of either table.
    fn entry(&self, index: usize) -> Result<(&[u8], &[u8]), Undecodable> {
        let index = index.checked_sub(1).ok_or(Undecodable)?;
        if let Some(entry) = STATIC.get(index) {
            return Ok(*entry);
        }
        let entry = self.entries.get(index - STATIC.len());
        let entry = entry.ok_or(Undecodable)?;
        Ok(entry.text.split_at(entry.name))
    }

    fn insert(&mut self, text: &[u8], name: usize) {
        let size = text.len() + OVERHEAD;
        self.evict(size);
        if size <= self.limit {
            self.size += size;
            let text = Box::from(text);
            self.entries.push_front(Entry { text, name });
        }
    }

    /// Makes room for an entry of this size.
    fn evict(&mut self, size: usize) {
        while self.size + size > self.limit
            && let Some(entry) = self.entries.pop_back()
        {
            self.size -= entry.text.len() + OVERHEAD;
        }
    }
}

/// Appends a field that nobody keeps in a table.
pub(super) fn encode(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.push(0);
    for text in [name, value] {
        let mut length = text.len();
        if length < 0x7f {
            // It fits.
            out.push(length as u8);
        } else {
            out.push(0x7f);
            length -= 0x7f;
            while length >= 0x80 {
                // The lower seven bits.
                out.push((length & 0x7f) as u8 | 0x80);
                length >>= 7;
            }
            out.push(length as u8);
        }
        out.extend_from_slice(text);
    }
}

/// Takes an integer with a prefix of so many bits (RFC 7541 §5.1).
fn integer(block: &mut &[u8], prefix: u32) -> Result<usize, Undecodable> {
    let (&first, mut rest) = block.split_first().ok_or(Undecodable)?;
    let most = (1_usize << prefix) - 1;
    let mut value = usize::from(first) & most;
    if value == most {
        // Four bytes more hold every length that a frame can have.
        for shift in [0, 7, 14, 21, 28] {
            let (&byte, left) = rest.split_first().ok_or(Undecodable)?;
            if shift == 28 {
                return Err(Undecodable);
            }
            rest = left;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *block = rest;
    Ok(value)
}

/// Takes a string, and appends its text (RFC 7541 §5.2).
fn string(block: &mut &[u8], out: &mut Vec<u8>) -> Result<(), Undecodable> {
    let huffman = block.first().is_some_and(|first| first & 0x80 != 0);
    let length = integer(block, 7)?;
    let (text, rest) = block.split_at_checked(length).ok_or(Undecodable)?;
    *block = rest;
    if huffman {
        return HUFFMAN.decode(text, out);
    }
    out.extend_from_slice(text);
    Ok(())
}

/// What four bits lead to.
#[derive(Clone, Copy, Debug)]
struct Step {
    node: u16,
    symbol: Option<u8>,
}

/// Where no code leads, or that of the end of a string, which none may hold.
const NOWHERE: u16 = u16::MAX;
/// Marks a child as a symbol.
const LEAF: u16 = 1 << 15;

/// The code of RFC 7541, appendix B, read in steps of four bits.
struct Huffman {
    steps: Vec<[Step; 16]>,
    /// Where a string may end: after no more than seven bits, all set.
    ends: Vec<bool>,
}

static HUFFMAN: LazyLock<Huffman> = LazyLock::new(Huffman::new);

impl Huffman {
    fn new() -> Self {
        let mut nodes: Vec<[u16; 2]> = vec![[NOWHERE; 2]];
        let mut symbols: Vec<u16> = (0..256).collect();
        // Codes of one length ascend with their symbols.
        symbols.sort_by_key(|symbol| (LENGTHS[usize::from(*symbol)], *symbol));
        let (mut code, mut previous) = (0_u32, 0);
        for symbol in symbols {
            let length = LENGTHS[usize::from(symbol)];
            code <<= length - previous;
            previous = length;
            let mut node = 0;
            for bit in (1..length).rev() {
                let side = usize::from(code >> bit & 1 == 1);
                if nodes[node][side] == NOWHERE {
                    // There are fewer than 256.
                    nodes[node][side] = nodes.len() as u16;
                    nodes.push([NOWHERE; 2]);
                }
                node = usize::from(nodes[node][side]);
            }
            nodes[node][usize::from(code & 1 == 1)] = LEAF | symbol;
            code += 1;
        }
        let step = |from: usize, bits: usize| {
            let (mut node, mut symbol) = (from, None);
            for bit in (0..4).rev() {
                match nodes[node][bits >> bit & 1] {
                    NOWHERE => {
                        return Step {
                            node: NOWHERE,
                            symbol,
                        };
                    }
                    // A symbol is one byte.
                    leaf if leaf & LEAF != 0 => {
                        symbol = Some(leaf as u8);
                        node = 0;
                    }
                    inner => node = usize::from(inner),
                }
            }
            Step {
                node: node as u16,
                symbol,
            }
        };
        let steps = (0..nodes.len())
            .map(|node| std::array::from_fn(|bits| step(node, bits)))
            .collect();
        let mut ends = vec![false; nodes.len()];
        let mut node = 0;
        for _ in 0..8 {
            ends[node] = true;
            node = usize::from(nodes[node][1]);
        }
        Self { steps, ends }
    }

    fn decode(&self, text: &[u8], out: &mut Vec<u8>) -> Result<(), Undecodable> {
        let mut node = 0;
        for byte in text {
            for bits in [byte >> 4, byte & 15] {
                let step = self.steps[node][usize::from(bits)];
                if step.node == NOWHERE {
                    return Err(Undecodable);
                }
                out.extend(step.symbol);
                node = usize::from(step.node);
            }
        }
        self.ends[node].then_some(()).ok_or(Undecodable)
    }
}

/// How many bits the code of each symbol has (RFC 7541, appendix B).
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

/// The entries that every table begins with (RFC 7541, appendix A).
const STATIC: [(&[u8], &[u8]); 61] = [
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("hex"), 16))
            .map(|byte| byte.expect("hex"))
            .collect()
    }

    fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<String>, Undecodable> {
        let mut fields = Fields::default();
        decoder.decode(block, &mut fields)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let line = |(name, value): (&[u8], &[u8])| format!("{}={}", text(name), text(value));
        Ok(fields.iter().map(line).collect())
    }

    /// RFC 7541, appendix C.3 and C.4: with the same table in the end.
    #[test]
    fn the_examples_of_the_specification_are_read() {
        let plain = [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ];
        let short = [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ];
        let common = ":method=GET,:scheme=http,:path=/,:authority=www.example.com";
        let wanted = [
            common.to_owned(),
            format!("{common},cache-control=no-cache"),
            ":method=GET,:scheme=https,:path=/index.html,:authority=www.example.com,\
             custom-key=custom-value"
                .to_owned(),
        ];
        for blocks in [plain, short] {
            let mut decoder = Decoder::new();
            for (block, wanted) in blocks.iter().zip(&wanted) {
                let fields = decoded(&mut decoder, &bytes(block)).expect("fields");
                assert_eq!(fields.join(","), *wanted);
            }
            assert_eq!(decoder.size, 164);
        }
    }

    #[test]
    fn every_byte_has_its_code() {
        // Of each symbol, padded with the beginning of the end.
        let mut symbols: Vec<u8> = (0..=255).collect();
        symbols.sort_by_key(|symbol| (LENGTHS[usize::from(*symbol)], *symbol));
        let (mut code, mut previous) = (0_u64, 0);
        for symbol in symbols {
            let length = LENGTHS[usize::from(symbol)];
            code <<= length - previous;
            previous = length;
            let padding = (8 - length % 8) % 8;
            let bits = code << padding | ((1 << padding) - 1);
            let count = usize::from((length + padding) / 8);
            let mut out = Vec::new();
            let text = &bits.to_be_bytes()[8 - count..];
            assert_eq!(HUFFMAN.decode(text, &mut out), Ok(()), "{symbol}");
            assert_eq!(out, [symbol]);
            code += 1;
        }
        assert_eq!(code, 0x3fff_ffff, "but for the end of a string");
    }

    #[test]
    fn what_is_encoded_is_read_again() {
        let mut decoder = Decoder::new();
        for length in [0, 1, 126, 127, 128, 254, 255, 16_000] {
            let value = "v".repeat(length);
            let mut block = Vec::new();
            encode(b"name", value.as_bytes(), &mut block);
            let fields = decoded(&mut decoder, &block).expect("fields");
            assert_eq!(fields, [format!("name={value}")]);
        }
        assert_eq!(decoder.size, 0);
    }

    #[test]
    fn broken_blocks_are_seen() {
        for block in [
            &b"\x80"[..],
            b"\xbe",
            b"\x7e\x01a",
            b"\x00",
            b"\x00\x01",
            b"\x00\x01a\x05b",
            b"\x00\x7f\xff\xff\xff\xff\xff\xff",
            b"\xff\xff\xff\xff\xff\x0f",
            b"\x3f\xe2\x1f",
            b"\x82\x20",
            // Padding of a whole byte, of zeros, and the end of a string.
            b"\x00\x01a\x82\x1f\xff",
            b"\x00\x01a\x81\x18",
            b"\x00\x01a\x84\xff\xff\xff\xff",
        ] {
            let decoded = decoded(&mut Decoder::new(), block);
            assert_eq!(decoded, Err(Undecodable), "{}", block.escape_ascii());
        }
    }

    #[test]
    fn hpack_bomb_takes_no_more_than_a_list_may() {
        let mut block = vec![0x40, 1, b'x', 0x7f, 0xa1, 0x1e];
        block.extend([b'y'; 4000]);
        block.extend([0xbe; 12_000]);
        let mut fields = Fields::default();
        let mut decoder = Decoder::new();
        assert_eq!(decoder.decode(&block, &mut fields), Ok(()));
        assert!(fields.too_many);
        assert!(fields.text.len() <= LIST, "{}", fields.text.len());
        assert!(decoder.size <= TABLE);
        assert_eq!(decoder.decode(b"\xbe", &mut fields), Ok(()));
        assert_eq!(fields.iter().count(), 1, "the table is what it was");
    }

    #[test]
    fn the_table_shrinks_when_told() {
        let mut decoder = Decoder::new();
        let mut fields = Fields::default();
        assert_eq!(decoder.decode(b"\x40\x01a\x01b", &mut fields), Ok(()));
        assert_eq!(decoder.size, 34);
        assert_eq!(decoder.decode(b"\x20\x82", &mut fields), Ok(()));
        assert_eq!((decoder.size, decoder.entries.len()), (0, 0));
        assert_eq!(decoder.decode(b"\xbe", &mut fields), Err(Undecodable));
    }
}
