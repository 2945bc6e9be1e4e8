//! A JSON object whose members are changed one by one. What no rule touches stays
//! as it was written: no number is rounded and no member moves.

use std::borrow::Cow;

use serde::de::IgnoredAny;

/// Most members of an object that is changed.
const MAX_MEMBERS: usize = 10_000;

/// The members of an object, each with its value as it is written.
pub(crate) struct JsonObject<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> JsonObject<'a> {
    /// An object without members.
    pub(crate) fn empty() -> Self {
        Self(Vec::new())
    }

    /// Reads an object; `None`: it is none, or is no JSON. Of several members of
    /// one name the last counts.
    pub(crate) fn parse(body: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(body).ok()?;
        serde_json::from_str::<IgnoredAny>(text).ok()?;
        let inside = text.trim_matches(BLANK);
        let inside = inside.strip_prefix('{')?.strip_suffix('}')?;
        let mut object = Self::empty();
        for member in split(inside) {
            let (name, value) = member_of(member)?;
            if object.0.len() == MAX_MEMBERS {
                return None;
            }
            object.0.push((name, Cow::Borrowed(value)));
        }
        object.keep_last();
        Some(object)
    }

    /// Readers differ in what they make of two members of one name.
    fn keep_last(&mut self) {
        let mut names = std::collections::HashSet::with_capacity(self.0.len());
        let mut last = Vec::with_capacity(self.0.len());
        while let Some((name, value)) = self.0.pop() {
            if names.insert(name.clone()) {
                last.push((name, value));
            }
        }
        last.reverse();
        self.0 = last;
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|(known, _)| known == name)
    }

    /// Whether there is a member of this name that is not `false`.
    fn has(&self, name: &str) -> bool {
        let mut members = self.0.iter();
        members.any(|(known, value)| known == name && value != "false")
    }

    /// Gives a member a value, whether it is there or not.
    pub(crate) fn set(&mut self, name: &str, value: String) {
        match self.position(name) {
            Some(at) => self.0[at].1 = value.into(),
            None => self.0.push((name.to_owned().into(), value.into())),
        }
    }

    /// Takes a member out.
    pub(crate) fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    /// Gives the member `old` another name, over any of that name.
    pub(crate) fn rename(&mut self, old: &str, new: &str) {
        if old == new || self.position(old).is_none() {
            return;
        }
        self.remove(new);
        if let Some(at) = self.position(old) {
            self.0[at].0 = new.to_owned().into();
        }
    }

    /// Puts a value in the place of the one that is there; `false` counts as none.
    pub(crate) fn replace(&mut self, name: &str, value: String) {
        if self.has(name) {
            self.set(name, value);
        }
    }

    /// Adds a value where there is none; `false` counts as none.
    pub(crate) fn add(&mut self, name: &str, value: String) {
        if !self.has(name) {
            self.set(name, value);
        }
    }

    /// Adds a value to the list that is there. A text becomes a list; in the place
    /// of anything else comes one of the value alone.
    pub(crate) fn append(&mut self, name: &str, value: &str) {
        let old = self
            .position(name)
            .map(|at| self.0[at].1.trim_matches(BLANK));
        let list = match old {
            Some(text) if text.starts_with('"') => format!("[{text},{value}]"),
            Some(list) if list.starts_with('[') => {
                let inside = list.trim_start_matches('[');
                let empty = inside.trim_matches(BLANK) == "]";
                let front = list.strip_suffix(']').unwrap_or(list);
                format!("{front}{}{value}]", if empty { "" } else { "," })
            }
            _ => format!("[{value}]"),
        };
        self.set(name, list);
    }

    /// The object as text.
    pub(crate) fn write(&self) -> String {
        let mut out = String::from("{");
        for (name, value) in &self.0 {
            if out.len() > 1 {
                out.push(',');
            }
            out.push_str(&quoted(name));
            out.push(':');
            out.push_str(value);
        }
        out.push('}');
        out
    }
}

/// A text as JSON.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// What JSON takes for a blank.
const BLANK: [char; 4] = [' ', '\t', '\n', '\r'];

/// The parts of valid JSON between the commas of the outermost level.
fn split(inside: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    scan(inside, b',', |at| {
        parts.extend(inside.get(start..at));
        start = at + 1;
        parts.len() <= MAX_MEMBERS
    });
    let rest = inside.get(start..).unwrap_or_default();
    if !rest.trim_matches(BLANK).is_empty() {
        parts.push(rest);
    }
    parts
}

/// Name and value of a member.
fn member_of(member: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut colon = None;
    scan(member, b':', |at| {
        colon = Some(at);
        false
    });
    let (name, value) = member.split_at_checked(colon?)?;
    let name: String = serde_json::from_str(name).ok()?;
    Some((name.into(), value.get(1..)?.trim_matches(BLANK)))
}

/// Calls `found` with each place of `wanted` that is in no text, list or object,
/// until that says no.
fn scan(text: &str, wanted: u8, mut found: impl FnMut(usize) -> bool) {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.bytes().enumerate() {
        if quoted {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => quoted = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ if byte == wanted && depth == 0 && !found(at) => return,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn what_no_rule_touches_stays_as_it_was_written() {
        let text = r#" {"a" : 1.0e400 ,"b":[1, {"c":"},]"}] , "d\u0065":"x\"" } "#;
        let object = JsonObject::parse(text.as_bytes()).unwrap();
        let written = object.write();
        assert_eq!(written, r#"{"a":1.0e400,"b":[1, {"c":"},]"}],"de":"x\""}"#);
    }

    #[test]
    fn members_are_changed_by_the_rules_of_the_imitated_gateway() {
        let mut object =
            JsonObject::parse(br#"{"a":1,"f":false,"t":"x","l":[ ],"m":[1]}"#).unwrap();
        object.remove("none");
        object.rename("a", "b");
        object.replace("f", "1".to_owned());
        object.add("f", "2".to_owned());
        object.add("b", "3".to_owned());
        for name in ["t", "l", "m", "b", "n"] {
            object.append(name, "9");
        }
        let expected = r#"{"b":[9],"f":2,"t":["x",9],"l":[ 9],"m":[1,9],"n":[9]}"#;
        assert_eq!(object.write(), expected);
    }

    #[test]
    fn a_name_that_is_there_twice_hides_nothing() {
        let mut object = JsonObject::parse(br#"{"a":1,"b":2,"\u0061":3}"#).unwrap();
        assert_eq!(object.write(), r#"{"b":2,"a":3}"#);
        object.remove("a");
        assert_eq!(object.write(), r#"{"b":2}"#);
    }

    #[test]
    fn what_is_no_object_is_none() {
        for text in ["", "[]", "1", "{", r#"{"a":}"#, r#"{"a":1} x"#, "{]}"] {
            assert!(JsonObject::parse(text.as_bytes()).is_none(), "{text}");
        }
        assert_eq!(JsonObject::parse(b" {} ").unwrap().write(), "{}");
    }
}
