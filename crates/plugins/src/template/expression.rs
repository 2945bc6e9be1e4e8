//! Values and expressions.

use super::{Failed, MAX_TEXT, Request};

/// What an expression comes to.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Nil,
    Bool(bool),
    Number(f64),
    Text(String),
    /// Values of a header or parameter that came more than once.
    List(Vec<String>),
}

/// Where a value of the request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Headers,
    Query,
    Captures,
    /// What other plugins have left for this one: nothing here.
    Shared,
}

/// What is done with two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

/// What is asked of two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Differs,
    Less,
    AtMost,
    More,
    AtLeast,
}

/// A function of the subset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    ToString,
    ToNumber,
    Type,
    Lower,
    Upper,
    Len,
    Sub,
}

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expression {
    Constant(Value),
    /// A member of the request, and which of several values, from 1.
    Member(Source, Box<str>, Option<usize>),
    Not(Box<Expression>),
    And(Box<[Expression; 2]>),
    Or(Box<[Expression; 2]>),
    Compare(Comparison, Box<[Expression; 2]>),
    Calculate(Arithmetic, Box<[Expression; 2]>),
    Concat(Box<[Expression; 2]>),
    Call(Function, Box<[Expression]>),
    /// A call of a function that nobody has.
    Unknown,
}

impl Value {
    /// All but nil and `false` is true.
    fn is_true(&self) -> bool {
        !matches!(self, Self::Nil | Self::Bool(false))
    }

    fn of(mut values: Vec<String>) -> Self {
        match values.len() {
            0 => Self::Nil,
            1 => Self::Text(values.remove(0)),
            _ => Self::List(values),
        }
    }

    /// As it stands in a text: nil and `false` are nothing.
    pub(super) fn rendered(self) -> Result<String, Failed> {
        match self {
            Self::Nil | Self::Bool(false) => Ok(String::new()),
            other => other.text(),
        }
    }

    fn text(self) -> Result<String, Failed> {
        match self {
            Self::Nil => Ok("nil".to_owned()),
            Self::Bool(value) => Ok(value.to_string()),
            Self::Number(number) => Ok(shown(number)),
            Self::Text(text) => Ok(text),
            Self::List(_) => Err(Failed),
        }
    }

    /// What is joined to a text: a text or a number.
    fn joined(self) -> Result<String, Failed> {
        match self {
            Self::Text(_) | Self::Number(_) => self.text(),
            _ => Err(Failed),
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => text.trim().parse().ok().filter(|n: &f64| n.is_finite()),
            _ => None,
        }
    }
}

impl Expression {
    /// The value for a request.
    pub(super) fn evaluate(&self, request: &Request<'_>) -> Result<Value, Failed> {
        Ok(match self {
            Self::Constant(value) => value.clone(),
            Self::Member(source, name, which) => member(*source, name, *which, request),
            Self::Not(inner) => Value::Bool(!inner.evaluate(request)?.is_true()),
            Self::And(both) => {
                let [first, second] = &**both;
                let value = first.evaluate(request)?;
                if !value.is_true() {
                    return Ok(value);
                }
                second.evaluate(request)?
            }
            Self::Or(both) => {
                let [first, second] = &**both;
                let value = first.evaluate(request)?;
                if value.is_true() {
                    return Ok(value);
                }
                second.evaluate(request)?
            }
            Self::Compare(comparison, both) => {
                let [first, second] = &**both;
                let values = (first.evaluate(request)?, second.evaluate(request)?);
                Value::Bool(compare(*comparison, &values.0, &values.1)?)
            }
            Self::Calculate(operation, both) => {
                let [first, second] = &**both;
                let first = first.evaluate(request)?.number().ok_or(Failed)?;
                let second = second.evaluate(request)?.number().ok_or(Failed)?;
                Value::Number(calculate(*operation, first, second)?)
            }
            Self::Concat(both) => {
                let [first, second] = &**both;
                let mut text = first.evaluate(request)?.joined()?;
                text.push_str(&second.evaluate(request)?.joined()?);
                if text.len() > MAX_TEXT {
                    return Err(Failed);
                }
                Value::Text(text)
            }
            Self::Call(function, arguments) => {
                let values: Result<Vec<_>, _> =
                    arguments.iter().map(|one| one.evaluate(request)).collect();
                call(*function, values?)?
            }
            Self::Unknown => return Err(Failed),
        })
    }
}

