//! Messages of the protocol (JSON-RPC 2.0) as far as decisions need them, read so
//! that no server can read them differently.
//!
//! Libraries differ in which of two members of one name they take, and some take
//! `Name` for `name`. A message that leaves such a choice is refused.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, json};

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

/// What is called by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    Tool,
    Prompt,
    Resource,
}

impl Subject {
    /// The member that names it.
    fn key(self) -> &'static str {
        match self {
            Self::Tool | Self::Prompt => "name",
            Self::Resource => "uri",
        }
    }
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
    fn read(self, params: Members) -> Result<Option<(Subject, String)>, Fault> {
        let nothing = Fault::new(INVALID_PARAMS, "the call names nothing");
        let (subject, members) = match self {
            Self::None => return Ok(None),
            Self::Required(subject) | Self::Optional(subject) => (subject, params),
            Self::Reference => {
                let Some(Strict::Object(reference)) = member(params, "ref") else {
                    return Err(nothing);
                };
                check_names(&reference, &OF_REFERENCE)?;
                let mut kinds = reference.iter().filter(|(name, _)| name == "type");
                let subject = match kinds.next() {
                    Some((_, Strict::Scalar(Value::String(kind)))) => match kind.as_str() {
                        "ref/prompt" => Subject::Prompt,
                        "ref/resource" => Subject::Resource,
                        _ => return Err(nothing),
                    },
                    _ => return Err(nothing),
                };
                (subject, reference)
            }
        };
        match member(members, subject.key()) {
            Some(Strict::Scalar(Value::String(name))) => Ok(Some((subject, name))),
            None if matches!(self, Self::Optional(_)) => Ok(None),
            _ => Err(nothing),
        }
    }
}

fn member(members: Members, key: &str) -> Option<Strict> {
    let mut members = members.into_iter();
    members
        .find(|(name, _)| name == key)
        .map(|(_, value)| value)
}

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Message {
    /// The identifier; null: a notification.
    pub(super) id: Value,
    /// The method; `None`: an answer to the server.
    pub(super) method: Option<String>,
    /// The tool, prompt or resource, with its name or address.
    named: Option<(Subject, String)>,
}

impl Message {
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

/// The messages of a body, and whether they are a batch.
pub(super) fn read(body: &[u8]) -> Result<(Vec<Message>, bool), Fault> {
    let strict = serde_json::from_slice::<Strict>(body);
    let body = strict.map_err(|error| {
        if error.is_data() {
            Fault::new(INVALID_REQUEST, "the message has a member twice")
        } else {
            Fault::new(PARSE_ERROR, "the message is no JSON")
        }
    })?;
    match body {
        Strict::Object(members) => Ok((vec![message(members)?], false)),
        Strict::Array(all) if (1..=MAX_BATCH).contains(&all.len()) => {
            let all = all.into_iter().map(|one| match one {
                Strict::Object(members) => message(members),
                _ => Err(Fault::new(
                    INVALID_REQUEST,
                    "the batch has what is no message",
                )),
            });
            Ok((all.collect::<Result<_, _>>()?, true))
        }
        _ => Err(Fault::new(INVALID_REQUEST, "the body is no message")),
    }
}

fn message(members: Members) -> Result<Message, Fault> {
    let invalid = |message| Fault::new(INVALID_REQUEST, message);
    check_names(&members, &OF_MESSAGE)?;
    let mut read = Message {
        id: Value::Null,
        method: None,
        named: None,
    };
    let (mut params, mut version, mut has_outcome) = (None, None, false);
    for (name, value) in members {
        match (&*name, value) {
            ("jsonrpc", Strict::Scalar(Value::String(text))) => version = Some(text),
            ("method", Strict::Scalar(Value::String(text))) => read.method = Some(text),
            ("id", Strict::Scalar(id @ (Value::String(_) | Value::Number(_) | Value::Null))) => {
                read.id = id;
            }
            ("params", Strict::Object(members)) => params = Some(members),
            ("jsonrpc" | "method" | "id" | "params", _) => {
                return Err(invalid("a member of the message has another type"));
            }
            ("result" | "error", _) => has_outcome = true,
            _ => {}
        }
    }
    if version.as_deref() != Some("2.0") {
        return Err(invalid("the message is not of JSON-RPC 2.0"));
    }
    let Some(method) = read.method.as_deref() else {
        // What a server has asked is answered.
        return if has_outcome {
            Ok(read)
        } else {
            Err(invalid("the message has no method"))
        };
    };
    if has_outcome {
        return Err(invalid("the message is a request and an answer"));
    }
    let params = params.unwrap_or_default();
    check_names(&params, &OF_PARAMS)?;
    read.named = Naming::of(method).read(params)?;
    Ok(read)
}

/// Refuses names that a careless reader takes for one of `deciding`.
fn check_names(members: &Members, deciding: &[&str]) -> Result<(), Fault> {
    let resembles = |name: &str, known: &str| {
        if name.is_ascii() {
            name.eq_ignore_ascii_case(known)
        } else {
            folded(name) == known
        }
    };
    let is_plain = |name: &str| {
        let mut others = deciding.iter().filter(|known| **known != name);
        !others.any(|known| resembles(name, known))
    };
    if members.iter().all(|(name, _)| is_plain(name)) {
        Ok(())
    } else {
        Err(Fault::new(
            INVALID_REQUEST,
            "a member of the message is named almost as another",
        ))
    }
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

type Members = Vec<(String, Strict)>;

/// Most names that are compared one by one.
const FEW: usize = 16;

/// The names of an object so far.
#[derive(Default)]
struct Names {
    few: Vec<String>,
    many: HashSet<String>,
}

impl Names {
    fn contains(&self, name: &str) -> bool {
        self.few.iter().any(|known| known == name) || self.many.contains(name)
    }

    fn insert(&mut self, name: String) {
        if self.few.len() < FEW {
            self.few.push(name);
        } else {
            self.many.insert(name);
        }
    }
}

/// JSON without two members of one name, at any depth. Of what lies deeper than
/// parameters only the type is kept.
#[derive(Debug)]
enum Strict {
    Scalar(Value),
    Array(Vec<Strict>),
    Object(Members),
}

/// How deep values are kept: a batch, a message, its parameters, a reference.
const KEPT_DEPTH: u8 = 4;

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Depth(0).deserialize(deserializer)
    }
}

