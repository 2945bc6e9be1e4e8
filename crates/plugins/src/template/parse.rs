//! From a text to an expression.

use super::expression::{Arithmetic, Comparison, Expression, Function, Source, Value};

/// How deep brackets may stand in each other.
const MAX_DEPTH: u8 = 16;
/// Most values and operators of one expression: it bounds evaluation, too.
const MAX_NODES: u16 = 100;

/// Names of functions.
const FUNCTIONS: &[(&str, Function)] = &[
    ("tostring", Function::ToString),
    ("tonumber", Function::ToNumber),
    ("type", Function::Type),
    ("string.lower", Function::Lower),
    ("string.upper", Function::Upper),
    ("string.len", Function::Len),
    ("string.sub", Function::Sub),
];

/// Names of what there is of a request.
const SOURCES: &[(&str, Source)] = &[
    ("headers", Source::Headers),
    ("query_params", Source::Query),
    ("uri_captures", Source::Captures),
    ("shared", Source::Shared),
];

/// Names that the imitated gateway has and the subset has not: whatever begins with
/// one is refused, because it would work there.
const LIBRARY: &[&str] = &[
    "string", "table", "math", "os", "assert", "error", "ipairs", "next", "pairs", "pcall",
    "select", "unpack",
];

/// Signs of arithmetic that bind as strongly as one another.
const SUMS: &[(&str, Arithmetic)] = &[("+", Arithmetic::Add), ("-", Arithmetic::Subtract)];
const PRODUCTS: &[(&str, Arithmetic)] = &[
    ("*", Arithmetic::Multiply),
    ("/", Arithmetic::Divide),
    ("%", Arithmetic::Modulo),
];

/// Signs that compare; the longer ones first.
const COMPARISONS: &[(&str, Comparison)] = &[
    ("==", Comparison::Equal),
    ("~=", Comparison::Differs),
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("<", Comparison::Less),
    (">", Comparison::More),
];

/// The expression up to the closing bracket, and what is behind that.
pub(super) fn expression(text: &str) -> Result<(Expression, &str), String> {
    let mut parser = Parser {
        rest: text,
        depth: 0,
        nodes: 0,
    };
    let expression = parser.or()?;
    parser.expect(")")?;
    Ok((expression, parser.rest))
}

struct Parser<'a> {
    rest: &'a str,
    depth: u8,
    nodes: u16,
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

impl<'a> Parser<'a> {
    fn blank(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Takes a sign, if it is next.
    fn sign(&mut self, sign: &str) -> bool {
        self.blank();
        let rest = self.rest.strip_prefix(sign);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.sign(sign) {
            Ok(())
        } else {
            Err(format!("expected '{sign}' near '{}'", self.near()))
        }
    }

    /// Takes a word, if it is next and ends there.
    fn word(&mut self, word: &str) -> bool {
        self.blank();
        match self.rest.strip_prefix(word) {
            Some(rest) if !rest.starts_with(is_name) => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn near(&self) -> String {
        self.rest.chars().take(20).collect()
    }

    fn node(&mut self, expression: Expression) -> Result<Expression, String> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            Err("too many values and operators".to_owned())
        } else {
            Ok(expression)
        }
    }

    fn or(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("too many brackets".to_owned());
        }
        let mut left = self.and()?;
        while self.word("or") {
            let right = self.and()?;
            left = self.node(Expression::Or(Box::new([left, right])))?;
        }
        self.depth -= 1;
        Ok(left)
    }

    fn and(&mut self) -> Result<Expression, String> {
        let mut left = self.comparison()?;
        while self.word("and") {
            let right = self.comparison()?;
            left = self.node(Expression::And(Box::new([left, right])))?;
        }
        Ok(left)
    }

    fn comparison(&mut self) -> Result<Expression, String> {
        let left = self.concatenation()?;
        for (sign, comparison) in COMPARISONS {
            if self.sign(sign) {
                let right = self.concatenation()?;
                return self.node(Expression::Compare(*comparison, Box::new([left, right])));
            }
        }
        Ok(left)
    }

    fn concatenation(&mut self) -> Result<Expression, String> {
        let mut left = self.sum()?;
        while self.sign("..") {
            let right = self.sum()?;
            left = self.node(Expression::Concat(Box::new([left, right])))?;
        }
        Ok(left)
    }

