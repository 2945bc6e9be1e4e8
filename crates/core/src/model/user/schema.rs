//! Records by their schema: how attributes are called and what values they
//! have, and what of them the store indexes for filters.

use serde_json::{Map, Value, json};

use super::{fold, name};

pub use super::attributes::{ENTERPRISE, ENTERPRISE_URN, GROUP, GROUP_URN, USER, USER_URN};

/// Most values of a multi-valued attribute.
pub const MAX_VALUES: usize = 64;
/// Longest text of an attribute, in bytes: room for a certificate.
const MAX_TEXT: usize = 16 * 1024;
/// Largest value of a free attribute, in bytes of JSON.
const MAX_FREE: usize = 64 * 1024;

/// The type of an attribute's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Text, compared without regard to case.
    Text,
    /// Text, compared exactly.
    Exact,
    /// `true` or `false`.
    Boolean,
    /// An instant, ISO 8601.
    Instant,
    /// An object of sub-attributes.
    Complex,
    /// An array of objects of sub-attributes, or of plain values.
    ComplexMany,
    /// An object that nobody looks into.
    Free,
}

/// An attribute that may appear in a record or a filter.
#[derive(Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Its dotted path, spelt as in records; those of the extension stand below
    /// [`ENTERPRISE`].
    pub path: &'static str,
    /// Its type.
    pub kind: Type,
    /// Set by the service alone; ignored on input.
    pub read_only: bool,
    /// What it is, in a sentence for people.
    pub about: &'static str,
}

impl Attribute {
    /// The member of records that holds it.
    pub fn name(&self) -> &'static str {
        match self.path {
            ENTERPRISE => ENTERPRISE_URN,
            path => path.rsplit('.').next().unwrap_or(path),
        }
    }

    /// Whether a record can have several values of it.
    pub fn is_many(&self) -> bool {
        let top = self.path.split('.').next().unwrap_or(self.path);
        [&USER, &GROUP]
            .iter()
            .filter_map(|schema| schema.find(top))
            .any(|top| top.kind == Type::ComplexMany)
    }
}

/// A kind of record.
#[derive(Debug, PartialEq, Eq)]
pub struct Schema {
    /// Its URN.
    pub urn: &'static str,
    /// Every attribute, sub-attributes after their parent.
    pub attributes: &'static [Attribute],
}

/// The attribute of users of this dotted path; see [`Schema::find`].
pub fn find(path: &str) -> Option<&'static Attribute> {
    USER.find(path)
}

/// A user's record as [`Schema::canonical`] leaves it.
///
/// # Errors
/// The first unknown name, wrong type or value out of bounds.
pub fn canonical(record: &Map<String, Value>) -> Result<Map<String, Value>, RecordError> {
    USER.canonical(record)
}

