//! The fields of the `mcp` plugin, and what they come to.

use std::sync::{Arc, LazyLock};

use http::HeaderValue;
use serde_json::{Map, Value, json};
use url::Url;

use super::rules::{self, Rules};
use crate::settings::{Settings, wrong};
use doorward_core::model::schema::{Field, Schema, Type};
use doorward_expr::Constants;
use doorward_plugin_api::ConfigError;
use doorward_plugin_api::filter::ProtectedResource;

/// The largest limit of bodies that are read before a decision, in bytes.
const MOST_BODY: i64 = 16 << 20;

/// The fields.
pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let texts = || Type::array(Type::text());
        Schema::new(vec![
            Field::new("resource", Type::checked(check_resource)).required(),
            Field::new(
                "resource_aliases",
                Type::array(Type::checked(check_resource)),
            )
            .default(json!([])),
            Field::new("issuer", Type::checked(check_url)).required(),
            Field::new(
                "authorization_servers",
                Type::array(Type::checked(check_url)),
            ),
            Field::new("client_id", Type::text()),
            Field::new("client_secret", Type::text()),
            Field::new("upstream_audience", Type::text()),
            Field::new("scopes_required", texts()).default(json!([])),
            Field::new("scopes_supported", texts()),
            Field::new("allowed_origins", Type::array(Type::checked(check_origin)))
                .default(json!([])),
            Field::new("rules", Type::array(Type::Record(rules::schema())))
                .default(json!([]))
                .required(),
            Field::new("default_action", Type::word(&["allow", "deny"]))
                .default("allow")
                .required(),
            Field::new("groups_claim", Type::text())
                .default("groups")
                .required(),
            Field::new("lists_show_step_up", Type::Boolean)
                .default(false)
                .required(),
            Field::new("bind_sessions", Type::Boolean)
                .default(true)
                .required(),
            Field::new("end_with_session", Type::Boolean)
                .default(true)
                .required(),
            Field::new("max_body", Type::Integer(1, MOST_BODY))
                .default(1 << 20)
                .required(),
            Field::new("resource_name", Type::text()),
            Field::new("resource_documentation", Type::checked(check_url)),
            Field::new("resource_policy_uri", Type::checked(check_url)),
        ])
    });
    &SCHEMA
}

fn check_url(text: &str) -> Result<(), String> {
    let url = Url::parse(text).ok();
    let whole = url.is_some_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if whole && HeaderValue::from_str(text).is_ok() {
        Ok(())
    } else {
        Err("must be an http or https address".to_owned())
    }
}

fn check_resource(text: &str) -> Result<(), String> {
    check_url(text)?;
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    let is_plain = url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none()
        // They go into a quoted text of a header.
        && !text.contains(['"', '\\']);
    if is_plain {
        Ok(())
    } else {
        Err("must have no query, fragment, user or quote".to_owned())
    }
}

fn check_origin(text: &str) -> Result<(), String> {
    let is_origin =
        text == "*" || Url::parse(text).is_ok_and(|url| url.origin().ascii_serialization() == text);
    if is_origin {
        Ok(())
    } else {
        Err("must be an origin such as https://app.example, or *".to_owned())
    }
}

/// What the fields come to.
pub(super) struct Config {
    /// The resource and its metadata, by each of its addresses.
    pub(super) addresses: Vec<ProtectedResource>,
    /// The provider.
    pub(super) issuer: Url,
    /// The origins whose pages may call, besides its own.
    pub(super) origins: Vec<String>,
    /// The scopes that every token must have.
    pub(super) scopes: Vec<String>,
    /// Who may call what.
    pub(super) rules: Arc<Rules>,
    /// Whether lists show what further scopes would open.
    pub(super) shows_step_up: bool,
    /// Whether a session of the protocol is its opener's alone.
    pub(super) binds_sessions: bool,
    /// Longest body that is read before a decision, in bytes.
    pub(super) max_body: usize,
    /// The audiences of which the tokens of clients must have one, where they are
    /// exchanged for others: nobody else looks at them then.
    pub(super) exchanged_from: Option<Vec<String>>,
    /// The `config` of the `openid-connect` plugin that checks tokens.
    pub(super) checks: Map<String, Value>,
}

