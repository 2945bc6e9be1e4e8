//! `/oauth2/authorize`: the login page says who has agreed, and learns where to lead
//! the browser.

use http::StatusCode;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use url::form_urlencoded;

use super::client::Client;
use super::config::Pkce;
use super::fault::{Fault, answer};
use super::parameters::Parameters;
use super::{OAuth2, Request};
use crate::authentication::Entry;
use doorward_core::model::oauth2::OAuth2Facts;
use doorward_net::http::reply::Reply;

/// What the browser is to bring back.
struct AuthorizationAnswer {
    members: Map<String, Value>,
    in_fragment: bool,
}

impl OAuth2 {
    /// Answers the login page.
    pub(super) async fn authorize(&self, request: &Request<'_>) -> (Reply, Option<Fault>) {
        let parameters = &request.parameters;
        let state = parameters.get("state");
        let begun = self
            .check_transport(request)
            .and_then(|()| self.check_provision_key(request))
            .and_then(|()| check_user(parameters));
        if let Err(fault) = begun {
            return (fault.reply(state), Some(fault));
        }
        let directory = self.authentication.credentials.load();
        let entry = parameters
            .get("client_id")
            .and_then(|id| directory.clients.get(id.as_bytes()));
        let client = entry.map(|entry| &entry.material);
        let uris = client.and_then(|client| client.redirect_uris.as_deref());
        let (Some(entry), Some([first, ..])) = (entry, uris) else {
            let fault = Fault::client(false);
            return (fault.reply(state), Some(fault));
        };
        let uris = uris.unwrap_or_default();
        let mut target: &str = first;
        let mut fault = self.check_response_type(parameters).err();
        let scope = match self.scope(parameters) {
            Ok(scope) => scope,
            Err(wrong) => {
                fault = Some(wrong);
                None
            }
        };
        match parameters.get("redirect_uri") {
            None if !parameters.has("redirect_uri") => {}
            Some(uri) if uris.iter().any(|known| **known == *uri) => target = uri,
            _ => fault = Some(wrong_redirect_uri()),
        }
        if let Err(wrong) = self.check_challenge(parameters, &entry.material) {
            fault = Some(wrong);
        }
        let granted = match fault {
            Some(fault) => Err(fault),
            None => self.grant(request, entry, scope).await,
        };
        lead_back(target, granted, state)
    }

    fn check_response_type(&self, parameters: &Parameters) -> Result<(), Fault> {
        let enabled = match parameters.get("response_type") {
            Some("code") => self.config.enable_authorization_code,
            Some("token") => self.config.enable_implicit_grant,
            _ => false,
        };
        if enabled {
            Ok(())
        } else {
            Err(Fault::new(
                "unsupported_response_type",
                "Invalid response_type",
            ))
        }
    }

    fn check_challenge(&self, parameters: &Parameters, client: &Client) -> Result<(), Fault> {
        let refused = |description: &str| Err(Fault::new("invalid_request", description));
        if parameters.get("response_type") != Some("code") {
            return Ok(());
        }
        let challenge = parameters.get("code_challenge");
        let challenge = challenge.filter(|challenge| !challenge.is_empty());
        let method = parameters.has("code_challenge_method");
        match challenge {
            None if method => refused("code_challenge is required when code_method is present"),
            None if client.is_public && self.config.pkce != Pkce::None => {
                refused("code_challenge is required for public clients")
            }
            None if self.config.pkce == Pkce::Strict => {
                refused("code_challenge is required for confidential clients")
            }
            None => Ok(()),
            Some(_) if parameters.get("code_challenge_method") == Some("S256") => Ok(()),
            Some(_) => refused("code_challenge_method is not supported, must be S256"),
        }
    }

