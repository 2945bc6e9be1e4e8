//! Passwords that a directory knows (LDAP): the user is searched there, and the
//! password tried on the entry.
//!
//! Who signs in so is a user of the store like any other, linked to the entry;
//! [`source`] says whether the directory is to be asked about a name at all.
//! A directory that does not answer is a fault and no wrong password.

mod check;
mod directory;
mod pattern;
mod probe;

use std::sync::Arc;

use serde_json::{Map, Value, json};

pub(super) use directory::{Directory, is_entry};
use directory::{DirectoryError, Entry};
pub(super) use probe::probe;

use super::error::Fault;
use super::federation::MappedAttributes;
use super::login::is_admin_name;
use super::realm::Realm;
use super::{State, audit, records};
use doorward_core::clock::random_uuid;
use doorward_core::model::audit::{Event, Kind, PendingAudit};
use doorward_core::model::federation::FederatedIdentity;
use doorward_core::model::secret::Secret;
use doorward_core::model::user::name as user_name;
use doorward_core::model::user::{Owner, User};
use doorward_store::StoreError;

/// The directory that knows the password of this user, or of nobody known, if
/// it is not known here.
pub(super) async fn source<'r>(
    state: &State,
    realm: &'r Realm,
    user: Option<&User>,
) -> Result<Option<&'r Arc<Directory>>, Fault> {
    let Some(directory) = realm.directory() else {
        return Ok(None);
    };
    let written = &directory.written;
    let Some(user) = user else {
        return Ok(Some(directory));
    };
    let local = user.owner != Owner::Store
        || (user.password_hash.is_some() && !written.over_local)
        || (is_admin_name(&user.user_name) && !written.administrator);
    if local {
        return Ok(None);
    }
    let issuer = directory.issuer();
    let links = state.store.identities(user.id).await?;
    let linked = links.iter().any(|link| link.issuer == issuer);
    Ok((linked || written.link_existing).then_some(directory))
}

/// The user of this name, if the directory says that the password is right.
/// `known` is the user whom the store has of this name.
///
/// # Errors
/// [`Fault::Directory`] when there is no saying.
pub(super) async fn user(
    state: &State,
    (realm, directory): (&Realm, &Directory),
    (name, known): (&str, Option<&User>),
    password: &Secret,
    now_ms: i64,
) -> Result<Option<User>, Fault> {
    let entry = directory.entry(name, password, now_ms).await;
    let outcome = match &entry {
        Ok(Some(_)) => "right",
        Ok(None) => "wrong",
        Err(_) => "failed",
    };
    state
        .federation
        .count_directory(&directory.written.name, outcome);
    let entry = entry.map_err(|error| directory_fault(realm, directory, &error))?;
    let Some(entry) = entry else {
        return Ok(None);
    };
    let login = DirectoryLogin {
        state,
        realm,
        directory,
        mapped_attributes: directory.mapped_attributes(&entry),
        entry,
        now_ms,
    };
    login.user(name, known).await
}

fn directory_fault(realm: &Realm, directory: &Directory, error: &DirectoryError) -> Fault {
    let (realm, directory) = (&realm.path, &directory.written.name);
    match error {
        DirectoryError::Crowded | DirectoryError::Paused => {
            tracing::warn!(realm, directory, %error, "a directory is not asked");
        }
        _ => tracing::error!(realm, directory, %error, "a directory gave no answer"),
    }
    Fault::Directory
}

impl Directory {
    /// What an entry says of its user.
    fn mapped_attributes(&self, entry: &Entry) -> MappedAttributes {
        let trusted = self.written.trust_email;
        self.mapping.read(&entry.attributes, &|_| trusted)
    }

    /// Tells the operator what strangers on the way could do.
    pub(super) fn warn(&self, realm: &str) {
        check::warn(realm, &self.written);
    }
}

/// A sign-in whose password is right.
struct DirectoryLogin<'a> {
    state: &'a State,
    realm: &'a Realm,
    directory: &'a Directory,
    entry: Entry,
    mapped_attributes: MappedAttributes,
    now_ms: i64,
}

