//! Cookies (RFC 6265): reading them, and writing values that may need several.
//!
//! A long value is cut into `name`, `name2` … `name9`. Its first character is
//! the number of pieces, so that pieces of an earlier, longer value never pass
//! for its own.

use std::borrow::Cow;

use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};

/// Longest name with value and attributes, in bytes: browsers drop what is
/// longer.
const COOKIE_MAX: usize = 4096;
/// Most pieces of a value.
pub const PIECES_MAX: usize = 9;

/// Why no cookie can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CookieError {
    /// The value needs more than [`PIECES_MAX`] cookies.
    #[error("the value is too long for cookies")]
    TooBig,
    /// A character that no cookie may have.
    #[error("a character that a cookie can't have")]
    Illegal,
}

/// The attribute `SameSite`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameSite {
    /// Sent with requests from the same site only.
    Strict,
    /// Sent with links from other sites, too.
    Lax,
    /// Sent always; browsers want `Secure` with it.
    None,
    /// The attribute is left out.
    Unsaid,
}

/// What the cookies of one kind are like.
#[derive(Clone, Debug)]
pub struct Style {
    name: String,
    path: String,
    domain: Option<String>,
    same_site: SameSite,
    http_only: bool,
    /// `None`: where the request came by TLS.
    secure: Option<bool>,
    /// In seconds; `None`: for as long as the browser runs.
    max_age: Option<i64>,
}

impl Style {
    /// Cookies called `name` for `path` and `domain`.
    ///
    /// # Errors
    /// [`CookieError::Illegal`] for a name, path or domain that can't be.
    pub fn new(name: &str, path: &str, domain: Option<&str>) -> Result<Self, CookieError> {
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let plain = |text: &str| text.bytes().all(|b| matches!(b, 0x21..=0x7e) && b != b';');
        let good = !name.is_empty()
            && name.bytes().all(token)
            && path.starts_with('/')
            && plain(path)
            && domain.is_none_or(|domain| !domain.is_empty() && plain(domain));
        if !good {
            return Err(CookieError::Illegal);
        }
        Ok(Self {
            name: name.to_owned(),
            path: path.to_owned(),
            domain: domain.map(str::to_owned),
            same_site: SameSite::Lax,
            http_only: true,
            secure: None,
            max_age: None,
        })
    }

    /// With these attributes; `secure`: `None` where the request came by TLS.
    #[must_use]
    pub fn with(mut self, same_site: SameSite, http_only: bool, secure: Option<bool>) -> Self {
        self.same_site = same_site;
        self.http_only = http_only;
        self.secure = secure;
        self
    }

    /// The same under another name, made of characters that names may have.
    #[must_use]
    pub fn called(&self, name: &str) -> Self {
        let name = name.to_owned();
        Self {
            name,
            ..self.clone()
        }
    }

    /// Kept for so many seconds, however long the browser runs.
    #[must_use]
    pub fn lasting(mut self, seconds: i64) -> Self {
        self.max_age = Some(seconds);
        self
    }

    /// The name of the first piece.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether its domain has browsers show the cookies to `host` wherever below
    /// it they were given.
    pub fn covers(&self, host: &str) -> bool {
        let domain = self.domain.as_deref().unwrap_or_default();
        let domain = domain.trim_start_matches('.');
        let lower = host.to_ascii_lowercase();
        let rest = lower.strip_suffix(&domain.to_ascii_lowercase());
        !domain.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    }

    /// Whether a field that browsers get is of one of these.
    pub fn is_given(&self, field: &HeaderValue) -> bool {
        split(field.as_bytes()).is_some_and(|(name, _)| self.is_own(name))
    }

    /// Whether `name` is that of a piece.
    pub fn is_own(&self, name: &[u8]) -> bool {
        let rest = name.strip_prefix(self.name.as_bytes());
        rest.is_some_and(|rest| matches!(rest, [] | [b'2'..=b'9']))
    }

