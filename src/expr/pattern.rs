//! Patterns: compiled when the configuration is loaded, matched in bounded
//! time.
//!
//! They are written in the dialect of Java's patterns ([`dialect`]). A pattern
//! that looks neither around nor back is matched in time linear in the text. The
//! others backtrack: within a limit of steps, on texts of bounded length, and
//! beyond either they do not match.

mod classes;
mod dialect;
mod prefix;
mod replacement;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use super::value::Value;
use super::{MAX_LIST, MAX_TEXT};

/// Largest compiled form of a pattern, in bytes.
const MAX_PATTERN: usize = 1 << 20;
/// Most steps back in one match.
const MAX_BACKTRACKS: usize = 10_000;
/// Longest text that a backtracking pattern is tried on, in bytes: each step
/// may look at the whole text.
const MAX_BACKTRACK_TEXT: usize = 2 * 1024;
/// Most instructions of a backtracking pattern.
const MAX_PROGRAM: usize = 10_000;

/// What is done with a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// Anywhere in the text.
    Find,
    /// The whole text.
    Match,
    /// The groups of the first match.
    Groups,
    /// The text between matches.
    Split,
    /// The first key of a map that matches as a whole.
    Key,
    /// Every match replaced.
    ReplaceAll,
    /// The first match replaced.
    ReplaceFirst,
}

/// Functions with a constant pattern as second argument. `matches` searches
/// anywhere, as the imitated function does in spite of its name.
pub(super) const PATTERNS: &[(&str, Operation)] = &[
    ("find", Operation::Find),
    ("findGroups", Operation::Groups),
    ("keyMatch", Operation::Key),
    ("matches", Operation::Find),
    ("matchesWithRegex", Operation::Match),
    ("matchingGroups", Operation::Groups),
    ("split", Operation::Split),
];

/// Methods with a constant pattern as first argument, with the number of
/// arguments behind it.
pub(super) const PATTERN_METHODS: &[(&str, Operation, usize)] = &[
    ("matches", Operation::Match, 0),
    ("replaceAll", Operation::ReplaceAll, 1),
    ("replaceFirst", Operation::ReplaceFirst, 1),
    ("split", Operation::Split, 0),
];

/// A compiled pattern and what is done with it.
#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) operation: Operation,
    engine: Engine,
    /// For names of headers, which have no case.
    caseless: Option<Engine>,
    /// What every text that matches begins with.
    prefix: Option<Box<str>>,
}

#[derive(Debug)]
enum Engine {
    Linear(regex::Regex),
    Backtracking(fancy_regex::Regex),
}

/// Where a match begins and ends, in bytes.
type Span = (usize, usize);

impl Pattern {
    /// Compiles `pattern`, within a size limit.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub(super) fn new(operation: Operation, pattern: &str) -> Result<Self, String> {
        let whole = matches!(operation, Operation::Match | Operation::Key);
        let engine = Engine::new(pattern, whole, false)?;
        let caseless = match operation {
            Operation::Key => Some(Engine::new(pattern, whole, true)?),
            _ => None,
        };
        Ok(Self {
            operation,
            engine,
            caseless,
            prefix: prefix::of(pattern, whole),
        })
    }

    /// A text that every text in which it is found begins with.
    pub(super) fn prefix(&self) -> Option<&str> {
        self.prefix.as_deref()
    }

    /// Whether the text matches; false where that can't be found out in time.
    pub(super) fn is_match(&self, text: &str) -> bool {
        self.engine.is_match(text)
    }

    /// Whether the name of a header or the key of a map matches.
    pub(super) fn is_key(&self, key: &str, caseless: bool) -> bool {
        match &self.caseless {
            Some(engine) if caseless => engine.is_match(key),
            _ => self.engine.is_match(key),
        }
    }

    /// The whole match, then the groups; null without a match.
    pub(super) fn groups<'a>(&self, text: Cow<'a, str>) -> Value<'a> {
        match self.engine.groups(&text) {
            Some(groups) => Value::List(groups.into_iter().map(|g| piece(&text, g)).collect()),
            None => Value::Null,
        }
    }

    /// The pieces between matches, without the empty ones at the end; null
    /// where they are too many.
    pub(super) fn split<'a>(&self, text: Cow<'a, str>) -> Value<'a> {
        let Some(matches) = self.engine.matches(&text) else {
            return Value::Null;
        };
        let mut pieces: Vec<Option<Span>> = Vec::new();
        let mut at = 0;
        // An empty match at the beginning cuts nothing off.
        for (start, end) in matches.into_iter().filter(|(_, end)| *end > 0) {
            pieces.push(Some((at, start)));
            at = end;
        }
        if pieces.is_empty() {
            return Value::List(vec![Value::Text(text)]);
        }
        pieces.push(Some((at, text.len())));
        while let Some(Some((start, end))) = pieces.last()
            && start == end
        {
            pieces.pop();
        }
        Value::List(pieces.into_iter().map(|p| piece(&text, p)).collect())
    }

    /// The text with matches replaced; `with` may name groups (`$1`,
    /// `${name}`). Null where it names others, or the result is too long.
    pub(super) fn replace(&self, text: &str, with: &str) -> Option<String> {
        let most = match self.operation {
            Operation::ReplaceFirst => 1,
            _ => MAX_LIST,
        };
        let matches = self.engine.all_groups(text, most)?;
        let names = self.engine.group_names();
        let mut out = String::new();
        let mut at = 0;
        for groups in &matches {
            let (start, end) = groups.first().copied().flatten()?;
            out.push_str(text.get(at..start)?);
            replacement::write(with, text, groups, &names, &mut out)?;
            at = end;
            if out.len() > MAX_TEXT {
                return None;
            }
        }
        out.push_str(text.get(at..)?);
        (out.len() <= MAX_TEXT).then_some(out)
    }
}

