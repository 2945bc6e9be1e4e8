//! Tokens of an expression.

use super::Fault;

/// A token and the byte offset where it begins in the whole text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) at: usize,
}

/// What a token is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    Integer(i64),
    Float(f64),
    Text(String),
    Name(String),
    /// An operator or bracket; word operators under their sign (`and` is `&&`).
    Sign(&'static str),
    /// The `}` that closes the expression, or the end of the text.
    End,
}

/// Longest signs first, so that `<=` is not read as `<`.
const SIGNS: &[&str] = &[
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "+", "-", "*", "/", "%", "?", ":", "(", ")",
    "[", "]", ".", ",",
];

const WORDS: &[(&str, &str)] = &[
    ("and", "&&"),
    ("or", "||"),
    ("not", "!"),
    ("eq", "=="),
    ("ne", "!="),
    ("lt", "<"),
    ("gt", ">"),
    ("le", "<="),
    ("ge", ">="),
    ("div", "/"),
    ("mod", "%"),
    ("empty", "empty"),
];

/// Reads tokens from `start`, just behind a `${`, up to the closing `}`.
/// Returns them with the offset behind that brace.
pub(super) fn tokens(text: &str, start: usize) -> Result<(Vec<Token>, usize), Fault> {
    let mut lexer = Lexer { text, at: start };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blanks();
        let at = lexer.at;
        let before = tokens.last().map(|token: &Token| &token.kind);
        let kind = lexer.next(before)?;
        let done = kind == Kind::End;
        tokens.push(Token { kind, at });
        if done {
            return Ok((tokens, lexer.at));
        }
    }
}

/// Whether what stands behind a dot goes on with the value before.
fn continues(rest: &str) -> bool {
    rest.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '.'))
}

/// Whether a value may stand behind this token.
fn begins_value(before: Option<&Kind>) -> bool {
    match before {
        None => true,
        Some(Kind::Sign(sign)) => !matches!(*sign, ")" | "]" | "."),
        Some(_) => false,
    }
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn skip_blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// The next token; what it is may depend on the one before.
    fn next(&mut self, before: Option<&Kind>) -> Result<Kind, Fault> {
        let Some(first) = self.rest().chars().next() else {
            return Err(Fault::new(self.at, "the expression has no closing `}`"));
        };
        match first {
            '}' => {
                self.at += 1;
                Ok(Kind::End)
            }
            '\'' | '"' => self.text(first),
            '0'..='9' => self.number(),
            '.' if begins_value(before) && self.begins_fraction() => self.number(),
            c if c.is_alphabetic() || c == '_' || c == '$' => {
                // Every word behind a dot is a name: `claims.mod`.
                Ok(self.name(before == Some(&Kind::Sign("."))))
            }
            _ => self.sign(first),
        }
    }

    fn sign(&mut self, first: char) -> Result<Kind, Fault> {
        let rest = self.rest();
        let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
        match sign {
            Some(sign) => {
                self.at += sign.len();
                Ok(Kind::Sign(sign))
            }
            None => Err(Fault::new(
                self.at,
                format!("{first:?} does not begin a value or an operator"),
            )),
        }
    }

    fn begins_fraction(&self) -> bool {
        self.rest()[1..].starts_with(|c: char| c.is_ascii_digit())
    }

    fn name(&mut self, is_member: bool) -> Kind {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$'))
            .unwrap_or(rest.len());
        let name = &rest[..end];
        let word = WORDS.iter().find(|(word, _)| *word == name);
        let kind = match word {
            Some((_, sign)) if !is_member => Kind::Sign(sign),
            _ => Kind::Name(name.to_owned()),
        };
        self.at += end;
        kind
    }

    fn number(&mut self) -> Result<Kind, Fault> {
        let rest = self.rest();
        let digits =
            |from: usize| from + rest[from..].bytes().take_while(u8::is_ascii_digit).count();
        let mut end = digits(0);
        let mut float = false;
        if rest[end..].starts_with('.') && digits(end + 1) > end + 1 {
            end = digits(end + 1);
            float = true;
        }
        // `1.` is a number, `1.trim()` is not one with a fraction.
        if !float && rest[end..].starts_with('.') && !continues(&rest[end + 1..]) {
            end += 1;
            float = true;
        }
        if rest[end..].starts_with(['e', 'E']) {
            let sign = usize::from(rest[end + 1..].starts_with(['+', '-']));
            let exponent = digits(end + 1 + sign);
            if exponent > end + 1 + sign {
                end = exponent;
                float = true;
            }
        }
        let (at, digits) = (self.at, &rest[..end]);
        let kind = if float {
            digits
                .parse()
                .ok()
                .filter(|f: &f64| f.is_finite())
                .map(Kind::Float)
        } else {
            digits.parse().ok().map(Kind::Integer)
        };
        self.at += end;
        kind.ok_or_else(|| Fault::new(at, "the number is too large"))
    }

    /// A text in quotes; a backslash escapes a quote and itself, and stands
    /// for itself before anything else (as patterns need it).
    fn text(&mut self, quote: char) -> Result<Kind, Fault> {
        let mut text = String::new();
        let mut chars = self.rest().char_indices().skip(1).peekable();
        while let Some((offset, c)) = chars.next() {
            match c {
                '\\' => match chars.next_if(|(_, c)| matches!(c, '\\' | '\'' | '"')) {
                    Some((_, escaped)) => text.push(escaped),
                    None => text.push('\\'),
                },
                c if c == quote => {
                    self.at += offset + 1;
                    return Ok(Kind::Text(text));
                }
                c => text.push(c),
            }
        }
        Err(Fault::new(self.at, "the text in quotes is not closed"))
    }
}
