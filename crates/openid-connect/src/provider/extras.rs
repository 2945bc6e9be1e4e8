//! What is sent to an endpoint besides what the protocol says: fixed pairs,
//! and what is copied from the client's request.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::config::fields::{header_name, pairs, wrong};
use crate::credentials::arguments::Arguments;
use doorward_plugin_api::ConfigError;

/// What is said by several parameters of one name (RFC 8693 §2.1, RFC 8707 §2);
/// anything else is there once (RFC 6749 §3.1, §3.2).
const REPEATED: &[&str] = &["audience", "resource"];
/// What the plugin says unless an operator has it said otherwise.
const MAY_DIFFER: &[&str] = &["scope", "max_age", "response_mode"];
/// What no request of a client says: who the gateway is, and which login it is
/// about.
const RESERVED: &[&str] = &[
    "client_id",
    "client_secret",
    "client_assertion",
    "client_assertion_type",
    "grant_type",
    "response_type",
    "redirect_uri",
    "state",
    "nonce",
    "code",
    "code_challenge",
    "code_challenge_method",
    "code_verifier",
    "request",
    "request_uri",
];

/// Parameters of a request to the provider.
pub(crate) type Parameters = Vec<(String, String)>;

/// What is configured of one kind of request.
pub(crate) struct ExtraFields<'a> {
    pub(crate) parameters: Added<'a>,
    /// Headers of the caller's request that become parameters.
    pub(crate) from_headers: &'a [String],
    pub(crate) headers: Added<'a>,
}

/// Fixed and copied things of one kind.
#[derive(Default)]
pub(crate) struct Added<'a> {
    /// What the names of its fields begin with.
    pub(crate) kind: &'static str,
    pub(crate) names: &'a [String],
    pub(crate) values: &'a [String],
    /// Those of the caller's request that are repeated.
    pub(crate) copied: &'a [String],
}

/// Extra parameters and headers of one kind of request.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    parameters: Parameters,
    copied: Vec<String>,
    /// Headers whose values become parameters.
    copied_from_headers: Vec<(String, HeaderName)>,
    headers: HeaderMap,
    copied_headers: Vec<HeaderName>,
}

