//! What a client asks of an answer: which records, in what order, what of them.
//! It says so in the address, or in the body of a search (RFC 7644 §3.4.3).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::body::member;
use super::filter;
use super::projection::Projection;
use crate::error::ScimError;
use crate::form::Form;
use doorward_core::model::query::{Filter, SortKey, UserQuery};
use doorward_core::model::user::schema::{Schema, Type, strip_urn};

/// Most records of one answer, and how many come when the client does not say.
pub(super) const PAGE_MAX: u32 = 1000;

/// Most attributes to sort by.
const SORT_MAX: usize = 3;

/// The URN of a search in a body.
const SEARCH_URN: &str = "urn:ietf:params:scim:api:messages:2.0:SearchRequest";

/// The parameters that there are, as names of an address or of a body.
const NAMES: [&str; 14] = [
    "attributes",
    "count",
    "excludedAttributes",
    "filter",
    "schemas",
    "sortBy",
    "sortOrder",
    "startIndex",
    "_fields",
    "_pagedResultsCookie",
    "_pagedResultsOffset",
    "_pageSize",
    "_queryFilter",
    "_sortKeys",
];

/// The parameter that `name` is, in whatever case.
fn known(name: &str) -> Option<&'static str> {
    let mut names = NAMES.into_iter();
    names.find(|known| known.eq_ignore_ascii_case(name))
}

/// What begins a cookie that counts, rather than names the last record: no name
/// can.
const COUNTS: char = '\u{1}';

/// A query, read.
#[derive(Debug)]
pub(super) struct ListQuery {
    pub(super) filter: Filter,
    pub(super) sort: Vec<SortKey>,
    pub(super) projection: Projection,
    pub(super) limit: u32,
    pub(super) skip: u32,
    after: Option<String>,
    /// `startIndex` as it counts, if the client speaks of it.
    pub(super) start: Option<u32>,
}

fn wrong(text: impl Into<String>) -> ScimError {
    ScimError::bad("invalidValue", text)
}

