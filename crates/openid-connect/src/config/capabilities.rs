//! What a configuration needs of its provider, compared with what that says it
//! can do (`verify_parameters`).

use serde_json::Value;

use crate::config::fields::Fields;
use crate::config::fields::client::ClientAuthName;
use crate::provider::ProviderMetadata;
use doorward_plugin_api::config::FieldWord;

/// Values that lists in the provider's metadata should have.
#[derive(Debug)]
pub(crate) struct RequiredCapabilities(Vec<Capability>);

#[derive(Debug)]
struct Capability {
    setting: &'static str,
    member: &'static str,
    values: Vec<String>,
}

impl RequiredCapabilities {
    /// `None`: nothing is compared.
    pub(crate) fn new(fields: &Fields, signs_in: bool) -> Option<Self> {
        if !fields.checks.verify_parameters {
            return None;
        }
        let need = |setting, member, values| Capability {
            setting,
            member,
            values,
        };
        let words = |words: &[ClientAuthName]| {
            let words = words.iter().map(|name| name.word().to_owned());
            words.collect::<Vec<_>>()
        };
        let mut needs = Vec::new();
        if signs_in {
            let mode = fields.login.response_mode.iter();
            let mode = mode.map(|mode| mode.word().to_owned()).collect();
            let types = fields.client.response_type.to_vec();
            needs = vec![
                need(
                    "scopes",
                    "scopes_supported",
                    fields.provider.scopes.to_vec(),
                ),
                need("response_mode", "response_modes_supported", mode),
                need("response_type", "response_types_supported", types),
            ];
        }
        let member = "token_endpoint_auth_methods_supported";
        let there = fields.endpoints.token_endpoint_auth_method;
        needs.push(need(
            "client_auth",
            member,
            words(&fields.client.client_auth),
        ));
        let there = words(there.as_slice());
        needs.push(need("token_endpoint_auth_method", member, there));
        Some(Self(needs))
    }

    /// Says what the provider does not name. It may do it all the same, so
    /// nothing is refused for that.
    pub(crate) fn compare(&self, metadata: &ProviderMetadata) {
        for (setting, value, member) in self.missing(|name| metadata.member(name)) {
            tracing::warn!(
                issuer = %metadata.issuer,
                setting,
                value,
                "the provider does not name this in {member} (verify_parameters)"
            );
        }
    }

    fn missing<'a>(
        &'a self,
        member: impl Fn(&str) -> Option<&'a Value>,
    ) -> Vec<(&'static str, &'a str, &'static str)> {
        let mut missing = Vec::new();
        for need in &self.0 {
            // What is left out says nothing.
            let Some(offered) = member(need.member).and_then(Value::as_array) else {
                continue;
            };
            let lacks = |value: &&String| !offered.iter().any(|one| one == value.as_str());
            let lacking = need.values.iter().filter(lacks);
            missing.extend(lacking.map(|value| (need.setting, value.as_str(), need.member)));
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_provider_does_not_name_is_found() {
        let config = json!({"scopes": ["openid", "admin"], "client_auth": ["none"]});
        let needs =
            RequiredCapabilities::new(&Fields::of(&config).expect("valid"), true).expect("on");
        let offered = json!({"scopes_supported": ["openid"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"]});
        let missing: Vec<_> = needs
            .missing(|name| offered.get(name))
            .into_iter()
            .collect();
        let values: Vec<_> = missing.iter().map(|(_, value, _)| *value).collect();
        assert_eq!(values, ["admin", "none"]);
        let config = json!({"verify_parameters": false});
        assert!(RequiredCapabilities::new(&Fields::of(&config).expect("valid"), true).is_none());
    }
}
