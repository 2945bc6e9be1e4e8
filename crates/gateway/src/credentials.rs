//! The credentials in force, published for the plugins that authenticate. A change
//! costs what it touches: indexes lie in parts that one and the next share.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ahash::RandomState;
use uuid::Uuid;

use super::consumers::ConsumerIndex;
use super::entities::{Entities, Entity, SchemeFields};
use doorward_core::jose::algorithm::Algorithm;
use doorward_core::model::credential::{BasicAuth, Credential, HmacAuth, Jwt, KeyAuth, OAuth2};
use doorward_plugin_api::consumers::Caller;
use doorward_plugin_api::{Parts, identity};
use doorward_plugins::authentication::{Credentials, Directory, Entry, Index};
use doorward_plugins::basic_auth::{StoredPassword, is_hash};
use doorward_plugins::hmac_auth::SigningKeys;
use doorward_plugins::jwt::TokenKey;
use doorward_plugins::oauth2::Client;

/// A scheme whose credentials requests name.
trait Indexed: SchemeFields {
    /// What a credential is checked with.
    type Material;

    /// The index of the scheme.
    fn index(directory: &mut Directory) -> &mut Index<Self::Material>;

    /// What requests name it by.
    fn lookup(&self) -> Option<Box<[u8]>> {
        self.name().map(|name| name.as_bytes().into())
    }

    /// What upstreams are told of it.
    fn identifier(credential: &Credential<Self>) -> String {
        let name = credential.scheme.name();
        name.map_or_else(|| credential.id.to_string(), str::to_owned)
    }

    /// What it is checked with; `None`: it lets nobody in.
    fn material(credential: &Credential<Self>) -> Option<Self::Material>;

    /// Whether a check takes long.
    fn is_dear(_credential: &Credential<Self>) -> bool {
        false
    }
}

impl Indexed for KeyAuth {
    type Material = ();

    fn index(directory: &mut Directory) -> &mut Index<()> {
        &mut directory.keys
    }

    fn lookup(&self) -> Option<Box<[u8]>> {
        self.digest().map(|digest| digest.bytes().into())
    }

    fn material(_: &Credential<Self>) -> Option<()> {
        Some(())
    }
}

impl Indexed for BasicAuth {
    type Material = StoredPassword;

    fn index(directory: &mut Directory) -> &mut Index<StoredPassword> {
        &mut directory.passwords
    }

    fn material(credential: &Credential<Self>) -> Option<StoredPassword> {
        let password = &credential.scheme.password;
        Some(StoredPassword::read(password, credential.consumer.id))
    }

    fn is_dear(credential: &Credential<Self>) -> bool {
        is_hash(credential.scheme.password.expose())
    }
}

impl Indexed for Jwt {
    type Material = TokenKey;

    fn index(directory: &mut Directory) -> &mut Index<TokenKey> {
        &mut directory.tokens
    }

    fn material(credential: &Credential<Self>) -> Option<TokenKey> {
        let Jwt {
            secret,
            rsa_public_key,
            algorithm,
            ..
        } = &credential.scheme;
        let algorithm = Algorithm::named(algorithm)?;
        let key = TokenKey::new(algorithm, secret.as_ref(), rsa_public_key.as_deref());
        Some(key)
    }
}

impl Indexed for HmacAuth {
    type Material = SigningKeys;

    fn index(directory: &mut Directory) -> &mut Index<SigningKeys> {
        &mut directory.signatures
    }

    fn material(credential: &Credential<Self>) -> Option<SigningKeys> {
        Some(SigningKeys::new(credential.scheme.secret.as_ref()))
    }
}

impl Indexed for OAuth2 {
    type Material = Client;

    fn index(directory: &mut Directory) -> &mut Index<Client> {
        &mut directory.clients
    }

    fn material(credential: &Credential<Self>) -> Option<Client> {
        Some(Client::new(&credential.scheme))
    }
}

