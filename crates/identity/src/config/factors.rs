//! Second factors and classes of authentication, as a realm sets them.

use serde::{Deserialize, Serialize};

use doorward_core::model::factor::Kind;

/// Whether a second factor is asked for besides the password.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecondFactor {
    /// Of nobody, unless a client or a request demands one.
    Off,
    /// Of users who have one.
    #[default]
    Optional,
    /// Of everybody; who has none is led to get one.
    Required,
}

/// Which factors there are, and how they are used.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FactorSettings {
    /// What users may enrol.
    pub kinds: Vec<Kind>,
    /// Whether users may sign in with a passkey alone.
    pub passkeys_alone: bool,
    /// Days for which a user may let a browser go without the second factor;
    /// 0: not at all; at most 365.
    pub remember_browser_days: u32,
    /// What authenticator apps call the provider. Empty: the host of
    /// `base_url`.
    pub issuer: String,
}

impl Default for FactorSettings {
    fn default() -> Self {
        Self {
            kinds: vec![Kind::Totp, Kind::Passkey],
            passkeys_alone: true,
            remember_browser_days: 0,
            issuer: String::new(),
        }
    }
}

/// A class of authentication (`acr`), and the methods (`amr`) that reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthenticationClass {
    /// What tokens and requests call it.
    pub value: String,
    /// All of these must have been used; none: any sign-in reaches it.
    #[serde(default)]
    pub methods: Vec<String>,
}

/// The classes of a realm that sets none, from the weakest to the strongest.
pub fn usual_classes() -> Vec<AuthenticationClass> {
    let class = |value: &str, methods: &[&str]| AuthenticationClass {
        value: value.to_owned(),
        methods: methods.iter().map(|word| (*word).to_owned()).collect(),
    };
    vec![
        class("0", &[]),
        class("https://refeds.org/profile/mfa", &["mfa"]),
        class("mfa", &["mfa"]),
        class("phr", &["mfa", "pop"]),
    ]
}

/// Passkeys (Web Authentication).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PasskeysConfig {
    /// What passkeys are made for: the host of `base_url`, or a domain above it
    /// whose other hosts shall take them, too. Absent: the host. Passkeys that
    /// were made for another one do not work any more.
    pub rp_id: Option<String>,
}
