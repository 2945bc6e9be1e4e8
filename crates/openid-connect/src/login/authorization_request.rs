//! How requests for a login reach the provider: by the browser's address line,
//! signed (RFC 9101), or pushed before (RFC 9126).

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use url::Url;

use crate::config::fields::Fields;
use crate::decide::refusal::Refusal;
use crate::login::token;
use crate::provider::client::ProviderClient;
use crate::provider::client_auth::Client;
use crate::provider::endpoints::Endpoint;
use crate::provider::extras::Parameters;
use crate::provider::par::ParClient;
use doorward_oidc_client::metadata::is_true;

/// Life of a signed request, in seconds.
const SIGNED_LIFE: i64 = 60;
const TYPE: &str = "oauth-authz-req+jwt";

/// What is done with requests; where nothing is configured, what the provider
/// requires.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestMode {
    push: Option<bool>,
    sign: Option<bool>,
}

impl RequestMode {
    pub(crate) fn new(fields: &Fields) -> Self {
        Self {
            push: fields.proofs.require_pushed_authorization_requests,
            sign: fields.proofs.require_signed_request_object,
        }
    }

    /// Where the browser at this address goes with a request of these parameters.
    ///
    /// # Errors
    /// When the provider has no endpoint for it, does not take it, or the
    /// client can't sign.
    pub(crate) async fn address(
        self,
        (provider_client, par): (&Arc<ProviderClient>, &ParClient),
        client: &Arc<Client>,
        mut parameters: Parameters,
        from: IpAddr,
    ) -> Result<Url, Refusal> {
        let metadata = provider_client.metadata().await?;
        let required = |name| is_true(metadata.member(name));
        let push = self
            .push
            .unwrap_or_else(|| required("require_pushed_authorization_requests"));
        let sign = self
            .sign
            .unwrap_or_else(|| required("require_signed_request_object"));
        let mut url = provider_client.url(Endpoint::Authorization).await?;
        if sign {
            let now = provider_client.clock.now_secs();
            let request = signed(client, &metadata.issuer, &parameters, now)?;
            // OpenID Connect Core §6.1 wants these outside as well.
            let outside = ["client_id", "response_type", "scope"];
            parameters.retain(|(name, _)| !push && outside.contains(&name.as_str()));
            parameters.push(("request".to_owned(), request));
        }
        if push {
            parameters = par.push(provider_client, client, parameters, from).await?;
        }
        url.query_pairs_mut().extend_pairs(parameters);
        Ok(url)
    }
}

/// The parameters in a signed token.
fn signed(
    client: &Client,
    issuer: &str,
    parameters: &Parameters,
    now: i64,
) -> Result<String, Refusal> {
    let mut claims = Map::new();
    for (name, value) in parameters {
        let number = value.parse::<i64>().ok().filter(|_| name == "max_age");
        let value = number.map_or_else(|| Value::from(value.as_str()), Value::from);
        match claims.get_mut(name) {
            None => {
                claims.insert(name.clone(), value);
            }
            Some(Value::Array(several)) => several.push(value),
            Some(single) => *single = json!([single.take(), value]),
        }
    }
    let frame = json!({"iss": client.id, "aud": issuer, "iat": now, "nbf": now,
        "exp": now + SIGNED_LIFE, "jti": token::<16>()});
    if let Value::Object(frame) = frame {
        claims.extend(frame);
    }
    let signer = client.signs_requests().ok_or(Refusal::ProviderRefuses)?;
    let signed = signer.sign_as(TYPE, &claims);
    signed.map_err(|_| Refusal::ProviderRefuses)
}
