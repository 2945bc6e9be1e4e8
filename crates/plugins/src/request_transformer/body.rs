//! Rules on bodies: of JSON objects and of forms. Others pass as they are.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use pingora::http::RequestHeader;

use super::config::Text;
use super::query::QueryRules;
use crate::json_object::{JsonObject, quoted};

/// What a body is, as its type says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyType {
    Json,
    Form,
}

impl BodyType {
    /// What the request says of its body.
    pub(super) fn of(request: &RequestHeader) -> Option<Self> {
        let value = request.headers.get(CONTENT_TYPE)?.to_str().ok()?;
        let value = value.to_ascii_lowercase();
        if value.contains("application/json") {
            Some(Self::Json)
        } else if value.contains("application/x-www-form-urlencoded") {
            Some(Self::Form)
        } else {
            None
        }
    }
}

/// The body after the rules; `None`: it stays as it is, since it is not what its
/// type says.
pub(super) fn apply<'a>(
    rules: &'a QueryRules,
    body_type: BodyType,
    body: &Bytes,
    text: impl Fn(&'a Text) -> &'a str,
) -> Option<Bytes> {
    let changed = match body_type {
        BodyType::Form => {
            let form = std::str::from_utf8(body).ok()?;
            rules.apply_to(form, text)
        }
        BodyType::Json => json(rules, body, text)?,
    };
    (changed.as_bytes() != &body[..]).then(|| changed.into())
}

fn json<'a>(
    rules: &'a QueryRules,
    body: &[u8],
    text: impl Fn(&'a Text) -> &'a str,
) -> Option<String> {
    let nothing = body.iter().all(u8::is_ascii_whitespace);
    let mut object = match nothing {
        true if rules.add.is_empty() && rules.append.is_empty() => return None,
        true => JsonObject::empty(),
        false => JsonObject::parse(body)?,
    };
    for name in &rules.remove {
        object.remove(name);
    }
    for (old, new) in &rules.rename {
        object.rename(old, text(new));
    }
    for (name, value) in &rules.replace {
        object.replace(name, quoted(text(value)));
    }
    for (name, value) in &rules.add {
        object.add(name, quoted(text(value)));
    }
    for (name, value) in &rules.append {
        object.append(name, &quoted(text(value)));
    }
    Some(object.write())
}

/// The parameters of a form as those of a query; `None`: there are none.
pub(super) fn as_query(body: &Bytes) -> Option<String> {
    let form = std::str::from_utf8(body).ok()?;
    let query = super::query::rewritten(form);
    (!query.is_empty()).then_some(query)
}
