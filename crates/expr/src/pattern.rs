//! Patterns: compiled when the configuration is loaded, matched in bounded
//! time.
//!
//! They are written in the dialect of Java's patterns ([`dialect`]). A pattern
//! that looks neither around nor back is matched in time linear in the text. The
//! others backtrack: within a limit of steps, on texts of bounded length, and
//! beyond either the evaluation fails.

mod classes;
mod dialect;
mod prefix;
mod replacement;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use super::MAX_LIST;
use super::run::Run;
use super::value::Value;

/// Largest compiled form of a pattern, in bytes.
const MAX_PATTERN: usize = 1 << 20;
/// Most steps back in one match.
const MAX_BACKTRACKS: usize = 10_000;
/// Steps back in a first try of a match. Most need fewer, and how many were
/// needed is only known as far as a try's limit.
const FEW_BACKTRACKS: usize = 100;
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
    /// For the first try and for the last.
    Backtracking(Box<[fancy_regex::Regex; 2]>),
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

    /// Whether the text matches.
    pub(super) fn is_match(&self, text: &str, run: &Run<'_>) -> bool {
        self.engine.is_match(text, run)
    }

    /// Whether the name of a header or the key of a map matches.
    pub(super) fn is_key(&self, key: &str, caseless: bool, run: &Run<'_>) -> bool {
        match &self.caseless {
            Some(engine) if caseless => engine.is_match(key, run),
            _ => self.engine.is_match(key, run),
        }
    }

    /// The whole match, then the groups; null without a match.
    pub(super) fn groups<'a>(&self, text: Cow<'a, str>, run: &Run<'_>) -> Value<'a> {
        match self.engine.groups(&text, 0, run) {
            Some(groups) => Value::List(groups.into_iter().map(|g| piece(&text, g)).collect()),
            None => Value::Null,
        }
    }

    /// The pieces between matches, without the empty ones at the end.
    pub(super) fn split<'a>(&self, text: Cow<'a, str>, run: &Run<'_>) -> Value<'a> {
        let mut pieces: Vec<Option<Span>> = Vec::new();
        let mut at = 0;
        let each = each(
            &text,
            MAX_LIST,
            run,
            |from| self.engine.find(&text, from, run),
            |m| *m,
        );
        // An empty match at the beginning cuts nothing off.
        for (start, end) in each.into_iter().flatten().filter(|(_, end)| *end > 0) {
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
    /// `${name}`). Null where it names others.
    pub(super) fn replace(&self, text: &str, with: &str, run: &Run<'_>) -> Option<String> {
        let find = |from| self.engine.groups(text, from, run);
        let matches: Vec<_> = match self.operation {
            Operation::ReplaceFirst => find(0).into_iter().collect(),
            _ => each(text, MAX_LIST, run, find, |groups| {
                groups.first().copied().flatten().unwrap_or_default()
            })?,
        };
        let names = self.engine.group_names();
        let mut out = String::new();
        let mut at = 0;
        for groups in &matches {
            let (start, end) = groups.first().copied().flatten()?;
            out.push_str(text.get(at..start)?);
            replacement::write(with, text, groups, &names, &mut out, run)?;
            at = end;
        }
        out.push_str(text.get(at..)?);
        run.allows(out.len())?;
        Some(out)
    }
}

/// What `find` finds from one match to the next, as Java goes on: behind the
/// match, or one character behind an empty one. `None` where that is more than
/// `most`.
fn each<M>(
    text: &str,
    most: usize,
    run: &Run<'_>,
    find: impl Fn(usize) -> Option<M>,
    span: impl Fn(&M) -> Span,
) -> Option<Vec<M>> {
    let mut found = Vec::new();
    let mut from = 0;
    while from <= text.len()
        && let Some(one) = find(from)
    {
        if found.len() == most {
            return run.exceeded();
        }
        let (start, end) = span(&one);
        found.push(one);
        from = end;
        if start == end {
            let next = text.get(end..).and_then(|rest| rest.chars().next());
            from += next.map_or(1, char::len_utf8);
        }
    }
    Some(found)
}

impl Engine {
    fn new(pattern: &str, whole: bool, caseless: bool) -> Result<Self, String> {
        let translated = dialect::translate(pattern)?;
        let text = if whole {
            format!(r"\A(?:{})\z", translated.text)
        } else {
            translated.text
        };
        if translated.backtracks {
            let build = |limit| {
                fancy_regex::RegexBuilder::new(&text)
                    .case_insensitive(caseless)
                    .backtrack_limit(limit)
                    .delegate_size_limit(MAX_PATTERN)
                    .max_prog_size(MAX_PROGRAM)
                    .build()
                    .map_err(|error| format!("bad pattern: {}", last_line(&error.to_string())))
            };
            let both = [build(FEW_BACKTRACKS)?, build(MAX_BACKTRACKS)?];
            return Ok(Self::Backtracking(Box::new(both)));
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

    fn is_match(&self, text: &str, run: &Run<'_>) -> bool {
        match self {
            Self::Linear(regex) => regex.is_match(text),
            Self::Backtracking(both) => {
                tried(both, text, run, |regex| regex.is_match(text)).unwrap_or(false)
            }
        }
    }

    /// Where the first match from `from` on is; `None` without one.
    fn find(&self, text: &str, from: usize, run: &Run<'_>) -> Option<Span> {
        match self {
            Self::Linear(regex) => regex.find_at(text, from).map(|m| (m.start(), m.end())),
            Self::Backtracking(both) => {
                let found = tried(both, text, run, |regex| regex.find_from_pos(text, from))?;
                found.map(|m| (m.start(), m.end()))
            }
        }
    }

    /// Where the first match from `from` on and its groups are; `None` without
    /// one.
    fn groups(&self, text: &str, from: usize, run: &Run<'_>) -> Option<Vec<Option<Span>>> {
        match self {
            Self::Linear(regex) => {
                let groups = regex.captures_at(text, from)?;
                let spans = groups.iter().map(|g| g.map(|g| (g.start(), g.end())));
                Some(spans.collect())
            }
            Self::Backtracking(both) => {
                let found = tried(both, text, run, |regex| regex.captures_from_pos(text, from))?;
                let groups = found?;
                let spans = groups.iter().map(|g| g.map(|g| (g.start(), g.end())));
                Some(spans.collect())
            }
        }
    }

    /// The names of the groups, by their numbers.
    fn group_names(&self) -> Vec<Option<&str>> {
        match self {
            Self::Linear(regex) => regex.capture_names().collect(),
            Self::Backtracking(both) => both[0].capture_names().collect(),
        }
    }
}

/// What `search` comes to, with few steps or with as many as are allowed;
/// `None` where that exceeds a bound.
fn tried<'r, T>(
    both: &'r [fancy_regex::Regex; 2],
    text: &str,
    run: &Run<'_>,
    search: impl Fn(&'r fancy_regex::Regex) -> fancy_regex::Result<T>,
) -> Option<T> {
    if text.len() > MAX_BACKTRACK_TEXT {
        return run.exceeded();
    }
    for (regex, steps) in both.iter().zip([FEW_BACKTRACKS, MAX_BACKTRACKS]) {
        run.step(steps)?;
        if let Ok(found) = search(regex) {
            return Some(found);
        }
    }
    run.exceeded()
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
