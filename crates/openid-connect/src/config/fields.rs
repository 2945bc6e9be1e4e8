//! Reading the fields of a plugin's `config`, with the schema's defaults.

use http::HeaderName;
use serde_json::{Map, Value};
use url::Url;

use crate::config::address::Address;
use crate::config::schema::schema;
use doorward_plugin_api::ConfigError;

/// A plugin's `config`.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a>(pub(crate) &'a Map<String, Value>);

impl<'a> Fields<'a> {
    /// The value of `name`; its default if it is absent; `None` if it is null.
    fn value(self, name: &str) -> Option<&'a Value> {
        let default = || schema().field(name)?.default.as_ref();
        self.0
            .get(name)
            .or_else(default)
            .filter(|value| !value.is_null())
    }

    /// A null flag has its default: null must not switch a check off.
    pub(crate) fn flag(self, name: &str) -> Result<bool, ConfigError> {
        let default = || schema().field(name)?.default.as_ref();
        self.value(name)
            .or_else(default)
            .map(|value| {
                value
                    .as_bool()
                    .ok_or_else(|| wrong(name, "expected a boolean"))
            })
            .unwrap_or(Ok(false))
    }

    /// A flag without a default.
    pub(crate) fn maybe_flag(self, name: &str) -> Result<Option<bool>, ConfigError> {
        self.value(name)
            .map(|value| {
                value
                    .as_bool()
                    .ok_or_else(|| wrong(name, "expected a boolean"))
            })
            .transpose()
    }

    /// A whole number that is not negative.
    pub(crate) fn integer(self, name: &str) -> Result<Option<i64>, ConfigError> {
        self.value(name)
            .map(|value| {
                value
                    .as_i64()
                    .filter(|number| *number >= 0)
                    .ok_or_else(|| wrong(name, "expected an integer that is not negative"))
            })
            .transpose()
    }

    pub(crate) fn number(self, name: &str) -> Result<Option<f64>, ConfigError> {
        self.value(name)
            .map(|value| {
                value
                    .as_f64()
                    .ok_or_else(|| wrong(name, "expected a number"))
            })
            .transpose()
    }

    pub(crate) fn text(self, name: &str) -> Result<Option<&'a str>, ConfigError> {
        self.value(name)
            .map(|value| {
                value
                    .as_str()
                    .ok_or_else(|| wrong(name, "expected a string"))
            })
            .transpose()
    }

    /// A table.
    pub(crate) fn object(self, name: &str) -> Result<Option<&'a Map<String, Value>>, ConfigError> {
        self.value(name)
            .map(|value| {
                value
                    .as_object()
                    .ok_or_else(|| wrong(name, "expected a record"))
            })
            .transpose()
    }

    /// A list of texts; null is an empty one.
    pub(crate) fn texts(self, name: &str) -> Result<Vec<String>, ConfigError> {
        match self.value(name) {
            None => Ok(Vec::new()),
            Some(value) => list(name, value),
        }
    }

    pub(crate) fn url(self, name: &str) -> Result<Option<Url>, ConfigError> {
        self.text(name)?.map(|text| url(name, text)).transpose()
    }

    pub(crate) fn urls(self, name: &str) -> Result<Vec<Url>, ConfigError> {
        let texts = self.texts(name)?;
        texts.iter().map(|text| url(name, text)).collect()
    }

    /// Addresses that are sent as they are written.
    pub(crate) fn addresses(self, name: &str) -> Result<Vec<Address>, ConfigError> {
        let texts = self.texts(name)?;
        let address = |text: &String| Ok(Address::new(text, url(name, text)?));
        texts.iter().map(address).collect()
    }

    /// The pairs of two lists, item by item. A name without a value has none.
    pub(crate) fn pairs(
        self,
        one: &str,
        other: &str,
    ) -> Result<Vec<(String, String)>, ConfigError> {
        let (ones, others) = (self.texts(one)?, self.texts(other)?);
        if ones.len() != others.len() {
            return Err(wrong(other, &format!("expected as many items as in {one}")));
        }
        Ok(ones.into_iter().zip(others).collect())
    }

    /// A list of tables of texts, such as keys; members that are no texts are
    /// left out.
    pub(crate) fn maps(self, name: &str) -> Result<Vec<Vec<(String, String)>>, ConfigError> {
        let items = match self.value(name) {
            None => return Ok(Vec::new()),
            Some(Value::Array(items)) => items.as_slice(),
            Some(single) => std::slice::from_ref(single),
        };
        let members = |item: &Value| {
            let members = item
                .as_object()
                .ok_or_else(|| wrong(name, "expected an array of objects"))?;
            let texts = members.iter().filter_map(|(name, value)| {
                let value = value.as_str()?;
                Some((name.clone(), value.to_owned()))
            });
            Ok(texts.collect())
        };
        items.iter().map(members).collect()
    }

    /// A list of texts that name places, as flags.
    pub(crate) fn places(
        self,
        name: &str,
    ) -> Result<crate::credentials::arguments::Where, ConfigError> {
        let places = self.texts(name)?;
        let has = |place: &str| places.iter().any(|one| one == place);
        Ok(crate::credentials::arguments::Where {
            header: has("header"),
            query: has("query"),
            body: has("body"),
        })
    }

    /// A list of paths of claims.
    pub(crate) fn paths(self, name: &str) -> Result<Vec<Vec<String>>, ConfigError> {
        let Some(items) = self.value(name) else {
            return Ok(Vec::new());
        };
        let items = items
            .as_array()
            .ok_or_else(|| wrong(name, "expected an array"))?;
        items.iter().map(|path| list(name, path)).collect()
    }

    /// The `{header, path}` items of `name`.
    pub(crate) fn header_paths(
        self,
        name: &str,
    ) -> Result<Vec<(HeaderName, Vec<String>)>, ConfigError> {
        let Some(items) = self.value(name) else {
            return Ok(Vec::new());
        };
        let items = items
            .as_array()
            .ok_or_else(|| wrong(name, "expected an array"))?;
        items
            .iter()
            .map(|item| {
                let (text, path) = (item.get("header"), item.get("path"));
                let text = text
                    .and_then(Value::as_str)
                    .ok_or_else(|| wrong(&format!("{name}.header"), "expected a string"))?;
                let path = list(&format!("{name}.path"), path.unwrap_or(&Value::Null))?;
                Ok((header_name(name, text)?, path))
            })
            .collect()
    }

    /// Whether `name` is set to something else than its default.
    pub(crate) fn is_changed(self, name: &str) -> bool {
        let default = schema()
            .field(name)
            .and_then(|field| field.default.as_ref());
        self.value(name).is_some_and(|value| {
            Some(value) != default && value.as_array().is_none_or(|items| !items.is_empty())
        })
    }
}

