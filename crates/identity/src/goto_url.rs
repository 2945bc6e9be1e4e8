//! Where users may be sent once they are signed in or have failed to be
//! (`goto`, `gotoOnFail`).
//!
//! To paths of the provider's own origin always, elsewhere only where the
//! realm's setting `goto_urls` allows it. Patterns are compared part by part
//! with the address as browsers read it: no path can pose as a host.

use std::fmt;

use url::Url;

use super::Call;
use doorward_core::model::user::schema::RecordError;

/// Longest address, in bytes.
const LENGTH_MAX: usize = 2000;

/// Longest pattern, in bytes, and most patterns of a realm.
const PATTERN_MAX: usize = 500;
const PATTERNS_MAX: usize = 200;

/// The addresses that a realm lets users be sent to.
#[derive(Debug, Default)]
pub(super) struct GotoUrls(Box<[Pattern]>);

/// What an address must be like.
#[derive(Debug)]
struct Pattern {
    scheme: &'static str,
    host: Glob,
    /// `None`: any.
    port: Option<u16>,
    /// Path and query.
    path: Glob,
}

impl GotoUrls {
    /// Reads the patterns of a realm.
    pub(super) fn parse(patterns: &[String]) -> Result<Self, RecordError> {
        if patterns.len() > PATTERNS_MAX {
            let text = format!("has more than {PATTERNS_MAX} patterns");
            return Err(RecordError::new("goto_urls", text));
        }
        let read = |(index, text): (usize, &String)| {
            let wrong = |why: &str| RecordError::new(format!("goto_urls[{index}]"), why);
            Pattern::parse(text).map_err(wrong)
        };
        let patterns = patterns.iter().enumerate().map(read);
        Ok(Self(patterns.collect::<Result<_, _>>()?))
    }

    fn allow(&self, url: &Url) -> bool {
        self.0.iter().any(|pattern| pattern.matches(url))
    }
}

/// Whether users of the realm may be sent to `asked`.
pub(super) fn is_allowed(call: &Call, asked: &str) -> bool {
    let live = &call.live;
    let base = Url::parse(&live.base_url);
    base.is_ok_and(|base| is_allowed_by(&base, call.realm.goto_urls(), asked))
}

fn is_allowed_by(base: &Url, goto_urls: &GotoUrls, asked: &str) -> bool {
    // Browsers take out line breaks and turn backslashes round; others do not.
    let plain = asked
        .bytes()
        .all(|byte| matches!(byte, 0x21..=0x7e) && byte != b'\\');
    if asked.is_empty() || asked.len() > LENGTH_MAX || !plain {
        return false;
    }
    let spelt_out = |prefix: &str| {
        let start = asked.get(..prefix.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    let absolute = spelt_out("https://") || spelt_out("http://");
    // Without the slashes (`https:x`), or with nothing but them (`//x`), it
    // depends on the reader what it is.
    if !absolute && (Url::parse(asked).is_ok() || asked.starts_with("//")) {
        return false;
    }
    let Ok(url) = base.join(asked) else {
        return false;
    };
    if !url.username().is_empty() || url.password().is_some() {
        return false;
    }
    if url.origin() == base.origin() {
        return !url.path().starts_with("//");
    }
    goto_urls.allow(&url)
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, &'static str> {
        const SHAPE: &str =
            "must be like https://app.example/*: http or https, a host without a user, and a path";
        let plain = text.bytes().all(|byte| matches!(byte, 0x21..=0x7e));
        if text.len() > PATTERN_MAX || !plain || text.contains(['\\', '@', '#']) {
            return Err(SHAPE);
        }
        let (scheme, rest) = text.split_once("://").ok_or(SHAPE)?;
        let (scheme, known) = match scheme {
            "https" => ("https", 443),
            "http" => ("http", 80),
            _ => return Err(SHAPE),
        };
        let slash = rest.find('/').ok_or(SHAPE)?;
        let (authority, path) = rest.split_at(slash);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, "*")) if !host.is_empty() => (host, None),
            Some((host, port)) if !port.ends_with(']') => {
                (host, Some(port.parse().map_err(|_| SHAPE)?))
            }
            _ => (authority, Some(known)),
        };
        if host.is_empty() || host.contains('?') {
            return Err(SHAPE);
        }
        if host.rsplit('.').next().is_some_and(|end| end.contains('*')) {
            return Err("must name a host, or hosts below one: https://*.app.example/*");
        }
        Ok(Self {
            scheme,
            host: Glob::parse(&host.to_ascii_lowercase(), b'.', b'/'),
            port,
            path: Glob::parse(path, b'/', b'?'),
        })
    }

    fn matches(&self, url: &Url) -> bool {
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        url.scheme() == self.scheme
            && url.host_str().is_some_and(|host| self.host.matches(host))
            && (self.port.is_none() || url.port_or_known_default() == self.port)
            && self.path.matches(&path)
    }
}

