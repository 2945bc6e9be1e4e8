//! Lists: paging and filters (gateway-admin-api §3).
//!
//! A list has the stored records alone: tools that bring a gateway to a wanted
//! state delete whatever else is listed, and a declared record can only be
//! deleted in its file. With `declared=true` the declared ones are there, too.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde_json::{Map, Number, Value, json};
use uuid::Uuid;

use super::error::ApiError;
use super::reply;
use doorward_gateway::entities::{Entities, Kind, Origin, Record};
use doorward_gateway::records::{Disclosure, Resource};

pub(super) const DEFAULT_SIZE: usize = 100;
pub(super) const MAX_SIZE: usize = 1000;
const MAX_TAGS: usize = 5;

/// What names the file of a declared record.
pub(super) const DECLARED_IN: &str = "declared_in";

/// What a list was asked for.
#[derive(Debug, Default)]
pub(super) struct Page {
    size: Option<usize>,
    after: Option<Uuid>,
    tags: Option<Tags>,
    search: Option<Search>,
    scope: Scope,
    /// Query parameters as sent, decoded.
    query: Vec<(String, String)>,
}

/// Which records an answer tells of, by their origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Scope {
    /// Those of the store.
    #[default]
    Stored,
    /// Those that files declare as well, each with its file.
    Declared,
}

impl Scope {
    /// The query parameter.
    pub(super) const NAME: &str = "declared";

    /// Reads the query parameter.
    ///
    /// # Errors
    /// If its value is neither yes nor no.
    pub(super) fn of(query: &[(String, String)]) -> Result<Self, ApiError> {
        let given = query.iter().find(|(name, _)| name == Self::NAME);
        match given.map(|(_, value)| value.as_str()) {
            None | Some("false" | "0") => Ok(Self::Stored),
            Some("true" | "1") => Ok(Self::Declared),
            Some(_) => Err(ApiError::Option {
                option: Self::NAME.into(),
                message: "expected true or false".into(),
            }),
        }
    }

    /// Whether a list has records of this origin.
    pub(super) fn admits(self, origin: &Origin) -> bool {
        self == Self::Declared || *origin == Origin::Store
    }

    /// The record as the Admin API shows it; with its file and the line, if that was
    /// asked for and it has one.
    pub(super) fn show<T: Resource>(
        self,
        record: &Record<T>,
        entities: &Entities,
        disclosure: Disclosure,
    ) -> Map<String, Value> {
        let mut shown = T::show(record, entities, disclosure);
        if let (Self::Declared, Origin::File(file)) = (self, &record.origin) {
            shown.insert(DECLARED_IN.to_owned(), file.display().to_string().into());
            let line = entities.line(record);
            shown.extend(line.map(|line| ("declared_line".to_owned(), line.into())));
        }
        shown
    }
}

#[derive(Debug)]
struct Tags {
    all: bool,
    tags: Vec<String>,
    text: String,
}

