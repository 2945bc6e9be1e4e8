//! Messages of the protocol (JSON-RPC 2.0) as far as decisions need them, read so
//! that no server can read them differently.
//!
//! Libraries differ in which of two members of one name they take, and some take
//! `Name` for `name`. A message that leaves such a choice is refused.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::json_text::{JsonError, JsonText};

/// Most messages of a batch.
const MAX_BATCH: usize = 100;

/// Members that decide, of a message and of its parameters.
const OF_MESSAGE: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];
const OF_PARAMS: [&str; 4] = ["name", "uri", "ref", "_meta"];
const OF_REFERENCE: [&str; 3] = ["type", "name", "uri"];

/// The message is no JSON (JSON-RPC 2.0 section 5.1).
pub(super) const PARSE_ERROR: i64 = -32700;
/// It is JSON and no message.
pub(super) const INVALID_REQUEST: i64 = -32600;
/// Its parameters are not those of the method.
pub(super) const INVALID_PARAMS: i64 = -32602;
/// The headers say otherwise (the protocol since 2026-07-28).
pub(super) const HEADER_MISMATCH: i64 = -32020;
/// The caller may not: a code that servers may give a meaning.
pub(super) const FORBIDDEN: i64 = -32003;
/// Something failed on this side.
pub(super) const INTERNAL_ERROR: i64 = -32603;

/// Why a message is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    /// The protocol's code.
    pub(super) code: i64,
    /// What is wrong.
    pub(super) message: &'static str,
}

impl Fault {
    pub(super) const fn new(code: i64, message: &'static str) -> Self {
        Self { code, message }
    }
}

const NO_JSON: Fault = Fault::new(PARSE_ERROR, "the message is no JSON");
const MEMBER_TWICE: Fault = Fault::new(INVALID_REQUEST, "the message has a member twice");
const NO_MESSAGE: Fault = Fault::new(INVALID_REQUEST, "the body is no message");
const NO_MESSAGE_OF_BATCH: Fault = Fault::new(INVALID_REQUEST, "the batch has what is no message");
const LOOKALIKE: Fault = Fault::new(
    INVALID_REQUEST,
    "a member of the message is named almost as another",
);

/// What is called by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    Tool,
    Prompt,
    Resource,
}

/// Where the parameters of a method name what it calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// Nothing is called by name.
    None,
    /// A member of the parameters must.
    Required(Subject),
    /// A member of the parameters may: revisions without the method leave it to the
    /// server to say so.
    Optional(Subject),
    /// The member `ref` must, which says what it is.
    Reference,
}

impl Naming {
    fn of(method: &str) -> Self {
        match method {
            "tools/call" => Self::Required(Subject::Tool),
            "prompts/get" => Self::Required(Subject::Prompt),
            "resources/read" => Self::Required(Subject::Resource),
            "resources/subscribe" | "resources/unsubscribe" => Self::Optional(Subject::Resource),
            "completion/complete" => Self::Reference,
            _ => Self::None,
        }
    }

    /// What the parameters call by name.
    fn subject<'t>(self, params: Params<'t>) -> Result<Option<Call<'t>>, Fault> {
        let nothing = Fault::new(INVALID_PARAMS, "the call names nothing");
        let (subject, members) = match self {
            Self::None => return Ok(None),
            Self::Required(subject) | Self::Optional(subject) => (subject, params.naming),
            Self::Reference => {
                let reference = params.reference.ok_or(nothing)?;
                if reference.has_lookalike {
                    return Err(LOOKALIKE);
                }
                let subject = match &reference.kind {
                    Some(Member::Text(kind)) if kind == "ref/prompt" => Subject::Prompt,
                    Some(Member::Text(kind)) if kind == "ref/resource" => Subject::Resource,
                    _ => return Err(nothing),
                };
                (subject, reference)
            }
        };
        let member = match subject {
            Subject::Tool | Subject::Prompt => members.name,
            Subject::Resource => members.uri,
        };
        match member {
            Some(Member::Text(name)) => Ok(Some((subject, name))),
            None if matches!(self, Self::Optional(_)) => Ok(None),
            _ => Err(nothing),
        }
    }
}

/// What is called, with its name or address.
type Call<'t> = (Subject, Cow<'t, str>);

/// One message.
#[derive(Debug)]
pub(super) struct Message<'t> {
    /// The identifier as it is written; `None`: a notification.
    id: Option<&'t str>,
    /// The method; `None`: an answer to the server.
    pub(super) method: Option<Cow<'t, str>>,
    named: Option<Call<'t>>,
}

