//! Settings that a realm has from the realm above it.
//!
//! A setting is taken over whole: a list or an object that a realm sets takes
//! the place of its parent's. One that is set to null is as if nobody had set
//! it.

use std::sync::Arc;

use ipnet::IpNet;
use serde_json::{Map, Value};

use super::config::RealmSettings;
use super::federation::{self, Provider};
use super::goto_url::GotoUrls;
use super::ldap::Directory;
use super::own_settings::OwnSettings;
use super::password_policy::Rules;
use super::settings::{self, AssertionIssuer};
use doorward_core::model::serde_message;
use doorward_core::model::user::schema::RecordError;

/// The settings that are in force in a realm, ready for requests. Realms that
/// set nothing share those of their parent.
#[derive(Clone, Debug, Default)]
pub(super) struct EffectiveSettings {
    /// All that this realm and those above it set.
    written: Arc<Map<String, Value>>,
    pub(super) settings: Arc<RealmSettings>,
    pub(super) admin_networks: Option<Arc<[IpNet]>>,
    pub(super) trusted: Arc<[AssertionIssuer]>,
    pub(super) goto_urls: Arc<GotoUrls>,
    pub(super) passwords: Arc<Rules>,
    pub(super) providers: Arc<[Arc<Provider>]>,
    pub(super) directory: Option<Arc<Directory>>,
}

impl EffectiveSettings {
    /// Whether the same settings are in force.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.written, &other.written) || self.written == other.written
    }

    /// What is in force below these settings in a realm with its `own`.
    pub(super) fn below(&self, own: &OwnSettings) -> Result<Self, RecordError> {
        if own.0.is_empty() {
            return Ok(self.clone());
        }
        read(&own.0)?;
        let mut written = Map::clone(&self.written);
        for (name, value) in &own.0 {
            if value.is_null() {
                written.remove(name);
            } else {
                written.insert(name.clone(), value.clone());
            }
        }
        let settings = read(&written)?;
        settings::check(&settings)?;
        Ok(Self {
            admin_networks: settings::networks(&settings)?.map(Arc::from),
            trusted: settings::trusted(&settings)?.into(),
            goto_urls: Arc::new(GotoUrls::parse(&settings.goto_urls)?),
            passwords: Rules::read(&settings.password_policy, &self.passwords)?,
            providers: federation::compile(&settings)?.into(),
            directory: Directory::compile(&settings)?,
            settings: Arc::new(settings),
            written: Arc::new(written),
        })
    }
}

/// Checks what a realm is to set, whatever is set above it.
///
/// # Errors
/// The setting that can't be.
pub fn check_settings(settings: Map<String, Value>) -> Result<(), RecordError> {
    let own = OwnSettings::from(settings);
    EffectiveSettings::default().below(&own).map(drop)
}

fn read(written: &Map<String, Value>) -> Result<RealmSettings, RecordError> {
    let set = written.iter().filter(|(_, value)| !value.is_null());
    let set: Map<_, _> = set.map(|(n, v)| (n.clone(), v.clone())).collect();
    serde_path_to_error::deserialize(Value::Object(set)).map_err(|error| {
        let path = error.path().to_string();
        let path = if path == "." { String::new() } else { path };
        RecordError::new(path, serde_message::plain(&error.inner().to_string()))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn own(settings: Value) -> OwnSettings {
        serde_json::from_value(settings).expect("an object")
    }

    #[test]
    fn what_is_not_set_is_the_parents() {
        let top = own(json!({
            "access_token_lifetime": 60, "default_scope": "a", "users_scope": "u",
            "admin_addresses": ["10.0.0.0/8"],
        }));
        let top = EffectiveSettings::default().below(&top).expect("settings");
        let child = own(json!({"default_scope": "b", "users_scope": null}));
        let child = top.below(&child).expect("settings");
        assert_eq!(child.settings.access_token_lifetime, 60);
        assert_eq!(child.settings.default_scope, "b");
        assert_eq!(child.settings.users_scope, None);
        assert_eq!(child.settings.code_lifetime, 60, "nobody's setting");
        assert_eq!(child.admin_networks.as_deref().map(<[_]>::len), Some(1));
        let same = child.below(&OwnSettings::default()).expect("settings");
        assert!(Arc::ptr_eq(&same.settings, &child.settings));
    }

    #[test]
    fn a_wrong_setting_is_named() {
        let refused = |settings| {
            let error = EffectiveSettings::default().below(&own(settings));
            let error = error.expect_err("refused");
            (error.path, error.message)
        };
        let (path, text) = refused(json!({"access_token_lifetime": "long"}));
        assert_eq!(path, "access_token_lifetime");
        assert_eq!(
            text,
            "expected a whole number from 0 to 4294967295, not a string"
        );
        let (path, text) = refused(json!({"acess_token_lifetime": 5}));
        assert!(path.contains("acess_token_lifetime"), "{path}: {text}");
        let (path, _) = refused(json!({"code_lifetime": 0}));
        assert_eq!(path, "code_lifetime");
        let (path, _) = refused(json!({"trusted_issuers": [{"issuer": 5}]}));
        assert_eq!(path, "trusted_issuers[0].issuer");
    }

    #[test]
    fn values_are_not_shown() {
        let own = own(json!({"default_scope": "hush"}));
        assert_eq!(format!("{own:?}"), r#"{"default_scope"}"#);
    }
}
