//! Pairwise subjects (OpenID Connect Core §8.1): clients of different sectors
//! know a user by different names, and can't compare them.
//!
//! A name is the user's identifier, encrypted with a key of the sector: always
//! the same, of one user only, and read back without a look-up. The secret
//! behind these keys is made once and never changes, or every user would be
//! somebody else to those clients.

use std::borrow::Cow;
use std::sync::Arc;

use aws_lc_rs::cipher::{AES_256, DecryptingKey, DecryptionContext, EncryptingKey};
use aws_lc_rs::cipher::{AES_256_KEY_LEN, UnboundCipherKey};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use url::Url;
use uuid::Uuid;

use super::State;
use super::clients::LiveClient;
use super::config::SubjectSource;
use super::error::Fault;
use super::realm::Realm;
use doorward_core::jose::vault::Vault;
use doorward_core::model::client::{ClientMetadata, SubjectType};
use doorward_core::model::user::User;
use doorward_core::model::user::schema::RecordError;
use doorward_store::{Store, StoreError, shared_secret};

/// What the store calls the secret.
const NAME: &str = "pairwise subjects";

/// The secret that the keys of all sectors, and of browsers' forms, are made of.
#[derive(Clone)]
pub(super) struct Salt(hmac::Key);

impl std::fmt::Debug for Salt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Salt")
    }
}

impl Salt {
    /// The secret of this store, brought under the master key of now; it is made
    /// when there is none.
    pub(super) async fn open(store: &Store, vault: &Vault) -> Result<Self, Fault> {
        let bytes = shared_secret(store, vault, NAME).await?;
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }

    /// The sector of a client, if its subjects are pairwise.
    pub(super) fn sector(&self, realm: &Realm, metadata: &ClientMetadata) -> Option<Sector> {
        if metadata.subject_type != Some(SubjectType::Pairwise) {
            return None;
        }
        // A record without a sector is not made.
        let host = host(metadata).unwrap_or_else(|| format!("client\n{}", metadata.client_id));
        let tag = hmac::sign(&self.0, format!("{}\n{host}", realm.path).as_bytes());
        let mut key = [0; AES_256_KEY_LEN];
        key.copy_from_slice(tag.as_ref());
        Sector::new(&key)
    }
}

impl Salt {
    /// The key for one purpose of all nodes that share the store.
    pub(super) fn key_for(&self, purpose: &str) -> hmac::Key {
        let tag = hmac::sign(&self.0, format!("purpose\n{purpose}").as_bytes());
        hmac::Key::new(hmac::HMAC_SHA256, tag.as_ref())
    }

    /// A key for the browser with this secret, which it can't make itself.
    pub(super) fn browser_key(&self, secret: &str) -> hmac::Key {
        // Realms begin with a slash: no sector has the same tag.
        let tag = hmac::sign(&self.0, format!("browser\n{secret}").as_bytes());
        hmac::Key::new(hmac::HMAC_SHA256, tag.as_ref())
    }
}

/// Clients that know their users by the same names.
#[derive(Debug)]
pub(super) struct Sector {
    // One block that never repeats: nothing else but the block itself is needed.
    encrypting: EncryptingKey,
    decrypting: DecryptingKey,
}

impl Sector {
    fn new(key: &[u8; AES_256_KEY_LEN]) -> Option<Self> {
        let unbound = || UnboundCipherKey::new(&AES_256, key).ok();
        Some(Self {
            encrypting: EncryptingKey::ecb(unbound()?).ok()?,
            decrypting: DecryptingKey::ecb(unbound()?).ok()?,
        })
    }

    /// What the clients call this user.
    fn name_of(&self, user: Uuid) -> String {
        let mut block = user.into_bytes();
        match self.encrypting.encrypt(&mut block) {
            Ok(_) => URL_SAFE_NO_PAD.encode(block),
            // One whole block always can be; nothing must leave in clear.
            Err(_) => String::new(),
        }
    }

    /// Whom the clients call so; anything that was made up is nobody's name.
    fn named(&self, name: &str) -> Option<Uuid> {
        let mut block = [0; 16];
        if URL_SAFE_NO_PAD.decode_slice(name, &mut block) != Ok(16) {
            return None;
        }
        let decrypted = self.decrypting.decrypt(&mut block, DecryptionContext::None);
        decrypted.ok()?;
        Some(Uuid::from_bytes(block))
    }
}

impl LiveClient {
    /// What the client calls this user: `sub` of everything that it is told.
    pub(super) fn subject<'u>(&self, user: &'u User) -> Cow<'u, str> {
        match (&self.sector, self.subjects) {
            (None, SubjectSource::Name) => user.public_name(),
            _ => self.subject_of(user.id, ""),
        }
    }

    /// As [`LiveClient::subject`], of a user that may be gone and had this public
    /// name.
    pub(super) fn subject_of<'u>(&self, id: Uuid, public_name: &'u str) -> Cow<'u, str> {
        match (&self.sector, self.subjects) {
            (Some(sector), _) => Cow::Owned(sector.name_of(id)),
            (None, SubjectSource::Id) => Cow::Owned(id.to_string()),
            (None, SubjectSource::Name) => Cow::Borrowed(public_name),
        }
    }
}

impl State {
    /// The user whom this client calls `subject`.
    pub(super) async fn user_called(
        &self,
        realm: &Realm,
        client: &LiveClient,
        subject: &str,
    ) -> Result<Option<Arc<User>>, StoreError> {
        match &client.sector {
            None => self.user_of_subject(realm, subject).await,
            Some(sector) => match sector.named(subject) {
                Some(id) => self.users.by_id(&self.store, &realm.path, id).await,
                None => Ok(None),
            },
        }
    }

