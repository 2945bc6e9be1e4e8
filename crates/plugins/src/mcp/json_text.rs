//! JSON (RFC 8259), read in one pass over its text.
//!
//! A body is read while its sender waits, and little of it decides anything. What is
//! passed over is checked and not copied; what is taken is a slice of the text.

use std::borrow::Cow;

use super::member_names::{MemberName, ObjectNames, OpenNames};

/// Most objects and arrays inside one another.
const MAX_DEPTH: usize = 128;

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

/// A text within the text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quoted<'t> {
    /// What is between its quotes.
    inside: &'t [u8],
    has_escapes: bool,
}

impl<'t> Quoted<'t> {
    /// What it means.
    ///
    /// # Errors
    /// [`JsonError::Malformed`] where half a surrogate pair means nothing.
    pub(super) fn meaning(self) -> Result<Cow<'t, str>> {
        if self.has_escapes {
            return self.unescaped().map(Cow::Owned);
        }
        let inside = std::str::from_utf8(self.inside);
        inside.map(Cow::Borrowed).map_err(|_| JsonError::Malformed)
    }

    /// The bytes of what it means.
    #[inline(always)]
    fn bytes(self) -> Result<Cow<'t, [u8]>> {
        if self.has_escapes {
            let text = self.unescaped()?;
            return Ok(Cow::Owned(text.into_bytes()));
        }
        Ok(Cow::Borrowed(self.inside))
    }

    /// Whether it means this.
    #[inline(always)]
    pub(super) fn is(self, text: &[u8]) -> bool {
        if self.has_escapes {
            return self
                .unescaped()
                .is_ok_and(|meaning| meaning.as_bytes() == text);
        }
        self.inside == text
    }

    #[cold]
    fn unescaped(self) -> Result<String> {
        let quoted = [b"\"", self.inside, b"\""].concat();
        serde_json::from_slice(&quoted).map_err(|_| JsonError::Malformed)
    }
}

/// Goes through a text that should be JSON.
pub(super) struct JsonText<'t> {
    text: &'t [u8],
    at: usize,
    depth: usize,
    /// The names of the objects that are open, unless an object may have one twice.
    names: OpenNames,
    /// Whether no object may have two members of one name, all texts mean something,
    /// and all numbers can be held.
    is_strict: bool,
    /// Whether all of the text is known to be UTF-8.
    is_utf_8: bool,
}

impl<'t> JsonText<'t> {
    /// Text in which no object may have two members of one name, all texts mean
    /// something, and all numbers can be held.
    #[inline(always)]
    pub(super) fn strict(text: &'t [u8]) -> Self {
        Self {
            text,
            at: 0,
            depth: 0,
            names: OpenNames::new(),
            is_strict: true,
            is_utf_8: false,
        }
    }

    /// Text that only has to be JSON.
    pub(super) fn lenient(text: &'t str) -> Self {
        Self {
            is_strict: false,
            is_utf_8: true,
            ..Self::strict(text.as_bytes())
        }
    }

