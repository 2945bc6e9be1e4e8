//! Which redirect URIs are registered: byte for byte, but for the port of a
//! loopback address (RFC 6749 §3.1.2, RFC 8252 §7.3, RFC 9700 §2.1).

use std::borrow::Cow;

/// Whether `asked` is one of `registered`.
pub(super) fn is_registered(asked: &str, registered: &[String]) -> bool {
    let plain = asked.bytes().all(|byte| matches!(byte, 0x21..=0x7e)) && !asked.contains('#');
    plain
        && registered.iter().any(|known| {
            known == asked
                || matches!(
                    (without_port(known), without_port(asked)),
                    (Some(known), Some(asked)) if known == asked
                )
        })
}

/// What a program of the user's own machine listens at. Its name is here too,
/// though RFC 8252 §8.3 prefers addresses: common clients register it without a
/// port and ask with one.
const LOCAL: [&str; 3] = ["http://127.0.0.1", "http://[::1]", "http://localhost"];

/// An http URI of the user's own machine without its port. Compared as texts:
/// what one parser takes for the host another one may not.
fn without_port(uri: &str) -> Option<Cow<'_, str>> {
    LOCAL.into_iter().find_map(|host| {
        let rest = uri.strip_prefix(host)?;
        let Some(port) = rest.strip_prefix(':') else {
            let ends = rest.is_empty() || rest.starts_with(['/', '?']);
            return ends.then_some(Cow::Borrowed(uri));
        };
        let digits = port.bytes().take_while(u8::is_ascii_digit).count();
        let after = &port[digits..];
        let ends = after.is_empty() || after.starts_with(['/', '?']);
        let is_port = port[..digits].parse::<u16>().is_ok();
        (ends && is_port).then(|| Cow::Owned(format!("{host}{after}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(asked: &str, known: &str) -> bool {
        is_registered(asked, &[known.to_owned()])
    }

    #[test]
    fn variations_of_a_redirect_uri_are_refused() {
        let known = "https://app.example/cb?a=1";
        assert!(is(known, known));
        for other in [
            "https://app.example/cb",
            "https://app.example/cb?a=1&b=2",
            "https://app.example/cb/?a=1",
            "https://APP.example/cb?a=1",
            "https://app.example:443/cb?a=1",
            "https://app.example/x/../cb?a=1",
            "https://app.example/%63b?a=1",
            "https://app.example@evil.example/cb?a=1",
            "https://app.example.evil.example/cb?a=1",
            "http://app.example/cb?a=1",
            "https://app.example/cb?a=1#f",
            "https://app.example/cb?a=1 ",
            "//app.example/cb?a=1",
            "https:\\\\app.example/cb?a=1",
            "",
        ] {
            assert!(!is(other, known), "{other}");
        }
    }

    #[test]
    fn a_loopback_address_may_have_any_port() {
        for known in ["http://127.0.0.1/cb", "http://127.0.0.1:8080/cb"] {
            for good in ["http://127.0.0.1/cb", "http://127.0.0.1:51004/cb"] {
                assert!(is(good, known), "{good}");
            }
            for bad in [
                "http://127.0.0.1:99999/cb",
                "http://127.0.0.1:/cb",
                "http://127.0.0.1:80@evil.example/cb",
                "http://127.0.0.1.evil.example/cb",
                "http://127.0.0.1@evil.example/cb",
                "http://127.0.0.1:80/other",
                "http://localhost:80/cb",
                "http://localhost.evil.example:80/cb",
                "https://127.0.0.1:80/cb",
                "http://[::1]:80/cb",
            ] {
                assert!(!is(bad, known), "{bad}");
            }
        }
        assert!(is("http://[::1]:80/cb", "http://[::1]/cb"));
        assert!(is("http://localhost:1/cb", "http://localhost:2/cb"));
        assert!(is("http://localhost:1/cb", "http://localhost/cb"));
        for bad in [
            "http://localhost.evil.example/cb",
            "http://localhost:1@evil.example/cb",
            "http://localhostile/cb",
            "https://localhost:1/cb",
            "http://127.0.0.1:1/cb",
        ] {
            assert!(!is(bad, "http://localhost/cb"), "{bad}");
        }
    }
}
