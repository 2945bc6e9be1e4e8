//! The plugin inside a filter of route files, which says of logins what no
//! configuration of the plugin can: `oauth2_client`.

use std::sync::Arc;

use pingora::http::RequestHeader;
use serde_json::{Map, Value};

use crate::OpenIdConnect;
use crate::authorize::VerifiedRequest;
use crate::config::{self, Components, Config, fields};
use crate::login;
use doorward_expr as expr;
use doorward_plugin_api::filter::{Exchange, Filter};
use doorward_plugin_api::{ConfigError, Parts};

/// What the filter says beyond the configuration.
pub struct Embedding {
    /// The path of the callback endpoint, at whatever host the browser uses;
    /// `None`: `redirect_uri` names it.
    pub callback: Option<String>,
    /// The only paths at which logins begin: requests for others pass without a
    /// session. `None`: a login begins at every path.
    pub login_paths: Option<[String; 2]>,
    /// Whether a logout goes on to the provider's `end_session_endpoint`.
    pub ends_provider_session: bool,
    /// The `client_id`.
    pub client: String,
    /// The `clientEndpoint`.
    pub endpoint: String,
    /// The attribute that has all that is known of the user, besides
    /// `attributes.openid`, which every verified token has.
    pub target: Option<Box<str>>,
}

/// Builds the plugin inside a filter. A field that `config` lacks has its default.
///
/// # Errors
/// [`ConfigError`] with the plugin's field at fault.
pub fn embed(
    config: &Map<String, Value>,
    parts: &Parts,
    embedding: Embedding,
) -> Result<Arc<dyn Filter>, ConfigError> {
    let mut config = config.clone();
    fields::schema().fill(&mut config);
    let fields = fields::Fields::read(&config)?;
    let (mut resolved, mut components) = Config::new(&fields, parts)?;
    config::add_proxies_and_authorities(&fields, &mut resolved.provider.options, parts)?;
    embedding.apply(&mut components);
    Ok(Arc::new_cyclic(|me| OpenIdConnect {
        embedding: Some(embedding),
        ..OpenIdConnect::new(me.clone(), resolved, components, parts)
    }))
}

/// The origin that a request was sent to, as its browser knows it.
pub fn origin(request: &RequestHeader, exchange: &Exchange) -> Option<String> {
    login::origin(request, exchange)
}

/// Forgets what filters before this one have said of a login.
pub fn forget(exchange: &mut Exchange, target: Option<&str>) {
    let ours = |name: &str| {
        name == expr::LOGIN_ATTRIBUTE || name == expr::FAILURE_ATTRIBUTE || Some(name) == target
    };
    if !exchange.attributes.is_empty() {
        exchange.attributes.retain(|(name, _)| !ours(name));
    }
}

/// Notes why a login has failed, unless that is known.
pub fn note_failure(error: &str, description: &str, exchange: &mut Exchange) {
    let name = expr::FAILURE_ATTRIBUTE;
    if exchange
        .attributes
        .iter()
        .any(|(known, _)| **known == *name)
    {
        return;
    }
    let failure = [("error", error), ("description", description)];
    let failure = failure.map(|(name, text)| (name.to_owned(), Value::from(text)));
    exchange.attributes.push((
        name.into(),
        expr::Value::of_owned_json(Value::Object(failure.into_iter().collect())),
    ));
}

impl Embedding {
    fn apply(&self, components: &mut Components) {
        if let Some(logins) = &mut components.logins {
            logins.call_back_at(self.callback.clone());
        }
        if let Some(logout) = &mut components.logout {
            logout.ends_provider_session = self.ends_provider_session;
        }
        if let Some(user_info) = &mut components.user_info {
            user_info.make_optional();
        }
    }

    /// Whether a request without a session passes.
    pub(super) fn passes(&self, request: &RequestHeader) -> bool {
        let path = request.uri.path().trim_end_matches('/');
        let paths = self.login_paths.as_ref();
        paths.is_some_and(|paths| !paths.iter().any(|one| one == path))
    }

    /// Tells later filters of the login that a request passes with, at `now_ms`.
    pub(super) fn tell(
        &self,
        verified_request: VerifiedRequest<'_>,
        now_ms: i64,
        exchange: &mut Exchange,
    ) {
        let (token, token_set) = (&verified_request.verified.token, verified_request.token_set);
        let mut known = Map::new();
        let mut say = |name: &str, value: Value| known.insert(name.to_owned(), value);
        say("client_registration", self.client.as_str().into());
        say("client_endpoint", self.endpoint.as_str().into());
        say("token_type", "Bearer".into());
        if let Some(end) = token.expires_at {
            let left = end.saturating_mul(1000).saturating_sub(now_ms).max(0);
            say("expires_in", left.into());
        }
        if let Some(id_token) = token_set.id_token {
            say("id_token", id_token.into());
        }
        if let Some(refresh_token) = token_set.refresh_token {
            say("refresh_token", refresh_token.into());
        }
        if let Some(target) = &self.target {
            let mut whole = known.clone();
            whole.insert("access_token".to_owned(), token.token.as_str().into());
            let scopes = token.scopes.iter().map(|scope| Value::from(&**scope));
            whole.insert("scope".to_owned(), scopes.collect());
            for name in ["id_token_claims", "user_info"] {
                whole.insert(name.to_owned(), Value::Object(token.claims.clone()));
            }
            let whole = expr::Value::of_owned_json(Value::Object(whole));
            exchange.attributes.push((target.clone(), whole));
        }
        let known = expr::Value::of_owned_json(Value::Object(known));
        exchange
            .attributes
            .push((expr::LOGIN_ATTRIBUTE.into(), known));
    }
}
