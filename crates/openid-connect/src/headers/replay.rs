//! Headers of the token endpoint's answers that go on to the client
//! (`token_headers_replay`, `_prefix`, `_grants`).

use std::sync::Arc;

use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::config::fields::connection::Grant;
use crate::config::fields::{Fields, header_name, wrong};
use doorward_plugin_api::ConfigError;
use doorward_plugin_api::config::FieldWord;

/// Which headers, and as what.
#[derive(Clone, Debug)]
pub(crate) struct Replay {
    /// Names at the provider and for the client.
    names: Arc<[(HeaderName, HeaderName)]>,
    /// Of every grant if empty.
    grants: Arc<[Grant]>,
}

impl Replay {
    pub(crate) fn new(fields: &Fields) -> Result<Self, ConfigError> {
        let field = "token_headers_replay";
        let prefix = fields
            .arguments
            .token_headers_prefix
            .as_deref()
            .unwrap_or_default();
        let pair = |name: &String| {
            let from = header_name(field, name)?;
            let to = header_name("token_headers_prefix", &format!("{prefix}{name}"))?;
            // They belong to one connection.
            if [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE].contains(&to) {
                return Err(wrong(
                    field,
                    "expected headers that are not of a connection",
                ));
            }
            Ok((from, to))
        };
        let names = &fields.arguments.token_headers_replay;
        Ok(Self {
            names: names.iter().map(pair).collect::<Result<_, _>>()?,
            grants: fields.arguments.token_headers_grants.clone().into(),
        })
    }

    /// Names of what clients get.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &HeaderName> {
        self.names.iter().map(|(_, to)| to)
    }

    /// What of an answer to `grant` is for the client.
    pub(crate) fn of(&self, grant: &str, headers: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
        if !self.grants.is_empty() && !self.grants.iter().any(|one| one.word() == grant) {
            return Vec::new();
        }
        let found = self.names.iter().flat_map(|(from, to)| {
            let values = headers.get_all(from).iter();
            values.map(move |value| (to.clone(), value.clone()))
        });
        found.collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn headers_are_replayed_by_grant_under_a_prefix() {
        let config = json!({"token_headers_replay": ["X-Plan"], "token_headers_prefix": "IdP-",
            "token_headers_grants": ["password"]});
        let replay = Replay::new(&Fields::of(&config).expect("valid")).expect("valid");
        let mut headers = HeaderMap::new();
        headers.insert("x-plan", HeaderValue::from_static("gold"));
        headers.insert("x-other", HeaderValue::from_static("1"));
        let replayed = replay.of("password", &headers);
        assert_eq!(replayed.len(), 1);
        assert_eq!(replayed[0].0, "idp-x-plan");
        assert!(replay.of("refresh_token", &headers).is_empty());
        let bad = json!({"token_headers_replay": ["Content_Length"]});
        assert!(Replay::new(&Fields::of(&bad).expect("valid")).is_err());
    }
}
