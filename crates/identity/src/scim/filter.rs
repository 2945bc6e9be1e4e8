//! The filter language (RFC 7644 §3.4.2.2), read by recursive descent.
//!
//! `and` binds tighter than `or`; names and operators have no case. Also read:
//! `!` for `not`, the literals `true` and `false`, and JSON pointers for paths.

mod compare;
pub(super) mod evaluate;

use serde_json::Value;

use self::compare::{compare, is_operator, op};
use doorward_core::model::query::{Filter, Op};
use doorward_core::model::user::schema::{Attribute, ENTERPRISE, ENTERPRISE_URN, Schema, Type};

/// Longest filter, in bytes.
const LENGTH_MAX: usize = 4096;

/// Deepest nesting of parentheses and brackets.
const DEPTH_MAX: usize = 32;

/// Most comparisons that have all values of an attribute read.
const SCANS_MAX: usize = 32;

/// Most conditions that must hold together: databases take much longer to plan
/// than to find them.
const JOINED_MAX: usize = 32;

/// What is wrong with a filter, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} at character {position} of the filter")]
pub(super) struct FilterError {
    /// Counted in characters, from 1.
    position: usize,
    message: String,
}

/// Reads a filter on records of `schema`.
pub(super) fn parse(schema: &'static Schema, text: &str) -> Result<Filter, FilterError> {
    read(schema, None, text)
}

/// Reads a filter on the values of `parent`: what stands in brackets.
pub(super) fn parse_element(
    schema: &'static Schema,
    parent: &'static Attribute,
    text: &str,
) -> Result<Filter, FilterError> {
    read(schema, Some(parent), text)
}

fn read(
    schema: &'static Schema,
    element: Option<&'static Attribute>,
    text: &str,
) -> Result<Filter, FilterError> {
    if text.len() > LENGTH_MAX {
        return Err(FilterError {
            position: LENGTH_MAX + 1,
            message: format!("more than {LENGTH_MAX} bytes"),
        });
    }
    let mut parser = Parser {
        schema,
        text,
        at: 0,
        depth: 0,
        scans: 0,
        element,
    };
    let filter = parser.any_of()?;
    parser.blanks();
    if parser.at < text.len() {
        return Err(parser.wrong("expected `and`, `or` or the end"));
    }
    Ok(filter)
}

struct Parser<'a> {
    schema: &'static Schema,
    text: &'a str,
    /// Byte offset of what is read next.
    at: usize,
    depth: usize,
    /// Comparisons so far for which no index leads to few records.
    scans: usize,
    /// Inside `[ ]`: the multi-valued attribute before it.
    element: Option<&'static Attribute>,
}

/// What a path in a filter names.
pub(super) enum Target {
    Known(&'static Attribute),
    /// No attribute of the records: it has no value (RFC 7644 §3.4.2.2).
    Unknown,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn wrong(&self, message: impl Into<String>) -> FilterError {
        self.wrong_at(self.at, message)
    }

    fn wrong_at(&self, at: usize, message: impl Into<String>) -> FilterError {
        FilterError {
            position: self.text[..at].chars().count() + 1,
            message: message.into(),
        }
    }

    fn blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start_matches(' ').len();
    }

    /// Takes `symbol` if it comes next, after blanks.
    fn takes(&mut self, symbol: char) -> bool {
        self.blanks();
        let found = self.rest().starts_with(symbol);
        if found {
            self.at += symbol.len_utf8();
        }
        found
    }

