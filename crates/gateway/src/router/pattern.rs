//! Regular expressions of paths and headers: checked when a route is made,
//! compiled when the first request needs them.

use std::borrow::{Borrow, Cow};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use regex::bytes::{Regex, RegexBuilder};

use super::path;
use super::plain::Plain;

/// An expression that compiles. A compiled one takes some 10 KB, its text some
/// 20 bytes, and most of a large table's expressions are never asked: each is
/// compiled by the first request that reaches it.
#[derive(Debug, Clone)]
pub(super) struct Pattern(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    source: Box<str>,
    compiled: OnceLock<Compiled>,
}

#[derive(Debug)]
enum Compiled {
    Plain(Plain),
    Regex(Box<Regex>),
    /// Does not compile; [`check`] lets none through.
    Broken,
}

impl Pattern {
    /// An expression that [`check`] has passed.
    pub(super) fn new(source: &str) -> Self {
        Self(Arc::new(Shared {
            source: source.into(),
            compiled: OnceLock::new(),
        }))
    }

    pub(super) fn source(&self) -> &str {
        &self.0.source
    }

    /// The length of the match at the start of `path`, a [`path::readable`] one.
    pub(super) fn find_end(&self, path: &[u8]) -> Option<usize> {
        match self.compiled() {
            Compiled::Plain(plain) => plain.find_end(path),
            Compiled::Regex(regex) => regex.find(path).map(|found| found.end()),
            Compiled::Broken => None,
        }
    }

    /// Whether `value` holds a match anywhere; for headers.
    pub(super) fn is_match(&self, value: &[u8]) -> bool {
        matches!(self.compiled(), Compiled::Regex(regex) if regex.is_match(value))
    }

    /// The literals of a path's expression.
    pub(super) fn literals(&self) -> Literals {
        self.path().map(literals).unwrap_or_default()
    }

    /// The expression of a path as the route has it.
    fn path(&self) -> Option<&str> {
        self.0.source.strip_prefix(PATH_OPENS)?.strip_suffix(')')
    }

    fn compiled(&self) -> &Compiled {
        self.0.compiled.get_or_init(|| {
            if let Some(plain) = self.path().and_then(Plain::new) {
                return Compiled::Plain(plain);
            }
            match compile(&self.0.source) {
                Ok(regex) => Compiled::Regex(Box::new(regex)),
                Err(_) => Compiled::Broken,
            }
        })
    }
}

impl Hash for Pattern {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.source.hash(state);
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.source == other.0.source
    }
}

impl Eq for Pattern {}

impl Borrow<str> for Pattern {
    fn borrow(&self) -> &str {
        &self.0.source
    }
}

const PATH_OPENS: &str = "^(?:";

/// The expression of a path, anchored.
pub(super) fn of_path(pattern: &str) -> String {
    format!("{PATH_OPENS}{})", readable(pattern))
}

/// `pattern` for [`path::readable`] paths: `%20` stands for the blank that such a
/// path has in its place. Classes stay as they are.
fn readable(pattern: &str) -> Cow<'_, str> {
    if !pattern.contains('%') {
        return Cow::Borrowed(pattern);
    }
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        let encodings = encodings(rest);
        if encodings > 0 {
            push_bytes(&mut out, &path::readable(&rest[..encodings]));
            rest = &rest[encodings..];
            continue;
        }
        let len = match c {
            '\\' => 1 + rest.chars().nth(1).map_or(0, char::len_utf8),
            '[' => class(rest).unwrap_or(1),
            c => c.len_utf8(),
        };
        out.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    Cow::Owned(out)
}

/// Length of the encodings of other than ASCII letters that `text` begins with.
fn encodings(text: &str) -> usize {
    let is_one = |triple: &&[u8]| {
        let decoded = std::str::from_utf8(triple).map(path::readable);
        decoded.is_ok_and(|decoded| decoded.len() == 1 && !decoded[0].is_ascii_control())
    };
    3 * text.as_bytes().chunks_exact(3).take_while(is_one).count()
}

/// Adds an expression that matches `bytes` alone.
fn push_bytes(out: &mut String, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        out.push_str(&regex::escape(chunk.valid()));
        for byte in chunk.invalid() {
            out.push_str(&format!("(?-u:\\x{byte:02X})"));
        }
    }
}

/// The expression of a header's value, which is compared without case.
pub(super) fn of_header(pattern: &str) -> String {
    format!("(?i)(?:{pattern})")
}

