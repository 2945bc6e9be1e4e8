//! What new passwords of a realm must be like, as written.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What new passwords must be like. Passwords of declared users and imported
/// hashes are taken as they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PasswordPolicy {
    /// Fewest characters; from 1 to 64 (NIST SP 800-63B §3.1.1.2: 8).
    pub min_length: u32,
    /// Most bytes; from 64 to 1024.
    pub max_length: u32,
    /// How hard a new password must be to guess, as zxcvbn judges: from 0 (any
    /// will do) to 4; 1 refuses those that take a thousand guesses.
    pub min_score: u8,
    /// A file of passwords that nobody may choose: one a line, as they are or
    /// as SHA-1 digests in hexadecimal, with or without `:COUNT`. A list of
    /// digests in ascending order may have any length.
    pub breached_list: Option<PathBuf>,
}

impl Default for PasswordPolicy {
    fn default() -> Self {
        Self {
            min_length: 8,
            max_length: 1024,
            min_score: 1,
            breached_list: None,
        }
    }
}