    /// The word that comes next, after blanks; not taken yet.
    fn word(&mut self) -> &'a str {
        self.blanks();
        let rest = self.rest();
        let part = |c: char| {
            c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '$' | '/' | '+')
        };
        let end = rest.find(|c| !part(c)).unwrap_or(rest.len());
        &rest[..end]
    }

    /// Takes the word `keyword` if it comes next.
    fn takes_word(&mut self, keyword: &str) -> bool {
        let found = self.word().eq_ignore_ascii_case(keyword);
        if found {
            self.at += keyword.len();
        }
        found
    }

    fn any_of(&mut self) -> Result<Filter, FilterError> {
        let mut parts = vec![self.all_of()?];
        while self.takes_word("or") {
            parts.push(self.all_of()?);
        }
        Ok(one_or(parts, Filter::Or))
    }

    fn all_of(&mut self) -> Result<Filter, FilterError> {
        let mut parts = vec![self.one()?];
        let mut joined = joined(&parts[0]);
        while self.takes_word("and") {
            let start = self.at;
            let part = self.one()?;
            joined += self::joined(&part);
            if joined > JOINED_MAX {
                let text = format!("more than {JOINED_MAX} conditions joined by `and`");
                return Err(self.wrong_at(start, text));
            }
            parts.push(part);
        }
        Ok(one_or(parts, Filter::And))
    }

    fn one(&mut self) -> Result<Filter, FilterError> {
        if self.takes('(') {
            return self.nested(')', Self::any_of);
        }
        if self.takes('!') {
            let inner = self.deeper(Self::one)?;
            return Ok(Filter::Not(Box::new(inner)));
        }
        let start = self.at;
        if self.takes_word("not") {
            if self.takes('(') {
                let inner = self.nested(')', Self::any_of)?;
                return Ok(Filter::Not(Box::new(inner)));
            }
            self.at = start;
        }
        self.test()
    }

    fn deeper<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, FilterError>,
    ) -> Result<T, FilterError> {
        if self.depth == DEPTH_MAX {
            return Err(self.wrong(format!("nested deeper than {DEPTH_MAX} levels")));
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn nested<T>(
        &mut self,
        close: char,
        read: impl FnOnce(&mut Self) -> Result<T, FilterError>,
    ) -> Result<T, FilterError> {
        let value = self.deeper(read)?;
        if !self.takes(close) {
            return Err(self.wrong(format!("expected `{close}`")));
        }
        Ok(value)
    }

    /// `attribute op value`, `attribute pr`, `attribute[…]`, or a literal.
    fn test(&mut self) -> Result<Filter, FilterError> {
        let path = self.word();
        let start = self.at;
        if path.is_empty() {
            return Err(self.wrong("expected an attribute"));
        }
        self.at += path.len();
        if self.rest().starts_with('[') {
            self.at += 1;
            return self.element(path, start);
        }
        let operator = self.word();
        match path {
            "true" if !is_operator(operator) => return Ok(Filter::Always),
            "false" if !is_operator(operator) => return Ok(Filter::Never),
            _ => {}
        }
        let target = self.resolve(path, start)?;
        let operator_at = self.at;
        self.at += operator.len();
        if operator.eq_ignore_ascii_case("pr") {
            self.scans(operator_at)?;
            return Ok(match target {
                Target::Known(attribute) => Filter::Present(attribute),
                Target::Unknown => Filter::Never,
            });
        }
        let op = op(operator).ok_or_else(|| {
            self.wrong_at(
                operator_at,
                "expected an operator (eq ne co sw ew gt ge lt le pr)",
            )
        })?;
        if op != Op::Equal {
            self.scans(operator_at)?;
        }
        self.blanks();
        let value_at = self.at;
        let value = self.value()?;
        compare(self.schema, target, op, &value).map_err(|message| {
            let at = if message.0 { operator_at } else { value_at };
            self.wrong_at(at, message.1)
        })
    }

    /// Counts a comparison other than `eq`, whose operator is there.
    fn scans(&mut self, operator_at: usize) -> Result<(), FilterError> {
        self.scans += 1;
        if self.scans > SCANS_MAX {
            let text = format!("more than {SCANS_MAX} comparisons other than eq");
            return Err(self.wrong_at(operator_at, text));
        }
        Ok(())
    }

    fn element(&mut self, path: &str, start: usize) -> Result<Filter, FilterError> {
        if self.element.is_some() {
            return Err(self.wrong_at(start, "brackets can't stand in brackets"));
        }
        let target = self.resolve(path, start)?;
        let many = match target {
            Target::Known(attribute) if attribute.kind == Type::ComplexMany => Some(attribute),
            Target::Known(_) => {
                return Err(
                    self.wrong_at(start, "the attribute has no sub-attributes to choose by")
                );
            }
            Target::Unknown => None,
        };
        // An unknown attribute has no sub-attributes either; what stands in
        // its brackets must still be a filter.
        let some = |all: &'static [Attribute]| all.iter().find(|one| one.kind == Type::ComplexMany);
        self.element = many.or_else(|| some(self.schema.attributes));
        let inner = self.nested(']', Self::any_of);
        self.element = None;
        let inner = inner?;
        Ok(many.map_or(Filter::Never, |many| Filter::Element(many, Box::new(inner))))
    }

    fn resolve(&self, path: &str, start: usize) -> Result<Target, FilterError> {
        let (urn, name) = match path.rsplit_once(':') {
            _ if path.eq_ignore_ascii_case(ENTERPRISE_URN) => (None, ENTERPRISE),
            Some((urn, name)) => (Some(urn), name),
            None if path.to_ascii_lowercase().starts_with(ENTERPRISE) => (Some(""), path),
            None => (None, path),
        };
        let name = name
            .strip_prefix('/')
            .map_or_else(|| name.to_owned(), |pointer| pointer.replace('/', "."));
        let legal = |part: &str| {
            let part = part.strip_prefix('$').unwrap_or(part);
            part.starts_with(|c: char| c.is_ascii_alphabetic())
                && part
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
        };
        let parts = name.split('.').count();
        if parts > 2 || (parts > 1 && self.element.is_some()) || !name.split('.').all(legal) {
            return Err(self.wrong_at(start, "expected an attribute"));
        }
        let name = match urn {
            Some(urn) if urn.eq_ignore_ascii_case(ENTERPRISE_URN) => format!("{ENTERPRISE}.{name}"),
            Some(urn) if !urn.eq_ignore_ascii_case(self.schema.urn) => return Ok(Target::Unknown),
            _ => name,
        };
        let parent = name.split('.').next().and_then(|top| self.schema.find(top));
        if name.contains('.') && parent.is_some_and(|parent| parent.kind == Type::Free) {
            // They can be anything: to say that nobody has them would be wrong.
            let text = "members of preferences can't be asked for";
            return Err(self.wrong_at(start, text));
        }
        let found = match self.element {
            Some(parent) => self.schema.part(parent, &name),
            None => self.schema.find(&name),
        };
        Ok(found.map_or(Target::Unknown, Target::Known))
    }

    /// A JSON literal.
    fn value(&mut self) -> Result<Value, FilterError> {
        let rest = self.rest();
        let end = if rest.starts_with('"') {
            string_end(rest).ok_or_else(|| self.wrong("the string does not end"))?
        } else {
            self.word().len()
        };
        let value = serde_json::from_str(&rest[..end]);
        let value = value.map_err(|_| {
            self.wrong("expected a value: a string in double quotes, a number, true, false or null")
        })?;
        self.at += end;
        Ok(value)
    }
}

/// How many conditions of `filter` must hold together.
fn joined(filter: &Filter) -> usize {
    match filter {
        Filter::And(all) => all.iter().map(joined).sum(),
        _ => 1,
    }
}

fn one_or(mut parts: Vec<Filter>, many: fn(Vec<Filter>) -> Filter) -> Filter {
    match parts.len() {
        1 => parts.remove(0),
        _ => many(parts),
    }
}

/// Where the JSON string at the start of `text` ends.
fn string_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests;