impl Message<'_> {
    /// The identifier; null: a notification.
    pub(super) fn id(&self) -> Value {
        let id = self.id.and_then(|id| serde_json::from_str(id).ok());
        id.unwrap_or_default()
    }

    /// What it calls by name.
    pub(super) fn call(&self) -> Option<(Subject, &str)> {
        let (subject, name) = self.named.as_ref()?;
        Some((*subject, name))
    }

    /// Whether a header has to repeat the name in revisions that have it.
    pub(super) fn has_name_header(&self) -> bool {
        let naming = self.method.as_deref().map(Naming::of);
        self.named.is_some() && naming != Some(Naming::Reference)
    }
}

/// The messages of a body.
#[derive(Debug)]
pub(super) enum Messages<'t> {
    Single(Message<'t>),
    Batch(Vec<Message<'t>>),
}

impl<'t> Messages<'t> {
    pub(super) fn all(&self) -> &[Message<'t>] {
        match self {
            Self::Single(message) => std::slice::from_ref(message),
            Self::Batch(messages) => messages,
        }
    }

    pub(super) fn is_batch(&self) -> bool {
        matches!(self, Self::Batch(_))
    }
}

/// Reads the messages of a body.
pub(super) fn read(body: &[u8]) -> Result<Messages<'_>, Fault> {
    let text = std::str::from_utf8(body).map_err(|_| NO_JSON)?;
    let mut json = JsonText::strict(text);
    match read_body(&mut json) {
        Ok(messages) => messages,
        Err(JsonError::MemberTwice) => Err(MEMBER_TWICE),
        Err(JsonError::Malformed) => Err(NO_JSON),
    }
}

/// What the text says, once all of it was found to be JSON.
fn read_body<'t>(json: &mut JsonText<'t>) -> Result<Result<Messages<'t>, Fault>, JsonError> {
    let messages = match json.peek()? {
        b'{' => MessageMembers::read(json)?.message().map(Messages::Single),
        b'[' => read_batch(json)?,
        _ => {
            json.skip()?;
            Err(NO_MESSAGE)
        }
    };
    json.end()?;
    Ok(messages)
}

fn read_batch<'t>(json: &mut JsonText<'t>) -> Result<Result<Messages<'t>, Fault>, JsonError> {
    let mut count = 0;
    let mut messages = Ok(Vec::new());
    json.array(|json| {
        count += 1;
        let message = if json.peek()? == b'{' {
            MessageMembers::read(json)?.message()
        } else {
            json.skip()?;
            Err(NO_MESSAGE_OF_BATCH)
        };
        match (&mut messages, message) {
            (Ok(messages), Ok(message)) if count <= MAX_BATCH => messages.push(message),
            (Ok(_), Err(fault)) => messages = Err(fault),
            _ => {}
        }
        Ok(())
    })?;
    if (1..=MAX_BATCH).contains(&count) {
        Ok(messages.map(Messages::Batch))
    } else {
        Ok(Err(NO_MESSAGE))
    }
}

/// The value of a member that has to be a text.
#[derive(Debug)]
enum Member<'t> {
    Text(Cow<'t, str>),
    Other,
}

impl<'t> Member<'t> {
    fn read(json: &mut JsonText<'t>) -> Result<Self, JsonError> {
        if json.peek()? == b'"' {
            return json.string()?.meaning().map(Self::Text);
        }
        json.skip()?;
        Ok(Self::Other)
    }
}

/// The members that name something: of parameters, or of a reference.
#[derive(Debug, Default)]
struct NamingMembers<'t> {
    name: Option<Member<'t>>,
    uri: Option<Member<'t>>,
    kind: Option<Member<'t>>,
    /// Whether another member is named almost as one that decides.
    has_lookalike: bool,
}

impl<'t> NamingMembers<'t> {
    /// Those of a reference (`completion/complete`).
    fn of_reference(json: &mut JsonText<'t>) -> Result<Self, JsonError> {
        let mut read = Self::default();
        json.object(|json, name| {
            match name {
                "name" => read.name = Some(Member::read(json)?),
                "uri" => read.uri = Some(Member::read(json)?),
                "type" => read.kind = Some(Member::read(json)?),
                other => {
                    read.has_lookalike |= resembles_any(other, &OF_REFERENCE);
                    json.skip()?;
                }
            }
            Ok(())
        })?;
        Ok(read)
    }
}

