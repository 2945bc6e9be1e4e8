//! Scripts of `ScriptableThrottlingPolicy` that only choose a rate: read, and
//! written as an expression. Nothing is run.
//!
//! What is read is the shape of the imitated gateway's own sample: values of the
//! request or its contexts are compared, and `new ThrottlingRate(n, 'd')` or
//! null is returned, in `if` and `else`, with variables and `args`.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// Longest script, in bytes.
pub(super) const MAX_SCRIPT: usize = 16 * 1024;
/// Longest expression that it may come to, in bytes.
const MAX_EXPRESSION: usize = 4 * 1024;
/// Most statements on all ways through a script.
const MAX_STEPS: usize = 1000;
/// Deepest nesting of blocks and parentheses.
const MAX_DEPTH: usize = 24;

/// What a script says that is not read, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unread {
    /// The line, from 1.
    pub(super) line: usize,
    pub(super) what: String,
}

/// A word of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Name(String),
    Number(String),
    Text(String),
    Sign(&'static str),
}

/// A statement, with the texts of expressions.
#[derive(Debug)]
enum Statement {
    /// A rate or null.
    Return(String),
    If(String, Vec<Statement>, Vec<Statement>),
}

/// A part of an expression.
#[derive(Clone, Debug)]
struct Part {
    text: String,
    /// Whether it can only be true or false: what else Groovy takes for true
    /// is not what an expression does.
    truth: bool,
}

impl Part {
    fn value(text: String) -> Self {
        Self { text, truth: false }
    }

    fn truth(text: String) -> Self {
        Self { text, truth: true }
    }
}

/// Signs, the longest first.
const SIGNS: [&str; 29] = [
    "==~", "===", "!==", "==", "!=", "<=", ">=", "&&", "||", "?.", "?:", "=~", "->", "..", "(",
    ")", "{", "}", "[", "]", ".", ",", ";", "=", "!", "<", ">", "?", ":",
];

/// The expression that says what `script` does, with `args` as its names.
///
/// # Errors
/// [`Unread`]: what of it does something else than choosing a rate.
pub(super) fn translated(script: &str, args: &Map<String, Value>) -> Result<String, Unread> {
    if script.len() > MAX_SCRIPT {
        return Err(Unread {
            line: 1,
            what: format!("it is longer than {MAX_SCRIPT} bytes"),
        });
    }
    let tokens = tokens(script)?;
    let names = args.iter().filter_map(|(name, value)| {
        let text = match value {
            Value::String(text) => quoted(text),
            Value::Number(_) | Value::Bool(_) | Value::Null => value.to_string(),
            Value::Array(_) | Value::Object(_) => return None,
        };
        Some((
            name.clone(),
            Part {
                text,
                truth: value.is_boolean(),
            },
        ))
    });
    let mut reader = Reader {
        tokens,
        at: 0,
        names: names.collect(),
        depth: 0,
        blocks: 0,
    };
    let statements = reader.statements()?;
    if reader.peek().is_some() {
        return reader.unread("nothing is closed here");
    }
    let all: Vec<&Statement> = statements.iter().collect();
    let text = outcome(&all, &mut 0).filter(|text| text.len() <= MAX_EXPRESSION);
    text.map(|text| format!("${{{text}}}"))
        .ok_or_else(|| Unread {
            line: 1,
            what: "it has too many ways through it".to_owned(),
        })
}

/// What the statements come to; `None`: there are more ways through them than
/// are looked at.
fn outcome(statements: &[&Statement], steps: &mut usize) -> Option<String> {
    *steps += 1;
    if *steps > MAX_STEPS {
        return None;
    }
    let Some((first, rest)) = statements.split_first() else {
        return Some("null".to_owned());
    };
    match first {
        Statement::Return(text) => Some(text.clone()),
        Statement::If(condition, yes, no) => {
            let mut then = |branch: &[Statement]| {
                let all: Vec<&Statement> = branch.iter().chain(rest.iter().copied()).collect();
                outcome(&all, steps).filter(|text| text.len() <= MAX_EXPRESSION)
            };
            let (yes, no) = (then(yes)?, then(no)?);
            Some(format!("(({condition}) ? {yes} : {no})"))
        }
    }
}

struct Reader {
    tokens: Vec<(Token, usize)>,
    at: usize,
    /// Variables and arguments, each with the expression that it stands for.
    names: HashMap<String, Part>,
    depth: usize,
    /// Blocks that are open.
    blocks: usize,
}

