//! One leaves to match a route: its attributes with one of its paths.

use std::borrow::Cow;
use std::cmp::Ordering;

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::Ask;
use super::hosts::{HostPattern, Name, Space};
use super::path;
use super::pattern::Pattern;

/// No entry has this index.
pub(super) const NONE: u32 = u32::MAX;

/// A route with at most one of its paths. Many of them are looked at by few
/// requests: what is bigger than a number lies in [`Entries`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    /// Position of the route.
    pub(super) route: u32,
    /// Where the path's text is: the prefix, or the literal text that every
    /// match of the expression begins with.
    pub(super) text: Text,
    /// Index of the expression.
    pub(super) pattern: u32,
    /// Index of what few routes ask for.
    pub(super) extra: u32,
    /// Bits of [`known_method`]; 0: any method.
    pub(super) methods: u16,
    /// Which of the route's paths it is (of the first 65,536).
    pub(super) path: u16,
}

/// A place in [`Entries::texts`], or in another list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) start: u32,
    pub(super) len: u32,
}

/// Some of a list's items.
pub(super) type Span = Text;

/// What few routes ask for, as parts of the lists in [`Entries`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Extra {
    pub(super) methods: Span,
    pub(super) headers: Span,
    pub(super) snis: Span,
}

/// A header that a request must have.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeaderRule {
    /// Position of its name.
    pub(super) name: u32,
    /// Index of the expression of its value, if it is one.
    pub(super) pattern: u32,
    /// Else its values, in lower case and sorted.
    pub(super) values: Span,
}

/// All entries, in order of precedence, and what they refer to.
#[derive(Debug, Default)]
pub(super) struct Entries {
    pub(super) all: Vec<Entry>,
    pub(super) texts: String,
    pub(super) patterns: Vec<Pattern>,
    pub(super) extras: Vec<Extra>,
    pub(super) methods: Vec<Method>,
    pub(super) headers: Vec<HeaderRule>,
    pub(super) names: Vec<HeaderName>,
    pub(super) values: Vec<Text>,
    pub(super) snis: Vec<HostPattern>,
}

/// What of an entry a request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mismatch {
    Method,
    Path,
    /// The header whose name is at this position.
    Header(u32),
    Sni,
}

impl Entries {
    pub(super) fn add_pattern(&mut self, pattern: Pattern) -> u32 {
        self.patterns.push(pattern);
        index(self.patterns.len() - 1)
    }

    pub(super) fn add_extra(&mut self, extra: Extra) -> u32 {
        if extra == Extra::default() {
            return NONE;
        }
        self.extras.push(extra);
        index(self.extras.len() - 1)
    }

    /// Gives back what growing left over.
    pub(super) fn shrink(&mut self) {
        self.texts.shrink_to_fit();
        self.patterns.shrink_to_fit();
        self.extras.shrink_to_fit();
        self.methods.shrink_to_fit();
        self.headers.shrink_to_fit();
        self.names.shrink_to_fit();
        self.values.shrink_to_fit();
        self.snis.shrink_to_fit();
    }

    /// Bytes on the heap, without compiled expressions.
    pub(super) fn heap(&self) -> usize {
        fn of<T>(list: &Vec<T>) -> usize {
            list.capacity() * size_of::<T>()
        }
        let patterns: usize = self.patterns.iter().map(|p| p.source().len() + 64).sum();
        of(&self.all)
            + self.texts.capacity()
            + of(&self.patterns)
            + of(&self.extras)
            + of(&self.methods)
            + of(&self.headers)
            + of(&self.names)
            + of(&self.values)
            + of(&self.snis)
            + patterns
    }

    pub(super) fn text(&self, text: Text) -> &str {
        let start = text.start as usize;
        &self.texts[start..start + text.len as usize]
    }

    /// Where a tree keeps this entry: every path that can match begins so.
    pub(super) fn literal(&self, rank: u32) -> &str {
        self.text(self.all[rank as usize].text)
    }

    pub(super) fn pattern(&self, entry: &Entry) -> Option<&Pattern> {
        self.patterns.get(entry.pattern as usize)
    }

    /// Methods of `entry` that have no bit.
    pub(super) fn methods(&self, entry: &Entry) -> &[Method] {
        self.part(&self.methods, entry, |extra| extra.methods)
    }

    pub(super) fn headers(&self, entry: &Entry) -> &[HeaderRule] {
        self.part(&self.headers, entry, |extra| extra.headers)
    }

    pub(super) fn snis(&self, entry: &Entry) -> &[HostPattern] {
        self.part(&self.snis, entry, |extra| extra.snis)
    }

