//! From the text to the typed tree: names become slots, patterns compile, and
//! what can't exist is refused.

use super::context::{Fields, Member, Object, Side};
use super::lex::tokens;
use super::node::Node;
use super::parse::{Ast, Form, parse};
use super::slot::Slot;
use super::value::Value;
use super::{Constants, Fault, MAX_SOURCE};

/// Most `${…}` in one text.
const MAX_PARTS: usize = 64;

/// What must be known before an expression is evaluated.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Needs {
    /// The body, whatever it is.
    pub(super) body: bool,
    /// The body, if it is a form.
    pub(super) form: bool,
    pub(super) response: bool,
}

/// Compiles a text: literal text and `${…}` mixed.
pub(super) fn template(
    text: &str,
    constants: &Constants,
) -> Result<(Node, Needs, Vec<String>), Fault> {
    let mut compiler = Compiler {
        constants,
        needs: Needs::default(),
        bodies: 0,
        unknown: Vec::new(),
    };
    let node = compiler.template(text)?;
    Ok((node, compiler.needs, compiler.unknown))
}

pub(super) struct Compiler<'c> {
    pub(super) constants: &'c Constants,
    needs: Needs,
    /// How often the body is read as JSON.
    bodies: usize,
    /// What is named and is not there.
    pub(super) unknown: Vec<String>,
}

/// Most readings of the body as JSON in one expression.
const MAX_BODIES: usize = 16;

impl Compiler<'_> {
    fn template(&mut self, text: &str) -> Result<Node, Fault> {
        if text.len() > MAX_SOURCE {
            return Err(Fault::new(
                MAX_SOURCE,
                format!("longer than {MAX_SOURCE} bytes"),
            ));
        }
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut at = 0;
        while let Some(open) = opening(text, at) {
            if let Some(before) = text[at..open].strip_suffix('\\') {
                literal.push_str(before);
                literal.push_str(&text[open..open + 2]);
                at = open + 2;
                continue;
            }
            literal.push_str(&text[at..open]);
            push_literal(&mut parts, &mut literal);
            let (tokens, end) = tokens(text, open + 2)?;
            let node = self.node(parse(tokens)?)?;
            parts.push(node);
            if parts.len() > MAX_PARTS {
                return Err(Fault::new(open, "too many expressions in one text"));
            }
            at = end;
        }
        literal.push_str(&text[at..]);
        if parts.is_empty() {
            return Ok(Node::Constant(Value::owned_text(literal)));
        }
        push_literal(&mut parts, &mut literal);
        match parts.len() {
            1 => Ok(parts.swap_remove(0)),
            _ => folded(0, Node::Join(parts)),
        }
    }

    pub(super) fn node(&mut self, ast: Ast) -> Result<Node, Fault> {
        let at = ast.at;
        let node = match ast.form {
            Form::Null => Node::Constant(Value::Null),
            Form::Bool(b) => Node::Constant(Value::Bool(b)),
            Form::Integer(n) => Node::Constant(Value::Integer(n)),
            Form::Float(n) => Node::Constant(Value::Float(n)),
            Form::Text(text) => Node::Constant(Value::owned_text(text)),
            Form::Name(name) => self.root(at, &name)?,
            Form::Member(of, name) => {
                let of = self.node(*of)?;
                self.member(at, of, name)?
            }
            Form::Index(of, key) => self.index(*of, *key)?,
            Form::Call(name, arguments) => self.call(at, &name, arguments)?,
            Form::Method(of, name, arguments) => self.method(at, *of, &name, arguments)?,
            Form::Unary(operator, operand) => Node::Unary(operator, self.boxed(*operand)?),
            Form::Binary(operator, left, right) => {
                Node::Binary(operator, self.boxed(*left)?, self.boxed(*right)?)
            }
            Form::Choose(condition, yes, no) => {
                Node::Choose(self.boxed(*condition)?, self.boxed(*yes)?, self.boxed(*no)?)
            }
        };
        folded(at, node)
    }

    fn boxed(&mut self, ast: Ast) -> Result<Box<Node>, Fault> {
        self.node(ast).map(Box::new)
    }

    /// The node of a part of the context; what it needs is noted.
    pub(super) fn part(&mut self, at: usize, member: Member) -> Result<Node, Fault> {
        Ok(match member {
            Member::Slot(slot) => {
                self.needs.body |= slot.is_of_body();
                self.needs.response |= slot.is_of_response();
                if slot == Slot::EntityJson {
                    self.bodies += 1;
                    if self.bodies > MAX_BODIES {
                        let message =
                            format!("the body is read as JSON more often than {MAX_BODIES} times");
                        return Err(Fault::new(at, message));
                    }
                }
                Node::Slot(slot)
            }
            Member::Object(object) => {
                match object {
                    Object::Entity => self.needs.body = true,
                    Object::Fields(Fields::Body | Fields::Both) => self.needs.form = true,
                    Object::Response
                    | Object::Status
                    | Object::Headers(Side::Response)
                    | Object::Cookies(Side::Response) => self.needs.response = true,
                    _ => {}
                }
                Node::Object(object)
            }
        })
    }
}

/// Where the next `${` or `#{` begins, from `at`.
fn opening(text: &str, at: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let found = bytes[at..]
        .windows(2)
        .position(|pair| matches!(pair, b"${" | b"#{"))?;
    Some(at + found)
}

fn push_literal(parts: &mut Vec<Node>, literal: &mut String) {
    if !literal.is_empty() {
        let text = std::mem::take(literal);
        parts.push(Node::Constant(Value::owned_text(text)));
    }
}

/// A tree that looks at no request becomes its value.
fn folded(at: usize, node: Node) -> Result<Node, Fault> {
    if matches!(node, Node::Constant(_)) || !node.is_constant() {
        return Ok(node);
    }
    match node.constant() {
        Some(value) => Ok(Node::Constant(value)),
        None => Err(Fault::new(
            at,
            "is the same for every request, and too large",
        )),
    }
}

/// Names for people, in a row.
pub(super) fn names<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    names.join(", ")
}
