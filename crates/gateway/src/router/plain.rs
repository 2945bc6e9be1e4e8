//! Expressions that need no engine: literals and classes in a row, each
//! repeated or not, as most expressions of paths are. They take some 100 bytes
//! and match in the time of a comparison.

/// A row of steps, anchored at the start.
#[derive(Debug)]
pub(super) struct Plain {
    steps: Box<[Step]>,
    /// Whether the match must reach the end of the text.
    to_end: bool,
}

#[derive(Debug, Clone)]
enum Step {
    Text(Box<[u8]>),
    Class(Set, u32, u32),
}

/// A set of bytes: a bit for each ASCII character, and whether those beyond are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Set([u64; 2], bool);

const ANY_NUMBER: u32 = u32::MAX;
const NOTHING: Set = Set([0, 0], false);
/// What `.` stands for: all but the line feed.
const DOT: Set = Set([!(1 << b'\n'), !0], true);

impl Set {
    fn has(self, byte: u8) -> bool {
        match self.0.get(usize::from(byte >> 6)) {
            Some(bits) => bits >> (byte & 63) & 1 == 1,
            None => self.1,
        }
    }

    fn with(mut self, byte: u8) -> Self {
        if byte < 128 {
            self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
        }
        self
    }

    fn range(from: u8, to: u8) -> Self {
        (from..=to).fold(NOTHING, Self::with)
    }

    fn or(self, other: Self) -> Self {
        Self(
            [self.0[0] | other.0[0], self.0[1] | other.0[1]],
            self.1 || other.1,
        )
    }

    fn not(self) -> Self {
        Self([!self.0[0], !self.0[1]], !self.1)
    }

    fn meets(self, other: Self) -> bool {
        let bits = self.0.iter().zip(other.0);
        bits.into_iter().any(|(own, other)| own & other != 0) || (self.1 && other.1)
    }
}

impl Plain {
    /// `pattern` as a row of steps, if it is one and can be matched without
    /// trying twice: no step may take what the next one could take as well,
    /// unless only fixed lengths follow.
    pub(super) fn new(pattern: &str) -> Option<Self> {
        let mut reader = Reader {
            rest: pattern.as_bytes(),
            steps: Vec::new(),
            open: 0,
            to_end: false,
        };
        reader.read()?;
        let plain = Self {
            steps: reader.steps.into(),
            to_end: reader.to_end,
        };
        (0..plain.steps.len())
            .all(|at| plain.is_decided(at))
            .then_some(plain)
    }

    /// Whether step `at` can take as much as it gets without regret, or gives
    /// back byte by byte to followers of a fixed length.
    fn is_decided(&self, at: usize) -> bool {
        let Step::Class(set, min, max) = &self.steps[at] else {
            return true;
        };
        let followers = &self.steps[at + 1..];
        min == max || !set.meets(first(followers)) || fixed(followers).is_some()
    }

    /// The length of the match at the start of `text`.
    pub(super) fn find_end(&self, text: &[u8]) -> Option<usize> {
        let mut at = 0;
        for (i, step) in self.steps.iter().enumerate() {
            let rest = &text[at..];
            match step {
                Step::Text(own) => {
                    rest.strip_prefix(&**own)?;
                    at += own.len();
                }
                Step::Class(set, min, max) => {
                    let most = rest.len().min(*max as usize);
                    let taken = rest[..most].iter().take_while(|b| set.has(**b)).count();
                    if taken < *min as usize {
                        return None;
                    }
                    let followers = &self.steps[i + 1..];
                    if min != max
                        && !followers.is_empty()
                        && let Some(len) = fixed(followers)
                    {
                        return self.give_back(
                            text,
                            at + *min as usize,
                            at + taken,
                            followers,
                            len,
                        );
                    }
                    at += taken;
                }
            }
        }
        (!self.to_end || at == text.len()).then_some(at)
    }

    /// The longest of the ends from `most` down to `least` at which
    /// `followers`, `len` bytes in all, match.
    fn give_back(
        &self,
        text: &[u8],
        least: usize,
        most: usize,
        followers: &[Step],
        len: usize,
    ) -> Option<usize> {
        let fits = |end: usize| {
            let Some(rest) = text.get(end..end + len) else {
                return false;
            };
            (!self.to_end || end + len == text.len()) && all_match(followers, rest)
        };
        if self.to_end {
            let end = text.len().checked_sub(len)?;
            return ((least..=most).contains(&end) && fits(end)).then_some(text.len());
        }
        let end = (least..=most).rev().find(|end| fits(*end))?;
        Some(end + len)
    }
}