    /// The fields that have the browser keep `value`, and forget what
    /// `request` shows of an earlier, longer one. `secure`: whether the request
    /// came by TLS.
    ///
    /// # Errors
    /// [`CookieError`].
    pub fn keep(
        &self,
        value: &str,
        request: &HeaderMap,
        secure: bool,
    ) -> Result<Vec<HeaderValue>, CookieError> {
        let mut attributes = self.attributes(secure);
        if let Some(seconds) = self.max_age {
            attributes.push_str("; Max-Age=");
            attributes.push_str(&seconds.to_string());
        }
        // With the number of pieces, and that of this one in its name.
        let room = COOKIE_MAX.saturating_sub(self.name.len() + attributes.len() + 3);
        let pieces = value.len().div_ceil(room.max(1)).max(1);
        if pieces > PIECES_MAX {
            return Err(CookieError::TooBig);
        }
        if !value.is_ascii() {
            return Err(CookieError::Illegal);
        }
        let mut fields = Vec::with_capacity(pieces);
        for index in 0..pieces {
            let piece = &value[index * room..value.len().min((index + 1) * room)];
            let number = match index {
                0 => pieces.to_string(),
                _ => String::new(),
            };
            let field = format!("{}={number}{piece}{attributes}", self.piece_name(index));
            fields.push(HeaderValue::try_from(field).map_err(|_| CookieError::Illegal)?);
        }
        fields.extend(self.forget_from(pieces, request, secure));
        Ok(fields)
    }

    /// The fields that have the browser forget every piece that `request`
    /// shows.
    pub fn forget(&self, request: &HeaderMap, secure: bool) -> Vec<HeaderValue> {
        self.forget_from(0, request, secure)
    }

    fn forget_from(&self, first: usize, request: &HeaderMap, secure: bool) -> Vec<HeaderValue> {
        let attributes = self.attributes(secure);
        let shown = (first..PIECES_MAX).filter_map(|index| {
            let name = self.piece_name(index);
            value(request, &name)?;
            let field = format!("{name}={attributes}; Max-Age=0");
            HeaderValue::try_from(field).ok()
        });
        shown.collect()
    }

    /// The value that the pieces of `request` make; `Some(None)`: they make
    /// none, for a piece is gone or was changed.
    pub fn read<'a>(&self, request: &'a HeaderMap) -> Option<Option<Cow<'a, str>>> {
        let first = value(request, &self.name).filter(|first| !first.is_empty())?;
        let (number, rest) = first.split_at_checked(1)?;
        let whole = || {
            let pieces = number.parse::<usize>().ok()?;
            if !(1..=PIECES_MAX).contains(&pieces) {
                return None;
            }
            let mut whole = Cow::Borrowed(rest);
            for index in 1..pieces {
                let piece = value(request, &self.piece_name(index))?;
                whole.to_mut().push_str(piece);
            }
            Some(whole)
        };
        Some(whole())
    }

    fn piece_name(&self, index: usize) -> String {
        match index {
            0 => self.name.clone(),
            _ => format!("{}{}", self.name, index + 1),
        }
    }

    fn attributes(&self, secure: bool) -> String {
        let mut text = format!("; Path={}", self.path);
        if let Some(domain) = &self.domain {
            text.push_str("; Domain=");
            text.push_str(domain);
        }
        text.push_str(match self.same_site {
            SameSite::Strict => "; SameSite=Strict",
            SameSite::Lax => "; SameSite=Lax",
            SameSite::None => "; SameSite=None",
            SameSite::Unsaid => "",
        });
        if self.http_only {
            text.push_str("; HttpOnly");
        }
        if self.secure.unwrap_or(secure) {
            text.push_str("; Secure");
        }
        text
    }
}

/// The value of the first cookie called `name` that is text.
pub fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let fields = headers.get_all(COOKIE).iter();
    let pairs = fields.flat_map(|field| pairs(field.as_bytes()));
    let named = pairs
        .filter_map(split)
        .filter(|(key, _)| *key == name.as_bytes());
    let mut values = named.filter_map(|(_, value)| std::str::from_utf8(value).ok());
    values.next()
}

/// The cookies of a `Cookie` field.
pub fn pairs(field: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = memchr::memchr_iter(b';', field).chain([field.len()]);
    let mut from = 0;
    ends.map(move |end| {
        let pair = field[from..end].trim_ascii();
        from = end + 1;
        pair
    })
}

