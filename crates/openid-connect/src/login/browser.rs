//! What binds logins to the browser that began them (RFC 9700 §4.7).
//!
//! A random value in a cookie. Requests that a browser sends at the same time
//! before it has one get one each, and of cookies of one name it keeps the last;
//! so each value also is in a cookie whose name is of its own, which goes when
//! no login that it was given for can end any more.

use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue};
use pingora::http::RequestHeader;

use crate::login::{short_digest, token};
use crate::session::strip;
use doorward_net::session::cookie::{CookieError, Style, pairs, split, value};
use doorward_net::session::own_name::{MOST, is_own_name, own_name};

/// How long a value is, in characters.
const LENGTH: usize = 22;
/// How long a short digest is, in characters.
const DIGEST: usize = 8;

/// What a browser is known by.
pub(crate) struct BrowserMark {
    value: String,
    /// What its logins hold of it.
    pub(crate) digest: String,
}

/// Where a login begins: its path, and its query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartPage<'a> {
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
}

impl StartPage<'_> {
    /// Of the path, and of the query.
    fn digests(self) -> String {
        let mut digests = short_digest(self.path);
        digests.truncate(DIGEST);
        let query = short_digest(self.query.unwrap_or_default());
        digests.push_str(&query[..DIGEST]);
        digests
    }
}

/// The cookies of browsers that have begun logins.
pub(crate) struct Browsers {
    style: Style,
    /// How long a login may take, in seconds.
    lifetime_s: i64,
}

impl Browsers {
    pub(crate) fn new(style: Style, lifetime_s: i64) -> Self {
        Self { style, lifetime_s }
    }

    /// The mark that a browser got last, or a new one.
    pub(crate) fn of(&self, headers: &HeaderMap) -> BrowserMark {
        let value = self.last(headers).map_or_else(token::<16>, str::to_owned);
        let digest = short_digest(&value);
        BrowserMark { value, digest }
    }

    /// Has the browser keep a mark for a login that begins now, at this place.
    ///
    /// # Errors
    /// [`CookieError`] where no cookie can be written.
    pub(crate) fn keep(
        &self,
        mark: &BrowserMark,
        request: &HeaderMap,
        (place, secure): (StartPage<'_>, bool),
        fields: &mut Vec<(HeaderName, HeaderValue)>,
    ) -> Result<(), CookieError> {
        let named = self.named(&mark.digest);
        let mut all = self.style.keep(&mark.value, request, secure)?;
        let value = format!("{}{}", mark.value, place.digests());
        all.extend(named.keep(&value, request, secure)?);
        let mut own: Vec<&str> = self.own_names(request).collect();
        own.retain(|name| *name != named.name());
        // Browsers send the oldest first (RFC 6265 §5.4).
        let surplus = own.len().saturating_sub(MOST - 1);
        for name in &own[..surplus] {
            all.extend(self.style.called(name).forget(request, secure));
        }
        fields.extend(all.into_iter().map(|cookie| (SET_COOKIE, cookie)));
        Ok(())
    }

    /// Whether a browser has begun a login at all.
    pub(crate) fn has_any(&self, headers: &HeaderMap) -> bool {
        self.last(headers).is_some()
    }

    /// Whether the browser has begun a login at the path of `place`, by another
    /// query, which it may still end: the request looks as if it came back from it.
    pub(crate) fn may_come_back(&self, headers: &HeaderMap, place: StartPage<'_>) -> bool {
        let begun = || {
            let digest = short_digest(self.last(headers)?);
            let cookie = value(headers, self.named(&digest).name())?;
            cookie.strip_prefix('1')?.get(LENGTH..)
        };
        let here = place.digests();
        begun().is_some_and(|begun| {
            begun.len() == here.len() && begun.get(..DIGEST) == here.get(..DIGEST) && begun != here
        })
    }

    /// Whether the value of this digest is among those that a browser has.
    pub(crate) fn has(&self, headers: &HeaderMap, digest: &str) -> bool {
        let own = value(headers, self.named(digest).name()).and_then(read);
        let mut values = own.into_iter().chain(self.last(headers));
        values.any(|value| short_digest(value) == digest)
    }

    /// The value that the browser got last.
    fn last<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        value(headers, self.style.name()).and_then(read)
    }

