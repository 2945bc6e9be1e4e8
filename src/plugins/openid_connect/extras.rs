//! What is sent to an endpoint besides what the protocol says: fixed pairs,
//! and what is copied from the client's request.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::arguments::Arguments;
use super::fields::{Fields, header_name, wrong};
use crate::plugins::ConfigError;

/// Extra parameters and headers of one kind of request.
#[derive(Debug, Default)]
pub(super) struct Extras {
    parameters: Vec<(String, String)>,
    copied: Vec<String>,
    /// Headers whose values become parameters.
    copied_from_headers: Vec<(String, HeaderName)>,
    headers: HeaderMap,
    copied_headers: Vec<HeaderName>,
}

impl Extras {
    /// Of settings such as `token_post_args_names` and `token_headers_names`:
    /// `parameters` and `headers` are their beginnings.
    pub(super) fn new(
        fields: Fields<'_>,
        parameters: &str,
        headers: &str,
    ) -> Result<Self, ConfigError> {
        let setting = |kind: &str, end: &str| format!("{kind}_{end}");
        let pairs = |kind: &str| fields.pairs(&setting(kind, "names"), &setting(kind, "values"));
        let mut fixed = HeaderMap::new();
        for (name, value) in pairs(headers)? {
            let names = setting(headers, "names");
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| wrong(&names, "expected names of headers"))?;
            let mut value = HeaderValue::from_str(&value)
                .map_err(|_| wrong(&setting(headers, "values"), "expected values of headers"))?;
            value.set_sensitive(true);
            fixed.append(name, value);
        }
        let client = setting(headers, "client");
        let from_headers = setting(parameters, "client_headers");
        Ok(Self {
            parameters: pairs(parameters)?,
            copied: fields.texts(&setting(parameters, "client"))?,
            copied_from_headers: header_names(fields, &from_headers)?
                .into_iter()
                .map(|name| (name.as_str().to_owned(), name))
                .collect(),
            headers: fixed,
            copied_headers: header_names(fields, &client)?,
        })
    }

    /// Whether a parameter called `name` may be among them.
    pub(super) fn may_say(&self, name: &str) -> bool {
        self.parameters.iter().any(|(one, _)| one == name)
            || self.copied.iter().any(|one| one == name)
            || self.copied_from_headers.iter().any(|(one, _)| one == name)
    }

    /// Whether nothing of a client's request is sent.
    pub(super) fn is_fixed(&self) -> bool {
        self.copied.is_empty()
            && self.copied_from_headers.is_empty()
            && self.copied_headers.is_empty()
    }

    /// The parameters for a request to the provider.
    pub(super) fn parameters(&self, sent: &HeaderMap, given: &Arguments) -> Vec<(String, String)> {
        let mut parameters = self.parameters.clone();
        for name in &self.copied {
            if let Some(value) = given.first(name) {
                parameters.push((name.clone(), value.to_owned()));
            }
        }
        for (parameter, name) in &self.copied_from_headers {
            if let Some(value) = sent.get(name).and_then(|value| value.to_str().ok()) {
                parameters.push((parameter.clone(), value.to_owned()));
            }
        }
        parameters
    }

    /// The headers for a request to the provider.
    pub(super) fn headers(&self, sent: &HeaderMap) -> HeaderMap {
        let mut headers = self.headers.clone();
        for name in &self.copied_headers {
            if let Some(value) = sent.get(name) {
                headers.insert(name.clone(), value.clone());
            }
        }
        headers
    }
}

fn header_names(fields: Fields<'_>, name: &str) -> Result<Vec<HeaderName>, ConfigError> {
    let names = fields.texts(name)?;
    names.iter().map(|text| header_name(name, text)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fixed_and_copied_extras_are_sent() {
        let config = json!({
            "introspection_post_args_names": ["realm"],
            "introspection_post_args_values": ["/x"],
            "introspection_post_args_client": ["tenant", "gone"],
            "introspection_post_args_client_headers": ["X-Device"],
            "introspection_headers_names": ["X-Key"],
            "introspection_headers_values": ["k"],
            "introspection_headers_client": ["X_Trace"],
        });
        let config = config.as_object().cloned().expect("an object");
        let extras = Extras::new(
            Fields(&config),
            "introspection_post_args",
            "introspection_headers",
        );
        let extras = extras.expect("valid");
        let mut sent = HeaderMap::new();
        for (name, value) in [("x-device", "d"), ("x-trace", "t"), ("x-other", "o")] {
            sent.insert(name, HeaderValue::from_static(value));
        }
        let given = Arguments::new(Some("tenant=a&x=b"), Vec::new());
        let parameters = extras.parameters(&sent, &given);
        let wanted = [("realm", "/x"), ("tenant", "a"), ("x-device", "d")];
        let wanted = wanted.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(parameters, wanted);
        let headers = extras.headers(&sent);
        assert_eq!(headers["x-key"], "k");
        assert_eq!(headers["x-trace"], "t");
        assert_eq!(headers.len(), 2);
    }
}