/// A configuration error of `field`.
pub(crate) fn wrong(field: &str, message: &str) -> ConfigError {
    ConfigError {
        field: field.to_owned(),
        message: message.to_owned(),
    }
}

/// A header name, `_` read as `-`.
pub(crate) fn header_name(field: &str, text: &str) -> Result<HeaderName, ConfigError> {
    HeaderName::from_bytes(text.replace('_', "-").as_bytes())
        .map_err(|_| wrong(field, "expected the name of a header"))
}

/// The headers in which something of this name may come: with `_` read as `-`,
/// and as it is written.
pub(crate) fn header_names(field: &str, text: &str) -> Result<Vec<HeaderName>, ConfigError> {
    let mut names = vec![header_name(field, text)?];
    let written = HeaderName::from_bytes(text.as_bytes());
    let written = written.map_err(|_| wrong(field, "expected the name of a header"))?;
    if !names.contains(&written) {
        names.push(written);
    }
    Ok(names)
}

fn list(name: &str, value: &Value) -> Result<Vec<String>, ConfigError> {
    let text = |item: &Value| item.as_str().map(str::to_owned);
    match value {
        Value::String(single) => Some(vec![single.clone()]),
        Value::Array(items) => items.iter().map(text).collect(),
        _ => None,
    }
    .ok_or_else(|| wrong(name, "expected an array of strings"))
}

fn url(name: &str, text: &str) -> Result<Url, ConfigError> {
    Url::parse(text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        .ok_or_else(|| wrong(name, "expected an http or https URL"))
}
