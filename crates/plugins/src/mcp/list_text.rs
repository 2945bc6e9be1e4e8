//! The text of an answer with a list, less what its reader may not see.
//!
//! A list may be long, and is read while its client waits: each byte is looked at once
//! after it was found to be JSON. What is not left out stays as it was written.

use std::borrow::Cow;
use std::ops::Range;

use serde::de::IgnoredAny;

use super::message::Subject;

/// Most elements of a list.
const MAX_ELEMENTS: usize = 10_000;

/// A list of a result: its member, what it lists, the method that calls such a thing, and
/// the member that names each.
pub(super) struct ListKind {
    pub(super) member: &'static str,
    pub(super) subject: Subject,
    pub(super) method: &'static str,
    pub(super) key: &'static str,
}

/// Members of a result that are lists.
const LISTS: [ListKind; 4] = [
    ListKind {
        member: "tools",
        subject: Subject::Tool,
        method: "tools/call",
        key: "name",
    },
    ListKind {
        member: "prompts",
        subject: Subject::Prompt,
        method: "prompts/get",
        key: "name",
    },
    ListKind {
        member: "resources",
        subject: Subject::Resource,
        method: "resources/read",
        key: "uri",
    },
    ListKind {
        member: "resourceTemplates",
        subject: Subject::Resource,
        method: "resources/read",
        key: "uriTemplate",
    },
];

/// A message, or a batch, with those elements of lists alone that `shows` lets pass;
/// `None`: it can't be read in one way only.
pub(super) fn filter<'t>(
    text: &'t str,
    shows: impl Fn(&ListKind, &str) -> bool,
) -> Option<Cow<'t, str>> {
    serde_json::from_str::<IgnoredAny>(text).ok()?;
    let mut reader = Reader {
        text,
        at: 0,
        shows,
        changes: Vec::new(),
    };
    reader.messages()?;
    let Reader { changes, .. } = reader;
    if changes.is_empty() {
        return Some(Cow::Borrowed(text));
    }
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for (place, with) in changes {
        out.push_str(text.get(done..place.start)?);
        out.push_str(&with);
        done = place.end;
    }
    out.push_str(text.get(done..)?);
    Some(out.into())
}

/// Where a quote or a backslash is. Most bytes of a list are in texts: sixteen of them are
/// looked at together.
fn end_of_plain(bytes: &[u8]) -> Option<usize> {
    let stops = |byte: &u8| (*byte == b'"') | (*byte == b'\\');
    let (chunks, _) = bytes.as_chunks::<16>();
    let has_stop = |chunk: &&[u8; 16]| chunk.iter().fold(false, |any, byte| any | stops(byte));
    let plain = chunks.iter().take_while(|chunk| !has_stop(chunk)).count() * 16;
    let stop = bytes.get(plain..)?.iter().position(stops)?;
    Some(plain + stop)
}

/// Reads text that is JSON.
struct Reader<'t, S> {
    text: &'t str,
    at: usize,
    shows: S,
    /// What takes the place of what, in the order of the text.
    changes: Vec<(Range<usize>, String)>,
}

