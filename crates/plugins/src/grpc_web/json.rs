//! Messages in JSON, and what they are in protobuf.

use std::io::Write;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost_reflect::prost::Message;
use prost_reflect::{
    DeserializeOptions, DynamicMessage, MessageDescriptor, MethodDescriptor, SerializeOptions,
};

use super::answer::FRAME_HEAD;
use super::bounds;

/// Bytes of the longest message of an answer: as servers of gRPC have it.
const MAX_MESSAGE: usize = 4 << 20;
/// Bytes of the longest message of an answer in JSON.
const MAX_JSON: usize = 16 << 20;
/// Values of the longest message of a request. Each takes up to some hundred bytes when
/// it is read, whatever it is.
const MAX_VALUES: usize = 32_768;
/// What clients are told of an answer that can't be told in JSON.
const UNTOLD: &str = "the answer is no message of the description";

/// As the imitated gateway reads: what the description does not have says nothing.
const READ: DeserializeOptions = DeserializeOptions::new().deny_unknown_fields(false);
/// As the imitated gateway writes: names as in the description, numbers as numbers, and
/// fields that are not set.
const WRITE: SerializeOptions = SerializeOptions::new()
    .use_proto_field_name(true)
    .stringify_64_bit_integers(false)
    .skip_default_fields(false);

/// How messages in JSON stand in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frames {
    /// One after the other, each behind its length.
    Lengths,
    /// A request is one message. Those of an answer stand one after the other.
    Bare,
}

/// The body of a request as gRPC.
///
/// # Errors
/// What the client is told.
pub(super) fn request(
    method: &MethodDescriptor,
    frames: Frames,
    body: &[u8],
) -> Result<Bytes, String> {
    let mut all = BytesMut::new();
    if frames == Frames::Bare {
        put_message(&mut all, method, body)?;
        return Ok(all.freeze());
    }
    let mut rest = body;
    let mut count = 0;
    while !rest.is_empty() {
        let (flag, length, after) = head(rest).ok_or("the body has no whole message")?;
        if flag != 0 {
            return Err("the body has a compressed message".to_owned());
        }
        let message = after.get(..length);
        let message = message.ok_or("the body has no whole message")?;
        put_message(&mut all, method, message)?;
        rest = &after[length..];
        count += 1;
    }
    match count {
        1 => Ok(all.freeze()),
        2.. if method.is_client_streaming() => Ok(all.freeze()),
        0 => Err("the body has no message".to_owned()),
        _ => Err("the body has more than one message".to_owned()),
    }
}

/// The first byte of a frame, the length of its message, and what follows.
fn head(bytes: &[u8]) -> Option<(u8, usize, &[u8])> {
    let (head, after) = bytes.split_first_chunk::<FRAME_HEAD>()?;
    let [flag, length @ ..] = *head;
    Some((flag, u32::from_be_bytes(length) as usize, after))
}

/// Writes a message that is JSON as a frame of protobuf.
fn put_message(all: &mut BytesMut, method: &MethodDescriptor, json: &[u8]) -> Result<(), String> {
    if has_too_many_values(json) {
        return Err(format!("the message has more than {MAX_VALUES} values"));
    }
    let kind = method.input();
    let name = kind.full_name().to_owned();
    let mut reader = serde_json::Deserializer::from_slice(json);
    let message = DynamicMessage::deserialize_with_options(kind, &mut reader, &READ);
    let message = message.and_then(|message| reader.end().map(|()| message));
    let message = message.map_err(|error| {
        // What the client has sent is not told again.
        let (line, column) = (error.line(), error.column());
        format!("the body is no {name} in JSON: line {line}, column {column}")
    })?;
    let length = message.encoded_len();
    let size = u32::try_from(length).map_err(|_| "the message is too long")?;
    all.reserve(FRAME_HEAD + length);
    all.put_u8(0);
    all.put_u32(size);
    message
        .encode(all)
        .map_err(|_| "the message is too long".to_owned())
}

/// Whether a text of JSON has too many values, going by what begins and parts them.
fn has_too_many_values(json: &[u8]) -> bool {
    let (mut count, mut in_text, mut escaped) = (0_usize, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_text,
            b'"' => in_text = !in_text,
            b',' | b'[' | b'{' if !in_text => count += 1,
            _ => {}
        }
    }
    count > MAX_VALUES
}

/// Writes the messages of one answer in JSON.
pub(super) struct JsonAnswer {
    kind: MessageDescriptor,
    frames: Frames,
    /// What has come of a message that is not whole yet.
    held: BytesMut,
    failed: bool,
}

impl JsonAnswer {
    /// Those of an answer of `method`.
    pub(super) fn new(method: &MethodDescriptor, frames: Frames) -> Self {
        Self {
            kind: method.output(),
            frames,
            held: BytesMut::new(),
            failed: false,
        }
    }

    /// How the messages stand in the body.
    pub(super) fn frames(&self) -> Frames {
        self.frames
    }

    /// Takes a piece of the answer: what it makes whole, in JSON. Behind a message that
    /// can't be told nothing is.
    pub(super) fn take(&mut self, piece: Option<Bytes>, end: bool) -> Bytes {
        let mut told = BytesMut::new();
        if self.failed {
            return told.freeze();
        }
        self.held.extend_from_slice(&piece.unwrap_or_default());
        while let Some((flag, length, after)) = head(&self.held) {
            if flag != 0 || length > MAX_MESSAGE {
                self.fail();
                return told.freeze();
            }
            if after.len() < length {
                break;
            }
            self.held.advance(FRAME_HEAD);
            let message = self.held.split_to(length);
            let before = told.len();
            if self.tell(&message, &mut told).is_none() {
                told.truncate(before);
                self.fail();
                return told.freeze();
            }
        }
        if end && !self.held.is_empty() {
            self.fail();
        }
        told.freeze()
    }

    fn fail(&mut self) {
        self.failed = true;
        self.held = BytesMut::new();
    }

    /// What clients are told of an answer that can't be told in JSON; `None`: it could.
    pub(super) fn failure(&self) -> Option<&'static str> {
        self.failed.then_some(UNTOLD)
    }

    /// Writes a message; `None`: it can't be.
    fn tell(&self, message: &[u8], told: &mut BytesMut) -> Option<()> {
        let message = bounds::read(&self.kind, message)?;
        let begin = told.len();
        if self.frames == Frames::Lengths {
            told.put_bytes(0, FRAME_HEAD);
        }
        let mut writer = BoundedWriter {
            told,
            left: MAX_JSON,
        };
        let mut json = serde_json::Serializer::new(&mut writer);
        message.serialize_with_options(&mut json, &WRITE).ok()?;
        if self.frames == Frames::Lengths {
            let length = told.len() - begin - FRAME_HEAD;
            let length = u32::try_from(length).ok()?.to_be_bytes();
            told.get_mut(begin + 1..begin + FRAME_HEAD)?
                .copy_from_slice(&length);
        }
        Some(())
    }
}

/// A body that grows by a bounded number of bytes.
struct BoundedWriter<'a> {
    told: &'a mut BytesMut,
    left: usize,
}

impl Write for BoundedWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let left = self.left.checked_sub(bytes.len());
        self.left = left.ok_or(std::io::ErrorKind::FileTooLarge)?;
        self.told.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
