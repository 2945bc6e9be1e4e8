//! Realms as their operators see them.

use aws_lc_rs::hmac;
use serde_json::{Map, Value, json};

use super::config::IdentityConfig;
use super::realm::{Live, Realm};
use super::{Identity, IdentityError, federation};
use doorward_core::model::audit::PendingAudit;
use doorward_core::model::federation::FederatedIdentity;
use doorward_core::model::registration::StoredRealm;
use doorward_store::Store;

impl Identity {
    /// Checks a realm that is to be in the store, below those of `config` and
    /// those that are `stored`.
    ///
    /// # Errors
    /// [`IdentityError::Config`] names what can't be.
    pub fn check_realm(
        config: IdentityConfig,
        stored: Vec<StoredRealm>,
        realm: &StoredRealm,
    ) -> Result<(), IdentityError> {
        let live = compiled(config, stored)?;
        let checked = live.checked_settings(&realm.path, realm.settings.clone());
        checked.map_err(|error| IdentityError::in_realm(&realm.path, error))
    }

    /// All realms of `config` and those that are `stored`, by path: what they
    /// set and what is in force in them.
    ///
    /// # Errors
    /// [`IdentityError::Config`] names what is wrong in `config`.
    pub fn describe_realms(
        config: IdentityConfig,
        stored: Vec<StoredRealm>,
    ) -> Result<Vec<Value>, IdentityError> {
        let live = compiled(config, stored)?;
        let mut realms: Vec<_> = live.realms().collect();
        realms.sort_by(|a, b| a.path.cmp(&b.path));
        let shown = realms.into_iter().map(|realm| describe(&live, realm));
        Ok(shown.collect())
    }

    /// Removes a link of a user, as the running program does, in a realm of `config`
    /// or of the store. Says whether it was there.
    ///
    /// # Errors
    /// [`IdentityError::Config`] names what is wrong in `config`.
    pub async fn unlink(
        config: IdentityConfig,
        store: &Store,
        link: &FederatedIdentity,
        now_ms: i64,
        audit: Option<&PendingAudit>,
    ) -> Result<bool, IdentityError> {
        let live = compiled(config, store.realms().await?)?;
        let realm = live.realm(&link.realm);
        let providers = realm.map(|realm| realm.providers()).unwrap_or_default();
        Ok(federation::unlink(store, providers, link, now_ms, audit).await?)
    }
}

fn compiled(config: IdentityConfig, stored: Vec<StoredRealm>) -> Result<Live, IdentityError> {
    let (mut live, _) = Live::compile(config)?;
    live.complete(stored, None);
    Ok(live)
}

/// A realm with its settings.
pub(super) fn describe(live: &Live, realm: &Realm) -> Value {
    let mut record = summary(live, realm);
    let effective = json!(*realm.settings);
    let mut set = own_settings(live, &realm.path);
    hide(&mut set, &effective);
    record["settings"] = set;
    let shadowed = live.stored.iter().find(|stored| stored.path == realm.path);
    if let Some(shadowed) = shadowed.filter(|stored| live.is_shadowed(stored)) {
        let mut shadowed = Value::Object(shadowed.settings.clone());
        hide(&mut shadowed, &effective);
        record["settings_not_in_force"] = shadowed;
    }
    record["effective_settings"] = effective;
    record
}

/// What a realm sets itself, secrets among it.
fn own_settings(live: &Live, path: &str) -> Value {
    match live.config.realms.get(path) {
        Some(declared) => json!(declared.settings),
        None => {
            let stored = live.stored.iter().find(|stored| stored.path == path);
            Value::Object(stored.map_or_else(Map::new, |stored| stored.settings.clone()))
        }
    }
}

/// What tells versions of a realm's own settings apart.
///
/// Secrets count as well. A version says nothing of one to whoever lacks the key, which
/// all nodes of a store share.
pub(super) struct RealmVersions(hmac::Key);

impl RealmVersions {
    pub(super) fn new(key: hmac::Key) -> Self {
        Self(key)
    }

    /// The version of the realm of this path.
    pub(super) fn of(&self, live: &Live, path: &str) -> i64 {
        let settings = own_settings(live, path).to_string();
        let tag = hmac::sign(&self.0, settings.as_bytes());
        // Whole numbers of JSON are exact up to 53 bits (RFC 8259 section 6).
        let bytes = tag.as_ref().iter().take(6);
        bytes.fold(0, |sum, byte| sum << 8 | i64::from(*byte))
    }
}

/// Takes away what is not shown in force, at any depth: that is a secret.
fn hide(set: &mut Value, effective: &Value) {
    match (set, effective) {
        (Value::Object(set), Value::Object(shown)) => {
            set.retain(|name, _| shown.contains_key(name));
            for (name, value) in set {
                hide(value, &shown[name]);
            }
        }
        (Value::Array(set), Value::Array(shown)) if set.len() == shown.len() => {
            for (value, shown) in set.iter_mut().zip(shown) {
                hide(value, shown);
            }
        }
        // Of another realm's form: nothing is known of what is in it.
        (set @ (Value::Object(_) | Value::Array(_)), _) => *set = Value::Null,
        _ => {}
    }
}

/// A realm without its settings.
pub(super) fn summary(live: &Live, realm: &Realm) -> Value {
    let declared = live.config.realms.contains_key(&realm.path);
    json!({
        "path": realm.path,
        "issuer": realm.issuer,
        "owner": if declared { "file" } else { "store" },
    })
}
