//! The token response (interface 4.8): every scalar is a text, numbers too.

use serde::{Serialize, Serializer};

use super::client::Client;
use super::flow::MAX_LIFE_MS;
use doorward_core::model::broker::StoredTokens;

/// What the client gets. Members are in the order in which they are sent.
#[derive(Debug, Serialize)]
pub(super) struct TokenResponse<'a> {
    refresh_token_expires_in: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh_token_status: Option<&'static str>,
    api_product_list: String,
    api_product_list_json: Vec<&'a str>,
    organization_name: &'a str,
    #[serde(rename = "developer.email")]
    developer_email: &'a str,
    token_type: &'static str,
    issued_at: String,
    client_id: &'a str,
    access_token: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh_token: Option<&'a str>,
    application_name: &'a str,
    scope: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh_token_issued_at: Option<String>,
    expires_in: String,
    refresh_count: String,
    status: &'static str,
    #[serde(flatten, serialize_with = "displayed")]
    attributes: &'a StoredTokens,
}

/// Attributes of the operation that are to be shown, and that are named like
/// no other member.
fn displayed<S: Serializer>(tokens: &StoredTokens, serializer: S) -> Result<S::Ok, S::Error> {
    let attributes = tokens.facts.attributes.iter();
    let shown = attributes.filter(|(name, one)| one.display && !MEMBERS.contains(&name.as_str()));
    serializer.collect_map(shown.map(|(name, one)| (name, &one.value)))
}

const MEMBERS: [&str; 17] = [
    "refresh_token_expires_in",
    "refresh_token_status",
    "api_product_list",
    "api_product_list_json",
    "organization_name",
    "developer.email",
    "token_type",
    "issued_at",
    "client_id",
    "access_token",
    "refresh_token",
    "application_name",
    "scope",
    "refresh_token_issued_at",
    "expires_in",
    "refresh_count",
    "status",
];

impl<'a> TokenResponse<'a> {
    /// The response with these tokens of `client`.
    pub(super) fn new(
        tokens: &'a StoredTokens,
        access: &'a str,
        refresh: Option<&'a str>,
        client: &'a Client,
        organization: &'a str,
    ) -> Self {
        let facts = &tokens.facts;
        let products = client.products.iter();
        let products: Vec<&str> = products.map(|one| one.product.name.as_str()).collect();
        let refresh_life = tokens.refresh_expires_ms - facts.refresh_issued_ms;
        Self {
            refresh_token_expires_in: match refresh {
                Some(_) if refresh_life < MAX_LIFE_MS => seconds(refresh_life),
                _ => "0".to_owned(),
            },
            refresh_token_status: refresh.map(|_| "approved"),
            api_product_list: format!("[{}]", products.join(", ")),
            api_product_list_json: products,
            organization_name: organization,
            developer_email: client
                .developer
                .as_ref()
                .map_or("", |developer| &developer.email),
            token_type: "BearerToken",
            issued_at: facts.issued_ms.to_string(),
            client_id: &tokens.client_id,
            access_token: access,
            refresh_token: refresh,
            application_name: &client.application.id,
            scope: facts.scopes.join(" "),
            refresh_token_issued_at: refresh.map(|_| facts.refresh_issued_ms.to_string()),
            expires_in: seconds(tokens.expires_ms - facts.issued_ms),
            refresh_count: facts.refresh_count.to_string(),
            status: "approved",
            attributes: tokens,
        }
    }
}

/// Whole seconds that are left of a life that has just begun.
fn seconds(life_ms: i64) -> String {
    ((life_ms - 1) / 1000).max(0).to_string()
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn a_life_that_has_begun_is_told_less_a_second_and_a_providers_as_it_told_it() {
        for (life_ms, told) in [
            (1_800_000, "1799"),
            // 599 of the 600 that a provider gave.
            (599_001, "599"),
            (1_500, "1"),
            (1_000, "0"),
            (0, "0"),
        ] {
            assert_eq!(seconds(life_ms), told, "{life_ms}");
        }
    }
}
