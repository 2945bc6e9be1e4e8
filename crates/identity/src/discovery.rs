//! What the provider says of itself: metadata and keys.

use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use serde_json::json;

use super::config::{DocumentMode, RegistrationMode};
use super::error::OAuthError;
use super::{Call, cors, device, respond, userinfo};
use doorward_core::model::client::SignAlg;
use doorward_core::model::suggestion;

/// How long caches may keep metadata and keys: much less than a new key is
/// published ahead of its first use.
const CACHED: HeaderValue = HeaderValue::from_static("public, max-age=900");

/// The provider metadata of the realm (OpenID Connect Discovery §3, RFC 8414
/// §2). Links are made from the configured base URL, never from the request.
pub(super) fn metadata(call: &Call) -> Response {
    let issuer = &call.realm.issuer;
    let mut body = json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/authorize"),
        "token_endpoint": format!("{issuer}/access_token"),
        "jwks_uri": format!("{issuer}/connect/jwk_uri"),
        "userinfo_endpoint": format!("{issuer}/userinfo"),
        "introspection_endpoint": format!("{issuer}/introspect"),
        "pushed_authorization_request_endpoint": format!("{issuer}/par"),
        "require_pushed_authorization_requests":
            call.realm.settings.require_pushed_authorization_requests,
        "revocation_endpoint": format!("{issuer}/token/revoke"),
        "device_authorization_endpoint": format!("{issuer}/device/code"),
        "end_session_endpoint": format!("{issuer}/connect/endSession"),
        "response_types_supported": [
            "code", "id_token", "token", "id_token token",
            "code id_token", "code token", "code id_token token",
        ],
        "response_modes_supported": ["query", "fragment", "form_post"],
        "grant_types_supported": GRANT_TYPES,
        "code_challenge_methods_supported": challenge_methods(call),
        "prompt_values_supported": ["none", "login", "consent", "select_account"],
        "acr_values_supported": acr_values(call),
        "ui_locales_supported": call.live.appearance.languages(),
        "authorization_response_iss_parameter_supported": true,
        "dpop_signing_alg_values_supported": SignAlg::OWN,
        "subject_types_supported": ["public", "pairwise"],
        "id_token_signing_alg_values_supported": all_algs(),
        "userinfo_signing_alg_values_supported": all_algs(),
        "token_endpoint_auth_methods_supported": &AUTH_METHODS,
        "token_endpoint_auth_signing_alg_values_supported": all_algs(),
        "introspection_endpoint_auth_methods_supported": &AUTH_METHODS[..4],
        "introspection_endpoint_auth_signing_alg_values_supported": all_algs(),
        "revocation_endpoint_auth_methods_supported": &AUTH_METHODS,
        "revocation_endpoint_auth_signing_alg_values_supported": all_algs(),
        "scopes_supported": [
            "openid", "profile", "email", "phone", "address", "groups", "offline_access",
        ],
        "claims_supported": claims_supported(),
        "claims_parameter_supported": true,
        "backchannel_logout_supported": true,
        "backchannel_logout_session_supported": true,
        "frontchannel_logout_supported": true,
        "frontchannel_logout_session_supported": true,
        "request_parameter_supported": true,
        "request_uri_parameter_supported": true,
        "require_request_uri_registration": true,
        "request_object_signing_alg_values_supported": request_algs(call),
        "version": "3.0",
    });
    if call.realm.settings.registration.mode != RegistrationMode::Disabled {
        body["registration_endpoint"] = format!("{issuer}/connect/register").into();
    }
    if call.realm.settings.client_metadata_documents.mode != DocumentMode::Disabled {
        body["client_id_metadata_document_supported"] = true.into();
    }
    cached(respond::json(StatusCode::OK, &body))
}

/// The grants of the token endpoint, and those that need none.
pub(super) const GRANT_TYPES: [&str; 8] = [
    "authorization_code",
    "implicit",
    "client_credentials",
    "password",
    "refresh_token",
    device::GRANT,
    "urn:ietf:params:oauth:grant-type:jwt-bearer",
    "urn:ietf:params:oauth:grant-type:token-exchange",
];

