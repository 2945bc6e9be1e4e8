//! Edited files: compiled whole and put in force, or refused whole.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;
use notify::{RecursiveMode, Watcher};
use tokio::sync::mpsc;

use super::reading::{self, Read, entity_files};
use super::tls::{self, TlsSections};
use super::{BootError, Opened, count_route_files, has_provider, refused, unmounted, warnings};
use crate::config::{self, Config};
use crate::server::tls::Prepared;
use crate::systemd;
use doorward_acme::AcmeConfig;
use doorward_core::clock::Clock;
use doorward_core::model::audit::{Actor, Event, Kind, Trace};
use doorward_gateway::declarative::Declared;
use doorward_gateway::route_files::Source;
use doorward_identity::Identity;
use doorward_net::telemetry::otlp::OtlpConfig;

/// Editors write a file in several steps; this much quiet ends them.
const QUIET: Duration = Duration::from_millis(100);

/// The configuration files at one time, and digests of their texts.
#[derive(PartialEq, Eq)]
pub struct FileDigests(Option<Vec<(PathBuf, [u8; 32])>>);

impl FileDigests {
    /// Looks at `file`, which is read after that: what is edited between the
    /// two is taken for a change, and at worst read twice.
    pub fn before_reading(file: &Path) -> Self {
        Self(Some(vec![digest(file.to_owned())]))
    }

    /// Looks at what `config`, which was read from the file, names.
    #[must_use]
    pub fn with_named(self, config: &Config) -> Self {
        let named = named_files(config).ok().map(|named| named.map(digest));
        Self(self.0.zip(named).map(|(mut seen, named)| {
            seen.extend(named);
            seen
        }))
    }
}

/// Reads the files again when it is told to.
pub struct Reloader {
    file: PathBuf,
    parts: Arc<Opened>,
    /// The texts that were last looked at, in force or not.
    seen: FileDigests,
    /// The configuration that the listeners run with.
    started: String,
    /// The listeners' certificates.
    tls: TlsSections,
    clock: Clock,
}

impl Reloader {
    /// Reloads `file` and what it names into `parts`. `seen` was looked at
    /// before `parts` were opened: what is edited meanwhile is a change.
    pub fn new(
        file: &Path,
        config: &Config,
        parts: Arc<Opened>,
        seen: FileDigests,
        clock: Clock,
    ) -> Self {
        Self {
            file: file.to_owned(),
            seen,
            started: fixed(config),
            tls: TlsSections::default(),
            parts,
            clock,
        }
    }

    /// Reloads the certificates of `tls` too.
    #[must_use]
    pub fn with_tls(mut self, tls: TlsSections) -> Self {
        self.tls = tls;
        self
    }

    /// Puts the files as they are now in force, or says why not. Files that
    /// have not changed since the last look are left alone unless `force`.
    pub async fn reload(&mut self, force: bool) {
        let file = FileDigests::before_reading(&self.file);
        let loaded = Config::load(&self.file);
        let now = match &loaded {
            Ok(config) => file.with_named(config),
            Err(_) => FileDigests(None),
        };
        let same = now.0.is_some() && now == self.seen;
        if !force && same && self.parts.route_files.lock().is_current() {
            return;
        }
        self.seen = now;
        let telemetry = &self.parts.telemetry;
        let outcome = match loaded {
            Ok(config) => self.apply(&config, force).await,
            Err(error) => Err(error.into()),
        };
        let fine = count_route_files(&self.parts.route_files.lock(), telemetry);
        self.tell(fine, outcome.is_ok());
        match outcome {
            // What is wrong with them has been said, file by file.
            Ok(()) if !fine => {
                telemetry.reloads_failed.inc();
                telemetry.config_current.set(0);
                telemetry.config_errors.lock().clear();
                tracing::warn!("configuration reloaded but for broken route files");
            }
            Ok(()) => {
                telemetry.reloads_done.inc();
                telemetry.config_current.set(1);
                telemetry.config_errors.lock().clear();
                tracing::info!(file = %self.file.display(), "configuration reloaded");
            }
            Err(error) => {
                telemetry.reloads_failed.inc();
                telemetry.config_current.set(0);
                let lines: Vec<String> = error.to_string().lines().map(str::to_owned).collect();
                for line in &lines {
                    tracing::error!("configuration not reloaded: {line}");
                }
                *telemetry.config_errors.lock() = lines;
            }
        }
    }