impl Reader {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    fn unread<T>(&self, what: impl Into<String>) -> Result<T, Unread> {
        let here = self.tokens.get(self.at).or(self.tokens.last());
        Err(Unread {
            line: here.map_or(1, |(_, line)| *line),
            what: what.into(),
        })
    }

    fn is(&self, sign: &str) -> bool {
        matches!(self.peek(), Some(Token::Sign(found)) if *found == sign)
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(self.peek(), Some(Token::Name(found)) if found == name)
    }

    fn take(&mut self, sign: &str) -> bool {
        let found = self.is(sign);
        self.at += usize::from(found);
        found
    }

    fn take_name(&mut self, name: &str) -> bool {
        let found = self.is_name(name);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &'static str) -> Result<(), Unread> {
        if self.take(sign) {
            Ok(())
        } else {
            self.unread(format!("`{sign}` is expected here"))
        }
    }

    fn deeper<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Unread>,
    ) -> Result<T, Unread> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.unread("it is nested too deeply");
        }
        let found = read(self);
        self.depth -= 1;
        found
    }

    /// Statements up to the end of a block or of the script.
    fn statements(&mut self) -> Result<Vec<Statement>, Unread> {
        let mut all = Vec::new();
        loop {
            while self.take(";") {}
            if self.peek().is_none() || self.is("}") {
                return Ok(all);
            }
            if self.take_name("import") {
                while matches!(self.peek(), Some(Token::Name(_))) || self.is(".") {
                    self.at += 1;
                    if !self.is(".")
                        && !matches!(self.tokens.get(self.at - 1), Some((Token::Sign("."), _)))
                    {
                        break;
                    }
                }
                continue;
            }
            if let Some(statement) = self.statement()? {
                all.push(statement);
            }
        }
    }

    /// A statement; `None`: it has named a variable.
    fn statement(&mut self) -> Result<Option<Statement>, Unread> {
        if self.take_name("if") {
            return self.deeper(Self::choice).map(Some);
        }
        let typed = ["def", "final", "String", "int", "Integer"];
        let declared = typed.iter().any(|word| self.take_name(word));
        let next = self.tokens.get(self.at + 1).map(|(token, _)| token);
        if let (Some(Token::Name(name)), Some(Token::Sign("="))) = (self.peek(), next) {
            let name = name.clone();
            if !declared && self.blocks > 0 {
                return self
                    .unread("a value that changes on the way can't be said by an expression");
            }
            self.at += 2;
            let mut value = self.value()?;
            if self.peek() == Some(&Token::Sign("?")) {
                return self.unread("only a rate may be chosen with `?` here");
            }
            if value.text.contains(' ') {
                value.text = format!("({})", value.text);
            }
            self.names.insert(name, value);
            return Ok(None);
        }
        if declared {
            return self.unread("a variable needs a value");
        }
        self.take_name("return");
        Ok(Some(Statement::Return(self.rate()?)))
    }

    /// What stands behind `if`.
    fn choice(&mut self) -> Result<Statement, Unread> {
        self.expect("(")?;
        let condition = self.truth()?;
        self.expect(")")?;
        let yes = self.block()?;
        while self.is(";")
            && matches!(self.tokens.get(self.at + 1), Some((Token::Name(name), _)) if name == "else")
        {
            self.at += 1;
        }
        let no = match self.take_name("else") {
            true if self.take_name("if") => vec![self.deeper(Self::choice)?],
            true => self.block()?,
            false => Vec::new(),
        };
        Ok(Statement::If(condition, yes, no))
    }

    /// A block, or one statement. What is named in it is not known behind it.
    fn block(&mut self) -> Result<Vec<Statement>, Unread> {
        let before = self.names.clone();
        self.blocks += 1;
        let all = if self.take("{") {
            let all = self.statements()?;
            self.expect("}")?;
            all
        } else {
            self.statement()?.into_iter().collect()
        };
        self.blocks -= 1;
        self.names = before;
        Ok(all)
    }

    /// What is returned: null, a rate, or a choice between them.
    fn rate(&mut self) -> Result<String, Unread> {
        if self.take_name("null") || self.peek().is_none() || self.is("}") || self.is(";") {
            return Ok("null".to_owned());
        }
        if self.take("(") {
            let rate = self.deeper(Self::rate)?;
            self.expect(")")?;
            return Ok(rate);
        }
        if !self.take_name("new") {
            let at = self.at;
            if let Ok(condition) = self.truth()
                && self.take("?")
            {
                let yes = self.deeper(Self::rate)?;
                self.expect(":")?;
                let no = self.deeper(Self::rate)?;
                return Ok(format!("(({condition}) ? {yes} : {no})"));
            }
            self.at = at;
            return self
                .unread("only `null` and `new ThrottlingRate(number, 'duration')` are returned");
        }
        // The class may be named in full.
        while matches!(self.peek(), Some(Token::Name(name)) if name != "ThrottlingRate") {
            self.at += 1;
            if !self.take(".") {
                break;
            }
        }
        if !self.take_name("ThrottlingRate") {
            return self.unread("nothing but a `ThrottlingRate` is made here");
        }
        self.expect("(")?;
        let number = self.constant()?;
        self.expect(",")?;
        let duration = self.constant()?;
        self.expect(")")?;
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return self.unread("the number of requests must be a number, or an arg that is one");
        }
        Ok(quoted(&format!("{number}/{duration}")))
    }

    /// A number or a text, or a name that stands for one: without quotes.
    fn constant(&mut self) -> Result<String, Unread> {
        let text = match self.peek() {
            Some(Token::Number(number)) => number.clone(),
            Some(Token::Text(text)) => text.clone(),
            Some(Token::Name(name)) => match self.names.get(name) {
                Some(part) => match plain(&part.text) {
                    Some(text) => text,
                    None => return self.unread(format!("`{name}` is no number and no text")),
                },
                None => return self.unread(format!("`{name}` is no arg and no variable")),
            },
            _ => return self.unread("a number, a text or an arg is expected here"),
        };
        self.at += 1;
        Ok(text)
    }

    /// What is true or false.
    fn truth(&mut self) -> Result<String, Unread> {
        let found = self.value()?;
        if found.truth {
            Ok(found.text)
        } else {
            self.unread(
                "a condition must compare: what Groovy takes for true (a text, a list that is \
                 not empty) can't be said by an expression",
            )
        }
    }

    /// A condition, or any value.
    fn value(&mut self) -> Result<Part, Unread> {
        self.joined(&["||"], |reader| reader.joined(&["&&"], Self::comparison))
    }

    fn joined(
        &mut self,
        signs: &[&str],
        mut read: impl FnMut(&mut Self) -> Result<Part, Unread>,
    ) -> Result<Part, Unread> {
        let mut left = read(self)?;
        while let Some(Token::Sign(sign)) = self.peek().cloned()
            && signs.contains(&sign)
        {
            self.at += 1;
            let right = read(self)?;
            if !left.truth || !right.truth {
                return self.unread(format!("both sides of `{sign}` must compare"));
            }
            left = Part::truth(format!("{} {sign} {}", left.text, right.text));
        }
        Ok(left)
    }

    fn comparison(&mut self) -> Result<Part, Unread> {
        let left = self.operand()?;
        match self.peek().cloned() {
            Some(Token::Sign(sign @ ("==" | "!=" | "<=" | ">=" | "<" | ">"))) => {
                self.at += 1;
                let right = self.operand()?;
                Ok(Part::truth(format!("{} {sign} {}", left.text, right.text)))
            }
            _ => Ok(left),
        }
    }

    fn operand(&mut self) -> Result<Part, Unread> {
        if self.take("!") {
            let operand = self.deeper(Self::operand)?;
            if !operand.truth {
                return self.unread("`!` must be in front of a comparison");
            }
            return Ok(Part::truth(format!("!{}", operand.text)));
        }
        let mut part = match self.peek().cloned() {
            Some(Token::Sign("(")) => {
                self.at += 1;
                let inner = self.deeper(Self::value)?;
                self.expect(")")?;
                Part {
                    text: format!("({})", inner.text),
                    truth: inner.truth,
                }
            }
            Some(Token::Number(number)) => {
                self.at += 1;
                Part::value(number)
            }
            Some(Token::Text(text)) => {
                self.at += 1;
                Part::value(quoted(&text))
            }
            Some(Token::Name(name)) => match (name.as_str(), self.names.get(&name)) {
                (_, Some(part)) => {
                    let part = part.clone();
                    self.at += 1;
                    part
                }
                ("true" | "false", None) => {
                    self.at += 1;
                    Part::truth(name)
                }
                ("null" | "request" | "contexts" | "attributes" | "session", None) => {
                    self.at += 1;
                    Part::value(name)
                }
                _ => {
                    return self.unread(format!("`{name}` is no arg, no variable and no value"));
                }
            },
            _ => return self.unread("a value is expected here"),
        };
        while let Some(more) = self.member(&part.text)? {
            part = more;
        }
        Ok(part)
    }

    /// What a member or an index makes of `of`; `None`: there is none.
    fn member(&mut self, of: &str) -> Result<Option<Part>, Unread> {
        if self.take("[") {
            let index = self.deeper(Self::value)?.text;
            self.expect("]")?;
            return Ok(Some(Part::value(format!("{of}[{index}]"))));
        }
        if !self.take(".") && !self.take("?.") {
            return Ok(None);
        }
        let Some(Token::Name(name)) = self.peek().cloned() else {
            return self.unread("a name is expected behind the dot");
        };
        if !matches!(self.tokens.get(self.at + 1), Some((Token::Sign("("), _))) {
            self.at += 1;
            return Ok(Some(Part::value(format!("{of}.{name}"))));
        }
        const TRUTHS: [&str; 4] = ["startsWith", "endsWith", "contains", "matches"];
        const TEXTS: [&str; 3] = ["toLowerCase", "toUpperCase", "trim"];
        let truth = TRUTHS.contains(&name.as_str());
        if !truth
            && !TEXTS.contains(&name.as_str())
            && !["equals", "get", "getFirst"].contains(&name.as_str())
        {
            return self.unread(format!("`{name}()` can't be said by an expression here"));
        }
        self.at += 2;
        let mut arguments = Vec::new();
        while !self.take(")") {
            arguments.push(self.deeper(Self::value)?.text);
            if !self.is(")") {
                self.expect(",")?;
            }
        }
        let text = match (name.as_str(), arguments.as_slice()) {
            ("equals", [one]) => return Ok(Some(Part::truth(format!("({of} == {one})")))),
            ("get", [one]) => format!("{of}[{one}]"),
            ("getFirst", [one]) => format!("{of}[{one}][0]"),
            _ => format!("{of}.{name}({})", arguments.join(", ")),
        };
        Ok(Some(Part { text, truth }))
    }
}

