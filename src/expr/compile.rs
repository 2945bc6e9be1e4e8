//! From the text to the typed tree: names become slots, patterns compile, and
//! what can't exist is refused.

use http::HeaderName;

use super::function::{FUNCTIONS, NEVER, Operation, PATTERNS, Pattern};
use super::lex::tokens;
use super::method::METHODS;
use super::node::Node;
use super::parse::{Ast, Form, parse};
use super::slot::{Member, Object, ROOTS, Slot};
use super::value::Value;
use super::{Constants, Fault, MAX_SOURCE};

/// Most `${…}` in one text.
const MAX_PARTS: usize = 64;

/// What must be known before an expression is evaluated.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Needs {
    pub(super) body: bool,
    pub(super) response: bool,
}

/// Compiles a text: literal text and `${…}` mixed.
pub(super) fn template(text: &str, constants: &Constants) -> Result<(Node, Needs), Fault> {
    let mut compiler = Compiler {
        constants,
        needs: Needs::default(),
    };
    let node = compiler.template(text)?;
    Ok((node, compiler.needs))
}

struct Compiler<'c> {
    constants: &'c Constants,
    needs: Needs,
}

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
        while let Some(found) = text[at..].find("${") {
            let open = at + found;
            if let Some(before) = text[at..open].strip_suffix('\\') {
                literal.push_str(before);
                literal.push_str("${");
                at = open + 2;
                continue;
            }
            literal.push_str(&text[at..open]);
            push_literal(&mut parts, &mut literal);
            let (tokens, end) = tokens(text, open + 2)?;
            parts.push(folded(self.node(parse(tokens)?)?));
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
            _ => Ok(folded(Node::Join(parts))),
        }
    }

    fn node(&mut self, ast: Ast) -> Result<Node, Fault> {
        let at = ast.at;
        Ok(match ast.form {
            Form::Null => Node::Constant(Value::Null),
            Form::Bool(b) => Node::Constant(Value::Bool(b)),
            Form::Integer(n) => Node::Constant(Value::Integer(n)),
            Form::Float(n) => Node::Constant(Value::Float(n)),
            Form::Text(text) => Node::Constant(Value::owned_text(text)),
            Form::Name(name) => return self.root(at, &name),
            Form::Member(of, name) => {
                let of = self.node(*of)?;
                return self.member(at, of, name);
            }
            Form::Index(of, key) => return self.index(*of, *key),
            Form::Call(name, arguments) => return self.call(at, &name, arguments),
            Form::Method(of, name, arguments) => return self.method(at, *of, &name, arguments),
            Form::Unary(operator, operand) => Node::Unary(operator, Box::new(self.node(*operand)?)),
            Form::Binary(operator, left, right) => Node::Binary(
                operator,
                Box::new(self.node(*left)?),
                Box::new(self.node(*right)?),
            ),
            Form::Choose(condition, yes, no) => Node::Choose(
                Box::new(self.node(*condition)?),
                Box::new(self.node(*yes)?),
                Box::new(self.node(*no)?),
            ),
        })
    }

    fn root(&mut self, at: usize, name: &str) -> Result<Node, Fault> {
        match ROOTS.iter().find(|(root, _)| *root == name) {
            Some((_, object)) => Ok(Node::Object(*object)),
            None if self.constants.get(name).is_some() => {
                let value = self.constants.get(name).cloned().unwrap_or_default();
                Ok(Node::Constant(Value::of_owned_json(value)))
            }
            None => Err(Fault::new(
                at,
                format!(
                    "there is no `{name}`: an expression begins with {}",
                    names(ROOTS.iter().map(|(root, _)| *root))
                ),
            )),
        }
    }

    /// `of.name`, the same as `of['name']` where the request names the members.
    fn member(&mut self, at: usize, of: Node, name: String) -> Result<Node, Fault> {
        match (&of, name.as_str()) {
            (Node::Header(_) | Node::Param(_), "values") => Ok(of),
            (Node::CookieAt(cookie, i), "value") => Ok(Node::CookieValue(cookie.clone(), *i)),
            (Node::CookieAt(cookie, _), "name") => {
                Ok(Node::Constant(Value::owned_text(cookie.clone())))
            }
            (Node::CookieAt(..), _) => Err(Fault::new(
                at,
                format!("a cookie has no member `{name}`, only `name` and `value`"),
            )),
            _ => self.at_name(at, of, name),
        }
    }

    fn index(&mut self, of: Ast, key: Ast) -> Result<Node, Fault> {
        let (of, key_at) = (self.node(of)?, key.at);
        let key = folded(self.node(key)?);
        let position = match &key {
            Node::Constant(value) => value.as_index(),
            _ => None,
        };
        match (of, key, position) {
            (Node::Header(name), _, Some(i)) => Ok(Node::HeaderAt(name, i)),
            (Node::Param(name), _, Some(i)) => Ok(Node::ParamAt(name, i)),
            (Node::Cookie(name), _, Some(i)) => Ok(Node::CookieAt(name, i)),
            (of, Node::Constant(Value::Text(name)), _) => {
                self.at_name(key_at, of, name.into_owned())
            }
            (
                Node::Cookie(_) | Node::Object(Object::Cookies | Object::Env | Object::System),
                _,
                _,
            ) => Err(Fault::new(key_at, "this index must be a constant")),
            (Node::Object(object), key, _)
                if matches!(key, Node::Constant(_)) || !object.members().is_empty() =>
            {
                Err(Fault::new(key_at, "this index must be a constant name"))
            }
            (of, key, _) => {
                has_members(key_at, &of)?;
                Ok(Node::Index(Box::new(of), Box::new(key)))
            }
        }
    }

    /// The member with a name known at load.
    fn at_name(&mut self, at: usize, of: Node, name: String) -> Result<Node, Fault> {
        let object = match of {
            Node::Object(object) => object,
            Node::Slot(Slot::Claims) => return Ok(Node::Claim(name)),
            of => {
                has_members(at, &of)?;
                let key = Node::Constant(Value::owned_text(name));
                return Ok(Node::Index(Box::new(of), Box::new(key)));
            }
        };
        match object.members().iter().find(|(member, _)| *member == name) {
            Some((_, Member::Slot(slot))) => return Ok(Node::Slot(*slot)),
            Some((_, Member::Object(object))) => return Ok(Node::Object(*object)),
            None => {}
        }
        match object {
            Object::Headers => HeaderName::try_from(&name)
                .map(Node::Header)
                .map_err(|_| Fault::new(at, format!("{name:?} can't be the name of a header"))),
            Object::Cookies => Ok(Node::Cookie(name)),
            Object::Params => Ok(Node::Param(name)),
            Object::OpenId => Ok(Node::Claim(name)),
            Object::Env => Ok(Node::Constant(
                std::env::var(&name).map_or(Value::Null, Value::owned_text),
            )),
            // There are no system properties in this process: all are absent.
            Object::System => Ok(Node::Constant(Value::Null)),
            _ => Err(Fault::new(
                at,
                format!(
                    "there is no member `{name}` here, only {}",
                    names(object.members().iter().map(|(member, _)| *member))
                ),
            )),
        }
    }

    fn call(&mut self, at: usize, name: &str, arguments: Vec<Ast>) -> Result<Node, Fault> {
        if let Some((_, operation)) = PATTERNS.iter().find(|(known, _)| *known == name) {
            return self.pattern(at, *operation, name, arguments);
        }
        if let Some((_, function, least, most)) =
            FUNCTIONS.iter().find(|(known, ..)| *known == name)
        {
            let arguments = self.checked(at, name, arguments, *least, *most)?;
            return Ok(Node::Call(*function, arguments));
        }
        if NEVER.contains(&name) && !self.constants.may_read_files() {
            return Err(Fault::new(
                at,
                format!("`{name}` is not offered: expressions never touch files"),
            ));
        }
        let known = FUNCTIONS.iter().map(|(known, ..)| *known);
        let known = known.chain(PATTERNS.iter().map(|(known, _)| *known));
        Err(Fault::new(
            at,
            format!("there is no function `{name}`, only {}", names(known)),
        ))
    }

    fn method(
        &mut self,
        at: usize,
        of: Ast,
        name: &str,
        mut arguments: Vec<Ast>,
    ) -> Result<Node, Fault> {
        let operation = match name {
            "matches" => Some(Operation::Match),
            "split" => Some(Operation::Split),
            _ => None,
        };
        if let Some(operation) = operation {
            arguments.insert(0, of);
            return self.pattern(at, operation, name, arguments);
        }
        let Some((_, method, least, most)) = METHODS.iter().find(|(known, ..)| *known == name)
        else {
            let known = METHODS.iter().map(|(known, ..)| *known);
            return Err(Fault::new(
                at,
                format!(
                    "there is no method `{name}`, only {}",
                    names(known.chain(["matches", "split"]))
                ),
            ));
        };
        let arguments = self.checked(at, name, arguments, *least, *most)?;
        Ok(Node::Method(*method, Box::new(self.node(of)?), arguments))
    }

    /// A call with a pattern, which must be known at load: compiling what a
    /// request brings would let a stranger choose the cost.
    fn pattern(
        &mut self,
        at: usize,
        operation: Operation,
        name: &str,
        arguments: Vec<Ast>,
    ) -> Result<Node, Fault> {
        let pattern_at = arguments.last().map_or(at, |argument| argument.at);
        let mut arguments = self.checked(at, name, arguments, 2, 2)?.into_iter();
        let (Some(of), Some(pattern)) = (arguments.next(), arguments.next()) else {
            return Err(Fault::new(
                at,
                format!("`{name}` takes a text and a pattern"),
            ));
        };
        let Some(Value::Text(pattern)) = pattern.constant() else {
            return Err(Fault::new(
                pattern_at,
                "the pattern must be a constant text",
            ));
        };
        let pattern =
            Pattern::new(operation, &pattern).map_err(|reason| Fault::new(pattern_at, reason))?;
        Ok(Node::Pattern(Box::new(pattern), Box::new(of)))
    }

    fn checked(
        &mut self,
        at: usize,
        name: &str,
        arguments: Vec<Ast>,
        least: usize,
        most: usize,
    ) -> Result<Vec<Node>, Fault> {
        let given = arguments.len();
        if !(least..=most).contains(&given) {
            let wanted = if least == most {
                least.to_string()
            } else {
                format!("{least} to {most}")
            };
            return Err(Fault::new(
                at,
                format!("`{name}` takes {wanted} arguments, not {given}"),
            ));
        }
        arguments.into_iter().map(|ast| self.node(ast)).collect()
    }
}

fn push_literal(parts: &mut Vec<Node>, literal: &mut String) {
    if !literal.is_empty() {
        let text = std::mem::take(literal);
        parts.push(Node::Constant(Value::owned_text(text)));
    }
}

/// A tree that looks at no request becomes its value.
fn folded(node: Node) -> Node {
    match node.constant() {
        Some(value) => Node::Constant(value),
        None => node,
    }
}

/// Refuses a member or an index of what never has any.
fn has_members(at: usize, of: &Node) -> Result<(), Fault> {
    let what = match of {
        Node::Slot(slot) => slot.plain(),
        Node::HeaderAt(..) | Node::ParamAt(..) | Node::CookieValue(..) => Some("a text"),
        Node::Constant(Value::Text(_)) => Some("a text"),
        Node::Constant(Value::Integer(_) | Value::Float(_)) => Some("a number"),
        Node::Constant(Value::Bool(_)) => Some("true or false"),
        _ => None,
    };
    match what {
        Some(what) => Err(Fault::new(at, format!("{what} has no members"))),
        None => Ok(()),
    }
}

fn names<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    names.join(", ")
}