impl Engine {
    fn new(pattern: &str, whole: bool, caseless: bool) -> Result<Self, String> {
        let translated = dialect::translate(pattern)?;
        let text = match whole {
            true => format!(r"\A(?:{})\z", translated.text),
            false => translated.text,
        };
        if translated.backtracks {
            return fancy_regex::RegexBuilder::new(&text)
                .case_insensitive(caseless)
                .backtrack_limit(MAX_BACKTRACKS)
                .delegate_size_limit(MAX_PATTERN)
                .max_prog_size(MAX_PROGRAM)
                .build()
                .map(Self::Backtracking)
                .map_err(|error| format!("bad pattern: {}", last_line(&error.to_string())));
        }
        regex::RegexBuilder::new(&text)
            .case_insensitive(caseless)
            .size_limit(MAX_PATTERN)
            .nest_limit(64)
            .build()
            .map(Self::Linear)
            .map_err(|error| match error {
                regex::Error::CompiledTooBig(_) => "the pattern is too large".to_owned(),
                other => format!("bad pattern: {}", last_line(&other.to_string())),
            })
    }

    fn is_match(&self, text: &str) -> bool {
        match self {
            Self::Linear(regex) => regex.is_match(text),
            Self::Backtracking(regex) => {
                text.len() <= MAX_BACKTRACK_TEXT && regex.is_match(text).unwrap_or(false)
            }
        }
    }

    /// Where the first match and its groups are.
    fn groups(&self, text: &str) -> Option<Vec<Option<Span>>> {
        self.all_groups(text, 1)?.pop()
    }

    /// All matches; `None` where they are too many or can't be found in time.
    fn matches(&self, text: &str) -> Option<Vec<Span>> {
        let mut found = Vec::new();
        match self {
            Self::Linear(regex) => {
                found.extend(
                    regex
                        .find_iter(text)
                        .take(MAX_LIST + 1)
                        .map(|m| (m.start(), m.end())),
                );
            }
            Self::Backtracking(_) if text.len() > MAX_BACKTRACK_TEXT => return None,
            Self::Backtracking(regex) => {
                for found_here in regex.find_iter(text).take(MAX_LIST + 1) {
                    let found_here = found_here.ok()?;
                    found.push((found_here.start(), found_here.end()));
                }
            }
        }
        (found.len() <= MAX_LIST).then_some(found)
    }

    /// The first `most` matches with their groups; `None` where there are more
    /// than a list may have or they can't be found in time.
    fn all_groups(&self, text: &str, most: usize) -> Option<Vec<Vec<Option<Span>>>> {
        let mut found = Vec::new();
        let take = if most == 1 { 1 } else { most + 1 };
        match self {
            Self::Linear(regex) => {
                for groups in regex.captures_iter(text).take(take) {
                    let spans = groups.iter().map(|g| g.map(|g| (g.start(), g.end())));
                    found.push(spans.collect());
                }
            }
            Self::Backtracking(_) if text.len() > MAX_BACKTRACK_TEXT => return None,
            Self::Backtracking(regex) => {
                for groups in regex.captures_iter(text).take(take) {
                    let groups = groups.ok()?;
                    let spans = groups.iter().map(|g| g.map(|g| (g.start(), g.end())));
                    found.push(spans.collect());
                }
            }
        }
        (found.len() <= most).then_some(found)
    }

    /// The names of the groups, by their numbers.
    fn group_names(&self) -> Vec<Option<&str>> {
        match self {
            Self::Linear(regex) => regex.capture_names().collect(),
            Self::Backtracking(regex) => regex.capture_names().collect(),
        }
    }
}

/// A piece of a text, borrowed where the text is.
fn piece<'a>(text: &Cow<'a, str>, span: Option<Span>) -> Value<'a> {
    let Some((start, end)) = span else {
        return Value::Null;
    };
    let piece = match text {
        Cow::Borrowed(text) => text.get(start..end).map(Value::borrowed_text),
        Cow::Owned(text) => text
            .get(start..end)
            .map(|p| Value::owned_text(p.to_owned())),
    };
    piece.unwrap_or(Value::Null)
}

/// The last line of a pattern error, which says what is wrong without
/// repeating the pattern.
fn last_line(text: &str) -> &str {
    let last = text.lines().last().unwrap_or_default();
    last.trim_start_matches("error: ")
}
