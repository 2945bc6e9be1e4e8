//! From tokens to a syntax tree, by recursive descent with a depth limit.

use super::lex::{Kind, Token};
use super::{Fault, MAX_DEPTH, MAX_HEIGHT, MAX_NODES};

/// A node of the syntax tree, before names are resolved.
#[derive(Debug)]
pub(super) struct Ast {
    pub(super) at: usize,
    pub(super) form: Form,
    /// Longest path to a leaf: evaluation and drop recurse this far.
    height: u16,
}

/// What a node is.
#[derive(Debug)]
pub(super) enum Form {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    Name(String),
    Member(Box<Ast>, String),
    Index(Box<Ast>, Box<Ast>),
    Call(String, Vec<Ast>),
    Method(Box<Ast>, String, Vec<Ast>),
    Unary(Unary, Box<Ast>),
    Binary(Binary, Box<Ast>, Box<Ast>),
    Choose(Box<Ast>, Box<Ast>, Box<Ast>),
}

/// Operators with one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unary {
    Negate,
    Not,
    Empty,
}

/// Operators with two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binary {
    Multiply,
    Divide,
    Remainder,
    Add,
    Subtract,
    Less,
    Greater,
    LessOrEqual,
    GreaterOrEqual,
    Equal,
    NotEqual,
    And,
    Or,
}

/// Binary operators, loosest first; one row a level of precedence.
const LEVELS: &[&[(&str, Binary)]] = &[
    &[("||", Binary::Or)],
    &[("&&", Binary::And)],
    &[("==", Binary::Equal), ("!=", Binary::NotEqual)],
    &[
        ("<=", Binary::LessOrEqual),
        (">=", Binary::GreaterOrEqual),
        ("<", Binary::Less),
        (">", Binary::Greater),
    ],
    &[("+", Binary::Add), ("-", Binary::Subtract)],
    &[
        ("*", Binary::Multiply),
        ("/", Binary::Divide),
        ("%", Binary::Remainder),
    ],
];

/// Words that name neither a root nor a member.
const RESERVED: &[&str] = &["instanceof"];

/// Most arguments of a call.
const MAX_ARGUMENTS: usize = 16;

/// Parses the tokens of one `${…}`.
pub(super) fn parse(tokens: Vec<Token>) -> Result<Ast, Fault> {
    let mut parser = Parser {
        tokens: tokens.into_iter().peekable(),
        end: 0,
        depth: 0,
        nodes: 0,
    };
    let ast = parser.expression()?;
    match parser.tokens.next() {
        Some(Token {
            kind: Kind::End, ..
        })
        | None => Ok(ast),
        Some(token) => Err(unexpected(
            &token,
            "an operator or the end of the expression",
        )),
    }
}

struct Parser {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
    /// Offset of the token read last, for an unexpected end.
    end: usize,
    depth: u16,
    /// Nodes made so far.
    nodes: usize,
}

impl Parser {
    /// `condition ? this : that`, or anything that binds closer.
    fn expression(&mut self) -> Result<Ast, Fault> {
        self.nested(|parser| {
            let condition = parser.binary(0)?;
            if !parser.take("?") {
                return Ok(condition);
            }
            let yes = parser.expression()?;
            parser.expect(":")?;
            let no = parser.expression()?;
            let below = condition.height.max(yes.height).max(no.height);
            let (at, form) = (
                condition.at,
                Form::Choose(Box::new(condition), Box::new(yes), Box::new(no)),
            );
            parser.node(at, form, below)
        })
    }

    fn binary(&mut self, level: usize) -> Result<Ast, Fault> {
        let Some(operators) = LEVELS.get(level) else {
            return self.unary();
        };
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = self.operator(operators) {
            let right = self.binary(level + 1)?;
            let below = left.height.max(right.height);
            let (at, form) = (
                left.at,
                Form::Binary(operator, Box::new(left), Box::new(right)),
            );
            left = self.node(at, form, below)?;
        }
        Ok(left)
    }

    fn operator(&mut self, operators: &[(&str, Binary)]) -> Option<Binary> {
        let (_, operator) = operators.iter().find(|(sign, _)| self.peeks(sign))?;
        self.advance();
        Some(*operator)
    }

    fn unary(&mut self) -> Result<Ast, Fault> {
        let operator = match self.tokens.peek().map(|token| &token.kind) {
            Some(Kind::Sign("-")) => Unary::Negate,
            Some(Kind::Sign("!")) => Unary::Not,
            Some(Kind::Sign("empty")) => Unary::Empty,
            _ => return self.postfix(),
        };
        let at = self.advance().map_or(self.end, |token| token.at);
        let operand = self.nested(Self::unary)?;
        let below = operand.height;
        self.node(at, Form::Unary(operator, Box::new(operand)), below)
    }

    fn postfix(&mut self) -> Result<Ast, Fault> {
        let mut left = self.primary()?;
        loop {
            let at = self.tokens.peek().map_or(self.end, |token| token.at);
            if self.take(".") {
                left = self.member(left)?;
            } else if self.take("[") {
                let index = self.expression()?;
                self.expect("]")?;
                let below = left.height.max(index.height);
                left = self.node(at, Form::Index(Box::new(left), Box::new(index)), below)?;
            } else {
                return Ok(left);
            }
        }
    }

