//! Cookies that this process gave to browsers for itself: an upstream on the
//! same host could act for the user with one, and does not get them. Nor does
//! it set them: a browser with the cookie of another user acts for that one.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};
use pingora::http::{RequestHeader, ResponseHeader};

use doorward_net::session::cookie::{pairs, split};
use doorward_plugin_api::filter::Filter;

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

    /// Takes out of a response of an upstream what sets one: a cookie of these
    /// names, one that a filter of the `route` names, or the very cookie that a
    /// filter elsewhere gave.
    pub(super) fn refuse<'f>(
        &self,
        route: impl Iterator<Item = &'f Arc<dyn Filter>> + Clone,
        givers: &[Arc<dyn Filter>],
        response: &mut ResponseHeader,
    ) {
        let is_refused = |field: &HeaderValue| {
            let pair = set_by(field.as_bytes());
            let (name, value) = split(pair).unwrap_or((pair, b""));
            self.is_own(pair)
                || route.clone().any(|filter| filter.names_cookie(name))
                || givers.iter().any(|giver| gave(giver, name, value))
        };
        let fields = response.headers.get_all(header::SET_COOKIE);
        if !fields.iter().any(is_refused) {
            return;
        }
        let others = fields.iter().filter(|field| !is_refused(field)).cloned();
        let others: Vec<_> = others.collect();
        response.remove_header(&header::SET_COOKIE);
        for field in others {
            // It was a field of this response.
            let _ = response.append_header(header::SET_COOKIE, field);
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

/// The name and the value that a `Set-Cookie` field sets, as browsers read them
/// (RFC 6265 §5.2): of what has no name, browsers send the value alone, which may
/// hold one.
fn set_by(field: &[u8]) -> &[u8] {
    let pair = field.split(|byte| *byte == b';').next().unwrap_or_default();
    let pair = pair.trim_ascii();
    match pair.strip_prefix(b"=") {
        Some(nameless) => nameless.trim_ascii(),
        None => pair,
    }
}

/// Whether a filter gave this cookie.
fn gave(giver: &Arc<dyn Filter>, name: &[u8], value: &[u8]) -> bool {
    let texts = std::str::from_utf8(name)
        .ok()
        .zip(std::str::from_utf8(value).ok());
    texts.is_some_and(|(name, value)| giver.owns_cookie(name, value))
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
    fn an_upstream_sets_no_cookie_of_the_process() {
        let own = OwnCookies::from(vec!["sid".to_owned(), "mark.".to_owned()]);
        let mut response = ResponseHeader::build(200, None).expect("a response");
        let refused = [
            "sid=1",
            " sid = 1; Path=/; HttpOnly",
            "sid",
            "sid=",
            "=sid=1",
            "mark.abc=1; Max-Age=0",
        ];
        let others = ["a=1; Path=/", "Sid=1", "xsid=1; Domain=sid", "", "mark=2"];
        for field in refused.into_iter().chain(others) {
            response
                .append_header("set-cookie", field)
                .expect("a field");
        }
        own.refuse([].into_iter(), &[], &mut response);
        let left = response.headers.get_all(header::SET_COOKIE).iter();
        let left: Vec<_> = left.map(|value| value.to_str().expect("text")).collect();
        assert_eq!(left, others);
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
