//! TLS of the listeners: which certificate is shown, who may connect, and
//! files that are read again when they change.

use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use chrono::{DateTime, Datelike};
use parking_lot::Mutex;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, ProducesTickets, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};

use super::ServerError;
use crate::config::{CertificateMode, Config, TlsConfig, TlsVersion};
use doorward_acme::Acme;
use doorward_core::clock::Clock;
use doorward_core::x509;
use doorward_gateway::snapshot::Snapshot;
use doorward_net::http::challenges::HandshakeGuide;
use doorward_net::http::tls::TlsAcceptor;
use doorward_net::http::{cipher_suites, key_exchange, system_authorities};

/// Protocols within TLS, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];
/// Years for which a generated certificate is valid.
const GENERATED_YEARS: i32 = 10;

/// The TLS of one section of the configuration: `proxy.tls` or `admin.tls`.
pub struct Tls {
    section: &'static str,
    /// The section as the listeners were started with it.
    started: TlsConfig,
    /// Where certificates with server names are; the admin listener has none.
    live: Option<Arc<ArcSwap<Snapshot>>>,
    /// Certificates of an authority; the admin listener has none.
    acme: Option<Arc<Acme>>,
    clock: Clock,
    door: Arc<TlsAcceptor>,
    files: Mutex<Files>,
}

/// What is read from files, and what depends on it.
#[derive(Clone)]
struct Files {
    default: Arc<CertifiedKey>,
    /// Whether the default certificate was made here.
    generated: bool,
    authorities: Vec<CertificateDer<'static>>,
    /// Encrypts tickets: the same for all workers, so that a session resumes
    /// on any. A new one forgets all sessions.
    ticketer: Arc<dyn ProducesTickets>,
}

/// Files that were read and found good, before they are in force.
pub struct Prepared<'a> {
    tls: &'a Tls,
    files: Files,
    config: ServerConfig,
}

impl Tls {
    /// Reads the files of `config` and makes ready for handshakes. Clients get
    /// the certificates of `live` by server name, those of `acme` for other names, and
    /// the default otherwise.
    ///
    /// # Errors
    /// [`ServerError::Tls`] with key, file and reason.
    pub fn open(
        section: &'static str,
        config: &TlsConfig,
        live: Option<Arc<ArcSwap<Snapshot>>>,
        acme: Option<Arc<Acme>>,
        clock: &Clock,
    ) -> Result<Self, ServerError> {
        let files = Files::read(section, config, clock, None)?;
        let resolver = Resolver::new(&files, live.clone(), acme.clone());
        let door = TlsAcceptor::new(server_config(section, config, &files, resolver)?);
        let door = door.map_err(|error| unusable(section, error.to_string()))?;
        let guide = acme.clone().filter(|acme| acme.guides());
        let guide = guide.map(|acme| acme as Arc<dyn HandshakeGuide>);
        Ok(Self {
            section,
            started: config.clone(),
            live,
            acme,
            clock: clock.clone(),
            door: Arc::new(door.guided(guide)),
            files: Mutex::new(files),
        })
    }

    /// Makes handshakes.
    pub fn door(&self) -> Arc<TlsAcceptor> {
        self.door.clone()
    }

    /// Reads the files that `config` names as they are now. Everything else of
    /// the section stays as it was at the start.
    ///
    /// # Errors
    /// [`ServerError::Tls`] with file and reason; nothing has changed then.
    pub fn prepare(&self, config: &TlsConfig) -> Result<Prepared<'_>, ServerError> {
        let mut section = self.started.clone();
        section.certificate.clone_from(&config.certificate);
        section.key.clone_from(&config.key);
        let authorities = &config.client_certificates.ca;
        section.client_certificates.ca.clone_from(authorities);
        let before = self.files.lock().clone();
        let files = Files::read(self.section, &section, &self.clock, Some(&before))?;
        let resolver = Resolver::new(&files, self.live.clone(), self.acme.clone());
        let config = server_config(self.section, &section, &files, resolver)?;
        Ok(Prepared {
            tls: self,
            files,
            config,
        })
    }

    /// The default certificate's section, and when it expires in seconds since
    /// the epoch.
    pub fn expiry(&self) -> (&'static str, i64) {
        let files = self.files.lock();
        let leaf = files.default.cert.first();
        let facts = leaf.and_then(|der| x509::facts(der).ok());
        (
            self.section,
            facts.map_or(i64::MAX, |facts| facts.not_after),
        )
    }
}

