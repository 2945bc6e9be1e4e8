//! Rules on JSON bodies of answers.

use bytes::{Bytes, BytesMut};
use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderName,
};
use pingora::http::ResponseHeader;

use super::{Config, JsonType, Values};
use crate::json_object::{JsonObject, quoted};
use doorward_plugin_api::filter::BodyFilter;

/// Longest body that is changed; longer ones pass as they are.
pub(super) const MAX_BODY: usize = 8 << 20;

/// Digests of a body, which is another one afterwards.
const DIGESTS: [HeaderName; 3] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
];

/// Rules on the members of a JSON object. Values are as JSON writes them.
#[derive(Debug, Default)]
pub(super) struct JsonRules {
    remove: Box<[Box<str>]>,
    rename: Box<[(Box<str>, Box<str>)]>,
    replace: Box<[(Box<str>, Box<str>)]>,
    add: Box<[(Box<str>, Box<str>)]>,
    append: Box<[(Box<str>, Box<str>)]>,
    /// Rules without effect.
    pub(super) warnings: Vec<String>,
}

impl JsonRules {
    /// The rules of a configuration.
    pub(super) fn new(config: &Config) -> Self {
        let mut warnings = Vec::new();
        let pair = |text: &'_ str| -> (Box<str>, Box<str>) {
            let (name, value) = text.split_once(':').unwrap_or((text, ""));
            (name.into(), value.into())
        };
        let mut values = |operation: &str, rules: &Values| -> Box<[_]> {
            let mut types = rules.json_types.iter().copied();
            let entries = rules.json.iter().filter_map(|text| {
                let (name, value) = pair(text);
                let value = typed(&value, types.next());
                if value.is_none() {
                    warnings.push(format!(
                        "{operation}.json: '{text}' has no effect: no number"
                    ));
                }
                Some((name, value?))
            });
            entries.collect()
        };
        let replace = values("replace", &config.replace);
        let add = values("add", &config.add);
        let append = values("append", &config.append);
        Self {
            replace,
            add,
            append,
            remove: config.remove.json.clone().into(),
            rename: config.rename.json.iter().map(|text| pair(text)).collect(),
            warnings,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.remove.is_empty()
            && self.rename.is_empty()
            && self.replace.is_empty()
            && self.add.is_empty()
            && self.append.is_empty()
    }

    /// A whole body after the rules; `None`: it stays.
    pub(super) fn changed(&self, body: &Bytes) -> Option<Bytes> {
        let fits = !self.is_empty() && body.len() <= MAX_BODY;
        fits.then(|| self.apply(body)).flatten().map(Bytes::from)
    }

    /// The body after the rules; `None`: it is no JSON object, and stays.
    fn apply(&self, body: &[u8]) -> Option<String> {
        let mut object = JsonObject::parse(body)?;
        for name in &self.remove {
            object.remove(name);
        }
        for (old, new) in &self.rename {
            object.rename(old, new);
        }
        for (name, value) in &self.replace {
            object.replace(name, value.to_string());
        }
        for (name, value) in &self.add {
            object.add(name, value.to_string());
        }
        for (name, value) in &self.append {
            object.append(name, value);
        }
        Some(object.write())
    }
}

/// A value of this type as JSON; `None`: it is no number.
fn typed(value: &str, json_type: Option<JsonType>) -> Option<Box<str>> {
    match json_type {
        Some(JsonType::Number) => {
            let number: serde_json::Number = serde_json::from_str(value.trim()).ok()?;
            Some(number.to_string().into())
        }
        Some(JsonType::Boolean) => Some(if value == "true" { "true" } else { "false" }.into()),
        Some(JsonType::Text) | None => Some(quoted(value).into()),
    }
}

/// Whether a media type is JSON, by itself or by its suffix (RFC 6839 §3.1).
fn is_json(essence: &str) -> bool {
    let essence = essence.to_ascii_lowercase();
    let subtype = essence.strip_prefix("application/");
    subtype.is_some_and(|subtype| subtype == "json" || subtype.ends_with("+json"))
}

/// Whether the body of an answer can be changed. If so, its head no longer says
/// what is about the old one.
pub(super) fn prepare(response: &mut ResponseHeader) -> bool {
    let headers = &response.headers;
    let is_json = headers.get_all(CONTENT_TYPE).iter().any(|value| {
        let essences = value.to_str().unwrap_or_default().split([',', ';']);
        essences.map(str::trim).any(is_json)
    });
    let encoded = headers.get_all(CONTENT_ENCODING).iter();
    let encoded = encoded
        .into_iter()
        .any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"));
    let length = headers.get(CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    let fits = length.is_none_or(|length| length > 0 && length <= MAX_BODY);
    if !is_json || encoded || !fits || headers.contains_key(CONTENT_RANGE) {
        return false;
    }
    response.remove_header(&CONTENT_LENGTH);
    response.remove_header(&ACCEPT_RANGES);
    for name in &DIGESTS {
        response.remove_header(name);
    }
    true
}

/// Holds a body back until it is whole.
pub(super) struct Change {
    rules: std::sync::Arc<JsonRules>,
    whole: BytesMut,
    /// Whether the body has turned out too long: what follows passes as it is.
    passes: bool,
}

impl Change {
    pub(super) fn new(rules: std::sync::Arc<JsonRules>) -> Self {
        Self {
            rules,
            whole: BytesMut::new(),
            passes: false,
        }
    }
}

impl BodyFilter for Change {
    fn piece(&mut self, body: &mut Option<Bytes>, end: bool) {
        if self.passes {
            return;
        }
        if let Some(piece) = body.take() {
            self.whole.extend_from_slice(&piece);
        }
        self.passes = end || self.whole.len() > MAX_BODY;
        if !self.passes {
            return;
        }
        let whole = std::mem::take(&mut self.whole).freeze();
        let changed = end.then(|| self.rules.changed(&whole)).flatten();
        *body = Some(changed.unwrap_or(whole));
    }
}
