//! Answers of the provider that come in a signed token (JARM).

use serde_json::{Map, Value};

use crate::decide::refusal::{Class, Refusal};
use crate::login::Logins;
use crate::provider::client::ProviderClient;
use crate::provider::issuers::AllowedIssuers;
use doorward_core::jose::claims::{check_times, words};
use doorward_core::jose::verify::Unverified;

/// The claims of a signed answer (JARM §2.4).
///
/// # Errors
/// [`Refusal::WrongAnswer`] for what is not signed by the provider, for
/// this client, at this time.
pub(crate) async fn open_jarm_response(
    provider: &ProviderClient,
    issuers: &AllowedIssuers,
    logins: &Logins,
    response: &str,
) -> Result<Map<String, Value>, Refusal> {
    let opened = jarm_claims(provider, issuers, logins, response).await;
    opened.map_err(|(refusal, reason)| {
        // Anybody can send one.
        doorward_net::telemetry::warn_limited!(
            code = refusal.describe().0,
            reason,
            "a signed answer of the provider is refused"
        );
        refusal
    })
}

/// As [`open_jarm_response`], with the reason.
async fn jarm_claims(
    provider: &ProviderClient,
    issuers: &AllowedIssuers,
    logins: &Logins,
    response: &str,
) -> Result<Map<String, Value>, (Refusal, String)> {
    let wrong = |error: &dyn std::fmt::Display| (Refusal::WrongAnswer, error.to_string());
    let parsed = Unverified::parse(response).map_err(|error| wrong(&error))?;
    let pinned = provider.response_alg.check(&parsed);
    pinned.map_err(|_| wrong(&"it is signed by another algorithm than the configured one"))?;
    let said = parsed.claims_of_anyone();
    let said = said.map_err(|error| wrong(&parsed.fault().unwrap_or(error.to_string())))?;
    // Nobody but the gateway makes a state.
    let begun = said.get("state").and_then(Value::as_str);
    let begun = begun.and_then(|state| logins.find(state).ok());
    let secrets = begun.map(|begun| provider.hmac_keys.of(&begun.client));
    let secrets = secrets.unwrap_or_default();
    let signed = provider.signed(&parsed, secrets).await;
    let (claims, metadata) = signed.map_err(|refusal| {
        let reason = refusal.describe().1.to_owned();
        match refusal.class() {
            Class::Broken => (refusal, reason),
            _ => (Refusal::WrongAnswer, reason),
        }
    })?;
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    if !text("iss").is_some_and(|issuer| issuers.answers_as(issuer, &metadata.issuer)) {
        return Err((Refusal::MixedUp, "its iss is not the provider's".to_owned()));
    }
    let now = provider.clock.now_secs();
    let times = check_times(&claims, now, logins.leeway);
    times.map_err(|_| wrong(&"it has expired, is not valid yet, or says not when"))?;
    let state = text("state");
    let state = state.ok_or((Refusal::MalformedCallback, "it has no state".to_owned()))?;
    let begun = logins.find(state);
    let client = begun.map_err(|refusal| (refusal, refusal.describe().1.to_owned()))?;
    let client = client.client;
    let audience = claims.get("aud").map(words).unwrap_or_default();
    let for_us = audience.iter().any(|one| *one == client);
    drop(audience);
    if for_us {
        Ok(claims)
    } else {
        Err(wrong(&"its aud is not the client that asked"))
    }
}
