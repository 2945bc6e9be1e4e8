//! The `config` of the filter, as the `openid-connect` plugin's.

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Map, Value, json};
use url::Url;

use super::endpoints::Endpoints;
use super::registration;
use crate::chain::ObjectLookup;
use crate::chain::object::{AnyValue, Field, Object, Reference, object};
use crate::chain::settings::{Declared, Reading};
use doorward_core::hex;
use doorward_expr::Expression;
use doorward_expr::duration::Length;
use doorward_openid_connect::embedding::Embedding;
use doorward_plugin_api::{ConfigError, Parts};

const NOT_DYNAMIC: &str = "clients are not registered dynamically";
const ONE_REGISTRATION: &str = "a filter signs users in at one provider: give each registration a \
    filter with a clientEndpoint of its own, and choose between them with a DispatchHandler";
const NO_REGISTRATION: &str = "is required: the gateway neither discovers providers nor registers \
    itself with them. Register it there, and declare a ClientRegistration with what they gave";
/// How long userinfo is remembered, in seconds, where nothing says so.
const CACHE_SECONDS: u64 = 600;
/// The most that the plugin takes: ten years.
const CACHE_SECONDS_MAX: u64 = 315_360_000;

/// What the filter works with.
pub(super) struct Config {
    /// The `config` of the plugin.
    pub(super) plugin: Map<String, Value>,
    pub(super) embedding: Embedding,
    pub(super) endpoints: Endpoints,
    pub(super) require_https: bool,
    pub(super) is_optional: bool,
    pub(super) target: Option<Box<str>>,
    pub(super) warnings: Vec<String>,
}

impl Config {
    pub(super) fn read(
        config: &Map<String, Value>,
        parts: &Parts,
        named: ObjectLookup<'_>,
    ) -> Result<Self, ConfigError> {
        let reading = Reading::new(parts, named);
        let read = read(Fields::read(&reading.config(config))?)?;
        Ok(Self {
            warnings: reading.into_warnings(),
            ..read
        })
    }
}

object! {
    /// The filter's fields.
    struct Fields<'a> {
        client_endpoint as "clientEndpoint": String,
        registrations as "registrations" | "registration": Reference,
        require_login as "requireLogin": bool = true,
        login_handler as "loginHandler": AnyValue,
        target: AnyValue,
        prompt: Option<String>,
        revokes_token as "revokeOauth2TokenOnLogout": bool = false,
        cache_expiration as "cacheExpiration": Option<Length>,
        ends_provider_session as "openIdEndSessionOnLogout": bool = false,
        default_login_goto as "defaultLoginGoto": Option<Expression>,
        default_logout_goto as "defaultLogoutGoto": Option<Expression>,
        require_https as "requireHttps": bool = true,
    }
    idle {
        "failureHandler",
        "metadata": NOT_DYNAMIC,
        "discoveryHandler": NOT_DYNAMIC,
        "discoverySecretId": NOT_DYNAMIC,
        "tokenEndpointAuthMethod": NOT_DYNAMIC,
        "tokenEndpointAuthSigningAlg": NOT_DYNAMIC,
        "secretsProvider": NOT_DYNAMIC,
        "issuerRepository": NOT_DYNAMIC,
        "useDeprecatedIssuerRepository": NOT_DYNAMIC,
        "executor": "it is not needed here",
        "oAuth2SessionKey": "sessions are known by their clientEndpoint",
    }
}

fn read(fields: Fields<'_>) -> Result<Config, ConfigError> {
    let base = ClientEndpoint::read(&fields.client_endpoint)?;
    let (declared, name) = the_registration(&fields.registrations)?;
    let mut plugin = registration::translate(&declared)?;
    let client = registration::client_id(&plugin);
    let client = client.unwrap_or_default().to_owned();
    let require_login = fields.require_login.value;
    let is_optional = !require_login || fields.login_handler.is_given();
    if !require_login && fields.login_handler.is_given() {
        let message = "has no effect: requireLogin is false";
        fields.login_handler.warn(message);
    }
    let target = target(&fields.target)?;
    sign_in(fields.prompt.value, &base, &mut plugin);
    sign_out(fields.revokes_token.value, &base, &mut plugin);
    sessions(&base, &mut plugin);
    user_info(fields.cache_expiration.value, &mut plugin);
    let paths = ["login", "callback"].map(|last| format!("{}/{last}", base.path));
    Ok(Config {
        embedding: Embedding {
            callback: (!base.is_absolute).then(|| format!("{}/callback", base.path)),
            login_paths: is_optional.then_some(paths),
            ends_provider_session: fields.ends_provider_session.value,
            client: client.clone(),
            endpoint: base.text.clone(),
            target: target.clone(),
        },
        endpoints: Endpoints {
            base: base.path,
            registrations: name.into_iter().chain([client]).collect(),
            default_login_goto: goto(fields.default_login_goto)?,
            default_logout_goto: goto(fields.default_logout_goto)?,
        },
        plugin,
        require_https: fields.require_https.value,
        is_optional,
        target,
        warnings: Vec::new(),
    })
}

/// What the service URIs begin with.
struct ClientEndpoint {
    /// As it is written, without a slash at its end.
    text: String,
    path: String,
    is_absolute: bool,
}