impl DirectoryLogin<'_> {
    async fn user(&self, name: &str, known: Option<&User>) -> Result<Option<User>, Fault> {
        let attribute = &self.directory.written.user_name_attribute;
        let spelt = self.entry.attributes.get(&attribute.to_ascii_lowercase());
        let spelt = spelt.and_then(Value::as_str).unwrap_or(name);
        // A filter may find entries by more than their name; what was typed is
        // what wrong passwords are counted by.
        if user_name::key(spelt) != user_name::key(name) {
            return Ok(self.refused("the entry has another name"));
        }
        let (store, issuer) = (&self.state.store, self.directory.issuer());
        let found = store.federated_user(&self.realm.path, &issuer, &self.entry.id);
        match (found.await?, known) {
            (Some((link, user)), known) => {
                if known.is_some_and(|known| known.id != user.id) {
                    return Ok(self.refused("the entry is linked to another user"));
                }
                self.seen(&link, user).await
            }
            (None, Some(known)) => self.link(known).await,
            (None, None) if self.directory.written.create => self.create(spelt).await,
            (None, None) => Ok(self.refused("there is no such user, and none is made")),
        }
    }

    fn refused(&self, reason: &str) -> Option<User> {
        let (realm, directory) = (&self.realm.path, &self.directory.written.name);
        tracing::warn!(
            realm,
            directory,
            reason,
            "a user of a directory is not let in"
        );
        None
    }

    /// Makes a user of the store the directory's, once: another entry of the
    /// same name is another person.
    async fn link(&self, known: &User) -> Result<Option<User>, Fault> {
        let issuer = self.directory.issuer();
        let links = self.state.store.identities(known.id).await?;
        if links.iter().any(|link| link.issuer == issuer) {
            return Ok(self.refused("the user is linked to another entry"));
        }
        let link = self.identity(known);
        let write = async |audit: Option<&PendingAudit>| {
            let store = &self.state.store;
            store.link_identity(&link, Some(known.version), audit).await
        };
        let told = |event: Event| self.facts(event);
        match audit::with(self.state, Kind::LinkCreate, told, write).await {
            Ok(()) => self.seen(&link, known.clone()).await,
            Err(StoreError::Taken(_) | StoreError::Conflict(_)) => {
                Ok(self.refused("the user changed just now"))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn identity(&self, user: &User) -> FederatedIdentity {
        FederatedIdentity {
            id: random_uuid(),
            realm: self.realm.path.clone(),
            user_id: user.id,
            issuer: self.directory.issuer(),
            subject: self.entry.id.clone(),
            provider: self.directory.written.name.clone(),
            email: self.mapped_attributes.email().map(str::to_owned),
            created_ms: self.now_ms,
            used_ms: self.now_ms,
        }
    }

    /// What the audit log is told of a link.
    fn facts(&self, event: Event) -> Event {
        let issuer = self.directory.issuer();
        let event = event.with("issuer", issuer.as_str());
        event.with("subject", self.entry.id.as_str())
    }

    async fn create(&self, name: &str) -> Result<Option<User>, Fault> {
        if is_admin_name(name) && !self.directory.written.administrator {
            return Ok(self.refused("the administrator is not let in"));
        }
        let mut record = Map::new();
        self.mapped_attributes.apply(&mut record, None);
        record.insert("userName".to_owned(), json!(name));
        let user = match records::new_user(&self.realm.path, &record) {
            Ok(user) => user,
            Err(_) => return Ok(self.refused("no user can have the name or the attributes")),
        };
        let user = User {
            created_ms: self.now_ms,
            updated_ms: self.now_ms,
            ..user
        };
        let link = self.identity(&user);
        audit::user(&user);
        let write = async |audit: Option<&PendingAudit>| {
            let store = &self.state.store;
            store.insert_federated_user(&user, &link, audit).await
        };
        let told = |event: Event| self.facts(event);
        match audit::with(self.state, Kind::UserCreate, told, write).await {
            Ok(()) => {
                self.state.forget();
                Ok(Some(user))
            }
            Err(StoreError::Taken(_)) => self.made_meanwhile().await,
            Err(error) => Err(error.into()),
        }
    }

    /// The user whom the same entry made in another tab just now.
    async fn made_meanwhile(&self) -> Result<Option<User>, Fault> {
        let (store, issuer) = (&self.state.store, self.directory.issuer());
        let found = store.federated_user(&self.realm.path, &issuer, &self.entry.id);
        match found.await? {
            Some((_, user)) => Ok(Some(user)),
            None => Ok(self.refused("the name is taken")),
        }
    }

    /// Notes that a link was used, and takes over what the entry says.
    async fn seen(&self, link: &FederatedIdentity, user: User) -> Result<Option<User>, Fault> {
        let store = &self.state.store;
        let used = FederatedIdentity {
            email: self.mapped_attributes.email().map(str::to_owned),
            used_ms: self.now_ms,
            ..link.clone()
        };
        store.touch_identity(&used).await?;
        if !self.directory.written.update || !user.active {
            return Ok(Some(user));
        }
        let mut profile = user.profile.clone();
        self.mapped_attributes
            .apply(&mut profile, link.email.as_deref());
        if profile == user.profile {
            return Ok(Some(user));
        }
        let changed = User {
            profile,
            version: user.version + 1,
            updated_ms: self.now_ms,
            ..user.clone()
        };
        match store.update_user(&changed, None).await {
            Ok(()) => {
                self.state.forget();
                Ok(Some(changed))
            }
            // Somebody changes it just now: the next time, then.
            Err(StoreError::Conflict(_)) => Ok(store.user(&user.realm, user.id).await?),
            Err(error) => Err(error.into()),
        }
    }
}