    /// What came of the last reload, in a line.
    fn status(&self) -> &'static str {
        if self.parts.telemetry.config_current.get() == 1 {
            "serving; the configuration is that of the files"
        } else {
            "serving; the files have errors, and what was good before is in force"
        }
    }

    /// Tells the audit log.
    fn tell(&self, fine: bool, applied: bool) {
        let event = Event::new(Kind::ConfigReload, Actor::File);
        let event = event.target(&self.file.display().to_string());
        let event = match (fine, applied) {
            (true, true) => event,
            (false, true) => event.failed("route_files"),
            (_, false) => event.failed("refused"),
        };
        let audit = &self.parts.audit;
        audit.note(event, Trace::default(), self.clock.now_ms());
    }

    /// Entities and route files are looked at apart: what is wrong with one
    /// does not keep the other out.
    async fn apply(&self, config: &Config, force: bool) -> Result<(), BootError> {
        let known = self.parts.route_files.lock().known();
        let read = reading::read(config, self.parts.started_ms, known)?;
        let leads_to_provider = read.leads_to_provider();
        let Read {
            declared,
            routes,
            warnings,
        } = read;
        let applied = match declared {
            Ok(declared) => {
                let applied = self.apply_entities(config, &declared).await;
                applied.map(|()| declared)
            }
            Err(error) => Err(error),
        };
        self.apply_routes(routes, force).await;
        let declared = applied?;
        self.keep_warnings(config, &declared, (leads_to_provider, warnings));
        Ok(())
    }

    /// Keeps what the writer of the files should know that are in force now.
    fn keep_warnings(
        &self,
        config: &Config,
        declared: &Declared,
        (leads_to_provider, mut files): (bool, Vec<String>),
    ) {
        if fixed(config) != self.started {
            files.push(format!(
                "{}: proxy, admin, store, redis and telemetry change with the next start only",
                self.file.display()
            ));
        }
        let control = &self.parts.control;
        let snapshot = control.live().load_full();
        let leads_to_provider = leads_to_provider || has_provider(control);
        let is_mounted = snapshot.mounted().is_some();
        let sources = warnings::Sources {
            config,
            files,
            declared: Some(declared),
            snapshot: Some(&snapshot),
            mount: unmounted(config, leads_to_provider || is_mounted, ""),
            now_secs: self.clock.now_secs(),
        };
        warnings::keep(&self.parts.telemetry, sources.find());
    }

    async fn apply_routes(&self, routes: Vec<Source>, force: bool) {
        let files = self.parts.route_files.clone();
        let load = move || {
            let mut files = files.lock();
            if force {
                files.distrust();
            }
            files.load(routes)
        };
        match tokio::task::spawn_blocking(load).await {
            Ok(routes) => self.parts.control.replace_route_files(routes).await,
            Err(error) => tracing::error!(%error, "route files were not read"),
        }
    }

    async fn apply_entities(&self, config: &Config, declared: &Declared) -> Result<(), BootError> {
        if let Some(section) = &config.identity {
            Identity::check(section.clone())?;
        }
        let certificates = self.tls.prepare(config);
        let certificates =
            certificates.map_err(|error| BootError::Refused(error.located(config)))?;
        let entities = declared.entities.clone();
        let prepared = self.parts.control.prepare_declared(entities).await;
        let prepared = prepared.map_err(|error| refused(declared, &error))?;
        // The last step that may fail (the store may) comes before the first
        // that has an effect: both parts change, or neither.
        self.parts.broker.reload(&config.broker).await?;
        if let (Some(identity), Some(section)) = (&self.parts.identity, &config.identity) {
            identity.reload(section.clone()).await?;
        }
        prepared.commit();
        self.parts.audit.reload(&config.audit);
        certificates.into_iter().for_each(Prepared::commit);
        Ok(())
    }
}

/// What listeners and store were started with, to see whether it changed.
fn fixed(config: &Config) -> String {
    let (mut proxy, mut admin) = (config.proxy.clone(), config.admin.clone());
    for tls in [&mut proxy.tls, &mut admin.tls].into_iter().flatten() {
        // These files are read again.
        tls.certificate = None;
        tls.key = None;
        tls.client_certificates.ca = None;
    }
    // Their texts show nothing of them.
    let token = admin
        .token
        .as_ref()
        .map(|token| fingerprint(token.expose()));
    let identity = config.identity.as_ref();
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        proxy,
        admin,
        token,
        fingerprint(&config.store.0),
        config.telemetry,
        config.telemetry.otlp.as_ref().map(OtlpConfig::fingerprint),
        config.redis,
        config.acme.as_ref().map(AcmeConfig::fingerprint),
        identity.map(|identity| &identity.base_url),
        identity.map(|identity| &identity.session.cookie_name)
    )
}

/// What tells one text from another, and nothing else.
fn fingerprint(text: impl AsRef<[u8]>) -> [u8; 32] {
    let mut fingerprint = [0; 32];
    fingerprint.copy_from_slice(digest::digest(&digest::SHA256, text.as_ref()).as_ref());
    fingerprint
}

