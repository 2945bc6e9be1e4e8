//! Credentials of consumers: a table for each scheme, and what is unique in it.

use std::fmt;

use serde::Serialize;
use uuid::Uuid;

use super::{AnyTable, Column, Entities, Entity, Kind, Table, Unique};
use doorward_core::model::credential::{
    Acl, BasicAuth, Credential, HmacAuth, Jwt, KeyAuth, KeyDigest, OAuth2,
};

/// What a credential proves itself by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// A key.
    KeyAuth,
    /// A name and a password.
    BasicAuth,
    /// A signed token.
    Jwt,
    /// A signed request.
    HmacAuth,
    /// An application that asks for tokens.
    OAuth2,
    /// No proof of its own: the membership in a group.
    Acl,
}

impl Scheme {
    /// Every scheme.
    pub const ALL: [Self; 6] = [
        Self::KeyAuth,
        Self::BasicAuth,
        Self::Jwt,
        Self::HmacAuth,
        Self::OAuth2,
        Self::Acl,
    ];

    /// As files and `/schemas` call credentials of it.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::KeyAuth => "keyauth_credentials",
            Self::BasicAuth => "basicauth_credentials",
            Self::Jwt => "jwt_secrets",
            Self::HmacAuth => "hmacauth_credentials",
            Self::OAuth2 => "oauth2_credentials",
            Self::Acl => "acls",
        }
    }

    /// As one is called.
    pub const fn singular(self) -> &'static str {
        match self {
            Self::KeyAuth => "keyauth_credential",
            Self::BasicAuth => "basicauth_credential",
            Self::Jwt => "jwt_secret",
            Self::HmacAuth => "hmacauth_credential",
            Self::OAuth2 => "oauth2_credential",
            Self::Acl => "acl",
        }
    }

    /// The field that paths may call one by, besides its id.
    pub const fn key(self) -> Option<&'static str> {
        match self {
            Self::KeyAuth | Self::Jwt => Some("key"),
            Self::BasicAuth | Self::HmacAuth => Some("username"),
            Self::OAuth2 => Some("client_id"),
            // A group is unique within its consumer only.
            Self::Acl => None,
        }
    }

    /// The field that is not shown.
    pub const fn secret(self) -> Option<&'static str> {
        match self {
            Self::KeyAuth => Some("key"),
            Self::BasicAuth => Some("password"),
            Self::Jwt | Self::HmacAuth => Some("secret"),
            Self::OAuth2 => Some("client_secret"),
            Self::Acl => None,
        }
    }
}

/// The credentials of all consumers, by scheme.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// Keys.
    pub keys: Table<Credential<KeyAuth>>,
    /// Names and passwords.
    pub passwords: Table<Credential<BasicAuth>>,
    /// Keys of signed tokens.
    pub tokens: Table<Credential<Jwt>>,
    /// Secrets of signed requests.
    pub signatures: Table<Credential<HmacAuth>>,
    /// Applications that ask for tokens.
    pub clients: Table<Credential<OAuth2>>,
    /// Memberships in groups.
    pub groups: Table<Credential<Acl>>,
}

impl Credentials {
    pub(super) fn table(&self, scheme: Scheme) -> &dyn AnyTable {
        match scheme {
            Scheme::KeyAuth => &self.keys,
            Scheme::BasicAuth => &self.passwords,
            Scheme::Jwt => &self.tokens,
            Scheme::HmacAuth => &self.signatures,
            Scheme::OAuth2 => &self.clients,
            Scheme::Acl => &self.groups,
        }
    }

    pub(super) fn table_mut(&mut self, scheme: Scheme) -> &mut dyn AnyTable {
        match scheme {
            Scheme::KeyAuth => &mut self.keys,
            Scheme::BasicAuth => &mut self.passwords,
            Scheme::Jwt => &mut self.tokens,
            Scheme::HmacAuth => &mut self.signatures,
            Scheme::OAuth2 => &mut self.clients,
            Scheme::Acl => &mut self.groups,
        }
    }
}

