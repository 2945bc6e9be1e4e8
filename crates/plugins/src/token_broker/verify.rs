//! VerifyAccessToken: whose token it is, and whether it is good for this
//! request.

use std::borrow::Cow;
use std::sync::Arc;

use http::StatusCode;
use http::header::AUTHORIZATION;

use super::TokenBroker;
use super::audit_events::RequestAudit;
use super::broker::Token;
use super::client::{LiveProduct, Uncovered};
use super::fault::Fault;
use super::flow::Verify;
use super::variable::Facts;
use doorward_core::clock;
use doorward_core::model::audit::Kind;

/// Longest token that is looked at, in bytes.
const MAX_TOKEN: usize = 16 * 1024;

/// Whether a text can be a token at all: only such ones are asked about.
pub(super) fn is_token(text: &str) -> bool {
    text.len() <= MAX_TOKEN && text.bytes().all(|byte| byte.is_ascii_graphic())
}

impl TokenBroker {
    /// What a request shows for a token; whether it can be one is not looked at
    /// yet.
    pub(super) fn shown<'a>(verify: &Verify, facts: &'a Facts<'_>) -> Result<Cow<'a, str>, Fault> {
        let text = match &verify.token {
            Some((variable, name)) => facts
                .value(variable)
                .filter(|token| !token.is_empty())
                .ok_or_else(|| Fault::unresolved_token(name))?,
            None => Cow::Borrowed(header(verify, facts).ok_or_else(Fault::invalid_token)?),
        };
        Ok(text)
    }

    /// Whether a token is good for a request now; takes of its product's quota.
    /// A refusal of the token itself is told.
    pub(super) fn judge<'a>(
        &self,
        verify: &Verify,
        token: Option<&Arc<Token>>,
        facts: &Facts<'_>,
        audit: impl FnOnce() -> RequestAudit<'a>,
    ) -> Result<(), Fault> {
        let judged = self.weigh(verify, token, facts);
        if let Err(fault) = &judged
            && matches!(
                fault.status,
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
            )
        {
            let mut audit = audit();
            if let Some(token) = token {
                audit.of_client(&token.tokens.client_id);
            }
            audit.refuse(Kind::TokenRefuse, fault);
        }
        judged
    }

    fn weigh(
        &self,
        verify: &Verify,
        token: Option<&Arc<Token>>,
        facts: &Facts<'_>,
    ) -> Result<(), Fault> {
        let token = token.ok_or_else(|| Fault::unknown_token(self.split_codes))?;
        let product = self.covering(verify, token, facts)?;
        take(product, &token.tokens.client_id)
    }

    /// The product by which a token is good for a request now.
    pub(super) fn covering<'t>(
        &self,
        verify: &Verify,
        token: &'t Token,
        facts: &Facts<'_>,
    ) -> Result<&'t LiveProduct, Fault> {
        let tokens = &token.tokens;
        if !tokens.access_approved {
            return Err(Fault::revoked());
        }
        if tokens.expires_ms <= facts.now_ms {
            return Err(Fault::expired());
        }
        let Some(client) = &token.client else {
            return Err(Fault::application());
        };
        if !client.is_approved() {
            return Err(Fault::application());
        }
        if !client.gave(tokens) || tokens.has_ended() {
            return Err(Fault::revoked());
        }
        let product = match client.covering(facts.place(), facts.suffix) {
            Ok(product) => product,
            Err(Uncovered::NoProduct) => return Err(Fault::no_product()),
            Err(Uncovered::Elsewhere) => return Err(Fault::elsewhere()),
            Err(Uncovered::Path) => return Err(Fault::no_resource(facts.suffix)),
        };
        let held = |scope: &String| token.access.scopes.contains(scope);
        if !verify.scopes.iter().all(held) {
            return Err(Fault::scope(&verify.scopes));
        }
        Ok(product)
    }
}

/// The token of the one `Authorization` field. With several such fields it is
/// anyone's guess which one the upstream would believe.
fn header<'a>(verify: &Verify, facts: &Facts<'a>) -> Option<&'a str> {
    let mut fields = facts.request.headers.get_all(AUTHORIZATION).iter();
    let (first, None) = (fields.next()?, fields.next()) else {
        return None;
    };
    let text = std::str::from_utf8(first.as_bytes()).ok()?;
    let (prefix, token) = text.split_at_checked(verify.prefix.len())?;
    let token = prefix
        .eq_ignore_ascii_case(&verify.prefix)
        .then(|| token.trim())?;
    (!token.is_empty()).then_some(token)
}

fn take(product: &LiveProduct, client_id: &str) -> Result<(), Fault> {
    let Some(quota) = &product.quota else {
        return Ok(());
    };
    let taken = quota.take(client_id, clock::monotonic_ns());
    // In whole seconds, rounded up.
    taken.map_err(|delay| Fault::quota(client_id, delay.div_ceil(1_000_000_000)))
}
