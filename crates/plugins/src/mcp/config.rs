//! The fields of the `mcp` plugin, and what they come to.

use std::sync::{Arc, LazyLock};

use http::HeaderValue;
use serde_json::{Map, Value, json};
use url::Url;

use super::rules::{self, Action, RuleFields, Rules};
use crate::settings::wrong;
use doorward_core::model::schema::{Schema, Type};
use doorward_core::model::secret::Secret;
use doorward_expr::Constants;
use doorward_plugin_api::filter::ProtectedResource;
use doorward_plugin_api::{ConfigError, config};

/// The largest limit of bodies that are read before a decision, in bytes.
const MOST_BODY: i64 = 16 << 20;

config! {
    /// The fields of `config`.
    pub(super) struct Fields {
        /// The address by which clients know the server: the audience of their tokens.
        #[field(kind(Type::checked(check_resource)), required)]
        resource: String,
        /// Further addresses of the server. Tokens for each are good.
        #[field(kind(Type::array(Type::checked(check_resource))), default(json!([])))]
        resource_aliases: Vec<String>,
        /// The provider whose tokens are good.
        #[field(kind(Type::checked(check_url)), required)]
        issuer: String,
        /// The providers that clients are led to. Null: the issuer.
        #[field(kind(Type::array(Type::checked(check_url))))]
        authorization_servers: Vec<String>,
        /// The gateway's own client at the provider.
        #[field(kind(Type::text()))]
        client_id: Option<String>,
        /// The secret of that client.
        #[field(kind(Type::text()))]
        client_secret: Option<Secret>,
        /// The server's own audience. Tokens are exchanged for ones of it (RFC 8693).
        #[field(kind(Type::text()))]
        upstream_audience: Option<String>,
        /// The scopes that every token must have.
        #[field(kind(Type::array(Type::text())), default(json!([])))]
        scopes_required: Vec<String>,
        /// The scopes that clients are told. Null: those of scopes_required.
        #[field(kind(Type::array(Type::text())))]
        scopes_supported: Vec<String>,
        /// The origins whose pages may call, besides the server's own.
        #[field(kind(Type::array(Type::checked(check_origin))), default(json!([])))]
        allowed_origins: Vec<String>,
        /// Who may call what. The first rule about a call decides.
        #[field(default(json!([])), required)]
        pub(super) rules: Vec<RuleFields>,
        /// What becomes of calls that no rule is about.
        #[field(default("allow"), required)]
        pub(super) default_action: Action,
        /// The claim that has the groups of a user.
        #[field(kind(Type::text()), default("groups"), required)]
        pub(super) groups_claim: String,
        /// Whether lists show what further scopes would open.
        #[field(default(false), required)]
        lists_show_step_up: bool,
        /// Whether a session of the protocol is its opener's alone.
        #[field(default(true), required)]
        bind_sessions: bool,
        /// Whether streams end with the session or the token of their request.
        #[field(default(true), required)]
        end_with_session: bool,
        /// The longest body that is read before a decision, in bytes.
        #[field(kind(Type::Integer(1, MOST_BODY)), default(1 << 20), required)]
        max_body: usize,
        /// The name of the server, for people.
        #[field(kind(Type::text()))]
        resource_name: Option<String>,
        /// The address of a page that describes the server.
        #[field(kind(Type::checked(check_url)))]
        resource_documentation: Option<String>,
        /// The address of a page that says how data may be used.
        #[field(kind(Type::checked(check_url)))]
        resource_policy_uri: Option<String>,
    }
}

/// The fields.
pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::new(Fields::fields()));
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
        let fields = Fields::read(config)?;
        let wrong_scope = |scope: &String| rules::check_scope(scope).err();
        if let Some(message) = fields.scopes_required.iter().find_map(wrong_scope) {
            return Err(wrong("scopes_required", message));
        }
        let issuer = Url::parse(&fields.issuer);
        let issuer = issuer.map_err(|error| wrong("issuer", error.to_string()))?;
        let addresses = fields.addresses()?;
        let exchanges = fields.upstream_audience.is_some();
        let has_origin = addresses.iter().any(|address| address.path.is_empty());
        if exchanges && (fields.client_id.is_none() || has_origin) {
            let message = "needs client_id and client_secret, and resources with a path";
            return Err(wrong("upstream_audience", message));
        }
        Ok(Self {
            addresses,
            issuer,
            rules: Arc::new(Rules::read(&fields, constants)?),
            shows_step_up: fields.lists_show_step_up,
            binds_sessions: fields.bind_sessions,
            max_body: fields.max_body,
            exchanged_from: exchanges.then(|| fields.audiences()),
            checks: fields.checks(),
            origins: fields.allowed_origins,
            scopes: fields.scopes_required,
        })
    }
}

