//! The typed tree, and its evaluation.

use http::HeaderName;
use smallvec::SmallVec;

use super::address::Range;
use super::context::{Fields, Object, Side};
use super::function::Function;
use super::message::{self, CookiePart};
use super::method::Method;
use super::parse::{Binary, Unary};
use super::pattern::{Operation, Pattern};
use super::run::Run;
use super::slot::Slot;
use super::value::{self, Number, Value};
use super::{Scope, lookup, text_form};

/// Values of arguments; most calls have one or two.
pub(super) type Arguments<'a> = SmallVec<[Value<'a>; 2]>;

/// A node of a compiled expression. Its depth is bounded by the parser.
#[derive(Debug)]
pub(super) enum Node {
    Constant(Value<'static>),
    Slot(Slot),
    Object(Object),
    Claim(String),
    Header(Side, HeaderName),
    HeaderAt(Side, HeaderName, usize),
    /// The cookies of a name.
    Cookies(Side, String),
    /// One of them, or a part of it.
    Cookie(Box<CookieAt>),
    Field(Fields, String),
    FieldAt(Fields, String, usize),
    Index(Box<Node>, Box<Node>),
    Call(Function, Vec<Node>),
    /// Whether an address lies in a range that is known at load.
    Within(Box<Range>, Box<Node>),
    /// A pattern, the text, and what replaces matches.
    Pattern(Box<Pattern>, Box<Node>, Option<Box<Node>>),
    Method(Method, Box<Node>, Vec<Node>),
    Unary(Unary, Box<Node>),
    Binary(Binary, Box<Node>, Box<Node>),
    Choose(Box<Node>, Box<Node>, Box<Node>),
    /// Text mixed with expressions.
    Join(Vec<Node>),
}

/// Cookie number `index` of a name.
#[derive(Debug, Clone)]
pub(super) struct CookieAt {
    pub(super) side: Side,
    pub(super) name: String,
    pub(super) index: usize,
    pub(super) part: CookiePart,
}

impl Node {
    /// The value; null once the evaluation is over.
    pub(super) fn evaluate<'a>(&'a self, scope: &Run<'a>) -> Value<'a> {
        if scope.is_over() {
            return Value::Null;
        }
        match self {
            Self::Constant(value) => value.by_ref(),
            Self::Object(object) => lookup::object(*object, scope),
            other => scope.bounded(other.computed(scope)),
        }
    }

    fn computed<'a>(&'a self, scope: &Run<'a>) -> Value<'a> {
        match self {
            Self::Constant(value) => value.by_ref(),
            Self::Slot(slot) => slot.read(scope),
            Self::Object(object) => lookup::object(*object, scope),
            Self::Claim(name) => scope.claim(name),
            Self::Header(side, name) => message::header_values(scope, *side, name),
            Self::HeaderAt(side, name, i) => {
                message::header(scope, *side, name, *i).unwrap_or(Value::Null)
            }
            Self::Cookies(side, name) => message::cookie_values(scope, *side, name),
            Self::Cookie(at) => {
                let found = message::cookie(scope, at.side, &at.name, at.index, at.part);
                found.unwrap_or(Value::Null)
            }
            Self::Field(from, name) => {
                message::list(message::fields(scope, *from, name).map(Value::Text), scope)
            }
            Self::FieldAt(from, name, i) => message::fields(scope, *from, name)
                .nth(*i)
                .map_or(Value::Null, Value::Text),
            Self::Index(of, key) => index(of, key, scope),
            Self::Call(function, arguments) => {
                function.call(arguments.iter().map(|a| a.evaluate(scope)).collect(), scope)
            }
            Self::Within(range, of) => Value::Bool(match &**of {
                Self::Slot(Slot::ClientAddress) => range.contains(scope.client.ip()),
                of => range.contains_text(&of.evaluate(scope)),
            }),
            Self::Pattern(pattern, of, with) => matched(pattern, of, with.as_deref(), scope),
            Self::Method(method, of, arguments) => {
                let of = of.evaluate(scope);
                let arguments = arguments.iter().map(|a| a.evaluate(scope)).collect();
                method.call(of, arguments, scope)
            }
            Self::Unary(operator, operand) => unary(*operator, &operand.evaluate(scope), scope),
            Self::Binary(operator, left, right) => binary(*operator, left, right, scope),
            Self::Choose(condition, yes, no) => match condition.evaluate(scope).truth() {
                Some(true) => yes.evaluate(scope),
                Some(false) => no.evaluate(scope),
                None => Value::Null,
            },
            Self::Join(parts) => join(parts, scope),
        }
    }

    /// The value, if no part of the tree looks at a request; `None` also where
    /// it exceeds a bound.
    pub(super) fn constant(&self) -> Option<Value<'static>> {
        if !self.is_constant() {
            return None;
        }
        let (request, ()) = http::Request::new(()).into_parts();
        let run = Run::new(&Scope::new(&request, ([0, 0, 0, 0], 0).into()));
        let value = self.evaluate(&run).into_owned();
        (!run.is_over()).then_some(value)
    }

