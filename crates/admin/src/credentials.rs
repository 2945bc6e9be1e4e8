//! The credentials of consumers: their endpoints, and what becomes of secrets on
//! their way to the store and into answers.

use std::any::Any;
use std::sync::Arc;

use http::Method;
use serde_json::{Map, Value};

use super::call::Call;
use super::draft::{self, Draft, Key};
use super::endpoint::{Endpoint, child, children, collection, item, parent};
use super::entity::{self, Answer, Owner};
use super::error::ApiError;
use doorward_core::model::consumer::Consumer;
use doorward_core::model::credential::{
    Acl, BasicAuth, Credential, HmacAuth, Jwt, KeyAuth, MASK, OAuth2,
};
use doorward_core::model::secret::Secret;
use doorward_gateway::entities::{Entities, Item, Kind, Record, Scheme, membership, typed};
use doorward_gateway::records::{Disclosure, Resource};
use doorward_plugins::basic_auth;

/// Of each scheme the paths below a consumer, those of all credentials, and the way
/// back to the consumer. The open part is called as the records of the scheme are.
macro_rules! endpoints {
    ($($scheme:ty: $nested:literal, $flat:literal, $part:literal $(, $item:expr)?;)*) => {
        &[$(
            children::<Consumer, Credential<$scheme>>(concat!("/consumers/{consumers}/", $nested)),
            child::<Consumer, Credential<$scheme>>(
                concat!("/consumers/{consumers}/", $nested, "/", $part)
            )$(.with($item))?,
            collection::<Credential<$scheme>>(concat!("/", $flat)),
            item::<Credential<$scheme>>(concat!("/", $flat, "/", $part)),
            parent::<Credential<$scheme>, Consumer>(
                concat!("/", $flat, "/", $part, "/consumer")
            ),
        )*]
    };
}

/// The endpoints of credentials.
pub(super) static ENDPOINTS: &[Endpoint] = endpoints! {
    KeyAuth: "key-auth", "key-auths", "{keyauth_credentials}";
    BasicAuth: "basic-auth", "basic-auths", "{basicauth_credentials}";
    Jwt: "jwt", "jwts", "{jwt_secrets}";
    HmacAuth: "hmac-auth", "hmac-auths", "{hmacauth_credentials}";
    OAuth2: "oauth2", "oauth2", "{oauth2_credentials}";
    Acl: "acls", "acls", "{acls}", group;
};

/// `/consumers/{consumer}/acls/{id or group}`: groups are unique within a consumer.
fn group(call: Call) -> Answer {
    Box::pin(async move {
        let (owner, mut key) = (call.key(0), call.key(1));
        let entities = call.state.control.entities();
        let consumer = draft::find::<Consumer>(&entities, &owner).ok_or(ApiError::NotFound)?;
        let consumer = consumer.value.id;
        // A PUT may also make the membership that has the group of the path.
        if let Key::Name(name) = &key
            && call.method != Method::PUT
        {
            let unique = membership(name, consumer);
            let member = entities.credentials.groups.find(&unique);
            key = member.map_or(key, |record| Key::Id(record.value.id));
        }
        let owner = Owner::of::<Consumer, Credential<Acl>>(Key::Id(consumer));
        entity::item_of::<Credential<Acl>>(call, Some(owner), key).await
    })
}

/// The secret of a credential that is being written.
pub(super) struct SecretInput {
    field: Option<&'static str>,
    /// Whether the mask stands for the secret that is there.
    keeps: bool,
    /// Whether the answer shows it: only who has just made it needs it.
    fresh: bool,
    disclosure: Disclosure,
}

