//! What can be done with a kind of record that is known at run time only.

use std::marker::PhantomData;
use std::sync::Arc;

use serde_json::{Map, Value};
use uuid::Uuid;

use super::{Resource, finish, resolve_names, stamp};
use crate::entities::{Item, Kind, Origin, Scheme};
use doorward_core::model::ca_certificate::CaCertificate;
use doorward_core::model::certificate::Certificate;
use doorward_core::model::consumer::Consumer;
use doorward_core::model::consumer_group::{ConsumerGroup, GroupMembership};
use doorward_core::model::credential::{
    Acl, BasicAuth, Credential, HmacAuth, Jwt, KeyAuth, OAuth2,
};
use doorward_core::model::key::{Key, KeySet};
use doorward_core::model::plugin::Plugin;
use doorward_core::model::route::Route;
use doorward_core::model::schema::{Schema, Violations};
use doorward_core::model::service::Service;
use doorward_core::model::sni::Sni;
use doorward_core::model::target::Target;
use doorward_core::model::upstream::Upstream;
use doorward_core::model::vault::Vault;

/// A reference by a name that nobody has: field, kind and name.
pub type Unresolved = (&'static str, Kind, String);

/// [`Resource`] without its type.
pub trait AnyResource: Sync {
    /// The schema of this record.
    ///
    /// # Errors
    /// If the record is of no kind that there is a schema for.
    fn schema(&self, record: &Map<String, Value>) -> Result<&'static Schema, Violations>;

    /// Replaces references by name with references by id.
    ///
    /// # Errors
    /// The first name that `find` does not know.
    fn resolve_names(
        &self,
        record: &mut Map<String, Value>,
        find: &dyn Fn(Kind, &str) -> Option<Uuid>,
    ) -> Result<(), Unresolved>;

    /// Makes up what is absent or null: id and times.
    fn stamp(&self, record: &mut Map<String, Value>, id: Uuid, now_ms: i64);

    /// The complete record, if it satisfies its schema.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    fn finish(
        &self,
        record: Map<String, Value>,
        origin: Origin,
    ) -> Result<Arc<dyn Item>, Violations>;
}

struct Of<T>(PhantomData<fn() -> T>);

impl<T: Resource> AnyResource for Of<T> {
    fn schema(&self, record: &Map<String, Value>) -> Result<&'static Schema, Violations> {
        T::schema(record)
    }

    fn resolve_names(
        &self,
        record: &mut Map<String, Value>,
        find: &dyn Fn(Kind, &str) -> Option<Uuid>,
    ) -> Result<(), Unresolved> {
        resolve_names::<T>(record, find)
    }

    fn stamp(&self, record: &mut Map<String, Value>, id: Uuid, now_ms: i64) {
        stamp::<T>(record, id, now_ms);
    }

    fn finish(
        &self,
        record: Map<String, Value>,
        origin: Origin,
    ) -> Result<Arc<dyn Item>, Violations> {
        Ok(Arc::new(finish::<T>(record, origin)?))
    }
}

/// The resource of a kind.
pub fn any(kind: Kind) -> &'static dyn AnyResource {
    match kind {
        Kind::Vault => &Of::<Vault>(PhantomData),
        Kind::KeySet => &Of::<KeySet>(PhantomData),
        Kind::Key => &Of::<Key>(PhantomData),
        Kind::CaCertificate => &Of::<CaCertificate>(PhantomData),
        Kind::Certificate => &Of::<Certificate>(PhantomData),
        Kind::Sni => &Of::<Sni>(PhantomData),
        Kind::Consumer => &Of::<Consumer>(PhantomData),
        Kind::ConsumerGroup => &Of::<ConsumerGroup>(PhantomData),
        Kind::GroupMembership => &Of::<GroupMembership>(PhantomData),
        Kind::Credential(Scheme::KeyAuth) => &Of::<Credential<KeyAuth>>(PhantomData),
        Kind::Credential(Scheme::BasicAuth) => &Of::<Credential<BasicAuth>>(PhantomData),
        Kind::Credential(Scheme::Jwt) => &Of::<Credential<Jwt>>(PhantomData),
        Kind::Credential(Scheme::HmacAuth) => &Of::<Credential<HmacAuth>>(PhantomData),
        Kind::Credential(Scheme::OAuth2) => &Of::<Credential<OAuth2>>(PhantomData),
        Kind::Credential(Scheme::Acl) => &Of::<Credential<Acl>>(PhantomData),
        Kind::Upstream => &Of::<Upstream>(PhantomData),
        Kind::Target => &Of::<Target>(PhantomData),
        Kind::Service => &Of::<Service>(PhantomData),
        Kind::Route => &Of::<Route>(PhantomData),
        Kind::Plugin => &Of::<Plugin>(PhantomData),
    }
}
