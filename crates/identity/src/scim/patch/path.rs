//! The path of a PATCH operation (RFC 7644 §3.5.2, figure 7).

use crate::error::ScimError;
use crate::scim::filter;
use doorward_core::model::query::Filter;
use doorward_core::model::user::schema::{
    Attribute, ENTERPRISE, ENTERPRISE_URN, Schema, Type, strip_urn,
};

/// Longest path, in bytes.
const LENGTH_MAX: usize = 4096;

/// What an operation is about.
#[derive(Debug)]
pub(in crate::scim) struct Path {
    /// From the attribute of the record down: more than one only inside
    /// attributes that have one value.
    pub(in crate::scim) chain: Vec<&'static Attribute>,
    /// Which values of a multi-valued attribute; all if absent.
    pub(in crate::scim) filter: Option<Filter>,
    /// The sub-attribute of these values.
    pub(in crate::scim) part: Option<&'static Attribute>,
}

fn invalid(text: &str, why: &str) -> ScimError {
    let shown: String = text.chars().take(200).collect();
    ScimError::bad("invalidPath", format!("{shown}: {why}"))
}

impl Path {
    /// Reads a path of records of `schema`.
    pub(in crate::scim) fn parse(schema: &'static Schema, text: &str) -> Result<Self, ScimError> {
        let wrong = |why: &str| invalid(text, why);
        if text.len() > LENGTH_MAX {
            return Err(wrong("longer than 4096 bytes"));
        }
        let (top, rest) = match start(schema, text) {
            Some(start) => start,
            None => return Err(wrong("no such attribute")),
        };
        let (names, values) = match rest.split_once('[') {
            Some((names, values)) => (names, Some(values)),
            None => (rest, None),
        };
        let mut chain: Vec<&'static Attribute> = top.into_iter().collect();
        let mut part = None;
        for name in names.split('.').filter(|_| !names.is_empty()) {
            let found = match chain.last() {
                Some(parent) => schema.part(parent, name),
                None => schema.member(name),
            };
            let found = found.ok_or_else(|| wrong("no such attribute"))?;
            match chain.last() {
                Some(parent) if parent.kind == Type::ComplexMany => part = Some(found),
                _ => chain.push(found),
            }
        }
        let mut path = Self {
            chain,
            filter: None,
            part,
        };
        if let Some(values) = values {
            path.choose(schema, values, &wrong)?;
        }
        Ok(path)
    }

    /// Reads `filter].part`.
    fn choose(
        &mut self,
        schema: &'static Schema,
        text: &str,
        wrong: &impl Fn(&str) -> ScimError,
    ) -> Result<(), ScimError> {
        let many = self.last();
        if many.kind != Type::ComplexMany || self.part.is_some() {
            return Err(wrong(
                "only values of multi-valued attributes can be chosen",
            ));
        }
        let end = bracket_end(text).ok_or_else(|| wrong("expected `]`"))?;
        let inner = filter::parse_element(schema, many, &text[..end]);
        let inner = inner.map_err(|error| wrong(&error.to_string()))?;
        self.filter = Some(inner);
        self.part = match &text[end + 1..] {
            "" => None,
            rest => {
                let name = rest.strip_prefix('.').unwrap_or_default();
                let part = schema.part(many, name);
                Some(part.ok_or_else(|| wrong("no such sub-attribute"))?)
            }
        };
        Ok(())
    }

    /// The attribute that the chain leads to.
    pub(in crate::scim) fn last(&self) -> &'static Attribute {
        // `parse` makes no empty chain.
        self.chain[self.chain.len() - 1]
    }

    /// The attribute that it leads to in the end.
    pub(in crate::scim) fn target(&self) -> &'static Attribute {
        self.part.unwrap_or_else(|| self.last())
    }

    /// Whether only the service sets what it leads to.
    pub(in crate::scim) fn is_read_only(&self) -> bool {
        self.target().read_only || self.chain.iter().any(|attribute| attribute.read_only)
    }
}

/// The attribute that a URN alone means, and what comes after the URN.
fn start<'a>(
    schema: &'static Schema,
    text: &'a str,
) -> Option<(Option<&'static Attribute>, &'a str)> {
    if let Some(rest) = strip_urn(text, schema.urn) {
        return (!rest.is_empty()).then_some((None, rest));
    }
    if let Some(rest) = strip_urn(text, ENTERPRISE_URN) {
        return Some((Some(schema.find(ENTERPRISE)?), rest)).filter(|_| !rest.is_empty());
    }
    if text.eq_ignore_ascii_case(ENTERPRISE_URN) {
        return Some((Some(schema.find(ENTERPRISE)?), ""));
    }
    (!text.is_empty()).then_some((None, text))
}

/// Where the bracket that was opened before `text` is closed.
fn bracket_end(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b']' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}