impl ClientEndpoint {
    fn read(field: &Field<'_, String>) -> Result<Self, ConfigError> {
        let text = field.value.trim_end_matches('/');
        let is_absolute = !text.starts_with('/');
        let base = Url::parse("http://client.invalid/").ok();
        let url = if is_absolute {
            Url::parse(text).ok()
        } else {
            base.and_then(|base| base.join(text).ok())
        };
        let plain = |url: &Url| {
            matches!(url.scheme(), "http" | "https")
                && (is_absolute || url.host_str() == Some("client.invalid"))
                && url.query().is_none()
                && url.fragment().is_none()
        };
        let message = "must be a path such as /home/openid, or an http or https URL";
        let url = url.filter(plain).ok_or_else(|| field.wrong(message))?;
        Ok(Self {
            path: url.path().trim_end_matches('/').to_owned(),
            text: text.to_owned(),
            is_absolute,
        })
    }
}

/// The one registration, and the name of its object if it has one.
fn the_registration<'a>(
    field: &Field<'a, Reference>,
) -> Result<(Declared<'a>, Option<String>), ConfigError> {
    let mut all = field.all_declared()?.into_iter();
    let Some(first) = all.next() else {
        return Err(field.wrong(NO_REGISTRATION));
    };
    if let Some(second) = all.next() {
        return Err(ConfigError {
            field: second.field,
            message: ONE_REGISTRATION.to_owned(),
        });
    }
    let single = match field.value() {
        Some(Value::Array(items)) => items.first(),
        other => other,
    };
    let name = match single {
        Some(Value::String(name)) => Some(name.as_str()),
        Some(object) => object.get("name").and_then(Value::as_str),
        None => None,
    };
    Ok((first, name.map(str::to_owned)))
}

/// The attribute in which later filters find the user: `None`, where it is
/// `openid`, which expressions make of the token.
fn target(field: &Field<'_, AnyValue>) -> Result<Option<Box<str>>, ConfigError> {
    let message = "must be ${attributes.name}: the gateway keeps nothing else for later filters";
    let Some(value) = field.value() else {
        return Ok(None);
    };
    let text = value.as_str().ok_or_else(|| field.wrong(message))?;
    let inner = text
        .trim()
        .strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'));
    let inner = inner.and_then(|inner| inner.trim().strip_prefix("attributes"));
    let name = inner.and_then(|inner| {
        let quoted = inner
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        match quoted.map(str::trim) {
            Some(quoted) => {
                let name = quoted
                    .strip_prefix('\'')
                    .and_then(|rest| rest.strip_suffix('\''));
                name.or_else(|| quoted.strip_prefix('"')?.strip_suffix('"'))
            }
            None => inner.strip_prefix('.'),
        }
    });
    let legal = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '$');
    let name = name.filter(|name| !name.is_empty() && name.chars().all(legal));
    match name.ok_or_else(|| field.wrong(message))? {
        "openid" => Ok(None),
        name => Ok(Some(name.into())),
    }
}

fn goto(field: Field<'_, Option<Expression>>) -> Result<Option<Expression>, ConfigError> {
    match &field.value {
        Some(expression) if expression.needs_response() || expression.needs_body() => {
            Err(field.wrong("must look at neither the body nor the response"))
        }
        _ => Ok(field.value),
    }
}

fn sign_in(prompt: Option<String>, base: &ClientEndpoint, plugin: &mut Map<String, Value>) {
    let mut set = |name: &str, value: Value| plugin.insert(name.to_owned(), value);
    set("auth_methods", json!(["session", "authorization_code"]));
    // What the upstream gets is for later filters to say.
    set("upstream_access_token_header", Value::Null);
    set("credential_claim", Value::Null);
    if base.is_absolute {
        set("redirect_uri", json!([format!("{}/callback", base.text)]));
    }
    if let Some(prompt) = prompt {
        set("authorization_query_args_names", json!(["prompt"]));
        set("authorization_query_args_values", json!([prompt]));
    }
}

fn sign_out(revokes: bool, base: &ClientEndpoint, plugin: &mut Map<String, Value>) {
    let mut set = |name: &str, value: Value| plugin.insert(name.to_owned(), value);
    set("logout_uri_suffix", format!("{}/logout", base.path).into());
    set("logout_methods", json!(["GET", "POST"]));
    set("logout_revoke", revokes.into());
}

/// Sessions are known by their `clientEndpoint`, as in the imitated gateway:
/// filters with the same one share them, and no others do.
fn sessions(base: &ClientEndpoint, plugin: &mut Map<String, Value>) {
    let digest = digest(&SHA256, base.text.as_bytes());
    let mark = hex::encode(&digest.as_ref()[..4]);
    let mut set = |name: &str, value: String| plugin.insert(name.to_owned(), value.into());
    set("session_cookie_name", format!("session-{mark}"));
    set("authorization_cookie_name", format!("authorization-{mark}"));
    set("session_audience", base.text.clone());
}

/// What userinfo says of users of OpenID providers.
fn user_info(cached_for: Option<Length>, plugin: &mut Map<String, Value>) {
    let scopes = plugin["scopes"].as_array();
    let of_user = scopes.is_some_and(|scopes| scopes.iter().any(|scope| scope == "openid"));
    let mut set = |name: &str, value: Value| plugin.insert(name.to_owned(), value);
    set("search_user_info", of_user.into());
    match cached_for {
        Some(Length::Finite(length)) if length.is_zero() => {
            set("cache_user_info", false.into());
        }
        Some(Length::Finite(length)) => {
            set(
                "cache_ttl_max",
                length.as_secs().clamp(1, CACHE_SECONDS_MAX).into(),
            );
        }
        Some(Length::Unlimited) => {}
        None => {
            set("cache_ttl_max", CACHE_SECONDS.into());
        }
    }
}