    fn named(&self, digest: &str) -> Style {
        let style = self.style.called(&own_name(self.style.name(), digest));
        style.lasting(self.lifetime_s)
    }

    /// The names of their own that a request shows.
    fn own_names<'h>(&self, headers: &'h HeaderMap) -> impl Iterator<Item = &'h str> {
        let fields = headers.get_all(COOKIE).iter();
        let shown = fields.flat_map(|field| pairs(field.as_bytes()));
        let names = shown.filter_map(|pair| Some(split(pair)?.0));
        let own = names.filter(|name| self.is_of_a_value(name));
        own.filter_map(|name| std::str::from_utf8(name).ok())
    }

    fn is_of_a_value(&self, name: &[u8]) -> bool {
        is_own_name(name, self.style.name())
    }

    /// Whether a cookie is one of these.
    pub(crate) fn owns(&self, name: &str, value: &str) -> bool {
        let named = name == self.style.name() || self.is_of_a_value(name.as_bytes());
        named && read(value).is_some()
    }

    /// Whether browsers show the cookies that one host gives to the other.
    pub(crate) fn share(&self, one: &str, other: &str) -> bool {
        one == other || (self.style.covers(one) && self.style.covers(other))
    }

    /// Takes the cookies out of what the upstream gets.
    pub(crate) fn strip(&self, request: &mut RequestHeader) {
        strip(request, |name| self.names(name));
    }

    /// Whether the cookies have this name.
    pub(crate) fn names(&self, name: &[u8]) -> bool {
        self.style.is_own(name) || self.is_of_a_value(name)
    }
}

/// The value of a cookie that was written in one piece, without what may be said
/// behind it of the login.
fn read(cookie: &str) -> Option<&str> {
    let value = cookie.strip_prefix('1')?;
    let whole = value.len() == LENGTH || value.len() == LENGTH + 2 * DIGEST;
    let good = whole && value.as_bytes().iter().all(is_of_token);
    good.then(|| &value[..LENGTH])
}

