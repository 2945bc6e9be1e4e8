//! Tokens whose signature is not looked at, since a grant is exempt
//! (`ignore_signature`): they came straight from the provider.

use std::sync::Arc;

use crate::authorize::rules::Rules;
use crate::config::fields::{Fields, wrong};
use crate::config::methods::Method;
use crate::decide::refusal::Refusal;
use crate::provider::client::ProviderClient;
use crate::provider::revocation::RevocationStatus;
use crate::provider::token_cache::VerifiedToken;
use crate::provider::verifier::CheckedClaims;
use doorward_core::jose::claims::time;
use doorward_core::jose::verify::Unverified;
use doorward_plugin_api::ConfigError;

/// The methods that are exempt.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SignatureExemptions(u16);

impl SignatureExemptions {
    pub(crate) fn new(fields: &Fields) -> Result<Self, ConfigError> {
        let mut exempt = Self::default();
        for name in fields.claims.ignore_signature.iter() {
            // Anybody could write those.
            let fitting = Method::named(name).filter(|method| *method != Method::Bearer);
            let method = fitting
                .ok_or_else(|| wrong("ignore_signature", "expected methods other than bearer"))?;
            exempt.0 |= 1 << method as u16;
        }
        Ok(exempt)
    }

    /// Whether ID tokens that come by a method are exempt. Anybody could write one
    /// that is shown beside a token.
    pub(crate) fn has_id_tokens(self, by: Method) -> bool {
        !by.is_of_token() && self.has(by)
    }

    pub(crate) fn has(self, method: Method) -> bool {
        self.0 & 1 << method as u16 != 0
    }
}

/// What a token says, whoever signed it; its claims are checked as ever.
///
/// # Errors
/// The rule that it does not meet.
pub(crate) async fn claims_without_signature(
    client: &ProviderClient,
    rules: &Rules,
    token: &str,
) -> Result<Arc<VerifiedToken>, Refusal> {
    let metadata = client.metadata().await?;
    let parsed = Unverified::parse(token)?;
    let claims = parsed.claims_of_anyone()?;
    let now_ms = client.clock.now_ms();
    let (typ, now) = (parsed.typ(), now_ms.div_euclid(1000));
    let end = rules.check(typ.as_deref(), &claims, &metadata.issuer, now);
    let end = end.map_err(|refusal| metadata.undiscovered_or(refusal))?;
    let checked = CheckedClaims {
        ends_at: end.map_or(i64::MAX, |end| end.saturating_mul(1000)),
        ends_for_good: end.is_some(),
        scopes: rules.scopes(&claims),
        expires_at: time(&claims, "exp").ok().flatten(),
        claims,
    };
    let revocation = RevocationStatus::new(metadata.token_status.clone());
    let verified = checked.verified(token, token.len(), 0, revocation);
    verified.revocation.check(&verified.token.claims).await?;
    Ok(verified)
}
