//! Lines of the access log by a template: text with fields in braces.
//!
//! A value never looks like a part of the template. Quotation marks, backslashes, what
//! is not visible ASCII, and the character that ends a field are written as `\xHH`.

use std::fmt::Write as _;

use super::{ClientName, Entry, clf_time, timestamp};
use doorward_core::model::suggestion;

/// Most bytes of one value.
const LONGEST: usize = 1024;

/// A template, compiled.
#[derive(Debug)]
pub(super) struct Template {
    /// A field, the character that ends it, and the text behind it.
    pieces: Box<[Piece]>,
    /// What each line begins with.
    start: Box<str>,
}

#[derive(Debug)]
struct Piece {
    field: Field,
    end: FieldEnd,
    text: Box<str>,
}

/// What a value must not hold, so that it can't seem to end early.
#[derive(Debug, Clone, Copy)]
struct FieldEnd {
    /// Whether the field stands between quotation marks.
    quoted: bool,
    /// The first character behind it.
    next: Option<char>,
}

/// Defines the fields by their names.
macro_rules! fields {
    ($($variant:ident $name:literal,)+) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Field { $($variant),+ }

        impl Field {
            const NAMES: &[(&str, Self)] = &[$(($name, Self::$variant)),+];
        }
    };
}

fields! {
    Time "time",
    TimeClf "time_clf",
    TimeMs "time_ms",
    ClientIp "client_ip",
    Method "method",
    Host "host",
    Path "path",
    Protocol "protocol",
    Status "status",
    TotalMs "total_ms",
    UpstreamMs "upstream_ms",
    UpstreamAddress "upstream_address",
    Retries "retries",
    Received "received",
    Bytes "bytes",
    Service "service",
    Route "route",
    User "user",
    Consumer "consumer",
    Subject "subject",
    ClientId "client_id",
    Certificate "certificate",
    Refusal "refusal",
    McpMethod "mcp_method",
    McpName "mcp_name",
    RequestId "request_id",
    TraceId "trace_id",
    TlsVersion "tls_version",
    TlsCipher "tls_cipher",
    Referer "referer",
    UserAgent "user_agent",
}

impl Template {
    /// Compiles a text. `{{` and `}}` are braces.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.chars().any(|c| c.is_control() && c != '\t') {
            return Err("a line can't hold line breaks or other control characters".to_owned());
        }
        let mut texts = vec![String::new()];
        let mut fields = Vec::new();
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            match c {
                '{' | '}' if rest.peek() == Some(&c) => {
                    rest.next();
                    push(&mut texts, c);
                }
                '}' => return Err("'}' without '{': a brace is written '}}'".to_owned()),
                '{' => {
                    let mut name = String::new();
                    loop {
                        match rest.next() {
                            Some('}') => break,
                            Some(c) => name.push(c),
                            None => {
                                return Err(format!(
                                    "'{{{name}' has no end: a brace is written '{{{{'"
                                ));
                            }
                        }
                    }
                    fields.push(field(&name)?);
                    texts.push(String::new());
                }
                c => push(&mut texts, c),
            }
        }
        Self::assemble(texts, &fields)
    }

    /// `texts` are those before, between and behind `fields`.
    fn assemble(texts: Vec<String>, fields: &[Field]) -> Result<Self, String> {
        if fields.is_empty() {
            return Err("has no field, such as {status}".to_owned());
        }
        let mut quoted = false;
        let mut texts = texts.into_iter();
        let start = texts.next().unwrap_or_default();
        let quotes = |text: &str| text.matches('"').count() % 2 == 1;
        quoted ^= quotes(&start);
        let last = fields.len() - 1;
        let mut pieces = Vec::new();
        for (i, (&field, text)) in fields.iter().zip(texts).enumerate() {
            if text.is_empty() && i < last {
                return Err("two fields need a character between them".to_owned());
            }
            let next = text.chars().next();
            let end = FieldEnd { quoted, next };
            quoted ^= quotes(&text);
            let text = text.into_boxed_str();
            pieces.push(Piece { field, end, text });
        }
        if quoted {
            return Err("a quotation mark has no end".to_owned());
        }
        Ok(Self {
            pieces: pieces.into(),
            start: start.into(),
        })
    }

    /// Whether the identifier of the trace is in it.
    pub(super) fn has_trace_id(&self) -> bool {
        let mut fields = self.pieces.iter().map(|piece| piece.field);
        fields.any(|field| field == Field::TraceId)
    }

    /// Appends the line of `entry`.
    pub(super) fn write(&self, out: &mut String, entry: &Entry<'_>) {
        out.push_str(&self.start);
        for piece in &self.pieces {
            write_field(out, piece.field, piece.end, entry);
            out.push_str(&piece.text);
        }
        out.push('\n');
    }
}