fn is_of_token(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: StartPage<'_> = StartPage {
        path: "/orders",
        query: None,
    };

    fn browsers() -> Browsers {
        let style = Style::new("authorization", "/", None).expect("a style");
        Browsers::new(style, 600)
    }

    /// What a browser keeps of these fields, in the order of its getting them.
    fn keep(jar: &mut Vec<(String, String)>, fields: &[(HeaderName, HeaderValue)]) {
        for (_, field) in fields {
            let field = field.to_str().expect("text");
            let (pair, attributes) = field.split_once(';').expect("attributes");
            let (name, value) = pair.split_once('=').expect("a pair");
            let known = jar.iter().position(|(known, _)| known == name);
            if attributes.contains("Max-Age=0") {
                jar.remove(known.expect("only what is shown is told to go"));
            } else if let Some(known) = known {
                jar[known].1 = value.to_owned();
            } else {
                jar.push((name.to_owned(), value.to_owned()));
            }
        }
    }

    fn headers(jar: &[(String, String)]) -> HeaderMap {
        let pairs: Vec<_> = jar
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let mut headers = HeaderMap::new();
        let field = HeaderValue::try_from(pairs.join("; ")).expect("a value");
        headers.insert(COOKIE, field);
        headers
    }

    /// Begins a login with what the browser has; gives its digest and the fields.
    fn begin(jar: &[(String, String)]) -> (String, Vec<(HeaderName, HeaderValue)>) {
        let shown = headers(jar);
        let mark = browsers().of(&shown);
        let mut fields = Vec::new();
        let kept = browsers().keep(&mark, &shown, (AT, false), &mut fields);
        kept.expect("kept");
        (mark.digest, fields)
    }

    #[test]
    fn logins_begun_at_the_same_moment_all_are_of_their_browser() {
        let begun: Vec<_> = (0..20).map(|_| begin(&[])).collect();
        let mut jar = Vec::new();
        for (_, fields) in &begun {
            keep(&mut jar, fields);
        }
        assert_eq!(jar.len(), 21);
        let shown = headers(&jar);
        for (digest, _) in &begun {
            assert!(browsers().has(&shown, digest));
        }
        let (last, fields) = begin(&jar);
        assert_eq!(last, begun[19].0);
        keep(&mut jar, &fields);
        assert_eq!(jar.len(), 21);
        for (name, value) in &jar {
            assert!(browsers().owns(name, value), "{name}");
        }
        let foreign = short_digest("another");
        assert!(!browsers().has(&shown, &foreign));
    }

    #[test]
    fn a_browser_may_come_back_to_the_path_of_its_login_with_another_query() {
        let (_, fields) = begin(&[]);
        let mut jar = Vec::new();
        keep(&mut jar, &fields);
        let at = |path, query| browsers().may_come_back(&headers(&jar), StartPage { path, query });
        assert!(at("/orders", Some("code=a")));
        assert!(!at("/orders", None), "the same request again");
        assert!(!at("/invite", Some("code=a")), "another page");
        // Names with an end of their own go when the login can end no more.
        jar.retain(|(name, _)| name == "authorization");
        let shown = headers(&jar);
        let place = StartPage {
            query: Some("code=a"),
            ..AT
        };
        assert!(!browsers().may_come_back(&shown, place));
    }

    #[test]
    fn a_browser_is_left_no_more_than_a_bounded_number_of_cookies() {
        let begun: Vec<_> = (0..60).map(|_| begin(&[])).collect();
        let mut jar = Vec::new();
        for (_, fields) in &begun {
            keep(&mut jar, fields);
        }
        let (_, fields) = begin(&jar);
        keep(&mut jar, &fields);
        assert_eq!(jar.len(), 1 + MOST);
        let shown = headers(&jar);
        let has = |(digest, _): &(String, _)| browsers().has(&shown, digest);
        assert!(begun[60 - MOST..].iter().all(has));
        assert!(!begun[..60 - MOST].iter().any(has));
    }

    #[test]
    fn a_cookie_says_how_long_it_is_of_use() {
        let (digest, fields) = begin(&[]);
        let fields: Vec<_> = fields
            .iter()
            .map(|(_, field)| field.to_str().expect("text"))
            .collect();
        assert!(!fields[0].contains("Max-Age"));
        let named = format!("{}=1", own_name("authorization", &digest));
        assert!(fields[1].starts_with(&named) && fields[1].contains("Max-Age=600"));
    }

    #[test]
    fn a_mark_counts_under_a_name_of_its_own_only() {
        let mark = browsers().of(&HeaderMap::new());
        let own = own_name("authorization", &mark.digest);
        let value = format!("1{}", mark.value);
        for (name, value, counts) in [
            (own.as_str(), value.as_str(), true),
            ("authorization", &value, true),
            ("authorization.AAAAAAAA", &value, false),
            ("Authorization", &value, false),
            (&own, &mark.value, false),
            (&own, &value[..22], false),
            (&own, "", false),
        ] {
            let shown = headers(&[(name.to_owned(), value.to_owned())]);
            assert_eq!(
                browsers().has(&shown, &mark.digest),
                counts,
                "{name}={value}"
            );
        }
    }

    #[test]
    fn the_upstream_gets_none_of_them() {
        let (_, fields) = begin(&[]);
        let mut jar = vec![("a".to_owned(), "1".to_owned())];
        keep(&mut jar, &fields);
        jar.push(("authorization.other".to_owned(), "x".to_owned()));
        let mut request = RequestHeader::build("GET", b"/", None).expect("a request");
        let shown = headers(&jar);
        request
            .insert_header(COOKIE, &shown[COOKIE])
            .expect("a field");
        browsers().strip(&mut request);
        assert_eq!(request.headers[COOKIE], "a=1; authorization.other=x");
    }
}
