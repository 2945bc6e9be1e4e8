//! The typed tree, and its evaluation.

use http::HeaderName;

use super::function::{Function, Pattern};
use super::method::Method;
use super::parse::{Binary, Unary};
use super::slot::{self, Object, Slot};
use super::value::{self, Number, Value};
use super::{MAX_TEXT, Scope};

/// A node of a compiled expression. Its depth is bounded by the parser.
#[derive(Debug)]
pub(super) enum Node {
    Constant(Value<'static>),
    Slot(Slot),
    Object(Object),
    Claim(String),
    Header(HeaderName),
    HeaderAt(HeaderName, usize),
    Cookie(String),
    CookieAt(String, usize),
    /// The value of one cookie.
    CookieValue(String, usize),
    Param(String),
    ParamAt(String, usize),
    Index(Box<Node>, Box<Node>),
    Call(Function, Vec<Node>),
    Pattern(Box<Pattern>, Box<Node>),
    Method(Method, Box<Node>, Vec<Node>),
    Unary(Unary, Box<Node>),
    Binary(Binary, Box<Node>, Box<Node>),
    Choose(Box<Node>, Box<Node>, Box<Node>),
    /// Text mixed with expressions.
    Join(Vec<Node>),
}

impl Node {
    pub(super) fn evaluate<'a>(&'a self, scope: &Scope<'a>) -> Value<'a> {
        match self {
            Self::Constant(value) => value.by_ref(),
            Self::Slot(slot) => slot.read(scope),
            Self::Object(object) => Value::Object(*object),
            Self::Claim(name) => slot::claim(scope, name),
            Self::Header(name) => slot::headers(scope, name).unwrap_or(Value::Null),
            Self::HeaderAt(name, i) => slot::header(scope, name, *i).unwrap_or(Value::Null),
            Self::Cookie(name) => list(slot::cookies(scope, name).map(Value::borrowed_text)),
            Self::CookieAt(name, i) => slot::cookies(scope, name)
                .nth(*i)
                .map_or(Value::Null, |_| Value::Object(Object::Cookie)),
            Self::CookieValue(name, i) => slot::cookies(scope, name)
                .nth(*i)
                .map_or(Value::Null, Value::borrowed_text),
            Self::Param(name) => list(slot::params(scope, name).map(Value::Text)),
            Self::ParamAt(name, i) => slot::params(scope, name)
                .nth(*i)
                .map_or(Value::Null, Value::Text),
            Self::Index(of, key) => index(of, key, scope),
            Self::Call(function, arguments) => {
                function.call(arguments.iter().map(|a| a.evaluate(scope)).collect(), scope)
            }
            Self::Pattern(pattern, of) => pattern.apply(of.evaluate(scope)),
            Self::Method(method, of, arguments) => {
                let arguments = arguments.iter().map(|a| a.evaluate(scope)).collect();
                method.call(of.evaluate(scope), arguments, scope)
            }
            Self::Unary(operator, operand) => unary(*operator, &operand.evaluate(scope)),
            Self::Binary(operator, left, right) => binary(*operator, left, right, scope),
            Self::Choose(condition, yes, no) => match condition.evaluate(scope).truth() {
                Some(true) => yes.evaluate(scope),
                Some(false) => no.evaluate(scope),
                None => Value::Null,
            },
            Self::Join(parts) => join(parts, scope),
        }
    }

    /// The value, if no part of the tree looks at a request.
    pub(super) fn constant(&self) -> Option<Value<'static>> {
        if !self.is_constant() {
            return None;
        }
        let (request, ()) = http::Request::new(()).into_parts();
        let scope = Scope::new(&request, ([0, 0, 0, 0], 0).into());
        Some(self.evaluate(&scope).into_owned())
    }

