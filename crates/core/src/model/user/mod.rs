//! People who sign in.

pub mod attributes;
pub mod import;
pub mod name;
pub mod name_place;
pub mod schema;

use std::borrow::Cow;

use serde_json::{Map, Value};
use uuid::Uuid;

use super::secret::Secret;

/// Who may change a record of the identity provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Made by an interface or the command line: kept in the store alone.
    Store,
    /// Declared in the configuration file: changed and removed only there.
    File,
    /// A client that registered itself (RFC 7591): what it says of itself is a
    /// stranger's word.
    Client,
}

impl Owner {
    /// The word that the store keeps.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::File => "file",
            Self::Client => "client",
        }
    }

    /// The owner that `word` names, if any.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "store" => Some(Self::Store),
            "file" => Some(Self::File),
            "client" => Some(Self::Client),
            _ => None,
        }
    }
}

/// A user of a realm.
#[derive(Clone, Debug)]
pub struct User {
    /// Its identifier: never reused.
    pub id: Uuid,
    /// Path of its realm: `/` or `/a/b`.
    pub realm: String,
    /// The name to sign in with; its [`name::key`] is unique in the realm.
    pub user_name: String,
    /// Whether the name was another user's before: `sub` is the identifier then.
    /// The store says so, and does not take it from whoever writes a user.
    pub name_reused: bool,
    /// The hash: Argon2id in PHC form, or as another system made it, until the
    /// next sign-in; `None`: no password of its own (none at all,
    /// or one that only the configuration file holds).
    pub password_hash: Option<Secret>,
    /// Whether the user may sign in: `accountStatus` `Active`.
    pub active: bool,
    /// Who may change it.
    pub owner: Owner,
    /// Grows by one with each change.
    pub version: i64,
    /// Creation, in milliseconds since the epoch.
    pub created_ms: i64,
    /// Last change, in milliseconds since the epoch.
    pub updated_ms: i64,
    /// All other attributes, as [`schema::canonical`] left them.
    pub profile: Map<String, Value>,
}

impl User {
    /// What tokens call the user where `sub` is the name: the name, if it never
    /// was another user's.
    pub fn public_name(&self) -> Cow<'_, str> {
        if self.name_reused {
            Cow::Owned(self.id.to_string())
        } else {
            Cow::Borrowed(&self.user_name)
        }
    }
}

/// The name of a user who was deleted, or got another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetiredName {
    /// Path of its realm.
    pub realm: String,
    /// The name without differences of case and width.
    pub key: String,
    /// The name as it was written.
    pub user_name: String,
    /// Whose it was.
    pub user_id: Uuid,
    /// Since when it is free, in milliseconds since the epoch.
    pub retired_ms: i64,
}

/// `text` with differences of case removed, for comparisons. Names of users are
/// compared by [`name::key`].
///
/// Upper case first, so that letters with several lower-case forms (the Greek
/// sigma, the German sharp s) meet in one.
pub fn fold(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.chars()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::fold;

    #[test]
    fn folding_removes_every_difference_of_case() {
        assert_eq!(fold("Demo"), fold("dEMO"));
        assert_eq!(fold("ΟΔΟΣ"), fold("οδος"));
        assert_eq!(fold("STRASSE"), fold("straße"));
        assert_ne!(fold("demo"), fold("demo2"));
    }
}
