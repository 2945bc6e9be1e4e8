//! Realms as compiled from the configuration, and how paths name them.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use serde_json::{Map, Value};
use tokio::sync::OnceCell;
use url::Url;

use super::config::{IdentityConfig, RealmConfig, RealmSettings};
use super::factors::RelyingParty;
use super::federation::Provider;
use super::goto_url::GotoUrls;
use super::hosts::Hosts;
use super::inherit::EffectiveSettings;
use super::ldap::Directory;
use super::own_settings::OwnSettings;
use super::pages::Appearance;
use super::password_policy::Rules;
use super::settings::AssertionIssuer;
use super::{IdentityError, mail, records};
use doorward_core::model::registration::StoredRealm;
use doorward_core::model::secret::Secret;
use doorward_core::model::user::name;
use doorward_core::model::user::schema::RecordError;
use doorward_store::Declared;

/// What the configuration file says, compiled.
#[derive(Debug)]
pub(super) struct Live {
    /// Without a slash at its end.
    pub(super) base_url: String,
    /// The path of `base_url`: empty, or with a slash only at its start.
    pub(super) base_path: String,
    realms: HashMap<String, Arc<Realm>>,
    pub(super) hosts: Hosts,
    pub(super) appearance: Arc<Appearance>,
    /// Who asks for passkeys, if browsers offer them here.
    pub(super) relying_party: Option<RelyingParty>,
    pub(super) config: IdentityConfig,
    /// Addresses whose failures are not counted.
    pub(super) exempt: Vec<IpNet>,
    /// The realms of the store, as they were read.
    pub(super) stored: Vec<StoredRealm>,
}

/// A realm.
#[derive(Debug)]
pub(super) struct Realm {
    /// `/` or `/a/b`.
    pub(super) path: String,
    /// The one issuer of its tokens, whatever path form a client used.
    pub(super) issuer: String,
    pub(super) settings: Arc<RealmSettings>,
    effective: EffectiveSettings,
    /// Declared users' passwords, by folded user name.
    passwords: HashMap<String, Arc<DeclaredPassword>>,
    /// Declared clients' secrets, by client identifier.
    secrets: HashMap<String, Option<Secret>>,
}

/// A password that only the file holds.
#[derive(Debug)]
pub(super) struct DeclaredPassword {
    /// `None`: the user has none, and can't sign in.
    pub(super) secret: Option<Secret>,
    pub(super) hash: OnceCell<Secret>,
}

impl Live {
    /// Compiles `config`; says also what the store must hold.
    pub(super) fn compile(config: IdentityConfig) -> Result<(Self, Declared), IdentityError> {
        let base = base(&config.base_url)?;
        mail::check(&config.mail)?;
        let appearance = Appearance::compile(&config.pages, &base.url, &base.path)?;
        let rp_id = config.passkeys.rp_id.as_deref();
        let mut live = Self {
            relying_party: RelyingParty::of(&base.url, rp_id)?,
            appearance: Arc::new(appearance),
            base_url: base.url,
            base_path: base.path,
            realms: HashMap::new(),
            hosts: Hosts::default(),
            config: IdentityConfig::default(),
            exempt: exempt(&config.lockout.per_address.exempt)?,
            stored: Vec::new(),
        };
        let mut declared = Declared::default();
        let root = BTreeMap::from([("/".to_owned(), RealmConfig::default())]);
        let missing_root = root.iter().filter(|_| !config.realms.contains_key("/"));
        // In ascending order: a realm comes after those above it.
        for (path, realm) in missing_root.chain(&config.realms) {
            check_path(path)?;
            let wrong = |error| IdentityError::in_realm(path, error);
            let effective = live.above(path).below(&realm.settings);
            let effective = effective.map_err(|error| wrong(error.below("settings")))?;
            let host = base.host.as_deref();
            live.hosts.add(path, &realm.hosts, host).map_err(wrong)?;
            let mut compiled = Realm::new(&live.base_url, path, effective);
            compiled.declare(realm, &mut declared).map_err(wrong)?;
            declared.realms.push(path.clone());
            live.realms.insert(path.clone(), Arc::new(compiled));
        }
        live.config = config;
        Ok((live, declared))
    }

