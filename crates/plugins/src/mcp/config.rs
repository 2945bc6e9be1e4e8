//! The fields of the `mcp` plugin, and what they come to.

use std::sync::LazyLock;

use http::HeaderValue;
use serde_json::{Map, Value, json};
use url::Url;

use crate::settings::{Settings, wrong};
use doorward_core::model::schema::{Field, Schema, Type};
use doorward_plugin_api::ConfigError;
use doorward_plugin_api::filter::ProtectedResource;

/// Where the metadata of resources are, before the path of the resource
/// (RFC 9728 section 3.1).
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The fields.
pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let texts = || Type::array(Type::text());
        Schema::new(vec![
            Field::new("resource", Type::checked(check_resource)).required(),
            Field::new("issuer", Type::checked(check_url)).required(),
            Field::new(
                "authorization_servers",
                Type::array(Type::checked(check_url)),
            ),
            Field::new("client_id", Type::text()),
            Field::new("client_secret", Type::text()),
            Field::new("scopes_required", texts()).default(json!([])),
            Field::new("scopes_supported", texts()),
            Field::new("allowed_origins", Type::array(Type::checked(check_origin)))
                .default(json!([])),
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
    /// The resource and its metadata.
    pub(super) resource: ProtectedResource,
    /// The origin of the resource itself.
    pub(super) own_origin: String,
    /// The origins whose pages may call, besides its own.
    pub(super) origins: Vec<String>,
    /// `resource_metadata="…"` and, where scopes are required, `scope="…"`.
    pub(super) challenge: String,
    /// The `config` of the `openid-connect` plugin that checks tokens.
    pub(super) checks: Map<String, Value>,
}

impl Config {
    /// Reads a complete `config`.
    pub(super) fn read(config: &Map<String, Value>) -> Result<Self, ConfigError> {
        let config = Settings(config);
        let resource = config.text("resource").unwrap_or_default();
        let url = Url::parse(resource).map_err(|error| wrong("resource", error.to_string()))?;
        let path = if url.path() == "/" { "" } else { url.path() };
        let origin = url.origin().ascii_serialization();
        let scopes: Vec<&str> = config.texts("scopes_required").collect();
        let is_scope = |scope: &&str| {
            let allowed = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
            !scope.is_empty() && scope.bytes().all(allowed)
        };
        if !scopes.iter().all(is_scope) {
            let message = "has a character that no scope can have (RFC 6749 3.3)";
            return Err(wrong("scopes_required", message));
        }
        let mut challenge = format!("resource_metadata=\"{origin}{WELL_KNOWN}{path}\"");
        if !scopes.is_empty() {
            challenge = format!("{challenge}, scope=\"{}\"", scopes.join(" "));
        }
        Ok(Self {
            resource: ProtectedResource {
                host: url.host_str().unwrap_or_default().to_owned(),
                port: url.port(),
                path: path.to_owned(),
                metadata: metadata(config, &scopes).to_string().into(),
            },
            own_origin: origin,
            origins: config.texts("allowed_origins").map(str::to_owned).collect(),
            challenge,
            checks: checks(config, &url, &scopes),
        })
    }
}

/// The metadata (RFC 9728 section 2); what is not set is left out.
fn metadata(config: Settings<'_>, scopes: &[&str]) -> Value {
    let issuer = config.text("issuer").unwrap_or_default();
    let servers: Vec<&str> = config.texts("authorization_servers").collect();
    let servers = if servers.is_empty() {
        vec![issuer]
    } else {
        servers
    };
    let mut metadata = json!({
        "resource": config.text("resource"),
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
fn checks(config: Settings<'_>, url: &Url, scopes: &[&str]) -> Map<String, Value> {
    let resource = config.text("resource").unwrap_or_default();
    let mut audiences = vec![resource.to_owned()];
    // Providers differ in how they spell an address without a path.
    if url.path() == "/" {
        let bare = resource.trim_end_matches('/');
        audiences = vec![bare.to_owned(), format!("{bare}/")];
    }
    let mut checks = json!({
        "issuer": config.text("issuer"),
        "auth_methods": ["bearer"],
        "bearer_token_param_type": ["header"],
        "audience_required": audiences,
        "hide_credentials": true,
        "upstream_access_token_header": null,
    });
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
