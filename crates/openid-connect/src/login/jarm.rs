//! Answers of the provider that come in a signed token (JARM), and what else a
//! login has to look at in tokens.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::OpenIdConnect;
use crate::config::methods::Method;
use crate::decide::refusal::{Class, Refusal};
use crate::login::Logins;
use crate::provider::introspection::RequestContext;
use crate::provider::token_cache::VerifiedToken;
use crate::session::{OpenSession, of_user};
use doorward_core::jose::claims::{check_times, words};
use doorward_core::jose::verify::Unverified;

impl OpenIdConnect {
    /// The claims of a signed answer (JARM §2.4).
    ///
    /// # Errors
    /// [`Refusal::WrongAnswer`] for what is not signed by the provider, for
    /// this client, at this time.
    pub(crate) async fn open_jarm_response(
        &self,
        logins: &Logins,
        response: &str,
    ) -> Result<Map<String, Value>, Refusal> {
        let opened = self.jarm_claims(logins, response).await;
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

    /// As [`Self::open_jarm_response`], with the reason.
    async fn jarm_claims(
        &self,
        logins: &Logins,
        response: &str,
    ) -> Result<Map<String, Value>, (Refusal, String)> {
        let wrong = |error: &dyn std::fmt::Display| (Refusal::WrongAnswer, error.to_string());
        let parsed = Unverified::parse(response).map_err(|error| wrong(&error))?;
        let pinned = self.provider_client.response_alg.check(&parsed);
        pinned.map_err(|_| wrong(&"it is signed by another algorithm than the configured one"))?;
        let said = parsed.claims_of_anyone();
        let said = said.map_err(|error| wrong(&parsed.fault().unwrap_or(error.to_string())))?;
        // Nobody but the gateway makes a state.
        let begun = said.get("state").and_then(Value::as_str);
        let begun = begun.and_then(|state| logins.find(state).ok());
        let secrets = begun.map(|begun| self.provider_client.hmac_keys.of(&begun.client));
        let secrets = secrets.unwrap_or_default();
        let signed = self.provider_client.signed(&parsed, secrets).await;
        let (claims, metadata) = signed.map_err(|refusal| {
            let reason = refusal.describe().1.to_owned();
            match refusal.class() {
                Class::Broken => (refusal, reason),
                _ => (Refusal::WrongAnswer, reason),
            }
        })?;
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let issuers = &self.config().rules.issuers;
        if !text("iss").is_some_and(|issuer| issuers.answers_as(issuer, &metadata.issuer)) {
            return Err((Refusal::MixedUp, "its iss is not the provider's".to_owned()));
        }
        let now = self.provider_client.clock.now_secs();
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

    /// What is known of a session's user where no signature is asked for.
    ///
    /// # Errors
    /// The rule that is not met.
    pub(crate) async fn verify_exempt_session(
        &self,
        login: &OpenSession,
    ) -> Result<Arc<VerifiedToken>, Refusal> {
        let judged = self.claims_without_signature(&login.access).await;
        self.verified_session(login, judged).await
    }

    /// What is known of a token, and what the ID token says that came beside
    /// it: of the same user, for one of our clients.
    ///
    /// # Errors
    /// What is wrong with the ID token.
    pub(crate) async fn with_id_token(
        &self,
        verified: Arc<VerifiedToken>,
        id_token: &str,
        context: &RequestContext<'_>,
    ) -> Result<Arc<VerifiedToken>, Refusal> {
        let client = context.client.ok_or(Refusal::WrongIdToken)?;
        let access = verified.token.token.as_ref();
        // Anybody could write one: as with bearer tokens, its signature counts.
        let by = Method::Bearer;
        let claims = self
            .verify_id_token(id_token, access, (&client.id, None), None, by)
            .await?;
        let same = match verified.token.claims.get("sub") {
            Some(subject) => Some(subject) == claims.get("sub"),
            // Of a token without a user it must be said that they belong
            // together: the hash was compared.
            None => claims.contains_key("at_hash"),
        };
        if same {
            Ok(verified.with(of_user(claims), id_token.len(), verified.responses.clone()))
        } else {
            Err(Refusal::WrongIdToken)
        }
    }
}
