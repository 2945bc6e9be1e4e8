//! How far a client handler believes the certificates of those it asks.

use super::object::{Object, Reference, object};
use doorward_plugin_api::ConfigError;

/// Managers of the imitated gateway that name authorities of their own.
const AUTHORITIES: &[&str] = &["SecretsTrustManager", "TrustManager"];
const TRUST_ALL: &str = "TrustAllManager";
const NOT_NEEDED: &str = "it is not needed here";

object! {
    /// What is said of certificates in one place.
    pub(crate) struct Verification<'a> {
        hostname_verifier as "hostnameVerifier": Option<String>,
        trust_manager as "trustManager": Reference,
    }
}

object! {
    /// What a client handler says of them.
    pub(crate) struct ClientTrust<'a> {
        own as ..: Verification<'a>,
        tls: Reference,
    }
}

object! {
    /// A `ClientTlsOptions`.
    struct TlsOptions<'a> {
        verification as ..: Verification<'a>,
    }
    idle {
        "alpn": NOT_NEEDED,
        "keyManager": NOT_NEEDED,
        "sslCipherSuites": NOT_NEEDED,
        "sslContextAlgorithm": NOT_NEEDED,
        "sslEnabledProtocols": NOT_NEEDED,
    }
}

/// What a client handler verifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trust {
    /// Whether a certificate must be one that is trusted.
    pub certificate: bool,
    /// Whether it must be for the host that is asked.
    pub host: bool,
}

impl ClientTrust<'_> {
    /// What the handler verifies.
    pub(crate) fn read_trust(&self) -> Result<Trust, ConfigError> {
        let mut trust = Trust {
            certificate: true,
            host: true,
        };
        trust.take(&self.own)?;
        if let Some(tls) = self.tls.declared()? {
            if tls.kind != "ClientTlsOptions" {
                return Err(tls.unfit("ClientTlsOptions"));
            }
            trust.take(&TlsOptions::read(&tls.settings)?.verification)?;
        }
        Ok(trust)
    }
}

impl Trust {
    fn take(&mut self, verification: &Verification<'_>) -> Result<(), ConfigError> {
        let verifier = &verification.hostname_verifier;
        match verifier.value.as_deref() {
            None | Some("STRICT" | "BROWSER_COMPATIBLE") => {}
            Some("ALLOW_ALL") => self.host = false,
            Some(_) => {
                let message = "expected one of: STRICT, ALLOW_ALL";
                return Err(verifier.wrong(message));
            }
        }
        let field = &verification.trust_manager;
        for manager in field.all_declared()? {
            match manager.kind.as_str() {
                TRUST_ALL => {
                    field.warn("accepts the certificate of any impostor");
                    self.certificate = false;
                    self.host = false;
                }
                kind if AUTHORITIES.contains(&kind) => field.warn(
                    "has no effect: certificates are verified by the authorities of the system \
                     or of proxy.upstream_ca",
                ),
                _ => return Err(manager.unfit("TrustAllManager or TrustManager")),
            }
        }
        Ok(())
    }
}
