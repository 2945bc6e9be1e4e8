//! From the dialect of Java's patterns to the one of the engines here.
//!
//! What both spell alike passes through; the rest is rewritten, so that a
//! pattern means what its author knows from Java: `\d`, `\w`, `\s` and
//! `\p{Alpha}` are ASCII, `\h` is a blank, `.` ends at every line terminator,
//! `\Q…\E` quotes. What Java does not have is refused.

use std::iter::Peekable;
use std::str::Chars;

use super::classes;

/// A pattern in the engines' dialect.
#[derive(Debug)]
pub(super) struct Translated {
    pub(super) text: String,
    /// Whether it looks around or back, which only backtracking can do.
    pub(super) backtracks: bool,
}

/// Rewrites `pattern`.
///
/// # Errors
/// What is wrong with it, for people.
pub(super) fn translate(pattern: &str) -> Result<Translated, String> {
    let mut translator = Translator {
        rest: pattern.chars().peekable(),
        out: String::with_capacity(pattern.len() + 16),
        flags: Flags::default(),
        outer: Vec::new(),
        groups: 0,
        backtracks: false,
    };
    translator.run()?;
    Ok(Translated {
        text: translator.out,
        backtracks: translator.backtracks,
    })
}

/// Line terminators, inside a class.
const TERMINATORS: &str = r"\n\r\x{85}\x{2028}\x{2029}";

/// Flags that change what is written, not only how it is read.
#[derive(Debug, Clone, Copy, Default)]
struct Flags {
    /// `s`: the dot stands for everything.
    dot_all: bool,
    /// `d`: only a line feed ends a line.
    unix_lines: bool,
    /// `U`: classes are those of Unicode.
    unicode: bool,
    /// `x`: blanks and comments mean nothing.
    comments: bool,
}

pub(super) struct Translator<'p> {
    pub(super) rest: Peekable<Chars<'p>>,
    pub(super) out: String,
    flags: Flags,
    /// Flags around each open group.
    outer: Vec<Flags>,
    /// Capturing groups begun so far.
    groups: usize,
    backtracks: bool,
}

