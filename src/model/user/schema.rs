//! The attributes of a user (interface 2.1): their types, and what of them the
//! store indexes for filters.

use serde_json::{Map, Value};

use super::{fold, name};

/// The schema's URN (RFC 7643 §4.1).
pub const USER_URN: &str = "urn:ietf:params:scim:schemas:core:2.0:User";

/// Most values of a multi-valued attribute.
const MAX_VALUES: usize = 64;
/// Longest text of an attribute, in bytes: room for a certificate.
const MAX_TEXT: usize = 16 * 1024;

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
    /// Its dotted path, spelt as in records.
    pub path: &'static str,
    /// Its type.
    pub kind: Type,
    /// Set by the service alone; ignored on input.
    pub read_only: bool,
}

const fn text(path: &'static str) -> Attribute {
    Attribute {
        path,
        kind: Type::Text,
        read_only: false,
    }
}

const fn of(path: &'static str, kind: Type) -> Attribute {
    Attribute {
        path,
        kind,
        read_only: false,
    }
}

const fn fixed(path: &'static str, kind: Type) -> Attribute {
    Attribute {
        path,
        kind,
        read_only: true,
    }
}

/// Every attribute of a user, sub-attributes after their parent.
#[rustfmt::skip]
pub static ATTRIBUTES: &[Attribute] = &[
    fixed("id", Type::Exact),
    of("externalId", Type::Exact),
    text("userName"),
    text("accountStatus"),
    of("active", Type::Boolean),
    text("displayName"),
    text("nickName"),
    text("profileUrl"),
    text("title"),
    text("userType"),
    text("preferredLanguage"),
    text("locale"),
    text("timezone"),
    of("name", Type::Complex),
    text("name.formatted"),
    text("name.familyName"),
    text("name.givenName"),
    text("name.middleName"),
    text("name.honorificPrefix"),
    text("name.honorificSuffix"),
    of("addresses", Type::ComplexMany),
    text("addresses.type"),
    text("addresses.streetAddress"),
    text("addresses.locality"),
    text("addresses.region"),
    text("addresses.postalCode"),
    text("addresses.country"),
    fixed("addresses.formatted", Type::Text),
    of("addresses.primary", Type::Boolean),
    of("emails", Type::ComplexMany),
    text("emails.value"),
    text("emails.type"),
    text("emails.display"),
    of("emails.primary", Type::Boolean),
    of("emails.verified", Type::Boolean),
    of("phoneNumbers", Type::ComplexMany),
    text("phoneNumbers.value"),
    text("phoneNumbers.type"),
    text("phoneNumbers.display"),
    of("phoneNumbers.primary", Type::Boolean),
    of("ims", Type::ComplexMany),
    text("ims.value"),
    text("ims.type"),
    text("ims.display"),
    of("ims.primary", Type::Boolean),
    of("x509Certificates", Type::ComplexMany),
    of("x509Certificates.value", Type::Exact),
    text("x509Certificates.type"),
    text("x509Certificates.display"),
    of("x509Certificates.primary", Type::Boolean),
    of("preferences", Type::Free),
    fixed("meta", Type::Complex),
    fixed("meta.resourceType", Type::Exact),
    fixed("meta.created", Type::Instant),
    fixed("meta.lastModified", Type::Instant),
    fixed("meta.location", Type::Exact),
    fixed("meta.version", Type::Exact),
    fixed("schemas", Type::Exact),
];

impl Attribute {
    /// The last part of its path.
    pub fn name(&self) -> &'static str {
        self.path.rsplit('.').next().unwrap_or(self.path)
    }

    /// Whether a user can have several values of it.
    pub fn is_many(&self) -> bool {
        let parent = self.path.split('.').next().unwrap_or(self.path);
        find(parent).is_some_and(|parent| parent.kind == Type::ComplexMany)
    }
}

/// The attribute of this dotted path; names compare without regard to case.
///
/// `meta.lastModifed`, as one table of the interface spells it, is read too.
pub fn find(path: &str) -> Option<&'static Attribute> {
    if path.eq_ignore_ascii_case("meta.lastModifed") {
        return find("meta.lastModified");
    }
    ATTRIBUTES
        .iter()
        .find(|attribute| attribute.path.eq_ignore_ascii_case(path))
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