impl Fields {
    /// The identifiers of the resource: its own address before the others.
    fn identifiers(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.resource).chain(&self.resource_aliases)
    }

    /// The addresses by which clients may know the resource. The metadata of each name
    /// it by that very one (RFC 9728 section 3.3).
    fn addresses(&self) -> Result<Vec<ProtectedResource>, ConfigError> {
        let all = self.identifiers().map(|identifier| {
            let url =
                Url::parse(identifier).map_err(|error| wrong("resource", error.to_string()))?;
            let path = if url.path() == "/" { "" } else { url.path() };
            Ok(ProtectedResource {
                host: url.host_str().unwrap_or_default().to_owned(),
                port: url.port(),
                path: path.to_owned(),
                origin: url.origin().ascii_serialization(),
                metadata: self.metadata(identifier).to_string().into(),
            })
        });
        all.collect()
    }

    /// The audiences of which a token must have one.
    fn audiences(&self) -> Vec<String> {
        let spellings = |identifier: &String| {
            // Providers differ in how they spell an address without a path.
            let bare = identifier.trim_end_matches('/');
            let is_origin = Url::parse(identifier).is_ok_and(|url| url.path() == "/");
            let slashed = is_origin.then(|| format!("{bare}/"));
            let first = if is_origin { bare } else { identifier };
            [Some(first.to_owned()), slashed]
        };
        let all = self.identifiers().flat_map(spellings);
        all.flatten().collect()
    }

    /// The metadata by one identifier (RFC 9728 section 2); what is not set is left out.
    fn metadata(&self, identifier: &str) -> Value {
        let servers = match &self.authorization_servers[..] {
            [] => std::slice::from_ref(&self.issuer),
            servers => servers,
        };
        let mut metadata = json!({
            "resource": identifier,
            "authorization_servers": servers,
            "bearer_methods_supported": ["header"],
        });
        let supported = match &self.scopes_supported[..] {
            [] => &self.scopes_required,
            supported => supported,
        };
        if !supported.is_empty() {
            metadata["scopes_supported"] = json!(supported);
        }
        for (name, text) in [
            ("resource_name", &self.resource_name),
            ("resource_documentation", &self.resource_documentation),
            ("resource_policy_uri", &self.resource_policy_uri),
        ] {
            if let Some(text) = text {
                metadata[name] = json!(text);
            }
        }
        metadata
    }

    /// What the `openid-connect` plugin is to check: tokens of this issuer for this
    /// resource, from the header alone, which the server never sees.
    fn checks(&self) -> Map<String, Value> {
        let mut checks = json!({
            "issuer": self.issuer,
            "auth_methods": ["bearer"],
            "bearer_token_param_type": ["header"],
            "audience_required": self.audiences(),
            "hide_credentials": true,
            "end_with_session": self.end_with_session,
            "upstream_access_token_header": null,
        });
        if let Some(audience) = &self.upstream_audience {
            // The new token is judged, and it alone reaches the server. The filter sees to
            // it that the old one is for the resource.
            checks["audience_required"] = json!([audience]);
            checks["upstream_access_token_header"] = json!("authorization:bearer");
            // Every token is exchanged, also one that is for the server besides: none can have
            // this scope (RFC 6749 section 3.3).
            checks["token_exchange"] = json!({
                "subject_token_issuers": [
                    {"issuer": self.issuer, "conditions": {"missing_scopes": ["\""]}},
                ],
                "request": {"audience": [audience], "empty_scopes": true},
            });
        }
        if !self.scopes_required.is_empty() {
            checks["scopes_required"] = json!([self.scopes_required.join(" ")]);
        }
        if let Some(id) = &self.client_id {
            checks["client_id"] = json!([id]);
        }
        if let Some(secret) = &self.client_secret {
            checks["client_secret"] = json!([secret.expose()]);
        }
        match checks {
            Value::Object(checks) => checks,
            _ => Map::new(),
        }
    }
}
