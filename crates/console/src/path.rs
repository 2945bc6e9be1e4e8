//! Paths and queries: taken apart, and put together again.

use std::fmt::Write as _;

use super::PREFIX;

/// The decoded parts of a path below the console's.
pub(crate) fn segments(path: &str) -> Vec<String> {
    let below = path.strip_prefix(PREFIX).unwrap_or(path);
    let parts = below.split('/').filter(|part| !part.is_empty());
    parts.map(decoded).collect()
}

/// A part with its percent-encodings resolved; what is none stays.
fn decoded(part: &str) -> String {
    // A plus means itself in a path.
    let pair = format!(
        "{}=",
        part.replace('+', "%2B")
            .replace('&', "%26")
            .replace('=', "%3D")
    );
    let mut pairs = url::form_urlencoded::parse(pair.as_bytes());
    pairs
        .next()
        .map_or_else(String::new, |(name, _)| name.into_owned())
}

/// A path of these parts, each of them encoded.
pub(crate) fn join<'a>(prefix: &str, parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut path = prefix.to_owned();
    for part in parts {
        path.push('/');
        push(&mut path, part);
    }
    path
}

fn push(path: &mut String, part: &str) {
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte) {
            path.push(char::from(byte));
        } else {
            let _ = write!(path, "%{byte:02X}");
        }
    }
}

/// `path` with the pairs whose value is not empty, behind the query that it has.
pub(crate) fn with_query<'a>(
    path: &str,
    pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in pairs {
        if !value.is_empty() {
            query.append_pair(name, value);
        }
    }
    match query.finish() {
        query if query.is_empty() => path.to_owned(),
        query => {
            let joint = if path.contains('?') { '&' } else { '?' };
            format!("{path}{joint}{query}")
        }
    }
}

/// `to` if it is a page of the console; the first one else. A page may lead
/// nowhere but here.
pub(crate) fn own(to: &str) -> &str {
    let is_own = to == PREFIX || to.starts_with("/console/") || to.starts_with("/console?");
    let plain = !to.contains("//")
        && to
            .bytes()
            .all(|byte| matches!(byte, 0x21..=0x7e) && byte != b'\\');
    if is_own && plain { to } else { PREFIX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_survive_a_round_trip() {
        for part in ["a/b", "a b", "ä+ö", "100%", "x&y=z", "../..", "a?b#c"] {
            let path = join(PREFIX, ["gateway", part]);
            assert_eq!(segments(&path), ["gateway", part], "{path}");
        }
    }

    #[test]
    fn pairs_go_behind_the_query_that_a_path_has() {
        let pairs = [("a", ""), ("b", "x y")];
        assert_eq!(with_query("/p", pairs), "/p?b=x+y");
        assert_eq!(with_query("/p?realm=%2F", pairs), "/p?realm=%2F&b=x+y");
        assert_eq!(with_query("/p?realm=%2F", [("a", "")]), "/p?realm=%2F");
    }

    #[test]
    fn only_pages_of_the_console_are_led_to() {
        for to in [
            "/console",
            "/console/gateway/services?q=a%2Fb",
            "/console?x=1",
        ] {
            assert_eq!(own(to), to);
        }
        let foreign = [
            "",
            "/",
            "//evil.example",
            "https://evil.example",
            "/console//evil.example",
            "/consoleevil",
            "/console/\\evil",
            "/console/ x",
            "/console/\r\nx",
        ];
        for to in foreign {
            assert_eq!(own(to), PREFIX, "{to}");
        }
    }
}
