//! What the provider's answers say of a token.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Map, Value};

use crate::authorize::rules::denies;
use crate::decide::refusal::{Class, Refusal};
use crate::provider::ProviderMetadata;
use crate::provider::client::{ProviderClient, object};
use crate::provider::client_auth::Client;
use crate::provider::introspection::IntrospectionConfig;
use crate::provider::issuers::AllowedIssuers;
use crate::provider::revocation::RevocationStatus;
use crate::provider::token_cache::{Document, ProviderResponses, VerifiedToken};
use crate::provider::verifier::CheckedClaims;
use doorward_core::jose::claims::time;
use doorward_core::jose::verify::Unverified;
use doorward_core::model::secret::Secret;
use doorward_net::http::outbound::Answer;
use doorward_net::http::provider_error::describe;

/// Members of which an introspection answer has at least one, where it may leave out
/// `active` (RFC 7662 §2.2).
const OF_TOKENS: [&str; 5] = ["sub", "username", "client_id", "scope", "exp"];

impl IntrospectionConfig {
    /// The claims of a good introspection answer.
    pub(crate) async fn introspection_claims(
        &self,
        provider_client: &ProviderClient,
        client: Option<&Client>,
        answer: &Answer,
    ) -> Result<Document, Refusal> {
        match answer.status {
            StatusCode::OK => {}
            // RFC 7662 §2.3: of the gateway's own credentials.
            status => {
                let error = said(answer);
                doorward_net::telemetry::warn_limited!(%status, error, "the provider does not answer introspection");
                return Err(Refusal::ProviderRefuses);
            }
        }
        let jwt = jwt(answer);
        let claims = match &jwt {
            None => object(answer).ok_or(Refusal::ProviderMalformed)?,
            Some(token) => {
                let issuers = &self.rules.issuers;
                let typ = Some("token-introspection+jwt");
                let secrets = client.map(|me| provider_client.hmac_keys.of(&me.id));
                let secrets = secrets.unwrap_or_default();
                let mut claims =
                    provider_signed_claims(provider_client, issuers, (token, secrets), typ).await?;
                // RFC 9701 §5: made by the provider, for this client.
                let audience = claims.get("aud").map(doorward_core::jose::claims::words);
                let mine = client.zip(audience);
                let mine = mine.is_some_and(|(me, aud)| aud.iter().any(|one| *one == me.id));
                match claims.remove("token_introspection") {
                    Some(Value::Object(inside)) if mine => inside,
                    _ => return Err(Refusal::ProviderMalformed),
                }
            }
        };
        self.check_active(&claims)?;
        Ok(Document {
            claims,
            jwt,
            length: answer.body.len(),
        })
    }

    /// Whether an introspection answer says that the token is active; where that is
    /// not asked, whether it is one at all.
    fn check_active(&self, claims: &Map<String, Value>) -> Result<(), Refusal> {
        let how = self.introspection.as_ref();
        let strict = how.is_none_or(|how| how.check_active);
        let active = claims.get("active");
        if claims.get("error").is_some_and(|error| !error.is_null()) {
            return Err(Refusal::InactiveToken);
        }
        match (strict, active) {
            (true, Some(Value::Bool(true))) => Ok(()),
            (true, _) => Err(Refusal::InactiveToken),
            (false, Some(Value::Bool(_))) => Ok(()),
            (false, None) if OF_TOKENS.iter().any(|name| claims.contains_key(*name)) => Ok(()),
            (false, _) => Err(Refusal::ProviderMalformed),
        }
    }

    /// What is known of a token after the provider has told its claims.
    pub(crate) async fn verified_token(
        &self,
        provider_client: &ProviderClient,
        token: &str,
        responses: ProviderResponses,
        length: usize,
        revocation: RevocationStatus,
    ) -> Result<Arc<VerifiedToken>, Refusal> {
        // With nothing else to go by, any word at all would let everybody in.
        if let Some(user_info) = &responses.user_info
            && !has_subject(user_info)
        {
            return Err(Refusal::ProviderMalformed);
        }
        let now_ms = provider_client.clock.now_ms();
        let document = responses
            .introspection
            .as_ref()
            .or(responses.user_info.as_ref());
        let response = document.map(|document| document.claims.clone());
        let response = response.unwrap_or_default();
        let claims = if self.vouches_for_token(&responses) {
            with_own_claims(&response, token)
        } else {
            response.clone()
        };
        let metadata = provider_client.metadata().await?;
        let now = now_ms.div_euclid(1000);
        let end = self
            .rules
            .check_introspected(&response, &claims, &metadata.issuer, now);
        let end = end.map_err(|refusal| metadata.undiscovered_or(refusal))?;
        // Userinfo does not say when a token ends. What that says itself can only make
        // the end come sooner, so that it counts whoever signed it.
        let is_silent = responses.introspection.is_none();
        let own = is_silent.then(|| with_own_claims(&Map::new(), token));
        let own_end = own.and_then(|own| self.rules.end_of(&own));
        let end = end.into_iter().chain(own_end).min();
        let end = end.map(|end| end.saturating_mul(1000));
        let ends_at = self.lifetimes.until(end, now_ms);
        let checked = CheckedClaims {
            ends_for_good: end == Some(ends_at),
            ends_at,
            scopes: self.rules.scopes(&claims),
            expires_at: time(&response, "exp").ok().flatten(),
            claims,
        };
        let responses = if self.keeps_responses {
            responses
        } else {
            ProviderResponses::default()
        };
        Ok(checked.verified_with(token, length + token.len(), 0, revocation, responses))
    }

