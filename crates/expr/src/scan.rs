//! What must hold of a request for a condition to be true, seen without
//! evaluating it: routers skip conditions that can't be.

use super::function::Function;
use super::method::Method;
use super::node::Node;
use super::parse::Binary;
use super::pattern::Operation;
use super::slot::{Part, Slot, Which};
use super::value::Value;

/// A literal that the path of the request begins with, or has no `%` in it, if
/// the condition is true.
pub(super) fn path_prefix(node: &Node) -> Option<&str> {
    match node {
        Node::Pattern(pattern, of, _) => {
            let tests = matches!(pattern.operation, Operation::Find | Operation::Match);
            pattern.prefix().filter(|_| tests && is_path(of))
        }
        Node::Method(Method::StartsWith | Method::Equals, of, arguments) => match &**arguments {
            [Node::Constant(Value::Text(text))] if is_path(of) => Some(&**text),
            _ => None,
        },
        Node::Call(Function::Bool, arguments) => path_prefix(arguments.first()?),
        Node::Binary(Binary::Equal, left, right) => match (&**left, &**right) {
            (of, Node::Constant(Value::Text(text))) | (Node::Constant(Value::Text(text)), of) => {
                is_path(of).then_some(&**text)
            }
            (of, Node::Constant(Value::Bool(true))) => path_prefix(of),
            _ => None,
        },
        Node::Binary(Binary::And, left, right) => match (path_prefix(left), path_prefix(right)) {
            (Some(left), Some(right)) if left.len() < right.len() => Some(right),
            (left, right) => left.or(right),
        },
        Node::Binary(Binary::Or, left, right) => {
            let (left, right) = (path_prefix(left)?, path_prefix(right)?);
            common(left, right)
        }
        _ => None,
    }
    .filter(|prefix| !prefix.is_empty())
}

/// The host that the request names, in some case, if the condition is true.
pub(super) fn host(node: &Node) -> Option<&str> {
    match node {
        Node::Method(Method::Equals | Method::EqualsIgnoreCase, of, arguments) => {
            match &**arguments {
                [Node::Constant(Value::Text(text))] if is_host(of) => Some(&**text),
                _ => None,
            }
        }
        Node::Binary(Binary::Equal, left, right) => match (&**left, &**right) {
            (of, Node::Constant(Value::Text(text))) | (Node::Constant(Value::Text(text)), of) => {
                is_host(of).then_some(&**text)
            }
            (of, Node::Constant(Value::Bool(true))) => host(of),
            _ => None,
        },
        Node::Binary(Binary::And, left, right) => host(left).or_else(|| host(right)),
        Node::Binary(Binary::Or, left, right) => {
            let (left, right) = (host(left)?, host(right)?);
            left.eq_ignore_ascii_case(right).then_some(left)
        }
        _ => None,
    }
}

fn is_path(node: &Node) -> bool {
    matches!(
        node,
        Node::Slot(Slot::Uri(Which::Current, Part::Path | Part::RawPath))
    )
}

fn is_host(node: &Node) -> bool {
    matches!(node, Node::Slot(Slot::Uri(Which::Current, Part::Host)))
}

/// What both texts begin with.
fn common<'t>(a: &'t str, b: &str) -> Option<&'t str> {
    let same = a.chars().zip(b.chars()).take_while(|(x, y)| x == y);
    let length = same.map(|(x, _)| x.len_utf8()).sum();
    a.get(..length)
}
