//! What the plugin can be told.

use std::sync::LazyLock;

use http::HeaderName;
use http::header::AUTHORIZATION;
use serde_json::{Map, Value};

use crate::authentication;
use crate::settings::{Settings, wrong};
use doorward_core::model::credential::KeyDigest;
use doorward_core::model::schema::{Field, Schema, Type, Violations, failed_condition};
use doorward_plugin_api::ConfigError;

/// The grants that can be switched on.
const GRANTS: [&str; 4] = [
    "enable_authorization_code",
    "enable_implicit_grant",
    "enable_client_credentials",
    "enable_password_grant",
];
/// Longest time of a token, in seconds.
const SECONDS_MAX: f64 = 100_000_000.0;

/// The fields.
pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let flag = |name| {
            let field = Field::new(name, Type::Boolean);
            field.default(false).required()
        };
        let seconds = |name, default: i64| {
            let field = Field::new(name, Type::Number);
            field.default(default).required()
        };
        let mut fields = vec![
            Field::new("scopes", Type::array(Type::some_text())),
            flag("mandatory_scope"),
            Field::new("provision_key", Type::some_text())
                .auto()
                .unique()
                .required(),
            seconds("token_expiration", 7200),
        ];
        fields.extend(GRANTS.map(flag));
        fields.extend([
            flag("hide_credentials"),
            flag("accept_http_if_already_terminated"),
            flag("global_credentials"),
            Field::new("auth_header_name", Type::some_text()).default("authorization"),
            seconds("refresh_token_ttl", 1_209_600),
            flag("reuse_refresh_token"),
            Field::new("pkce", Type::word(&["none", "lax", "strict"])).default("lax"),
        ]);
        fields.extend(authentication::fields());
        Schema::new(fields)
            .check(some_grant)
            .check(times_are_in_bounds)
            .check(scopes_are_named)
    });
    &SCHEMA
}

fn some_grant(config: &Map<String, Value>, violations: &mut Violations) {
    if !GRANTS.iter().any(|grant| Settings(config).flag(grant)) {
        let grants = GRANTS.join(", ");
        violations.put_whole(format!(
            "at least one of these fields must be true: {grants}"
        ));
    }
}

fn times_are_in_bounds(config: &Map<String, Value>, violations: &mut Violations) {
    for field in ["token_expiration", "refresh_token_ttl"] {
        let seconds = Settings(config).number(field).unwrap_or_default();
        if !(0.0..=SECONDS_MAX).contains(&seconds) {
            violations.put(field, "value should be between 0 and 100000000");
        }
    }
}

fn scopes_are_named(config: &Map<String, Value>, violations: &mut Violations) {
    let config = Settings(config);
    if config.flag("mandatory_scope") && config.get("scopes").is_none() {
        violations.put_entity(failed_condition("mandatory_scope"));
        violations.put("scopes", "required field missing");
    }
}

/// Which clients have to prove that a code is theirs (RFC 7636).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pkce {
    /// Those that have begun so.
    None,
    /// Those and public ones.
    Lax,
    /// All.
    Strict,
}

/// What the plugin was told.
pub(super) struct Config {
    /// `None`: scopes are not looked at.
    pub(super) scopes: Option<Box<[Box<str>]>>,
    pub(super) mandatory_scope: bool,
    pub(super) provision_key: Option<KeyDigest>,
    /// In seconds; 0: for ever.
    pub(super) token_expiration: i64,
    /// In seconds; 0: for ever.
    pub(super) refresh_token_ttl: i64,
    pub(super) code: bool,
    pub(super) implicit: bool,
    pub(super) client_credentials: bool,
    pub(super) password: bool,
    pub(super) hides: bool,
    pub(super) accepts_terminated: bool,
    pub(super) global: bool,
    pub(super) header: HeaderName,
    pub(super) reuses_refresh_token: bool,
    pub(super) pkce: Pkce,
}

impl Config {
    /// Reads it.
    pub(super) fn read(config: Settings<'_>) -> Result<Self, ConfigError> {
        let scopes = config.get("scopes").is_some();
        let scopes = scopes.then(|| config.texts("scopes").map(Box::from).collect());
        let key = config.some_text("provision_key");
        Ok(Self {
            scopes,
            mandatory_scope: config.flag("mandatory_scope"),
            provision_key: key.map(|key| KeyDigest::of_sent(key.as_bytes())),
            token_expiration: seconds(config, "token_expiration"),
            refresh_token_ttl: seconds(config, "refresh_token_ttl"),
            code: config.flag("enable_authorization_code"),
            implicit: config.flag("enable_implicit_grant"),
            client_credentials: config.flag("enable_client_credentials"),
            password: config.flag("enable_password_grant"),
            hides: config.flag("hide_credentials"),
            accepts_terminated: config.flag("accept_http_if_already_terminated"),
            global: config.flag("global_credentials"),
            header: config.header("auth_header_name")?.unwrap_or(AUTHORIZATION),
            reuses_refresh_token: config.flag("reuse_refresh_token"),
            pkce: match config.text("pkce") {
                Some("none") => Pkce::None,
                Some("strict") => Pkce::Strict,
                None | Some("lax") => Pkce::Lax,
                Some(_) => return Err(wrong("pkce", "expected one of: none, lax, strict")),
            },
        })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the schema has checked the bounds"
)]
fn seconds(config: Settings<'_>, field: &str) -> i64 {
    config.number(field).unwrap_or_default().ceil() as i64
}
