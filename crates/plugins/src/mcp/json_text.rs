//! JSON (RFC 8259), read in one pass over its text.
//!
//! A body is read while its sender waits, and little of it decides anything. What is
//! passed over is checked and not copied; what is taken is a slice of the text.

use std::borrow::Cow;
use std::collections::HashSet;

/// Most objects and arrays inside one another.
const MAX_DEPTH: usize = 128;

/// Most names of an object that are compared one by one.
pub(super) const FEW: usize = 16;

/// How many words of eight bytes are looked at before a text counts as long.
const SHORT_WORDS: usize = 3;

/// Longest number without an exponent that every reader can hold, about.
const LONG_NUMBER: usize = 300;

/// Why a text can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JsonError {
    /// It is no JSON, or too deep.
    Malformed,
    /// An object has two members of one name.
    MemberTwice,
}

type Result<T> = std::result::Result<T, JsonError>;

/// A text within the text, with its quotes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quoted<'t> {
    quoted: &'t str,
    has_escapes: bool,
}

impl<'t> Quoted<'t> {
    /// What it means.
    ///
    /// # Errors
    /// [`JsonError::Malformed`] where half a surrogate pair means nothing.
    pub(super) fn meaning(self) -> Result<Cow<'t, str>> {
        let inside = self.quoted.get(1..self.quoted.len() - 1);
        match inside {
            Some(inside) if !self.has_escapes => Ok(Cow::Borrowed(inside)),
            _ => {
                let meaning = serde_json::from_str::<String>(self.quoted);
                meaning.map(Cow::Owned).map_err(|_| JsonError::Malformed)
            }
        }
    }
}

/// Goes through a text that should be JSON.
pub(super) struct JsonText<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
    /// The names so far of all objects that are open, where a name may be there once.
    names: Option<Vec<Cow<'t, str>>>,
}

impl<'t> JsonText<'t> {
    /// Text in which no object may have two members of one name, all texts mean
    /// something, and all numbers can be held.
    pub(super) fn strict(text: &'t str) -> Self {
        Self {
            names: Some(Vec::with_capacity(FEW)),
            ..Self::lenient(text)
        }
    }

    /// Text that only has to be JSON.
    pub(super) fn lenient(text: &'t str) -> Self {
        Self {
            text,
            at: 0,
            depth: 0,
            names: None,
        }
    }

    /// How much of the text was read, in bytes.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// What was read since a position.
    pub(super) fn since(&self, position: usize) -> &'t str {
        self.text.get(position..self.at).unwrap_or_default()
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The first byte of what comes next.
    pub(super) fn peek(&mut self) -> Result<u8> {
        loop {
            match self.byte() {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                Some(byte) => return Ok(byte),
                None => return Err(JsonError::Malformed),
            }
        }
    }

    fn takes(&mut self, byte: u8) -> Result<bool> {
        let is_it = self.peek()? == byte;
        self.at += usize::from(is_it);
        Ok(is_it)
    }

    fn expect(&mut self, byte: u8) -> Result<()> {
        if self.takes(byte)? {
            Ok(())
        } else {
            Err(JsonError::Malformed)
        }
    }

    /// The text has no more than blanks.
    pub(super) fn end(&mut self) -> Result<()> {
        match self.peek() {
            Ok(_) => Err(JsonError::Malformed),
            Err(_) => Ok(()),
        }
    }