    fn sum(&mut self) -> Result<Expression, String> {
        let mut left = self.product()?;
        while let Some(operation) = self.one_of(SUMS) {
            let right = self.product()?;
            left = self.node(Expression::Calculate(operation, Box::new([left, right])))?;
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Expression, String> {
        let mut left = self.unary()?;
        while let Some(operation) = self.one_of(PRODUCTS) {
            let right = self.unary()?;
            left = self.node(Expression::Calculate(operation, Box::new([left, right])))?;
        }
        Ok(left)
    }

    fn one_of(&mut self, signs: &[(&str, Arithmetic)]) -> Option<Arithmetic> {
        let found = signs.iter().find(|(sign, _)| self.sign(sign));
        found.map(|(_, operation)| *operation)
    }

    fn unary(&mut self) -> Result<Expression, String> {
        let mut negated = false;
        let mut any = false;
        while self.word("not") {
            (negated, any) = (!negated, true);
        }
        let inner = self.primary()?;
        if !any {
            return Ok(inner);
        }
        let once = self.node(Expression::Not(Box::new(inner)))?;
        if negated {
            Ok(once)
        } else {
            self.node(Expression::Not(Box::new(once)))
        }
    }

    fn primary(&mut self) -> Result<Expression, String> {
        if self.sign("(") {
            let inner = self.or()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if let Some(text) = self.quoted()? {
            return self.node(Expression::Constant(Value::Text(text)));
        }
        if let Some(number) = self.number() {
            return self.node(Expression::Constant(Value::Number(number)));
        }
        for (word, value) in [
            ("nil", Value::Nil),
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
        ] {
            if self.word(word) {
                return self.node(Expression::Constant(value));
            }
        }
        for (name, function) in FUNCTIONS {
            if self.word(name) {
                return self.call(*function);
            }
        }
        for (name, source) in SOURCES {
            if self.word(name) {
                return self.member(*source);
            }
        }
        if let Some(call) = self.unknown_call()? {
            return Ok(call);
        }
        let known = "headers, query_params, uri_captures, shared, tostring, tonumber, type, \
                     string.lower, string.upper, string.len, string.sub";
        Err(format!(
            "unknown name near '{}': known are {known}",
            self.near()
        ))
    }

    fn quoted(&mut self) -> Result<Option<String>, String> {
        self.blank();
        let quote = self.rest.chars().next().filter(|c| ['\'', '"'].contains(c));
        let Some(quote) = quote else {
            return Ok(None);
        };
        let inside = self.rest.get(1..).unwrap_or_default();
        let end = inside.find(quote).ok_or("a text without an end")?;
        let (text, rest) = inside.split_at(end);
        if text.contains('\\') {
            return Err("texts with '\\' are not supported".to_owned());
        }
        self.rest = rest.get(1..).unwrap_or_default();
        Ok(Some(text.to_owned()))
    }

    fn number(&mut self) -> Option<f64> {
        self.blank();
        let (minus, digits) = match self.rest.strip_prefix('-') {
            Some(rest) => (1, rest),
            None => (0, self.rest),
        };
        let count = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let whole = count(digits);
        if whole == 0 {
            return None;
        }
        let fraction = digits.get(whole..).and_then(|rest| rest.strip_prefix('.'));
        let length = match fraction.map_or(0, count) {
            0 => whole,
            decimals => whole + 1 + decimals,
        };
        let (text, rest) = self.rest.split_at(minus + length);
        let number = text.parse().ok()?;
        self.rest = rest;
        Some(number)
    }

    /// A call of a function that nobody has. The imitated gateway takes it, too, and
    /// fails with each request that comes to it.
    fn unknown_call(&mut self) -> Result<Option<Expression>, String> {
        self.blank();
        let is_path = |c: char| is_name(c) || c == '.';
        let end = self.rest.find(|c| !is_path(c)).unwrap_or(self.rest.len());
        let (path, rest) = self.rest.split_at(end);
        let first = path.split('.').next().unwrap_or_default();
        let is_call = !path.is_empty() && rest.trim_start().starts_with('(');
        if !is_call || LIBRARY.contains(&first) {
            return Ok(None);
        }
        self.rest = rest;
        self.arguments()?;
        self.node(Expression::Unknown).map(Some)
    }

    fn arguments(&mut self) -> Result<Vec<Expression>, String> {
        self.expect("(")?;
        let mut arguments = Vec::new();
        if self.sign(")") {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.or()?);
            if !self.sign(",") {
                break;
            }
        }
        self.expect(")")?;
        Ok(arguments)
    }

    fn call(&mut self, function: Function) -> Result<Expression, String> {
        let arguments = self.arguments()?;
        let most = if function == Function::Sub { 3 } else { 1 };
        let least = if function == Function::Sub { 2 } else { 1 };
        if !(least..=most).contains(&arguments.len()) {
            return Err("wrong number of arguments".to_owned());
        }
        self.node(Expression::Call(function, arguments.into()))
    }

    /// `.name`, `['name']` or `[0]`, and perhaps `[1]` for one of several.
    fn member(&mut self, source: Source) -> Result<Expression, String> {
        let name: Box<str> = if self.sign(".") {
            let end = self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len());
            let (name, rest) = self.rest.split_at(end);
            self.rest = rest;
            name.into()
        } else {
            self.expect("[")?;
            let name = match self.quoted()? {
                Some(name) => name,
                None => self.index()?.to_string(),
            };
            self.expect("]")?;
            name.into()
        };
        if name.is_empty() {
            return Err(format!("expected a name near '{}'", self.near()));
        }
        let mut which = None;
        if source != Source::Captures && self.sign("[") {
            which = Some(self.index()?);
            self.expect("]")?;
        }
        self.node(Expression::Member(source, name, which))
    }

    fn index(&mut self) -> Result<usize, String> {
        let number = self
            .number()
            .filter(|n| (0.0..1000.0).contains(n) && n.fract() == 0.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole and between 0 and 1000"
        )]
        let index = number.map(|number| number as usize);
        index.ok_or_else(|| format!("expected a name or a number near '{}'", self.near()))
    }
}
