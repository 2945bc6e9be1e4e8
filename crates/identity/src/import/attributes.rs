//! From dotted names to records.

use serde_json::{Map, Value};

/// Attributes with several values, each of which has members.
const MANY: [&str; 8] = [
    "addresses",
    "emails",
    "phoneNumbers",
    "ims",
    "photos",
    "entitlements",
    "roles",
    "x509Certificates",
];

/// Most values of one attribute in a record.
const VALUES_MAX: usize = 64;

/// Where a value belongs in a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// `title`
    Plain(String),
    /// `name.givenName`, or a member of an extension.
    Member(String, String),
    /// `emails[1].value`
    Value(String, usize, String),
}

impl Place {
    /// The place that a name means: `title`, `name.givenName`, `emails.value`,
    /// `emails[1].value`, `urn:…:User:department`.
    pub(super) fn parse(name: &str) -> Option<Self> {
        if name
            .get(..4)
            .is_some_and(|urn| urn.eq_ignore_ascii_case("urn:"))
        {
            let (urn, member) = name.rsplit_once(':')?;
            return match member {
                "" => None,
                // The schema of users themselves.
                _ if urn.to_ascii_lowercase().ends_with(":core:2.0:user") => Self::parse(member),
                _ => Some(Self::Member(urn.to_owned(), member.to_owned())),
            };
        }
        let (top, member) = match name.split_once('.') {
            Some((top, member)) => (top, Some(member)),
            None => (name, None),
        };
        let (top, index) = match top.split_once('[') {
            Some((top, index)) => (top, Some(index.strip_suffix(']')?.parse().ok()?)),
            None => (top, None),
        };
        if top.is_empty() || member.is_some_and(|member| member.is_empty() || member.contains('.'))
        {
            return None;
        }
        let many = MANY.iter().find(|many| many.eq_ignore_ascii_case(top));
        match (many, index, member) {
            (Some(many), index, member) => {
                let index = index.unwrap_or(0);
                let member = member.unwrap_or("value");
                (index < VALUES_MAX)
                    .then(|| Self::Value((*many).to_owned(), index, member.to_owned()))
            }
            (None, Some(_), _) => None,
            (None, None, Some(member)) => Some(Self::Member(top.to_owned(), member.to_owned())),
            (None, None, None) => Some(Self::Plain(top.to_owned())),
        }
    }

    /// Puts a value there; an empty text is none.
    pub(super) fn put(&self, record: &mut Map<String, Value>, text: &str) -> Result<(), String> {
        if text.is_empty() {
            return Ok(());
        }
        let typed = |name: &str| -> Result<Value, String> {
            let flag = ["primary", "verified", "active"];
            if !flag.iter().any(|flag| flag.eq_ignore_ascii_case(name)) {
                return Ok(Value::from(text));
            }
            match text.to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" => Ok(Value::from(true)),
                "false" | "0" | "no" => Ok(Value::from(false)),
                _ => Err(format!("{name}: must be true or false")),
            }
        };
        match self {
            Self::Plain(name) if name == "preferences" => {
                let value = serde_json::from_str(text);
                let value = value.map_err(|_| "preferences: must be a JSON object".to_owned())?;
                record.insert(name.clone(), value);
            }
            Self::Plain(name) => {
                record.insert(name.clone(), typed(name)?);
            }
            Self::Member(name, member) => {
                let object = record.entry(name.as_str());
                let object = object.or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(object) = object {
                    object.insert(member.clone(), typed(member)?);
                }
            }
            Self::Value(name, index, member) => {
                let values = record.entry(name.as_str());
                let values = values.or_insert_with(|| Value::Array(Vec::new()));
                let Value::Array(values) = values else {
                    return Ok(());
                };
                while values.len() <= *index {
                    values.push(Value::Object(Map::new()));
                }
                if let Value::Object(object) = &mut values[*index] {
                    object.insert(member.clone(), typed(member)?);
                }
            }
        }
        Ok(())
    }
}

/// Removes values that nothing was said of.
pub(super) fn without_gaps(record: &mut Map<String, Value>) {
    for value in record.values_mut() {
        if let Value::Array(values) = value {
            values.retain(|value| {
                value
                    .as_object()
                    .is_none_or(|value| value.contains_key("value") || is_address(value))
            });
        }
    }
    record.retain(|_, value| value.as_array().is_none_or(|values| !values.is_empty()));
}

/// Addresses have no one value.
fn is_address(value: &Map<String, Value>) -> bool {
    let mut members = value.keys();
    members.any(|member| !matches!(member.as_str(), "type" | "primary" | "verified" | "display"))
}
