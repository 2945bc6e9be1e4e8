//! What log and metrics call what the broker does, and what it would do with a
//! request, for an operator who asks.

use pingora::http::RequestHeader;

use super::TokenBroker;
use super::fault::Fault;
use super::flow::Operation;
use super::verify::is_token;
use doorward_net::http::path::normalize;
use doorward_plugin_api::filter::{Code, Exchange, FilterExplanation};

/// Every code.
pub(super) const CODES: &[Code] = &[
    Code::new(
        "invalid_token",
        401,
        "no access token, or none of the broker's",
    ),
    Code::new("token_expired", 401, "the access token has expired"),
    Code::new(
        "token_revoked",
        401,
        "the access token is not approved any more",
    ),
    Code::new(
        "application_not_approved",
        401,
        "the client of the token is not approved",
    ),
    Code::new("no_product", 401, "the client of the token has no product"),
    Code::new(
        "wrong_product",
        401,
        "no product of the client is for this proxy and environment",
    ),
    Code::new(
        "wrong_path",
        401,
        "no product of the client is for this path",
    ),
    Code::new("missing_scope", 403, "a required scope is missing"),
    Code::new(
        "no_token_variable",
        500,
        "the variable with the token has no value",
    ),
    Code::new("quota", 429, "the quota of the client's product is used up"),
    Code::new("no_flow", 404, "no flow is for this request"),
    Code::new(
        "unreadable_body",
        400,
        "the body can't be read, or is too long (413)",
    ),
    Code::new(
        "client_secrets",
        429,
        "wrong secrets of the client came too often from the address",
    ),
    Code::new("store", 503, "the store of tokens does not answer"),
    Code::new(
        "invalid_client",
        401,
        "the client is not known, or not approved",
    ),
    Code::new(
        "invalid_request",
        400,
        "a parameter is missing or malformed (500 in a fault)",
    ),
    Code::new(
        "unsupported_grant_type",
        400,
        "the grant type is not supported (500 in a fault)",
    ),
    Code::new("invalid_scope", 400, "the client may not have the scope"),
    Code::new(
        "external_authorization",
        401,
        "the provider has not let the user in",
    ),
    Code::new(
        "provider",
        500,
        "the provider gave no answer that can be used",
    ),
    Code::new(
        "invalid_refresh_token",
        400,
        "the refresh token is not known, used or revoked",
    ),
    Code::new(
        "refresh_token_expired",
        400,
        "the refresh token has expired",
    ),
];

impl TokenBroker {
    /// What would become of a request of which the head is known.
    pub(super) async fn explanation(
        &self,
        request: &RequestHeader,
        exchange: &mut Exchange,
    ) -> Result<FilterExplanation, Fault> {
        let (Some(broker), Ok(path)) = (&self.broker, normalize(request.uri.path())) else {
            return Err(Fault::store());
        };
        let nowhere = || Fault::no_flow("", request.uri.path());
        let suffix = self.suffix(&path).ok_or_else(nowhere)?;
        // Not a guard: this waits.
        let names = std::sync::Arc::clone(&broker.names());
        let facts = self.facts(request, suffix, exchange, broker, &names);
        let Ok(flow) = self.flow(&facts) else {
            return Ok(FilterExplanation::depends("which flow the body is for"));
        };
        let verify = match &flow.ok_or_else(nowhere)?.operation {
            Operation::Verify(verify) if verify.is_unread(&facts) => {
                return Ok(FilterExplanation::depends("the token in the body"));
            }
            Operation::Verify(verify) => verify,
            Operation::Pass => return Ok(FilterExplanation::passes("its flow asks for nothing")),
            Operation::Generate(_) | Operation::Refresh(_) | Operation::Invalidate(_) => {
                return Ok(FilterExplanation::depends(
                    "the tokens that its flow makes or ends",
                ));
            }
        };
        let shown = Self::shown(verify, &facts)?;
        if !is_token(&shown) {
            return Err(Fault::invalid_token());
        }
        let token = match broker.held(&shown, facts.now_ms) {
            Some(token) => Some(token),
            None => broker.token(&shown, &self.outbound).await?,
        };
        let token = token.ok_or_else(|| Fault::unknown_token(self.split_codes))?;
        self.covering(verify, &token, &facts)?;
        exchange.token = Some(std::sync::Arc::clone(&token.access));
        Ok(FilterExplanation::passes(
            "the token is good; its quota is not asked",
        ))
    }
}

impl Fault {
    /// What a request that it refuses would get.
    pub(super) fn explanation(&self) -> FilterExplanation {
        let known = CODES.iter().find(|code| code.code == self.label);
        FilterExplanation::Answers {
            status: self.status.as_u16(),
            code: self.label.to_owned(),
            reason: known.map_or(&*self.text, |code| code.meaning).to_owned(),
        }
    }
}