    /// Adds what the store knows: realms that the file does not declare, their
    /// settings, and what follows from those for the realms below them. Takes over
    /// the hashes of declared passwords that did not change.
    pub(super) fn complete(&mut self, mut stored: Vec<StoredRealm>, previous: Option<&Self>) {
        stored.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        self.stored = stored;
        for (path, effective) in self.composed(&self.stored) {
            let effective = effective.unwrap_or_else(|(above, error)| {
                tracing::error!(realm = path, %error, "settings of a realm are not used");
                above
            });
            let realm = match self.realms.remove(&path) {
                Some(declared) => declared.with(effective),
                None => Realm::new(&self.base_url, &path, effective),
            };
            self.realms.insert(path, Arc::new(realm));
        }
        for realm in self.stored.iter().filter(|realm| self.is_shadowed(realm)) {
            let settings: Vec<_> = realm.settings.keys().collect();
            tracing::warn!(
                realm = realm.path,
                ?settings,
                "settings in the store are not in force: the file declares the realm"
            );
        }
        for (path, realm) in &self.realms {
            let old = previous.and_then(|previous| previous.realms.get(path));
            for (name, password) in &realm.passwords {
                let old = old.and_then(|old| old.passwords.get(name));
                let same = old.filter(|old| match (&old.secret, &password.secret) {
                    (Some(old), Some(new)) => old.matches(new.expose()),
                    _ => false,
                });
                if let Some(hash) = same.and_then(|old| old.hash.get()) {
                    // Fails only if it is set already, to the same end.
                    let _ = password.hash.set(hash.clone());
                }
            }
        }
    }

    /// What is in force in every realm of the file and of `stored`, those above
    /// before those below. Where settings can't be: what is in force above, and
    /// what is wrong.
    fn composed(&self, stored: &[StoredRealm]) -> BTreeMap<String, ComposeResult> {
        let mut own: BTreeMap<&str, OwnSettings> = BTreeMap::new();
        for realm in stored {
            if check_path(&realm.path).is_ok() {
                own.insert(&realm.path, realm.settings.clone().into());
            }
        }
        // What the file declares is the file's.
        for (path, realm) in &self.config.realms {
            own.insert(path, realm.settings.clone());
        }
        own.entry("/").or_default();
        let mut composed: BTreeMap<String, ComposeResult> = BTreeMap::new();
        for (path, own) in own {
            let above = parents(path).find_map(|parent| composed.get(parent));
            let above = match above {
                Some(Ok(above) | Err((above, _))) => above.clone(),
                None => EffectiveSettings::default(),
            };
            let known = self.realms.get(path);
            let known = known.filter(|_| self.config.realms.contains_key(path));
            let effective = match known {
                // Lists and keys of the file are not read again for nothing.
                Some(known) if self.above(path).is_same(&above) => Ok(known.effective.clone()),
                _ => above.below(&own).map_err(|error| (above, error)),
            };
            composed.insert(path.to_owned(), effective);
        }
        composed
    }

    /// Checks that a realm at `path` may set `own`, for itself and for the realms
    /// below it.
    ///
    /// # Errors
    /// There can't be a realm at `path`, or a setting can't be.
    pub(super) fn checked_settings(
        &self,
        path: &str,
        own: Map<String, Value>,
    ) -> Result<(), RecordError> {
        check_path(path).map_err(|_| RecordError::new("path", PATH_RULE))?;
        let mut stored = self.stored.clone();
        stored.retain(|realm| realm.path != path);
        stored.push(StoredRealm {
            path: path.to_owned(),
            declared: false,
            settings: own,
        });
        let before = self.composed(&self.stored);
        for (realm, effective) in self.composed(&stored) {
            let Err((_, error)) = effective else { continue };
            if realm == path {
                return Err(error.below("settings"));
            }
            if before.get(&realm).is_some_and(Result::is_ok) {
                let text = format!("does not go with what the realm {realm} sets: {error}");
                return Err(RecordError::new("settings", text));
            }
        }
        Ok(())
    }

    /// Whether the store has settings of a realm that the file declares.
    pub(super) fn is_shadowed(&self, realm: &StoredRealm) -> bool {
        !realm.settings.is_empty() && self.config.realms.contains_key(&realm.path)
    }

