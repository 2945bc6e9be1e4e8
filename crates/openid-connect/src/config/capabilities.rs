//! What a configuration needs of its provider, compared with what that says it
//! can do (`verify_parameters`).

use serde_json::Value;

use crate::config::fields::Fields;
use crate::provider::ProviderMetadata;
use doorward_plugin_api::ConfigError;

/// Values that lists in the provider's metadata should have.
#[derive(Debug)]
pub(crate) struct RequiredCapabilities(Vec<Capability>);

#[derive(Debug)]
struct Capability {
    setting: &'static str,
    member: &'static str,
    values: Vec<String>,
}

/// Settings, and the members of metadata that tell about them.
const COMPARED: [(&str, &str); 5] = [
    ("scopes", "scopes_supported"),
    ("response_mode", "response_modes_supported"),
    ("response_type", "response_types_supported"),
    ("client_auth", "token_endpoint_auth_methods_supported"),
    (
        "token_endpoint_auth_method",
        "token_endpoint_auth_methods_supported",
    ),
];

impl RequiredCapabilities {
    /// `None`: nothing is compared.
    pub(crate) fn new(fields: Fields<'_>, signs_in: bool) -> Result<Option<Self>, ConfigError> {
        if !fields.flag("verify_parameters")? {
            return Ok(None);
        }
        let mut needs = Vec::new();
        for (setting, member) in COMPARED {
            let of_logins = matches!(setting, "response_mode" | "response_type" | "scopes");
            if of_logins && !signs_in {
                continue;
            }
            let values = fields.texts(setting)?;
            needs.push(Capability {
                setting,
                member,
                values,
            });
        }
        Ok(Some(Self(needs)))
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
        let config = config.as_object().cloned().expect("an object");
        let needs = RequiredCapabilities::new(Fields(&config), true)
            .expect("valid")
            .expect("on");
        let offered = json!({"scopes_supported": ["openid"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"]});
        let missing: Vec<_> = needs
            .missing(|name| offered.get(name))
            .into_iter()
            .collect();
        let values: Vec<_> = missing.iter().map(|(_, value, _)| *value).collect();
        assert_eq!(values, ["admin", "none"]);
        let config = json!({"verify_parameters": false});
        let config = config.as_object().cloned().expect("an object");
        assert!(
            RequiredCapabilities::new(Fields(&config), true)
                .expect("valid")
                .is_none()
        );
    }
}
