//! Request paths: what is left of a normal one for the upstream.

use std::borrow::Cow;

use doorward_net::http::path::is_dots;
pub use doorward_net::http::path::{PathError, encoded, encoded_len, normalize, readable};

/// Whether stripping the first `matched` bytes of a normal path leaves one
/// that begins with a dot segment: `/foo..` matches the prefix `/foo`, and the
/// rest would climb out of the service's path. A leading `./` or `../` does
/// not: [`upstream_path`] removes it.
pub fn climbs_when_stripped(path: &str, matched: usize) -> bool {
    let rest = path.get(matched..).unwrap_or("");
    if matched == 0 || !rest.starts_with('.') {
        return false;
    }
    let rest = without_leading_dots(rest);
    let rest = rest.replace("%2F", "/").replace("%5C", "/");
    let first = rest.split('/').next().unwrap_or("");
    first == "." || is_dots(first)
}

/// The path sent to the upstream.
///
/// `service` is the service's path, `request` the normalised request path,
/// `matched` the length of the prefix that the route matched (0: the route
/// has no paths).
pub fn upstream_path<'a>(
    service: Option<&str>,
    request: &'a str,
    matched: usize,
    strip: bool,
    v1: bool,
) -> Cow<'a, str> {
    let service = service.unwrap_or("/");
    if service == "/" && (!strip || matched == 0) {
        return Cow::Borrowed(request);
    }
    if !strip {
        return Cow::Owned(join_unstripped(service, request, v1));
    }
    let rest = match matched {
        0 => request.get(1..).unwrap_or(""),
        n => request.get(n..).unwrap_or(""),
    };
    let rest = without_leading_dots(rest);
    if v1 {
        return Cow::Owned(concat(service, rest));
    }
    Cow::Owned(join_stripped(service, request, rest))
}

fn without_leading_dots(rest: &str) -> &str {
    rest.strip_prefix("./")
        .or_else(|| rest.strip_prefix("../"))
        .unwrap_or(rest)
}

/// Concatenates, dropping one of two slashes and inserting none.
fn concat(left: &str, right: &str) -> String {
    match (left.ends_with('/'), right.strip_prefix('/')) {
        (true, Some(right)) => format!("{left}{right}"),
        _ => format!("{left}{right}"),
    }
}

fn join_unstripped(service: &str, request: &str, v1: bool) -> String {
    if v1 || service.ends_with('/') {
        return format!("{service}{}", request.get(1..).unwrap_or(""));
    }
    if request == "/" {
        return service.to_owned();
    }
    format!("{service}{request}")
}