/// Compiles within bounds on size. Paths and header values are bytes: classes
/// like `\d` mean ASCII, which takes a fortieth of the memory; what can't be
/// said in ASCII (`\p{…}`) is compiled with all of Unicode.
pub(super) fn compile(source: &str) -> Result<Regex, regex::Error> {
    let build = |unicode| {
        RegexBuilder::new(source)
            .unicode(unicode)
            .size_limit(1 << 20)
            .dfa_size_limit(1 << 20)
            .nest_limit(64)
            .build()
    };
    build(false).or_else(|_| build(true))
}

/// Whether `pattern` can be the expression of a path or of a header's value.
///
/// # Errors
/// What is wrong with it; constructs of other dialects that need backtracking
/// are named.
pub fn check(pattern: &str) -> Result<(), String> {
    let reason = match foreign(pattern) {
        Some(reason) => Err(reason),
        // Alone first: a bracket too many would close the anchored group.
        None => compile(pattern)
            .and_then(|_| compile(&of_path(pattern)))
            .map(|_| ())
            .map_err(|error| last_line(&error.to_string()).to_owned()),
    };
    reason.map_err(|reason| format!("invalid regex: '{pattern}' ({reason})"))
}

fn last_line(message: &str) -> &str {
    let line = message.lines().last().unwrap_or(message).trim();
    line.strip_prefix("error: ").unwrap_or(line)
}

/// Group openings that only backtracking engines know, the longer ones first.
const GROUPS: &[(&str, &str)] = &[
    ("(?<=", "look-behind"),
    ("(?<!", "negative look-behind"),
    ("(?=", "look-ahead"),
    ("(?!", "negative look-ahead"),
    ("(?>", "atomic group"),
    ("(?(", "conditional"),
    ("(?|", "branch reset"),
    ("(?#", "comment"),
    ("(?R", "recursion"),
    ("(?&", "recursion"),
    ("(?P>", "recursion"),
    ("(?P=", "backreference"),
];

/// The first construct that is not of this dialect.
fn foreign(pattern: &str) -> Option<String> {
    let refused = |name: &str, text: &str, at: usize| {
        let position = pattern[..at].chars().count() + 1;
        Some(format!(
            "{name} '{text}' at character {position} is not supported"
        ))
    };
    let mut rest = pattern;
    // Whether what stands before `rest` is a quantifier.
    let mut quantified = false;
    while let Some(c) = rest.chars().next() {
        let at = pattern.len() - rest.len();
        let after_quantifier = std::mem::replace(&mut quantified, false);
        rest = match c {
            '\\' => {
                let escaped = rest.chars().nth(1)?;
                let text = rest.get(..1 + escaped.len_utf8()).unwrap_or(rest);
                match escaped {
                    '1'..='9' | 'k' | 'g' => return refused("backreference", text, at),
                    'K' | 'G' | 'Z' | 'R' | 'X' | 'h' | 'H' | 'Q' | 'E' => {
                        return refused("escape", text, at);
                    }
                    _ => &rest[text.len()..],
                }
            }
            '[' => &rest[class(rest)?..],
            '(' => {
                let group = GROUPS.iter().find(|(text, _)| rest.starts_with(text));
                if let Some((text, name)) = group {
                    return refused(name, text, at);
                }
                let number = rest.strip_prefix("(?").and_then(|r| r.chars().next());
                if let Some('0'..='9' | '+') = number {
                    return refused("recursion", &rest[..3], at);
                }
                // Past the `?` of `(?:`, which repeats nothing.
                &rest[1 + usize::from(rest[1..].starts_with('?'))..]
            }
            '+' if after_quantifier => {
                let start = pattern[..at].char_indices().last().map_or(0, |(i, _)| i);
                return refused("possessive quantifier", &pattern[start..=at], start);
            }
            '*' | '+' | '?' => {
                // `??` and `+?` end here: a third sign would repeat a repetition.
                quantified = true;
                &rest[1..]
            }
            '{' => match repetition(rest) {
                Some(len) => {
                    quantified = true;
                    &rest[len..]
                }
                None => &rest[1..],
            },
            c => &rest[c.len_utf8()..],
        };
    }
    None
}

/// Length of the `{2,5}` that `text` begins with.
fn repetition(text: &str) -> Option<usize> {
    let end = text.find('}')?;
    let inner = &text[1..end];
    let numbers = !inner.is_empty() && inner.bytes().all(|b| b.is_ascii_digit() || b == b',');
    numbers.then_some(end + 1)
}

/// Length of the bracketed class that `text` begins with; `None` if it does
/// not end.
fn class(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut depth = 0_usize;
    let mut i = 0;
    while let Some(&byte) = bytes.get(i) {
        i += 1;
        match byte {
            b'\\' => i += 1,
            b'[' => {
                depth += 1;
                i += usize::from(bytes.get(i) == Some(&b'^'));
                // A bracket that comes first is a member.
                i += usize::from(bytes.get(i) == Some(&b']'));
            }
            b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(i);
                }
            }
            _ => {}
        }
    }
    None
}

