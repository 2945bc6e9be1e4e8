//! Cookies that this process gave to browsers for itself: an upstream on the
//! same host could act for the user with one, and does not get them.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};
use pingora::http::RequestHeader;

use crate::filter::Filter;
use crate::session::cookie::{pairs, split};

/// The names of such cookies; one with a dot at its end stands for all that
/// begin so.
#[derive(Debug, Default)]
pub struct OwnCookies(Box<[String]>);

impl From<Vec<String>> for OwnCookies {
    fn from(names: Vec<String>) -> Self {
        Self(names.into())
    }
}

impl OwnCookies {
    /// Takes them out of a request.
    pub(super) fn strip(&self, request: &mut RequestHeader) {
        if self.0.is_empty() || !self.are_in(&request.headers) {
            return;
        }
        let kept = self.others(&request.headers);
        request.remove_header(&header::COOKIE);
        for value in kept {
            // A part of a valid value.
            let _ = request.append_header(header::COOKIE, value);
        }
    }

    fn are_in(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(header::COOKIE).iter();
        values.any(|value| pairs(value.as_bytes()).any(|pair| self.is_own(pair)))
    }

    fn is_own(&self, pair: &[u8]) -> bool {
        let name = split(pair).map_or(pair, |(name, _)| name);
        self.0.iter().any(|own| {
            let own = own.as_bytes();
            own == name || (own.ends_with(b".") && name.starts_with(own))
        })
    }

    /// What is left of each field.
    fn others(&self, headers: &HeaderMap) -> Vec<HeaderValue> {
        let values = headers.get_all(header::COOKIE).iter();
        let left = values.filter_map(|value| {
            let pairs = pairs(value.as_bytes());
            let pairs: Vec<_> = pairs.filter(|pair| !self.is_own(pair)).collect();
            let left = HeaderValue::from_bytes(&pairs.join(&b"; "[..])).ok();
            left.filter(|left| !left.is_empty())
        });
        left.collect()
    }
}

/// Takes out the cookies that filters gave to browsers for themselves, wherever
/// those run.
pub(super) fn strip_of_filters(givers: &[Arc<dyn Filter>], request: &mut RequestHeader) {
    if givers.is_empty() || !request.headers.contains_key(header::COOKIE) {
        return;
    }
    let values = request.headers.get_all(header::COOKIE).iter();
    let shown = values.flat_map(|value| pairs(value.as_bytes()));
    let own = shown.filter_map(|pair| {
        let (name, value) = split(pair)?;
        let name = std::str::from_utf8(name).ok()?;
        let value = std::str::from_utf8(value).ok()?;
        let owned = givers.iter().any(|one| one.owns_cookie(name, value));
        owned.then(|| name.to_owned())
    });
    let own: Vec<String> = own.collect();
    if own.is_empty() {
        return;
    }
    // Long values take several cookies.
    let pieces = |name: &String| (2..=9).map(|n| format!("{name}{n}")).collect::<Vec<_>>();
    let all = own.iter().flat_map(pieces).chain(own.iter().cloned());
    OwnCookies::from(all.collect::<Vec<_>>()).strip(request);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripped(cookies: &[&str]) -> Vec<String> {
        let mut request = RequestHeader::build("GET", b"/", None).expect("a request");
        for cookie in cookies {
            request.append_header("cookie", *cookie).expect("a field");
        }
        let own = OwnCookies::from(vec!["sid".to_owned(), "__Host-sid".to_owned()]);
        own.strip(&mut request);
        let left = request.headers.get_all(header::COOKIE).iter();
        left.map(|value| value.to_str().expect("text").to_owned())
            .collect()
    }

    #[test]
    fn own_cookies_go_and_others_stay_as_they_are() {
        assert_eq!(stripped(&["a=1; sid=x; b=\"2\""]), ["a=1; b=\"2\""]);
        assert_eq!(stripped(&["sid=x"]), [""; 0]);
        assert_eq!(stripped(&["__Host-sid=x;a=1"]), ["a=1"]);
        assert_eq!(stripped(&["a=1", "sid=y", "sid = z; c=3"]), ["a=1", "c=3"]);
        // Names are exact, and what has no own one is not touched.
        for untouched in ["Sid=1;  xsid=2;", "a=sid=1", ""] {
            assert_eq!(stripped(&[untouched]), [untouched]);
        }
        assert_eq!(stripped(&[]), [""; 0]);
    }

    #[test]
    fn a_name_with_a_dot_at_its_end_is_that_of_many() {
        let mut request = RequestHeader::build("GET", b"/", None).expect("a request");
        let cookies = "sid=1; mark=2; mark.a=3; mark.=4; sid.a=5; marks=6";
        request.append_header("cookie", cookies).expect("a field");
        OwnCookies::from(vec!["sid".to_owned(), "mark.".to_owned()]).strip(&mut request);
        assert_eq!(request.headers[header::COOKIE], "mark=2; sid.a=5; marks=6");
    }

    #[test]
    fn without_a_provider_nothing_is_looked_at() {
        let mut request = RequestHeader::build("GET", b"/", None).expect("a request");
        request.append_header("cookie", "sid=1").expect("a field");
        OwnCookies::default().strip(&mut request);
        assert_eq!(request.headers[header::COOKIE], "sid=1");
    }
}
