//! A directory as configured, and asking it: whose entry a name is, and whether
//! a password is that entry's.
//!
//! A connection serves one sign-in at a time: service account, search, user.
//! Whoever was bound last, the next sign-in binds anew before it asks.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use ldap3::{
    Ldap, LdapConnAsync, LdapConnSettings, LdapError, LdapResult, Scope, SearchEntry, SearchOptions,
};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use super::pattern::{Pattern, Place};
use crate::config::{LdapConfig, RealmSettings, SearchScope};
use crate::federation::Mapping;
use doorward_core::hex;
use doorward_core::model::secret::Secret;
use doorward_core::model::user::schema::RecordError;

/// How long a directory that did not answer is not asked, in milliseconds:
/// sign-ins must not queue up behind it.
const PAUSE_MS: i64 = 2_000;

/// Most servers of a directory.
pub(super) const SERVERS_MAX: usize = 8;

/// The usual attributes (RFC 4519, RFC 2798).
const USUAL: [(&str, &str); 7] = [
    ("displayName", "displayname"),
    ("emails", "mail"),
    ("name.familyName", "sn"),
    ("name.givenName", "givenname"),
    ("phoneNumbers", "telephonenumber"),
    ("preferredLanguage", "preferredlanguage"),
    ("title", "title"),
];

/// Why a directory gave no verdict.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DirectoryError {
    #[error("no server answered within the timeout")]
    Timeout,
    #[error("too many sign-ins wait for it")]
    Crowded,
    #[error("it did not answer a moment ago")]
    Paused,
    #[error("{0}")]
    Connection(#[from] LdapError),
    /// It refuses the service account.
    #[error("it refuses bind_dn (result {0})")]
    Service(u32),
    /// A search or bind ended otherwise than with yes or no.
    #[error("it answered with result {0}")]
    Result(u32),
}

impl DirectoryError {
    /// Whether another server may do better.
    fn is_of_the_server(&self) -> bool {
        // 51: busy, 52: unavailable (RFC 4511 §A.2).
        matches!(
            self,
            Self::Timeout | Self::Connection(_) | Self::Result(51 | 52) | Self::Service(51 | 52)
        )
    }
}

/// An entry whose password was right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// What names it for ever.
    pub(super) id: String,
    /// Its attributes, by lower-case name: the first value of each.
    pub(super) attributes: Map<String, Value>,
}

/// A directory, ready for requests.
pub(crate) struct Directory {
    pub(super) written: LdapConfig,
    pub(super) mapping: Mapping,
    filter: Pattern,
    user_dn: Option<Pattern>,
    attributes: Vec<String>,
    tls: Option<Arc<ClientConfig>>,
    turns: Semaphore,
    /// Connections that nobody uses now.
    idle: Mutex<Vec<Ldap>>,
    /// The server that answered last.
    good: AtomicUsize,
    /// Nobody asks before, in milliseconds.
    not_before: AtomicI64,
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Directory").field(&self.written).finish()
    }
}

/// What issuers of links to entries begin with; no provider's does.
const ISSUER: &str = "ldap:";

/// Whether links of this issuer are to entries of a directory.
pub(crate) fn is_entry(issuer: &str) -> bool {
    issuer.starts_with(ISSUER)
}