/// The members of parameters that decide.
#[derive(Debug, Default)]
struct Params<'t> {
    naming: NamingMembers<'t>,
    reference: Option<NamingMembers<'t>>,
}

impl<'t> Params<'t> {
    fn read(json: &mut JsonText<'t>) -> Result<Self, JsonError> {
        let mut read = Self::default();
        json.object(|json, name| {
            match name {
                "name" => read.naming.name = Some(Member::read(json)?),
                "uri" => read.naming.uri = Some(Member::read(json)?),
                "ref" if json.peek()? == b'{' => {
                    read.reference = Some(NamingMembers::of_reference(json)?);
                }
                other => {
                    read.naming.has_lookalike |= resembles_any(other, &OF_PARAMS);
                    json.skip()?;
                }
            }
            Ok(())
        })?;
        Ok(read)
    }
}

/// The members of a message that decide.
#[derive(Default)]
struct MessageMembers<'t> {
    version: Option<Cow<'t, str>>,
    id: Option<&'t str>,
    method: Option<Cow<'t, str>>,
    params: Option<Params<'t>>,
    has_outcome: bool,
    /// Whether another member is named almost as one that decides.
    has_lookalike: bool,
    has_other_type: bool,
}

impl<'t> MessageMembers<'t> {
    fn read(json: &mut JsonText<'t>) -> Result<Self, JsonError> {
        let mut read = Self::default();
        json.object(|json, name| read.member(json, name))?;
        Ok(read)
    }

    fn member(&mut self, json: &mut JsonText<'t>, name: &str) -> Result<(), JsonError> {
        let first = json.peek()?;
        match (name, first) {
            ("jsonrpc", b'"') => self.version = Some(json.string()?.meaning()?),
            ("method", b'"') => self.method = Some(json.string()?.meaning()?),
            ("id", b'n') => drop(json.skip()?),
            ("id", b'"' | b'-' | b'0'..=b'9') => self.id = Some(json.skip()?),
            ("params", b'{') => self.params = Some(Params::read(json)?),
            ("jsonrpc" | "method" | "id" | "params", _) => {
                self.has_other_type = true;
                json.skip()?;
            }
            ("result" | "error", _) => {
                self.has_outcome = true;
                json.skip()?;
            }
            (other, _) => {
                self.has_lookalike |= resembles_any(other, &OF_MESSAGE);
                json.skip()?;
            }
        }
        Ok(())
    }

    fn message(self) -> Result<Message<'t>, Fault> {
        let invalid = |message| Fault::new(INVALID_REQUEST, message);
        if self.has_lookalike {
            return Err(LOOKALIKE);
        }
        if self.has_other_type {
            return Err(invalid("a member of the message has another type"));
        }
        if self.version.as_deref() != Some("2.0") {
            return Err(invalid("the message is not of JSON-RPC 2.0"));
        }
        let mut message = Message {
            id: self.id,
            method: self.method,
            named: None,
        };
        let Some(method) = message.method.as_deref() else {
            // What a server has asked is answered.
            return if self.has_outcome {
                Ok(message)
            } else {
                Err(invalid("the message has no method"))
            };
        };
        if self.has_outcome {
            return Err(invalid("the message is a request and an answer"));
        }
        let params = self.params.unwrap_or_default();
        if params.naming.has_lookalike {
            return Err(LOOKALIKE);
        }
        message.named = Naming::of(method).subject(params)?;
        Ok(message)
    }
}

/// Whether a careless reader takes a name for one of `deciding`, which it is not.
fn resembles_any(name: &str, deciding: &[&str]) -> bool {
    let resembles = |known: &&str| {
        if name.is_ascii() {
            name.eq_ignore_ascii_case(known)
        } else {
            folded(name) == **known
        }
    };
    !deciding.contains(&name) && deciding.iter().any(resembles)
}

/// A name as readers compare it that ignore case: two letters beyond ASCII fold to
/// letters of ASCII.
fn folded(name: &str) -> String {
    let fold = |letter| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    name.chars().map(fold).collect()
}

/// The protocol's answer to what is refused.
pub(super) fn error(id: &Value, fault: Fault) -> Value {
    let error = json!({"code": fault.code, "message": fault.message});
    json!({"jsonrpc": "2.0", "id": id, "error": error})
}

#[cfg(test)]
mod tests {
    use super::super::json_text::FEW;
    use super::*;

    fn code(body: &str) -> i64 {
        read(body.as_bytes()).map_or_else(|fault| fault.code, |_| 0)
    }

