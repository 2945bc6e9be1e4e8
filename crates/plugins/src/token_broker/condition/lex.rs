//! The words of a condition.

use std::fmt;

/// A word of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// In double quotes.
    Text(String),
    /// A variable, a number or an operator in letters.
    OperationName(String),
    /// An operator or a parenthesis.
    Symbol(&'static str),
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "\"{text}\""),
            Self::OperationName(word) => write!(f, "`{word}`"),
            Self::Symbol(symbol) => write!(f, "`{symbol}`"),
        }
    }
}

/// Longer ones first: the first that fits is meant.
const SYMBOLS: [&str; 17] = [
    ":=", "=|", "==", "!=", ">=", "<=", "~~", "~/", "&&", "||", "=", "!", ">", "<", "~", "(", ")",
];

/// The words of `text`.
///
/// # Errors
/// What is none.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let Some((inside, after)) = rest[1..].split_once('"') else {
                return Err("lacks a closing quote".to_owned());
            };
            found.push(Token::Text(inside.to_owned()));
            rest = after;
        } else if let Some(symbol) = SYMBOLS.into_iter().find(|one| rest.starts_with(one)) {
            found.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
        } else if let Some(after) = rest.strip_prefix('&') {
            found.push(Token::Symbol("&"));
            rest = after;
        } else if is_word(first) {
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            found.push(Token::OperationName(rest[..end].to_owned()));
            rest = &rest[end..];
        } else {
            return Err(format!("has a character that means nothing: '{first}'"));
        }
        rest = rest.trim_start();
    }
    Ok(found)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}