impl Translator<'_> {
    fn run(&mut self) -> Result<(), String> {
        while let Some(c) = self.rest.next() {
            match c {
                '\\' => self.escape()?,
                '[' => self.class(0)?,
                '(' => self.group()?,
                ')' => {
                    self.flags = self.outer.pop().ok_or("a `)` closes nothing")?;
                    self.out.push(')');
                }
                '.' => self.dot(),
                '*' | '+' | '?' => {
                    self.out.push(c);
                    self.greed();
                }
                '{' => self.repetition()?,
                '#' if self.flags.comments => while self.rest.next_if(|c| *c != '\n').is_some() {},
                c => self.out.push(c),
            }
        }
        if self.outer.is_empty() {
            Ok(())
        } else {
            Err("a `(` is not closed".to_owned())
        }
    }

    pub(super) fn take(&mut self, wanted: char) -> bool {
        self.rest.next_if_eq(&wanted).is_some()
    }

    pub(super) fn unicode(&self) -> bool {
        self.flags.unicode
    }

    fn dot(&mut self) {
        if self.flags.dot_all || self.flags.unix_lines {
            self.out.push('.');
        } else {
            self.out.push_str("[^");
            self.out.push_str(TERMINATORS);
            self.out.push(']');
        }
    }

    /// What follows a quantifier: `?` makes it lazy, `+` possessive.
    fn greed(&mut self) {
        if self.take('?') {
            self.out.push('?');
        } else if self.take('+') {
            self.out.push('+');
            self.backtracks = true;
        }
    }

    /// `{n}`, `{n,}` or `{n,m}`, after the brace.
    fn repetition(&mut self) -> Result<(), String> {
        let mut inside = String::new();
        while let Some(c) = self.rest.next_if(|c| c.is_ascii_digit() || *c == ',') {
            inside.push(c);
        }
        let numbers = inside.starts_with(|c: char| c.is_ascii_digit())
            && inside.matches(',').count() <= 1
            && self.take('}');
        if !numbers {
            return Err("a `{` must begin a repetition such as `{2,5}`".to_owned());
        }
        self.out.push('{');
        self.out.push_str(&inside);
        self.out.push('}');
        self.greed();
        Ok(())
    }

    /// What follows a `(`.
    fn group(&mut self) -> Result<(), String> {
        if !self.take('?') {
            if self.rest.peek() == Some(&'*') {
                return Err("a `*` repeats nothing".to_owned());
            }
            self.groups += 1;
            return self.open("(");
        }
        match self.rest.next() {
            Some(':') => self.open("(?:"),
            Some('=') => self.look("(?="),
            Some('!') => self.look("(?!"),
            Some('>') => self.look("(?>"),
            Some('<') if self.take('=') => self.look("(?<="),
            Some('<') if self.take('!') => self.look("(?<!"),
            Some('<') => {
                let name = self.group_name()?;
                self.groups += 1;
                self.open(&format!("(?<{name}>"))
            }
            Some(c) => self.change_flags(c),
            None => Err("a `(` is not closed".to_owned()),
        }
    }

    fn open(&mut self, text: &str) -> Result<(), String> {
        self.outer.push(self.flags);
        self.out.push_str(text);
        Ok(())
    }

    fn look(&mut self, text: &str) -> Result<(), String> {
        self.backtracks = true;
        self.open(text)
    }

    /// The name of a group, up to its `>`.
    fn group_name(&mut self) -> Result<String, String> {
        let mut name = String::new();
        while let Some(c) = self.rest.next_if(char::is_ascii_alphanumeric) {
            name.push(c);
        }
        let named = name.starts_with(|c: char| c.is_ascii_alphabetic()) && self.take('>');
        if named {
            Ok(name)
        } else {
            Err("the name of a group is made of letters and digits".to_owned())
        }
    }

    /// `(?i)`, `(?i:…)`, `(?-s)`; `first` is the first character behind `(?`.
    fn change_flags(&mut self, first: char) -> Result<(), String> {
        let (mut on, mut written) = (true, [String::new(), String::new()]);
        let around = self.flags;
        let mut next = Some(first);
        loop {
            let flag = next.ok_or("a `(` is not closed")?;
            match flag {
                '-' if on => on = false,
                'i' | 'm' => written[usize::from(!on)].push(flag),
                's' => {
                    self.flags.dot_all = on;
                    written[usize::from(!on)].push(flag);
                }
                'x' => {
                    self.flags.comments = on;
                    written[usize::from(!on)].push(flag);
                }
                'd' => self.flags.unix_lines = on,
                'U' => self.flags.unicode = on,
                // Letters fold as Unicode says anyway.
                'u' => {}
                ':' | ')' => {
                    let [on, off] = &written;
                    let dash = if off.is_empty() { "" } else { "-" };
                    if flag == ':' {
                        self.outer.push(around);
                        self.out.push_str(&format!("(?{on}{dash}{off}:"));
                    } else if !on.is_empty() || !off.is_empty() {
                        self.out.push_str(&format!("(?{on}{dash}{off})"));
                    }
                    return Ok(());
                }
                _ => return Err(format!("`(?{flag}` begins no group")),
            }
            next = self.rest.next();
        }
    }

    /// What follows a backslash, outside a class.
    fn escape(&mut self) -> Result<(), String> {
        let Some(c) = self.rest.next() else {
            return Err("a backslash at the end".to_owned());
        };
        match c {
            'Q' => {
                for quoted in self.quoted() {
                    classes::push_literal(&mut self.out, quoted);
                }
            }
            'b' if self.rest.peek() == Some(&'{') => {
                return Err("`\\b{…}` is not supported".to_owned());
            }
            'A' | 'z' | 'b' | 'B' => {
                self.out.push('\\');
                self.out.push(c);
            }
            'Z' => {
                self.backtracks = true;
                self.out
                    .push_str(&format!(r"(?=(?:\r\n|[{TERMINATORS}])?\z)"));
            }
            'G' => {
                self.backtracks = true;
                self.out.push_str(r"\G");
            }
            'R' => self
                .out
                .push_str(&format!(r"(?:\r\n|[\x0B\x0C{TERMINATORS}])")),
            'k' => self.named_reference()?,
            '1'..='9' => self.reference(c),
            c => match classes::set(c, self)? {
                Some(set) => self.out.push_str(&set),
                None => {
                    let literal = classes::character(c, self)?;
                    classes::push_literal(&mut self.out, literal);
                }
            },
        }
        Ok(())
    }

    /// The characters up to a `\E` or the end.
    pub(super) fn quoted(&mut self) -> Vec<char> {
        let mut quoted = Vec::new();
        while let Some(c) = self.rest.next() {
            if c == '\\' && self.take('E') {
                break;
            }
            quoted.push(c);
        }
        quoted
    }

    fn named_reference(&mut self) -> Result<(), String> {
        if !self.take('<') {
            return Err("`\\k` needs the name of a group in `<>`".to_owned());
        }
        let name = self.group_name()?;
        self.backtracks = true;
        self.out.push_str(&format!(r"\k<{name}>"));
        Ok(())
    }

    /// `\1`, and more digits as long as there are so many groups.
    fn reference(&mut self, first: char) {
        let digit = |c: char| c.to_digit(10).map_or(0, |d| d as usize);
        let mut number = digit(first);
        while let Some(next) = self.rest.peek().copied().filter(char::is_ascii_digit) {
            let longer = number * 10 + digit(next);
            if longer > self.groups {
                break;
            }
            number = longer;
            self.rest.next();
        }
        self.backtracks = true;
        self.out.push_str(&format!(r"(?:\{number})"));
    }

    /// A class, after its `[`.
    fn class(&mut self, depth: usize) -> Result<(), String> {
        if depth > 16 {
            return Err("classes are nested too deep".to_owned());
        }
        self.out.push('[');
        if self.take('^') {
            self.out.push('^');
        }
        let mut first = true;
        loop {
            let Some(c) = self.rest.next() else {
                return Err("a `[` is not closed".to_owned());
            };
            match c {
                ']' if !first => break,
                '[' => self.class(depth + 1)?,
                '&' if self.rest.peek() == Some(&'&') => {
                    self.rest.next();
                    self.out.push_str("&&");
                }
                c => self.item(c)?,
            }
            first = false;
        }
        self.out.push(']');
        Ok(())
    }

    /// A character, a range or a set inside a class.
    fn item(&mut self, c: char) -> Result<(), String> {
        let Some(from) = self.class_character(c)? else {
            return Ok(());
        };
        classes::push_literal(&mut self.out, from);
        let mut ahead = self.rest.clone();
        let range = ahead.next() == Some('-') && !matches!(ahead.next(), None | Some(']' | '['));
        if !range {
            return Ok(());
        }
        self.rest.next();
        self.out.push('-');
        let Some(c) = self.rest.next() else {
            return Err("a `[` is not closed".to_owned());
        };
        match self.class_character(c)? {
            Some(to) => {
                classes::push_literal(&mut self.out, to);
                Ok(())
            }
            None => Err("a range ends with a set of characters".to_owned()),
        }
    }

    /// The single character that begins with `c`; `None` where it was a set,
    /// which is then written.
    fn class_character(&mut self, c: char) -> Result<Option<char>, String> {
        if c != '\\' {
            return Ok(Some(c));
        }
        let Some(c) = self.rest.next() else {
            return Err("a backslash at the end".to_owned());
        };
        if c == 'Q' {
            for quoted in self.quoted() {
                classes::push_literal(&mut self.out, quoted);
            }
            return Ok(None);
        }
        if let Some(set) = classes::set(c, self)? {
            self.out.push_str(&set);
            return Ok(None);
        }
        classes::character(c, self).map(Some)
    }
}
