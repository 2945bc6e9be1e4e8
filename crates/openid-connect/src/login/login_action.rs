//! What a user gets who has signed in (`login_action`).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, PRAGMA};
use http::{HeaderValue, StatusCode};
use serde_json::{Map, Value};
use url::form_urlencoded::Serializer;

use crate::config::address::Address;
pub(crate) use crate::config::fields::login::Action;
use crate::config::fields::login::{LoginToken, RedirectMode};
use crate::config::fields::{Fields, wrong};
use crate::config::methods::Method;
use crate::headers::token_set::TokenSet;
use crate::provider::client_auth::nth;
use crate::provider::token_cache::VerifiedToken;
use crate::session::LoginSession;
use doorward_net::http::reply::{Reply, ReplyBody};
use doorward_plugin_api::ConfigError;
use doorward_plugin_api::config::FieldWord;

/// What users get.
#[derive(Debug)]
pub(crate) struct LoginAction {
    /// For whom has signed in in a browser.
    pub(crate) action: Action,
    /// For whom comes by another method, by method.
    others: Vec<(Method, Action)>,
    keeps_query: bool,
    tokens: Vec<LoginToken>,
    in_query: bool,
    addresses: Vec<Address>,
}

impl LoginAction {
    pub(crate) fn new(fields: &Fields) -> Result<Self, ConfigError> {
        let wanted = fields.login.login_action;
        let addresses = fields.responses.login_redirect_uri.clone();
        let on = |method: &Method| fields.login.login_methods.contains(method);
        let code = Method::AuthorizationCode;
        let others = Method::ALL.into_iter().filter(on);
        let others = others.filter(|method| *method != code && wanted != Action::Upstream);
        let others: Vec<_> = others.map(|method| (method, wanted)).collect();
        if !others.is_empty() && wanted == Action::Redirect && addresses.is_empty() {
            // Back to where it came from would be a loop.
            let message = "required for login_methods other than authorization_code";
            return Err(wrong("login_redirect_uri", message));
        }
        Ok(Self {
            action: if on(&code) { wanted } else { Action::Upstream },
            others,
            keeps_query: fields.responses.preserve_query_args,
            tokens: fields.login.login_tokens.to_vec(),
            in_query: fields.login.login_redirect_mode == RedirectMode::Query,
            addresses,
        })
    }

    /// What is done for whom comes by `method`, other than to let pass.
    pub(crate) fn of(&self, method: Method) -> Option<Action> {
        let found = self.others.iter().find(|(one, _)| *one == method);
        found.map(|(_, action)| *action)
    }

    fn wants(&self, token: LoginToken) -> bool {
        self.tokens.contains(&token)
    }

    /// The tokens that are to be given out.
    fn tokens<'a>(&self, issued: &IssuedTokens<'a>) -> Vec<(&'static str, &'a str)> {
        let all = [
            (LoginToken::IdToken, issued.id_token),
            (LoginToken::AccessToken, Some(issued.access)),
            (LoginToken::RefreshToken, issued.refresh),
        ];
        let wanted = |kind: LoginToken| self.wants(kind) || self.wants(LoginToken::Tokens);
        let wanted = all.into_iter().filter(|(kind, _)| wanted(*kind));
        wanted
            .filter_map(|(kind, token)| Some((kind.word(), token?)))
            .collect()
    }

    /// The tokens as an answer.
    pub(crate) fn response(&self, issued: &IssuedTokens<'_>) -> Reply {
        let tokens = self.tokens(issued).into_iter();
        let mut tokens: Map<String, Value> = tokens
            .map(|(name, token)| (name.to_owned(), Value::from(token)))
            .collect();
        if self.wants(LoginToken::Tokens) {
            tokens.insert("token_type".to_owned(), Value::from("Bearer"));
            if let Some(life) = issued.expires_in {
                tokens.insert("expires_in".to_owned(), Value::from(life));
            }
            if let Some(scope) = issued.scope {
                tokens.insert("scope".to_owned(), Value::from(scope));
            }
        }
        if let Some(said) = (issued.introspection).filter(|_| self.wants(LoginToken::Introspection))
        {
            tokens.insert("introspection".to_owned(), Value::Object(said.clone()));
        }
        let body = Bytes::from(Value::Object(tokens).to_string());
        let mut reply = Reply::empty(StatusCode::OK)
            .header(CACHE_CONTROL, HeaderValue::from_static("no-store"))
            .header(PRAGMA, HeaderValue::from_static("no-cache"));
        reply.body = ReplyBody::Raw("application/json", body);
        reply
    }

    /// Where the browser of the client with this index is sent on to, with the
    /// tokens; `back` is where the login began.
    pub(crate) fn address(&self, issued: &IssuedTokens<'_>, index: usize, back: &str) -> String {
        let configured = nth(&self.addresses, index).map(Address::as_str);
        let mut address = configured.unwrap_or(back).to_owned();
        let query = back.split_once('?').map(|(_, query)| query);
        if let (Some(query), Some(_), true) = (query, configured, self.keeps_query) {
            address = joined(&address, '?', query);
        }
        let tokens = self.tokens(issued);
        if tokens.is_empty() {
            return address;
        }
        let tokens = Serializer::new(String::new()).extend_pairs(tokens).finish();
        joined(&address, if self.in_query { '?' } else { '#' }, &tokens)
    }
}