fn push(texts: &mut [String], c: char) {
    if let Some(text) = texts.last_mut() {
        text.push(c);
    }
}

fn field(name: &str) -> Result<Field, String> {
    let known = Field::NAMES.iter();
    if let Some((_, field)) = known.clone().find(|(known, _)| *known == name) {
        return Ok(*field);
    }
    let shown: String = name.chars().take(64).collect();
    let names = || known.clone().map(|(name, _)| *name);
    Err(match suggestion::nearest(name, names()) {
        Some(near) => format!("'{{{shown}}}' is no field; did you mean {{{near}}}?"),
        None => {
            let names: Vec<&str> = names().collect();
            format!("'{{{shown}}}' is no field; there are {}", names.join(", "))
        }
    })
}

fn write_field(out: &mut String, field: Field, end: FieldEnd, entry: &Entry<'_>) {
    use Field as F;
    let more = &entry.more;
    let text = match field {
        F::Time => return timestamp(out, entry.time_ms),
        F::TimeClf => return clf_time(out, entry.time_ms),
        F::TimeMs => return number(out, entry.time_ms),
        F::ClientIp => return number(out, ClientName(entry.client)),
        F::Status => return number(out, entry.status),
        F::TotalMs => return millis(out, Some(entry.total_us)),
        F::UpstreamMs => return millis(out, entry.upstream_us),
        F::Received => return number(out, entry.received),
        F::Bytes => return number(out, entry.sent),
        F::Retries => return number(out, more.retries),
        F::UpstreamAddress => match more.upstream {
            Some(address) => return number(out, address),
            None => None,
        },
        F::Protocol => Some(match entry.http {
            "2" => "HTTP/2.0",
            "1.0" => "HTTP/1.0",
            _ => "HTTP/1.1",
        }),
        F::Method => Some(entry.method),
        F::Host => Some(entry.host),
        F::Path => Some(entry.path),
        F::Service => entry.service,
        F::Route => entry.route,
        F::User => entry.consumer.or(more.subject),
        F::Consumer => entry.consumer,
        F::Subject => more.subject,
        F::ClientId => more.client_id,
        F::Certificate => entry.certificate,
        F::Refusal => entry.refusal,
        F::McpMethod => entry.mcp_method,
        F::McpName => entry.mcp_name,
        F::RequestId => entry.request_id,
        F::TraceId => more.trace_id.as_deref(),
        F::TlsVersion => more.tls.map(|(version, _)| version),
        F::TlsCipher => more.tls.map(|(_, cipher)| cipher),
        F::Referer => more.referer.map(without_query),
        F::UserAgent => Some(entry.user_agent),
    };
    match text.filter(|text| !text.is_empty()) {
        Some(text) => escaped(out, text, end),
        None => out.push('-'),
    }
}

/// Values of the gateway's own: they hold nothing that is to be escaped.
fn number(out: &mut String, value: impl std::fmt::Display) {
    // Writing to a string can't fail.
    let _ = write!(out, "{value}");
}

fn millis(out: &mut String, us: Option<u64>) {
    match us {
        Some(us) => number(out, format_args!("{}.{:03}", us / 1000, us % 1000)),
        None => out.push('-'),
    }
}

/// An address without what may hold a secret.
fn without_query(address: &str) -> &str {
    let end = address.find(['?', '#']).unwrap_or(address.len());
    &address[..end]
}

fn escaped(out: &mut String, value: &str, end: FieldEnd) {
    let cut = value.floor_char_boundary(LONGEST);
    for c in value[..cut].chars() {
        let is_plain = match c {
            '"' | '\\' => false,
            ' ' => end.quoted,
            c => c.is_ascii_graphic(),
        };
        if is_plain && (end.quoted || end.next != Some(c)) {
            out.push(c);
            continue;
        }
        for byte in c.encode_utf8(&mut [0; 4]).bytes() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
}

#[cfg(test)]
mod tests;
