//! The secrets of clients as keys of HMAC signatures (`enable_hs_signatures`,
//! OpenID Connect Core §10.1): each client's tokens are signed with its own.

use serde_json::{Map, Value};

use crate::config::fields::{Fields, wrong};
use crate::provider::client_auth::nth;
use crate::provider::id_token::Expected;
use doorward_core::jose::claims::words;
use doorward_core::model::secret::Secret;
use doorward_plugin_api::ConfigError;

/// Shortest secret that nobody is warned of, in bytes.
pub(crate) const SECRET_MIN: usize = 32;

/// The keys of HMAC signatures; none where these are not allowed.
#[derive(Clone, Debug, Default)]
pub(crate) struct HmacKeys {
    secrets: Vec<Secret>,
    /// Clients, and the place of their secret.
    clients: Vec<(String, usize)>,
}

impl HmacKeys {
    pub(crate) fn new(fields: &Fields) -> Result<Self, ConfigError> {
        if !fields.claims.enable_hs_signatures {
            return Ok(Self::default());
        }
        let configured = &fields.provider.client_secret;
        let mut secrets: Vec<&String> = Vec::new();
        for secret in configured.iter().filter(|secret| !secret.is_empty()) {
            if !secrets.contains(&secret) {
                secrets.push(secret);
            }
        }
        if secrets.is_empty() {
            return Err(wrong(
                "client_secret",
                "required when enable_hs_signatures is true",
            ));
        }
        let clients = fields.provider.client_id.iter().enumerate();
        let clients = clients.filter_map(|(index, client)| {
            let own = nth(configured, index)?;
            Some((client.clone(), secrets.iter().position(|one| *one == own)?))
        });
        Ok(Self {
            clients: clients.collect(),
            secrets: secrets.into_iter().map(Secret::new).collect(),
        })
    }

    /// All of them: for what may be of any client.
    pub(crate) fn all(&self) -> &[Secret] {
        &self.secrets
    }

    /// The key of what is for this client.
    pub(crate) fn of(&self, client: &str) -> &[Secret] {
        let mut clients = self.clients.iter();
        let found = clients.find(|(name, _)| name == client);
        found.map_or(&[], |(_, place)| &self.secrets[*place..=*place])
    }

    /// The key of an ID token.
    pub(crate) fn for_token<'a>(&'a self, expected: &Expected<'a>) -> &'a [Secret] {
        match expected.secret {
            Some(secret) if !self.secrets.is_empty() => std::slice::from_ref(secret),
            _ => self.of(expected.client),
        }
    }

    /// The key of the client that these claims say they are for.
    pub(crate) fn of_audience(&self, claims: &Map<String, Value>) -> &[Secret] {
        let audience = claims.get("aud").map(words).unwrap_or_default();
        let mut named = audience.iter().map(|client| self.of(client));
        named.find(|keys| !keys.is_empty()).unwrap_or_default()
    }

    /// Whether one of them can be guessed.
    pub(crate) fn are_weak(&self) -> bool {
        let mut secrets = self.secrets.iter();
        secrets.any(|secret| secret.expose().len() < SECRET_MIN)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn keys(config: &Value) -> HmacKeys {
        HmacKeys::new(&Fields::of(config).expect("valid")).expect("valid")
    }

    fn texts(secrets: &[Secret]) -> Vec<&str> {
        secrets.iter().map(|secret| secret.expose()).collect()
    }

    #[test]
    fn each_client_has_its_own_secret_and_strangers_have_none() {
        let config = json!({"enable_hs_signatures": true,
            "client_id": ["a", "b", "c", "d", "e"], "client_secret": ["1", "2", "", "2"]});
        let keys = keys(&config);
        assert_eq!(texts(keys.all()), ["1", "2"]);
        for (client, secrets) in [
            ("a", vec!["1"]),
            ("b", vec!["2"]),
            ("c", vec![]),
            ("d", vec!["2"]),
            ("e", vec!["1"]),
            ("x", vec![]),
        ] {
            assert_eq!(texts(keys.of(client)), secrets, "{client}");
        }
        for (audience, secrets) in [
            (json!("b"), vec!["2"]),
            (json!(["x", "b"]), vec!["2"]),
            (json!("x"), vec![]),
        ] {
            let claims = json!({ "aud": audience });
            let claims = claims.as_object().expect("an object");
            assert_eq!(texts(keys.of_audience(claims)), secrets);
        }
    }

    #[test]
    fn there_are_none_unless_they_are_allowed() {
        let config = json!({"client_id": ["a"], "client_secret": ["1"]});
        assert!(keys(&config).all().is_empty() && keys(&config).of("a").is_empty());
    }
}
