//! How far a client handler believes the certificates of those it asks.

use crate::chain::settings::Settings;
use doorward_plugin_api::ConfigError;

/// Managers of the imitated gateway that name authorities of their own.
const AUTHORITIES: &[&str] = &["SecretsTrustManager", "TrustManager"];
const TRUST_ALL: &str = "TrustAllManager";
/// Options that are known and have no effect.
const IDLE: &[&str] = &[
    "alpn",
    "keyManager",
    "sslCipherSuites",
    "sslContextAlgorithm",
    "sslEnabledProtocols",
];

/// What a client handler verifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trust {
    /// Whether a certificate must be one that is trusted.
    pub certificate: bool,
    /// Whether it must be for the host that is asked.
    pub host: bool,
}

/// What the client handler of `settings` verifies, by its `tls`,
/// `hostnameVerifier` and `trustManager`.
pub(crate) fn read(settings: &Settings<'_>) -> Result<Trust, ConfigError> {
    let mut trust = Trust {
        certificate: true,
        host: true,
    };
    trust.take(settings)?;
    if let Some(tls) = settings.declared("tls")? {
        if tls.kind != "ClientTlsOptions" {
            return Err(tls.unfit("ClientTlsOptions"));
        }
        let known: Vec<&str> = ["hostnameVerifier", "trustManager"]
            .iter()
            .chain(IDLE)
            .copied()
            .collect();
        tls.settings.known(&known);
        tls.settings.idle(IDLE, "it is not needed here");
        trust.take(&tls.settings)?;
    }
    Ok(trust)
}

impl Trust {
    fn take(&mut self, settings: &Settings<'_>) -> Result<(), ConfigError> {
        match settings.text("hostnameVerifier")?.as_deref() {
            None | Some("STRICT" | "BROWSER_COMPATIBLE") => {}
            Some("ALLOW_ALL") => self.host = false,
            Some(_) => {
                let message = "expected one of: STRICT, ALLOW_ALL";
                return Err(settings.wrong("hostnameVerifier", message));
            }
        }
        for manager in settings.all_declared("trustManager")? {
            match manager.kind.as_str() {
                TRUST_ALL => {
                    settings.warn("trustManager", "accepts the certificate of any impostor");
                    self.certificate = false;
                    self.host = false;
                }
                kind if AUTHORITIES.contains(&kind) => settings.warn(
                    "trustManager",
                    "has no effect: certificates are verified by the authorities of the system \
                     or of proxy.upstream_ca",
                ),
                _ => return Err(manager.unfit("TrustAllManager or TrustManager")),
            }
        }
        Ok(())
    }
}
