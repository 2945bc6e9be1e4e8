//! Assertions that clients authenticate with (RFC 7521 §4.2, RFC 7523 §3).
//!
//! What can be checked without knowing the client is checked first, so that
//! the answer tells nothing about who exists.

use serde_json::{Map, Value, json};
use url::Url;

use super::FAILED;
use crate::clients::LiveClient;
use crate::error::OAuthError;
use crate::form::Form;
use crate::{Call, RealmSource, request_path};
use doorward_core::jose::claims::{CLOCK_SKEW, TimeError, check_times};
use doorward_core::jose::verify::{Unverified, VerifyError};
use doorward_core::model::client::AuthMethod;
use doorward_core::model::grant::TokenHash;

const TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// The farthest end of an assertion, in seconds: what must be remembered for
/// longer is no proof of the moment.
pub(crate) const LIFE_MAX: i64 = 3600;

/// An assertion whose form, times, issuer and audience are right. Nothing of
/// it is believed until its signature has been checked.
pub(super) struct Assertion<'a> {
    token: Unverified<'a>,
    claims: Map<String, Value>,
    /// What tells it from every other one.
    identity: TokenHash,
    ends_s: i64,
}

fn refused(call: &Call, text: &str) -> OAuthError {
    OAuthError::invalid_client(&call.realm.path, text)
}

/// The one answer to an unknown client, a wrong key and a wrong signature.
pub(super) fn not_valid(call: &Call) -> OAuthError {
    refused(call, "JWT is not valid")
}

impl<'a> Assertion<'a> {
    /// The assertion of the request.
    pub(super) fn read(call: &Call, form: &'a Form<'_>) -> Result<Self, OAuthError> {
        if form.get("client_assertion_type") != Some(TYPE) {
            return Err(refused(call, FAILED));
        }
        let text = form.get("client_assertion");
        let text = text.ok_or_else(|| refused(call, FAILED))?;
        let token = Unverified::parse(text).ok().filter(is_assertion);
        let token = token.ok_or_else(|| not_valid(call))?;
        let claims = token.claims_of_anyone().map_err(|_| not_valid(call))?;
        let now = call.now_ms.div_euclid(1000);
        let ends_s = check_times(&claims, now, CLOCK_SKEW).map_err(|error| match error {
            TimeError::Expired => refused(call, "JWT has expired"),
            TimeError::NotYet | TimeError::Malformed => not_valid(call),
        })?;
        if ends_s > now.saturating_add(LIFE_MAX + CLOCK_SKEW) {
            return Err(not_valid(call));
        }
        let member = |name: &str| claims.get(name).and_then(Value::as_str);
        let subject = member("sub").filter(|subject| !subject.is_empty());
        if subject.is_none() || subject != member("iss") {
            return Err(not_valid(call));
        }
        if !is_for_us(call, claims.get("aud")) {
            return Err(refused(call, "Audience validation failed"));
        }
        let identity = identity(call, member("iss").unwrap_or_default(), text, &claims);
        Ok(Self {
            token,
            claims,
            identity,
            ends_s,
        })
    }

    /// The client that it says it comes from.
    pub(super) fn client_id(&self) -> &str {
        let subject = self.claims.get("sub").and_then(Value::as_str);
        subject.unwrap_or_default()
    }

    /// The method that it is an instance of.
    pub(super) fn method(&self) -> AuthMethod {
        if self.token.algorithm().is_symmetric() {
            AuthMethod::ClientSecretJwt
        } else {
            AuthMethod::PrivateKeyJwt
        }
    }

    /// Whether the client signed it, with an algorithm that is allowed to it
    /// and with what it registered for its method.
    pub(super) async fn is_signed_by(
        &self,
        call: &Call,
        client: &LiveClient,
    ) -> Result<bool, OAuthError> {
        let metadata = &client.client.metadata;
        let algorithm = self.token.algorithm();
        let allowed = metadata.token_endpoint_auth_signing_alg;
        if metadata.token_endpoint_auth_method != Some(self.method())
            || allowed.is_some_and(|alg| algorithm.as_sign_alg() != alg)
            || !client.may_sign_by(algorithm.as_sign_alg())
        {
            return Ok(false);
        }
        // One audience, the issuer: what was made for others, or for any of
        // several, might be theirs to bring (FAPI 2.0 Security Profile §5.3.2.1).
        if client.is_fapi2() && self.claims.get("aud") != Some(&json!(call.realm.issuer)) {
            return Ok(false);
        }
        if algorithm.is_symmetric() {
            let secret = client
                .plain_secret()
                .map(|secret| secret.expose().as_bytes());
            return Ok(secret.is_some_and(|secret| self.token.verify_hmac(secret).is_ok()));
        }
        let keys = &call.state.client_keys;
        Ok(keys.verify(client, &self.token, call.now_ms).await.is_ok())
    }

    /// Costs a signature check, as a client's assertion without `kid` does.
    pub(super) fn is_signed_by_nobody(&self, call: &Call) {
        let keys = call.state.keys.current();
        let _: Result<_, VerifyError> = self.token.verify(&keys.verifiers);
    }

    /// Uses the assertion up: it is good once.
    pub(super) async fn spend(&self, call: &Call) -> Result<(), OAuthError> {
        let until_ms = self.ends_s.saturating_mul(1000);
        let store = &call.state.store;
        if store.remember(self.identity, until_ms, call.now_ms).await? {
            return Ok(());
        }
        doorward_net::telemetry::warn_limited!(
            client_id = self.client_id(),
            "client assertion used twice"
        );
        Err(not_valid(call))
    }
}

/// Whether the audience is this issuer, its token endpoint, or the endpoint
/// that was called, under the name that the client knows it by.
pub(crate) fn is_for_us(call: &Call, audience: Option<&Value>) -> bool {
    let issuer = &call.realm.issuer;
    let token_endpoint = format!("{issuer}/access_token");
    // Without the query that names it, the address would be that of another realm.
    let is_whole = !matches!(call.realm_source, RealmSource::Query(_));
    let called = |audience: &str| {
        let address = Url::parse(audience).ok().filter(|_| is_whole);
        address.is_some_and(|address| request_path::is_called(call, &address))
    };
    let ours =
        |audience: &str| audience == issuer || audience == token_endpoint || called(audience);
    match audience {
        Some(Value::String(one)) => ours(one),
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).any(ours),
        _ => false,
    }
}

/// What an assertion of `issuer` is remembered by: its `jti`, or what was signed
/// if it has none. Never the signature, of which there can be two for the same
/// text. It is the same whatever the assertion is used for: what authenticated a
/// client is no grant afterwards.
pub(crate) fn identity(
    call: &Call,
    issuer: &str,
    text: &str,
    claims: &Map<String, Value>,
) -> TokenHash {
    let id = claims.get("jti").and_then(Value::as_str);
    let signed = text.rsplit_once('.').map_or(text, |(signed, _)| signed);
    let parts = ["assertion", &call.realm.path, issuer, id.unwrap_or(signed)];
    TokenHash::of(&parts.join("\n"))
}

/// Whether a JWT of this media type can be an assertion: what was signed as
/// something else, a request object say, is not taken for one (RFC 8725 §3.11).
pub(crate) fn is_assertion(token: &Unverified<'_>) -> bool {
    token
        .typ()
        .is_none_or(|typ| typ == "client-authentication+jwt" || !typ.ends_with("+jwt"))
}
