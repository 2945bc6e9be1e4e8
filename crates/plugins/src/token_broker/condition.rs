//! Conditions of flows: compiled once, evaluated for each request.
//!
//! `(proxy.pathsuffix MatchesPath "/access_token**") and (request.verb = "POST")`.
//! A variable that is not set equals `null` and nothing else.

mod lex;

use std::borrow::Cow;

use regex::{Regex, RegexBuilder};

use self::lex::{Token, tokens};
use super::path_pattern::{PathPattern, glob};
use super::variable::{Facts, Variable};
use doorward_net::http::path;

/// Longest condition, in bytes.
const MAX_TEXT: usize = 4096;
/// Deepest parentheses.
const MAX_DEPTH: usize = 32;
/// Largest compiled pattern, in bytes.
const MAX_REGEX: usize = 1 << 20;

/// A condition.
#[derive(Debug)]
pub(super) struct Condition {
    node: Node,
}

#[derive(Debug)]
enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    /// Whether the value is `true`.
    Truth(Operand),
    Compare(Operand, Comparison, Operand),
    Glob(Operand, String),
    Path(Operand, PathPattern),
    Regex(Operand, Regex),
}

#[derive(Debug)]
enum Operand {
    Null,
    Text(String),
    Variable(Variable),
}

/// How two values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    EqualIgnoringCase,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    StartsWith,
}

impl Condition {
    /// Compiles a condition.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        if text.len() > MAX_TEXT {
            return Err(format!("is longer than {MAX_TEXT} bytes"));
        }
        let mut parser = Parser {
            tokens: tokens(text)?,
            at: 0,
        };
        let node = parser.any(0)?;
        match parser.peek() {
            None => Ok(Self { node }),
            Some(token) => Err(format!("did not expect {token} there")),
        }
    }

    /// Whether it holds; `None`: that depends on a body that was not read.
    pub(super) fn holds(&self, facts: &Facts<'_>) -> Option<bool> {
        self.node.holds(facts)
    }
}

impl Node {
    fn holds(&self, facts: &Facts<'_>) -> Option<bool> {
        match self {
            Self::All(nodes) => all(nodes, facts, false),
            Self::Any(nodes) => all(nodes, facts, true),
            Self::Not(node) => node.holds(facts).map(|holds| !holds),
            Self::Truth(operand) => {
                operand.satisfies(facts, |value| value.eq_ignore_ascii_case("true"))
            }
            Self::Compare(left, comparison, right) => {
                if left.is_unread(facts) || right.is_unread(facts) {
                    return None;
                }
                Some(comparison.holds(left.value(facts), right.value(facts)))
            }
            Self::Glob(operand, pattern) => operand.satisfies(facts, |value| glob(pattern, value)),
            Self::Path(operand, pattern) => {
                operand.satisfies(facts, |value| pattern.matches(value))
            }
            Self::Regex(operand, regex) => operand.satisfies(facts, |value| {
                regex.is_match(value)
                    || (operand.is_path()
                        && std::str::from_utf8(&path::readable(value))
                            .is_ok_and(|readable| regex.is_match(readable)))
            }),
        }
    }
}

/// Whether the first of `nodes` that is `decisive` decides; if none is, the
/// opposite. One that is not known may yet be.
fn all(nodes: &[Node], facts: &Facts<'_>, decisive: bool) -> Option<bool> {
    let mut known = true;
    for node in nodes {
        match node.holds(facts) {
            Some(holds) if holds == decisive => return Some(decisive),
            Some(_) => {}
            None => known = false,
        }
    }
    known.then_some(!decisive)
}

impl Operand {
    /// Whether it is in a body that was not read.
    fn is_unread(&self, facts: &Facts<'_>) -> bool {
        matches!(self, Self::Variable(variable) if facts.is_unread(variable))
    }

    /// Whether it is a normal path, or a part of one.
    fn is_path(&self) -> bool {
        let Self::Variable(variable) = self else {
            return false;
        };
        use Variable as V;
        matches!(variable, V::BasePath | V::PathSuffix | V::Path)
    }

    /// The same as normal paths have it.
    fn encoded(self) -> Self {
        match self {
            Self::Text(text) => Self::Text(path::encoded(&text).into_owned()),
            other => other,
        }
    }

    /// Whether its value is there and satisfies `test`.
    fn satisfies(&self, facts: &Facts<'_>, test: impl Fn(&str) -> bool) -> Option<bool> {
        if self.is_unread(facts) {
            return None;
        }
        Some(self.value(facts).is_some_and(|value| test(&value)))
    }

    fn value<'a>(&'a self, facts: &'a Facts<'_>) -> Option<Cow<'a, str>> {
        match self {
            Self::Null => None,
            Self::Text(text) => Some(Cow::Borrowed(text)),
            Self::Variable(variable) => facts.value(variable),
        }
    }
}

impl Comparison {
    fn holds(self, left: Option<Cow<'_, str>>, right: Option<Cow<'_, str>>) -> bool {
        let (left, right) = match (left, right) {
            (Some(left), Some(right)) => (left, right),
            (None, None) => return self == Self::Equal,
            // Something is there where nothing was asked for.
            (Some(_), None) => return self == Self::NotEqual,
            (None, Some(_)) => return false,
        };
        let ordered = || {
            let number = |text: &str| text.trim().parse::<f64>().ok();
            number(&left)?.partial_cmp(&number(&right)?)
        };
        match self {
            Self::Equal => left == right,
            Self::EqualIgnoringCase => left.to_lowercase() == right.to_lowercase(),
            Self::NotEqual => left != right,
            Self::Greater => ordered().is_some_and(|order| order.is_gt()),
            Self::GreaterOrEqual => ordered().is_some_and(|order| order.is_ge()),
            Self::Less => ordered().is_some_and(|order| order.is_lt()),
            Self::LessOrEqual => ordered().is_some_and(|order| order.is_le()),
            Self::StartsWith => left.starts_with(right.as_ref()),
        }
    }
}