impl Directory {
    /// The directory of these settings, if they name one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn compile(settings: &RealmSettings) -> Result<Option<Arc<Self>>, RecordError> {
        let Some(written) = &settings.ldap else {
            return Ok(None);
        };
        let compiled = Self::read(written).map_err(|error| error.below("ldap"))?;
        Ok(Some(Arc::new(compiled)))
    }

    /// The directory of this configuration.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn read(written: &LdapConfig) -> Result<Self, RecordError> {
        super::check::check(written)?;
        let filter = Pattern::parse(&written.filter, Place::Filter);
        let filter = filter.map_err(|text| RecordError::new("filter", text))?;
        let user_dn = written.user_dn.as_deref();
        let user_dn = user_dn
            .map(|text| Pattern::parse(text, Place::Name))
            .transpose();
        let user_dn = user_dn.map_err(|text| RecordError::new("user_dn", text))?;
        let lower = |written: &BTreeMap<String, String>| {
            let all = written.iter();
            all.map(|(name, from)| (name.clone(), from.to_ascii_lowercase()))
                .collect()
        };
        let usual = || {
            let all = USUAL.iter();
            all.map(|(name, from)| ((*name).to_owned(), (*from).to_owned()))
                .collect()
        };
        let map: BTreeMap<String, String> = written.map.as_ref().map_or_else(usual, lower);
        let tls = written.ca_file.as_deref().map(authorities).transpose();
        let tls = tls.map_err(|text| RecordError::new("ca_file", text))?;
        let mut attributes: Vec<String> = map.values().cloned().collect();
        attributes.push(written.user_name_attribute.to_ascii_lowercase());
        attributes.extend(
            written
                .id_attribute
                .iter()
                .map(|name| name.to_ascii_lowercase()),
        );
        attributes.sort_unstable();
        attributes.dedup();
        let places = usize::try_from(written.connections).unwrap_or(1);
        Ok(Self {
            mapping: Mapping::compile(Some(&map))?,
            written: written.clone(),
            filter,
            user_dn,
            attributes,
            tls,
            turns: Semaphore::new(places),
            idle: Mutex::default(),
            good: AtomicUsize::new(0),
            not_before: AtomicI64::new(i64::MIN),
        })
    }

    /// Whether entries are searched for, and not named by a pattern.
    pub(super) fn searches(&self) -> bool {
        self.user_dn.is_none()
    }

    /// The issuer of links to its entries.
    pub(super) fn issuer(&self) -> String {
        format!("{ISSUER}{}", self.written.name)
    }

    /// The entry of this name, if the password is its own. `None` for every
    /// other name and password alike.
    pub(crate) async fn entry(
        &self,
        name: &str,
        password: &Secret,
        now_ms: i64,
    ) -> Result<Option<Entry>, DirectoryError> {
        // A bind without a password is one as nobody, and succeeds (RFC 4513
        // §5.1.2).
        if password.expose().is_empty() {
            return Ok(None);
        }
        if now_ms < self.not_before.load(Ordering::Relaxed) {
            return Err(DirectoryError::Paused);
        }
        let wait = Duration::from_secs(u64::from(self.written.timeout));
        let crowded = |_| DirectoryError::Crowded;
        let turn = tokio::time::timeout(wait / 4, self.turns.acquire()).await;
        let _turn = turn
            .map_err(crowded)?
            .map_err(|_| DirectoryError::Timeout)?;
        let asked = self.ask(name, password).await;
        let lost = matches!(
            asked,
            Err(DirectoryError::Timeout | DirectoryError::Connection(_))
        );
        if lost {
            self.not_before.store(now_ms + PAUSE_MS, Ordering::Relaxed);
            self.idle.lock().clear();
        }
        asked
    }

    /// Asks on a connection at hand, or else the servers one after the other,
    /// beginning with the one that answered last.
    async fn ask(&self, name: &str, password: &Secret) -> Result<Option<Entry>, DirectoryError> {
        let servers = &self.written.urls;
        let share = Duration::from_secs(u64::from(self.written.timeout))
            / u32::try_from(servers.len()).unwrap_or(u32::MAX).max(1);
        let held = self.idle.lock().pop();
        if let Some(held) = held {
            let asked = self.ask_within(share, async { Ok(held) }, name, password);
            match asked.await {
                // The server may have ended it meanwhile.
                Err(error) if error.is_of_the_server() => {}
                verdict => return verdict,
            }
        }
        let first = self.good.load(Ordering::Relaxed);
        let mut failure = DirectoryError::Timeout;
        for index in (0..servers.len()).map(|step| (first + step) % servers.len()) {
            let url = &servers[index];
            let asked = self.ask_within(share, self.connect(url), name, password);
            match asked.await {
                Err(error) if error.is_of_the_server() => {
                    let directory = &self.written.name;
                    tracing::warn!(directory, url, %error, "a directory's server does not answer");
                    failure = error;
                }
                verdict => {
                    self.good.store(index, Ordering::Relaxed);
                    return verdict;
                }
            }
        }
        Err(failure)
    }

    /// Asks on this connection, and keeps it for the next sign-in if it is good
    /// yet.
    async fn ask_within(
        &self,
        share: Duration,
        connection: impl Future<Output = Result<Ldap, DirectoryError>>,
        name: &str,
        password: &Secret,
    ) -> Result<Option<Entry>, DirectoryError> {
        let asked = tokio::time::timeout(share, async {
            let mut ldap = connection.await?;
            let verdict = self.ask_on(&mut ldap, name, password).await;
            if !matches!(verdict, Err(DirectoryError::Connection(_))) {
                self.idle.lock().push(ldap);
            }
            verdict
        });
        asked.await.unwrap_or(Err(DirectoryError::Timeout))
    }

    pub(super) async fn connect(&self, url: &str) -> Result<Ldap, DirectoryError> {
        // `main` has done this already; a second time changes nothing.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut settings = LdapConnSettings::new()
            .set_starttls(url.starts_with("ldap:") && self.written.starttls)
            .set_no_tls_verify(!self.written.tls_verify);
        if let Some(tls) = &self.tls {
            settings = settings.set_config(Arc::clone(tls));
        }
        let (connection, ldap) = LdapConnAsync::with_settings(settings, url).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.drive().await {
                tracing::debug!(%error, "a connection to a directory broke");
            }
        });
        Ok(ldap)
    }

    async fn ask_on(
        &self,
        ldap: &mut Ldap,
        name: &str,
        password: &Secret,
    ) -> Result<Option<Entry>, DirectoryError> {
        let Some(pattern) = &self.user_dn else {
            self.bind_service(ldap).await?;
            let found = self.search(ldap, name).await?;
            // Nobody's entry is bound to as well: it must take as long.
            let nobody = || format!("cn=nobody-{}", doorward_core::clock::random_uuid());
            let dn = found.as_ref().map_or_else(nobody, |(dn, _)| dn.clone());
            let right = bind(ldap, &dn, password).await?;
            return Ok(found.filter(|_| right).map(|(_, entry)| entry));
        };
        let dn = pattern.fill(name);
        if !bind(ldap, &dn, password).await? {
            return Ok(None);
        }
        // Its own attributes, as itself.
        let found = self
            .read_entries(ldap, &dn, Scope::Base, "(objectClass=*)")
            .await?;
        Ok(found.map(|(_, entry)| entry))
    }

    pub(super) async fn bind_service(&self, ldap: &mut Ldap) -> Result<(), DirectoryError> {
        let dn = self.written.bind_dn.as_deref().unwrap_or_default();
        let password = self.written.bind_password.as_ref().map(Secret::expose);
        let LdapResult { rc, .. } = ldap.simple_bind(dn, password.unwrap_or_default()).await?;
        match rc {
            0 => Ok(()),
            rc => Err(DirectoryError::Service(rc)),
        }
    }

    /// The entry that the filter finds, if it is one alone.
    pub(super) async fn search(
        &self,
        ldap: &mut Ldap,
        name: &str,
    ) -> Result<Option<(String, Entry)>, DirectoryError> {
        let base = self.written.base_dn.as_deref().unwrap_or_default();
        let scope = match self.written.scope {
            SearchScope::Subtree => Scope::Subtree,
            SearchScope::One => Scope::OneLevel,
        };
        self.read_entries(ldap, base, scope, &self.filter.fill(name))
            .await
    }

    async fn read_entries(
        &self,
        ldap: &mut Ldap,
        base: &str,
        scope: Scope,
        filter: &str,
    ) -> Result<Option<(String, Entry)>, DirectoryError> {
        ldap.with_search_options(SearchOptions::new().sizelimit(2));
        let answer = ldap.search(base, scope, filter, &self.attributes).await?;
        let rc = answer.1.rc;
        // 4: there are more; 32: the base itself is not there.
        match rc {
            0 | 4 => {}
            32 => return Ok(None),
            rc => return Err(DirectoryError::Result(rc)),
        }
        // Where other servers are named, nobody goes.
        let entries = answer
            .0
            .into_iter()
            .filter(|one| !one.is_ref() && !one.is_intermediate());
        let mut entries = entries.map(SearchEntry::construct);
        match (entries.next(), entries.next()) {
            (Some(_), Some(_)) => {
                tracing::warn!(
                    directory = self.written.name,
                    "the filter of a directory finds several entries for a name"
                );
                Ok(None)
            }
            (Some(only), None) if rc == 0 => Ok(self.read_entry(only)),
            _ => Ok(None),
        }
    }

    fn read_entry(&self, entry: SearchEntry) -> Option<(String, Entry)> {
        let mut attributes = Map::new();
        for (name, values) in &entry.attrs {
            if let Some(first) = values.first() {
                attributes.insert(name.to_ascii_lowercase(), json!(first));
            }
        }
        let id = match &self.written.id_attribute {
            None => entry.dn.to_lowercase(),
            Some(name) => {
                let name = name.to_ascii_lowercase();
                let text = attributes
                    .get(&name)
                    .and_then(Value::as_str)
                    .map(str::to_owned);
                let mut bytes = entry.bin_attrs.iter();
                let bytes = bytes.find(|(known, _)| known.eq_ignore_ascii_case(&name));
                let bytes = bytes.and_then(|(_, values)| values.first());
                let id = text.or_else(|| bytes.map(hex::encode));
                if id.is_none() {
                    tracing::warn!(
                        directory = self.written.name,
                        "an entry has no id_attribute"
                    );
                }
                id?
            }
        };
        // What names nobody for ever can't be kept.
        let usable = !entry.dn.is_empty() && !id.is_empty() && id.len() <= 1024;
        usable.then_some((entry.dn, Entry { id, attributes }))
    }
}

/// Whether this password is that of this entry.
async fn bind(ldap: &mut Ldap, dn: &str, password: &Secret) -> Result<bool, DirectoryError> {
    let password = password.expose();
    if dn.is_empty() || password.is_empty() {
        return Ok(false);
    }
    let LdapResult { rc, .. } = ldap.simple_bind(dn, password).await?;
    match rc {
        0 => Ok(true),
        // A wrong password, no such entry, one without password, one that is
        // locked: nobody is told which (RFC 4511 §A).
        19 | 32 | 34 | 48 | 49 | 50 | 53 => Ok(false),
        rc => Err(DirectoryError::Result(rc)),
    }
}

/// What trusts these authorities alone.
fn authorities(file: &Path) -> Result<Arc<ClientConfig>, String> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let wrong = |reason: &dyn fmt::Display| format!("{}: {reason}", file.display());
    let pem = std::fs::read(file).map_err(|error| wrong(&error))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    if roots.is_empty() {
        return Err(wrong(&"holds no certificate"));
    }
    let config = ClientConfig::builder().with_root_certificates(roots);
    Ok(Arc::new(config.with_no_client_auth()))
}
