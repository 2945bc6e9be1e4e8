//! Locks after wrong passwords, as nodes tell each other of them.

use super::grant::TokenHash;

/// How long a lock that is over is still known, in milliseconds: one that
/// follows takes longer.
pub const LOCK_KEPT_MS: i64 = 3600 * 1000;

/// What is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// A name to sign in with.
    Name,
    /// An address.
    Address,
    /// A client's secret, for an address: guesses of it are slowed down.
    Client,
}

impl LockKind {
    /// The word that the store keeps.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Address => "address",
            Self::Client => "client",
        }
    }

    /// The kind that `word` names, if any.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Name, Self::Address, Self::Client]
            .into_iter()
            .find(|kind| kind.as_str() == word)
    }

    /// What a lock of this kind is known by: names that strangers type may be
    /// passwords, so they are not kept.
    pub fn id(self, realm: &str, key: &str) -> TokenHash {
        TokenHash::of(&format!("{}\0{realm}\0{key}", self.as_str()))
    }
}

/// A lock, or the end of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLock {
    /// What it is known by.
    pub id: TokenHash,
    /// What is locked.
    pub kind: LockKind,
    /// The realm.
    pub realm: String,
    /// The identifier of the user, if there is one of the name; or the address; or
    /// the address and the client's identifier behind a blank.
    pub subject: Option<String>,
    /// Until when; 0: it was lifted.
    pub until_ms: i64,
    /// How many locks there were in a row.
    pub locks: u32,
    /// When it was set or lifted.
    pub set_ms: i64,
}
