//! The secrets that a browser shows, and the cookies that they are in.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;

use crate::cookies;
use doorward_core::clock::random_bytes;
use doorward_net::session::own_name::{MOST, is_own_name, own_name};

/// The secrets of a browser.
#[derive(Debug, Default)]
pub(super) struct Secrets<'h> {
    /// The one that it got last, then the others.
    pub(super) all: Vec<&'h str>,
    /// Names of cookies whose secrets don't count, for there are too many.
    pub(super) surplus: Vec<&'h str>,
}

impl<'h> Secrets<'h> {
    /// What a request shows in cookies of this name and of secrets' own.
    pub(super) fn of(headers: &'h HeaderMap, name: &str) -> Self {
        let good = |secret: &&str| (32..=64).contains(&secret.len());
        let last = cookies::value(headers, name).filter(good);
        let own = cookies::all(headers)
            .filter(|(shown, secret)| is_own_name(shown.as_bytes(), name) && good(secret));
        let mut own: Vec<_> = own.filter(|(_, secret)| Some(*secret) != last).collect();
        // Browsers send the oldest first (RFC 6265 §5.4).
        let kept = own.split_off(own.len().saturating_sub(MOST));
        let kept = kept.into_iter().map(|(_, secret)| secret);
        Self {
            all: last.into_iter().chain(kept).collect(),
            surplus: own.into_iter().map(|(name, _)| name).collect(),
        }
    }
}

/// A new secret.
pub(super) fn make() -> String {
    URL_SAFE_NO_PAD.encode(random_bytes::<24>())
}

/// The name of the cookie that only this secret is in.
pub(super) fn name_of(name: &str, secret: &str) -> String {
    let digest = URL_SAFE_NO_PAD.encode(digest(&SHA256, secret.as_bytes()));
    own_name(name, &digest)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::COOKIE;

    use super::*;

    const NAME: &str = "__Host-doorward-browser";

    fn headers(cookies: &[(String, String)]) -> HeaderMap {
        let pairs = cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let field = pairs.collect::<Vec<_>>().join("; ");
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, HeaderValue::try_from(field).expect("a value"));
        headers
    }

    #[test]
    fn the_last_secret_comes_first_and_each_once() {
        let made: Vec<_> = (0..3).map(|_| make()).collect();
        let mut cookies: Vec<_> = made
            .iter()
            .map(|secret| (name_of(NAME, secret), secret.clone()))
            .collect();
        cookies.push((NAME.to_owned(), made[1].clone()));
        let headers = headers(&cookies);
        let shown = Secrets::of(&headers, NAME);
        assert_eq!(shown.all, [&made[1], &made[0], &made[2]]);
        assert!(shown.surplus.is_empty());
    }

    #[test]
    fn of_too_many_secrets_the_oldest_go() {
        let made: Vec<_> = (0..40).map(|_| make()).collect();
        let own = made
            .iter()
            .map(|secret| (name_of(NAME, secret), secret.clone()));
        let mut cookies: Vec<_> = own.collect();
        cookies.push((NAME.to_owned(), made[39].clone()));
        let headers = headers(&cookies);
        let shown = Secrets::of(&headers, NAME);
        assert_eq!(shown.all.len(), 1 + MOST);
        let gone: Vec<_> = cookies[..7].iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(shown.surplus, gone);
    }

    #[test]
    fn what_is_no_secret_or_has_another_name_does_not_count() {
        let secret = make();
        for (name, value) in [
            (NAME, "short"),
            (NAME, ""),
            ("doorward-browser", secret.as_str()),
            ("doorward-browser.abcdefgh", &secret),
            ("__Host-doorward-browser.abc", &secret),
            ("__Host-doorward-browserabcdefgh", &secret),
        ] {
            let headers = headers(&[(name.to_owned(), value.to_owned())]);
            assert!(Secrets::of(&headers, NAME).all.is_empty(), "{name}={value}");
        }
    }
}
