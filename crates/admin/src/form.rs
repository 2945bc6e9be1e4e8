//! Keys of forms, `config.rates[1].unit`, to nested values.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::error::ApiError;

/// Deepest nesting that a key may ask for.
const MAX_DEPTH: usize = 16;

/// A form value under construction.
#[derive(Debug, Default)]
pub(super) enum Node {
    #[default]
    Empty,
    /// One text.
    Text(String),
    /// A value that came with its type.
    Typed(Value),
    /// `x=1&x=2` or `x[]=1`.
    List(Vec<Node>),
    /// `x[1]=…`; gaps close.
    Indexed(BTreeMap<u32, Node>),
    /// `x.y=…` or `x[y]=…`.
    Map(BTreeMap<String, Node>),
}

enum Segment {
    Key(String),
    Index(u32),
    Push,
}

/// Puts a value at the place that `key` names.
///
/// # Errors
/// If something else stands there already, or the key is too deep.
pub(super) fn insert(root: &mut Node, key: &str, value: Node) -> Result<(), String> {
    let segments = segments(key);
    if segments.len() > MAX_DEPTH {
        return Err(format!("key nests deeper than {MAX_DEPTH} levels"));
    }
    let mut node = root;
    for segment in segments {
        node = match step(node, segment) {
            Some(inner) => inner,
            None => return Err(format!("'{key}' contradicts an earlier value")),
        };
    }
    match std::mem::take(node) {
        Node::Empty => *node = value,
        Node::List(mut list) => {
            list.push(value);
            *node = Node::List(list);
        }
        first @ (Node::Text(_) | Node::Typed(_)) => *node = Node::List(vec![first, value]),
        Node::Indexed(_) | Node::Map(_) => {
            return Err(format!("'{key}' contradicts an earlier value"));
        }
    }
    Ok(())
}

fn step(node: &mut Node, segment: Segment) -> Option<&mut Node> {
    if matches!(node, Node::Empty) {
        *node = match &segment {
            Segment::Key(_) => Node::Map(BTreeMap::new()),
            Segment::Index(_) => Node::Indexed(BTreeMap::new()),
            Segment::Push => Node::List(Vec::new()),
        };
    }
    match (node, segment) {
        (Node::Map(map), Segment::Key(key)) => Some(map.entry(key).or_default()),
        (Node::Indexed(map), Segment::Index(index)) => Some(map.entry(index).or_default()),
        (Node::List(list), Segment::Push) => {
            list.push(Node::Empty);
            list.last_mut()
        }
        // `x=1&x[]=2`: the first was the first of a list.
        (node @ (Node::Text(_) | Node::Typed(_)), Segment::Push) => {
            let first = std::mem::take(node);
            *node = Node::List(vec![first, Node::Empty]);
            match node {
                Node::List(list) => list.last_mut(),
                _ => None,
            }
        }
        _ => None,
    }
}

/// `a.b[1].c[x][]` apart. A key that is not built so is one segment.
fn segments(key: &str) -> Vec<Segment> {
    parsed(key).unwrap_or_else(|| vec![Segment::Key(key.to_owned())])
}

fn parsed(key: &str) -> Option<Vec<Segment>> {
    let mut segments = Vec::new();
    for part in key.split('.') {
        let (name, mut rest) = match part.find('[') {
            Some(at) => part.split_at(at),
            None => (part, ""),
        };
        if name.is_empty() {
            return None;
        }
        segments.push(Segment::Key(name.to_owned()));
        while !rest.is_empty() {
            let (inside, after) = rest.strip_prefix('[')?.split_once(']')?;
            segments.push(match inside {
                "" => Segment::Push,
                digits if digits.bytes().all(|b| b.is_ascii_digit()) => {
                    Segment::Index(digits.parse().ok()?)
                }
                name => Segment::Key(name.to_owned()),
            });
            rest = after;
        }
    }
    Some(segments)
}

impl Node {
    /// The root as an object.
    pub(super) fn into_map(self) -> Map<String, Value> {
        match self.into_value() {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }

    fn into_value(self) -> Value {
        match self {
            Node::Empty => Value::Null,
            Node::Text(text) => Value::String(text),
            Node::Typed(value) => value,
            Node::List(list) => list.into_iter().map(Node::into_value).collect(),
            Node::Indexed(map) => map.into_values().map(Node::into_value).collect(),
            Node::Map(map) => map
                .into_iter()
                .map(|(key, node)| (key, node.into_value()))
                .collect(),
        }
    }
}

/// `text` with its percent-encodings decoded, and with `plus` for spaces.
///
/// # Errors
/// For broken encodings and for what is not UTF-8.
pub(super) fn decoded(text: &str, plus: bool) -> Result<String, ApiError> {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'+' if plus => out.push(b' '),
            b'%' => {
                let digit = |at: usize| {
                    let digit = char::from(*bytes.get(at)?).to_digit(16)?;
                    u8::try_from(digit).ok()
                };
                let (Some(high), Some(low)) = (digit(at), digit(at + 1)) else {
                    return Err(ApiError::Form("broken percent-encoding".to_owned()));
                };
                out.push(high << 4 | low);
                at += 2;
            }
            byte => out.push(byte),
        }
    }
    String::from_utf8(out).map_err(|_| ApiError::Form("not UTF-8".to_owned()))
}
