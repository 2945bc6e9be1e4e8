//! The kinds of events.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Declares the kinds with their names and what they are for.
macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)*) => {
        /// What has happened: a closed list.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind {
            $($(#[doc = $doc])+ $variant,)*
        }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name in records, queries and the configuration file.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

kinds! {
    /// Somebody signed in, or was refused.
    SessionBegin = "session.begin",
    /// A session ended.
    SessionEnd = "session.end",
    /// A second factor was shown, or a wrong one.
    FactorVerify = "factor.verify",
    /// A second factor was enrolled.
    FactorCreate = "factor.create",
    /// A second factor was removed.
    FactorDelete = "factor.delete",
    /// A password was changed by who knew the old one, or by an administrator.
    PasswordChange = "password.change",
    /// A link to reset a password was asked for, or used.
    PasswordReset = "password.reset",
    /// A name or an address was locked after wrong passwords.
    LockoutBegin = "lockout.begin",
    /// Such a lock was lifted.
    LockoutEnd = "lockout.end",
    /// The name of a former user was released: tokens may call another user so.
    NameRelease = "name.release",
    /// An account of another provider was linked to a user.
    LinkCreate = "link.create",
    /// Such a link was removed.
    LinkDelete = "link.delete",
    /// An authorization request was answered with a code, or refused.
    CodeIssue = "code.issue",
    /// Tokens were issued, or refused.
    TokenIssue = "token.issue",
    /// One access token was revoked.
    TokenRevoke = "token.revoke",
    /// A grant was revoked with all its tokens.
    GrantRevoke = "grant.revoke",
    /// A protected endpoint refused the token that it was shown.
    TokenRefuse = "token.refuse",
    /// A client did not prove who it is, away from the token endpoint.
    ClientRefuse = "client.refuse",
    /// A user let a client have scopes, or refused.
    ConsentGive = "consent.give",
    /// A consent was taken back.
    ConsentRevoke = "consent.revoke",
    /// A device asked for codes, or was refused.
    DeviceBegin = "device.begin",
    /// A user decided on a device's request.
    DeviceDecide = "device.decide",
    /// A user was made.
    UserCreate = "user.create",
    /// A user was changed.
    UserUpdate = "user.update",
    /// A user was deleted.
    UserDelete = "user.delete",
    /// Users were imported.
    UserImport = "user.import",
    /// A group was made.
    GroupCreate = "group.create",
    /// A group, or who is in it, was changed.
    GroupUpdate = "group.update",
    /// A group was deleted.
    GroupDelete = "group.delete",
    /// A client was made, or registered itself.
    ClientCreate = "client.create",
    /// A client was changed.
    ClientUpdate = "client.update",
    /// A client got another secret.
    ClientSecret = "client.secret",
    /// A client was deleted.
    ClientDelete = "client.delete",
    /// A realm was made.
    RealmCreate = "realm.create",
    /// The settings of a realm were changed.
    RealmUpdate = "realm.update",
    /// A realm was deleted.
    RealmDelete = "realm.delete",
    /// An initial access token was made.
    InitialTokenCreate = "initial_token.create",
    /// An initial access token was deleted.
    InitialTokenDelete = "initial_token.delete",
    /// A signing key was made to take over.
    KeyRotate = "key.rotate",
    /// Another provider, a directory or the mail relay was asked whether it answers.
    ConnectionTest = "connection.test",
    /// An entity of the gateway was made.
    EntityCreate = "entity.create",
    /// An entity of the gateway was changed, or made under a given name.
    EntityUpdate = "entity.update",
    /// An entity of the gateway was deleted.
    EntityDelete = "entity.delete",
    /// All entities of the store were replaced by a document.
    EntityImport = "entity.import",
    /// The health of a target was set by hand.
    TargetHealth = "target.health",
    /// Sessions of users who had signed in through the gateway were ended.
    LoginEnd = "login.end",
    /// The counters of a partition were forgotten.
    ThrottlingReset = "throttling.reset",
    /// The level of the process's log was changed.
    LogLevel = "log.level",
    /// A certificate was ordered from an authority.
    CertificateOrder = "certificate.order",
    /// The configuration files were read again.
    ConfigReload = "config.reload",
    /// The process started.
    ProcessStart = "process.start",
    /// The process ended in order.
    ProcessStop = "process.stop",
    /// The admin listener refused a request.
    AdminRefuse = "admin.refuse",
    /// The store was exported.
    StoreExport = "store.export",
    /// The store was imported.
    StoreImport = "store.import",
}

impl Kind {
    /// The kind of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == name)
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Cow::<str>::deserialize(deserializer)?;
        Self::parse(&name)
            .ok_or_else(|| serde::de::Error::custom(format!("`{name}` is no kind of event")))
    }
}

impl Serialize for Kind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_one_name() {
        let mut names: Vec<_> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Kind::ALL.len());
        for kind in Kind::ALL {
            assert_eq!(Kind::parse(kind.as_str()), Some(*kind));
        }
        assert_eq!(Kind::parse("session"), None);
    }

    #[test]
    fn every_kind_is_in_the_manual() {
        let manual = include_str!("../../../../../docs/audit.md");
        for kind in Kind::ALL {
            let named = format!("| `{}` |", kind.as_str());
            assert!(manual.contains(&named), "{named} is not in docs/audit.md");
        }
    }
}
