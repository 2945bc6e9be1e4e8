//! What is fetched from another provider on behalf of a browser that came back:
//! tokens for the code (OpenID Connect Core §3.1.3), and user info (§5.3).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};

use super::Provider;
use super::metadata::Metadata;
use super::refusal::Refusal;
use crate::Call;
use crate::config::AssertionAudience;
use doorward_core::clock::random_uuid;
use doorward_core::jose::json;
use doorward_core::jose::sign::Signer;
use doorward_core::model::client::{AuthMethod, SignAlg};
use doorward_core::model::secret::Secret;
use doorward_net::http::form::is_json;
use doorward_net::http::outbound::{Answer, Bounds, ChosenBy};
use doorward_net::http::provider_error;

/// How long an assertion of ours is good, in seconds.
const ASSERTION_S: i64 = 60;

const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Longest token that is taken, in bytes.
const TOKEN_MAX: usize = 16 * 1024;

/// What a code was exchanged for.
pub(super) struct Tokens {
    pub(super) id_token: String,
    pub(super) access_token: Option<Secret>,
}

/// Exchanges a code: at the provider that it came from, with what proves that
/// it is we who asked for it.
pub(super) async fn tokens(
    call: &Call,
    (provider, metadata): (&Provider, &Metadata),
    (code, verifier, redirect_uri): (&str, &str, &str),
) -> Result<Tokens, Refusal> {
    let mut form = vec![
        ("grant_type", "authorization_code".to_owned()),
        ("code", code.to_owned()),
        ("redirect_uri", redirect_uri.to_owned()),
        ("code_verifier", verifier.to_owned()),
    ];
    let mut headers = HeaderMap::new();
    authenticate(call, (provider, metadata), &mut form, &mut headers).await?;
    let form: Vec<_> = form.iter().map(|(n, v)| (*n, v.as_str())).collect();
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
    let status = answer.status;
    let members = object("token_endpoint", &answer);
    if status != StatusCode::OK {
        let error = members.ok().and_then(|members| {
            let text = |name: &str| members.get(name).and_then(Value::as_str);
            let description = text("error_description");
            Some(provider_error::describe(text("error")?, description))
        });
        return Err(Refusal::Exchange {
            status: status.as_u16(),
            error: error.unwrap_or_default(),
        });
    }
    let members = members?;
    let text = |name: &str| {
        let text = members.get(name).and_then(Value::as_str);
        text.filter(|text| !text.is_empty() && text.len() <= TOKEN_MAX)
    };
    let id_token = text("id_token").ok_or(Refusal::Form("token_endpoint"))?;
    Ok(Tokens {
        id_token: id_token.to_owned(),
        access_token: text("access_token").map(Secret::new),
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

/// Adds what proves who we are (OpenID Connect Core §9).
async fn authenticate(
    call: &Call,
    (provider, metadata): (&Provider, &Metadata),
    form: &mut Vec<(&'static str, String)>,
    headers: &mut HeaderMap,
) -> Result<(), Refusal> {
    let written = &provider.written;
    let client_id = written.client_id.as_str();
    let secret = written.client_secret.as_ref().map(Secret::expose);
    match (method(provider, metadata), secret) {
        (AuthMethod::ClientSecretBasic, Some(secret)) => {
            headers.insert(AUTHORIZATION, basic(client_id, secret));
            return Ok(());
        }
        (AuthMethod::ClientSecretPost, Some(secret)) => {
            form.push(("client_secret", secret.to_owned()));
        }
        (method @ (AuthMethod::PrivateKeyJwt | AuthMethod::ClientSecretJwt), _) => {
            let assertion = assertion(call, (provider, metadata), method).await?;
            form.push(("client_assertion_type", ASSERTION_TYPE.to_owned()));
            form.push(("client_assertion", assertion));
        }
        _ => {}
    }
    form.push(("client_id", client_id.to_owned()));
    Ok(())
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

/// Both are encoded before they are joined (RFC 6749 §2.3.1).
fn basic(client_id: &str, secret: &str) -> HeaderValue {
    let encoded =
        |text: &str| -> String { url::form_urlencoded::byte_serialize(text.as_bytes()).collect() };
    let pair = format!("{}:{}", encoded(client_id), encoded(secret));
    let value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair)));
    let mut value = value.expect("base64 is visible ASCII");
    value.set_sensitive(true);
    value
}

/// An assertion that we are who we say (RFC 7523 §3).
async fn assertion(
    call: &Call,
    (provider, metadata): (&Provider, &Metadata),
    method: AuthMethod,
) -> Result<String, Refusal> {
    let written = &provider.written;
    let alg = written.token_endpoint_auth_signing_alg;
    let now = call.now_ms.div_euclid(1000);
    let audience = match written.assertion_audience {
        AssertionAudience::Issuer => metadata.issuer.as_str(),
        AssertionAudience::TokenEndpoint => metadata.token_endpoint.as_str(),
    };
    let claims = json!({
        "iss": written.client_id, "sub": written.client_id, "aud": audience,
        "jti": random_uuid(), "iat": now, "exp": now + ASSERTION_S,
    });
    let signed = match (method, provider.secret()) {
        (AuthMethod::ClientSecretJwt, Some(secret)) => {
            let alg = alg.unwrap_or(SignAlg::HS256);
            let signer = Signer::from_secret(alg, secret.expose());
            // Which algorithms go with a secret was checked with the settings.
            let signer = signer.ok_or(Refusal::Form("token_endpoint_auth_signing_alg"))?;
            signer.sign(&claims)
        }
        _ => {
            let signer = call
                .state
                .keys
                .signer(alg.unwrap_or(SignAlg::ES256))
                .await?;
            signer.sign(&claims)
        }
    };
    signed.map_err(|error| Refusal::Fault(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_secrets_with_any_character_are_joined_unambiguously() {
        let value = basic("a:b", "ü +/");
        let text = value.to_str().expect("ASCII").strip_prefix("Basic ");
        let text = STANDARD.decode(text.expect("the scheme")).expect("base64");
        assert_eq!(text, b"a%3Ab:%C3%BC+%2B%2F");
        assert!(value.is_sensitive());
    }
}