impl Schema {
    /// The attribute of this dotted path; names compare without regard to case.
    ///
    /// `meta.lastModifed`, as one table of the interface spells it, is read too.
    pub fn find(&self, path: &str) -> Option<&'static Attribute> {
        if path.eq_ignore_ascii_case("meta.lastModifed") {
            return self.find("meta.lastModified");
        }
        let mut all = self.attributes.iter();
        all.find(|attribute| attribute.path.eq_ignore_ascii_case(path))
    }

    /// The sub-attribute of this name.
    pub fn part(&self, parent: &Attribute, name: &str) -> Option<&'static Attribute> {
        let bare = |attribute: &&Attribute| {
            let rest = attribute.path.strip_prefix(parent.path);
            let rest = rest.and_then(|rest| rest.strip_prefix('.'));
            rest.is_some_and(|rest| rest.eq_ignore_ascii_case(name))
        };
        self.attributes.iter().find(bare)
    }

    /// The sub-attributes, without theirs.
    pub fn parts(&self, parent: &Attribute) -> impl Iterator<Item = &'static Attribute> {
        let below = format!("{}.", parent.path);
        self.attributes.iter().filter(move |attribute| {
            let rest = attribute.path.strip_prefix(&below);
            rest.is_some_and(|rest| !rest.contains('.'))
        })
    }

    /// The attribute that a member of a whole record is.
    pub fn member(&self, name: &str) -> Option<&'static Attribute> {
        if name.contains(':') {
            let name = match strip_urn(name, self.urn) {
                Some(name) => name,
                None if name.eq_ignore_ascii_case(ENTERPRISE_URN) => ENTERPRISE,
                None => return None,
            };
            return self.find(name).filter(|found| !found.path.contains('.'));
        }
        let found = self.find(name)?;
        (!name.contains('.') && found.path != ENTERPRISE).then_some(found)
    }

    /// `record` with its names spelt as in the schema, read-only attributes and
    /// empty values removed, and every value checked.
    ///
    /// # Errors
    /// The first unknown name, wrong type or value out of bounds.
    pub fn canonical(
        &self,
        record: &Map<String, Value>,
    ) -> Result<Map<String, Value>, RecordError> {
        let mut clean = Map::new();
        for (name, value) in record {
            let attribute = self.member(name);
            let attribute = attribute.ok_or_else(|| RecordError::unknown(name))?;
            if attribute.read_only {
                continue;
            }
            if let Some(value) = self.value(attribute, name, value)?
                && clean.insert(attribute.name().to_owned(), value).is_some()
            {
                return Err(RecordError::new(name, "given twice"));
            }
        }
        Ok(clean)
    }

    /// A value of `attribute`, checked; nothing if it is none (RFC 7643 §2.5).
    ///
    /// # Errors
    /// As [`Schema::canonical`]; `at` is the path of the value.
    pub fn value(
        &self,
        attribute: &Attribute,
        at: &str,
        value: &Value,
    ) -> Result<Option<Value>, RecordError> {
        match (attribute.kind, value) {
            (_, Value::Null) => Ok(None),
            (Type::Complex, value) => self.object(attribute, at, value),
            (Type::ComplexMany, value) => self.array(attribute, at, value),
            _ => simple(attribute, at, value).map(Some),
        }
    }

    fn object(
        &self,
        parent: &Attribute,
        at: &str,
        value: &Value,
    ) -> Result<Option<Value>, RecordError> {
        let members = value
            .as_object()
            .ok_or_else(|| RecordError::new(at, "expected an object"))?;
        let mut clean = Map::new();
        for (name, value) in members {
            // Some clients say again which schema it is.
            if parent.path == ENTERPRISE && name.eq_ignore_ascii_case("schemas") {
                continue;
            }
            let at = format!("{at}.{name}");
            let attribute = self.part(parent, name);
            let attribute = attribute.ok_or_else(|| RecordError::unknown(&at))?;
            if attribute.read_only {
                continue;
            }
            if let Some(value) = self.value(attribute, &at, value)?
                && clean.insert(attribute.name().to_owned(), value).is_some()
            {
                return Err(RecordError::new(at, "given twice"));
            }
        }
        Ok((!clean.is_empty()).then_some(Value::Object(clean)))
    }

    fn array(
        &self,
        parent: &Attribute,
        at: &str,
        value: &Value,
    ) -> Result<Option<Value>, RecordError> {
        let values = value
            .as_array()
            .ok_or_else(|| RecordError::new(at, "expected an array"))?;
        if values.len() > MAX_VALUES {
            let text = format!("more than {MAX_VALUES} values");
            return Err(RecordError::new(at, text));
        }
        let mut clean = Vec::with_capacity(values.len());
        let mut primaries = 0;
        for (index, value) in values.iter().enumerate() {
            let at = format!("{at}[{index}]");
            let Some(value) = self.element(parent, &at, value)? else {
                continue;
            };
            primaries += usize::from(value.get("primary") == Some(&Value::Bool(true)));
            clean.push(value);
        }
        if primaries > 1 {
            return Err(RecordError::new(at, "more than one value is primary"));
        }
        Ok((!clean.is_empty()).then_some(Value::Array(clean)))
    }

    /// One value of a multi-valued attribute, checked.
    ///
    /// # Errors
    /// As [`Schema::value`].
    pub fn element(
        &self,
        parent: &Attribute,
        at: &str,
        value: &Value,
    ) -> Result<Option<Value>, RecordError> {
        match (value, self.part(parent, "value")) {
            (Value::String(_), Some(plain)) => {
                let value = simple(plain, at, value)?;
                // Whether it is verified is noted beside it.
                let noted = parent.path == "emails";
                Ok(Some(if noted {
                    json!({ "value": value })
                } else {
                    value
                }))
            }
            _ => self.object(parent, at, value),
        }
    }
}