impl RecordError {
    /// The error `message` about the value at `path`.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
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

/// `record` with its names spelt as in the schema, read-only attributes and
/// empty values removed, and every value checked.
///
/// # Errors
/// The first unknown name, wrong type or value out of bounds.
pub fn canonical(record: &Map<String, Value>) -> Result<Map<String, Value>, RecordError> {
    let mut clean = Map::new();
    for (name, value) in record {
        let attribute = (!name.contains('.')).then(|| find(name)).flatten();
        let attribute = attribute.ok_or_else(|| RecordError::new(name, "no such attribute"))?;
        if attribute.read_only || value.is_null() {
            continue;
        }
        let value = match attribute.kind {
            Type::Complex => object(attribute, name, value)?,
            Type::ComplexMany => array(attribute, name, value)?,
            _ => simple(attribute, name, value)?,
        };
        if clean.insert(attribute.path.to_owned(), value).is_some() {
            return Err(RecordError::new(name, "given twice"));
        }
    }
    Ok(clean)
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
    if value.as_str().is_some_and(|text| text.len() > MAX_TEXT) {
        return Err(RecordError::new(at, "too long"));
    }
    Ok(value.clone())
}

fn object(parent: &Attribute, at: &str, value: &Value) -> Result<Value, RecordError> {
    let members = value
        .as_object()
        .ok_or_else(|| RecordError::new(at, "expected an object"))?;
    let mut clean = Map::new();
    for (name, value) in members {
        let at = format!("{at}.{name}");
        let attribute = find(&format!("{}.{name}", parent.path))
            .ok_or_else(|| RecordError::new(&at, "no such attribute"))?;
        if attribute.read_only || value.is_null() {
            continue;
        }
        clean.insert(attribute.name().to_owned(), simple(attribute, &at, value)?);
    }
    Ok(Value::Object(clean))
}

fn array(parent: &Attribute, at: &str, value: &Value) -> Result<Value, RecordError> {
    let values = value
        .as_array()
        .ok_or_else(|| RecordError::new(at, "expected an array"))?;
    if values.len() > MAX_VALUES {
        return Err(RecordError::new(
            at,
            format!("more than {MAX_VALUES} values"),
        ));
    }
    let mut clean = Vec::with_capacity(values.len());
    let mut primaries = 0;
    for (index, value) in values.iter().enumerate() {
        let at = format!("{at}[{index}]");
        let value = match (value, find(&format!("{}.value", parent.path))) {
            (Value::String(_), Some(plain)) => simple(plain, &at, value)?,
            _ => object(parent, &at, value)?,
        };
        primaries += usize::from(value.get("primary") == Some(&Value::Bool(true)));
        clean.push(value);
    }
    if primaries > 1 {
        return Err(RecordError::new(at, "more than one value is primary"));
    }
    Ok(Value::Array(clean))
}

/// One indexed value of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Indexed {
    /// Path of the attribute.
    pub path: &'static str,
    /// Position in the multi-valued attribute, 0 in others.
    pub index: usize,
    /// The value as filters compare it: folded unless exact.
    pub text: String,
}

/// What the store indexes of a canonical `profile`.
pub fn indexed(profile: &Map<String, Value>) -> Vec<Indexed> {
    let mut rows = Vec::new();
    for (name, value) in profile {
        match value {
            Value::Array(values) => {
                for (index, value) in values.iter().enumerate() {
                    index_value(name, index, value, &mut rows);
                }
            }
            value => index_value(name, 0, value, &mut rows),
        }
    }
    rows
}

fn index_value(name: &str, index: usize, value: &Value, rows: &mut Vec<Indexed>) {
    let mut push = |path: String, value: &Value| {
        let Some(attribute) = find(&path) else { return };
        if let Some(text) = comparable(attribute, value) {
            rows.push(Indexed {
                path: attribute.path,
                index,
                text,
            });
        }
    };
    match value {
        Value::Object(members) => {
            for (member, value) in members {
                push(format!("{name}.{member}"), value);
            }
            if name == "addresses" {
                let formatted = formatted_address(members);
                push("addresses.formatted".to_owned(), &Value::String(formatted));
            }
        }
        Value::String(_) if find(name).is_some_and(|a| a.kind == Type::ComplexMany) => {
            push(format!("{name}.value"), value);
        }
        value => push(name.to_owned(), value),
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
    use serde_json::json;

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