    /// The user whom clients without a sector call `subject`: by identifier or by
    /// name, whichever tokens of the realm say today. A name that was another
    /// user's before is nobody's `sub`.
    pub(super) async fn user_of_subject(
        &self,
        realm: &Realm,
        subject: &str,
    ) -> Result<Option<Arc<User>>, StoreError> {
        let (store, users, path) = (&*self.store, &self.users, &realm.path);
        let id = Some(subject).filter(|text| text.len() == 36);
        let id = id.and_then(|text| Uuid::try_parse(text).ok());
        // Names may look like identifiers: neither of the two costs a look-up
        // each time.
        if let Some(user) = id.and_then(|id| users.known_by_id(store, path, id)) {
            return Ok(Some(user));
        }
        let by_name = users.by_name(store, path, subject).await?;
        match (by_name.filter(|user| !user.name_reused), id) {
            (None, Some(id)) => users.by_id(store, path, id).await,
            (by_name, _) => Ok(by_name),
        }
    }

    /// The name of the user whom this client calls `subject`; empty, as no name
    /// is, where there is none.
    pub(super) async fn name_called(
        &self,
        realm: &Realm,
        client: &LiveClient,
        subject: &str,
    ) -> Result<String, StoreError> {
        let user = self.user_called(realm, client, subject).await?;
        Ok(user.map_or_else(String::new, |user| user.user_name.clone()))
    }
}

/// The host that tells the sector (§8.1).
fn host(metadata: &ClientMetadata) -> Option<String> {
    let host = |uri: &str| {
        let url = Url::parse(uri).ok()?;
        url.host_str().map(str::to_ascii_lowercase)
    };
    if let Some(uri) = &metadata.sector_identifier_uri {
        return host(uri);
    }
    let mut hosts = metadata.redirect_uris.iter().map(|uri| host(uri));
    let first = hosts.next()??;
    hosts
        .all(|other| other.as_ref() == Some(&first))
        .then_some(first)
}

/// Checks that a client with pairwise subjects has a sector.
///
/// # Errors
/// The member that is missing or wrong.
pub(super) fn check(metadata: &ClientMetadata) -> Result<(), RecordError> {
    if metadata.subject_type != Some(SubjectType::Pairwise) || host(metadata).is_some() {
        return Ok(());
    }
    let text = "is required with subject_type pairwise, unless all redirect_uris have one host";
    Err(RecordError::new("sector_identifier_uri", text))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use doorward_core::jose::keys::KeyError;
    use doorward_core::model::secret::Secret;

    fn client(more: Value) -> ClientMetadata {
        let mut record = json!({"client_id": "app", "subject_type": "pairwise"});
        for (name, value) in more.as_object().expect("an object") {
            record[name] = value.clone();
        }
        serde_json::from_value(record).expect("metadata")
    }

    #[test]
    fn a_name_is_the_sectors_own_and_leads_back_to_its_user_only_there() {
        let one = Sector::new(&[1; 32]).expect("a sector");
        let other = Sector::new(&[2; 32]).expect("a sector");
        let (anna, bert) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let name = one.name_of(anna);
        assert_eq!(name.len(), 22);
        assert_eq!(one.name_of(anna), name);
        assert_eq!(one.named(&name), Some(anna));
        assert_ne!(one.name_of(bert), name);
        assert_ne!(other.name_of(anna), name);
        assert_ne!(other.named(&name), Some(anna));
        for made_up in ["", "anna", &name[1..], &format!("{name}A"), &"=".repeat(22)] {
            assert_eq!(one.named(made_up), None, "{made_up}");
        }
    }

    #[test]
    fn a_sector_is_a_host_and_not_a_client() {
        let of = |more| host(&client(more));
        let redirects =
            json!({"redirect_uris": ["https://App.example/a", "https://app.example/b"]});
        assert_eq!(of(redirects).as_deref(), Some("app.example"));
        let named = json!({
            "redirect_uris": ["https://one.example/", "https://two.example/"],
            "sector_identifier_uri": "https://sector.example/all.json",
        });
        assert_eq!(of(named).as_deref(), Some("sector.example"));
        for unclear in [
            json!({}),
            json!({"redirect_uris": ["https://one.example/", "https://two.example/"]}),
            json!({"redirect_uris": ["com.example.app:/cb"]}),
        ] {
            let metadata = client(unclear);
            let error = check(&metadata).expect_err("no sector");
            assert_eq!(error.path, "sector_identifier_uri");
        }
    }

    #[tokio::test]
    async fn the_secret_stays_the_same_under_another_master_key() {
        let directory = tempfile::tempdir().expect("a directory");
        let url = format!("sqlite:{}", directory.path().join("db").display());
        let store = doorward_store::open(&url).await.expect("a store");
        let vault = |texts: &[&str]| {
            let texts: Vec<_> = texts.iter().map(|text| Secret::new(*text)).collect();
            Vault::new(&texts).expect("a vault")
        };
        let (one, two) = ("1".repeat(32), "2".repeat(32));
        let tag = async |texts: &[&str]| {
            let salt = Salt::open(&store, &vault(texts)).await;
            salt.map(|Salt(key)| hmac::sign(&key, b"x").as_ref().to_vec())
        };
        let first = tag(&[]).await.expect("made");
        assert_eq!(tag(&[&one]).await.expect("sealed"), first);
        assert!(matches!(
            tag(&[&two]).await,
            Err(Fault::Key(KeyError::Sealed))
        ));
        assert_eq!(tag(&[&two, &one]).await.expect("taken over"), first);
        assert_eq!(tag(&[&two]).await.expect("opened"), first);
    }
}
