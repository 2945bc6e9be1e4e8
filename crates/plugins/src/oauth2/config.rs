//! What the plugin can be told.

use std::sync::LazyLock;

use http::HeaderName;
use serde_json::{Map, Value};

use crate::authentication;
use doorward_core::model::credential::KeyDigest;
use doorward_core::model::schema::{Schema, Type, Violations, failed_condition};
use doorward_plugin_api::config::{FieldValue, read_for_check};
use doorward_plugin_api::{ConfigError, config, words};

/// Longest time of a token, in seconds.
const SECONDS_MAX: f64 = 100_000_000.0;

config! {
    /// The fields of `config`.
    pub(super) struct Config {
        /// The scopes that there are. Null: scopes are not looked at.
        pub(super) scopes: Option<Vec<Box<str>>>,
        /// Whether a client has to ask for a scope.
        #[field(default(false), required)]
        pub(super) mandatory_scope: bool,
        /// The key by which the login page proves that it is the operator's.
        #[field(auto, unique, required)]
        pub(super) provision_key: Option<ProvisionKey>,
        /// How long an access token is good, in seconds. 0: for ever.
        #[field(default(7200), required)]
        pub(super) token_expiration: Seconds,
        /// Whether codes are given, and taken for tokens.
        #[field(default(false), required)]
        pub(super) enable_authorization_code: bool,
        /// Whether tokens are given in the address that a browser is sent back to.
        #[field(default(false), required)]
        pub(super) enable_implicit_grant: bool,
        /// Whether clients get tokens for themselves.
        #[field(default(false), required)]
        pub(super) enable_client_credentials: bool,
        /// Whether clients get tokens for people whose names they send.
        #[field(default(false), required)]
        pub(super) enable_password_grant: bool,
        /// Whether the upstream does not see the token.
        #[field(default(false), required)]
        pub(super) hide_credentials: bool,
        /// Whether a proxy in front may have ended TLS: its word is taken where it is trusted.
        #[field(default(false), required)]
        pub(super) accept_http_if_already_terminated: bool,
        /// Whether tokens are good for every service whose plugin says the same.
        #[field(default(false), required)]
        pub(super) global_credentials: bool,
        /// The header that carries the token, behind Bearer.
        #[field(kind(Type::some_text()), default("authorization"))]
        pub(super) auth_header_name: HeaderName,
        /// How long a refresh token is good, in seconds. 0: for ever.
        #[field(default(1_209_600), required)]
        pub(super) refresh_token_ttl: Seconds,
        /// Whether a refresh token stays the same where it is used.
        #[field(default(false), required)]
        pub(super) reuse_refresh_token: bool,
        /// Which clients have to prove that a code is theirs (RFC 7636).
        #[field(default("lax"))]
        pub(super) pkce: Pkce,
    }
}

words! {
    /// Which clients have to prove that a code is theirs (RFC 7636).
    pub(super) enum Pkce {
        /// Those that have begun so.
        None = "none",
        /// Those and public ones.
        Lax = "lax",
        /// All.
        Strict = "strict",
    }
}

/// The fields.
pub(super) fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        let mut fields = Config::fields();
        fields.extend(authentication::Config::fields());
        Schema::new(fields)
            .check(some_grant)
            .check(times_are_in_bounds)
            .check(scopes_are_named)
    });
    &SCHEMA
}

fn some_grant(config: &Map<String, Value>, violations: &mut Violations) {
    let has_grant = |config: Config| {
        config.enable_authorization_code
            || config.enable_implicit_grant
            || config.enable_client_credentials
            || config.enable_password_grant
    };
    if read_for_check::<Config>(config).is_some_and(|config| !has_grant(config)) {
        violations.put_whole(
            "at least one of these fields must be true: enable_authorization_code, \
             enable_implicit_grant, enable_client_credentials, enable_password_grant",
        );
    }
}

fn times_are_in_bounds(config: &Map<String, Value>, violations: &mut Violations) {
    let Some(config) = read_for_check::<Config>(config) else {
        return;
    };
    for (field, seconds) in [
        ("token_expiration", config.token_expiration),
        ("refresh_token_ttl", config.refresh_token_ttl),
    ] {
        if !(0.0..=SECONDS_MAX).contains(&seconds.0) {
            violations.put(field, "value should be between 0 and 100000000");
        }
    }
}

fn scopes_are_named(config: &Map<String, Value>, violations: &mut Violations) {
    if read_for_check::<Config>(config)
        .is_some_and(|config| config.mandatory_scope && config.scopes.is_none())
    {
        violations.put_entity(failed_condition("mandatory_scope"));
        violations.put("scopes", "required field missing");
    }
}

/// A number of seconds, as it was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seconds(f64);

impl Seconds {
    /// Whole ones: a part of a second is one.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the schema has checked the bounds"
    )]
    pub(super) fn whole(self) -> i64 {
        self.0.ceil() as i64
    }
}

impl FieldValue for Seconds {
    fn kind() -> Type {
        f64::kind()
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        <f64 as FieldValue>::read(value).map(Self)
    }
}

/// The key of the login page: its digest is enough to know it by.
pub(super) struct ProvisionKey(pub(super) KeyDigest);

impl FieldValue for ProvisionKey {
    fn kind() -> Type {
        String::kind()
    }

    fn is_blank(value: &Value) -> bool {
        String::is_blank(value)
    }

    fn read(value: &Value) -> Result<Self, ConfigError> {
        let key = <String as FieldValue>::read(value)?;
        Ok(Self(KeyDigest::of_sent(key.as_bytes())))
    }
}
