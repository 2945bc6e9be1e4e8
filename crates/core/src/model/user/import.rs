//! Many users at once, as files of other systems bring them.

use super::User;

/// A user of a file.
#[derive(Clone, Debug)]
pub struct Import {
    /// The user as it would be added.
    pub user: User,
    /// Whether the file says if it is active.
    pub says_active: bool,
}

/// What becomes of a user whose name is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingUserPolicy {
    /// It is refused.
    Refuse,
    /// It stays as it is.
    Skip,
    /// The attributes of the file take the place of those of their names, and
    /// so does a password; others stay.
    Update,
}

/// What became of a user of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportOutcome {
    /// It is new.
    Added,
    /// It was there, and has changed.
    Updated,
    /// It was there, and stays.
    Skipped,
    /// Refused: the name, or the identifier, is another user's.
    Taken,
    /// Refused: the user is declared in the configuration file.
    FileOwned,
}
