//! From a token to the consumer whom it stands for.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::config::fields::Fields;
use crate::config::fields::tokens::ConsumerField;
use doorward_core::jose::claims::find;
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
    pub(crate) fn new(fields: &Fields) -> Option<Self> {
        let paths = fields
            .claims
            .consumer_claims
            .iter()
            .chain([&fields.claims.consumer_claim]);
        let paths = paths.filter(|path| !path.is_empty());
        let claims: Vec<_> = paths.map(|path| path.to_vec()).collect();
        if claims.is_empty() {
            return None;
        }
        let by = |field: &ConsumerField| match field {
            ConsumerField::Id => By::Id,
            ConsumerField::Username if fields.claims.by_username_ignore_case => {
                By::UsernameIgnoringCase
            }
            ConsumerField::Username => By::Username,
            ConsumerField::CustomId => By::CustomId,
        };
        let mut by: Vec<By> = fields.subject.consumer_by.iter().map(by).collect();
        if by.is_empty() {
            by = vec![By::Username, By::CustomId];
        }
        Some(Self {
            claims,
            by,
            optional: fields.subject.consumer_optional,
        })
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
