//! How people are written to, as written.

use serde::Deserialize;

use doorward_core::model::secret::Secret;

/// How people are written to: by a relay, or by a program that is told.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MailConfig {
    /// A program that writes to people.
    pub webhook: Option<WebhookConfig>,
    /// A mail relay.
    pub smtp: Option<SmtpConfig>,
}

/// A program that is told what people are to be written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookConfig {
    /// Where it is: https, or http on this machine.
    pub url: String,
    /// What messages to it are signed with (HMAC-SHA256); 16 bytes or more.
    pub secret: Secret,
}

/// A mail relay.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SmtpConfig {
    /// Its host.
    pub host: String,
    /// Its port; by default that of `tls`: 587, 465 or 25.
    #[serde(default)]
    pub port: Option<u16>,
    /// How the connection is protected.
    #[serde(default)]
    pub tls: SmtpTls,
    /// Who signs in there; nobody, if it is absent.
    #[serde(default)]
    pub username: Option<String>,
    /// With which password.
    #[serde(default)]
    pub password: Option<Secret>,
    /// Whom mail is from: `Name <address>` or an address.
    pub from: String,
}

impl SmtpConfig {
    /// The relay's port: its own, or that of its protection.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(match self.tls {
            SmtpTls::Starttls => 587,
            SmtpTls::Implicit => 465,
            SmtpTls::None => 25,
        })
    }
}

/// How the connection to a relay is protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SmtpTls {
    /// By STARTTLS, always (RFC 3207).
    #[default]
    Starttls,
    /// From the first byte on (RFC 8314).
    Implicit,
    /// Not at all: for a relay on this machine.
    None,
}