    /// How much of the text was read, in bytes.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// What was read since a position.
    fn since(&self, position: usize) -> &'t [u8] {
        self.text.get(position..self.at).unwrap_or_default()
    }

    /// The next byte. Behind the end it is a control character, which nothing takes.
    #[inline(always)]
    fn byte(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    /// The first byte of what comes next, as [`Self::byte`].
    #[inline(always)]
    pub(super) fn peek(&mut self) -> u8 {
        loop {
            let byte = self.byte();
            if byte > b' ' || !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return byte;
            }
            self.at += 1;
        }
    }

    /// Goes past what has to come next.
    #[inline(always)]
    fn expect(&mut self, byte: u8) -> Result<()> {
        if self.peek() != byte {
            return Err(JsonError::Malformed);
        }
        self.at += 1;
        Ok(())
    }

    /// Goes past a comma, or the end of an object or an array; whether more comes.
    #[inline(always)]
    fn goes_on(&mut self, end: u8) -> Result<bool> {
        let byte = self.peek();
        if byte != b',' && byte != end {
            return Err(JsonError::Malformed);
        }
        self.at += 1;
        Ok(byte == b',')
    }

    /// The text has no more than blanks.
    pub(super) fn end(&mut self) -> Result<()> {
        self.peek();
        if self.at >= self.text.len() {
            Ok(())
        } else {
            Err(JsonError::Malformed)
        }
    }

    /// Reads an object; `member` reads the value of the member that it is called for.
    #[inline(always)]
    pub(super) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, MemberName<'_>) -> Result<()>,
    ) -> Result<()> {
        self.expect(b'{')?;
        self.deeper()?;
        let mut names = ObjectNames::begin(&self.names);
        if self.peek() == b'}' {
            self.at += 1;
        } else {
            loop {
                self.peek();
                let decoded: Cow<'t, [u8]>;
                let (name, is_new) = match self.name()? {
                    Ok(name) => {
                        let is_new = !self.is_strict || names.add(&mut self.names, name);
                        (name, is_new)
                    }
                    Err(text) => {
                        decoded = text;
                        let is_new =
                            !self.is_strict || names.add_decoded(&self.names, decoded.clone());
                        (MemberName::of(&decoded), is_new)
                    }
                };
                self.expect(b':')?;
                if !is_new {
                    return Err(JsonError::MemberTwice);
                }
                member(self, name)?;
                if !self.goes_on(b'}')? {
                    break;
                }
            }
        }
        names.end(&mut self.names);
        self.depth -= 1;
        Ok(())
    }

    /// Reads the name of a member; in bytes of its own where it is written with escapes.
    #[inline(always)]
    fn name(&mut self) -> Result<std::result::Result<MemberName<'t>, Cow<'t, [u8]>>> {
        if let Some((word, text)) = self.short_string() {
            return Ok(Ok(MemberName::of_word(word, text)));
        }
        let name = self.string()?;
        if name.has_escapes {
            return Ok(Err(name.bytes()?));
        }
        Ok(Ok(MemberName::of(name.inside)))
    }

    /// Reads an array; `element` reads each of its values.
    pub(super) fn array(&mut self, mut element: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.expect(b'[')?;
        self.deeper()?;
        if self.peek() == b']' {
            self.at += 1;
        } else {
            loop {
                self.peek();
                element(self)?;
                if !self.goes_on(b']')? {
                    break;
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    #[inline(always)]
    fn deeper(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth < MAX_DEPTH {
            Ok(())
        } else {
            Err(JsonError::Malformed)
        }
    }

    /// Reads a text. Most are short and plain.
    #[inline(always)]
    pub(super) fn string(&mut self) -> Result<Quoted<'t>> {
        if let Some((_, inside)) = self.short_string() {
            return Ok(Quoted {
                inside,
                has_escapes: false,
            });
        }
        let start = self.at + 1;
        let has_escapes = self.skip_string()?;
        let inside = self.text.get(start..self.at - 1);
        Ok(Quoted {
            inside: inside.unwrap_or_default(),
            has_escapes,
        })
    }

    /// Reads a text that ends in its first two words of eight bytes, and has nothing but
    /// plain characters of ASCII; its first word, and what is between the quotes.
    #[inline(always)]
    fn short_string(&mut self) -> Option<(u64, &'t [u8])> {
        // The quote, the word, and the byte behind it.
        let rest = self.text.get(self.at..)?;
        let [b'"', inside @ ..] = rest.first_chunk::<10>()? else {
            return None;
        };
        let word = u64::from_le_bytes(*inside.first_chunk()?);
        // Without a mark all of the word is plain.
        let mut length = first_mark(stops(word) | word & HIGH);
        let mut end = *inside.get(length)?;
        if length == 8 && end != b'"' {
            let [_, inside @ ..] = rest.first_chunk::<18>()?;
            let word = u64::from_le_bytes(*inside.last_chunk::<9>()?.first_chunk()?);
            length += first_mark(stops(word) | word & HIGH);
            end = *inside.get(length)?;
        }
        if end != b'"' {
            return None;
        }
        self.at += length + 2;
        Some((word, rest.get(1..=length)?))
    }

    /// Goes past any text; whether it has escapes.
    #[inline(never)]
    fn skip_string(&mut self) -> Result<bool> {
        if self.byte() != b'"' {
            return Err(JsonError::Malformed);
        }
        self.at += 1;
        let mut has_escapes = false;
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let run = PlainRun::of(rest);
            self.at += run.length;
            if !run.is_ascii {
                self.check_utf_8()?;
            }
            match self.byte() {
                b'"' => break,
                b'\\' => {
                    has_escapes = true;
                    self.at += 1;
                    self.escape()?;
                }
                // The text ends, or has a control character.
                _ => return Err(JsonError::Malformed),
            }
        }
        self.at += 1;
        Ok(has_escapes)
    }

    /// Bytes beyond ASCII are in texts alone: all of the text is looked at once, when
    /// the first is met.
    #[cold]
    fn check_utf_8(&mut self) -> Result<()> {
        self.is_utf_8 = self.is_utf_8 || std::str::from_utf8(self.text).is_ok();
        if self.is_utf_8 {
            Ok(())
        } else {
            Err(JsonError::Malformed)
        }
    }

    /// Goes past what is behind a backslash.
    fn escape(&mut self) -> Result<()> {
        let kind = self.byte();
        self.at += 1;
        match kind {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(()),
            b'u' => {
                let unit = self.code_unit()?;
                match unit {
                    0xd800..0xdc00 if self.is_strict => self.second_half(),
                    0xdc00..0xe000 if self.is_strict => Err(JsonError::Malformed),
                    _ => Ok(()),
                }
            }
            _ => Err(JsonError::Malformed),
        }
    }

    fn code_unit(&mut self) -> Result<u32> {
        let digits = self.text.get(self.at..self.at + 4).unwrap_or_default();
        let mut unit = (!digits.is_empty()).then_some(0);
        for digit in digits {
            let digit = char::from(*digit).to_digit(16);
            unit = unit.zip(digit).map(|(unit, digit)| unit * 16 + digit);
        }
        self.at += 4;
        unit.ok_or(JsonError::Malformed)
    }

    /// Goes past the second half of a surrogate pair.
    fn second_half(&mut self) -> Result<()> {
        self.word(b"\\u")?;
        match self.code_unit()? {
            0xdc00..0xe000 => Ok(()),
            _ => Err(JsonError::Malformed),
        }
    }

    /// Goes past a value; its text.
    #[inline(always)]
    pub(super) fn skip(&mut self) -> Result<&'t [u8]> {
        let first = self.peek();
        let start = self.at;
        match first {
            b'"' => {
                if self.short_string().is_none() {
                    self.skip_string()?;
                }
            }
            b'{' => self.skip_object()?,
            b'1'..=b'9' => self.skip_integer()?,
            b'-' | b'0' => self.number()?,
            _ => self.skip_other(first)?,
        }
        Ok(self.since(start))
    }

    #[inline(never)]
    fn skip_object(&mut self) -> Result<()> {
        self.object(|json, _| json.skip().map(drop))
    }

    #[inline(never)]
    fn skip_other(&mut self, first: u8) -> Result<()> {
        match first {
            b'[' => self.array(|json| json.skip().map(drop)),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => Err(JsonError::Malformed),
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<()> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if rest.starts_with(word) {
            self.at += word.len();
            Ok(())
        } else {
            Err(JsonError::Malformed)
        }
    }

    /// Goes past a number that does not begin with zero. Most are short, and whole.
    #[inline(always)]
    fn skip_integer(&mut self) -> Result<()> {
        let start = self.at;
        while self.byte().is_ascii_digit() {
            self.at += 1;
        }
        if matches!(self.byte(), b'.' | b'e' | b'E') || self.at - start > LONG_NUMBER {
            self.at = start;
            return self.number();
        }
        Ok(())
    }

    #[inline(never)]
    fn number(&mut self) -> Result<()> {
        let start = self.at;
        let mut has_exponent = false;
        self.at += usize::from(self.byte() == b'-');
        if self.byte() == b'0' {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.byte() == b'.' {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.byte(), b'e' | b'E') {
            self.at += 1;
            has_exponent = true;
            self.at += usize::from(matches!(self.byte(), b'+' | b'-'));
            self.digits()?;
        }
        if self.is_strict && (has_exponent || self.at - start > LONG_NUMBER) {
            // Readers differ in what they make of a number that they can't hold.
            let number = std::str::from_utf8(self.since(start)).ok();
            let number = number.and_then(|number| number.parse::<f64>().ok());
            let is_held = number.is_some_and(f64::is_finite);
            return is_held.then_some(()).ok_or(JsonError::Malformed);
        }
        Ok(())
    }

    #[inline(always)]
    fn digits(&mut self) -> Result<()> {
        let start = self.at;
        while self.byte().is_ascii_digit() {
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

/// One in each byte of a word.
const EACH: u64 = u64::from_ne_bytes([1; 8]);
/// The highest bit of each byte of a word.
const HIGH: u64 = EACH << 7;

/// Marks the first byte of a word that is a stop, and some behind it. Quotes lie behind
/// the control characters once a bit of all is turned.
#[inline(always)]
fn stops(word: u64) -> u64 {
    let turned = word ^ (EACH * 2);
    let quotes = turned.wrapping_sub(EACH * 0x21);
    let escapes = (word ^ (EACH * u64::from(b'\\'))).wrapping_sub(EACH);
    (quotes | escapes) & !word & HIGH
}

/// The first byte of a word that has a mark; behind the word, if none has.
#[inline(always)]
fn first_mark(marks: u64) -> usize {
    marks.trailing_zeros() as usize / 8
}

/// The plain bytes that a text begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PlainRun {
    length: usize,
    /// Whether they are ASCII. Where the run is short, what follows it may count too.
    is_ascii: bool,
}

impl PlainRun {
    /// Names are short, and most bytes of a body are in long texts: these are searched
    /// many bytes at a time.
    #[inline(always)]
    fn of(bytes: &[u8]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let words = words.get(..SHORT_WORDS).unwrap_or(words);
        let mut all = 0;
        for (place, word) in words.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            all |= word;
            let stops = stops(word);
            if stops != 0 {
                return Self {
                    length: place * 8 + stops.trailing_zeros() as usize / 8,
                    is_ascii: all & HIGH == 0,
                };
            }
        }
        let seen = words.len() * 8;
        let long = Self::of_long(bytes.get(seen..).unwrap_or_default());
        Self {
            length: seen + long.length,
            is_ascii: all & HIGH == 0 && long.is_ascii,
        }
    }

    fn of_long(bytes: &[u8]) -> Self {
        let stop = memchr::memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
        let plain = bytes.get(..stop).unwrap_or_default();
        let most = most_turned(plain);
        let control = if most < 0xe0 {
            None
        } else {
            plain.iter().position(|byte| is_stop(*byte))
        };
        Self {
            length: control.unwrap_or(stop),
            is_ascii: most < 0x60,
        }
    }
}

/// The last of some characters, in an order in which those of ASCII come first, then
/// others, and control characters last.
fn most_turned(bytes: &[u8]) -> u8 {
    let turned = |byte: u8| byte.wrapping_sub(0x20);
    let mut most = [0; 32];
    let mut add = |chunk: &[u8; 32]| {
        for (most, byte) in most.iter_mut().zip(chunk) {
            *most = turned(*byte).max(*most);
        }
    };
    let (chunks, rest) = bytes.as_chunks();
    chunks.iter().for_each(&mut add);
    match bytes.last_chunk() {
        // Some are looked at twice.
        Some(last) => add(last),
        None => return rest.iter().fold(0, |most, byte| turned(*byte).max(most)),
    }
    most.into_iter().fold(0, u8::max)
}

#[cfg(test)]
mod tests;