/// `name` without the URN and the colon before it.
pub fn strip_urn<'a>(name: &'a str, urn: &str) -> Option<&'a str> {
    let before = name.get(..urn.len())?;
    let rest = &name[urn.len()..];
    before
        .eq_ignore_ascii_case(urn)
        .then(|| rest.strip_prefix(':'))?
}

/// What is wrong with a record, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct RecordError {
    /// Path of the attribute, for instance `emails[0].value`.
    pub path: String,
    /// What is wrong.
    pub message: String,
}

/// What is said of a name that no attribute has.
const UNKNOWN: &str = "no such attribute";

impl RecordError {
    /// The error `message` about the value at `path`.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }

    fn unknown(path: &str) -> Self {
        Self::new(path.chars().take(200).collect::<String>(), UNKNOWN)
    }

    /// Whether no attribute has the name at the path.
    pub fn is_unknown(&self) -> bool {
        self.message == UNKNOWN
    }

    /// The same error, of a record that is itself at `parent`.
    #[must_use]
    pub fn below(self, parent: &str) -> Self {
        Self {
            path: format!("{parent}.{}", self.path),
            ..self
        }
    }
}

fn simple(attribute: &Attribute, at: &str, value: &Value) -> Result<Value, RecordError> {
    let fits = match attribute.kind {
        Type::Boolean => value.is_boolean(),
        Type::Free => value.is_object(),
        _ => value.is_string(),
    };
    if !fits {
        let expected = match attribute.kind {
            Type::Boolean => "true or false",
            Type::Free => "an object",
            _ => "a string",
        };
        return Err(RecordError::new(at, format!("expected {expected}")));
    }
    let size = match value {
        Value::String(text) if text.contains('\0') => {
            return Err(RecordError::new(at, "must not contain U+0000"));
        }
        Value::String(text) => text.len() > MAX_TEXT,
        Value::Object(_) => value.to_string().len() > MAX_FREE,
        _ => false,
    };
    if size {
        Err(RecordError::new(at, "too long"))
    } else {
        Ok(value.clone())
    }
}

/// One indexed value of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedValue {
    /// Path of the attribute.
    pub path: &'static str,
    /// Position in the multi-valued attribute, 0 in others.
    pub index: usize,
    /// The value as filters compare it: folded unless exact.
    pub text: String,
}

/// What the store indexes of a canonical `profile` of a user.
pub fn indexed(profile: &Map<String, Value>) -> Vec<IndexedValue> {
    let mut rows = Vec::new();
    for (name, value) in profile {
        let Some(attribute) = USER.member(name) else {
            continue;
        };
        match value {
            Value::Array(values) => {
                for (index, value) in values.iter().enumerate() {
                    index_value(attribute, index, value, &mut rows);
                }
            }
            value => index_value(attribute, 0, value, &mut rows),
        }
    }
    rows
}

