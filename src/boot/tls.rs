//! The TLS of both listeners: its files read again, and when they expire.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::config::{Config, TlsConfig};
use crate::server::ServerError;
use crate::server::tls::{Prepared, Tls};
use doorward_acme::Acme;
use doorward_core::clock::Clock;
use doorward_gateway::snapshot::Snapshot;
use doorward_net::telemetry::listeners::Expiry;

/// The TLS sections of the configuration that listeners run with.
#[derive(Clone, Default)]
pub struct TlsSections {
    /// `proxy.tls`.
    pub proxy: Option<Arc<Tls>>,
    /// `admin.tls`.
    pub admin: Option<Arc<Tls>>,
    /// Certificates of an authority.
    pub acme: Option<Arc<Acme>>,
}

impl TlsSections {
    fn pairs<'a, 'c>(
        &'a self,
        config: &'c Config,
    ) -> impl Iterator<Item = (&'a Tls, &'c TlsConfig)> {
        let proxy = self.proxy.as_deref().zip(config.proxy.tls.as_ref());
        let admin = self.admin.as_deref().zip(config.admin.tls.as_ref());
        proxy.into_iter().chain(admin)
    }

    /// Reads the files that `config` names as they are now.
    ///
    /// # Errors
    /// The first file that can't be used; nothing has changed then.
    pub(super) fn prepare<'a>(&'a self, config: &Config) -> Result<Vec<Prepared<'a>>, ServerError> {
        self.pairs(config)
            .map(|(tls, section)| tls.prepare(section))
            .collect()
    }

    /// Tells when the certificates of both sections, those of the snapshot in force, and
    /// those of an authority expire.
    pub fn expiries(
        &self,
        live: &Arc<ArcSwap<Snapshot>>,
        clock: &Clock,
    ) -> impl Fn() -> Vec<Expiry> + Send + Sync + 'static {
        let (sections, live, clock) = (self.clone(), live.clone(), clock.clone());
        move || {
            let now = clock.now_secs();
            let own = [&sections.proxy, &sections.admin].into_iter().flatten();
            let own = own.map(|tls| {
                let (section, not_after) = tls.expiry();
                (section.to_owned(), not_after, false)
            });
            let snapshot = live.load();
            let stored = snapshot.certificates.labelled();
            let stored = stored.map(|(_, label, identity)| (label, identity.not_after, false));
            let issued = sections.acme.iter().flat_map(|acme| acme.expiries());
            own.chain(stored)
                .chain(issued)
                .map(|(label, not_after, is_renewed)| Expiry {
                    label,
                    seconds_left: not_after.saturating_sub(now),
                    is_renewed,
                })
                .collect()
        }
    }
}

/// The certificate files that `config` names.
pub(super) fn files(config: &Config) -> impl Iterator<Item = &PathBuf> {
    let sections = [&config.proxy.tls, &config.admin.tls].into_iter().flatten();
    sections.flat_map(|tls| {
        let files = [&tls.certificate, &tls.key, &tls.client_certificates.ca];
        files.into_iter().flatten()
    })
}