    fn part<'a, T>(&self, list: &'a [T], entry: &Entry, span: impl Fn(&Extra) -> Span) -> &'a [T] {
        self.extras
            .get(entry.extra as usize)
            .map_or(&[], |extra| span(extra).of(list))
    }

    pub(super) fn values(&self, rule: &HeaderRule) -> impl ExactSizeIterator<Item = &str> {
        rule.values
            .of(&self.values)
            .iter()
            .map(|text| self.text(*text))
    }

    /// The length of the matched path prefix, if all but the host matches.
    /// `walked`: the path is known to begin with [`Entries::literal`].
    pub(super) fn matches(&self, rank: u32, ask: &Ask<'_>, walked: bool) -> Option<usize> {
        let entry = &self.all[rank as usize];
        if !self.method_matches(entry, ask) || ask.gone.is_some_and(|gone| gone.has(entry.route)) {
            return None;
        }
        let matched = self.path_matches(entry, ask, walked)?;
        if entry.extra != NONE && self.extra_failures(entry, ask).next().is_some() {
            return None;
        }
        Some(matched)
    }

    /// Everything that the entry's route asks for, besides its hosts, and that
    /// the request is not; and the length of the matched path prefix.
    pub(super) fn mismatches(&self, rank: u32, ask: &Ask<'_>) -> (Vec<Mismatch>, usize) {
        let entry = &self.all[rank as usize];
        let mut failed = Vec::new();
        if !self.method_matches(entry, ask) {
            failed.push(Mismatch::Method);
        }
        let matched = self.path_matches(entry, ask, false);
        if matched.is_none() {
            failed.push(Mismatch::Path);
        }
        failed.extend(self.extra_failures(entry, ask));
        (failed, matched.unwrap_or(0))
    }

    fn method_matches(&self, entry: &Entry, ask: &Ask<'_>) -> bool {
        entry.methods == 0
            || entry.methods & ask.method_bit != 0
            || self.methods(entry).contains(ask.query.method)
    }

    fn path_matches(&self, entry: &Entry, ask: &Ask<'_>, walked: bool) -> Option<usize> {
        let path = ask.query.path.as_bytes();
        if let Some(pattern) = self.pattern(entry) {
            let readable = ask.readable();
            let end = pattern.find_end(readable)?;
            return Some(match readable {
                Cow::Borrowed(_) => end,
                Cow::Owned(readable) => path::encoded_len(&readable[..end]),
            });
        }
        let len = entry.text.len as usize;
        let same = walked || path.starts_with(self.text(entry.text).as_bytes());
        same.then_some(len)
    }

    fn extra_failures(&self, entry: &Entry, ask: &Ask<'_>) -> impl Iterator<Item = Mismatch> {
        let sni = sni_fails(self.snis(entry), ask).then_some(Mismatch::Sni);
        let headers = self.headers(entry).iter();
        let headers = headers
            .filter(|rule| !self.header_matches(rule, ask.query.headers))
            .map(|rule| Mismatch::Header(rule.name));
        sni.into_iter().chain(headers)
    }

    fn header_matches(&self, rule: &HeaderRule, headers: &HeaderMap) -> bool {
        let name = &self.names[rule.name as usize];
        let mut sent = headers.get_all(name).iter().map(HeaderValue::as_bytes);
        match self.patterns.get(rule.pattern as usize) {
            Some(pattern) => sent.any(|value| pattern.is_match(value)),
            None => {
                let values = rule.values.of(&self.values);
                sent.any(|value| {
                    let compare = |own: &Text| lower_cmp(self.text(*own).as_bytes(), value);
                    values.binary_search_by(compare).is_ok()
                })
            }
        }
    }
}

/// Without TLS there is no server name, and none is asked for.
fn sni_fails(snis: &[HostPattern], ask: &Ask<'_>) -> bool {
    if snis.is_empty() || !ask.query.tls {
        return false;
    }
    let Some(sni) = ask.query.sni else {
        return true;
    };
    let mut space = Space::default();
    let name = Name::new(sni, &mut space);
    !snis.iter().any(|own| own.matches(name, 0))
}

impl Text {
    /// The part of `list` that this is.
    pub(super) fn of<T>(self, list: &[T]) -> &[T] {
        let start = self.start as usize;
        &list[start..start + self.len as usize]
    }

    /// What `list` has gained since it was `start` long.
    pub(super) fn since<T>(start: usize, list: &[T]) -> Self {
        if list.len() == start {
            return Self::default();
        }
        Self {
            start: index(start),
            len: index(list.len() - start),
        }
    }
}

/// Compares `own`, which is in lower case, with `value`, which may not be.
fn lower_cmp(own: &[u8], value: &[u8]) -> Ordering {
    let value = value.iter().map(u8::to_ascii_lowercase);
    own.iter().copied().cmp(value)
}

/// The methods that have a bit.
pub(super) const METHODS: [&str; 9] = [
    "GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "CONNECT", "TRACE",
];

/// The bit of a method that has one, else 0.
pub(super) fn known_method(method: &[u8]) -> u16 {
    match method {
        b"GET" => 1,
        b"POST" => 2,
        b"PUT" => 4,
        b"DELETE" => 8,
        b"PATCH" => 16,
        b"HEAD" => 32,
        b"OPTIONS" => 64,
        b"CONNECT" => 128,
        b"TRACE" => 256,
        _ => 0,
    }
}

/// All bits of `methods`. Methods without one set a bit that no request has.
pub(super) fn method_mask(methods: &[String]) -> u16 {
    methods.iter().fold(0, |mask, method| {
        mask | match known_method(method.as_bytes()) {
            0 => 1 << 15,
            bit => bit,
        }
    })
}

/// A position as entries keep it.
pub(crate) fn index(position: usize) -> u32 {
    u32::try_from(position).expect("fewer than 2^32 routes and path bytes")
}