fn index_value(
    attribute: &'static Attribute,
    index: usize,
    value: &Value,
    rows: &mut Vec<IndexedValue>,
) {
    match value {
        Value::Object(_) if attribute.kind == Type::Free => {}
        Value::Object(members) => {
            for (member, value) in members {
                if let Some(part) = USER.part(attribute, member) {
                    index_value(part, index, value, rows);
                }
            }
            if attribute.path == "addresses" {
                let formatted = formatted_address(members);
                if let Some(part) = USER
                    .part(attribute, "formatted")
                    .filter(|_| !formatted.is_empty())
                {
                    index_value(part, index, &Value::String(formatted), rows);
                }
            }
        }
        value => {
            let attribute = match attribute.kind {
                Type::ComplexMany => USER.part(attribute, "value"),
                _ => Some(attribute),
            };
            let row = attribute.and_then(|attribute| {
                Some(IndexedValue {
                    path: attribute.path,
                    index,
                    text: comparable(attribute, value)?,
                })
            });
            rows.extend(row);
        }
    }
}

/// `value` as filters on `attribute` compare it; `None`: it can't be compared.
pub fn comparable(attribute: &Attribute, value: &Value) -> Option<String> {
    match (attribute.kind, value) {
        (Type::Text, Value::String(text)) if attribute.path == "userName" => Some(name::form(text)),
        (Type::Text, Value::String(text)) => Some(fold(text)),
        (Type::Exact, Value::String(text)) => Some(text.clone()),
        (Type::Boolean, Value::Bool(flag)) => Some(flag.to_string()),
        _ => None,
    }
}

/// An address on one line, as `addresses.formatted` shows it.
pub fn formatted_address(address: &Map<String, Value>) -> String {
    let parts = [
        "streetAddress",
        "locality",
        "region",
        "postalCode",
        "country",
    ];
    let parts = parts.iter().filter_map(|name| address.get(*name)?.as_str());
    parts
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(value: Value) -> Map<String, Value> {
        value.as_object().cloned().expect("an object")
    }

    #[test]
    fn names_are_spelt_as_in_the_schema_and_read_only_ones_dropped() {
        let clean = canonical(&record(json!({
            "nickname": "Dee", "id": "mine", "meta": {"created": "x"},
            "addresses": [{"STREETADDRESS": "1 Main St", "formatted": "lies"}],
        })))
        .expect("valid");
        assert_eq!(
            Value::Object(clean),
            json!({"nickName": "Dee", "addresses": [{"streetAddress": "1 Main St"}]})
        );
    }

    #[test]
    fn a_wrong_type_is_named_with_its_path() {
        let error = canonical(&record(json!({"emails": [{"value": 1}]}))).expect_err("a number");
        assert_eq!(error.to_string(), "emails[0].value: expected a string");
        let error = canonical(&record(json!({"shoeSize": 43}))).expect_err("unknown");
        assert_eq!(error.path, "shoeSize");
        assert!(canonical(&record(json!({"name.givenName": "x"}))).is_err());
    }

    #[test]
    fn two_primary_values_are_refused() {
        let both = json!({"emails": [
            {"value": "a@x", "primary": true}, {"value": "b@x", "primary": true}]});
        assert!(canonical(&record(both)).is_err());
    }

    #[test]
    fn an_address_that_is_a_text_is_kept_with_room_for_what_is_noted_of_it() {
        let plain = record(json!({"emails": ["a@x", {"value": "b@x"}], "ims": ["a@chat"]}));
        let clean = canonical(&plain).expect("valid");
        let wanted = json!({"emails": [{"value": "a@x"}, {"value": "b@x"}], "ims": ["a@chat"]});
        assert_eq!(Value::Object(clean), wanted);
    }

    #[test]
    fn plain_values_and_objects_are_indexed_alike() {
        let rows = indexed(&record(json!({"ims": ["Me@Chat", {"value": "You@Chat"}]})));
        assert_eq!(
            rows.iter()
                .map(|row| (row.path, row.index, row.text.as_str()))
                .collect::<Vec<_>>(),
            [("ims.value", 0, "me@chat"), ("ims.value", 1, "you@chat")]
        );
    }
}
