//! What a user gets who has signed in (`login_action`).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, PRAGMA};
use http::{HeaderValue, StatusCode};
use serde_json::{Map, Value};
use url::Url;
use url::form_urlencoded::Serializer;

use super::client::nth;
use super::fields::{Fields, wrong};
use super::sessions::LoginSession;
use crate::http::reply::{Reply, ReplyBody};
use crate::plugins::ConfigError;

/// What is done for a user who has signed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The request that wanted the login goes on.
    Upstream,
    /// The tokens are the answer.
    Response,
    /// The browser is sent on.
    Redirect,
}

/// What users get.
#[derive(Debug)]
pub(super) struct After {
    pub(super) action: Action,
    tokens: Vec<String>,
    in_query: bool,
    addresses: Vec<Url>,
}

impl After {
    pub(super) fn new(fields: Fields<'_>) -> Result<Self, ConfigError> {
        let logs_in = fields.texts("login_methods")?;
        let logs_in = logs_in.iter().any(|method| method == "authorization_code");
        let action = match fields.text("login_action")? {
            _ if !logs_in => Action::Upstream,
            Some("response") => Action::Response,
            Some("redirect") => Action::Redirect,
            Some("upstream") | None => Action::Upstream,
            Some(_) => {
                return Err(wrong(
                    "login_action",
                    "expected upstream, response or redirect",
                ));
            }
        };
        Ok(Self {
            action,
            tokens: fields.texts("login_tokens")?,
            in_query: fields.text("login_redirect_mode")? == Some("query"),
            addresses: fields.urls("login_redirect_uri")?,
        })
    }

    /// The tokens of a login that are to be given out.
    fn tokens<'a>(&self, login: &'a LoginSession) -> Vec<(&'static str, &'a str)> {
        let wants = |name: &str| {
            let mut names = self.tokens.iter();
            names.any(|one| one == name || one == "tokens")
        };
        let all = [
            ("id_token", login.id_token.as_deref()),
            ("access_token", Some(login.access.as_str())),
            ("refresh_token", login.refresh.as_deref()),
        ];
        let wanted = all.into_iter().filter(|(name, _)| wants(name));
        wanted
            .filter_map(|(name, token)| Some((name, token?)))
            .collect()
    }

    /// The tokens as an answer.
    pub(super) fn response(&self, login: &LoginSession) -> Reply {
        let tokens = self.tokens(login).into_iter();
        let tokens: Map<String, Value> = tokens
            .map(|(name, token)| (name.to_owned(), Value::from(token)))
            .collect();
        let body = Bytes::from(Value::Object(tokens).to_string());
        let mut reply = Reply::empty(StatusCode::OK)
            .header(CACHE_CONTROL, HeaderValue::from_static("no-store"))
            .header(PRAGMA, HeaderValue::from_static("no-cache"));
        reply.body = ReplyBody::Raw("application/json", body);
        reply
    }

    /// Where the browser of the client with this index is sent on to, with the
    /// tokens; `back` is where the login began.
    pub(super) fn address(&self, login: &LoginSession, index: usize, back: &str) -> String {
        let configured = nth(&self.addresses, index).map(Url::as_str);
        let address = configured.unwrap_or(back);
        let tokens = self.tokens(login);
        if tokens.is_empty() {
            return address.to_owned();
        }
        let tokens = Serializer::new(String::new()).extend_pairs(tokens).finish();
        let (address, _) = address.split_once('#').unwrap_or((address, ""));
        let mark = match (self.in_query, address.contains('?')) {
            (false, _) => '#',
            (true, false) => '?',
            (true, true) => '&',
        };
        format!("{address}{mark}{tokens}")
    }
}

impl LoginSession {
    /// Whom its ID token is about.
    pub(super) fn subject(&self) -> Option<String> {
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

    fn after(config: Value) -> After {
        let config = config.as_object().cloned().expect("an object");
        After::new(Fields(&config)).expect("valid")
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
        ] {
            assert_eq!(after(config).address(&login(), 0, back), wanted);
        }
    }

    #[test]
    fn an_action_is_for_the_methods_that_log_in() {
        let config = json!({"login_action": "response", "login_methods": ["password"]});
        assert_eq!(after(config).action, Action::Upstream);
        let config = json!({"login_action": "response"});
        assert_eq!(after(config).action, Action::Response);
    }
}