    pub(super) fn is_constant(&self) -> bool {
        match self {
            Self::Constant(_) => true,
            Self::Slot(_)
            | Self::Object(_)
            | Self::Claim(_)
            | Self::Header(..)
            | Self::HeaderAt(..)
            | Self::Cookies(..)
            | Self::Cookie(_)
            | Self::Field(..)
            | Self::FieldAt(..) => false,
            Self::Index(of, key) => of.is_constant() && key.is_constant(),
            Self::Call(_, arguments) | Self::Join(arguments) => {
                arguments.iter().all(Self::is_constant)
            }
            Self::Pattern(_, of, with) => {
                of.is_constant() && with.as_ref().is_none_or(|with| with.is_constant())
            }
            Self::Within(_, of) | Self::Unary(_, of) => of.is_constant(),
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

/// What a pattern makes of a text.
fn matched<'a>(
    pattern: &'a Pattern,
    of: &'a Node,
    with: Option<&'a Node>,
    scope: &Run<'a>,
) -> Value<'a> {
    let of = of.evaluate(scope);
    match (pattern.operation, of) {
        (Operation::Key, of) => key(pattern, of, scope),
        (Operation::Find | Operation::Match, of) => Value::Bool(
            text_form::text(of, scope).is_some_and(|text| pattern.is_match(&text, scope)),
        ),
        (Operation::Groups, of) => {
            text_form::text(of, scope).map_or(Value::Null, |text| pattern.groups(text, scope))
        }
        (Operation::Split, of) => {
            text_form::text(of, scope).map_or(Value::Null, |text| pattern.split(text, scope))
        }
        (Operation::ReplaceAll | Operation::ReplaceFirst, of) => {
            let with = with.and_then(|with| text_form::text(with.evaluate(scope), scope));
            text_form::text(of, scope)
                .zip(with)
                .and_then(|(text, with)| pattern.replace(&text, &with, scope))
                .map_or(Value::Null, Value::owned_text)
        }
    }
}

/// The first key that matches as a whole.
fn key<'a>(pattern: &'a Pattern, of: Value<'a>, scope: &Run<'a>) -> Value<'a> {
    let found = match of {
        Value::Object(object) => message::first_name(object, scope, |name, caseless| {
            pattern.is_key(name, caseless, scope)
        }),
        Value::Map(map) => {
            let key = map.keys().find(|key| pattern.is_key(key, false, scope));
            key.map(|key| Value::owned_text(key.clone()))
        }
        _ => None,
    };
    found.unwrap_or(Value::Null)
}

fn index<'a>(of: &'a Node, key: &'a Node, scope: &Run<'a>) -> Value<'a> {
    let key = key.evaluate(scope);
    match (of.evaluate(scope), &key) {
        (Value::Object(object), Value::Text(name)) => message::named(object, name, scope),
        (value, key) => value.at(key),
    }
}

/// Elements, members, or characters; `None` for what has no length.
pub(super) fn length(value: &Value<'_>, scope: &Run<'_>) -> Option<usize> {
    match value {
        Value::Object(object) => message::count(*object, scope),
        value => value.length(),
    }
}

fn unary(operator: Unary, operand: &Value<'_>, scope: &Run<'_>) -> Value<'static> {
    match operator {
        Unary::Empty => Value::Bool(length(operand, scope) == Some(0)),
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

fn binary<'a>(operator: Binary, left: &'a Node, right: &'a Node, scope: &Run<'a>) -> Value<'a> {
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
        | Binary::NotEqual => {
            let (left, right) = comparable(left, right.evaluate(scope), scope);
            value::comparison(operator, left, right)
        }
    }
}

/// Two values to compare: beside a text, what is not plain becomes one.
fn comparable<'a>(left: Value<'a>, right: Value<'a>, scope: &Run<'a>) -> (Value<'a>, Value<'a>) {
    let as_text = |value| text_form::text(value, scope).map_or(Value::Null, Value::Text);
    match (&left, &right) {
        (Value::Text(_), other) if !value::is_plain(other) => (left, as_text(right)),
        (other, Value::Text(_)) if !value::is_plain(other) => (as_text(left), right),
        _ => (left, right),
    }
}

/// The parts as one text, in which null is nothing; null where a part has no
/// text form or the whole is too long.
fn join<'a>(parts: &'a [Node], scope: &Run<'a>) -> Value<'a> {
    let mut text = String::new();
    for part in parts {
        let piece = match part.evaluate(scope) {
            Value::Null => continue,
            piece => text_form::text(piece, scope),
        };
        let Some(piece) = piece else {
            return Value::Null;
        };
        if scope.allows(text.len() + piece.len()).is_none() {
            return Value::Null;
        }
        text.push_str(&piece);
    }
    Value::owned_text(text)
}
