//! Cookies that this process gave to browsers for itself: an upstream on the
//! same host could act for the user with one, and does not get them.

use http::{HeaderMap, HeaderValue, header};
use pingora::http::RequestHeader;

/// The names of such cookies.
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
        values.any(|value| pairs(value).any(|pair| self.is_own(pair)))
    }

    fn is_own(&self, pair: &[u8]) -> bool {
        let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
        let name = name.trim_ascii();
        self.0.iter().any(|own| own.as_bytes() == name)
    }

    /// What is left of each field.
    fn others(&self, headers: &HeaderMap) -> Vec<HeaderValue> {
        let values = headers.get_all(header::COOKIE).iter();
        let left = values.filter_map(|value| {
            let pairs: Vec<_> = pairs(value).filter(|pair| !self.is_own(pair)).collect();
            let left = HeaderValue::from_bytes(&pairs.join(&b"; "[..])).ok();
            left.filter(|left| !left.is_empty())
        });
        left.collect()
    }
}

fn pairs(value: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    let pairs = value.as_bytes().split(|byte| *byte == b';');
    pairs.map(<[u8]>::trim_ascii)
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
    fn without_a_provider_nothing_is_looked_at() {
        let mut request = RequestHeader::build("GET", b"/", None).expect("a request");
        request.append_header("cookie", "sid=1").expect("a field");
        OwnCookies::default().strip(&mut request);
        assert_eq!(request.headers[header::COOKIE], "sid=1");
    }
}