/// An address with more in its query (`?`) or with a fragment (`#`).
fn joined(address: &str, mark: char, more: &str) -> String {
    let (address, _) = address.split_once('#').unwrap_or((address, ""));
    let mark = if mark == '?' && address.contains('?') {
        '&'
    } else {
        mark
    };
    format!("{address}{mark}{more}")
}

/// What a user or program has got.
#[derive(Default)]
pub(crate) struct IssuedTokens<'a> {
    id_token: Option<&'a str>,
    access: &'a str,
    refresh: Option<&'a str>,
    scope: Option<&'a str>,
    /// In seconds.
    expires_in: Option<i64>,
    introspection: Option<&'a Map<String, Value>>,
}

impl<'a> IssuedTokens<'a> {
    /// A login, at `now_ms`.
    pub(crate) fn by_login(login: &'a LoginSession, now_ms: i64) -> Self {
        Self {
            id_token: login.id_token.as_deref(),
            access: &login.access,
            refresh: login.refresh.as_deref(),
            scope: login.scope.as_deref(),
            expires_in: login.ends_at.map(|end| (end - now_ms).max(0) / 1000),
            introspection: None,
        }
    }

    /// A token and what came with it, at `now_ms`.
    pub(crate) fn by_token(
        verified: &'a VerifiedToken,
        token_set: TokenSet<'a>,
        now_ms: i64,
    ) -> Self {
        let end = verified.token.expires_at;
        Self {
            id_token: token_set.id_token,
            access: &verified.token.token,
            refresh: token_set.refresh_token,
            scope: token_set.scope,
            expires_in: end.map(|end| (end - now_ms / 1000).max(0)),
            introspection: (verified.responses.introspection.as_ref()).map(|said| &said.claims),
        }
    }
}

impl LoginSession {
    /// Whom its ID token is about.
    pub(crate) fn subject(&self) -> Option<String> {
        let claims = self.id_token.as_deref()?.split('.').nth(1)?;
        let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
        let claims: Value = serde_json::from_slice(&claims).ok()?;
        claims["sub"].as_str().map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn after(config: Value) -> LoginAction {
        LoginAction::new(&Fields::of(&config).expect("valid")).expect("valid")
    }

    fn login() -> LoginSession {
        let login = json!({"s": "id", "c": "app", "a": "A", "i": "I", "b": 0, "n": 0});
        serde_json::from_value(login).expect("a session")
    }

    #[test]
    fn the_chosen_tokens_go_where_they_are_wanted() {
        let back = "https://api.test/a?b=c";
        for (config, wanted) in [
            (json!({}), "https://api.test/a?b=c#id_token=I"),
            (
                json!({"login_redirect_mode": "query"}),
                "https://api.test/a?b=c&id_token=I",
            ),
            (
                json!({"login_redirect_uri": ["https://app/#x"], "login_tokens": ["tokens"]}),
                "https://app/#id_token=I&access_token=A",
            ),
            (json!({"login_tokens": null}), "https://api.test/a?b=c"),
            (
                json!({"login_redirect_uri": ["https://app/?x=1#f"], "login_tokens": null,
                    "preserve_query_args": true}),
                "https://app/?x=1&b=c",
            ),
        ] {
            let login = login();
            let issued = IssuedTokens::by_login(&login, 0);
            assert_eq!(after(config).address(&issued, 0, back), wanted);
        }
    }

    #[test]
    fn an_action_is_for_the_methods_that_log_in() {
        let config = json!({"login_action": "response", "login_methods": ["bearer"]});
        assert_eq!(
            after(config.clone()).of(Method::Bearer),
            Some(Action::Response)
        );
        assert_eq!(after(config).of(Method::Password), None);
        let config = json!({"login_action": "redirect", "login_methods": ["bearer"]});
        assert!(
            LoginAction::new(&Fields::of(&config).expect("valid")).is_err(),
            "it would be a loop"
        );
        let config = json!({"login_action": "response", "login_methods": ["password"]});
        assert_eq!(after(config).action, Action::Upstream);
        let config = json!({"login_action": "response"});
        assert_eq!(after(config).action, Action::Response);
    }
}