    /// The rules for new passwords of the realm at `path`, as this file and the
    /// realms of the store have them.
    pub(super) fn rules_of(
        config: IdentityConfig,
        stored: Vec<StoredRealm>,
        path: &str,
    ) -> Result<Arc<Rules>, IdentityError> {
        let (mut live, _) = Self::compile(config)?;
        live.complete(stored, None);
        let rules = live
            .realm(path)
            .map(|realm| Arc::clone(realm.password_rules()));
        Ok(rules.unwrap_or_default())
    }

    /// What is in force in the nearest realm above `path`.
    fn above(&self, path: &str) -> EffectiveSettings {
        let realm = parents(path).find_map(|parent| self.realms.get(parent));
        realm.map_or_else(EffectiveSettings::default, |realm| realm.effective.clone())
    }

    /// The realm of this path.
    pub(super) fn realm(&self, path: &str) -> Option<&Arc<Realm>> {
        self.realms.get(path)
    }

    /// All realms.
    pub(super) fn realms(&self) -> impl Iterator<Item = &Arc<Realm>> {
        self.realms.values()
    }
}

/// What is in force in a realm; or what is above it, and why its own is not.
type ComposeResult = Result<EffectiveSettings, (EffectiveSettings, RecordError)>;

/// The paths above `path`, the nearest first.
fn parents(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(parent(path), |path| parent(path))
}

fn parent(path: &str) -> Option<&str> {
    match path.rsplit_once('/')? {
        ("", "") => None,
        ("", _) => Some("/"),
        (parent, _) => Some(parent),
    }
}

/// The base URL, taken apart.
#[derive(Debug, PartialEq, Eq)]
struct Base {
    /// Without a slash at its end.
    url: String,
    path: String,
    host: Option<String>,
}