impl Prepared<'_> {
    /// Puts the files in force for later handshakes.
    pub fn commit(self) {
        match self.tls.door.replace(self.config) {
            Ok(()) => *self.tls.files.lock() = self.files,
            Err(error) => tracing::error!(section = self.tls.section, %error, "TLS not replaced"),
        }
    }
}

impl Files {
    fn read(
        section: &'static str,
        config: &TlsConfig,
        clock: &Clock,
        before: Option<&Self>,
    ) -> Result<Self, ServerError> {
        let reason = |reason: String| unusable(section, reason);
        let (default, generated) = match (&config.certificate, &config.key) {
            (Some(certificate), Some(key)) => (certified(section, certificate, key)?, false),
            _ => match before.filter(|before| before.generated) {
                Some(before) => (before.default.clone(), true),
                None => (generate(clock).map_err(reason)?, true),
            },
        };
        let asks = config.client_certificates.mode != CertificateMode::Off;
        let authorities = match &config.client_certificates.ca {
            Some(file) if asks => certificates(file)
                .map_err(|reason| of_key(section, ".client_certificates.ca", reason))?,
            _ => Vec::new(),
        };
        // Who was let in by other authorities has to show a certificate again.
        let ticketer = match before.filter(|before| before.authorities == authorities) {
            Some(before) => before.ticketer.clone(),
            None => Ticketer::new().map_err(|error| reason(error.to_string()))?,
        };
        Ok(Self {
            default,
            generated,
            authorities,
            ticketer,
        })
    }
}

fn server_config(
    section: &'static str,
    config: &TlsConfig,
    files: &Files,
    resolver: Resolver,
) -> Result<ServerConfig, ServerError> {
    let reason = |error: &dyn std::fmt::Display| unusable(section, error.to_string());
    let versions: &[_] = match config.min_version {
        TlsVersion::V12 => &[&TLS13, &TLS12],
        TlsVersion::V13 => &[&TLS13],
    };
    let provider = cipher_suites::confine(&x509::provider(), &config.cipher_suites);
    let provider = key_exchange::confine(provider, &config.curves);
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(|error| reason(&error))?;
    let mode = config.client_certificates.mode;
    let builder = if mode == CertificateMode::Off {
        builder.with_no_client_auth()
    } else {
        let mut roots = RootCertStore::empty();
        for authority in &files.authorities {
            roots
                .add(authority.clone())
                .map_err(|error| of_key(section, ".client_certificates.ca", error.to_string()))?;
        }
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), x509::provider());
        let verifier = match mode {
            CertificateMode::Required => verifier,
            _ => verifier.allow_unauthenticated(),
        };
        builder.with_client_cert_verifier(verifier.build().map_err(|error| reason(&error))?)
    };
    let mut config = builder.with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    config.ticketer = files.ticketer.clone();
    Ok(config)
}

/// Chooses certificates by the snapshot in force, and of those that were issued.
struct Resolver {
    live: Option<Arc<ArcSwap<Snapshot>>>,
    acme: Option<Arc<Acme>>,
    default: Arc<CertifiedKey>,
}

impl Resolver {
    fn new(files: &Files, live: Option<Arc<ArcSwap<Snapshot>>>, acme: Option<Arc<Acme>>) -> Self {
        Self {
            live,
            acme,
            default: files.default.clone(),
        }
    }
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Resolver")
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let snapshot = self.live.as_ref().map(|live| live.load());
        let stored = snapshot.as_ref().map(|snapshot| &snapshot.certificates);
        let schemes = hello.signature_schemes();
        // What an operator has put there for the name comes first; `*` comes last.
        let named = hello.server_name().and_then(|name| {
            let explicit = stored.and_then(|stored| stored.find_named(name));
            let explicit = explicit.and_then(|identity| identity.choose(schemes));
            explicit.or_else(|| self.acme.as_ref()?.find(name))
        });
        let any = || stored?.nameless()?.choose(schemes);
        Some(named.or_else(any).unwrap_or_else(|| self.default.clone()))
    }
}

