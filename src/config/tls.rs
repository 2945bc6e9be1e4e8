//! The sections `tls` of both listeners.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

use super::Config;
use doorward_acme::ChallengeKind;
use doorward_core::model::client::Profile;
use doorward_net::http::{cipher_suites, key_exchange};

/// TLS listeners and their default certificate.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// Addresses; by default the usual port of the section.
    pub listen: Vec<String>,
    /// PEM file with the certificate chain for clients whose server name no
    /// certificate of the entities has; without one, it is generated.
    pub certificate: Option<PathBuf>,
    /// PEM file with the private key.
    pub key: Option<PathBuf>,
    /// The oldest version that is spoken.
    pub min_version: TlsVersion,
    /// Names of the cipher suites that are offered, the preferred one first; none:
    /// all of TLS 1.3, and those of TLS 1.2 with AES-GCM.
    pub cipher_suites: Vec<String>,
    /// Names of the groups ("curves") that keys are agreed on with, the preferred one
    /// first; none: those of the library.
    pub curves: Vec<String>,
    /// Whether clients show certificates.
    pub client_certificates: ClientCertificates,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    #[serde(rename = "TLSv1.2")]
    V12,
    /// TLS 1.3.
    #[serde(rename = "TLSv1.3")]
    V13,
}

/// Certificates of clients.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientCertificates {
    /// Whether they are asked for.
    pub mode: CertificateMode,
    /// PEM file of the authorities that clients' certificates are verified by.
    pub ca: Option<PathBuf>,
    /// Whether upstreams are told, in `Client-Cert` and `X-Client-Cert-*`.
    pub forward: bool,
}

/// Whether clients are asked for certificates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CertificateMode {
    /// They are not.
    #[default]
    Off,
    /// They are; one that is shown must be good.
    Optional,
    /// Nobody gets in without one.
    Required,
}

impl Config {
    /// A declared client of the FAPI 2.0 Security Profile.
    fn fapi2_client(&self) -> Option<&str> {
        let realms = self
            .identity
            .iter()
            .flat_map(|identity| identity.realms.values());
        let mut clients = realms.flat_map(|realm| &realm.clients);
        let found = clients.find(|client| client.profile == Some(Profile::Fapi2))?;
        Some(&found.client_id)
    }

    /// Certificates by ACME, and the listeners that they and their challenges need.
    pub(super) fn check_acme(&self, at: &mut impl FnMut(&str, String)) {
        let Some(acme) = &self.acme else {
            return;
        };
        for (key, message) in acme.check() {
            at(&format!("acme.{key}"), message);
        }
        if self.proxy.tls.is_none() {
            let message = "has no effect without proxy.tls, the listener that shows certificates";
            at("acme", message.to_owned());
        }
        if acme.challenge == ChallengeKind::Http01 && self.proxy.listen.is_empty() {
            let message = "http-01 needs proxy.listen, where the authority asks without TLS";
            at("acme.challenge", message.to_owned());
        }
    }

    pub(super) fn check_tls(
        &self,
        path: &str,
        section: Option<&TlsConfig>,
        tell: &mut impl FnMut(&str, String),
    ) {
        let Some(tls) = section else {
            return;
        };
        let mut at = |key: &str, message: &str| tell(&format!("{path}{key}"), message.to_owned());
        for (i, listen) in tls.listen.iter().enumerate() {
            // Unix sockets are for proxies in front, who come without TLS.
            if listen.parse::<SocketAddr>().is_err() {
                let message = format!("'{listen}' is not ADDRESS:PORT");
                at(&format!(".listen.{i}"), &message);
            }
        }
        match (&tls.certificate, &tls.key) {
            (Some(_), None) => at(".certificate", "needs its key"),
            (None, Some(_)) => at(".key", "needs its certificate"),
            _ => {}
        }
        let named = |list: &str, place: Option<usize>| match place {
            Some(place) => format!(".{list}.{place}"),
            None => format!(".{list}"),
        };
        let with_12 = tls.min_version == TlsVersion::V12;
        if let Err((place, message)) = cipher_suites::check(&tls.cipher_suites, with_12) {
            at(&named("cipher_suites", place), &message);
        }
        if let Err((place, message)) = key_exchange::check(&tls.curves, with_12) {
            at(&named("curves", place), &message);
        }
        if let Some(client_id) = self.fapi2_client()
            && let Some(place) = cipher_suites::unfit_for_fapi2(&tls.cipher_suites)
        {
            let message = format!("the client '{client_id}' with profile fapi2 rules this one out");
            at(&named("cipher_suites", Some(place)), &message);
        }
        let asked = &tls.client_certificates;
        if asked.mode != CertificateMode::Off && asked.ca.is_none() {
            at(
                ".client_certificates.mode",
                "needs ca, a file of authorities",
            );
        }
        if asked.mode == CertificateMode::Off && asked.forward {
            at(".client_certificates.forward", "has no effect without mode");
        }
    }
}