impl Config {
    /// Reads a complete `config`.
    pub(super) fn read(
        config: &Map<String, Value>,
        constants: &Constants,
    ) -> Result<Self, ConfigError> {
        let config = Settings(config);
        let scopes: Vec<&str> = config.texts("scopes_required").collect();
        if let Some(Err(message)) = scopes
            .iter()
            .map(|text| rules::check_scope(text))
            .find(Result::is_err)
        {
            return Err(wrong("scopes_required", message));
        }
        let issuer = Url::parse(config.text("issuer").unwrap_or_default());
        let issuer = issuer.map_err(|error| wrong("issuer", error.to_string()))?;
        let addresses = addresses(config, &scopes)?;
        let exchanges = config.some_text("upstream_audience").is_some();
        let has_origin = addresses.iter().any(|address| address.path.is_empty());
        if exchanges && (config.some_text("client_id").is_none() || has_origin) {
            let message = "needs client_id and client_secret, and resources with a path";
            return Err(wrong("upstream_audience", message));
        }
        let max_body = config.integer("max_body").unwrap_or_default();
        Ok(Self {
            addresses,
            issuer,
            origins: config.texts("allowed_origins").map(str::to_owned).collect(),
            scopes: scopes.iter().map(|&scope| scope.to_owned()).collect(),
            rules: Arc::new(Rules::read(config, constants)?),
            shows_step_up: config.flag("lists_show_step_up"),
            binds_sessions: config.flag("bind_sessions"),
            max_body: usize::try_from(max_body).unwrap_or_default(),
            exchanged_from: exchanges.then(|| audiences(config)),
            checks: checks(config, &scopes),
        })
    }
}

/// The identifiers of the resource: its own address before the others.
fn identifiers<'c>(config: Settings<'c>) -> impl Iterator<Item = &'c str> {
    let own = config.text("resource").into_iter();
    own.chain(config.texts("resource_aliases"))
}

/// The addresses by which clients may know the resource. The metadata of each name
/// it by that very one (RFC 9728 section 3.3).
fn addresses(config: Settings<'_>, scopes: &[&str]) -> Result<Vec<ProtectedResource>, ConfigError> {
    let all = identifiers(config).map(|identifier| {
        let url = Url::parse(identifier).map_err(|error| wrong("resource", error.to_string()))?;
        let path = if url.path() == "/" { "" } else { url.path() };
        Ok(ProtectedResource {
            host: url.host_str().unwrap_or_default().to_owned(),
            port: url.port(),
            path: path.to_owned(),
            origin: url.origin().ascii_serialization(),
            metadata: metadata(config, identifier, scopes).to_string().into(),
        })
    });
    all.collect()
}

/// The audiences of which a token must have one.
fn audiences(config: Settings<'_>) -> Vec<String> {
    let spellings = |identifier: &str| {
        // Providers differ in how they spell an address without a path.
        let bare = identifier.trim_end_matches('/');
        let is_origin = Url::parse(identifier).is_ok_and(|url| url.path() == "/");
        let slashed = is_origin.then(|| format!("{bare}/"));
        let first = if is_origin { bare } else { identifier };
        [Some(first.to_owned()), slashed]
    };
    let all = identifiers(config).flat_map(spellings);
    all.flatten().collect()
}

/// The metadata by one identifier (RFC 9728 section 2); what is not set is left out.
fn metadata(config: Settings<'_>, identifier: &str, scopes: &[&str]) -> Value {
    let issuer = config.text("issuer").unwrap_or_default();
    let servers: Vec<&str> = config.texts("authorization_servers").collect();
    let servers = if servers.is_empty() {
        vec![issuer]
    } else {
        servers
    };
    let mut metadata = json!({
        "resource": identifier,
        "authorization_servers": servers,
        "bearer_methods_supported": ["header"],
    });
    let supported: Vec<&str> = config.texts("scopes_supported").collect();
    let supported = if supported.is_empty() {
        scopes
    } else {
        &supported
    };
    if !supported.is_empty() {
        metadata["scopes_supported"] = json!(supported);
    }
    for name in [
        "resource_name",
        "resource_documentation",
        "resource_policy_uri",
    ] {
        if let Some(text) = config.some_text(name) {
            metadata[name] = json!(text);
        }
    }
    metadata
}

/// What the `openid-connect` plugin is to check: tokens of this issuer for this
/// resource, from the header alone, which the server never sees.
fn checks(config: Settings<'_>, scopes: &[&str]) -> Map<String, Value> {
    let mut checks = json!({
        "issuer": config.text("issuer"),
        "auth_methods": ["bearer"],
        "bearer_token_param_type": ["header"],
        "audience_required": audiences(config),
        "hide_credentials": true,
        "end_with_session": config.flag("end_with_session"),
        "upstream_access_token_header": null,
    });
    if let Some(audience) = config.some_text("upstream_audience") {
        // The new token is judged, and it alone reaches the server. The filter sees to
        // it that the old one is for the resource.
        checks["audience_required"] = json!([audience]);
        checks["upstream_access_token_header"] = json!("authorization:bearer");
        // Every token is exchanged, also one that is for the server besides: none can have
        // this scope (RFC 6749 section 3.3).
        checks["token_exchange"] = json!({
            "subject_token_issuers": [
                {"issuer": config.text("issuer"), "conditions": {"missing_scopes": ["\""]}},
            ],
            "request": {"audience": [audience], "empty_scopes": true},
        });
    }
    if !scopes.is_empty() {
        checks["scopes_required"] = json!([scopes.join(" ")]);
    }
    for name in ["client_id", "client_secret"] {
        if let Some(text) = config.some_text(name) {
            checks[name] = json!([text]);
        }
    }
    match checks {
        Value::Object(checks) => checks,
        _ => Map::new(),
    }
}
