//! What a filter would do with a request, and what its refusals are called.

use serde::{Deserialize, Serialize};

/// What a filter would do with a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "lowercase")]
pub enum FilterExplanation {
    /// It lets the request go on.
    Passes {
        /// Why, for operators.
        reason: String,
    },
    /// It answers the request itself.
    Answers {
        /// With this status.
        status: u16,
        /// What log and metrics call it.
        code: String,
        /// What that means.
        reason: String,
    },
    /// It would have to do or to see something that an explanation may not.
    Depends {
        /// On what.
        reason: String,
    },
}

impl FilterExplanation {
    /// The request goes on, for this reason.
    pub fn passes(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Passes { reason }
    }

    /// The decision hangs on this.
    pub fn depends(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Depends { reason }
    }

    /// The request is answered with what `code` says.
    pub fn answers(code: &Code) -> Self {
        Self::Answers {
            status: code.status,
            code: code.code.to_owned(),
            reason: code.meaning.to_owned(),
        }
    }
}

/// What the log calls an answer that a filter gives, or a request that it has
/// marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Code {
    /// The code: what the access log has in `refusal`. Most are decisions of
    /// metrics as well.
    pub code: &'static str,
    /// The status of the answer; 0: the request went on.
    pub status: u16,
    /// What happened, for operators.
    pub meaning: &'static str,
}

impl Code {
    /// A code.
    pub const fn new(code: &'static str, status: u16, meaning: &'static str) -> Self {
        Self {
            code,
            status,
            meaning,
        }
    }
}
