//! What the writer of the files should know, though they work: for `check`, for the log
//! and for the console.

use doorward_core::model::certificate::Certificate;
use doorward_core::x509;
use doorward_core::yaml::DocumentError;
use doorward_gateway::declarative::Declared;
use doorward_gateway::entities::Kind;
use doorward_gateway::snapshot::Snapshot;
use doorward_net::telemetry::Telemetry;

use crate::config::{Config, TlsConfig};

/// Most warnings that are told.
const MAX_WARNINGS: usize = 100;
/// When a certificate's end is near, in seconds.
const NEAR: i64 = 30 * 86_400;

/// What warnings are looked for in.
pub(super) struct Sources<'a> {
    pub(super) config: &'a Config,
    /// Warnings of the files that were read.
    pub(super) files: Vec<String>,
    /// The declared entities and what was made of them, if they are right.
    pub(super) declared: Option<(&'a Declared, &'a Snapshot)>,
    /// What is wrong with the way to the identity provider.
    pub(super) mount: Option<String>,
    pub(super) now_secs: i64,
}

impl Sources<'_> {
    /// The warnings, each in a line: `FILE:LINE: KEY: MESSAGE`.
    pub(super) fn warnings(self) -> Vec<String> {
        let config = self.config;
        let mut all = config.warnings.clone();
        all.extend(self.files);
        let mut tell = |key: &str, message: &str| {
            all.push(config.wrong(key, message.to_owned()).to_string());
        };
        if !config.proxy.upstream_verify {
            let message = "whoever is on the way to an https upstream can take its place, but \
                           for services with tls_verify";
            tell("proxy.upstream_verify", message);
        }
        let sections = [
            ("proxy.tls", &config.proxy.tls, config.acme.is_some()),
            ("admin.tls", &config.admin.tls, false),
        ];
        for (section, tls, is_ordered) in sections {
            let found = tls
                .as_ref()
                .and_then(|tls| of_tls(tls, is_ordered, self.now_secs));
            if let Some((key, message)) = found {
                tell(&format!("{section}{key}"), &message);
            }
        }
        if let Some(message) = &self.mount {
            tell("identity", message);
        }
        if let Some((declared, snapshot)) = self.declared {
            let found = of_entities(declared, snapshot, self.now_secs);
            all.extend(found.iter().map(ToString::to_string));
        }
        all.truncate(MAX_WARNINGS);
        all
    }
}

/// What a section of TLS is warned of, and the key below the section.
fn of_tls(tls: &TlsConfig, is_ordered: bool, now_secs: i64) -> Option<(&'static str, String)> {
    let Some(file) = &tls.certificate else {
        let message = "no certificate is named: a self-signed one for localhost is generated, \
                       which no client trusts; set certificate and key";
        return (!is_ordered).then(|| ("", message.to_owned()));
    };
    let pem = std::fs::read(file).ok()?;
    Some((".certificate", expiry(&pem, now_secs)?))
}

/// What is told of a certificate that expires soon.
fn expiry(pem: &[u8], now_secs: i64) -> Option<String> {
    let chain = x509::chain(pem).ok()?;
    x509::expires_within(chain.first()?, now_secs, NEAR)
}

/// What declared entities are warned of.
fn of_entities(declared: &Declared, snapshot: &Snapshot, now_secs: i64) -> Vec<DocumentError> {
    let certificates = declared.entities.of::<Certificate>().filter_map(|record| {
        let message = expiry(record.value.cert.as_bytes(), now_secs)?;
        declared.located(Kind::Certificate, record.value.id, "cert", message)
    });
    let filters = snapshot.declared_filters().filter_map(|(id, filter)| {
        let messages = filter.warnings();
        (!messages.is_empty()).then_some((id, messages))
    });
    let filters = filters.flat_map(|(id, messages)| {
        let messages = messages.into_iter();
        messages.filter_map(move |message| declared.located(Kind::Plugin, id, "", message))
    });
    let mut all: Vec<_> = declared.warnings().into_iter().collect();
    all.extend(certificates);
    all.extend(filters);
    all.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    all
}

/// Keeps the warnings for the console, and tells the log those that are new.
pub(super) fn keep(telemetry: &Telemetry, warnings: Vec<String>) {
    let before = std::mem::replace(&mut *telemetry.config_warnings.lock(), warnings.clone());
    for warning in warnings.iter().filter(|one| !before.contains(one)) {
        tracing::warn!("{warning}");
    }
}
