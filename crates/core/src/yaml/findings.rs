//! A value that is read again and again, each time without what was wrong in it.

use std::collections::HashSet;

use serde_json::Value;

use super::PathSegment;

type Path = Vec<PathSegment>;

/// What is left of a value, and what was left out.
pub(super) struct Findings {
    pub(super) rest: Value,
    /// Paths of what is gone, as they are in the document.
    gone: HashSet<Path>,
}

impl Findings {
    pub(super) fn of(value: &Value) -> Self {
        Self {
            rest: value.clone(),
            gone: HashSet::new(),
        }
    }

    /// The path in the document of what is found at `path` in the rest: items
    /// of a list move up when one before them is left out.
    pub(super) fn written(&self, path: &[PathSegment]) -> Path {
        let mut written = Path::new();
        for segment in path {
            let PathSegment::Index(position) = segment else {
                written.push(segment.clone());
                continue;
            };
            let mut left = *position;
            let mut index = 0;
            loop {
                written.push(PathSegment::Index(index));
                match (self.gone.contains(&written), left) {
                    (false, 0) => break,
                    (false, _) => left -= 1,
                    (true, _) => {}
                }
                written.pop();
                index += 1;
            }
        }
        written
    }

    /// Whether a message says that something is missing which was left out.
    pub(super) fn is_consequence(&self, path: &[PathSegment], message: &str) -> bool {
        let missing = message.strip_prefix("missing field `");
        let missing = missing.and_then(|rest| rest.split('`').next());
        missing.is_some_and(|name| {
            let mut path = path.to_vec();
            path.push(name.into());
            self.gone.contains(&path)
        })
    }

    /// Whether what a check says of the value at `path` may be due to what was
    /// left out: something below, or a neighbour that the message names.
    pub(super) fn may_be_consequence(&self, path: &[PathSegment], message: &str) -> bool {
        let around = path.split_last().map_or(path, |(_, around)| around);
        self.gone.iter().any(|gone| {
            let Some((last, parent)) = gone.split_last() else {
                return false;
            };
            let is_near = parent == path || parent == around;
            gone.starts_with(path)
                || matches!(last, PathSegment::Key(name) if is_near && names(message, name))
        })
    }

    /// Leaves out what stands at `path` in the document; false if it is all.
    pub(super) fn leave_out(&mut self, path: &[PathSegment]) -> bool {
        let Some((last, around)) = path.split_last() else {
            return false;
        };
        let mut slot = &mut self.rest;
        let mut at = Path::new();
        for segment in around {
            let found = match segment {
                PathSegment::Key(key) => slot.get_mut(key.as_str()),
                PathSegment::Index(index) => {
                    let moved = moved(&self.gone, &at, *index);
                    slot.get_mut(index - moved)
                }
            };
            let Some(found) = found else { return false };
            slot = found;
            at.push(segment.clone());
        }
        let removed = match (slot, last) {
            (Value::Object(map), PathSegment::Key(key)) => map.remove(key.as_str()).is_some(),
            (Value::Array(list), PathSegment::Index(index)) => {
                let moved = moved(&self.gone, &at, *index);
                let there = index.checked_sub(moved).filter(|at| *at < list.len());
                there.map(|at| list.remove(at)).is_some()
            }
            _ => false,
        };
        removed && self.gone.insert(path.to_vec())
    }
}

/// Whether a message has this name as a word.
fn names(message: &str, name: &str) -> bool {
    let mut words = message.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-')));
    words.any(|word| word == name)
}

/// How many items of the list at `list` are gone before this one.
fn moved(gone: &HashSet<Path>, list: &[PathSegment], index: usize) -> usize {
    let before = |path: &&Path| match path.split_last() {
        Some((PathSegment::Index(at), around)) => around == list && *at < index,
        _ => false,
    };
    gone.iter().filter(before).count()
}