/// The fields of a scheme.
pub trait SchemeFields: Clone + fmt::Debug + PartialEq + Serialize + Send + Sync + 'static {
    /// Which scheme.
    const SCHEME: Scheme;
    /// The unique name, where it is no secret.
    fn name(&self) -> Option<&str> {
        None
    }
    /// When it ends, in seconds since the epoch.
    fn expires_at(&self) -> Option<i64> {
        None
    }
    /// What is unique about the fields of a credential of `consumer`.
    fn unique(&self, _consumer: Uuid) -> Option<Unique<'_>> {
        Unique::text(Self::SCHEME.key()?, self.name()).next()
    }
    /// What is unique about the credential that a path calls so.
    fn named(name: &str) -> Option<Unique<'_>> {
        Unique::text(Self::SCHEME.key()?, Some(name)).next()
    }
    /// The table of the scheme.
    fn table(credentials: &Credentials) -> &Table<Credential<Self>>;
    /// The table of the scheme, to be changed.
    fn table_mut(credentials: &mut Credentials) -> &mut Table<Credential<Self>>;
}

/// The scheme, and its table.
macro_rules! table {
    ($scheme:ident, $table:ident) => {
        const SCHEME: Scheme = Scheme::$scheme;

        fn table(credentials: &Credentials) -> &Table<Credential<Self>> {
            &credentials.$table
        }

        fn table_mut(credentials: &mut Credentials) -> &mut Table<Credential<Self>> {
            &mut credentials.$table
        }
    };
}

impl SchemeFields for KeyAuth {
    table!(KeyAuth, keys);

    fn expires_at(&self) -> Option<i64> {
        self.expires_at
    }

    fn unique(&self, _: Uuid) -> Option<Unique<'_>> {
        Some(Unique::of(vec![("key", Column::Digest(self.digest()?))]))
    }

    fn named(name: &str) -> Option<Unique<'_>> {
        let digest = KeyDigest::of(name);
        Some(Unique::of(vec![("key", Column::Digest(digest))]))
    }
}

impl SchemeFields for BasicAuth {
    table!(BasicAuth, passwords);

    fn name(&self) -> Option<&str> {
        Some(&self.username)
    }
}

impl SchemeFields for Jwt {
    table!(Jwt, tokens);

    fn name(&self) -> Option<&str> {
        self.key.as_deref()
    }
}

impl SchemeFields for HmacAuth {
    table!(HmacAuth, signatures);

    fn name(&self) -> Option<&str> {
        Some(&self.username)
    }
}

impl SchemeFields for OAuth2 {
    table!(OAuth2, clients);

    fn name(&self) -> Option<&str> {
        self.client_id.as_deref()
    }
}

impl SchemeFields for Acl {
    table!(Acl, groups);

    fn unique(&self, consumer: Uuid) -> Option<Unique<'_>> {
        Some(membership(&self.group, consumer))
    }

    fn named(_: &str) -> Option<Unique<'_>> {
        None
    }
}

/// What is unique about the membership of `consumer` in `group`.
pub fn membership(group: &str, consumer: Uuid) -> Unique<'_> {
    Unique::of(vec![
        ("consumer", Column::Id(Some(consumer))),
        ("group", Column::Text(group.into())),
    ])
}

impl<S: SchemeFields> Entity for Credential<S> {
    const KIND: Kind = Kind::Credential(S::SCHEME);

    fn id(&self) -> Uuid {
        self.id
    }

    fn key(&self) -> Option<&str> {
        self.scheme.name()
    }

    fn tags(&self) -> &[String] {
        self.tags.as_deref().unwrap_or_default()
    }

    fn unique(&self) -> Vec<Unique<'_>> {
        let unique = self.scheme.unique(self.consumer.id);
        unique.into_iter().collect()
    }

    fn named(name: &str) -> Option<Unique<'_>> {
        S::named(name)
    }

    fn references(&self) -> Vec<(&'static str, Uuid)> {
        vec![("consumer", self.consumer.id)]
    }

    fn table(entities: &Entities) -> &Table<Self> {
        S::table(&entities.credentials)
    }

    fn table_mut(entities: &mut Entities) -> &mut Table<Self> {
        S::table_mut(&mut entities.credentials)
    }
}
