//! Calls in an expression: functions, methods, and those with a pattern.

use std::path::Path;
use std::sync::atomic::Ordering;

use super::address::Range;
use super::compile::{Compiler, names};
use super::context::{Object, Side};
use super::files::{FILE_FUNCTIONS, FileFunction};
use super::function::{FUNCTIONS, Function};
use super::method::METHODS;
use super::node::Node;
use super::parse::Ast;
use super::pattern::{Operation, PATTERN_METHODS, PATTERNS, Pattern};
use super::value::Value;
use super::{Fault, SPELLING};
use doorward_core::model::suggestion;

/// The headers of the request, whose names have a spelling.
const HEADERS: Object = Object::Headers(Side::Request);

impl Compiler<'_> {
    pub(super) fn call(
        &mut self,
        at: usize,
        name: &str,
        arguments: Vec<Ast>,
    ) -> Result<Node, Fault> {
        if let Some((_, operation)) = PATTERNS.iter().find(|(known, _)| *known == name) {
            return self.pattern(at, *operation, name, arguments, 0);
        }
        let function = FUNCTIONS.iter().find(|(known, ..)| *known == name);
        if let Some((_, function, least, most)) = function {
            let range_at = arguments.get(1).map_or(at, |argument| argument.at);
            let arguments = self.checked(at, name, arguments, *least, *most)?;
            return match function {
                Function::IpMatch => within(range_at, arguments),
                _ => Ok(Node::Call(*function, arguments)),
            };
        }
        if let Some((_, function)) = FILE_FUNCTIONS.iter().find(|(known, _)| *known == name) {
            return self.file_call(at, *function, name, arguments);
        }
        let known = || {
            let functions = FUNCTIONS.iter().map(|(known, ..)| *known);
            let patterns = PATTERNS.iter().map(|(known, _)| *known);
            let files = FILE_FUNCTIONS.iter().map(|(known, _)| *known);
            functions.chain(patterns).chain(files)
        };
        let advice = match suggestion::nearest(name, known()) {
            Some(near) => format!("; did you mean `{near}`?"),
            None => format!(", only {}", names(known())),
        };
        Err(Fault::new(
            at,
            format!("there is no function `{name}`{advice}"),
        ))
    }

    pub(super) fn method(
        &mut self,
        at: usize,
        of: Ast,
        name: &str,
        mut arguments: Vec<Ast>,
    ) -> Result<Node, Fault> {
        let with_pattern = PATTERN_METHODS.iter().find(|(known, ..)| *known == name);
        if let Some((_, operation, more)) = with_pattern {
            arguments.insert(0, of);
            return self.pattern(at, *operation, name, arguments, *more);
        }
        let Some((_, method, least, most)) = METHODS.iter().find(|(known, ..)| *known == name)
        else {
            let known = || {
                let methods = METHODS.iter().map(|(known, ..)| *known);
                methods.chain(PATTERN_METHODS.iter().map(|(known, ..)| *known))
            };
            let advice = match suggestion::nearest(name, known()) {
                Some(near) => format!("; did you mean `{near}`?"),
                None => format!(", only {}", names(known())),
            };
            return Err(Fault::new(
                at,
                format!("there is no method `{name}`{advice}"),
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
        more: usize,
    ) -> Result<Node, Fault> {
        let pattern_at = arguments.get(1).map_or(at, |argument| argument.at);
        let wanted = 2 + more;
        let mut arguments = self
            .checked(at, name, arguments, wanted, wanted)?
            .into_iter();
        let (Some(of), Some(pattern)) = (arguments.next(), arguments.next()) else {
            return Err(Fault::new(
                at,
                format!("`{name}` takes a text and a pattern"),
            ));
        };
        let Some(Value::Text(pattern)) = pattern.constant() else {
            let message = "the pattern must be a constant text: it is compiled when the \
                           configuration is loaded";
            return Err(Fault::new(pattern_at, message));
        };
        let pattern =
            Pattern::new(operation, &pattern).map_err(|reason| Fault::new(pattern_at, reason))?;
        let with = arguments.next().map(Box::new);
        let of_others = matches!(of, Node::Object(object) if object != HEADERS);
        if operation == Operation::Key && !of_others {
            SPELLING.store(true, Ordering::Relaxed);
        }
        Ok(Node::Pattern(Box::new(pattern), Box::new(of), with))
    }

    /// A call of a function that looks at files, made now.
    fn file_call(
        &mut self,
        at: usize,
        function: FileFunction,
        name: &str,
        arguments: Vec<Ast>,
    ) -> Result<Node, Fault> {
        if function.opens() && !self.constants.may_read_files() {
            let message = format!(
                "`{name}` is not offered here: only configuration that is itself a file may \
                 read files"
            );
            return Err(Fault::new(at, message));
        }
        let arguments = self.checked(at, name, arguments, 1, 1)?;
        let argument = arguments.into_iter().next();
        match argument.and_then(|argument| argument.constant()) {
            Some(Value::Text(text)) => {
                if function.opens() {
                    self.constants.looks_at(Path::new(&*text));
                }
                let result = function.call(&text).map(Node::Constant);
                result.map_err(|message| Fault::new(at, message))
            }
            Some(_) => Ok(Node::Constant(Value::Null)),
            None => Err(Fault::new(
                at,
                format!(
                    "`{name}` is called when the configuration is loaded, its argument must not depend on a request"
                ),
            )),
        }
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
            let s = if wanted == "1" { "" } else { "s" };
            return Err(Fault::new(
                at,
                format!("`{name}` takes {wanted} argument{s}, not {given}"),
            ));
        }
        arguments.into_iter().map(|ast| self.node(ast)).collect()
    }
}

/// `ipMatch`: a range that is known now is read now.
fn within(range_at: usize, mut arguments: Vec<Node>) -> Result<Node, Fault> {
    let range = arguments.get(1).and_then(Node::constant);
    let Some(Value::Text(range)) = range else {
        return Ok(Node::Call(Function::IpMatch, arguments));
    };
    let Some(range) = Range::read(&range) else {
        let message = "must be a network such as `10.0.0.0/8`, a range such as \
                       `10.0.0.1-10.0.0.9`, or an address";
        return Err(Fault::new(range_at, message));
    };
    let of = arguments.swap_remove(0);
    Ok(Node::Within(Box::new(range), Box::new(of)))
}
