//! Whether a client that lacks scopes could come back with them. One that can't is not
//! told to try: it would ask its user again and again.

use pingora::http::RequestHeader;
use serde_json::{Map, Value};

use super::{Mcp, bare_token, tokens};
use doorward_core::jose::claims::words;
use doorward_core::jose::verify::Unverified;
use doorward_plugin_api::filter::Exchange;

impl Mcp {
    /// Whether a token with these scopes may be had by the client, and by the gateway
    /// that exchanges it. Only a provider in this process can tell of clients.
    pub(super) async fn may_step_up(
        &self,
        scopes: &[String],
        request: &RequestHeader,
        exchange: &Exchange,
    ) -> bool {
        let shown = match &self.config.exchanged_from {
            Some(_) => tokens(request).find_map(|token| claims(bare_token(token))),
            None => None,
        };
        if shown.as_ref().is_some_and(|shown| has_all(shown, scopes)) {
            // The exchange has lost them, and would again.
            return false;
        }
        let Some(provider) = self.outbound.token_status(&self.config.issuer) else {
            return true;
        };
        let current = exchange.token.as_deref().map(|token| &token.claims);
        for claims in shown.iter().chain(current) {
            if matches!(provider.may_have_scopes(claims, scopes).await, Ok(false)) {
                return false;
            }
        }
        true
    }
}

/// The claims of a token that was found good before.
fn claims(token: &str) -> Option<Map<String, Value>> {
    let token = Unverified::parse(token).ok()?;
    token.claims_of_anyone().ok()
}

fn has_all(claims: &Map<String, Value>, scopes: &[String]) -> bool {
    let held = claims.get("scope").map(words).unwrap_or_default();
    scopes
        .iter()
        .all(|scope| held.iter().any(|one| one == scope))
}
