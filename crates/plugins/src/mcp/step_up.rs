//! Whether a client that lacks scopes could come back with them. One that can't is not
//! told to try: it would ask its user again and again.

use http::header::WWW_AUTHENTICATE;
use pingora::http::RequestHeader;
use serde_json::{Map, Value};

use super::{Mcp, bare_token, tokens};
use doorward_core::jose::claims::words;
use doorward_core::jose::verify::Unverified;
use doorward_net::http::reply::Reply;
use doorward_net::http::session::Session;
use doorward_openid_connect::refusal::Refusal;
use doorward_plugin_api::filter::{Exchange, Flow};

/// The refusal of a token that lacks a scope, until it is known whether the client may
/// have it.
pub(super) struct LackingScope(pub(super) Reply);

impl LackingScope {
    /// Takes it out of the notes on a request.
    pub(super) fn take(exchange: &mut Exchange) -> Option<Reply> {
        let at = exchange.notes.iter().position(|note| note.is::<Self>())?;
        let note = exchange.notes.swap_remove(at);
        note.downcast::<Self>().ok().map(|lacking| lacking.0)
    }
}

/// Whether a request was refused because its token lacks a scope that all calls need.
pub(super) fn lacks_scope(exchange: &Exchange) -> bool {
    let refusal = exchange.refusal.as_deref().and_then(Refusal::named);
    matches!(refusal, Some(Refusal::MissingScope))
}

impl Mcp {
    /// The answer to a token that lacks a scope that all calls need.
    pub(super) async fn refuse_for_scope(
        &self,
        mut reply: Reply,
        session: &mut Session,
        exchange: &mut Exchange,
    ) -> Flow {
        let request = session.req_header();
        if self
            .may_step_up(&self.config.scopes, request, exchange)
            .await
        {
            return self.finish(Flow::Respond(reply), request, exchange);
        }
        reply.headers.retain(|(name, _)| name != WWW_AUTHENTICATE);
        Flow::Respond(self.deny_for_scope(session, exchange, reply).await)
    }

    /// Whether a token with these scopes may be had by the client, and by the gateway
    /// that exchanges it. Only a provider in this process can tell of clients.
    pub(super) async fn may_step_up(
        &self,
        scopes: &[String],
        request: &RequestHeader,
        exchange: &Exchange,
    ) -> bool {
        let provider = self.outbound.token_status(&self.config.issuer);
        let current = exchange.token.as_deref().map(|token| &token.claims);
        let shown = match (&self.config.exchanged_from, current) {
            (None, Some(_)) => None,
            _ => tokens(request).next().map(bare_token),
        };
        let mut shown_claims = shown.and_then(claims);
        if let (Some(token), None, Some(provider)) = (shown, &shown_claims, &provider) {
            // It says nothing by itself.
            shown_claims = provider.claims_of(token).await.unwrap_or_default();
        }
        let exchanges = self.config.exchanged_from.is_some();
        if exchanges
            && shown_claims
                .as_ref()
                .is_some_and(|shown| has_all(shown, scopes))
        {
            // The exchange has lost them, and would again.
            return false;
        }
        let Some(provider) = provider else {
            return true;
        };
        for claims in shown_claims.iter().chain(current) {
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
