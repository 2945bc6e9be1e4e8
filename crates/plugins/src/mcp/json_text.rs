//! JSON (RFC 8259), read in one pass over its text.
//!
//! A body is read while its sender waits, and little of it decides anything. What is
//! passed over is checked and not copied; what is taken is a slice of the text.

use std::borrow::Cow;

use super::member_names::{MemberName, ObjectNames, OpenNames};

/// Most objects and arrays inside one another.
const MAX_DEPTH: usize = 128;

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
    /// What of it is yet to be read.
    rest: &'t [u8],
    depth: usize,
    /// The names of the objects that are open, unless an object may have one twice.
    names: OpenNames<'t>,
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
            rest: text,
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
    #[inline(always)]
    pub(super) fn position(&self) -> usize {
        self.text.len() - self.rest.len()
    }

    /// What was read since a position.
    #[inline(always)]
    fn since(&self, position: usize) -> &'t [u8] {
        let read = position..self.position();
        self.text.get(read).unwrap_or_default()
    }

    /// The next byte. Behind the end it is a control character, which nothing takes.
    #[inline(always)]
    fn byte(&self) -> u8 {
        self.rest.first().copied().unwrap_or(0)
    }

    /// Goes past some bytes, as far as there are so many.
    #[inline(always)]
    fn pass(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }

    /// The first byte of what comes next, as [`Self::byte`].
    #[inline(always)]
    pub(super) fn peek(&mut self) -> u8 {
        loop {
            let byte = self.byte();
            if byte > b' ' || !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return byte;
            }
            self.pass(1);
        }
    }

    /// Goes past what has to come next.
    #[inline(always)]
    fn expect(&mut self, byte: u8) -> Result<()> {
        if self.peek() != byte {
            return Err(JsonError::Malformed);
        }
        self.pass(1);
        Ok(())
    }

    /// Goes past a comma, or the end of an object or an array; whether more comes.
    #[inline(always)]
    fn goes_on(&mut self, end: u8) -> Result<bool> {
        let byte = self.peek();
        if byte != b',' && byte != end {
            return Err(JsonError::Malformed);
        }
        self.pass(1);
        Ok(byte == b',')
    }

    /// The text has no more than blanks.
    pub(super) fn end(&mut self) -> Result<()> {
        self.peek();
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(JsonError::Malformed)
        }
    }

    /// Reads an object; `member` reads the value of the member that it is called for.
    #[inline(always)]
    pub(super) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, &MemberName<'_>) -> Result<()>,
    ) -> Result<()> {
        self.expect(b'{')?;
        self.deeper()?;
        let mut names = ObjectNames::begin(self.position(), &self.names);
        if self.peek() == b'}' {
            self.pass(1);
        } else {
            loop {
                let name = match self.short_name() {
                    Some(name) if !self.is_strict || names.add_short(&mut self.names, name.key) => {
                        name
                    }
                    Some(_) => return Err(JsonError::MemberTwice),
                    None => self.any_name(&mut names)?,
                };
                member(self, &name)?;
                if !self.goes_on(b'}')? {
                    break;
                }
            }
        }
        names.end(&mut self.names);
        self.depth -= 1;
        Ok(())
    }

    /// Reads a name and the colon behind it, if the name is short and plain, and no blanks
    /// are round it.
    #[inline(always)]
    fn short_name(&mut self) -> Option<MemberName<'t>> {
        let [b'"', inside @ ..] = self.rest.first_chunk::<10>()? else {
            return None;
        };
        let word = u64::from_le_bytes(*inside.first_chunk()?);
        let length = first_mark(stops(word) | word & HIGH);
        let end = inside.get(length..length + 2)?;
        if length > MemberName::SHORT || end != b"\":" {
            return None;
        }
        let text = self.rest.get(1..=length)?;
        self.pass(length + 3);
        Some(MemberName::of_word(word, text))
    }

    /// Reads any name and the colon behind it.
    #[inline(never)]
    fn any_name(&mut self, names: &mut ObjectNames<'t>) -> Result<MemberName<'t>> {
        self.peek();
        let name = match self.short_string() {
            Some((word, text)) => MemberName::of_word(word, text),
            None => MemberName::of(self.string()?.bytes()?),
        };
        self.expect(b':')?;
        let is_new = !self.is_strict || names.add(&mut self.names, &name);
        is_new.then_some(name).ok_or(JsonError::MemberTwice)
    }

    /// Reads an array; `element` reads each of its values.
    pub(super) fn array(&mut self, mut element: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.expect(b'[')?;
        self.deeper()?;
        if self.peek() == b']' {
            self.pass(1);
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
        let start = self.position();
        let has_escapes = self.skip_string()?;
        let inside = match self.since(start) {
            [b'"', inside @ .., b'"'] => inside,
            _ => &[],
        };
        Ok(Quoted {
            inside,
            has_escapes,
        })
    }

    /// Reads a text that ends in its first two words of eight bytes, and has nothing but
    /// plain characters of ASCII; its first word, and what is between the quotes.
    #[inline(always)]
    fn short_string(&mut self) -> Option<(u64, &'t [u8])> {
        // The quote, the word, and the byte behind it.
        let [b'"', inside @ ..] = self.rest.first_chunk::<10>()? else {
            return None;
        };
        let word = u64::from_le_bytes(*inside.first_chunk()?);
        // Without a mark all of the word is plain.
        let mut length = first_mark(stops(word) | word & HIGH);
        if length == 8 && inside[8] != b'"' {
            let second = self.rest.get(9..18)?;
            let word = u64::from_le_bytes(*second.first_chunk()?);
            length += first_mark(stops(word) | word & HIGH);
        }
        let (text, behind) = self.rest.get(1..)?.split_at_checked(length)?;
        let [b'"', rest @ ..] = behind else {
            return None;
        };
        self.rest = rest;
        Some((word, text))
    }

    /// Goes past any text; whether it has escapes.
    #[inline(never)]
    fn skip_string(&mut self) -> Result<bool> {
        if self.byte() != b'"' {
            return Err(JsonError::Malformed);
        }
        self.pass(1);
        let mut has_escapes = false;
        loop {
            let run = PlainRun::of(self.rest);
            self.pass(run.length);
            if !run.is_ascii {
                self.check_utf_8()?;
            }
            match self.byte() {
                b'"' => break,
                b'\\' => {
                    has_escapes = true;
                    self.pass(1);
                    self.escape()?;
                }
                // The text ends, or has a control character.
                _ => return Err(JsonError::Malformed),
            }
        }
        self.pass(1);
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
        self.pass(1);
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
        let digits = self.rest.get(..4).unwrap_or_default();
        let mut unit = (!digits.is_empty()).then_some(0);
        for digit in digits {
            let digit = char::from(*digit).to_digit(16);
            unit = unit.zip(digit).map(|(unit, digit)| unit * 16 + digit);
        }
        self.pass(4);
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
        let start = self.position();
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
        let rest = self.rest.strip_prefix(word);
        self.rest = rest.ok_or(JsonError::Malformed)?;
        Ok(())
    }

    /// Goes past a number that does not begin with zero. Most are short, and whole.
    #[inline(always)]
    fn skip_integer(&mut self) -> Result<()> {
        let start = self.rest;
        while self.byte().is_ascii_digit() {
            self.pass(1);
        }
        let length = start.len() - self.rest.len();
        if matches!(self.byte(), b'.' | b'e' | b'E') || length > LONG_NUMBER {
            self.rest = start;
            return self.number();
        }
        Ok(())
    }

    #[inline(never)]
    fn number(&mut self) -> Result<()> {
        let start = self.position();
        let mut has_exponent = false;
        self.pass(usize::from(self.byte() == b'-'));
        if self.byte() == b'0' {
            self.pass(1);
        } else {
            self.digits()?;
        }
        if self.byte() == b'.' {
            self.pass(1);
            self.digits()?;
        }
        if matches!(self.byte(), b'e' | b'E') {
            self.pass(1);
            has_exponent = true;
            self.pass(usize::from(matches!(self.byte(), b'+' | b'-')));
            self.digits()?;
        }
        let number = self.since(start);
        if self.is_strict && (has_exponent || number.len() > LONG_NUMBER) {
            // Readers differ in what they make of a number that they can't hold.
            let number = std::str::from_utf8(number).ok();
            let number = number.and_then(|number| number.parse::<f64>().ok());
            let is_held = number.is_some_and(f64::is_finite);
            return is_held.then_some(()).ok_or(JsonError::Malformed);
        }
        Ok(())
    }

    #[inline(always)]
    fn digits(&mut self) -> Result<()> {
        let start = self.rest.len();
        while self.byte().is_ascii_digit() {
            self.pass(1);
        }
        if self.rest.len() < start {
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
    /// Short texts do not come here, and most bytes of a body are in long ones: these are
    /// searched many bytes at a time.
    fn of(bytes: &[u8]) -> Self {
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
    if bytes.len() < 64 {
        most_turned_of_chunks::<16>(bytes)
    } else {
        most_turned_of_chunks::<64>(bytes)
    }
}

/// The same, found in all places of chunks at once.
#[inline(always)]
fn most_turned_of_chunks<const LENGTH: usize>(bytes: &[u8]) -> u8 {
    let turned = |byte: u8| byte.wrapping_sub(0x20);
    let mut most = [0; LENGTH];
    let mut add = |chunk: &[u8; LENGTH]| {
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