/// A number with fourteen digits at most, as the imitated gateway writes it.
fn shown(number: f64) -> String {
    let rounded: Result<f64, _> = format!("{number:.13e}").parse();
    rounded.unwrap_or(number).to_string()
}

/// Order is asked of two numbers or of two texts.
fn compare(comparison: Comparison, first: &Value, second: &Value) -> Result<bool, Failed> {
    let order = match (comparison, first, second) {
        (Comparison::Equal, ..) => return Ok(first == second),
        (Comparison::Differs, ..) => return Ok(first != second),
        (_, Value::Number(first), Value::Number(second)) => first.partial_cmp(second),
        (_, Value::Text(first), Value::Text(second)) => Some(first.cmp(second)),
        _ => None,
    };
    let order = order.ok_or(Failed)?;
    Ok(match comparison {
        Comparison::Less => order.is_lt(),
        Comparison::AtMost => order.is_le(),
        Comparison::More => order.is_gt(),
        _ => order.is_ge(),
    })
}

/// A result that is no number has no text.
fn calculate(operation: Arithmetic, first: f64, second: f64) -> Result<f64, Failed> {
    let result = match operation {
        Arithmetic::Add => first + second,
        Arithmetic::Subtract => first - second,
        Arithmetic::Multiply => first * second,
        Arithmetic::Divide => first / second,
        Arithmetic::Modulo => first - (first / second).floor() * second,
    };
    Some(result)
        .filter(|result| result.is_finite())
        .ok_or(Failed)
}

fn member(source: Source, name: &str, which: Option<usize>, request: &Request<'_>) -> Value {
    let value = match source {
        Source::Headers => Value::of(request.header(name)),
        Source::Query => Value::of(request.parameter(name)),
        Source::Captures => {
            let found = request.capture(name);
            found.map_or(Value::Nil, |text| Value::Text(text.into_owned()))
        }
        Source::Shared => Value::Nil,
    };
    match (which, value) {
        (None, value) => value,
        (Some(which), Value::List(mut values)) if (1..=values.len()).contains(&which) => {
            Value::Text(values.swap_remove(which - 1))
        }
        // Of a single text there is no element.
        (Some(_), _) => Value::Nil,
    }
}

fn call(function: Function, arguments: Vec<Value>) -> Result<Value, Failed> {
    let mut arguments = arguments.into_iter();
    let first = arguments.next().unwrap_or(Value::Nil);
    Ok(match function {
        Function::ToString => Value::Text(first.text()?),
        Function::ToNumber => first.number().map_or(Value::Nil, Value::Number),
        Function::Type => Value::Text(
            match first {
                Value::Nil => "nil",
                Value::Bool(_) => "boolean",
                Value::Number(_) => "number",
                Value::Text(_) => "string",
                Value::List(_) => "table",
            }
            .to_owned(),
        ),
        Function::Lower => Value::Text(first.joined()?.to_ascii_lowercase()),
        Function::Upper => Value::Text(first.joined()?.to_ascii_uppercase()),
        #[expect(clippy::cast_precision_loss, reason = "texts are short")]
        Function::Len => Value::Number(first.joined()?.len() as f64),
        Function::Sub => {
            let text = first.joined()?;
            let from = arguments.next().and_then(|v| v.number()).ok_or(Failed)?;
            let to = match arguments.next() {
                None | Some(Value::Nil) => -1.0,
                Some(value) => value.number().ok_or(Failed)?,
            };
            Value::Text(sub(&text, from, to))
        }
    })
}

/// The bytes from one position to another: from 1, or below zero from the end.
fn sub(text: &str, from: f64, to: f64) -> String {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "texts are short, and casts of numbers stop at the bounds"
    )]
    let (from, to) = {
        let length = text.len() as f64;
        let place = |at: f64| if at < 0.0 { length + at + 1.0 } else { at };
        (
            place(from).max(1.0) as usize,
            place(to).min(length).max(0.0) as usize,
        )
    };
    let bytes = text.as_bytes().get(from - 1..to).unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}