    fn member(&mut self, left: Ast) -> Result<Ast, Fault> {
        let (at, name) = match self.advance() {
            Some(Token {
                at,
                kind: Kind::Name(name),
            }) => (at, name),
            Some(token) => return Err(unexpected(&token, "a name after `.`")),
            None => return Err(Fault::new(self.end, "a name is missing after `.`")),
        };
        let below = left.height;
        if self.take("(") {
            let arguments = self.arguments()?;
            let below = arguments.iter().fold(below, |h, a| h.max(a.height));
            return self.node(at, Form::Method(Box::new(left), name, arguments), below);
        }
        self.node(at, Form::Member(Box::new(left), name), below)
    }

    fn primary(&mut self) -> Result<Ast, Fault> {
        let Some(token) = self.advance() else {
            return Err(Fault::new(self.end, "a value is missing"));
        };
        let form = match token.kind {
            Kind::Integer(n) => Form::Integer(n),
            Kind::Float(n) => Form::Float(n),
            Kind::Text(text) => Form::Text(text),
            Kind::Name(name) => return self.named(token.at, name),
            Kind::Sign("(") => {
                let inner = self.expression()?;
                self.expect(")")?;
                return Ok(inner);
            }
            Kind::Sign(_) | Kind::End => return Err(unexpected(&token, "a value")),
        };
        self.node(token.at, form, 0)
    }

    fn named(&mut self, at: usize, name: String) -> Result<Ast, Fault> {
        if RESERVED.contains(&name.as_str()) {
            return Err(Fault::new(at, format!("`{name}` is a reserved word")));
        }
        if self.take("(") {
            let arguments = self.arguments()?;
            let below = arguments.iter().fold(0, |h, a| h.max(a.height));
            return self.node(at, Form::Call(name, arguments), below);
        }
        let form = match name.as_str() {
            "true" => Form::Bool(true),
            "false" => Form::Bool(false),
            "null" => Form::Null,
            _ => Form::Name(name),
        };
        self.node(at, form, 0)
    }

    /// What stands between the brackets of a call, after the opening one.
    fn arguments(&mut self) -> Result<Vec<Ast>, Fault> {
        let mut arguments = Vec::new();
        if self.take(")") {
            return Ok(arguments);
        }
        loop {
            let argument = self.expression()?;
            if arguments.len() == MAX_ARGUMENTS {
                return Err(Fault::new(argument.at, "too many arguments"));
            }
            arguments.push(argument);
            if self.take(")") {
                return Ok(arguments);
            }
            self.expect(",")?;
        }
    }

    /// Runs `parse` one level deeper, so that input can't exhaust the stack.
    fn nested(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<Ast, Fault>,
    ) -> Result<Ast, Fault> {
        if self.depth == MAX_DEPTH {
            let at = self.tokens.peek().map_or(self.end, |token| token.at);
            return Err(too_deep(at, MAX_DEPTH));
        }
        self.depth += 1;
        let ast = parse(self);
        self.depth -= 1;
        ast
    }

    fn node(&mut self, at: usize, form: Form, below: u16) -> Result<Ast, Fault> {
        let height = below + 1;
        if height > MAX_HEIGHT {
            return Err(too_deep(at, MAX_HEIGHT));
        }
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            let message = format!("made of more than {MAX_NODES} values and operators");
            return Err(Fault::new(at, message));
        }
        Ok(Ast { at, form, height })
    }

    fn advance(&mut self) -> Option<Token> {
        let token = self.tokens.next()?;
        self.end = token.at;
        Some(token)
    }

    fn peeks(&mut self, sign: &str) -> bool {
        matches!(self.tokens.peek(), Some(Token { kind: Kind::Sign(s), .. }) if *s == sign)
    }

    fn take(&mut self, sign: &str) -> bool {
        let found = self.peeks(sign);
        if found {
            self.advance();
        }
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), Fault> {
        match self.advance() {
            Some(Token {
                kind: Kind::Sign(s),
                ..
            }) if s == sign => Ok(()),
            Some(token) => Err(unexpected(&token, &format!("`{sign}`"))),
            None => Err(Fault::new(self.end, format!("`{sign}` is missing"))),
        }
    }
}

fn too_deep(at: usize, most: u16) -> Fault {
    Fault::new(at, format!("nested deeper than {most} levels"))
}

fn unexpected(token: &Token, wanted: &str) -> Fault {
    let found = match &token.kind {
        Kind::Integer(_) | Kind::Float(_) => "a number".to_owned(),
        Kind::Text(_) => "a text".to_owned(),
        Kind::Name(name) => format!("`{name}`"),
        Kind::Sign(sign) => format!("`{sign}`"),
        Kind::End => "the end of the expression".to_owned(),
    };
    Fault::new(token.at, format!("found {found} instead of {wanted}"))
}