impl SecretInput {
    /// Reads what `new` says of a secret, and hashes a password.
    ///
    /// # Errors
    /// If the password can't be hashed.
    pub(super) async fn read<T: Resource>(
        call: &Call,
        new: &mut Draft,
        patches: bool,
    ) -> Result<Self, ApiError> {
        let scheme = match T::KIND {
            Kind::Credential(scheme) => Some(scheme),
            _ => None,
        };
        let field = scheme.and_then(Scheme::secret);
        let given = field.and_then(|field| new.input.get(field));
        let keeps = given.and_then(Value::as_str) == Some(MASK) && call.method != Method::POST;
        let fresh = !keeps && (!patches || given.is_some());
        if let Some(field) = field.filter(|_| keeps) {
            new.input.remove(field);
        }
        if scheme == Some(Scheme::BasicAuth) {
            hash_password(&mut new.input).await?;
        }
        Ok(Self {
            field,
            keeps,
            // A password is shown to nobody; its hash is of use to nobody else.
            fresh: fresh && scheme.is_some_and(|scheme| scheme != Scheme::BasicAuth),
            disclosure: call.disclosure(),
        })
    }

    /// Puts in the secret of the old record that a new one is to keep.
    pub(super) fn keep<T: Resource>(&self, old: Option<&Arc<Record<T>>>, new: &mut Draft) {
        if let (true, Some(field), Some(old)) = (self.keeps, self.field, old)
            && let Some(secret) = old.doc().remove(field)
        {
            new.input.insert(field.to_owned(), secret);
        }
    }

    /// How the record is shown to who has written it.
    pub(super) fn shown<T: Resource>(
        &self,
        record: &Record<T>,
        entities: &Entities,
    ) -> Map<String, Value> {
        let disclosure = Disclosure {
            secrets: self.disclosure.secrets || self.fresh,
            ..self.disclosure
        };
        T::show(record, entities, disclosure)
    }

    /// The record as it is stored.
    pub(super) fn stored<T: Resource>(&self, mut record: Record<T>) -> Record<T> {
        if !self.disclosure.secrets {
            conceal(&mut record);
        }
        record
    }
}

/// Puts the hash of a key, or of the secret of an application, in its place.
fn conceal(record: &mut dyn Any) {
    if let Some(record) = record.downcast_mut::<Record<Credential<KeyAuth>>>() {
        record.value.scheme.conceal();
    } else if let Some(record) = record.downcast_mut::<Record<Credential<OAuth2>>>() {
        record.value.scheme.conceal();
    }
}

/// Puts the hash of a password in its place.
async fn hash_password(input: &mut Map<String, Value>) -> Result<(), ApiError> {
    let Some(Value::String(password)) = input.get_mut("password") else {
        return Ok(());
    };
    if password.is_empty() || basic_auth::is_hash(password) || password == MASK {
        return Ok(());
    }
    let text = Secret::new(std::mem::take(password));
    let hash = tokio::task::spawn_blocking(move || basic_auth::hash(text.expose())).await;
    let hash = hash
        .ok()
        .flatten()
        .ok_or_else(|| ApiError::Form("the password could not be hashed".to_owned()))?;
    hash.expose().clone_into(password);
    Ok(())
}

/// A record of an imported document as it is stored: secrets hashed. A password that
/// fits the hash in force keeps it.
pub(super) fn stored_item(
    item: Arc<dyn Item>,
    current: &Entities,
    disclosure: Disclosure,
) -> Arc<dyn Item> {
    if let Some(record) = typed::<Credential<KeyAuth>>(&*item)
        && !disclosure.secrets
    {
        let mut record = record.clone();
        record.value.scheme.conceal();
        return Arc::new(record);
    }
    if let Some(record) = typed::<Credential<OAuth2>>(&*item)
        && !disclosure.secrets
    {
        let mut record = record.clone();
        record.value.scheme.conceal();
        return Arc::new(record);
    }
    if let Some(record) = typed::<Credential<BasicAuth>>(&*item) {
        let mut record = record.clone();
        let old = current.credentials.passwords.get(record.value.id);
        let old = old.map(|old| &old.value.scheme.password);
        let password = &mut record.value.scheme.password;
        if let Some(hash) = basic_auth::hash_of(password, old) {
            *password = hash;
        }
        return Arc::new(record);
    }
    item
}
