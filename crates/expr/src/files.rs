//! Functions that look at files, while the configuration is loaded.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, absolute};

use serde_json::{Map, Value as Json};
use x509_parser::pem::Pem;

use super::MAX_TEXT;
use super::value::Value;

/// A function of one constant text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileFunction {
    /// The text of a file.
    Read,
    /// The properties of a file.
    ReadProperties,
    /// A certificate in PEM.
    Certificate,
    /// The URL of a path.
    Url,
}

/// They by name.
pub(super) const FILE_FUNCTIONS: &[(&str, FileFunction)] = &[
    ("fileToUrl", FileFunction::Url),
    ("pathToUrl", FileFunction::Url),
    ("pemCertificate", FileFunction::Certificate),
    ("read", FileFunction::Read),
    ("readProperties", FileFunction::ReadProperties),
];

impl FileFunction {
    /// Whether it opens a file.
    pub(super) fn opens(self) -> bool {
        matches!(self, Self::Read | Self::ReadProperties)
    }

    /// The result; null where the file can't be read.
    ///
    /// # Errors
    /// What is wrong with a file that was read, for people.
    pub(super) fn call(self, text: &str) -> Result<Value<'static>, String> {
        Ok(match self {
            Self::Read => text_of(text)?.map_or(Value::Null, Value::owned_text),
            Self::ReadProperties => match text_of(text)? {
                Some(text) => Value::of_owned_json(Json::Object(properties(&text))),
                None => Value::Null,
            },
            Self::Certificate => {
                let found = Pem::iter_from_buffer(text.as_bytes()).next();
                let valid = matches!(found, Some(Ok(pem)) if pem.parse_x509().is_ok());
                if !valid {
                    return Err("the text is no certificate in PEM".to_owned());
                }
                Value::owned_text(text.to_owned())
            }
            Self::Url => absolute(text)
                .ok()
                .and_then(|path| url::Url::from_file_path(path).ok())
                .map_or(Value::Null, |url| Value::owned_text(url.into())),
        })
    }
}

/// The text of a file, `None` where there is none.
fn text_of(path: &str) -> Result<Option<String>, String> {
    let Ok(file) = File::open(Path::new(path)) else {
        return Ok(None);
    };
    let limit = u64::try_from(MAX_TEXT).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    if file.take(limit + 1).read_to_end(&mut bytes).is_err() {
        return Ok(None);
    }
    if bytes.len() > MAX_TEXT {
        return Err(format!("the file is longer than {MAX_TEXT} bytes"));
    }
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| "the file is not a text in UTF-8".to_owned())
}

/// Reads lines `name = value`, as Java's properties are written: `=`, `:` or a
/// blank between, comments with `#` or `!`, a backslash at the end goes on.
fn properties(text: &str) -> Map<String, Json> {
    let mut map = Map::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let mut whole = line.to_owned();
        while ends_with_escape(&whole) {
            whole.pop();
            match lines.next() {
                Some(next) => whole.push_str(next.trim_start()),
                None => break,
            }
        }
        let (name, value) = halves(&whole);
        map.insert(name, Json::String(value));
    }
    map
}

fn ends_with_escape(line: &str) -> bool {
    let backslashes = line.bytes().rev().take_while(|b| *b == b'\\').count();
    backslashes % 2 == 1
}

/// The name and the value of a line, without escapes.
fn halves(line: &str) -> (String, String) {
    let mut name = String::new();
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next_if(|c| !matches!(c, '=' | ':' | ' ' | '\t' | '\u{c}')) {
        match c {
            '\\' => name.extend(unescaped(&mut rest)),
            c => name.push(c),
        }
    }
    while rest.next_if(|c| c.is_whitespace()).is_some() {}
    if rest.next_if(|c| matches!(c, '=' | ':')).is_some() {
        while rest.next_if(|c| c.is_whitespace()).is_some() {}
    }
    let mut value = String::new();
    while let Some(c) = rest.next() {
        match c {
            '\\' => value.extend(unescaped(&mut rest)),
            c => value.push(c),
        }
    }
    (name, value)
}

/// The character of an escape, after its backslash.
fn unescaped(rest: &mut impl Iterator<Item = char>) -> Option<char> {
    Some(match rest.next()? {
        't' => '\t',
        'n' => '\n',
        'r' => '\r',
        'f' => '\u{c}',
        'u' => {
            let digits: String = rest.take(4).collect();
            let number = u32::from_str_radix(&digits, 16).ok()?;
            char::from_u32(number)?
        }
        c => c,
    })
}