/// What stands between two operands.
enum Operator {
    Compare(Comparison),
    Glob,
    Path,
    Regex,
}

impl Operator {
    fn of(token: &Token) -> Option<Self> {
        use Comparison as C;
        let word = match token {
            Token::Symbol(symbol) => (*symbol).to_owned(),
            Token::OperationName(word) => word.to_ascii_lowercase(),
            Token::Text(_) => return None,
        };
        Some(match word.as_str() {
            "=" | "==" | "equals" | "is" => Self::Compare(C::Equal),
            ":=" | "equalscaseinsensitive" => Self::Compare(C::EqualIgnoringCase),
            "!=" | "notequals" | "isnot" => Self::Compare(C::NotEqual),
            ">" | "greaterthan" => Self::Compare(C::Greater),
            ">=" | "greaterthanorequals" => Self::Compare(C::GreaterOrEqual),
            "<" | "lesserthan" => Self::Compare(C::Less),
            "<=" | "lesserthanorequals" => Self::Compare(C::LessOrEqual),
            "=|" | "startswith" => Self::Compare(C::StartsWith),
            "~" | "matches" | "like" => Self::Glob,
            "~/" | "matchespath" | "likepath" => Self::Path,
            "~~" | "javaregex" => Self::Regex,
            _ => return None,
        })
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    /// Goes on behind a token that is one of these, in any case.
    fn takes(&mut self, words: &[&str]) -> bool {
        let found = match self.peek() {
            Some(Token::Symbol(symbol)) => words.contains(symbol),
            Some(Token::OperationName(word)) => {
                words.iter().any(|one| word.eq_ignore_ascii_case(one))
            }
            _ => false,
        };
        self.at += usize::from(found);
        found
    }

    fn any(&mut self, depth: usize) -> Result<Node, String> {
        let mut nodes = vec![self.all(depth)?];
        while self.takes(&["or", "||"]) {
            nodes.push(self.all(depth)?);
        }
        Ok(single(nodes, Node::Any))
    }

    fn all(&mut self, depth: usize) -> Result<Node, String> {
        let mut nodes = vec![self.negated(depth)?];
        while self.takes(&["and", "&&", "&"]) {
            nodes.push(self.negated(depth)?);
        }
        Ok(single(nodes, Node::All))
    }

    fn negated(&mut self, depth: usize) -> Result<Node, String> {
        if depth > MAX_DEPTH {
            return Err("is nested too deeply".to_owned());
        }
        if self.takes(&["!", "not"]) {
            return Ok(Node::Not(Box::new(self.negated(depth + 1)?)));
        }
        if self.takes(&["("]) {
            let inner = self.any(depth + 1)?;
            if !self.takes(&[")"]) {
                return Err("lacks a closing parenthesis".to_owned());
            }
            return Ok(inner);
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Node, String> {
        let left = self.operand()?;
        let Some(operator) = self.peek().and_then(Operator::of) else {
            return Ok(Node::Truth(left));
        };
        self.at += 1;
        let (mut left, mut right) = (left, self.operand()?);
        if left.is_path() && !matches!(operator, Operator::Regex) {
            right = right.encoded();
        } else if right.is_path() {
            left = left.encoded();
        }
        let comparison = match operator {
            Operator::Compare(comparison) => return Ok(Node::Compare(left, comparison, right)),
            other => other,
        };
        let Operand::Text(pattern) = right else {
            return Err("a pattern must be a text in double quotes".to_owned());
        };
        Ok(match comparison {
            Operator::Path => Node::Path(left, PathPattern::compile(&pattern)?),
            Operator::Regex => Node::Regex(left, whole(&pattern)?),
            Operator::Glob | Operator::Compare(_) => Node::Glob(left, pattern),
        })
    }

    fn operand(&mut self) -> Result<Operand, String> {
        let Some(token) = self.tokens.get(self.at) else {
            return Err("ends where a variable or a text is expected".to_owned());
        };
        let operand = match token {
            Token::Text(text) => Operand::Text(text.clone()),
            Token::OperationName(word) if word.eq_ignore_ascii_case("null") => Operand::Null,
            Token::OperationName(word) if is_literal(word) => Operand::Text(word.clone()),
            Token::OperationName(word) => Operand::Variable(Variable::named(word)?),
            Token::Symbol(symbol) => {
                return Err(format!("expected a variable or a text, not `{symbol}`"));
            }
        };
        self.at += 1;
        Ok(operand)
    }
}

fn is_literal(word: &str) -> bool {
    matches!(word, "true" | "false") || word.parse::<f64>().is_ok()
}

fn single(mut nodes: Vec<Node>, several: fn(Vec<Node>) -> Node) -> Node {
    match nodes.pop() {
        Some(only) if nodes.is_empty() => only,
        last => {
            nodes.extend(last);
            several(nodes)
        }
    }
}

/// A pattern of the whole text, matched in linear time.
fn whole(pattern: &str) -> Result<Regex, String> {
    let regex = RegexBuilder::new(&format!("^(?:{pattern})$"))
        .size_limit(MAX_REGEX)
        .build();
    regex.map_err(|_| format!("'{pattern}' is no regular expression that is supported"))
}

#[cfg(test)]
mod tests;