/// Name and value of one of them.
pub fn split(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(b'=', pair)?;
    Some((
        pair[..at].trim_ascii_end(),
        pair[at + 1..].trim_ascii_start(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn style() -> Style {
        Style::new("session", "/", None).expect("a style")
    }

    /// The request of a browser that got these fields.
    fn browser(fields: &[HeaderValue]) -> HeaderMap {
        let cookies = fields.iter().map(|field| {
            let field = field.to_str().expect("text");
            field.split(';').next().expect("a pair").to_owned()
        });
        let mut headers = HeaderMap::new();
        let cookies = cookies.collect::<Vec<_>>().join("; ");
        headers.insert(COOKIE, HeaderValue::try_from(cookies).expect("a value"));
        headers
    }

    #[test]
    fn a_value_of_any_length_comes_back_or_is_refused() {
        let nothing = HeaderMap::new();
        for length in [0, 1, 4000, 4096, 9000, 36_000] {
            let value = "x".repeat(length);
            let fields = style().keep(&value, &nothing, true).expect("kept");
            for field in &fields {
                assert!(field.len() <= COOKIE_MAX, "{length}: {}", field.len());
            }
            let browser = browser(&fields);
            let read = style().read(&browser);
            assert_eq!(read, Some(Some(value.into())), "{length}");
        }
        let long = "x".repeat(37_000);
        let refused = style().keep(&long, &nothing, true);
        assert_eq!(refused, Err(CookieError::TooBig));
    }

    #[test]
    fn pieces_of_an_earlier_value_are_forgotten_and_never_read() {
        let long = style().keep(&"x".repeat(9000), &HeaderMap::new(), false);
        let before = browser(&long.expect("kept"));
        let fields = style().keep("short", &before, false).expect("kept");
        let names = fields.iter().map(|field| {
            let field = field.to_str().expect("text");
            (
                field.split('=').next().expect("a name"),
                field.contains("Max-Age=0"),
            )
        });
        let names = names.collect::<Vec<_>>();
        assert_eq!(
            names,
            [("session", false), ("session2", true), ("session3", true)]
        );
        let mut mixed = before.clone();
        mixed.insert(
            COOKIE,
            HeaderValue::from_static("session=1short; session2=xxx"),
        );
        assert_eq!(style().read(&mixed), Some(Some("short".into())));
        assert_eq!(style().forget(&before, false).len(), 3);
    }

    #[test]
    fn a_value_with_a_piece_missing_is_none() {
        for (cookies, read) in [
            ("session=2abc", Some(None)),
            ("session=abc", Some(None)),
            ("session=0abc", Some(None)),
            ("session=", None),
            ("sessions=1a; session2=b", None),
            ("a=b; session=1x", Some(Some("x".into()))),
            ("a=\u{e4}; session = 1x", Some(Some("x".into()))),
        ] {
            let mut headers = HeaderMap::new();
            let field = HeaderValue::from_bytes(cookies.as_bytes());
            headers.insert(COOKIE, field.expect("a field"));
            assert_eq!(style().read(&headers), read, "{cookies}");
        }
    }

    #[test]
    fn attributes_are_those_of_the_style() {
        let style = Style::new("s", "/a", Some("example.com")).expect("a style");
        let nothing = HeaderMap::new();
        let field = |style: &Style, secure| {
            let fields = style.keep("v", &nothing, secure).expect("kept");
            fields[0].to_str().expect("text").to_owned()
        };
        let all = style.clone().with(SameSite::None, true, Some(true));
        let wanted = "s=1v; Path=/a; Domain=example.com; SameSite=None; HttpOnly; Secure";
        assert_eq!(field(&all, false), wanted);
        let few = style.with(SameSite::Unsaid, false, None);
        assert_eq!(field(&few, false), "s=1v; Path=/a; Domain=example.com");
        assert!(field(&few, true).ends_with("; Secure"));
        let lasting = all.called("r").lasting(60);
        let wanted =
            "r=1v; Path=/a; Domain=example.com; SameSite=None; HttpOnly; Secure; Max-Age=60";
        assert_eq!(field(&lasting, false), wanted);
        let forgotten = lasting.forget(&browser(&[HeaderValue::from_static("r=1v;")]), false);
        let forgotten = forgotten[0].to_str().expect("text");
        assert_eq!(forgotten.matches("Max-Age").count(), 1);
        assert!(forgotten.ends_with("; Max-Age=0"));
        for (name, path) in [("", "/"), ("a b", "/"), ("a", "x"), ("a", "/;b")] {
            assert!(Style::new(name, path, None).is_err());
        }
    }

    #[test]
    fn only_pieces_are_its_own() {
        for (name, own) in [
            ("session", true),
            ("session2", true),
            ("session9", true),
            ("session1", false),
            ("session10", false),
            ("sessions", false),
            ("other", false),
        ] {
            assert_eq!(style().is_own(name.as_bytes()), own, "{name}");
        }
    }
}