    /// Whether what was said holds only of a token that is good, so that what it says
    /// itself is true as well.
    fn vouches_for_token(&self, responses: &ProviderResponses) -> bool {
        let how = self.introspection.as_ref();
        responses.introspection.is_some() && how.is_some_and(|how| how.check_active)
    }
}

/// What was told of a token, and what it says itself besides, if it can be read.
fn with_own_claims(response: &Map<String, Value>, token: &str) -> Map<String, Value> {
    let parsed = Unverified::parse(token);
    let own = parsed.and_then(|parsed| parsed.claims_of_anyone());
    let mut claims = response.clone();
    for (name, value) in own.unwrap_or_default() {
        claims.entry(name).or_insert(value);
    }
    claims
}

/// What an answer that is a refusal says, empty if nothing.
fn said(answer: &Answer) -> String {
    let body = object(answer).unwrap_or_default();
    let text = |name: &str| body.get(name).and_then(serde_json::Value::as_str);
    describe(text("error").unwrap_or_default(), text("error_description"))
}

/// The claims of a good userinfo answer.
pub(crate) async fn userinfo_claims(
    provider_client: &ProviderClient,
    issuers: &AllowedIssuers,
    answer: &Answer,
) -> Result<Document, Refusal> {
    match answer.status {
        StatusCode::OK => {}
        StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            return Err(Refusal::InactiveToken);
        }
        status => {
            let error = said(answer);
            doorward_net::telemetry::warn_limited!(%status, error, "the provider does not answer userinfo");
            return Err(Refusal::ProviderRefuses);
        }
    }
    let jwt = jwt(answer);
    let claims = match &jwt {
        None => object(answer),
        // Signed for the client of the token, which it may not name.
        Some(token) => {
            let secrets = provider_client.hmac_keys.all();
            Some(provider_signed_claims(provider_client, issuers, (token, secrets), None).await?)
        }
    };
    let claims = claims.ok_or(Refusal::ProviderMalformed)?;
    if denies(&claims) {
        return Err(Refusal::InactiveToken);
    }
    Ok(Document {
        claims,
        jwt,
        length: answer.body.len(),
    })
}

/// Whether userinfo says whom it speaks of, as it always should (OpenID Connect Core
/// §5.3.2).
pub(crate) fn has_subject(user_info: &Document) -> bool {
    let user = user_info.claims.get("sub").and_then(Value::as_str);
    user.is_some_and(|user| !user.is_empty())
}

/// The token that an answer is, if its type says so.
pub(crate) fn jwt(answer: &Answer) -> Option<String> {
    let media_type = answer.headers.get(http::header::CONTENT_TYPE)?;
    let media_type = media_type.to_str().ok()?.split(';').next()?.trim();
    let is_jwt = media_type.eq_ignore_ascii_case("application/jwt")
        || media_type.eq_ignore_ascii_case("application/token-introspection+jwt");
    let text = is_jwt.then(|| std::str::from_utf8(&answer.body).ok())??;
    Some(text.trim().to_owned())
}

/// The claims of a token that somebody signed whose keys are trusted.
pub(crate) fn claims_signed_by_provider(
    metadata: &ProviderMetadata,
    token: &str,
) -> Result<Map<String, Value>, Refusal> {
    let unusable = |_| Refusal::ProviderMalformed;
    let parsed = Unverified::parse(token).map_err(unusable)?;
    parsed.verify(&metadata.keys).map_err(unusable)
}

/// The claims of an answer that the provider signed, perhaps with a key that is
/// newer than those at hand, or with one of these secrets.
async fn provider_signed_claims(
    provider_client: &ProviderClient,
    issuers: &AllowedIssuers,
    (token, secrets): (&str, &[Secret]),
    typ: Option<&str>,
) -> Result<Map<String, Value>, Refusal> {
    let unusable = Refusal::ProviderMalformed;
    let parsed = Unverified::parse(token).map_err(|_| unusable)?;
    if typ.is_some() && parsed.typ().as_deref() != typ {
        return Err(unusable);
    }
    // How introspection is signed is another question (RFC 9701 §6).
    if typ.is_none() {
        provider_client
            .response_alg
            .check(&parsed)
            .map_err(|_| unusable)?;
    }
    let signed = provider_client.signed(&parsed, secrets).await;
    let (claims, metadata) = signed.map_err(|refusal| match refusal.class() {
        Class::Broken => refusal,
        _ => unusable,
    })?;
    // A userinfo answer may leave it out.
    let unsaid = typ.is_none() && !claims.contains_key("iss");
    if unsaid || issuers.fit(&claims, &metadata.issuer) {
        Ok(claims)
    } else {
        Err(unusable)
    }
}