/// A text as expressions write it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// What a number or a quoted text says; `None`: it is something else.
fn plain(value: &str) -> Option<String> {
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(value.to_owned());
    }
    let inner = value.strip_prefix('\'')?.strip_suffix('\'')?;
    let text = inner.replace("\\'", "'").replace("\\\\", "\\");
    (quoted(&text) == value).then_some(text)
}

fn tokens(script: &str) -> Result<Vec<(Token, usize)>, Unread> {
    let mut all = Vec::new();
    let (mut rest, mut line) = (script, 1);
    while let Some(first) = rest.chars().next() {
        if first == '\n' {
            line += 1;
        }
        if first.is_whitespace() {
            rest = &rest[first.len_utf8()..];
            continue;
        }
        if rest.starts_with("//") || rest.starts_with('#') {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
            continue;
        }
        if let Some(comment) = rest.strip_prefix("/*") {
            let end = comment.find("*/").unwrap_or(comment.len());
            line += comment[..end].matches('\n').count();
            rest = comment.get(end + 2..).unwrap_or("");
            continue;
        }
        let (token, length) = token(rest).ok_or_else(|| Unread {
            line,
            what: format!("{first:?} can't be said by an expression here"),
        })?;
        all.push((token, line));
        rest = &rest[length..];
    }
    Ok(all)
}