impl Page {
    /// Reads the query parameters.
    ///
    /// # Errors
    /// For a size, an offset or tags that make no sense.
    pub(super) fn of(query: Vec<(String, String)>) -> Result<Self, ApiError> {
        let find = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, v)| v);
        Ok(Self {
            size: find("size").map(|text| size(text)).transpose()?,
            after: find("offset").map(|text| offset(text)).transpose()?,
            tags: find("tags").map(|text| tags(text)).transpose()?,
            search: find(Search::NAME).and_then(|text| Search::of(text)),
            scope: Scope::of(&query)?,
            query,
        })
    }

    /// The same, with all records where nobody says how many.
    pub(super) fn or_whole(self) -> Self {
        let size = self.size.or(Some(usize::MAX));
        Self { size, ..self }
    }

    /// One page of the records, or of those that refer to `owner` by a field.
    /// `path` is that of the list; a nested list's `next` repeats neither tags
    /// nor size.
    pub(super) fn answer<T: Resource>(
        &self,
        entities: &Entities,
        path: &str,
        owner: Option<(&'static str, Uuid)>,
        disclosure: Disclosure,
    ) -> Response {
        let show = |record: &Record<T>| self.scope.show(record, entities, disclosure);
        let body = self.body_of(entities, path, owner, disclosure, show);
        reply::json(StatusCode::OK, &body)
    }

    /// The same page as a body in which `show` says what stands for a record.
    pub(super) fn body_of<T: Resource>(
        &self,
        entities: &Entities,
        path: &str,
        owner: Option<(&'static str, Uuid)>,
        disclosure: Disclosure,
        show: impl Fn(&Record<T>) -> Map<String, Value>,
    ) -> Value {
        let size = self.size.unwrap_or(DEFAULT_SIZE);
        let fields = self.field_filters::<T>();
        let admitted = |record: &&Arc<Record<T>>| {
            let tags = record.value.tags();
            // As in the imitated gateway, tags choose among all records only.
            let chosen = |wanted: &Tags| owner.is_some() || wanted.admit(tags);
            self.scope.admits(&record.origin)
                && !record.value.is_over(disclosure.now_ms)
                && self.tags.as_ref().is_none_or(chosen)
                && self.search.as_ref().is_none_or(|search| {
                    let shown = show(record);
                    search.admits(&shown)
                })
                && (fields.is_empty() || {
                    let shown = T::show(record, entities, disclosure);
                    let fits = |(key, wanted): &(&str, &str)| shown_as(&shown, key, wanted);
                    fields.iter().all(fits)
                })
        };
        let all = |after| -> Box<dyn Iterator<Item = &Arc<Record<T>>>> {
            match owner {
                Some((field, id)) => Box::new(T::table(entities).referring(field, id, after)),
                None => Box::new(T::table(entities).after(after)),
            }
        };
        let mut found = all(self.after).filter(admitted);
        let mut last = None;
        let data: Vec<Value> = found
            .by_ref()
            .take(size)
            .map(|record| {
                last = Some(record.value.id());
                Value::Object(show(record))
            })
            .collect();
        let more = last.filter(|_| found.next().is_some());
        let mut body = json!({"data": data, "next": null});
        if let Some(last) = more {
            let offset = STANDARD.encode(format!("[\"{last}\"]"));
            body["next"] = self.next(path, &offset, owner.is_some()).into();
            body["offset"] = offset.into();
        }
        // An empty list of upstreams or targets has none in either dialect.
        let silent = matches!(T::KIND, Kind::Upstream | Kind::Target);
        if T::LEGACY_LIST && !(silent && last.is_none()) {
            body["total"] = all(None).filter(admitted).count().into();
        }
        body
    }

    /// In the older dialect any other parameter is an equality filter.
    fn field_filters<T: Resource>(&self) -> Vec<(&str, &str)> {
        let own = ["size", "offset", "tags", Search::NAME, Scope::NAME];
        self.query
            .iter()
            .filter(|(key, _)| T::LEGACY_LIST && !own.contains(&key.as_str()))
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect()
    }

    fn next(&self, path: &str, offset: &str, nested: bool) -> String {
        let encode = |text: &str| -> String {
            url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
        };
        let mut next = format!("{path}?offset={}", encode(offset));
        if !nested {
            if let Some(tags) = &self.tags {
                let _ = write!(next, "&tags={}", encode(&tags.text));
            }
            if let Some(size) = self.size {
                let _ = write!(next, "&size={size}");
            }
        }
        if let Some(search) = &self.search {
            let _ = write!(next, "&{}={}", Search::NAME, encode(&search.text));
        }
        if self.scope == Scope::Declared {
            let _ = write!(next, "&{}=true", Scope::NAME);
        }
        next
    }
}

/// A text that records are looked for by.
#[derive(Debug)]
struct Search {
    text: String,
    lower: String,
}

impl Search {
    /// The query parameter.
    const NAME: &str = "q";
    /// Longest text, in bytes; the rest is not looked for.
    const MAX: usize = 256;

    /// `None` for an empty text, which every record has.
    fn of(text: &str) -> Option<Self> {
        let text = text.trim();
        let end = text.floor_char_boundary(Self::MAX);
        let text = text[..end].to_owned();
        let lower = text.to_lowercase();
        (!text.is_empty()).then_some(Self { text, lower })
    }

    /// Whether a record has the text in a field of texts or in a list of them,
    /// whatever the case. What lies deeper, such as a plugin's configuration, does
    /// not count.
    fn admits(&self, record: &Map<String, Value>) -> bool {
        let fits = |text: &str| text.to_lowercase().contains(&self.lower);
        record.values().any(|value| match value {
            // Nobody looks for a certificate by a piece of its text.
            Value::String(text) => text.len() <= 1024 && fits(text),
            Value::Array(list) => list.iter().filter_map(Value::as_str).any(fits),
            _ => false,
        })
    }
}

impl Tags {
    fn admit(&self, own: &[String]) -> bool {
        let has = |tag: &String| own.contains(tag);
        if self.all {
            self.tags.iter().all(has)
        } else {
            self.tags.iter().any(has)
        }
    }
}

/// Whether a field is shown as this text; unknown fields filter nothing out.
fn shown_as(doc: &Map<String, Value>, key: &str, wanted: &str) -> bool {
    match doc.get(key) {
        Some(Value::String(text)) => text == wanted,
        Some(Value::Bool(value)) => wanted.parse() == Ok(*value),
        Some(Value::Number(value)) => wanted.parse().is_ok_and(|wanted: Number| wanted == *value),
        Some(_) => true,
        // An unset reference has no flat form.
        None => !matches!(
            key,
            "service_id" | "route_id" | "consumer_id" | "consumer_group_id"
        ),
    }
}

pub(super) fn size(text: &str) -> Result<usize, ApiError> {
    let number: f64 = text
        .parse()
        .map_err(|_| ApiError::Size("size must be a number"))?;
    let whole = text.parse::<usize>().ok();
    match whole {
        Some(size) if (1..=MAX_SIZE).contains(&size) && number.is_finite() => Ok(size),
        _ => Err(ApiError::Size("size must be an integer between 1 and 1000")),
    }
}

pub(super) fn offset(text: &str) -> Result<Uuid, ApiError> {
    STANDARD
        .decode(text)
        .ok()
        .and_then(|bytes| serde_json::from_slice::<[Uuid; 1]>(&bytes).ok())
        .map(|[id]| id)
        .ok_or_else(|| ApiError::Offset(text.to_owned()))
}

fn tags(text: &str) -> Result<Tags, ApiError> {
    let wrong = |message| ApiError::Option {
        option: "tags".into(),
        message: Cow::Borrowed(message),
    };
    if text.is_empty() {
        return Err(wrong("cannot be null"));
    }
    let any = text.contains('/');
    if any && text.contains(',') {
        return Err(wrong("invalid filter syntax"));
    }
    let tags: Vec<String> = text
        .split(if any { '/' } else { ',' })
        .map(str::to_owned)
        .collect();
    if tags.iter().any(String::is_empty) {
        return Err(wrong("invalid filter syntax"));
    }
    if tags.len() > MAX_TAGS {
        return Err(wrong("cannot query more than 5 tags"));
    }
    Ok(Tags {
        all: !any,
        tags,
        text: text.to_owned(),
    })
}