/// Whether steps of fixed lengths match all of `text`, which is as long.
fn all_match(steps: &[Step], text: &[u8]) -> bool {
    let mut rest = text;
    steps.iter().all(|step| match step {
        Step::Text(own) => rest
            .strip_prefix(&**own)
            .map(|after| rest = after)
            .is_some(),
        Step::Class(set, count, _) => {
            let (own, after) = rest.split_at(*count as usize);
            rest = after;
            own.iter().all(|byte| set.has(*byte))
        }
    })
}

/// What `steps` can begin with.
fn first(steps: &[Step]) -> Set {
    let mut all = NOTHING;
    for step in steps {
        match step {
            Step::Text(text) => return all.or(text.first().map_or(NOTHING, |b| NOTHING.with(*b))),
            Step::Class(set, min, _) => {
                all = all.or(*set);
                if *min > 0 {
                    return all;
                }
            }
        }
    }
    all
}

/// The length of everything that `steps` match, if it is one.
fn fixed(steps: &[Step]) -> Option<usize> {
    steps.iter().try_fold(0, |sum: usize, step| match step {
        Step::Text(text) => Some(sum + text.len()),
        Step::Class(_, min, max) => (min == max).then_some(sum + *min as usize),
    })
}

struct Reader<'a> {
    rest: &'a [u8],
    steps: Vec<Step>,
    /// Groups that have begun.
    open: usize,
    to_end: bool,
}