    /// Reads an object; `member` reads the value of the member that it is called for.
    pub(super) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, &str) -> Result<()>,
    ) -> Result<()> {
        self.expect(b'{')?;
        self.deeper()?;
        let first = self.names.as_ref().map_or(0, Vec::len);
        let mut more = None;
        if !self.takes(b'}')? {
            loop {
                self.peek()?;
                let name = self.string()?.meaning()?;
                self.expect(b':')?;
                if self.has_name(first, more.as_ref(), &name) {
                    return Err(JsonError::MemberTwice);
                }
                member(self, &name)?;
                match &mut self.names {
                    Some(names) if names.len() < first + FEW => names.push(name),
                    Some(_) => drop(more.get_or_insert_with(HashSet::new).insert(name)),
                    None => {}
                }
                if !self.takes(b',')? {
                    self.expect(b'}')?;
                    break;
                }
            }
        }
        if let Some(names) = &mut self.names {
            names.truncate(first);
        }
        self.depth -= 1;
        Ok(())
    }

    /// Whether an object has a member of this name, among the few whose names begin at
    /// `first` or among more.
    fn has_name(&self, first: usize, more: Option<&HashSet<Cow<'t, str>>>, name: &str) -> bool {
        let few = self.names.as_ref().and_then(|names| names.get(first..));
        let few = few.unwrap_or_default();
        few.iter().any(|known| known == name) || more.is_some_and(|more| more.contains(name))
    }

    /// Reads an array; `element` reads each of its values.
    pub(super) fn array(&mut self, mut element: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.expect(b'[')?;
        self.deeper()?;
        if !self.takes(b']')? {
            loop {
                self.peek()?;
                element(self)?;
                if !self.takes(b',')? {
                    self.expect(b']')?;
                    break;
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn deeper(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth < MAX_DEPTH {
            Ok(())
        } else {
            Err(JsonError::Malformed)
        }
    }

    /// Reads a text.
    pub(super) fn string(&mut self) -> Result<Quoted<'t>> {
        let start = self.at;
        self.expect(b'"')?;
        let mut has_escapes = false;
        loop {
            let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
            self.at += plain_length(rest);
            match self.byte() {
                Some(b'"') => break,
                Some(b'\\') => {
                    has_escapes = true;
                    self.at += 1;
                    self.escape()?;
                }
                // The text ends, or has a control character.
                _ => return Err(JsonError::Malformed),
            }
        }
        self.at += 1;
        let quoted = Quoted {
            quoted: self.since(start),
            has_escapes,
        };
        Ok(quoted)
    }

    /// Goes past what is behind a backslash.
    fn escape(&mut self) -> Result<()> {
        let kind = self.byte().ok_or(JsonError::Malformed)?;
        self.at += 1;
        match kind {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(()),
            b'u' => {
                let unit = self.code_unit()?;
                match unit {
                    0xd800..0xdc00 if self.names.is_some() => self.second_half(),
                    0xdc00..0xe000 if self.names.is_some() => Err(JsonError::Malformed),
                    _ => Ok(()),
                }
            }
            _ => Err(JsonError::Malformed),
        }
    }

    fn code_unit(&mut self) -> Result<u32> {
        let digits = self.text.get(self.at..self.at + 4);
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let unit = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        self.at += 4;
        unit.ok_or(JsonError::Malformed)
    }

    /// Goes past the second half of a surrogate pair.
    fn second_half(&mut self) -> Result<()> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if !rest.starts_with("\\u") {
            return Err(JsonError::Malformed);
        }
        self.at += 2;
        match self.code_unit()? {
            0xdc00..0xe000 => Ok(()),
            _ => Err(JsonError::Malformed),
        }
    }

    /// Goes past a value; its text.
    pub(super) fn skip(&mut self) -> Result<&'t str> {
        let first = self.peek()?;
        let start = self.at;
        match first {
            b'"' => drop(self.string()?),
            b'{' => self.object(|json, _| json.skip().map(drop))?,
            b'[' => self.array(|json| json.skip().map(drop))?,
            b't' => self.word("true")?,
            b'f' => self.word("false")?,
            b'n' => self.word("null")?,
            _ => self.number()?,
        }
        Ok(self.since(start))
    }

    fn word(&mut self, word: &str) -> Result<()> {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        if rest.starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(())
        } else {
            Err(JsonError::Malformed)
        }
    }

    fn number(&mut self) -> Result<()> {
        let start = self.at;
        let mut has_exponent = false;
        self.at += usize::from(self.byte() == Some(b'-'));
        if self.byte() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.byte(), Some(b'e' | b'E')) {
            self.at += 1;
            has_exponent = true;
            self.at += usize::from(matches!(self.byte(), Some(b'+' | b'-')));
            self.digits()?;
        }
        let number = self.since(start);
        let may_be_large = has_exponent || number.len() > LONG_NUMBER;
        if self.names.is_some() && may_be_large {
            // Readers differ in what they make of a number that they can't hold.
            let number = number.parse::<f64>().map_err(|_| JsonError::Malformed)?;
            return number.is_finite().then_some(()).ok_or(JsonError::Malformed);
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<()> {
        let start = self.at;
        while self.byte().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at > start {
            Ok(())
        } else {
            Err(JsonError::Malformed)
        }
    }
}