/// Texts that every match of a path's expression contains, as normal paths have
/// them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Literals {
    /// What every match begins with; may be empty.
    pub(super) prefix: String,
    /// What else every match contains.
    pub(super) inner: Vec<String>,
}

/// Reads the literals off `pattern`, as far as that is easily seen: outside
/// groups and classes, in expressions without alternatives or flags.
pub(super) fn literals(pattern: &str) -> Literals {
    let mut runs = Runs::default();
    match runs.read(pattern) {
        Some(()) => {
            runs.end();
            let mut all = runs.done;
            let prefix = if all.first().is_some_and(|(at, _)| *at == 0) {
                path::encoded(&all.remove(0).1).into_owned()
            } else {
                String::new()
            };
            let runs = all.iter().map(|(_, run)| path::encoded(run).into_owned());
            let inner = runs.collect();
            Literals { prefix, inner }
        }
        None => Literals::default(),
    }
}

#[derive(Default)]
struct Runs {
    done: Vec<(usize, String)>,
    current: String,
    start: usize,
}

impl Runs {
    fn end(&mut self) {
        if !self.current.is_empty() {
            let run = std::mem::take(&mut self.current);
            self.done.push((self.start, run));
        }
    }

    /// `None` if nothing can be said about `pattern`.
    fn read(&mut self, pattern: &str) -> Option<()> {
        let mut rest = pattern;
        while let Some(c) = rest.chars().next() {
            let at = pattern.len() - rest.len();
            if self.current.is_empty() {
                self.start = at;
            }
            let len = match c {
                '|' | ')' => return None,
                '(' => {
                    self.end();
                    group(rest)?
                }
                '[' => {
                    self.end();
                    class(rest)?
                }
                '\\' => match rest.chars().nth(1)? {
                    // Ends of words.
                    '<' | '>' => {
                        self.end();
                        2
                    }
                    escaped if escaped.is_ascii_punctuation() => {
                        self.current.push(escaped);
                        2
                    }
                    'd' | 'D' | 'w' | 'W' | 's' | 'S' | 'b' | 'B' | 'A' | 'z' => {
                        self.end();
                        2
                    }
                    _ => return None,
                },
                '.' | '^' | '$' | '+' => {
                    self.end();
                    1
                }
                '*' | '?' | '{' => {
                    // The last character may be there no time at all.
                    self.current.pop();
                    self.end();
                    if c == '{' { repetition(rest)? } else { 1 }
                }
                c => {
                    self.current.push(c);
                    c.len_utf8()
                }
            };
            rest = rest.get(len..)?;
        }
        Some(())
    }
}

