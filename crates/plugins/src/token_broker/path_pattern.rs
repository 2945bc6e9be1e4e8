//! Patterns of paths and of texts, as flow conditions and products write them.

use doorward_net::http::path;

/// A pattern of paths: `*` in an element stands for any run of characters but
/// the slash (alone: for exactly one element), `**` at the end for any rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PathPattern {
    /// Before the final `**`, if there is one.
    elements: Vec<String>,
    rest: Rest,
}

/// What may follow the elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// Nothing.
    None,
    /// `/x**`: whatever; the last element ends with a star.
    Glued,
    /// `/x/**`: one or more elements, which may be none at the root (`/**`).
    Elements,
}

impl PathPattern {
    /// Compiles a pattern. It may hold letters as they are: normal paths have them
    /// encoded.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        let text = &*path::encoded(text);
        let Some(below) = text.strip_prefix('/') else {
            return Err(format!("the path pattern '{text}' must begin with a slash"));
        };
        let (body, rest) = match below.strip_suffix("**") {
            Some(before) if before.is_empty() || before.ends_with('/') => {
                (before.trim_end_matches('/'), Rest::Elements)
            }
            // Its last element is only the beginning of one.
            Some(_) => (&below[..below.len() - 1], Rest::Glued),
            None => (below.trim_end_matches('/'), Rest::None),
        };
        let middle = body.strip_suffix('*').filter(|_| rest == Rest::Glued);
        if middle.unwrap_or(body).contains("**") {
            return Err(format!(
                "the path pattern '{text}' can have ** at its end only"
            ));
        }
        let elements = match body {
            "" => Vec::new(),
            body => body.split('/').map(str::to_owned).collect(),
        };
        Ok(Self { elements, rest })
    }

    /// Whether a normal path is meant. One slash at its end means nothing.
    pub(super) fn matches(&self, path: &str) -> bool {
        let path = path.strip_prefix('/').unwrap_or(path);
        let path = path.strip_suffix('/').unwrap_or(path);
        let mut rest = if path.is_empty() { None } else { Some(path) };
        let last = self.elements.len().saturating_sub(1);
        for (index, pattern) in self.elements.iter().enumerate() {
            let Some(left) = rest else { return false };
            if index == last && self.rest == Rest::Glued {
                let element = left.split('/').next().unwrap_or_default();
                return glob(pattern, element);
            }
            let (element, after) = match left.split_once('/') {
                Some((element, after)) => (element, Some(after)),
                None => (left, None),
            };
            let one = pattern == "*" && !element.is_empty();
            if !one && (pattern == "*" || !glob(pattern, element)) {
                return false;
            }
            rest = after;
        }
        match self.rest {
            Rest::None => rest.is_none(),
            Rest::Glued => true,
            Rest::Elements => self.elements.is_empty() || rest.is_some(),
        }
    }
}

/// Whether `text` is what `pattern` means, in which `*` stands for any run of
/// characters. In time of the product of both lengths at most.
pub(super) fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where the last star is, and up to where it reaches so far.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(byte) if *byte == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, reach)) => {
                    star = Some((at, reach + 1));
                    p = at + 1;
                    t = reach + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        PathPattern::compile(pattern)
            .expect("a pattern")
            .matches(path)
    }

    #[test]
    fn stars_mean_elements_and_rests() {
        for (pattern, yes, no) in [
            (
                "/access_token**",
                &[
                    "/access_token",
                    "/access_token/",
                    "/access_token/x/y",
                    "/access_tokenX",
                ][..],
                &["/access", "/x/access_token", "/"][..],
            ),
            ("/**", &["/", "/a", "/a/b"], &[]),
            ("/*", &["/a", "/a/"], &["/", "/a/b"]),
            (
                "/cat/**",
                &["/cat/a", "/cat/a/b"],
                &["/cat", "/cats/a", "/"],
            ),
            ("/a/*/c", &["/a/b/c"], &["/a/c", "/a/b/b/c", "/a//c"]),
            ("/v*/x", &["/v1/x", "/v/x"], &["/w/x", "/v1/y/x"]),
            ("/x", &["/x", "/x/"], &["/x/y", "/xy", "/X"]),
            ("/", &["/"], &["/a"]),
            ("/caf\u{e9} {x}/*", &["/caf%C3%A9%20%7Bx%7D/a"], &["/cafe"]),
        ] {
            for path in yes {
                assert!(matches(pattern, path), "{pattern} {path}");
            }
            for path in no {
                assert!(!matches(pattern, path), "{pattern} {path}");
            }
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in ["", "a", "**", "/**/a", "/a**/b"] {
            assert!(PathPattern::compile(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_hostile_text_is_matched_in_bounded_time() {
        let text = "a".repeat(20_000);
        assert!(!glob(&format!("{}b", "a*".repeat(50)), &text));
        assert!(glob("*", "") && glob("a*b*c", "a--b--c") && !glob("a*b", "a"));
    }
}
