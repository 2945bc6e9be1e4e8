//! Rules on bodies: of JSON objects and of forms, also in parts. Others pass as they are.

use std::borrow::Cow;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;

use super::config::Text;
use super::query::QueryRules;
use crate::json_object::{JsonObject, quoted};
use doorward_net::http::multipart::{self, MultipartError};

/// What a body is, as its type says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyType {
    Json,
    Form,
    Multipart,
}

impl BodyType {
    /// What the fields of a request say of its body.
    pub(super) fn of(fields: &HeaderMap) -> Option<Self> {
        let value = fields.get(CONTENT_TYPE)?.to_str().ok()?;
        let value = value.to_ascii_lowercase();
        if value.contains("application/json") {
            Some(Self::Json)
        } else if value.contains("multipart/form-data") {
            Some(Self::Multipart)
        } else if value.contains("application/x-www-form-urlencoded") {
            Some(Self::Form)
        } else {
            None
        }
    }
}

/// The body after the rules; `None`: it stays as it is, since it is not what its
/// type says.
///
/// # Errors
/// It is a form in parts that others may read in another way: who knows which parts
/// the rules would miss.
pub(super) fn apply<'a>(
    rules: &'a QueryRules,
    (body_type, content_type): (BodyType, &str),
    body: &'a Bytes,
    text: impl Fn(&'a Text) -> &'a str,
) -> Result<Option<Bytes>, MultipartError> {
    let changed = match body_type {
        BodyType::Form => {
            let form = std::str::from_utf8(body).ok();
            form.map(|form| rules.apply_to(form, text).into_bytes())
        }
        BodyType::Json => json(rules, body, text).map(String::into_bytes),
        BodyType::Multipart => in_parts(rules, content_type, body, text)?,
    };
    let other = changed.filter(|changed| changed[..] != body[..]);
    Ok(other.map(Bytes::from))
}

/// A part as it is written: its fields, its name and what it holds.
type Part<'a> = (Cow<'a, str>, &'a str, &'a [u8]);

/// The parts after the rules; `None`: no rule is about one of them. The imitated
/// gateway renames parts before it removes any, and appends none; what it changes is a
/// plain value afterwards. It changes one of several parts of a name, and so lets the
/// others through.
fn in_parts<'a>(
    rules: &'a QueryRules,
    content_type: &str,
    body: &'a [u8],
    text: impl Fn(&'a Text) -> &'a str,
) -> Result<Option<Vec<u8>>, MultipartError> {
    let boundary = multipart::boundary(content_type)?;
    let mut all: Vec<Part<'a>> = Vec::new();
    if !body.is_empty() {
        let parts = multipart::parts(boundary, body)?;
        all.extend(
            parts
                .iter()
                .map(|part| (part.head.into(), part.name, part.value)),
        );
    }
    let plain = |name: &'a str, value| (Cow::Owned(multipart::plain_head(name)), name, value);
    let has = |all: &[Part<'_>], name: &str| all.iter().any(|part| part.1 == name);
    let mut changed = false;
    for (old, new) in &rules.rename {
        let new = text(new);
        if **old == *new || !has(&all, old) {
            continue;
        }
        all.retain(|part| part.1 != new);
        for part in all.iter_mut().filter(|part| *part.1 == **old) {
            *part = plain(new, part.2);
        }
        changed = true;
    }
    for name in &rules.remove {
        changed |= has(&all, name);
        all.retain(|part| *part.1 != **name);
    }
    for (name, value) in &rules.replace {
        if has(&all, name) {
            all.retain(|part| *part.1 != **name);
            all.push(plain(name, text(value).as_bytes()));
            changed = true;
        }
    }
    for (name, value) in &rules.add {
        if !has(&all, name) {
            all.push(plain(name, text(value).as_bytes()));
            changed = true;
        }
    }
    let parts = all.iter().map(|(head, _, value)| (&**head, *value));
    changed
        .then(|| multipart::written(boundary, parts))
        .transpose()
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
