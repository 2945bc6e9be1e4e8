//! What the writer of the files should know, though they work: for `check`, for the log
//! and for the console.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::Duration;

use doorward_core::clock::Clock;
use doorward_core::model::certificate::Certificate;
use doorward_core::x509;
use doorward_core::yaml::DocumentError;
use doorward_gateway::declarative::Declared;
use doorward_gateway::entities::Kind;
use doorward_gateway::snapshot::Snapshot;
use doorward_net::http::system_authorities;
use doorward_net::telemetry::Telemetry;
use doorward_net::telemetry::certificate_warnings::{MAX_WARNINGS, near_end};

use crate::config::{Config, TlsConfig};

/// What warnings are looked for in.
pub(super) struct Sources<'a> {
    pub(super) config: &'a Config,
    /// Warnings of the files that were read.
    pub(super) files: Vec<String>,
    /// The declared entities, if they can be read.
    pub(super) declared: Option<&'a Declared>,
    /// What was made of them, if they are right.
    pub(super) snapshot: Option<&'a Snapshot>,
    /// What is wrong with the way to the identity provider.
    pub(super) mount: Option<String>,
    pub(super) now_secs: i64,
}

/// What was found in the files.
pub(super) struct FileWarnings {
    /// The warnings, each in a line: `FILE:LINE: KEY: MESSAGE`.
    pub(super) warnings: Vec<String>,
    /// Those among them that are of a certificate whose end is near.
    near_ends: Vec<String>,
    /// Where the files name certificates, by their labels.
    places: BTreeMap<String, String>,
}

/// A certificate that a file names.
struct NamedCertificate {
    /// As the list of expiries has it.
    label: String,
    file: PathBuf,
    line: Option<usize>,
    /// `FILE:LINE: KEY`.
    place: String,
    not_after: i64,
}

impl Sources<'_> {
    /// Looks for warnings.
    pub(super) fn find(self) -> FileWarnings {
        let config = self.config;
        let mut all = config.warnings.clone();
        all.extend(self.files.iter().cloned());
        let mut tell = |key: &str, message: &str| {
            all.push(config.wrong(key, message.to_owned()).to_string());
        };
        if !config.proxy.upstream_verify {
            let message = "whoever is on the way to an https upstream can take its place, but \
                           for services with tls_verify";
            tell("proxy.upstream_verify", message);
        }
        if config.proxy.upstream_ca.is_none()
            && let Some(fault) = system_authorities::fault()
        {
            let message = format!(
                "is not set, and the authorities of this machine can't be read ({fault}): no \
                 https upstream is verified, so none can be reached; install ca-certificates"
            );
            tell("proxy.upstream_ca", &message);
        }
        let sections = [
            ("proxy.tls", &config.proxy.tls, config.acme.is_some()),
            ("admin.tls", &config.admin.tls, false),
        ];
        for (section, tls, is_ordered) in sections {
            let is_generated = |tls: &TlsConfig| tls.certificate.is_none() && !is_ordered;
            if tls.as_ref().is_some_and(is_generated) {
                let message = "no certificate is named: a self-signed one for localhost is \
                               generated, which no client trusts; set certificate and key";
                tell(section, message);
            }
        }
        if let Some(message) = &self.mount {
            tell("identity", message);
        }
        let certificates = self.certificates();
        let near = |one: &NamedCertificate| {
            let text = near_end(&one.place, one.not_after, self.now_secs)?;
            Some((one.file.clone(), one.line, text))
        };
        let mut located: Vec<_> = certificates.iter().filter_map(near).collect();
        let near_ends = located.iter().map(|(_, _, text)| text.clone()).collect();
        let declared = self.declared.into_iter();
        let found = declared.flat_map(|declared| of_entities(declared, self.snapshot));
        located.extend(found.map(|one| (one.file.clone(), one.line, one.to_string())));
        located.sort();
        all.extend(located.into_iter().map(|(_, _, text)| text));
        all.truncate(MAX_WARNINGS);
        let places = certificates.into_iter().map(|one| (one.label, one.place));
        FileWarnings {
            warnings: all,
            near_ends,
            places: places.collect(),
        }
    }

    /// The certificates that the files name.
    fn certificates(&self) -> Vec<NamedCertificate> {
        let config = self.config;
        let sections = [
            ("proxy.tls", &config.proxy.tls),
            ("admin.tls", &config.admin.tls),
        ];
        let sections = sections.into_iter().filter_map(|(section, tls)| {
            let pem = std::fs::read(tls.as_ref()?.certificate.as_ref()?).ok()?;
            let place = config.wrong(&format!("{section}.certificate"), String::new());
            named(section.to_owned(), &place, &pem)
        });
        let mut all: Vec<_> = sections.collect();
        let labels = self.snapshot.into_iter();
        let labels = labels.flat_map(|snapshot| snapshot.certificates.labelled());
        let labels: HashMap<_, _> = labels.map(|(id, label, _)| (id, label)).collect();
        let Some(declared) = self.declared else {
            return all;
        };
        let records = declared.entities.of::<Certificate>();
        all.extend(records.filter_map(|record| {
            let id = record.value.id;
            let place = declared.located(Kind::Certificate, id, "cert", String::new())?;
            let label = labels.get(&id).cloned().unwrap_or_else(|| id.to_string());
            named(label, &place, record.value.cert.as_bytes())
        }));
        all
    }
}

