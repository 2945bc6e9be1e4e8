//! From a token to the consumer whom it stands for.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::config::fields::{Fields, wrong};
use doorward_core::jose::claims::find;
use doorward_plugin_api::ConfigError;
use doorward_plugin_api::consumers::{By, Caller, Directory};

/// How tokens name consumers.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// Paths of claims; the first that leads to a consumer counts.
    claims: Vec<Vec<String>>,
    by: Vec<By>,
    /// Whether a token may pass that names none.
    pub(crate) optional: bool,
}

impl Mapping {
    /// `None`: tokens name no consumers.
    pub(crate) fn new(fields: Fields<'_>) -> Result<Option<Self>, ConfigError> {
        let mut claims = fields.paths("consumer_claims")?;
        claims.push(fields.texts("consumer_claim")?);
        claims.retain(|path| !path.is_empty());
        if claims.is_empty() {
            return Ok(None);
        }
        let ignores_case = fields.flag("by_username_ignore_case")?;
        let by = |name: &String| match name.as_str() {
            "id" => Ok(By::Id),
            "username" if ignores_case => Ok(By::UsernameIgnoringCase),
            "username" => Ok(By::Username),
            "custom_id" => Ok(By::CustomId),
            _ => Err(wrong("consumer_by", "expected id, username or custom_id")),
        };
        let mut by: Vec<By> = fields
            .texts("consumer_by")?
            .iter()
            .map(by)
            .collect::<Result<_, _>>()?;
        if by.is_empty() {
            by = vec![By::Username, By::CustomId];
        }
        Ok(Some(Self {
            claims,
            by,
            optional: fields.flag("consumer_optional")?,
        }))
    }

    /// The consumer that the claims of a verified token name.
    pub(crate) fn find(
        &self,
        claims: &Map<String, Value>,
        directory: &dyn Directory,
    ) -> Option<Caller> {
        let values = self.claims.iter().filter_map(|path| named(claims, path));
        values
            .flat_map(|value| self.by.iter().map(move |by| (*by, value.clone())))
            .find_map(|(by, value)| directory.find(by, &value))
    }
}

/// A claim that can be a name: a text that is not empty, or a number.
fn named<'a>(claims: &'a Map<String, Value>, path: &[String]) -> Option<Cow<'a, str>> {
    match find(claims, path)? {
        Value::String(text) if !text.is_empty() => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        _ => None,
    }
}