fn base(base_url: &str) -> Result<Base, IdentityError> {
    let wrong = |message: &str| IdentityError::config("base_url", message);
    let url = Url::parse(base_url).map_err(|_| wrong("is no absolute URL"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(wrong("must begin with http:// or https:// and a host"));
    }
    if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() {
        return Err(wrong("must have no query, fragment or user"));
    }
    Ok(Base {
        url: base_url.trim_end_matches('/').to_owned(),
        path: url.path().trim_end_matches('/').to_owned(),
        host: url.host_str().map(str::to_owned),
    })
}

/// Networks of addresses that are not locked.
fn exempt(written: &[String]) -> Result<Vec<IpNet>, IdentityError> {
    let parse = |(index, text): (usize, &String)| {
        let address = text.parse::<IpAddr>().map(IpNet::from);
        address.or_else(|_| text.parse()).map_err(|_| {
            let name = format!("per_address.exempt[{index}]");
            IdentityError::in_section("lockout", &name, "is no IP address or network".to_owned())
        })
    };
    written.iter().enumerate().map(parse).collect()
}

/// What [`check_path`] asks for.
const PATH_RULE: &str =
    "a realm is `/` or `/a/b` of letters, digits and `._~-`, and not `root` or `realms`";

fn check_path(path: &str) -> Result<(), IdentityError> {
    let legal = |part: &str| {
        !part.is_empty()
            && part.len() <= 64
            && !matches!(part, "." | ".." | "root" | "realms")
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._~-".contains(&b))
    };
    let ok = path == "/"
        || path
            .strip_prefix('/')
            .is_some_and(|rest| rest.split('/').count() <= 8 && rest.split('/').all(legal));
    if ok {
        return Ok(());
    }
    Err(IdentityError::in_realm(
        path,
        RecordError::new("", PATH_RULE),
    ))
}

fn twice(name: &str) -> RecordError {
    RecordError::new(name, "is declared twice")
}

/// The issuer of a realm (one fixed string).
fn issuer(base_url: &str, path: &str) -> String {
    let mut issuer = format!("{base_url}/oauth2");
    if path != "/" {
        issuer.push_str("/realms/root");
        for part in path.split('/').skip(1) {
            issuer.push_str("/realms/");
            issuer.push_str(part);
        }
    }
    issuer
}

impl Realm {
    fn new(base_url: &str, path: &str, effective: EffectiveSettings) -> Self {
        Self {
            path: path.to_owned(),
            issuer: issuer(base_url, path),
            settings: Arc::clone(&effective.settings),
            effective,
            passwords: HashMap::new(),
            secrets: HashMap::new(),
        }
    }

    /// The same realm with these settings.
    fn with(&self, effective: EffectiveSettings) -> Self {
        Self {
            path: self.path.clone(),
            issuer: self.issuer.clone(),
            settings: Arc::clone(&effective.settings),
            effective,
            passwords: self.passwords.clone(),
            secrets: self.secrets.clone(),
        }
    }

    /// Takes in declared users and clients, and adds to `declared` what the
    /// store must hold. Paths of errors are relative to the realm.
    fn declare(
        &mut self,
        config: &RealmConfig,
        declared: &mut Declared,
    ) -> Result<(), RecordError> {
        for (index, user) in config.users.iter().enumerate() {
            let at = format!("users[{index}]");
            let record =
                records::declared_user(&self.path, user).map_err(|error| error.below(&at))?;
            let key = name::key(&record.user_name);
            if self.passwords.contains_key(&key) {
                return Err(twice("userName").below(&at));
            }
            let password = DeclaredPassword {
                secret: user.password.clone(),
                hash: OnceCell::new(),
            };
            self.passwords.insert(key, Arc::new(password));
            declared.users.push(record);
        }
        for (index, metadata) in config.clients.iter().enumerate() {
            let at = format!("clients[{index}]");
            let client = records::declared_client(&self.path, metadata);
            declared
                .clients
                .push(client.map_err(|error| error.below(&at))?);
            let secret = metadata.client_secret.clone();
            if self
                .secrets
                .insert(metadata.client_id.clone(), secret)
                .is_some()
            {
                return Err(twice("client_id").below(&at));
            }
        }
        Ok(())
    }

    /// The issuer of this name, if its assertions are believed.
    pub(super) fn trusted(&self, issuer: &str) -> Option<&AssertionIssuer> {
        self.effective
            .trusted
            .iter()
            .find(|one| one.issuer == issuer)
    }

    /// Where users may be sent after signing in, besides here.
    pub(super) fn goto_urls(&self) -> &GotoUrls {
        &self.effective.goto_urls
    }

    /// What new passwords must be like.
    pub(super) fn password_rules(&self) -> &Arc<Rules> {
        &self.effective.passwords
    }

    /// The providers that users may sign in through, in the order of pages.
    pub(super) fn providers(&self) -> &[Arc<Provider>] {
        &self.effective.providers
    }

    /// The directory that knows passwords of users, if there is one.
    pub(super) fn directory(&self) -> Option<&Arc<Directory>> {
        self.effective.directory.as_ref()
    }

    /// Where the administrator may sign in from, if that is restricted.
    pub(super) fn admin_networks(&self) -> Option<&[IpNet]> {
        self.effective.admin_networks.as_deref()
    }

    /// Whether users of the realm can sign in by the way of this name.
    pub(super) fn has_login_service(&self, name: &str) -> bool {
        self.settings
            .login_services
            .iter()
            .any(|known| known == name)
    }

    /// The declared password of a user, by folded name.
    pub(super) fn password(&self, key: &str) -> Option<&Arc<DeclaredPassword>> {
        self.passwords.get(key)
    }

    /// The folded names of all declared users.
    pub(super) fn declared_users(&self) -> impl Iterator<Item = &str> {
        self.passwords.keys().map(String::as_str)
    }

    /// The declared secret of a client.
    pub(super) fn secret(&self, client_id: &str) -> Option<&Secret> {
        self.secrets.get(client_id)?.as_ref()
    }
}

/// The realm that the part of a path between `/oauth2` or `/json` and the
/// endpoint names: nothing, `realms/root/realms/a/realms/b`, `realms/a` or
/// `a/b`. `None`: it can't be a realm.
pub(super) fn realm_of_path(part: &str) -> Option<String> {
    if part.is_empty() {
        return Some("/".to_owned());
    }
    let mut names: Vec<&str> = part.split('/').collect();
    if names[0] == "realms" {
        let spelt_out =
            names.len().is_multiple_of(2) && names.iter().step_by(2).all(|w| *w == "realms");
        if !spelt_out {
            return None;
        }
        names = names.into_iter().skip(1).step_by(2).collect();
    }
    if names[0] == "root" {
        names.remove(0);
    }
    if names.iter().any(|name| name.is_empty()) {
        return None;
    }
    Some(format!("/{}", names.join("/")))
}

#[cfg(test)]
mod tests;