    #[test]
    fn a_call_is_read_whatever_the_order_of_its_members() {
        let body = br#" {"params":{"arguments":{"name":"x"},"_meta":{},"name":"weather"},
            "method":"tools/call","id":7,"jsonrpc":"2.0"} "#;
        let messages = read(body).expect("a message");
        assert!(!messages.is_batch());
        let message = &messages.all()[0];
        assert_eq!(message.call(), Some((Subject::Tool, "weather")));
        assert_eq!(message.id(), json!(7));
        let answer = read(br#"{"jsonrpc":"2.0","id":"a","result":{}}"#).expect("an answer");
        assert_eq!(answer.all()[0].method, None);
    }

    #[test]
    fn a_completion_calls_the_prompt_or_resource_that_it_refers_to() {
        let complete = |reference: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{{"ref":{reference},
                "argument":{{"name":"x","value":"y"}}}}}}"#
            )
        };
        for (reference, expected) in [
            (
                r#"{"type":"ref/prompt","name":"plan"}"#,
                (Subject::Prompt, "plan"),
            ),
            (
                r#"{"uri":"file:///{p}","type":"ref/resource"}"#,
                (Subject::Resource, "file:///{p}"),
            ),
        ] {
            let body = complete(reference);
            let batch = format!("[{body}]");
            for body in [body, batch] {
                let messages = read(body.as_bytes()).expect("a message");
                let message = &messages.all()[0];
                assert_eq!(message.call(), Some(expected), "{body}");
                assert!(!message.has_name_header());
            }
        }
        for reference in [
            r#""plan""#,
            "{}",
            r#"{"type":"ref/prompt"}"#,
            r#"{"type":"ref/prompt","uri":"file:///a"}"#,
            r#"{"type":"ref/other","name":"plan"}"#,
        ] {
            assert_eq!(code(&complete(reference)), INVALID_PARAMS, "{reference}");
        }
        let twofold = r#"{"type":"ref/prompt","name":"plan","Name":"pay"}"#;
        assert_eq!(code(&complete(twofold)), INVALID_REQUEST);
    }

    #[test]
    fn a_subscription_without_an_address_is_left_to_the_server() {
        let of = |params: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"resources/subscribe"{params}}}"#)
        };
        let bare = of("");
        let messages = read(bare.as_bytes()).expect("a message");
        assert_eq!(messages.all()[0].call(), None);
        assert_eq!(code(&of(r#","params":{"uri":7}"#)), INVALID_PARAMS);
    }

    #[test]
    fn a_tool_smuggled_by_a_duplicate_member_is_refused() {
        for body in [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","n\u0061me":"b"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","Name":"b"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"},"Params":{"name":"b"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"},"param\u017f":{"name":"b"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"b"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","METHOD":"tools/call","params":{"name":"b"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"p":1,"p":2}}}"#,
        ] {
            assert_eq!(code(body), INVALID_REQUEST, "{body}");
        }
    }

    #[test]
    fn a_member_twice_is_found_among_few_and_among_many() {
        for count in [1, FEW - 1, FEW, FEW + 1, 10 * FEW] {
            for place in [0, count / 2, count - 1] {
                let members: Vec<_> = (0..count).map(|n| format!("\"m{n}\":1")).collect();
                let members = members.join(",");
                let body = |more: &str| {
                    format!(
                        r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{{members}{more}}}}}"#
                    )
                };
                assert_eq!(code(&body("")), 0, "{count}");
                let twice = body(&format!(",\"m{place}\":2"));
                assert_eq!(code(&twice), INVALID_REQUEST, "{twice}");
            }
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for body in [
            "",
            "{",
            "{}x",
            "{\"a\":1}\n{\"a\":2}",
            "\u{feff}{}",
            "\"\\ud800\"",
        ] {
            assert_eq!(code(body), PARSE_ERROR, "{body}");
        }
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert_eq!(code(&deep), PARSE_ERROR);
        for body in [
            "1",
            "[]",
            "[1]",
            r#"{"id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":["tools/call"]}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["a"]}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#,
        ] {
            assert_eq!(code(body), INVALID_REQUEST, "{body}");
        }
        for params in ["", r#","params":{}"#, r#","params":{"name":["a"]}"#] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call"{params}}}"#);
            assert_eq!(code(&body), INVALID_PARAMS, "{body}");
        }
        let many = vec![r#"{"jsonrpc":"2.0","method":"x"}"#; MAX_BATCH + 1].join(",");
        assert_eq!(code(&format!("[{many}]")), INVALID_REQUEST);
    }
}
