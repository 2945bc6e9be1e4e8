//! Why a sign-in through another provider came to nothing: what people are
//! shown of it, and what operators are told.

use super::metadata::MetadataError;
use crate::error::Fault;
use crate::pages::{FederationFailure, FormError};
use doorward_core::jose::verify::VerifyError;
use doorward_net::http::outbound::OutboundError;
use doorward_oidc_client::id_token::ClaimError;
use doorward_store::StoreError;

/// Why nobody is signed in.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// The answer is not to a request of this browser, or too late.
    #[error("the answer belongs to no request of this browser")]
    State,
    /// The answer was used before.
    #[error("the answer was used already")]
    Replayed,
    /// The answer is said to be somebody else's (RFC 9207).
    #[error("the answer comes from another issuer")]
    Mixed,
    /// The provider answered with an error.
    #[error("the provider answered `{said}`")]
    Answered {
        /// Its code, if it is one.
        code: String,
        /// The code and its description, for the log.
        said: String,
    },
    /// The answer has neither code nor error.
    #[error("the answer has no code")]
    NoCode,
    /// What the provider says of itself can't be had.
    #[error("{0}")]
    Metadata(#[from] MetadataError),
    /// An endpoint gave no answer.
    #[error("{endpoint}: {error}")]
    Outbound {
        /// Which one.
        endpoint: &'static str,
        /// What went wrong.
        error: OutboundError,
    },
    /// The token endpoint took the code for none.
    #[error("the token endpoint answered {status} `{error}`")]
    Exchange {
        /// Its status.
        status: u16,
        /// Its code and its description.
        error: String,
    },
    /// An answer has not the form that it must have.
    #[error("{0} answered with something else than expected")]
    Form(&'static str),
    /// The ID token is not what we asked for.
    #[error("the ID token is refused: {0}")]
    IdToken(#[from] IdTokenError),
    /// User info speaks of somebody else.
    #[error("the user info is about another subject")]
    UserInfo,
    /// There is no account that this sign-in leads to.
    #[error("{0}")]
    Account(#[from] AccountError),
    /// We failed ourselves.
    #[error("{0}")]
    Fault(#[from] Fault),
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Fault(error.into())
    }
}

/// What is wrong with an ID token (OpenID Connect Core §3.1.3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum IdTokenError {
    #[error("{0}")]
    Signature(#[from] VerifyError),
    #[error("its algorithm is not allowed")]
    Algorithm,
    #[error("it is a token of another kind")]
    Kind,
    #[error("{0}")]
    Claims(#[from] ClaimError),
}

/// Why a sign-in leads to no account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AccountError {
    #[error("the user is not linked, and no rule links or makes an account")]
    Unlinked,
    #[error("the account is deactivated")]
    Deactivated,
    #[error("the account is declared in the configuration file")]
    FileOwned,
    #[error("the administrator is not signed in by other providers")]
    Administrator,
    #[error("several accounts have the address")]
    Ambiguous,
    #[error("the name of the new account is taken")]
    Taken,
    #[error("no account can have the name or the attributes")]
    Unfit,
    #[error("another user signed in before the accounts were linked")]
    OtherUser,
    #[error("the user at the provider is linked to another account")]
    LinkedElsewhere,
}

impl Refusal {
    /// What logs and metrics call it.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Replayed => "replayed",
            Self::Mixed => "issuer_mismatch",
            Self::Answered { code, .. } if code == "access_denied" => "denied",
            Self::Answered { .. } => "provider_error",
            Self::NoCode => "no_code",
            Self::Metadata(_) => "metadata",
            Self::Outbound { .. } => "unreachable",
            Self::Exchange { .. } => "exchange",
            Self::Form(_) => "malformed",
            Self::IdToken(_) => "id_token",
            Self::UserInfo => "user_info",
            Self::Account(error) => error.code(),
            Self::Fault(_) => "fault",
        }
    }

    /// What the user is shown.
    pub(super) fn shown(&self) -> FormError {
        match self {
            Self::State | Self::Replayed => FormError::Stale,
            Self::Answered { code, .. } => match code.as_str() {
                "access_denied" => FormError::Federation(FederationFailure::Cancelled),
                "temporarily_unavailable" | "server_error" => {
                    FormError::Federation(FederationFailure::Silent)
                }
                _ => FormError::Federation(FederationFailure::Refused),
            },
            Self::Metadata(_) | Self::Outbound { .. } => {
                FormError::Federation(FederationFailure::Silent)
            }
            Self::Exchange { status, .. } if *status >= 500 => {
                FormError::Federation(FederationFailure::Silent)
            }
            Self::Mixed
            | Self::NoCode
            | Self::Exchange { .. }
            | Self::Form(_)
            | Self::IdToken(_)
            | Self::UserInfo => FormError::Federation(FederationFailure::Refused),
            // Who is told so has signed in here, and there.
            Self::Account(AccountError::OtherUser | AccountError::LinkedElsewhere) => {
                FormError::Federation(FederationFailure::Unlinkable)
            }
            // One answer to all of them: nobody learns who exists.
            Self::Account(_) => FormError::Federation(FederationFailure::Nobody),
            Self::Fault(_) => FormError::Busy,
        }
    }
}

impl AccountError {
    fn code(self) -> &'static str {
        match self {
            Self::Unlinked => "unlinked",
            Self::Deactivated => "deactivated",
            Self::FileOwned => "file_owned",
            Self::Administrator => "administrator",
            Self::Ambiguous => "ambiguous_email",
            Self::Taken => "name_taken",
            Self::Unfit => "unfit",
            Self::OtherUser => "other_user",
            Self::LinkedElsewhere => "linked_elsewhere",
        }
    }
}

/// An error code as a provider gave it, if it may stand in a log.
pub(super) fn printable(code: &str) -> String {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    if code.len() <= 64 && code.bytes().all(legal) {
        code.to_owned()
    } else {
        "?".to_owned()
    }
}
