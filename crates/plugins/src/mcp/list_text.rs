//! The text of an answer with a list, less what its reader may not see.
//!
//! A list may be long, and is read while its client waits: each byte is looked at once.
//! What is not left out stays as it was written.

use std::borrow::Cow;
use std::ops::Range;

use super::json_text::{JsonError, JsonText};
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
    let mut edits = Edits {
        text,
        shows,
        changes: Vec::new(),
        is_unclear: false,
    };
    let mut json = JsonText::lenient(text);
    edits.messages(&mut json).and_then(|()| json.end()).ok()?;
    let Edits {
        changes,
        is_unclear,
        ..
    } = edits;
    if is_unclear {
        return None;
    }
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

/// What is to change in a text.
struct Edits<'t, S> {
    text: &'t str,
    shows: S,
    /// What takes the place of what, in the order of the text.
    changes: Vec<(Range<usize>, String)>,
    /// Whether readers may differ in what the text says.
    is_unclear: bool,
}

impl<S: Fn(&ListKind, &str) -> bool> Edits<'_, S> {
    fn messages(&mut self, json: &mut JsonText<'_>) -> Result<(), JsonError> {
        match json.peek() {
            b'[' => json.array(|json| self.message(json)),
            _ => self.message(json),
        }
    }

    fn message(&mut self, json: &mut JsonText<'_>) -> Result<(), JsonError> {
        if json.peek() != b'{' {
            // It is no message, and what its readers make of it is not known.
            self.is_unclear = true;
            return json.skip().map(drop);
        }
        let mut has_result = false;
        json.object(|json, name| {
            if *name.text != *b"result" {
                return json.skip().map(drop);
            }
            // Readers differ in what they make of two members of one name.
            self.is_unclear |= std::mem::replace(&mut has_result, true);
            match json.peek() {
                b'{' => self.result(json),
                // A result that is no object has no list.
                _ => json.skip().map(drop),
            }
        })
    }

    fn result(&mut self, json: &mut JsonText<'_>) -> Result<(), JsonError> {
        let mut has_list = [false; LISTS.len()];
        let first = self.changes.len();
        let mut is_scoped = false;
        json.object(|json, name| {
            if *name.text == *b"cacheScope" {
                json.peek();
                let start = json.position();
                json.skip()?;
                // Of several members of this name none may say otherwise.
                let place = (start..json.position(), "\"private\"".to_owned());
                self.changes.push(place);
                is_scoped = true;
                return Ok(());
            }
            let Some(kind) = LISTS
                .iter()
                .position(|kind| kind.member.as_bytes() == &*name.text)
            else {
                return json.skip().map(drop);
            };
            self.is_unclear |= std::mem::replace(&mut has_list[kind], true);
            self.list(json, &LISTS[kind])
        })?;
        if is_scoped && has_list == [false; LISTS.len()] {
            // Nothing was listed: it is for whomever the server says.
            self.changes.truncate(first);
        }
        Ok(())
    }

    /// Reads a list, of which what is shown takes the place.
    fn list(&mut self, json: &mut JsonText<'_>, kind: &ListKind) -> Result<(), JsonError> {
        if json.peek() != b'[' {
            self.is_unclear = true;
            return json.skip().map(drop);
        }
        let start = json.position();
        let mut shown = String::from("[");
        let mut count = 0;
        json.array(|json| {
            count += 1;
            let from = json.position();
            let name = element_name(json, kind.key)?;
            if name.is_some_and(|name| (self.shows)(kind, &name)) {
                if shown.len() > 1 {
                    shown.push(',');
                }
                let element = self.text.get(from..json.position());
                shown.push_str(element.unwrap_or_default());
            }
            Ok(())
        })?;
        self.is_unclear |= count > MAX_ELEMENTS;
        shown.push(']');
        self.changes.push((start..json.position(), shown));
        Ok(())
    }
}

/// Reads an element of a list; its name, if it has one and no other.
fn element_name<'t>(json: &mut JsonText<'t>, key: &str) -> Result<Option<Cow<'t, str>>, JsonError> {
    if json.peek() != b'{' {
        json.skip()?;
        return Ok(None);
    }
    let (mut name, mut times) = (None, 0);
    json.object(|json, member| {
        if *member.text != *key.as_bytes() {
            return json.skip().map(drop);
        }
        times += 1;
        if json.peek() == b'"' {
            name = Some(json.string()?.meaning()?);
        } else {
            name = None;
            json.skip()?;
        }
        Ok(())
    })?;
    Ok(name.filter(|_| times == 1))
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