/// The certificate that `place` names, if it can be read.
fn named(label: String, place: &DocumentError, pem: &[u8]) -> Option<NamedCertificate> {
    let chain = x509::chain(pem).ok()?;
    let not_after = x509::facts(chain.first()?).ok()?.not_after;
    let text = place.to_string();
    Some(NamedCertificate {
        label,
        file: place.file.clone(),
        line: place.line,
        place: text.trim_end_matches(": ").to_owned(),
        not_after,
    })
}

/// What declared entities are warned of, but for the ends of certificates.
fn of_entities(declared: &Declared, snapshot: Option<&Snapshot>) -> Vec<DocumentError> {
    let filters = snapshot.into_iter().flat_map(Snapshot::declared_filters);
    let filters = filters.filter_map(|(id, filter)| {
        let messages = filter.warnings();
        (!messages.is_empty()).then_some((id, messages))
    });
    let filters = filters.flat_map(|(id, messages)| {
        let messages = messages.into_iter();
        messages.filter_map(move |message| declared.located(Kind::Plugin, id, "", message))
    });
    declared.warnings().into_iter().chain(filters).collect()
}

/// Tells the log the warnings of a start that fails: what is wrong may be among them.
pub(super) fn tell(found: &FileWarnings) {
    for warning in &found.warnings {
        tracing::warn!("{warning}");
    }
}

/// Keeps the warnings for the console, and tells the log those that are new. The ends of
/// certificates are looked at anew whenever the console asks.
pub(super) fn keep(telemetry: &Telemetry, found: FileWarnings) {
    let FileWarnings {
        warnings,
        near_ends,
        places,
    } = found;
    *telemetry.certificate_places.lock() = places;
    let is_lasting = |one: &&String| !near_ends.contains(one);
    let lasting = warnings.iter().filter(is_lasting).cloned().collect();
    let mut before = std::mem::replace(&mut *telemetry.config_warnings.lock(), lasting);
    before.extend(std::mem::replace(
        &mut *telemetry.certificates_told.lock(),
        near_ends,
    ));
    for warning in warnings.iter().filter(|one| !before.contains(one)) {
        tracing::warn!("{warning}");
    }
}

/// Tells the log once a day which certificates end soon: those of files, of the store and
/// of an authority that renews none.
pub async fn watch_certificates(telemetry: Telemetry, clock: Clock) {
    let mut daily = tokio::time::interval(Duration::from_secs(86_400));
    // At the start the log has these already.
    let mut is_told = telemetry.certificates_told.lock().clone();
    loop {
        daily.tick().await;
        for warning in telemetry.certificate_warnings(clock.now_secs()) {
            if !is_told.contains(&warning) {
                tracing::warn!("{warning}");
            }
        }
        is_told.clear();
    }
}