fn named_files(config: &Config) -> Result<impl Iterator<Item = PathBuf>, config::ConfigError> {
    let mut files = entity_files(&config.entities)?;
    files.extend(tls::files(config).cloned());
    files.extend(config.identity.iter().flat_map(|one| one.pages.files()));
    Ok(files.into_iter())
}

fn digest(file: PathBuf) -> (PathBuf, [u8; 32]) {
    // One that can't be read is a state like others, and told elsewhere.
    let bytes = std::fs::read(&file).unwrap_or_default();
    (file, fingerprint(&bytes))
}

/// Reloads when a watched file changes or a message arrives (SIGHUP), until
/// the sender is gone.
///
/// Directories are watched rather than files: editors and mounted
/// configuration replace files by renaming.
pub async fn watch(mut reloader: Reloader, mut force: mpsc::Receiver<()>) {
    let (changed, mut changes) = mpsc::channel::<()>(1);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let relevant = event.is_ok_and(|event| !event.kind.is_access());
        if relevant {
            // A full channel already says that something changed.
            let _ = changed.try_send(());
        }
    })
    .inspect_err(|error| tracing::warn!(%error, "files are not watched; SIGHUP reloads them"))
    .ok();
    let mut watched = BTreeMap::new();
    loop {
        if let Some(watcher) = &mut watcher {
            while follow(watcher, &mut watched, &reloader) {
                // What changed before anybody watched told nobody.
                reloader.reload(false).await;
            }
        }
        tokio::select! {
            message = force.recv() => match message {
                Some(()) => {
                    systemd::reloading();
                    reloader.reload(true).await;
                    systemd::ready(reloader.status());
                }
                None => return,
            },
            change = changes.recv(), if watcher.is_some() => {
                if change.is_none() {
                    watcher = None;
                    continue;
                }
                settle(&mut changes).await;
                reloader.reload(false).await;
            }
        }
    }
}

/// Waits until nothing changes any more; not for ever, since a directory may
/// hold a file that always does.
async fn settle(changes: &mut mpsc::Receiver<()>) {
    let quiet =
        async { while let Ok(Some(())) = tokio::time::timeout(QUIET, changes.recv()).await {} };
    // What still changes then is looked at once more afterwards.
    let _ = tokio::time::timeout(10 * QUIET, quiet).await;
}

/// Watches the directories of the configuration file and of what it names, and
/// those that route files refer to; whether some of them were not watched before.
fn follow(
    watcher: &mut impl Watcher,
    watched: &mut BTreeMap<PathBuf, u64>,
    reloader: &Reloader,
) -> bool {
    let file = &reloader.file;
    let mut grown = false;
    let mut wanted = reloader.parts.route_files.lock().directories();
    wanted.insert(directory(file));
    if let Ok(config) = Config::load(file) {
        wanted.extend(tls::files(&config).map(|file| directory(file)));
        wanted.extend(
            config
                .identity
                .iter()
                .flat_map(|one| one.pages.directories()),
        );
        for path in &config.entities {
            let is_directory = path.is_dir();
            wanted.insert(if is_directory {
                path.clone()
            } else {
                directory(path)
            });
        }
    }
    for path in wanted {
        // A directory that was made anew is another one, and not watched yet.
        let inode = std::fs::metadata(&path).map_or(0, |found| found.ino());
        if watched.get(&path) == Some(&inode) {
            continue;
        }
        if watched.remove(&path).is_some() {
            // Usually the watch went with the directory.
            let _ = watcher.unwatch(&path);
        }
        match watcher.watch(&path, RecursiveMode::NonRecursive) {
            Ok(()) => {
                watched.insert(path, inode);
                grown = true;
            }
            Err(error) => tracing::warn!(path = %path.display(), %error, "not watched"),
        }
    }
    grown
}

fn directory(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StoreUrl;
    use doorward_core::model::secret::Secret;

    #[test]
    fn another_token_or_store_is_noticed_though_neither_is_shown() {
        let config = |token: &str, store: &str| {
            let mut config = Config::default();
            config.admin.token = Some(Secret::new(token.to_owned()));
            config.store = StoreUrl(store.to_owned());
            fixed(&config)
        };
        let first = config("a token of the admin", "postgres://a:sesame@db/x");
        assert_eq!(
            first,
            config("a token of the admin", "postgres://a:sesame@db/x")
        );
        assert_ne!(first, config("another token", "postgres://a:sesame@db/x"));
        assert_ne!(
            first,
            config("a token of the admin", "postgres://a:other@db/x")
        );
        assert!(!first.contains("sesame") && !first.contains("a token"));
    }
}