#[derive(Clone, Copy)]
struct Depth(u8);

impl<'de> DeserializeSeed<'de> for Depth {
    type Value = Strict;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Strict, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Depth {
    fn keeps(self) -> bool {
        self.0 < KEPT_DEPTH
    }
}

impl<'de> Visitor<'de> for Depth {
    type Value = Strict;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Strict, E> {
        Ok(Strict::Scalar(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Strict, E> {
        Ok(Strict::Scalar(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Strict, E> {
        Ok(Strict::Scalar(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Strict, E> {
        Ok(Strict::Scalar(value.into()))
    }

    fn visit_unit<E: Error>(self) -> Result<Strict, E> {
        Ok(Strict::Scalar(Value::Null))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Strict, E> {
        let kept = if self.0 <= KEPT_DEPTH { value } else { "" };
        Ok(Strict::Scalar(kept.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Strict, A::Error> {
        let mut kept = Vec::new();
        while let Some(one) = all.next_element_seed(Depth(self.0.saturating_add(1)))? {
            if self.keeps() && kept.len() <= MAX_BATCH {
                kept.push(one);
            }
        }
        Ok(Strict::Array(kept))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Strict, A::Error> {
        let mut names = Names::default();
        let mut kept = Vec::new();
        while let Some(name) = all.next_key::<String>()? {
            let value = all.next_value_seed(Depth(self.0.saturating_add(1)))?;
            if names.contains(&name) {
                return Err(A::Error::custom("a member is there twice"));
            }
            if self.keeps() {
                kept.push((name.clone(), value));
            }
            names.insert(name);
        }
        Ok(Strict::Object(kept))
    }
}

/// The protocol's answer to what is refused.
pub(super) fn error(id: &Value, fault: Fault) -> Value {
    let error = json!({"code": fault.code, "message": fault.message});
    json!({"jsonrpc": "2.0", "id": id, "error": error})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(body: &str) -> i64 {
        read(body.as_bytes()).map_or_else(|fault| fault.code, |_| 0)
    }

    #[test]
    fn a_call_is_read_whatever_the_order_of_its_members() {
        let body = br#" {"params":{"arguments":{"name":"x"},"_meta":{},"name":"weather"},
            "method":"tools/call","id":7,"jsonrpc":"2.0"} "#;
        let (messages, batch) = read(body).expect("a message");
        assert!(!batch);
        assert_eq!(messages[0].call(), Some((Subject::Tool, "weather")));
        assert_eq!(messages[0].id, json!(7));
        let answer = read(br#"{"jsonrpc":"2.0","id":"a","result":{}}"#).expect("an answer");
        assert_eq!(answer.0[0].method, None);
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
                let (messages, _) = read(body.as_bytes()).expect("a message");
                assert_eq!(messages[0].call(), Some(expected), "{body}");
                assert!(!messages[0].has_name_header());
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
        let (messages, _) = read(bare.as_bytes()).expect("a message");
        assert_eq!(messages[0].call(), None);
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
