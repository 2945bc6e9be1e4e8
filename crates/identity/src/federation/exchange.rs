//! What is fetched from another provider on behalf of a browser that came back:
//! tokens for the code (OpenID Connect Core §3.1.3), and user info (§5.3).

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Map, Value};

use super::Provider;
use super::metadata::Metadata;
use super::refusal::Refusal;
use crate::Call;
use crate::config::AssertionAudience;
use doorward_core::jose::json;
use doorward_core::jose::sign::Signer;
use doorward_core::model::client::{AuthMethod, SignAlg};
use doorward_core::model::secret::Secret;
use doorward_net::http::form::is_json;
use doorward_net::http::outbound::{Answer, Bounds, ChosenBy};
use doorward_oidc_client::client_auth::{Proof, authenticate};
use doorward_oidc_client::token_response::{TokenResponseError, read};

/// Longest token that is taken, in bytes.
const TOKEN_MAX: usize = 16 * 1024;

/// What a code was exchanged for.
pub(super) struct Tokens {
    pub(super) id_token: String,
    /// Some providers give none for the scopes of OpenID alone.
    pub(super) access_token: Option<Secret>,
}

/// Exchanges a code: at the provider that it came from, with what proves that
/// it is we who asked for it.
pub(super) async fn tokens(
    call: &Call,
    (provider, metadata): (&Provider, &Metadata),
    (code, verifier, redirect_uri): (&str, &str, &str),
) -> Result<Tokens, Refusal> {
    let form = [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", redirect_uri),
        ("code_verifier", verifier),
    ];
    let form = form.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut form = Vec::from(form);
    let mut headers = HeaderMap::new();
    prove(call, (provider, metadata), &mut form, &mut headers).await?;
    let form: Vec<_> = form.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let endpoint = &metadata.token_endpoint;
    let (by, bounds) = (ChosenBy::Operator, Bounds::default());
    let outbound = &call.state.outbound;
    let answer = outbound
        .post_form(endpoint, &form, headers, by, bounds)
        .await;
    let answer = answer.map_err(|error| Refusal::Outbound {
        endpoint: "token_endpoint",
        error,
    })?;
    let body = object("token_endpoint", &answer).ok();
    let tokens = read(answer.status, body.as_ref());
    let tokens = tokens.map_err(|error| match error {
        TokenResponseError::Refused { .. } => Refusal::Exchange {
            status: answer.status.as_u16(),
            error: error.to_string(),
        },
        _ => Refusal::Form("token_endpoint"),
    })?;
    let id_token = tokens.id_token.as_ref().map(Secret::expose);
    let id_token = id_token.filter(|token| token.len() <= TOKEN_MAX);
    Ok(Tokens {
        id_token: id_token.ok_or(Refusal::Form("token_endpoint"))?.to_owned(),
        access_token: tokens.access_token,
    })
}

/// What the provider tells of the subject whom an access token is about.
pub(super) async fn user_info(
    call: &Call,
    metadata: &Metadata,
    access_token: &Secret,
    subject: &str,
) -> Result<Map<String, Value>, Refusal> {
    let Some(endpoint) = &metadata.userinfo_endpoint else {
        return Ok(Map::new());
    };
    // No server takes a header of this length.
    if access_token.expose().len() > TOKEN_MAX {
        return Ok(Map::new());
    }
    let bearer = format!("Bearer {}", access_token.expose());
    let mut bearer = HeaderValue::from_str(&bearer).map_err(|_| Refusal::Form("token_endpoint"))?;
    bearer.set_sensitive(true);
    let headers = HeaderMap::from_iter([(AUTHORIZATION, bearer)]);
    let (by, bounds) = (ChosenBy::Operator, Bounds::default());
    let answer = call.state.outbound.get(endpoint, headers, by, bounds).await;
    let answer = answer.map_err(|error| Refusal::Outbound {
        endpoint: "userinfo_endpoint",
        error,
    })?;
    if answer.status != StatusCode::OK {
        return Err(Refusal::Form("userinfo_endpoint"));
    }
    let claims = object("userinfo_endpoint", &answer)?;
    // Else somebody could bring tokens of another user (§5.3.2).
    if claims.get("sub").and_then(Value::as_str) != Some(subject) {
        return Err(Refusal::UserInfo);
    }
    Ok(claims)
}

fn object(endpoint: &'static str, answer: &Answer) -> Result<Map<String, Value>, Refusal> {
    if !is_json(&answer.headers) {
        return Err(Refusal::Form(endpoint));
    }
    json::object(&answer.body).map_err(|_| Refusal::Form(endpoint))
}

/// Adds what proves who we are.
async fn prove(
    call: &Call,
    (provider, metadata): (&Provider, &Metadata),
    form: &mut Vec<(String, String)>,
    headers: &mut HeaderMap,
) -> Result<(), Refusal> {
    let method = method(provider, metadata);
    let signer = match method {
        AuthMethod::ClientSecretJwt | AuthMethod::PrivateKeyJwt => {
            Some(signer(call, provider, method).await?)
        }
        _ => None,
    };
    let proof = match (method, provider.secret(), &signer) {
        (AuthMethod::ClientSecretBasic, Some(secret), _) => Proof::Basic(secret),
        (AuthMethod::ClientSecretPost, Some(secret), _) => Proof::Post(secret),
        (_, _, Some(signer)) => Proof::Assertion {
            signer,
            audience: match provider.written.assertion_audience {
                AssertionAudience::Issuer => metadata.issuer.as_str(),
                AssertionAudience::TokenEndpoint => metadata.token_endpoint.as_str(),
            },
            now: call.now_ms.div_euclid(1000),
        },
        _ => Proof::Name,
    };
    authenticate(&provider.written.client_id, proof, form, headers)
        .map_err(|error| Refusal::Fault(error.into()))
}

/// How we authenticate: as is written, or else by the secret in the way that
/// the provider knows.
fn method(provider: &Provider, metadata: &Metadata) -> AuthMethod {
    let knows = |method| metadata.methods.contains(&method);
    match (
        provider.written.token_endpoint_auth_method,
        provider.secret(),
    ) {
        (Some(method), _) => method,
        (None, None) => AuthMethod::None,
        (None, Some(_)) if knows(AuthMethod::ClientSecretBasic) => AuthMethod::ClientSecretBasic,
        (None, Some(_)) if knows(AuthMethod::ClientSecretPost) => AuthMethod::ClientSecretPost,
        (None, Some(_)) => AuthMethod::ClientSecretBasic,
    }
}

/// What signs our assertions: the secret, or a key that we publish.
async fn signer(
    call: &Call,
    provider: &Provider,
    method: AuthMethod,
) -> Result<Arc<Signer>, Refusal> {
    let alg = provider.written.token_endpoint_auth_signing_alg;
    match (method, provider.secret()) {
        (AuthMethod::ClientSecretJwt, Some(secret)) => {
            let signer = Signer::from_secret(alg.unwrap_or(SignAlg::HS256), secret.expose());
            // Which algorithms go with a secret was checked with the settings.
            let signer = signer.ok_or(Refusal::Form("token_endpoint_auth_signing_alg"))?;
            Ok(Arc::new(signer))
        }
        _ => {
            let keys = &call.state.keys;
            Ok(keys.signer(alg.unwrap_or(SignAlg::ES256)).await?)
        }
    }
}