/// Publishes consumers and credentials, as far as they have changed since `old`.
pub(super) fn publish(parts: &Parts, old: &Entities, new: &Entities) {
    let same = new.consumers.is_same(&old.consumers)
        && new.credentials.groups.is_same(&old.credentials.groups)
        && new.consumer_groups.is_same(&old.consumer_groups)
        && new.group_memberships.is_same(&old.group_memberships);
    if !same {
        parts.consumers.publish(Box::new(ConsumerIndex::new(new)));
    }
    let mut update = Update::new(old, new);
    let published = parts.slots.get_or_default::<Credentials>();
    let mut directory = Directory::clone(&published.load());
    let mut changed = update.scheme::<KeyAuth>(&mut directory);
    changed |= update.scheme::<BasicAuth>(&mut directory);
    changed |= update.scheme::<Jwt>(&mut directory);
    changed |= update.scheme::<HmacAuth>(&mut directory);
    changed |= update.scheme::<OAuth2>(&mut directory);
    if changed {
        published.publish(directory);
    }
}

struct Update<'a> {
    old: &'a Entities,
    new: &'a Entities,
    consumers: ConsumerIndex,
    /// Whose credentials tell something else now.
    changed: HashSet<Uuid, RandomState>,
    callers: HashMap<Uuid, Arc<Caller>, RandomState>,
}

impl<'a> Update<'a> {
    fn new(old: &'a Entities, new: &'a Entities) -> Self {
        let groups = &new.credentials.groups;
        let mut changed: HashSet<Uuid, RandomState> = HashSet::default();
        changed.extend(new.consumers.changed_since(&old.consumers));
        for id in groups.changed_since(&old.credentials.groups) {
            let records = [groups.get(id), old.credentials.groups.get(id)];
            changed.extend(records.into_iter().flatten().map(|r| r.value.consumer.id));
        }
        let members = &new.group_memberships;
        for id in members.changed_since(&old.group_memberships) {
            let records = [members.get(id), old.group_memberships.get(id)];
            changed.extend(records.into_iter().flatten().map(|r| r.value.consumer.id));
        }
        // The name of a group says when its plugins come.
        for id in new.consumer_groups.changed_since(&old.consumer_groups) {
            let renamed = members.referring("consumer_group", id, None);
            changed.extend(renamed.map(|record| record.value.consumer.id));
        }
        Self {
            old,
            new,
            consumers: ConsumerIndex::new(new),
            changed,
            callers: HashMap::default(),
        }
    }

    /// Brings the index of a scheme up to date; whether anything has changed.
    fn scheme<S: Indexed>(&mut self, directory: &mut Directory) -> bool {
        let (old, new) = (
            Credential::<S>::table(self.old),
            Credential::<S>::table(self.new),
        );
        let mut ids = new.changed_since(old);
        for consumer in &self.changed {
            let own = new.referring("consumer", *consumer, None);
            ids.extend(own.map(|record| record.value.id));
        }
        ids.sort_unstable();
        ids.dedup();
        // Names first lose their credentials: one may go from one to another.
        for record in ids.iter().filter_map(|id| old.get(*id)) {
            if let Some(name) = record.value.scheme.lookup() {
                S::index(directory).remove(&name, record.value.id);
            }
        }
        for record in ids.iter().filter_map(|id| new.get(*id)) {
            let credential = &record.value;
            let entry = self.entry(credential);
            if let (Some(name), Some(entry)) = (credential.scheme.lookup(), entry) {
                S::index(directory).put(name, entry);
                directory.has_dear_passwords |= S::is_dear(credential);
            }
        }
        !ids.is_empty()
    }

    fn entry<S: Indexed>(&mut self, credential: &Credential<S>) -> Option<Entry<S::Material>> {
        let identifier = S::identifier(credential);
        let identity = identity::Credential::new(credential.id, &identifier);
        let material = S::material(credential)?;
        Some(Entry {
            credential: Arc::new(identity),
            caller: self.caller(credential.consumer.id)?,
            expires_at: credential.scheme.expires_at(),
            material,
        })
    }

    fn caller(&mut self, id: Uuid) -> Option<Arc<Caller>> {
        if let Some(caller) = self.callers.get(&id) {
            return Some(Arc::clone(caller));
        }
        let caller = Arc::new(self.consumers.by_id(id)?);
        self.callers.insert(id, Arc::clone(&caller));
        Some(caller)
    }
}
