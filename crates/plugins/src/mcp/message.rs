//! Messages of the protocol (JSON-RPC 2.0) as far as decisions need them, read so
//! that no server can read them differently.
//!
//! Libraries differ in which of two members of one name they take, and some take
//! `Name` for `name`. A message that leaves such a choice is refused.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::json_text::{JsonError, JsonText, Quoted};
use super::member_names::MemberName;

/// Most messages of a batch.
const MAX_BATCH: usize = 100;

/// Members that decide, of a message and of its parameters.
const OF_MESSAGE: [u64; 6] = [
    key::JSONRPC,
    key::ID,
    key::METHOD,
    key::PARAMS,
    key::RESULT,
    key::ERROR,
];
const OF_PARAMS: [u64; 4] = [key::NAME, key::URI, key::REF, key::META];
const OF_REFERENCE: [u64; 3] = [key::TYPE, key::NAME, key::URI];

/// The keys of their names, which are short.
mod key {
    use super::MemberName;

    pub(super) const JSONRPC: u64 = MemberName::key(b"jsonrpc");
    pub(super) const ID: u64 = MemberName::key(b"id");
    pub(super) const METHOD: u64 = MemberName::key(b"method");
    pub(super) const PARAMS: u64 = MemberName::key(b"params");
    pub(super) const RESULT: u64 = MemberName::key(b"result");
    pub(super) const ERROR: u64 = MemberName::key(b"error");
    pub(super) const NAME: u64 = MemberName::key(b"name");
    pub(super) const URI: u64 = MemberName::key(b"uri");
    pub(super) const REF: u64 = MemberName::key(b"ref");
    pub(super) const META: u64 = MemberName::key(b"_meta");
    pub(super) const TYPE: u64 = MemberName::key(b"type");
}

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
    fn subject<'t>(self, params: &Params<'t>) -> Result<Option<Call<'t>>, Fault> {
        let nothing = Fault::new(INVALID_PARAMS, "the call names nothing");
        let (subject, members) = match self {
            Self::None => return Ok(None),
            Self::Required(subject) | Self::Optional(subject) => (subject, &params.naming),
            Self::Reference => {
                let reference = params.reference.as_ref().ok_or(nothing)?;
                if reference.has_lookalike {
                    return Err(LOOKALIKE);
                }
                let subject = match reference.kind {
                    Some(Member::Text(kind)) if kind.is(b"ref/prompt") => Subject::Prompt,
                    Some(Member::Text(kind)) if kind.is(b"ref/resource") => Subject::Resource,
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
            Some(Member::Text(name)) => Ok(Some((subject, meaning(name)?))),
            None if matches!(self, Self::Optional(_)) => Ok(None),
            _ => Err(nothing),
        }
    }
}

/// The method that a text names. What most messages are is known without a look at its
/// characters.
fn method(text: Quoted<'_>) -> Result<Cow<'_, str>, Fault> {
    const CALL: &str = "tools/call";
    if text.is(CALL.as_bytes()) {
        Ok(Cow::Borrowed(CALL))
    } else {
        meaning(text)
    }
}

/// What a text means. Strictly read, each means something.
fn meaning(text: Quoted<'_>) -> Result<Cow<'_, str>, Fault> {
    text.meaning().map_err(|_| NO_JSON)
}

/// What is called, with its name or address.
type Call<'t> = (Subject, Cow<'t, str>);

/// One message.
#[derive(Debug)]
pub(super) struct Message<'t> {
    /// The identifier as it is written; `None`: a notification.
    id: Option<&'t [u8]>,
    /// The method; `None`: an answer to the server.
    pub(super) method: Option<Cow<'t, str>>,
    named: Option<Call<'t>>,
}

impl Message<'_> {
    /// The identifier; null: a notification.
    pub(super) fn id(&self) -> Value {
        let id = self.id.and_then(|id| serde_json::from_slice(id).ok());
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
    read_body(body).map_err(|error| match error {
        Unread::Fault(fault) => fault,
        Unread::Json(JsonError::MemberTwice) if std::str::from_utf8(body).is_ok() => MEMBER_TWICE,
        Unread::Json(_) => NO_JSON,
    })
}

/// Why there are no messages.
enum Unread {
    Json(JsonError),
    /// The body is JSON, and something else is wrong.
    Fault(Fault),
}

impl From<JsonError> for Unread {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}

