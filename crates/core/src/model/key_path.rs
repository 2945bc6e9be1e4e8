//! Where in a document something is.

use std::fmt::Write as _;

/// One step from the root of a document towards a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PathSegment {
    /// Into the value of this key.
    Key(String),
    /// Into this element, counted from zero.
    Index(usize),
}

impl From<&str> for PathSegment {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<usize> for PathSegment {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// The path as people write it: `services[0].routes[1].paths`.
pub fn render(path: &[PathSegment]) -> String {
    let mut text = String::new();
    for segment in path {
        match segment {
            PathSegment::Key(key) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(key);
            }
            PathSegment::Index(index) => {
                let _ = write!(text, "[{index}]");
            }
        }
    }
    text
}