/// The first token, and how long it is.
fn token(text: &str) -> Option<(Token, usize)> {
    let first = text.chars().next()?;
    let while_true = |wanted: fn(char) -> bool| text.find(|c| !wanted(c)).unwrap_or(text.len());
    if first.is_ascii_alphabetic() || first == '_' {
        let end = while_true(|c| c.is_ascii_alphanumeric() || c == '_');
        return Some((Token::Name(text[..end].to_owned()), end));
    }
    if first.is_ascii_digit() {
        let end = while_true(|c| c.is_ascii_digit());
        return Some((Token::Number(text[..end].to_owned()), end));
    }
    if first == '\'' || first == '"' {
        let mut said = String::new();
        let mut chars = text.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => match chars.next()?.1 {
                    c @ ('\\' | '\'' | '"') => said.push(c),
                    _ => return None,
                },
                // A text with values in it.
                '$' if first == '"' => return None,
                '\n' => return None,
                c if c == first => return Some((Token::Text(said), at + 1)),
                c => said.push(c),
            }
        }
        return None;
    }
    let sign = SIGNS.iter().find(|sign| text.starts_with(**sign))?;
    let served = !matches!(*sign, "==~" | "===" | "!==" | "=~" | "->" | ".." | "?:");
    served.then_some((Token::Sign(sign), sign.len()))
}

#[cfg(test)]
mod tests;