    async fn grant(
        &self,
        request: &Request<'_>,
        entry: &Entry<Client>,
        scope: Option<String>,
    ) -> Result<AuthorizationAnswer, Fault> {
        let parameters = &request.parameters;
        let credential = entry.credential.id;
        let facts = self.facts(request, &entry.material, scope)?;
        if parameters.get("response_type") == Some("code") {
            let challenge = parameters.get("code_challenge");
            let challenge = challenge.filter(|challenge| !challenge.is_empty());
            let facts = OAuth2Facts {
                challenge: challenge.map(str::to_owned),
                plugin: self.plugin(),
                ..facts
            };
            let now_ms = self.authentication.clock.now_ms();
            let code = self.tokens()?.give_code(credential, facts, now_ms).await?;
            let members = Map::from_iter([("code".to_owned(), code.into())]);
            return Ok(AuthorizationAnswer {
                members,
                in_fragment: false,
            });
        }
        let issued = self.give(credential, facts, false).await?;
        Ok(AuthorizationAnswer {
            members: issued.members(),
            in_fragment: true,
        })
    }
}

/// Somebody is named who has agreed.
pub(super) fn check_user(parameters: &Parameters) -> Result<(), Fault> {
    let user = parameters.get("authenticated_userid").unwrap_or_default();
    if user.trim().is_empty() {
        Err(Fault::user())
    } else {
        Ok(())
    }
}

/// The address is none of the client's.
pub(super) fn wrong_redirect_uri() -> Fault {
    Fault::new(
        "invalid_request",
        "Invalid redirect_uri that does not match with any redirect_uri created with the \
         application",
    )
}

/// The address to which the login page leads the browser, with what it brings.
fn lead_back(
    target: &str,
    granted: Result<AuthorizationAnswer, Fault>,
    state: Option<&str>,
) -> (Reply, Option<Fault>) {
    let (granted, fault) = match granted {
        Ok(granted) => (granted, None),
        Err(fault) if fault.code.status >= 500 => return (fault.reply(state), Some(fault)),
        Err(fault) => {
            let members = fault.members();
            let in_fragment = false;
            let failed = AuthorizationAnswer {
                members,
                in_fragment,
            };
            (failed, Some(fault))
        }
    };
    let mut members = granted.members;
    members.extend(state.map(|state| ("state".to_owned(), state.into())));
    let uri = with_members(target, &members, granted.in_fragment);
    let status = if fault.is_some() {
        StatusCode::BAD_REQUEST
    } else {
        StatusCode::OK
    };
    (answer(status, &json!({ "redirect_uri": uri })), fault)
}

/// The address with the answer, its parameters in the order of their names.
fn with_members(target: &str, members: &Map<String, Value>, in_fragment: bool) -> String {
    let (base, query) = match target.split_once('?') {
        Some((base, query)) if !in_fragment => (base, query),
        _ => (target, ""),
    };
    let kept = form_urlencoded::parse(query.as_bytes());
    let kept = kept.filter(|(name, _)| !members.contains_key(&**name));
    let answered = members.iter().map(|(name, value)| {
        let value = match value {
            Value::String(value) => Cow::Borrowed(value.as_str()),
            value => Cow::Owned(value.to_string()),
        };
        (Cow::Borrowed(name.as_str()), value)
    });
    let mut pairs: Vec<_> = kept.chain(answered).collect();
    pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut text = form_urlencoded::Serializer::new(String::new());
    text.extend_pairs(pairs);
    let mark = if in_fragment { '#' } else { '?' };
    // Pages decode a fragment by themselves, and most know no plus for a blank.
    let text = text.finish().replace('+', "%20");
    format!("{base}{mark}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_its_own_parameters_and_loses_what_the_answer_says_anew() {
        let members = json!({"code": "a b"});
        let members = members.as_object().expect("members");
        let uri = with_members("https://a.test/back?x=1&code=old", members, false);
        assert_eq!(uri, "https://a.test/back?code=a%20b&x=1");
        let uri = with_members("https://a.test/back?x=1", members, true);
        assert_eq!(uri, "https://a.test/back?x=1#code=a%20b");
    }
}