/// The parameters by name. Whoever asks for a part must not be told everything
/// because of a capital letter.
struct Parameters(Vec<(&'static str, String)>);

impl Parameters {
    /// What else an address has is not for us: it may be meant for others on the
    /// way.
    fn of_query(query: &str) -> Result<Self, ScimError> {
        let form = Form::parse(query.as_bytes()).map_err(|error| wrong(error.to_string()))?;
        let mut read = Self(Vec::new());
        for (name, value) in form.pairs() {
            if let Some(name) = known(name) {
                read.put(name, value.to_owned())?;
            }
        }
        Ok(read)
    }

    fn of_body(body: &Map<String, Value>) -> Result<Self, ScimError> {
        let syntax = |text: String| ScimError::bad("invalidSyntax", text);
        let schemas = member(body, "schemas").and_then(Value::as_array);
        let is_search = |urn: &Value| {
            urn.as_str()
                .is_some_and(|urn| urn.eq_ignore_ascii_case(SEARCH_URN))
        };
        if !schemas.is_some_and(|schemas| schemas.iter().any(is_search)) {
            return Err(syntax(format!("schemas must hold {SEARCH_URN}")));
        }
        let mut read = Self(Vec::new());
        for (name, value) in body {
            let known = known(name);
            let value = match value {
                Value::Null => continue,
                _ if known.is_none() => {
                    return Err(syntax(format!("{name:.100} is no member of a search")));
                }
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                Value::Array(_) if known == Some("schemas") => String::new(),
                Value::Array(texts) => {
                    let texts: Option<Vec<_>> = texts.iter().map(Value::as_str).collect();
                    let texts = texts.ok_or_else(|| wrong(format!("{name} must hold strings")))?;
                    texts.join(",")
                }
                _ => return Err(wrong(format!("{name} must be a string, number or array"))),
            };
            if let Some(known) = known {
                read.put(known, value)?;
            }
        }
        Ok(read)
    }

    fn put(&mut self, name: &'static str, value: String) -> Result<(), ScimError> {
        if self.0.iter().any(|(known, _)| *known == name) {
            let text = format!("{name} is given twice");
            return Err(ScimError::bad("invalidSyntax", text));
        }
        self.0.push((name, value));
        Ok(())
    }

    fn get(&self, name: &str) -> Option<&str> {
        let pair = self.0.iter().find(|(known, _)| *known == name);
        pair.map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    fn number(&self, name: &str) -> Result<Option<i64>, ScimError> {
        let parse = |text: &str| text.parse::<i64>();
        let number = self.get(name).map(parse).transpose();
        number.map_err(|_| wrong(format!("{name} must be an integer")))
    }
}

impl ListQuery {
    /// What the query part of an address asks.
    pub(super) fn of_query(schema: &'static Schema, query: &str) -> Result<Self, ScimError> {
        Self::read(schema, &Parameters::of_query(query)?)
    }

    /// What the body of a search asks.
    pub(super) fn of_body(
        schema: &'static Schema,
        body: &Map<String, Value>,
    ) -> Result<Self, ScimError> {
        Self::read(schema, &Parameters::of_body(body)?)
    }

    fn read(schema: &'static Schema, parameters: &Parameters) -> Result<Self, ScimError> {
        let filter = parameters
            .get("filter")
            .or_else(|| parameters.get("_queryFilter"));
        let filter = match filter {
            Some(text) => filter::parse(schema, text)
                .map_err(|error| ScimError::bad("invalidFilter", error.to_string()))?,
            None => Filter::Always,
        };
        let clamp = |value: i64| u32::try_from(value.max(0)).unwrap_or(u32::MAX);
        let (count, size) = (parameters.number("count")?, parameters.number("_pageSize")?);
        let start = parameters.number("startIndex")?;
        let offset = parameters.number("_pagedResultsOffset")?;
        let cookie = parameters.get("_pagedResultsCookie");
        if cookie.is_some() && offset.is_some() {
            let text =
                "The parameters _pagedResultsOffset and _pagedResultsCookie are mutually exclusive";
            return Err(wrong(text));
        }
        if cookie.is_some() && size.is_none_or(|size| size <= 0) {
            return Err(wrong(
                "_pagedResultsCookie needs a _pageSize greater than 0",
            ));
        }
        // A page of the imitated kind without a size, or of size 0, has no bound.
        let size = size.filter(|size| *size > 0);
        let start = start.map(|start| clamp(start).max(1));
        let place = cookie.map(decode_cookie).transpose()?;
        let counted = place
            .as_deref()
            .and_then(|place| place.strip_prefix(COUNTS));
        let counted = counted.and_then(|count| count.parse::<u32>().ok());
        Ok(Self {
            filter,
            sort: sort(schema, parameters)?,
            projection: Projection::read(
                schema,
                parameters
                    .get("attributes")
                    .or_else(|| parameters.get("_fields")),
                parameters.get("excludedAttributes"),
            ),
            limit: count.or(size).map_or(PAGE_MAX, clamp).min(PAGE_MAX),
            skip: start
                .map(|start| start - 1)
                .or(offset.map(clamp))
                .or(counted)
                .unwrap_or(0),
            after: place.filter(|place| !place.starts_with(COUNTS)),
            start,
        })
    }

    /// The query for the store, of records that satisfy `within` as well.
    pub(super) fn query(&self, within: Filter) -> UserQuery {
        let filter = match (within, &self.filter) {
            (Filter::Always, wanted) => wanted.clone(),
            (within, wanted) => Filter::And(vec![within, wanted.clone()]),
        };
        UserQuery {
            filter,
            sort: self.sort.clone(),
            after: self.after.clone(),
            skip: self.skip,
            limit: self.limit,
        }
    }

    /// The cookie of the page after one of `sent` records, the last of which has
    /// this key.
    pub(super) fn cookie(&self, sent: usize, last: &str) -> String {
        let place = if self.sort.is_empty() {
            last.to_owned()
        } else {
            let sent = u32::try_from(sent).unwrap_or(u32::MAX);
            format!("{COUNTS}{}", self.skip.saturating_add(sent))
        };
        URL_SAFE_NO_PAD.encode(place)
    }
}

fn decode_cookie(cookie: &str) -> Result<String, ScimError> {
    let bytes = URL_SAFE_NO_PAD.decode(cookie).ok();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.filter(|text| !text.contains('\0'));
    text.ok_or_else(|| wrong("_pagedResultsCookie is not one of ours"))
}

/// `sortBy` with `sortOrder`, or `_sortKeys`.
fn sort(schema: &'static Schema, parameters: &Parameters) -> Result<Vec<SortKey>, ScimError> {
    let mut keys = Vec::new();
    if let Some(name) = parameters.get("sortBy") {
        let descending = match parameters.get("sortOrder") {
            None => false,
            Some(order) if order.eq_ignore_ascii_case("ascending") => false,
            Some(order) if order.eq_ignore_ascii_case("descending") => true,
            Some(_) => return Err(wrong("sortOrder must be ascending or descending")),
        };
        keys.push((name, descending));
    } else if let Some(names) = parameters.get("_sortKeys") {
        for name in names.split(',') {
            // A plus that nobody escaped has become a blank.
            let bare = name.trim_start_matches([' ', '+']);
            match bare.strip_prefix('-') {
                Some(bare) => keys.push((bare, true)),
                None => keys.push((bare, false)),
            }
        }
    }
    if keys.len() > SORT_MAX {
        return Err(wrong(format!("more than {SORT_MAX} attributes to sort by")));
    }
    let resolve = |(name, descending): (&str, bool)| {
        let bare = strip_urn(name, schema.urn).unwrap_or(name);
        let path = bare.trim_start_matches('/').replace('/', ".");
        let unknown = || ScimError::bad("invalidPath", format!("{name:.100} can't be sorted by"));
        let found = schema.find(&path).ok_or_else(unknown)?;
        // Of values with parts the value counts (RFC 7644 §3.4.2.3).
        let attribute = match found.kind {
            Type::ComplexMany => schema.part(found, "value").ok_or_else(unknown)?,
            Type::Complex | Type::Free => return Err(unknown()),
            _ => found,
        };
        Ok(SortKey {
            attribute,
            descending,
        })
    };
    let keys: Result<Vec<SortKey>, _> = keys.into_iter().map(resolve).collect();
    // By name is the order that there is anyway, and the one with the cheap pages.
    keys.map(|keys| match keys.as_slice() {
        [one]
            if ["userName", "displayName"].contains(&one.attribute.path)
                && is_natural(schema, one) =>
        {
            Vec::new()
        }
        _ => keys,
    })
}

/// Whether records of `schema` come in this order by themselves.
fn is_natural(schema: &Schema, key: &SortKey) -> bool {
    let of_users = schema.find("userName").is_some();
    !key.descending && (key.attribute.path == "userName") == of_users
}