/// A text with wildcards: `*` for anything, `-*-` for anything of one level.
struct Glob {
    parts: Vec<Part>,
    /// What separates levels.
    level: u8,
    /// What no wildcard stands for.
    end: u8,
}

#[derive(Clone, Copy)]
enum Part {
    Byte(u8),
    Any,
    Level,
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "glob of {} parts", self.parts.len())
    }
}

impl Glob {
    fn parse(text: &str, level: u8, end: u8) -> Self {
        let mut parts = Vec::new();
        let mut rest = text.as_bytes();
        while let Some((first, others)) = rest.split_first() {
            if let Some(others) = rest.strip_prefix(b"-*-") {
                parts.push(Part::Level);
                rest = others;
                continue;
            }
            parts.push(match first {
                b'*' => Part::Any,
                byte => Part::Byte(*byte),
            });
            rest = others;
        }
        Self { parts, level, end }
    }

    /// Takes time in proportion to the product of both lengths, which are
    /// bounded: no text makes it backtrack.
    fn matches(&self, text: &str) -> bool {
        let text = text.as_bytes();
        // Where in the text the parts so far can end.
        let mut ends = vec![false; text.len() + 1];
        ends[0] = true;
        for part in &self.parts {
            match part {
                Part::Byte(wanted) => {
                    for at in (0..text.len()).rev() {
                        ends[at + 1] = ends[at] && text[at] == *wanted;
                    }
                    ends[0] = false;
                }
                Part::Any | Part::Level => {
                    for (at, byte) in text.iter().enumerate() {
                        let level = matches!(part, Part::Level) && *byte == self.level;
                        ends[at + 1] |= ends[at] && *byte != self.end && !level;
                    }
                }
            }
        }
        ends[text.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leads(patterns: &[&str], asked: &str) -> bool {
        let patterns: Vec<_> = patterns.iter().map(|text| (*text).to_owned()).collect();
        let goto_urls = GotoUrls::parse(&patterns).expect("good patterns");
        let base = Url::parse("https://id.example/am").expect("a URL");
        is_allowed_by(&base, &goto_urls, asked)
    }

    #[test]
    fn paths_of_the_own_origin_are_good() {
        for good in [
            "/",
            "/home?x=1#top",
            "home/page",
            "?x=1",
            "/a//b",
            "/x?next=https://evil.example/",
            "https://id.example/console",
            "HTTPS://ID.example:443/",
        ] {
            assert!(leads(&[], good), "{good}");
        }
    }

    #[test]
    fn open_redirect_by_goto() {
        let long = format!("/{}", "x".repeat(LENGTH_MAX));
        for evil in [
            "",
            "https://evil.example",
            "http://id.example/",
            "https://id.example:8443/",
            "//evil.example",
            "///evil.example",
            "/\\evil.example",
            "\\\\evil.example",
            "https:evil.example",
            "https:/evil.example",
            "https:\\\\evil.example",
            "https://me@id.example/",
            "https://id.example@evil.example/",
            "https://id.example.evil.example/",
            "/.//evil.example",
            "/a/..//evil.example",
            "/%2e//evil.example",
            "javascript:alert(1)",
            "data:text/html,x",
            "/\tevil",
            "/\r\nSet-Cookie:x",
            " /x",
            "/\u{e4}",
            &long,
        ] {
            assert!(!leads(&[], evil), "{evil}");
        }
    }

    #[test]
    fn patterns_name_other_places() {
        let patterns = [
            "https://app.example/*",
            "https://*.shop.example:*/in/-*-/done*?*",
            "http://localhost:3000/-*-",
        ];
        for good in [
            "https://app.example/",
            "https://APP.example:443/a/b",
            "https://app.example/#x",
            "https://eu.west.shop.example:8443/in/42/done?x=/",
            "http://localhost:3000/x",
        ] {
            assert!(leads(&patterns, good), "{good}");
        }
        for bad in [
            "http://app.example/",
            "https://app.example:444/",
            "https://app.example/a?b",
            "https://evil.example/https://app.example/",
            "https://app.example.evil.example/",
            "https://app.example@evil.example/",
            "https://evil.example/x.shop.example:1/in/1/done?",
            "https://shop.example/in/1/done?",
            "https://x.shop.example/in/1/2/done?",
            "https://x.shop.example/in/1/done",
            "http://localhost:3000/x/y",
            "http://localhost/x",
        ] {
            assert!(!leads(&patterns, bad), "{bad}");
        }
    }

    #[test]
    fn a_pattern_that_can_not_be_meant_is_refused() {
        for bad in [
            "*",
            "https://*",
            "https://*/*",
            "https://*example/*",
            "*://app.example/*",
            "https://app.example",
            "https://app.example:x/",
            "https://me@app.example/",
            "/home",
            "ftp://a.example/",
        ] {
            let error = GotoUrls::parse(&[bad.to_owned()]).expect_err(bad);
            assert_eq!(error.path, "goto_urls[0]", "{bad}");
        }
    }
}