impl Extras {
    pub(crate) fn new(fields: &ExtraFields<'_>) -> Result<Self, ConfigError> {
        let setting = |kind: &str, end: &str| format!("{kind}_{end}");
        let pairs_of = |added: &Added<'_>| {
            let [names, values] = ["names", "values"].map(|end| setting(added.kind, end));
            pairs((&names, added.names), (&values, added.values))
        };
        let ExtraFields {
            parameters,
            from_headers,
            headers,
        } = fields;
        let mut fixed = HeaderMap::new();
        for (name, value) in pairs_of(headers)? {
            let names = setting(headers.kind, "names");
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| wrong(&names, "expected names of headers"))?;
            let mut value = HeaderValue::from_str(&value).map_err(|_| {
                wrong(
                    &setting(headers.kind, "values"),
                    "expected values of headers",
                )
            })?;
            value.set_sensitive(true);
            fixed.append(name, value);
        }
        let client = setting(headers.kind, "client");
        let from = setting(parameters.kind, "client_headers");
        Ok(Self {
            parameters: last_of_each(pairs_of(parameters)?),
            copied: parameters.copied.to_vec(),
            copied_from_headers: header_names(&from, from_headers)?
                .into_iter()
                .map(|name| (name.as_str().to_owned(), name))
                .collect(),
            headers: fixed,
            copied_headers: header_names(&client, headers.copied)?,
        })
    }

    /// Whether a parameter called `name` may be among them.
    pub(crate) fn may_set(&self, name: &str) -> bool {
        self.parameters.iter().any(|(one, _)| one == name)
            || self.copied.iter().any(|one| one == name)
            || self.copied_from_headers.iter().any(|(one, _)| one == name)
    }

    /// Whether nothing of a client's request is sent.
    pub(crate) fn is_fixed(&self) -> bool {
        self.copied.is_empty()
            && self.copied_from_headers.is_empty()
            && self.copied_headers.is_empty()
    }

    /// The value of a parameter that is said with every request.
    pub(crate) fn fixed(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().rfind(|(one, _)| one == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The parameters for a request to the provider.
    pub(crate) fn parameters(&self, sent: &HeaderMap, given: &Arguments) -> Parameters {
        self.join(Parameters::new(), sent, given)
    }

    /// The same beside what the plugin says itself: in place of that where it is an
    /// operator's to say, and never where it is not.
    pub(crate) fn join(
        &self,
        mut own: Parameters,
        sent: &HeaderMap,
        given: &Arguments,
    ) -> Parameters {
        let copied = self.copied(sent, given);
        let fixed = self.parameters.iter().cloned();
        let fixed = fixed.filter(|(name, _)| !replaces(&copied, name));
        let mut extras: Parameters = fixed.chain(copied.iter().cloned()).collect();
        extras.retain(|(name, _)| MAY_DIFFER.contains(&name.as_str()) || !replaces(&own, name));
        own.retain(|(name, _)| !replaces(&extras, name));
        own.extend(extras);
        own
    }

    /// What a client's request says, of what it may.
    fn copied(&self, sent: &HeaderMap, given: &Arguments) -> Parameters {
        let mut copied = Parameters::new();
        for name in &self.copied {
            if let Some(value) = given.first(name) {
                copied.push((name.clone(), value.to_owned()));
            }
        }
        for (parameter, name) in &self.copied_from_headers {
            let value = sent.get(name).and_then(|value| value.to_str().ok());
            if let Some(value) = value.filter(|_| !replaces(&copied, parameter)) {
                copied.push((parameter.clone(), value.to_owned()));
            }
        }
        copied.retain(|(name, _)| !RESERVED.contains(&name.as_str()));
        copied
    }

    /// The headers for a request to the provider.
    pub(crate) fn headers(&self, sent: &HeaderMap) -> HeaderMap {
        let mut headers = self.headers.clone();
        for name in &self.copied_headers {
            if let Some(value) = sent.get(name) {
                headers.insert(name.clone(), value.clone());
            }
        }
        headers
    }
}

/// Fixed pairs, without those that a later one replaces.
fn last_of_each(pairs: Parameters) -> Parameters {
    let mut last = Parameters::new();
    for (name, value) in pairs {
        if !REPEATED.contains(&name.as_str()) {
            last.retain(|(other, _)| *other != name);
        }
        last.push((name, value));
    }
    last
}

/// Whether these say a parameter that is said once.
fn replaces(these: &Parameters, name: &str) -> bool {
    !REPEATED.contains(&name) && these.iter().any(|(one, _)| one == name)
}

fn header_names(field: &str, names: &[String]) -> Result<Vec<HeaderName>, ConfigError> {
    names.iter().map(|text| header_name(field, text)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::fields::Fields;

    fn pairs(pairs: &[(&str, &str)]) -> Parameters {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    /// What becomes of the plugin's own parameters with extras of `config`, for a
    /// request of this query.
    fn joined(own: &[(&str, &str)], config: Value, query: &str) -> Parameters {
        let extras = Extras::new(&Fields::of(&config).expect("valid").arguments.of_tokens());
        let given = Arguments::new(Some(query), Vec::new());
        let extras = extras.expect("valid");
        extras.join(pairs(own), &HeaderMap::new(), &given)
    }

    #[test]
    fn a_parameter_is_said_once_unless_it_may_be_repeated() {
        let own = [("scope", "openid"), ("max_age", "60"), ("audience", "a")];
        let copies = json!({"token_post_args_client": ["scope", "tenant"],
            "token_post_args_names": ["tenant"], "token_post_args_values": ["t1"]});
        let wanted = pairs(&[
            ("max_age", "60"),
            ("audience", "a"),
            ("scope", "s"),
            ("tenant", "t"),
        ]);
        assert_eq!(joined(&own, copies.clone(), "scope=s&tenant=t"), wanted);
        let mut unsaid = pairs(&own);
        unsaid.extend(pairs(&[("tenant", "t1")]));
        assert_eq!(joined(&own, copies, "scope="), unsaid);
        let twice = json!({"token_post_args_names": ["tenant", "tenant"],
            "token_post_args_values": ["t1", "t2"]});
        assert_eq!(joined(&[], twice, ""), pairs(&[("tenant", "t2")]));
        let fixed = json!({"token_post_args_names": ["max_age", "audience", "resource", "resource"],
            "token_post_args_values": ["5", "b", "x", "y"]});
        let wanted = pairs(&[
            ("scope", "openid"),
            ("audience", "a"),
            ("max_age", "5"),
            ("audience", "b"),
            ("resource", "x"),
            ("resource", "y"),
        ]);
        assert_eq!(joined(&own, fixed, ""), wanted);
    }

    #[test]
    fn what_is_the_plugins_own_is_said_by_nobody_else() {
        let fixed = json!({"token_post_args_names": ["state", "client_id"],
            "token_post_args_values": ["x", "app"]});
        let own = [("state", "s")];
        let wanted = pairs(&[("state", "s"), ("client_id", "app")]);
        assert_eq!(joined(&own, fixed, ""), wanted);
        for name in RESERVED {
            let copies = json!({ "token_post_args_client": [name] });
            let query = format!("{name}=x");
            assert_eq!(joined(&own, copies, &query), pairs(&own), "{name}");
        }
    }

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
        let extras = Extras::new(
            &Fields::of(&config)
                .expect("valid")
                .arguments
                .of_introspection(),
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