impl Reader<'_> {
    /// `None` if the pattern is more than a row of steps.
    fn read(&mut self) -> Option<()> {
        while let Some((&byte, rest)) = self.rest.split_first() {
            self.rest = rest;
            let set = match byte {
                b'|' | b'*' | b'+' | b'?' | b'{' | b'}' | b']' | b'^' => return None,
                b'(' => {
                    self.group()?;
                    continue;
                }
                b')' => {
                    self.open = self.open.checked_sub(1)?;
                    if matches!(self.rest.first(), Some(b'*' | b'+' | b'?' | b'{')) {
                        return None;
                    }
                    continue;
                }
                b'$' => {
                    self.to_end = true;
                    let closing = self.rest.iter().all(|b| *b == b')');
                    return (closing && self.rest.len() == self.open).then_some(());
                }
                b'.' => DOT,
                b'[' => self.class()?,
                b'\\' => self.escape()?,
                byte if byte < 128 => NOTHING.with(byte),
                _ => return None,
            };
            let (min, max) = self.count()?;
            self.push(set, min, max);
        }
        (self.open == 0).then_some(())
    }

    fn group(&mut self) -> Option<()> {
        self.open += 1;
        let Some(rest) = self.rest.strip_prefix(b"?") else {
            return Some(());
        };
        if let Some(rest) = rest.strip_prefix(b":") {
            self.rest = rest;
            return Some(());
        }
        let name = rest.strip_prefix(b"P").unwrap_or(rest).strip_prefix(b"<")?;
        let end = name.iter().position(|b| *b == b'>')?;
        self.rest = &name[end + 1..];
        Some(())
    }

    fn escape(&mut self) -> Option<Set> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        let digit = Set::range(b'0', b'9');
        let word = digit
            .or(Set::range(b'a', b'z'))
            .or(Set::range(b'A', b'Z'))
            .with(b'_');
        match byte {
            b'd' => Some(digit),
            b'D' => Some(digit.not()),
            b'w' => Some(word),
            b'W' => Some(word.not()),
            // Ends of words, which are no characters.
            b'<' | b'>' => None,
            punctuation if punctuation.is_ascii_punctuation() => Some(NOTHING.with(punctuation)),
            _ => None,
        }
    }

    fn class(&mut self) -> Option<Set> {
        let negated = self.rest.first() == Some(&b'^');
        self.rest = &self.rest[usize::from(negated)..];
        let mut set = NOTHING;
        let mut first = true;
        loop {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            let from = match byte {
                b']' if !first => break,
                // Nested classes, and the signs of set operations.
                b'[' | b'&' | b'~' | b']' => return None,
                b'-' if rest.first() == Some(&b'-') => return None,
                b'-' if first || rest.first() == Some(&b']') => byte,
                b'-' => return None,
                b'\\' => {
                    let escaped = self.escape()?;
                    set = set.or(escaped);
                    first = false;
                    // `\.-x` would be a range.
                    if self.rest.first() == Some(&b'-') && self.rest.get(1) != Some(&b']') {
                        return None;
                    }
                    continue;
                }
                byte if byte < 128 => byte,
                _ => return None,
            };
            first = false;
            set = match self.rest {
                [b'-', to, rest @ ..] if *to != b']' => {
                    if !to.is_ascii_alphanumeric() || from > *to {
                        return None;
                    }
                    self.rest = rest;
                    set.or(Set::range(from, *to))
                }
                _ => set.with(from),
            };
        }
        Some(if negated { set.not() } else { set })
    }

    /// How often what was read may stand there.
    fn count(&mut self) -> Option<(u32, u32)> {
        let (count, rest) = match self.rest.split_first() {
            Some((b'*', rest)) => ((0, ANY_NUMBER), rest),
            Some((b'+', rest)) => ((1, ANY_NUMBER), rest),
            Some((b'?', rest)) => ((0, 1), rest),
            Some((b'{', rest)) => {
                let end = rest.iter().position(|b| *b == b'}')?;
                let inner = std::str::from_utf8(&rest[..end]).ok()?;
                let (min, max) = match inner.split_once(',') {
                    None => (inner, inner),
                    Some(ends) => ends,
                };
                let min: u16 = min.parse().ok()?;
                let max = match max {
                    "" => ANY_NUMBER,
                    max => max.parse::<u16>().ok()?.into(),
                };
                ((min.into(), max), &rest[end + 1..])
            }
            _ => return Some((1, 1)),
        };
        self.rest = rest;
        let again = matches!(rest.first(), Some(b'*' | b'+' | b'?' | b'{'));
        (!again && count.0 <= count.1).then_some(count)
    }

    fn push(&mut self, set: Set, min: u32, max: u32) {
        let bits = set.0[0].count_ones() + set.0[1].count_ones();
        if (min, max) != (1, 1) || bits != 1 {
            self.steps.push(Step::Class(set, min, max));
            return;
        }
        let byte = (0..128).find(|b| set.has(*b)).unwrap_or(0);
        if let Some(Step::Text(text)) = self.steps.last_mut() {
            let mut longer = std::mem::take(text).into_vec();
            longer.push(byte);
            *text = longer.into();
        } else {
            self.steps.push(Step::Text(Box::new([byte])));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::bytes::RegexBuilder;

    use super::*;

    #[test]
    fn expressions_of_everyday_are_plain() {
        for pattern in [
            "/svc-1/\\d+$",
            "/v[0-9]+/users$",
            "/(?<v>[^/]+)/svc/\\w+",
            "/x/.*$",
            "/.*",
            "/a\\.b",
            "/(a)/(?:b)c$",
            "/[a-z]{2,4}/x",
            "/.*/users",
            "/a?b",
            "/([^/]+)$",
        ] {
            assert!(Plain::new(pattern).is_some(), "{pattern}");
        }
    }

    #[test]
    fn others_are_left_to_the_engine() {
        for pattern in [
            "/a|b",
            "/(a)+",
            "/(?i)a",
            "/.*a.*b",
            "/a+?",
            "/[[:alpha:]]",
            "/[a&&b]",
            "/\\bx",
            "/a$b",
            "/\\p{L}",
            "/\u{e9}",
            "/[a-\\d]",
            "/a{2}{3}",
            "/(a$)b",
            "^/a",
        ] {
            assert!(Plain::new(pattern).is_none(), "{pattern}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn the_engine_finds_the_same(
            pattern in "/?([ab/]|\\.|\\\\[.dwDW]|\\[\\^?[]ab/1-]{1,3}\\]|\\[a-c\\]){1,2}([*+?]|\\{[012],?[23]?\\})?(\\(\\?<n>[ab]\\)|\\((\\?:)?[a1/]+\\))?([ab/1]|\\.|\\\\[dw]|\\[\\^/\\])?[*+]?[a/1]?\\$?",
            texts in proptest::collection::vec("/?[abc/.1_ \u{e9}-]{0,10}", 40),
        ) {
            let engine = RegexBuilder::new(&format!("^(?:{pattern})")).unicode(false).build();
            let (Some(plain), Ok(engine)) = (Plain::new(&pattern), engine) else { return Ok(()) };
            for text in texts {
                prop_assert_eq!(
                    plain.find_end(text.as_bytes()),
                    engine.find(text.as_bytes()).map(|m| m.end()),
                    "{} on {}", pattern, text
                );
            }
        }

        #[test]
        fn reading_never_panics(pattern in "[\\[\\](){}?*+\\\\a|^$:<>=!P1.,-]{0,24}") {
            let _ = Plain::new(&pattern);
        }
    }
}