/// Whether a byte ends a run of plain ones in a text: its end, an escape, and control
/// characters, which a text can't have.
fn is_stop(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | ..0x20)
}

/// The first byte of a word that is a stop, if one is. Each test marks no byte before
/// the first that it is about, and may mark some behind it.
fn first_stop(word: [u8; 8]) -> Option<usize> {
    const EACH: u64 = u64::from_ne_bytes([1; 8]);
    let word = u64::from_le_bytes(word);
    let below = |word: u64, bound: u8| word.wrapping_sub(EACH * u64::from(bound)) & !word;
    let is = |byte: u8| below(word ^ (EACH * u64::from(byte)), 1);
    let marks = (below(word, 0x20) | is(b'"') | is(b'\\')) & (EACH << 7);
    (marks != 0).then(|| marks.trailing_zeros() as usize / 8)
}

/// How many bytes of a text are plain. Names are short, and most bytes of a body are in
/// long texts: these are searched many bytes at a time.
fn plain_length(bytes: &[u8]) -> usize {
    let (words, _) = bytes.as_chunks::<8>();
    let words = words.get(..SHORT_WORDS).unwrap_or(words);
    for (place, word) in words.iter().enumerate() {
        if let Some(stop) = first_stop(*word) {
            return place * 8 + stop;
        }
    }
    let seen = words.len() * 8;
    let long = bytes.get(seen..).unwrap_or_default();
    let stop = memchr::memchr2(b'"', b'\\', long).unwrap_or(long.len());
    let plain = long.get(..stop).unwrap_or_default();
    let least = plain.iter().fold(u8::MAX, |least, byte| least.min(*byte));
    if least < 0x20 {
        seen + plain.iter().position(|byte| is_stop(*byte)).unwrap_or(stop)
    } else {
        seen + stop
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::de::IgnoredAny;
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_stop_is_found_wherever_it_is_and_whatever_is_round_it() {
        for byte in 0..=u8::MAX {
            for filling in [b'a', b' ', 0x80, u8::MAX] {
                for place in 0..40 {
                    let mut text = [filling; 40];
                    text[place] = byte;
                    let expected = text.iter().position(|byte| is_stop(*byte));
                    let expected = expected.unwrap_or(text.len());
                    assert_eq!(plain_length(&text), expected, "{byte} {filling} {place}");
                    assert_eq!(plain_length(&text[..place]), place);
                }
            }
        }
    }

    fn passes(mut json: JsonText<'_>) -> Result<()> {
        json.skip()?;
        json.end()
    }

    /// Texts that are JSON, or nearly.
    fn texts() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            "[\\[\\]{},:\" ]",
            Just("\"a\":".to_owned()),
            Just("\"a\\u0062\"".to_owned()),
            "(true|false|null|-|0|1|12|\\.|e|E|\\+|1\\.5|-0|1e5|1e309|-2.5E+999|1e-999|01)",
            "\"(\\\\[\"\\\\/bfnrtux]|\\\\u[0-9a-fdD]{4}|[a-zä\u{7f}\u{1f}]){0,3}\"",
            "[\t\n\r\u{0}a-z\\\\]",
        ];
        let pieces = proptest::collection::vec(piece, 0..12);
        pieces.prop_map(|pieces| pieces.concat())
    }

    /// A document, written and then perhaps damaged.
    fn documents() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "\\PC{0,40}".prop_map(Value::from),
        ];
        let tree = leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                proptest::collection::btree_map("\\PC{0,8}", inner, 0..5)
                    .prop_map(Value::from_iter),
            ]
        });
        (tree, any::<prop::sample::Index>(), any::<u8>(), 0..3_u8).prop_map(
            |(tree, place, byte, damage)| {
                let mut bytes = tree.to_string().into_bytes();
                let place = place.index(bytes.len());
                match damage {
                    0 => {}
                    1 => bytes[place] = byte & 0x7f,
                    _ => drop(bytes.remove(place)),
                }
                String::from_utf8_lossy(&bytes).into_owned()
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn what_is_json_is_what_the_library_takes_for_it(
            text in prop_oneof![texts(), documents()],
        ) {
            let by_library = serde_json::from_str::<IgnoredAny>(&text).is_ok();
            prop_assert_eq!(passes(JsonText::lenient(&text)).is_ok(), by_library, "{}", text);
            // The strict reader takes what the library can hold, but for names that are
            // there twice.
            let strictly = passes(JsonText::strict(&text));
            let can_be_held = serde_json::from_str::<Value>(&text).is_ok();
            match strictly {
                Err(JsonError::MemberTwice) => {}
                _ => prop_assert_eq!(strictly.is_ok(), can_be_held, "{}", text),
            }
        }
    }

    #[test]
    fn depth_is_bounded_as_in_the_library() {
        for depth in [1, 126, 127, 128, 129, 100_000] {
            for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
                let text = format!("{}1{}", open.repeat(depth), close.repeat(depth));
                let by_library = serde_json::from_str::<Value>(&text).is_ok();
                assert_eq!(
                    passes(JsonText::strict(&text)).is_ok(),
                    by_library,
                    "{depth}"
                );
            }
        }
    }

    #[test]
    fn half_a_surrogate_pair_means_nothing() {
        for text in [
            r#""\ud800""#,
            r#""\udc00""#,
            r#""\ud800\n""#,
            r#""\ud800\ud800""#,
        ] {
            assert_eq!(passes(JsonText::strict(text)), Err(JsonError::Malformed));
            assert_eq!(passes(JsonText::lenient(text)), Ok(()));
            assert!(
                JsonText::lenient(text)
                    .string()
                    .and_then(Quoted::meaning)
                    .is_err()
            );
        }
        assert_eq!(passes(JsonText::strict(r#""\ud83d\ude00""#)), Ok(()));
    }

    #[test]
    fn a_name_twice_is_found_in_its_own_object_alone() {
        let twice = [
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"b":{"c":[{"d":1,"\u0064":2}]}}"#,
            r#"{"b":{"a":1},"b":1}"#,
        ];
        for text in twice {
            assert_eq!(passes(JsonText::strict(text)), Err(JsonError::MemberTwice));
            assert_eq!(passes(JsonText::lenient(text)), Ok(()));
        }
        for text in [r#"{"a":{"a":{"a":1}},"b":{"a":1}}"#, r#"[{"a":1},{"a":1}]"#] {
            assert_eq!(passes(JsonText::strict(text)), Ok(()));
        }
    }

    proptest! {
        #[test]
        fn a_run_of_plain_bytes_ends_at_the_first_that_is_none(
            bytes in proptest::collection::vec(
                prop_oneof![8 => any::<u8>(), 1 => Just(b'"'), 40 => Just(b'x'), 5 => 0x80..=0xff_u8],
                0..80,
            ),
        ) {
            let stops = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
            let first = bytes.iter().position(stops).unwrap_or(bytes.len());
            prop_assert_eq!(plain_length(&bytes), first);
        }
    }

    #[test]
    fn texts_of_every_length_end_where_they_end() {
        for length in 0..100 {
            let text = format!("\"{}\"", "x".repeat(length));
            let mut json = JsonText::strict(&text);
            let meaning = json.string().and_then(Quoted::meaning).expect("a text");
            assert_eq!(meaning.len(), length);
            for control in ['\u{0}', '\u{1f}', '\n'] {
                let text = format!("\"{}{control}\"", "x".repeat(length));
                assert_eq!(passes(JsonText::strict(&text)), Err(JsonError::Malformed));
            }
        }
    }
}
