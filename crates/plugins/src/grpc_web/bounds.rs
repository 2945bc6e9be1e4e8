//! Messages of answers, which are read within bounds.
//!
//! A message takes far more memory than its bytes: a field of two bytes may be a message
//! of its own. What a message has is counted in its bytes, before it is read.

use bytes::{Buf, Bytes};
use prost_reflect::prost::encoding::{WireType, decode_key, decode_varint};
use prost_reflect::{DynamicMessage, Kind, MessageDescriptor, ReflectMessage, Value};

/// How deep messages of an answer may stand in each other, those in `Any` too.
const MAX_DEPTH: usize = 100;
/// Messages that the longest message of an answer may hold. Each takes up to a thousand
/// bytes when it is read.
const MAX_MESSAGES: usize = 32_768;
/// What a message costs, in values of lists.
const MESSAGE_COST: usize = 16;
/// What an entry of a map costs, without its key and its value.
const ENTRY_COST: usize = 2;
/// What a field or a group costs that the description does not have.
const UNDESCRIBED_COST: usize = 4;

/// Reads a message and those in each `Any` of it; `None`: it is none, holds too much, or
/// its messages stand too deep in each other.
pub(super) fn read(kind: &MessageDescriptor, bytes: &[u8]) -> Option<DynamicMessage> {
    let mut budget = Budget(MAX_MESSAGES * MESSAGE_COST);
    read_within(kind, bytes, MAX_DEPTH, &mut budget)
}

fn read_within(
    kind: &MessageDescriptor,
    bytes: &[u8],
    depth: usize,
    budget: &mut Budget,
) -> Option<DynamicMessage> {
    budget.message(Some(kind), &mut &*bytes, None, depth)?;
    let message = DynamicMessage::decode(kind.clone(), bytes).ok()?;
    is_flat(&message, depth, budget).then_some(message)
}

/// What messages may still hold, in values of lists.
struct Budget(usize);

impl Budget {
    fn take(&mut self, cost: usize) -> Option<()> {
        self.0 = self.0.checked_sub(cost)?;
        Some(())
    }

    /// Takes what a message costs, and what is in it; `None`: there is no more, the
    /// message is broken, or it stands too deep. `kind` is none within what the
    /// description does not have. A group ends with its own number.
    fn message(
        &mut self,
        kind: Option<&MessageDescriptor>,
        bytes: &mut &[u8],
        group: Option<u32>,
        depth: usize,
    ) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        self.take(match kind {
            None => UNDESCRIBED_COST,
            Some(kind) if kind.is_map_entry() => ENTRY_COST,
            Some(_) => MESSAGE_COST,
        })?;
        while bytes.has_remaining() {
            let (number, wire) = decode_key(bytes).ok()?;
            if wire == WireType::EndGroup {
                return (group == Some(number)).then_some(());
            }
            let kind = kind.and_then(|kind| field(kind, number));
            self.take(kind.as_ref().map_or(UNDESCRIBED_COST, |_| 1))?;
            match wire {
                WireType::Varint => drop(decode_varint(bytes).ok()?),
                WireType::ThirtyTwoBit => *bytes = bytes.get(4..)?,
                WireType::SixtyFourBit => *bytes = bytes.get(8..)?,
                WireType::StartGroup => {
                    let kind = kind.as_ref().and_then(Kind::as_message);
                    self.message(kind, bytes, Some(number), depth)?;
                }
                WireType::LengthDelimited => {
                    let length = usize::try_from(decode_varint(bytes).ok()?).ok()?;
                    let (mut inside, rest) = bytes.split_at_checked(length)?;
                    *bytes = rest;
                    match kind {
                        Some(Kind::Message(kind)) => {
                            self.message(Some(&kind), &mut inside, None, depth)?;
                        }
                        Some(kind) => self.take(packed(&kind, inside))?,
                        None => {}
                    }
                }
                WireType::EndGroup => return None,
            }
        }
        group.is_none().then_some(())
    }
}

/// The kind of a field or an extension of a message.
fn field(kind: &MessageDescriptor, number: u32) -> Option<Kind> {
    let field = kind.get_field(number).map(|field| field.kind());
    field.or_else(|| Some(kind.get_extension(number)?.kind()))
}

/// Values of a list whose bytes stand one after the other.
fn packed(kind: &Kind, bytes: &[u8]) -> usize {
    match kind {
        Kind::String | Kind::Bytes | Kind::Message(_) => 0,
        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => bytes.len() / 8,
        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => bytes.len() / 4,
        // The last byte of each has its highest bit clear.
        _ => bytes.iter().filter(|byte| **byte < 0x80).count(),
    }
}

/// Whether messages stand no deeper in each other than `left`. What is in `Any` was not
/// looked at when the message was read, and is written by recursion, too.
fn is_flat(message: &DynamicMessage, left: usize, budget: &mut Budget) -> bool {
    let Some(left) = left.checked_sub(1) else {
        return false;
    };
    let mut inside = |value: &Value| match value {
        Value::Message(message) => is_flat(message, left, budget),
        _ => true,
    };
    let fields = message.fields().map(|(_, value)| value);
    let extensions = message.extensions().map(|(_, value)| value);
    let fields_are_flat = fields.chain(extensions).all(|value| match value {
        Value::List(values) => values.iter().all(&mut inside),
        Value::Map(values) => values.values().all(&mut inside),
        value => inside(value),
    });
    // Each is copied to be written: what stands in several of them is so several times.
    fields_are_flat && any_is_flat(message, left / 2, budget)
}

/// Whether the message in an `Any` is flat, if this is one whose message is described.
fn any_is_flat(message: &DynamicMessage, left: usize, budget: &mut Budget) -> bool {
    let Some((kind, bytes)) = held_by_any(message) else {
        return true;
    };
    read_within(&kind, &bytes, left, budget).is_some()
}

/// The message in an `Any`, and its kind.
fn held_by_any(message: &DynamicMessage) -> Option<(MessageDescriptor, Bytes)> {
    let kind = message.descriptor();
    if kind.full_name() != "google.protobuf.Any" {
        return None;
    }
    let name = message.get_field_by_name("type_url")?;
    let name = name.as_str()?.rsplit('/').next()?.to_owned();
    let value = message.get_field_by_name("value")?;
    let kind = kind.parent_pool().get_message_by_name(&name)?;
    Some((kind, value.as_bytes()?.clone()))
}
