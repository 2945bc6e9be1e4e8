//! Answers of token endpoints (RFC 6749 §5, OpenID Connect Core §3.1.3.3).

use http::StatusCode;
use serde_json::{Map, Value};

use doorward_core::jose::claims::lifetime;
use doorward_core::model::secret::Secret;
use doorward_net::http::provider_error::describe;

/// Tokens that a provider gave.
#[derive(Debug)]
pub struct TokenResponse {
    /// Never empty, and to be shown as a bearer token. Some providers give none where
    /// nothing but the user was asked for.
    pub access_token: Option<Secret>,
    /// Of the user, if there is one.
    pub id_token: Option<Secret>,
    /// For the next tokens.
    pub refresh_token: Option<Secret>,
    /// Granted scopes, where the answer names them.
    pub scope: Option<String>,
    /// How long the access token lives, in seconds, where the answer tells.
    pub lifetime: Option<i64>,
}

/// Why an answer gives no tokens.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenResponseError {
    /// The endpoint gives none.
    #[error("{}", refusal(.error.as_deref(), .description.as_deref()))]
    Refused {
        /// Its `error`, as it came.
        error: Option<String>,
        /// Its `error_description`, as it came.
        description: Option<String>,
    },
    /// The body is no JSON object.
    #[error("it is no JSON object")]
    NoObject,
    /// A member is not what it has to be.
    #[error("its {0} is malformed")]
    Malformed(&'static str),
}

/// Reads an answer with this status, whose body is an object or none. Which tokens must
/// be there, whoever asked knows. Some providers leave `token_type` out.
///
/// # Errors
/// Why it gives no tokens. Some providers refuse with 200.
pub fn read(
    status: StatusCode,
    body: Option<&Map<String, Value>>,
) -> Result<TokenResponse, TokenResponseError> {
    let text_of = |name: &str| body?.get(name)?.as_str().map(str::to_owned);
    let error = text_of("error");
    if status != StatusCode::OK || error.is_some() {
        return Err(TokenResponseError::Refused {
            error,
            description: text_of("error_description"),
        });
    }
    let body = body.ok_or(TokenResponseError::NoObject)?;
    let text = |name| optional_text(body, name);
    let access_token = text("access_token")?.filter(|token| !token.is_empty());
    let is_bearer = |kind: &str| kind.eq_ignore_ascii_case("bearer");
    if !text("token_type")?.is_none_or(is_bearer) {
        return Err(TokenResponseError::Malformed("token_type"));
    }
    let lifetime = lifetime(body).map_err(|_| TokenResponseError::Malformed("expires_in"))?;
    Ok(TokenResponse {
        access_token: access_token.map(Secret::new),
        id_token: text("id_token")?.map(Secret::new),
        refresh_token: text("refresh_token")?.map(Secret::new),
        scope: scope(body)?,
        lifetime,
    })
}

/// What a refusal says. Without an error the rest is no answer of the endpoint.
fn refusal(error: Option<&str>, description: Option<&str>) -> String {
    error.map_or_else(String::new, |error| describe(error, description))
}

/// A member that is a text if it is there.
fn optional_text<'b>(
    body: &'b Map<String, Value>,
    name: &'static str,
) -> Result<Option<&'b str>, TokenResponseError> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(TokenResponseError::Malformed(name)),
    }
}

/// The scopes that were granted, if the answer names them; some providers write a
/// list.
fn scope(body: &Map<String, Value>) -> Result<Option<String>, TokenResponseError> {
    let Some(Value::Array(scopes)) = body.get("scope") else {
        return Ok(optional_text(body, "scope")?.map(str::to_owned));
    };
    let scopes = scopes.iter().map(Value::as_str);
    let scopes: Option<Vec<_>> = scopes.collect();
    let scopes = scopes.ok_or(TokenResponseError::Malformed("scope"))?;
    Ok(Some(scopes.join(" ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(status: u16, changes: &Value) -> Result<TokenResponse, TokenResponseError> {
        let mut body = json!({"access_token": "at", "token_type": "bearer", "id_token": "id",
            "refresh_token": "rt", "expires_in": 60, "scope": "a b"});
        for (name, value) in changes.as_object().expect("an object") {
            body[name] = value.clone();
        }
        let status = StatusCode::from_u16(status).expect("a status");
        read(status, body.as_object())
    }

    fn shown(token: Option<&Secret>) -> Option<&str> {
        token.map(Secret::expose)
    }

    #[test]
    fn tokens_are_read_with_what_comes_beside_them() {
        let tokens = answer(200, &json!({})).expect("tokens");
        assert_eq!(shown(tokens.access_token.as_ref()), Some("at"));
        assert_eq!(shown(tokens.id_token.as_ref()), Some("id"));
        assert_eq!(
            (tokens.scope.as_deref(), tokens.lifetime),
            (Some("a b"), Some(60))
        );
        let other = json!({"scope": ["a", "b"], "expires_in": "60", "id_token": null,
            "token_type": null, "refresh_token": null});
        let tokens = answer(200, &other).expect("tokens");
        assert!(tokens.id_token.is_none() && tokens.refresh_token.is_none());
        assert_eq!(
            (tokens.scope.as_deref(), tokens.lifetime),
            (Some("a b"), Some(60))
        );
        for absent in [json!(null), json!("")] {
            let tokens = answer(200, &json!({"access_token": absent})).expect("tokens");
            assert_eq!(shown(tokens.access_token.as_ref()), None);
            assert_eq!(shown(tokens.id_token.as_ref()), Some("id"));
        }
    }

    #[test]
    fn a_member_that_is_malformed_is_named() {
        for (changes, name) in [
            (json!({"access_token": ["at"]}), "access_token"),
            (json!({"token_type": "DPoP"}), "token_type"),
            (json!({"token_type": ["bearer"]}), "token_type"),
            (json!({"id_token": 5}), "id_token"),
            (json!({"refresh_token": 5}), "refresh_token"),
            (json!({"expires_in": "soon"}), "expires_in"),
            (json!({"scope": [1]}), "scope"),
        ] {
            let outcome = answer(200, &changes).map(|_| ());
            assert_eq!(
                outcome,
                Err(TokenResponseError::Malformed(name)),
                "{changes}"
            );
        }
        let none = read(StatusCode::OK, None).map(|_| ());
        assert_eq!(none, Err(TokenResponseError::NoObject));
    }

    #[test]
    fn a_refusal_is_one_whatever_comes_with_it() {
        let said = json!({"error": "invalid_grant", "error_description": "a\nb"});
        for status in [200, 400] {
            let refused = answer(status, &said).expect_err("refused");
            assert_eq!(refused.to_string(), "invalid_grant: a?b");
        }
        for nothing in [json!({}), json!({"error_description": "a"})] {
            let refused = answer(503, &nothing).expect_err("refused");
            assert_eq!(refused.to_string(), "");
        }
    }
}