/// What is wrong with the certificate files that `config` names, by key, file
/// and reason. A certificate that is not valid now is wrong too, although the
/// server would run with it.
pub fn check(config: &Config, clock: &Clock) -> Vec<ServerError> {
    let sections = [
        ("proxy.tls", &config.proxy.tls),
        ("admin.tls", &config.admin.tls),
    ];
    let sections = sections.into_iter().map(|(name, section)| match section {
        Some(section) => check_section(name, section, clock),
        None => Ok(()),
    });
    let authorities = || check_authorities(config.proxy.upstream_ca.as_deref());
    let all = sections.chain(std::iter::once_with(authorities));
    all.filter_map(Result::err).collect()
}

fn check_section(
    name: &'static str,
    section: &TlsConfig,
    clock: &Clock,
) -> Result<(), ServerError> {
    let files = Files::read(name, section, clock, None)?;
    server_config(name, section, &files, Resolver::new(&files, None, None))?;
    if let (Some(file), Some(leaf)) = (&section.certificate, files.default.cert.first()) {
        x509::valid_at(leaf, clock.now_secs())
            .map_err(|why| of_key(name, ".certificate", format!("{}: {why}", file.display())))?;
    }
    Ok(())
}

/// Whether the authorities in `file` can be used, or else those of the machine.
///
/// # Errors
/// [`ServerError::Tls`] with key, file and reason.
pub(super) fn check_authorities(file: Option<&Path>) -> Result<(), ServerError> {
    let found = match file {
        None => system_authorities::check(),
        Some(file) => certificates(file).and_then(|found| {
            let mut store = RootCertStore::empty();
            let mut all = found.into_iter();
            all.try_for_each(|authority| {
                let added = store.add(authority);
                added.map_err(|error| format!("{}: {error}", file.display()))
            })
        }),
    };
    found.map_err(|reason| ServerError::Tls {
        key: "proxy.upstream_ca".to_owned(),
        reason,
    })
}

/// The section as a whole can't be used.
fn unusable(section: &'static str, reason: String) -> ServerError {
    of_key(section, "", reason)
}

/// The file that this key of the section names can't be used.
fn of_key(section: &'static str, key: &str, reason: String) -> ServerError {
    ServerError::Tls {
        key: format!("{section}{key}"),
        reason,
    }
}

fn certified(
    section: &'static str,
    certificate: &Path,
    key: &Path,
) -> Result<Arc<CertifiedKey>, ServerError> {
    let of_certificate = |reason| of_key(section, ".certificate", reason);
    let of_private = |reason| of_key(section, ".key", reason);
    let chain = certificates(certificate).map_err(of_certificate)?;
    let named = |error: x509::X509Error| of_private(format!("{}: {error}", key.display()));
    let private = x509::key(&read(key).map_err(of_private)?).map_err(named)?;
    x509::certified(chain, private).map_err(|error| match error {
        x509::X509Error::Mismatch => of_private(format!(
            "{}: it is not the key of the certificate in {}",
            key.display(),
            certificate.display()
        )),
        error => named(error),
    })
}

/// The certificates of a PEM file, at least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    x509::chain(&read(file)?).map_err(|error| format!("{}: {error}", file.display()))
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))
}

/// A self-signed certificate for this host's own name, so that TLS can be
/// tried before there is a real one.
fn generate(clock: &Clock) -> Result<Arc<CertifiedKey>, String> {
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let made = rcgen::KeyPair::generate().and_then(|key| {
        let mut params = rcgen::CertificateParams::new(names)?;
        let name = &mut params.distinguished_name;
        *name = rcgen::DistinguishedName::new();
        name.push(rcgen::DnType::CommonName, "localhost");
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
        let year = DateTime::from_timestamp_millis(clock.now_ms()).map_or(2026, |now| now.year());
        params.not_before = rcgen::date_time_ymd(year - 1, 1, 1);
        params.not_after = rcgen::date_time_ymd(year + GENERATED_YEARS, 1, 1);
        let certificate = params.self_signed(&key)?;
        Ok((certificate.der().clone(), key.serialize_der()))
    });
    let (certificate, key) = made.map_err(|error| error.to_string())?;
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key);
    x509::certified(vec![certificate], key.into()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