fn join_stripped(service: &str, request: &str, rest: &str) -> String {
    let slash_end = service.ends_with('/');
    if rest.is_empty() {
        if service == "/" || (slash_end && request.ends_with('/')) {
            return service.to_owned();
        }
        if slash_end {
            return service.trim_end_matches('/').to_owned();
        }
        let keep_slash = request != "/" && request.ends_with('/');
        return format!("{service}{}", if keep_slash { "/" } else { "" });
    }
    match (slash_end, rest.starts_with('/')) {
        (true, true) | (false, false) => {
            if slash_end {
                concat(service, rest)
            } else {
                format!("{service}/{rest}")
            }
        }
        _ => format!("{service}{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(path: &str) -> String {
        normalize(path).expect("a good path").into_owned()
    }

    #[test]
    fn a_normal_path_is_not_copied() {
        assert!(matches!(
            normalize("/a/b.c/d~e"),
            Ok(Cow::Borrowed("/a/b.c/d~e"))
        ));
    }

    #[test]
    fn dot_segments_and_double_slashes_go() {
        assert_eq!(normal("/a/../b//c/%2e%2e/d"), "/b/d");
        assert_eq!(normal("/../.."), "/");
        assert_eq!(normal("/a/."), "/a/");
        assert_eq!(normal("/a/.."), "/");
        assert_eq!(normal("//"), "/");
        assert_eq!(normal("/.hidden"), "/.hidden");
        assert_eq!(normal("/a/..."), "/a/...");
    }

    #[test]
    fn unreserved_is_decoded_and_the_rest_keeps_its_encoding() {
        assert_eq!(normal("/%61%2f%7e%20"), "/a%2F~%20");
        assert_eq!(normal("/%252e"), "/%252e");
    }

    #[test]
    fn path_tricks_are_refused() {
        assert_eq!(normalize("/a/..%2fadmin"), Err(PathError::HiddenDots));
        assert_eq!(normalize("/a/..%5cadmin"), Err(PathError::HiddenDots));
        assert_eq!(normalize("/a\\..\\admin"), Err(PathError::HiddenDots));
        assert_eq!(normalize("/a/%2e%2e%2Fb"), Err(PathError::HiddenDots));
        for path in ["/%00", "/a%0d%0Ab", "/%7f"] {
            assert_eq!(normalize(path), Err(PathError::Control), "{path}");
        }
        assert_eq!(normalize("/%zz"), Err(PathError::Percent));
        assert_eq!(normalize("/%+1"), Err(PathError::Percent));
        assert_eq!(normalize("/%4"), Err(PathError::Percent));
        assert_eq!(normalize("/a\tb"), Err(PathError::Byte));
        assert_eq!(normalize("/a b"), Err(PathError::Byte));
        assert_eq!(normalize("*"), Err(PathError::NoSlash));
    }

    #[test]
    fn a_stripped_prefix_does_not_open_the_way_up() {
        for path in [
            "/foo..",
            "/foo..%2Fadmin",
            "/foo..;/x",
            "/foo.",
            "/foo.%5Cx",
        ] {
            assert!(climbs_when_stripped(path, 4), "{path}");
        }
        for path in [
            "/foo", "/foo/..x", "/foo...", "/foo.x", "/foo/.x", "/foobar", "/foo../x", "/foo./x",
        ] {
            assert!(!climbs_when_stripped(path, 4), "{path}");
        }
        assert_eq!(normalize("/a/..;/b"), Err(PathError::HiddenDots));
        assert_eq!(normal("/a;v=1/.b;c"), "/a;v=1/.b;c");
    }

    #[test]
    fn normalising_twice_changes_nothing() {
        for path in ["/a/../b//c/%2e%2e/d", "/%61%2f%7e%20", "/x/./y/", "/a%20b"] {
            let once = normal(path);
            assert_eq!(normal(&once), once);
        }
    }

    #[test]
    fn v0_strips_as_the_table_says() {
        let up = |service, request: &'static str, matched| {
            upstream_path(service, request, matched, true, false).into_owned()
        };
        assert_eq!(up(None, "/foo", 4), "/");
        assert_eq!(up(Some("/"), "/foo/", 4), "/");
        assert_eq!(up(Some("/s/"), "/foo", 4), "/s");
        assert_eq!(up(Some("/s/"), "/foo/", 5), "/s/");
        assert_eq!(up(Some("/s/"), "/foo/bar", 4), "/s/bar");
        assert_eq!(up(Some("/s/"), "/foobar", 4), "/s/bar");
        assert_eq!(up(Some("/s"), "/foo", 4), "/s");
        assert_eq!(up(Some("/s"), "/foo/", 5), "/s/");
        assert_eq!(up(Some("/s"), "/foo/bar", 4), "/s/bar");
        assert_eq!(up(Some("/s"), "/foobar", 4), "/s/bar");
        assert_eq!(up(None, "/foo/bar", 4), "/bar");
        assert_eq!(up(Some("/s"), "/any/thing", 0), "/s/any/thing");
        assert_eq!(up(None, "/any", 0), "/any");
    }

    #[test]
    fn v0_keeps_as_the_table_says() {
        let up = |service, request: &'static str| {
            upstream_path(service, request, 1, false, false).into_owned()
        };
        assert_eq!(up(None, "/foo"), "/foo");
        assert_eq!(up(Some("/s/"), "/foo"), "/s/foo");
        assert_eq!(up(Some("/s"), "/"), "/s");
        assert_eq!(up(Some("/s"), "/foo"), "/s/foo");
    }

    #[test]
    fn v1_concatenates() {
        let up = |service, request: &'static str, matched, strip| {
            upstream_path(service, request, matched, strip, true).into_owned()
        };
        assert_eq!(up(Some("/s"), "/foobar", 4, true), "/sbar");
        assert_eq!(up(Some("/s/"), "/foo/bar", 4, true), "/s/bar");
        assert_eq!(up(Some("/s"), "/foo", 4, false), "/sfoo");
    }

    #[test]
    fn leading_dots_of_the_rest_are_removed() {
        let up =
            |request: &'static str| upstream_path(Some("/s"), request, 4, true, false).into_owned();
        assert_eq!(up("/foo../x"), "/s/x");
        assert_eq!(up("/foo./x"), "/s/x");
        assert_eq!(up("/foo../..x"), "/s/..x");
    }

    #[test]
    fn nothing_is_decoded_twice() {
        assert_eq!(normal("/%2541"), "/%2541");
        assert_eq!(normal("/%252e%252e/x"), "/%252e%252e/x");
        assert_eq!(normal("/a%2fb"), "/a%2Fb", "an encoded slash is no slash");
        assert_eq!(normal("/%3f%23%20%c3%a9"), "/%3F%23%20%C3%A9");
        assert_eq!(normalize("/%2e%2e%2fx"), Err(PathError::HiddenDots));
        assert_eq!(normalize("/a\\..\\b"), Err(PathError::HiddenDots));
        assert_eq!(normalize("/%00"), Err(PathError::Control));
        assert_eq!(normalize("/%zz"), Err(PathError::Percent));
        assert_eq!(normalize("/%"), Err(PathError::Percent));
    }

    #[test]
    fn what_no_uri_may_hold_raw_is_the_same_as_its_encoding() {
        for (raw, encoded) in [
            ("/a|b", "/a%7cb"),
            ("/{x}", "/%7Bx%7D"),
            ("/a^b`c", "/a%5eb%60c"),
            ("/\"<>", "/%22%3C%3E"),
            ("/a\\b", "/a%5cb"),
            ("/\u{e9}", "/%c3%A9"),
        ] {
            assert_eq!(normal(raw), normal(encoded), "{raw}");
        }
        // Reserved characters mean something else when they are encoded.
        for (raw, encoded) in [("/a:b", "/a%3Ab"), ("/a;b", "/a%3Bb"), ("/a+b", "/a%2Bb")] {
            assert_eq!(normal(raw), raw);
            assert_eq!(normal(encoded), encoded);
        }
    }

    #[test]
    fn a_readable_path_has_no_encoding_but_those_that_mean_something() {
        let text = |path| String::from_utf8_lossy(&readable(path)).into_owned();
        assert_eq!(text("/a%20b%7C%C3%A9/%2F%25"), "/a b|\u{e9}/%2F%25");
        assert_eq!(text("/plain"), "/plain");
        assert_eq!(text("/%2520"), "/%2520");
        assert_eq!(*readable("/%FF%"), *b"/\xff%");
    }

    /// Whether a reader of any kind sees a segment that climbs.
    fn climbs(path: &str) -> bool {
        let lenient = path.replace("%2F", "/").replace("%5C", "/");
        let lenient = lenient.replace('\\', "/");
        let mut segments = lenient.split('/');
        segments.any(|segment| segment.split(';').next() == Some(".."))
    }

    proptest::proptest! {
        #[test]
        fn normal_paths_stay_and_never_climb(path in "/([a./;%|\u{e9}]|\\\\|%2[eEfF0]|%5c|%25|\\.\\.|//|%41|%7[bB]|%ff){0,12}") {
            if let Ok(once) = normalize(&path) {
                proptest::prop_assert!(once.starts_with('/'));
                proptest::prop_assert!(!climbs(&once), "{} from {}", once, path);
                proptest::prop_assert!(!once.contains("//"), "{} from {}", once, path);
                let twice = normalize(&once).map(|p| p.into_owned());
                proptest::prop_assert_eq!(twice.as_deref(), Ok(&*once));
                proptest::prop_assert_eq!(encoded_len(&readable(&once)), once.len());
            }
        }

        #[test]
        fn what_is_forwarded_never_climbs(
            path in "/foo([a./;%]|\\\\|%2[eEfF]|%5c|\\.\\.|//){0,10}",
            matched in 0..6_usize,
            strip: bool,
            v1: bool,
            service in proptest::sample::select(vec!["/", "/s", "/s/", "/a/b"]),
        ) {
            let Ok(path) = normalize(&path) else { return Ok(()) };
            if strip && climbs_when_stripped(&path, matched) {
                return Ok(());
            }
            let sent = upstream_path(Some(service), &path, matched, strip, v1);
            proptest::prop_assert!(sent.starts_with(service.trim_end_matches('/')));
            proptest::prop_assert!(!climbs(&sent), "{} from {}", sent, path);
        }

        #[test]
        fn no_text_makes_it_panic(path in "\\PC{0,60}", matched in 0..80_usize) {
            let _ = normalize(&path);
            let _ = climbs_when_stripped(&path, matched);
            let _ = upstream_path(None, &path, matched, true, false);
        }
    }
}
