//! How requests for a login reach the provider: by the browser's address line,
//! signed (RFC 9101), or pushed before (RFC 9126).

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value, json};
use url::Url;

use super::agent::{Agent, Question, object};
use super::client::Client;
use super::endpoints::Endpoint;
use super::fields::Fields;
use super::logins::{Parameters, token};
use super::refusal::Refusal;
use crate::plugins::ConfigError;

/// Life of a signed request, in seconds.
const SIGNED_LIFE: i64 = 60;
const TYPE: &str = "oauth-authz-req+jwt";

/// What is done with requests; where nothing is configured, what the provider
/// requires.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    push: Option<bool>,
    sign: Option<bool>,
}

impl Manner {
    pub(super) fn new(fields: Fields<'_>) -> Result<Self, ConfigError> {
        Ok(Self {
            push: fields.maybe_flag("require_pushed_authorization_requests")?,
            sign: fields.maybe_flag("require_signed_request_object")?,
        })
    }

    /// Where the browser goes with a request of these parameters.
    ///
    /// # Errors
    /// When the provider has no endpoint for it, does not take it, or the
    /// client can't sign.
    pub(super) async fn address(
        self,
        agent: &Agent,
        client: &Arc<Client>,
        mut parameters: Parameters,
    ) -> Result<Url, Refusal> {
        let known = agent.known().await?;
        let required = |name| known.member(name) == Some(&Value::Bool(true));
        let push = self
            .push
            .unwrap_or_else(|| required("require_pushed_authorization_requests"));
        let sign = self
            .sign
            .unwrap_or_else(|| required("require_signed_request_object"));
        let mut url = agent.url(Endpoint::Authorization).await?;
        if sign {
            let now = agent.clock.now_secs();
            let request = signed(client, &known.issuer, &parameters, now)?;
            // OpenID Connect Core §6.1 wants these outside as well.
            let outside = ["client_id", "response_type", "scope"];
            parameters.retain(|(name, _)| !push && outside.contains(&name.as_str()));
            parameters.push(("request".to_owned(), request));
        }
        if push {
            parameters = pushed(agent, client, parameters).await?;
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

/// The parameters that name a request which was pushed.
async fn pushed(
    agent: &Agent,
    client: &Arc<Client>,
    mut parameters: Parameters,
) -> Result<Parameters, Refusal> {
    // How the client proves itself says who it is.
    parameters.retain(|(name, _)| name != "client_id");
    let mut named = parameters.clone();
    if agent
        .names_itself_otherwise(Endpoint::PushedRequest, client)
        .await?
    {
        named.push(("client_id".to_owned(), client.id.clone()));
    }
    let answer = agent
        .post(Question {
            endpoint: Endpoint::PushedRequest,
            client: Some(client.clone()),
            form: named,
            headers: HeaderMap::new(),
            from: None,
        })
        .await?;
    let body = object(&answer);
    let text = |name: &str| body.as_ref()?.get(name)?.as_str();
    match (answer.status, text("request_uri")) {
        (StatusCode::CREATED | StatusCode::OK, Some(uri)) if !uri.is_empty() => Ok(vec![
            ("client_id".to_owned(), client.id.clone()),
            ("request_uri".to_owned(), uri.to_owned()),
        ]),
        (status, _) if status.is_client_error() => {
            let error = text("error").unwrap_or_default();
            let error: String = error.chars().take(64).collect();
            tracing::warn!(error = ?error, %status, "the provider does not take a pushed request");
            Err(Refusal::ProviderRefuses)
        }
        _ => Err(Refusal::ProviderMalformed),
    }
}