impl<'t, S: Fn(&ListKind, &str) -> bool> Reader<'t, S> {
    /// The next byte that is not blank.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        self.at += rest.iter().position(|byte| !is_blank(byte))?;
        self.text.as_bytes().get(self.at).copied()
    }

    /// Takes the next byte if it is this one.
    fn take(&mut self, wanted: u8) -> bool {
        let is_it = self.peek() == Some(wanted);
        self.at += usize::from(is_it);
        is_it
    }

    /// Goes past a text; what is between its quotes.
    fn string(&mut self) -> Option<&'t str> {
        if !self.take(b'"') {
            return None;
        }
        let start = self.at;
        loop {
            let rest = self.text.as_bytes().get(self.at..)?;
            self.at += end_of_plain(rest)?;
            if self.text.as_bytes()[self.at] == b'"' {
                break;
            }
            // What is escaped ends nothing.
            self.at += 2;
        }
        let inside = self.text.get(start..self.at)?;
        self.at += 1;
        Some(inside)
    }

    /// A text as it is meant.
    fn meant(&mut self) -> Option<Cow<'t, str>> {
        let inside = self.string()?;
        if !inside.contains('\\') {
            return Some(Cow::Borrowed(inside));
        }
        let meant = serde_json::from_str::<String>(&format!("\"{inside}\""));
        meant.ok().map(Cow::Owned)
    }

    /// Goes past a value.
    fn skip(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => drop(self.string()?),
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.at += 1;
                }
                b',' | b':' => self.at += 1,
                _ => {
                    let rest = self.text.as_bytes().get(self.at..)?;
                    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
                    let end = rest.iter().position(|byte| !plain(byte));
                    self.at += end.unwrap_or(rest.len()).max(1);
                }
            }
            if depth == 0 {
                return Some(());
            }
        }
    }

    /// Goes through an object; `each` goes past the value of a member.
    fn members(&mut self, mut each: impl FnMut(&mut Self, &str) -> Option<()>) -> Option<()> {
        if !self.take(b'{') {
            return None;
        }
        while !self.take(b'}') {
            let name = self.meant()?;
            if !self.take(b':') {
                return None;
            }
            each(self, &name)?;
            self.take(b',');
        }
        Some(())
    }

    fn messages(&mut self) -> Option<()> {
        if self.peek()? != b'[' {
            return self.message();
        }
        self.at += 1;
        while !self.take(b']') {
            self.message()?;
            self.take(b',');
        }
        Some(())
    }

    fn message(&mut self) -> Option<()> {
        let mut found = false;
        self.members(|reader, name| {
            if name != "result" {
                return reader.skip();
            }
            if std::mem::replace(&mut found, true) {
                // Readers differ in what they make of two members of one name.
                return None;
            }
            match reader.peek()? {
                b'{' => reader.result(),
                // A result that is no object has no list.
                _ => reader.skip(),
            }
        })
    }

    fn result(&mut self) -> Option<()> {
        let mut found = [false; LISTS.len()];
        let mut is_scoped = false;
        let first = self.changes.len();
        self.members(|reader, name| {
            if name == "cacheScope" {
                reader.peek()?;
                let start = reader.at;
                reader.skip()?;
                // Of several members of this name none may say otherwise.
                let place = (start..reader.at, "\"private\"".to_owned());
                reader.changes.push(place);
                is_scoped = true;
                return Some(());
            }
            let Some(kind) = LISTS.iter().position(|kind| kind.member == name) else {
                return reader.skip();
            };
            if std::mem::replace(&mut found[kind], true) {
                return None;
            }
            reader.list(&LISTS[kind])
        })?;
        if is_scoped && found == [false; LISTS.len()] {
            // Nothing was listed: it is for whomever the server says.
            self.changes.truncate(first);
        }
        Some(())
    }

    /// Goes past a list, of which what is shown takes the place.
    fn list(&mut self, kind: &ListKind) -> Option<()> {
        self.peek()?;
        let start = self.at;
        if !self.take(b'[') {
            return None;
        }
        let mut shown = String::from("[");
        let mut count = 0;
        while !self.take(b']') {
            count += 1;
            if count > MAX_ELEMENTS {
                return None;
            }
            self.peek()?;
            let from = self.at;
            let name = self.name(kind.key)?;
            if name.is_some_and(|name| (self.shows)(kind, &name)) {
                if shown.len() > 1 {
                    shown.push(',');
                }
                shown.push_str(self.text.get(from..self.at)?);
            }
            self.take(b',');
        }
        shown.push(']');
        self.changes.push((start..self.at, shown));
        Some(())
    }

    /// Goes past an element of a list; its name, if it has one and no other.
    fn name(&mut self, key: &str) -> Option<Option<Cow<'t, str>>> {
        if self.peek()? != b'{' {
            self.skip()?;
            return Some(None);
        }
        let (mut name, mut times) = (None, 0);
        self.members(|reader, member| {
            if member != key {
                return reader.skip();
            }
            times += 1;
            if reader.peek()? == b'"' {
                name = Some(reader.meant()?);
                Some(())
            } else {
                name = None;
                reader.skip()
            }
        })?;
        Some(name.filter(|_| times == 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Option<String> {
        filter(text, |_, name| name != "b").map(Cow::into_owned)
    }

    #[test]
    fn what_is_not_left_out_stays_as_it_was_written() {
        let tools = r#" {"id":1.0e400, "result" : {"x":"\"]}","tools":[ {"name":"a","d":[1,{"e":"},]"}]} , {"name":"b"},{"name":"c"} ],"y":[{}]} } "#;
        let wanted = r#" {"id":1.0e400, "result" : {"x":"\"]}","tools":[{"name":"a","d":[1,{"e":"},]"}]},{"name":"c"}],"y":[{}]} } "#;
        assert_eq!(shown(tools).as_deref(), Some(wanted));
        let batch = format!("[{tools},{tools}]");
        assert_eq!(shown(&batch), Some(format!("[{wanted},{wanted}]")));
        for other in [
            "[]",
            r#"{"method":"x"}"#,
            r#"{"result":"tools"}"#,
            r#"{"result":{"cacheScope":"public"}}"#,
        ] {
            assert_eq!(shown(other).as_deref(), Some(other));
        }
        let scoped = r#"{"result":{"cacheScope":"public","prompts":[]}}"#;
        let wanted = r#"{"result":{"cacheScope":"private","prompts":[]}}"#;
        assert_eq!(shown(scoped).as_deref(), Some(wanted));
    }

    #[test]
    fn a_name_is_found_however_it_is_spelled() {
        let list = r#"{"res\u0075lt":{"to\u006fls":[{"n\u0061me":"\u0062"},{"name":"a\\"},7,{}]}}"#;
        let wanted = r#"{"res\u0075lt":{"to\u006fls":[{"name":"a\\"}]}}"#;
        assert_eq!(shown(list).as_deref(), Some(wanted));
    }

    #[test]
    fn a_tool_with_two_names_is_not_shown_and_two_lists_can_not_be_read() {
        let twice = r#"{"result":{"tools":[{"name":"a","name":"b"},{"name":"b","name":"a"}]}}"#;
        assert_eq!(shown(twice).as_deref(), Some(r#"{"result":{"tools":[]}}"#));
        for unclear in [
            r#"{"result":{"tools":[],"tools":[{"name":"b"}]}}"#,
            r#"{"result":{},"result":{"tools":[{"name":"b"}]}}"#,
            r#"{"result":{"tools":{"name":"b"}}}"#,
            r#"{"result":{"tools":[{"name":"a"}]"#,
            "",
            "7",
        ] {
            assert_eq!(shown(unclear), None, "{unclear}");
        }
    }
}