/// What the text says, once all of it was found to be JSON.
#[inline]
fn read_body(body: &[u8]) -> Result<Messages<'_>, Unread> {
    let mut json = JsonText::strict(body);
    let messages = match json.peek() {
        b'{' => {
            let mut members = MessageMembers::default();
            members.read(&mut json)?;
            json.end()?;
            return members
                .message()
                .map(Messages::Single)
                .map_err(Unread::Fault);
        }
        b'[' => read_batch(&mut json)?,
        _ => {
            json.skip()?;
            Err(NO_MESSAGE)
        }
    };
    json.end()?;
    messages.map_err(Unread::Fault)
}

fn read_batch<'t>(json: &mut JsonText<'t>) -> Result<Result<Messages<'t>, Fault>, JsonError> {
    let mut count = 0;
    let mut messages = Ok(Vec::new());
    json.array(|json| {
        count += 1;
        let message = if json.peek() == b'{' {
            let mut members = MessageMembers::default();
            members.read(json)?;
            members.message()
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
#[derive(Debug, Clone, Copy)]
enum Member<'t> {
    Text(Quoted<'t>),
    Other,
}

impl<'t> Member<'t> {
    #[inline]
    fn read(json: &mut JsonText<'t>) -> Result<Self, JsonError> {
        if json.peek() == b'"' {
            return json.string().map(Self::Text);
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
            match name.key {
                key::NAME => read.name = Some(Member::read(json)?),
                key::URI => read.uri = Some(Member::read(json)?),
                key::TYPE => read.kind = Some(Member::read(json)?),
                _ => {
                    read.has_lookalike |= name.resembles_any(&OF_REFERENCE);
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
    fn read(&mut self, json: &mut JsonText<'t>) -> Result<(), JsonError> {
        json.object(|json, name| {
            match name.key {
                key::NAME => self.naming.name = Some(Member::read(json)?),
                key::URI => self.naming.uri = Some(Member::read(json)?),
                key::REF if json.peek() == b'{' => {
                    self.reference = Some(NamingMembers::of_reference(json)?);
                }
                _ => {
                    self.naming.has_lookalike |= name.resembles_any(&OF_PARAMS);
                    json.skip()?;
                }
            }
            Ok(())
        })
    }
}

/// The members of a message that decide.
#[derive(Default)]
struct MessageMembers<'t> {
    version: Option<Quoted<'t>>,
    id: Option<&'t [u8]>,
    method: Option<Quoted<'t>>,
    params: Params<'t>,
    has_outcome: bool,
    /// Whether another member is named almost as one that decides.
    has_lookalike: bool,
    has_other_type: bool,
}

impl<'t> MessageMembers<'t> {
    fn read(&mut self, json: &mut JsonText<'t>) -> Result<(), JsonError> {
        json.object(|json, name| self.member(json, name))
    }

    fn member(&mut self, json: &mut JsonText<'t>, name: &MemberName<'_>) -> Result<(), JsonError> {
        match (name.key, json.peek()) {
            (key::JSONRPC, b'"') => self.version = Some(json.string()?),
            (key::METHOD, b'"') => self.method = Some(json.string()?),
            (key::ID, b'n') => drop(json.skip()?),
            (key::ID, b'"' | b'-' | b'0'..=b'9') => self.id = Some(json.skip()?),
            (key::PARAMS, b'{') => self.params.read(json)?,
            (key::JSONRPC | key::METHOD | key::ID | key::PARAMS, _) => {
                self.has_other_type = true;
                json.skip()?;
            }
            (key::RESULT | key::ERROR, _) => {
                self.has_outcome = true;
                json.skip()?;
            }
            _ => {
                self.has_lookalike |= name.resembles_any(&OF_MESSAGE);
                json.skip()?;
            }
        }
        Ok(())
    }

    fn message(&self) -> Result<Message<'t>, Fault> {
        let invalid = |message| Fault::new(INVALID_REQUEST, message);
        if self.has_lookalike {
            return Err(LOOKALIKE);
        }
        if self.has_other_type {
            return Err(invalid("a member of the message has another type"));
        }
        if !self.version.is_some_and(|version| version.is(b"2.0")) {
            return Err(invalid("the message is not of JSON-RPC 2.0"));
        }
        let mut message = Message {
            id: self.id,
            method: self.method.map(method).transpose()?,
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
        if self.params.naming.has_lookalike {
            return Err(LOOKALIKE);
        }
        message.named = Naming::of(method).subject(&self.params)?;
        Ok(message)
    }
}

/// The protocol's answer to what is refused.
pub(super) fn error(id: &Value, fault: Fault) -> Value {
    let error = json!({"code": fault.code, "message": fault.message});
    json!({"jsonrpc": "2.0", "id": id, "error": error})
}

#[cfg(test)]
mod tests;