/// Length of the group that `text` begins with; `None` if it sets flags for
/// what follows, or does not end.
fn group(text: &str) -> Option<usize> {
    if let Some(flags) = text.strip_prefix("(?") {
        let end = flags.find(|c: char| !(c.is_ascii_alphabetic() || c == '-'))?;
        if flags[end..].starts_with(')') {
            return None;
        }
    }
    let bytes = text.as_bytes();
    let mut depth = 0_usize;
    let mut i = 0;
    while let Some(&byte) = bytes.get(i) {
        match byte {
            b'\\' => i += 2,
            b'[' => i += class(text.get(i..)?)?,
            _ => {
                depth = match byte {
                    b'(' => depth + 1,
                    b')' => depth - 1,
                    _ => depth,
                };
                i += 1;
            }
        }
        if depth == 0 {
            return Some(i);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pattern: &str) -> (String, Vec<String>) {
        let Literals { prefix, inner } = literals(pattern);
        (prefix, inner)
    }

    #[test]
    fn the_literals_never_say_too_much() {
        for (pattern, prefix, inner) in [
            ("/foo/bar$", "/foo/bar", vec![]),
            ("/foo?", "/fo", vec![]),
            ("/foo{2}", "/fo", vec![]),
            ("/foo(bar)?", "/foo", vec![]),
            ("/a|/b", "", vec![]),
            ("(?i)/a", "", vec![]),
            ("/a.b", "/a", vec!["b"]),
            ("/a\\.b", "/a.b", vec![]),
            ("", "", vec![]),
            ("/(?<v>v[0-9]+)/svc-1/\\d+/x$", "/", vec!["/svc-1/", "/x"]),
            ("\\w+/svc", "", vec!["/svc"]),
            ("/a[]|]b(c|[)])d", "/a", vec!["b", "d"]),
            ("/x\\x41", "", vec![]),
            ("/a+b", "/a", vec!["b"]),
            ("/a(?i:b)c", "/a", vec!["c"]),
            ("/\\<a\\>", "/", vec!["a"]),
        ] {
            let inner: Vec<String> = inner.into_iter().map(String::from).collect();
            assert_eq!(read(pattern), (prefix.to_owned(), inner), "{pattern}");
        }
    }

    #[test]
    fn constructs_that_need_backtracking_are_named() {
        for (pattern, part) in [
            ("/a(?=b)", "look-ahead '(?=' at character 3"),
            ("/a(?!b)", "negative look-ahead '(?!'"),
            ("/(?<=a)b", "look-behind '(?<='"),
            ("/(?<!a)b", "negative look-behind '(?<!'"),
            ("/(a)\\1", "backreference '\\1' at character 5"),
            ("/(?<n>a)\\k<n>", "backreference '\\k'"),
            ("/(?>a)", "atomic group"),
            ("/a++", "possessive quantifier '++' at character 3"),
            ("/a*+b", "possessive quantifier '*+'"),
            ("/a{2}+", "possessive quantifier '}+'"),
            ("/(?R)", "recursion"),
            ("/(?1)", "recursion"),
        ] {
            let message = check(pattern).expect_err(pattern);
            assert!(message.contains(part), "{message}");
            assert!(message.contains(pattern), "{message}");
        }
    }

    #[test]
    fn ordinary_expressions_pass() {
        for pattern in [
            "/a+?b",
            "/a*",
            "/[+*?]+",
            "/\\++",
            "/(?:a)+",
            "/(?<name>[^/]+)/x",
            "/(?P<n>a)",
            "/\\p{L}+",
            "/[(?=]",
            "/caf\u{e9}",
            "/a{2,3}",
            "/a\\{2}+",
            "/\\d+\\/x\\-y",
        ] {
            check(pattern).expect(pattern);
        }
    }

    #[test]
    fn an_expression_may_spell_a_character_either_way() {
        for (pattern, text) in [
            ("/a%20b$", "/a b"),
            ("/a b$", "/a b"),
            ("/%7c+/$", "/||/"),
            ("/%C3%a9$", "/\u{e9}"),
            ("/\u{e9}/[^/]+$", "/\u{e9}/\u{fc}"),
            ("/a%2Fb$", "/a%2Fb"),
            ("/[%7B]$", "/B"),
        ] {
            let pattern = Pattern::new(&of_path(pattern));
            let source = pattern.source();
            assert_eq!(
                pattern.find_end(text.as_bytes()),
                Some(text.len()),
                "{source}"
            );
        }
        let byte = Pattern::new(&of_path("/%FF$"));
        assert_eq!(byte.find_end(b"/\xff"), Some(2));
        assert_eq!(byte.find_end("/\u{ff}".as_bytes()), None);
        let literals = Pattern::new(&of_path("/a b/.*/\u{e9}")).literals();
        assert_eq!(literals.prefix, "/a%20b/");
        assert_eq!(literals.inner, ["/%C3%A9"]);
    }

    #[test]
    fn a_broken_expression_is_told() {
        let message = check("/((").expect_err("refused");
        assert!(message.contains("unclosed group"), "{message}");
    }

    #[test]
    fn an_expression_cannot_escape_its_anchor() {
        let message = check("/a)|(/b").expect_err("refused");
        assert!(message.contains("unopened group"), "{message}");
    }

    proptest! {
        #[test]
        fn every_match_contains_the_literals(
            pattern in "/[ab/]{0,3}([ab]|\\.|\\\\.|\\\\d|[ab]\\+|[ab]\\?|b\\*|a\\{1,2\\}|\\[ab\\]|\\(a\\|b\\)|\\(b\\)\\?){0,5}",
            texts in proptest::collection::vec("/[ab/.1]{0,8}", 32),
        ) {
            let found = literals(&pattern);
            let pattern = Pattern::new(&of_path(&pattern));
            for text in texts {
                let Some(end) = pattern.find_end(text.as_bytes()) else { continue };
                prop_assert!(text[..end].starts_with(&found.prefix));
                for inner in &found.inner {
                    prop_assert!(text[..end].contains(inner.as_str()));
                }
            }
        }

        #[test]
        fn checking_never_panics(pattern in "\\PC{0,40}", odd in "[\\[\\](){}?*+\\\\a|^:<>=!P1]{0,24}") {
            let _ = check(&pattern);
            let _ = check(&odd);
            let _ = literals(&pattern);
            let _ = literals(&odd);
        }
    }
}