    fn is_constant(&self) -> bool {
        match self {
            Self::Constant(_) => true,
            Self::Slot(_)
            | Self::Object(_)
            | Self::Claim(_)
            | Self::Header(_)
            | Self::HeaderAt(..)
            | Self::Cookie(_)
            | Self::CookieAt(..)
            | Self::CookieValue(..)
            | Self::Param(_)
            | Self::ParamAt(..) => false,
            Self::Index(of, key) => of.is_constant() && key.is_constant(),
            Self::Call(_, arguments) | Self::Join(arguments) => {
                arguments.iter().all(Self::is_constant)
            }
            Self::Pattern(_, of) | Self::Unary(_, of) => of.is_constant(),
            Self::Method(_, of, arguments) => {
                of.is_constant() && arguments.iter().all(Self::is_constant)
            }
            Self::Binary(_, left, right) => left.is_constant() && right.is_constant(),
            Self::Choose(condition, yes, no) => {
                condition.is_constant() && yes.is_constant() && no.is_constant()
            }
        }
    }
}

/// A list of what the request has under a name; null where it has nothing.
fn list<'a>(values: impl Iterator<Item = Value<'a>>) -> Value<'a> {
    let values: Vec<_> = values.collect();
    if values.is_empty() {
        return Value::Null;
    }
    Value::List(values)
}

fn index<'a>(of: &'a Node, key: &'a Node, scope: &Scope<'a>) -> Value<'a> {
    let key = key.evaluate(scope);
    match (of.evaluate(scope), &key) {
        (Value::Object(object), Value::Text(name)) => named(object, name, scope),
        (value, key) => value.at(key),
    }
}

/// The member of a part of the context whose members the request names.
pub(super) fn named<'a>(object: Object, name: &str, scope: &Scope<'a>) -> Value<'a> {
    match object {
        Object::Headers => HeaderName::try_from(name)
            .ok()
            .and_then(|name| slot::headers(scope, &name))
            .unwrap_or(Value::Null),
        Object::Params => list(slot::params(scope, name).map(Value::Text)),
        Object::OpenId => slot::claim(scope, name),
        _ => Value::Null,
    }
}

fn unary(operator: Unary, operand: &Value<'_>) -> Value<'static> {
    match operator {
        Unary::Empty => Value::Bool(operand.length() == Some(0)),
        Unary::Not => operand
            .truth()
            .map_or(Value::Null, |truth| Value::Bool(!truth)),
        Unary::Negate => match operand.number() {
            Some(Number::Integer(n)) => n.checked_neg().map_or(Value::Null, Value::Integer),
            Some(Number::Float(n)) => Value::Float(-n),
            None => Value::Null,
        },
    }
}

fn binary<'a>(operator: Binary, left: &'a Node, right: &'a Node, scope: &Scope<'a>) -> Value<'a> {
    let left = left.evaluate(scope);
    match operator {
        Binary::And | Binary::Or => {
            let decided = operator == Binary::Or;
            match left.truth() {
                Some(truth) if truth == decided => Value::Bool(decided),
                Some(_) => right
                    .evaluate(scope)
                    .truth()
                    .map_or(Value::Null, Value::Bool),
                None => Value::Null,
            }
        }
        Binary::Add | Binary::Subtract | Binary::Multiply | Binary::Divide | Binary::Remainder => {
            value::arithmetic(operator, &left, &right.evaluate(scope))
        }
        Binary::Less
        | Binary::Greater
        | Binary::LessOrEqual
        | Binary::GreaterOrEqual
        | Binary::Equal
        | Binary::NotEqual => value::comparison(operator, left, right.evaluate(scope)),
    }
}

fn join<'a>(parts: &'a [Node], scope: &Scope<'a>) -> Value<'a> {
    let mut text = String::new();
    for part in parts {
        let Some(piece) = part.evaluate(scope).into_text() else {
            return Value::Null;
        };
        if text.len() + piece.len() > MAX_TEXT {
            return Value::Null;
        }
        text.push_str(&piece);
    }
    Value::owned_text(text)
}