/// Whether a client may name this grant type; else what it may name.
pub(super) fn check_grant(name: &str) -> Result<(), String> {
    if GRANT_TYPES.contains(&name) || name == device::EARLIER_GRANT {
        return Ok(());
    }
    // The names of the extensions are URNs, which people know by their ends.
    let ends = GRANT_TYPES
        .iter()
        .map(|known| (known.rsplit(':').next(), known));
    let by_end = ends.clone().filter_map(|(end, _)| end);
    let near = suggestion::nearest(name, GRANT_TYPES.into_iter())
        .or_else(|| suggestion::nearest(name, by_end))
        .and_then(|near| {
            ends.clone()
                .find(|(end, known)| **known == near || *end == Some(near))
        });
    let advice = near.map_or_else(String::new, |(_, known)| {
        format!("; did you mean `{known}`?")
    });
    let known = GRANT_TYPES.join(", ");
    Err(format!(
        "`{name}` is no grant type: expected one of {known}{advice}"
    ))
}

/// The classes of authentication, from the weakest to the strongest.
fn acr_values(call: &Call) -> Vec<&str> {
    let classes = call.realm.settings.acr_values.iter();
    classes.map(|class| class.value.as_str()).collect()
}

/// How code challenges may be made.
fn challenge_methods(call: &Call) -> &'static [&'static str] {
    if call.realm.settings.plain_pkce {
        &["S256", "plain"]
    } else {
        &["S256"]
    }
}

/// How clients authenticate; public ones last.
const AUTH_METHODS: [&str; 5] = [
    "client_secret_basic",
    "client_secret_post",
    "client_secret_jwt",
    "private_key_jwt",
    "none",
];

fn claims_supported() -> Vec<&'static str> {
    let of_tokens = [
        "aud",
        "groups",
        "auth_time",
        "azp",
        "acr",
        "exp",
        "iat",
        "iss",
        "sub",
        "at_hash",
        "c_hash",
        "s_hash",
        "nonce",
        "sid",
        "amr",
    ];
    of_tokens.into_iter().chain(userinfo::CLAIMS).collect()
}

/// Every signature algorithm; `none` is not one.
fn all_algs() -> Vec<SignAlg> {
    SignAlg::OWN.into_iter().chain(SignAlg::SHARED).collect()
}

/// How request objects may be signed.
fn request_algs(call: &Call) -> Vec<&'static str> {
    let settings = &call.realm.settings;
    // Who may register may name it.
    let registers = settings.registration.mode != RegistrationMode::Disabled;
    let unsigned = settings.unsigned_request_objects || registers;
    let algs = all_algs().into_iter().map(SignAlg::as_str);
    algs.chain(unsigned.then_some("none")).collect()
}

/// The published keys (RFC 7517 §5). Those that clients wait for are among them,
/// also if they are being made just now.
pub(super) async fn keys(call: &Call) -> Result<Response, OAuthError> {
    let made = call.state.keys.make_wanted().await;
    let jwks = call.state.keys.current().ring.jwks(call.now_ms);
    if let Err(fault) = made {
        // Verifiers need the keys that there are, whatever ails the store.
        if jwks["keys"].as_array().is_none_or(Vec::is_empty) {
            return Err(fault.into());
        }
        tracing::error!(error = %fault, "the published keys lack one that clients wait for");
        let mut response = respond::json(StatusCode::OK, &jwks);
        respond::never_stored(&mut response);
        return Ok(response);
    }
    Ok(cached(respond::json(StatusCode::OK, &jwks)))
}

fn cached(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, CACHED);
    // Plain, as registered: some clients compare it exactly.
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    // Also for requests without an origin: caches give it to others.
    cors::share_with_everybody(&mut response);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_type_that_there_is_not_is_refused_with_those_that_there_are() {
        for known in GRANT_TYPES.into_iter().chain([device::EARLIER_GRANT]) {
            assert_eq!(check_grant(known), Ok(()), "{known}");
        }
        let refused = |name: &str| check_grant(name).expect_err("refused");
        let pasword = refused("pasword");
        assert!(pasword.starts_with("`pasword` is no grant type: expected one of"));
        assert!(pasword.ends_with("did you mean `password`?"), "{pasword}");
        let device = refused("device_code");
        assert!(device.ends_with("did you mean `urn:ietf:params:oauth:grant-type:device_code`?"));
        assert!(!refused("zzz").contains("did you mean"));
    }
}
