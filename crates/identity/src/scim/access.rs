//! Who may read and write records: a matter of the token's scopes.
//!
//! Reading follows `users_scope` and `groups_scope`. Writing is for clients on
//! their own behalf whose token has `users_write_scope` or
//! `groups_write_scope`; users change what is theirs at `/Me`.

use http::StatusCode;

use crate::Call;
use crate::bearer::{self, ValidToken};
use crate::dpop;
use crate::error::{Challenge, ScimError};
use crate::realm::Live;

/// A kind of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    User,
    Group,
}

impl Kind {
    /// The word of `meta.resourceType`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::User => "User",
            Self::Group => "Group",
        }
    }

    /// There is no record of this kind and identifier.
    pub(super) fn missing(self) -> ScimError {
        let text = match self {
            Self::User => "There is no such user.",
            Self::Group => "There is no such group.",
        };
        ScimError::new(StatusCode::NOT_FOUND, text)
    }
}

/// Marks the parts of a request whose proof of possession was used up already: an
/// operation of many.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proven;

/// The token of the request, if it is good; one that is bound to a key comes with a
/// proof of it (RFC 9449 §7.1).
pub(super) async fn token(call: &Call) -> Result<ValidToken, ScimError> {
    let with_proof = bearer::with_proof(call.headers());
    let token = bearer::from_header(call.headers()).or(with_proof);
    let unauthorized = |parameters: &str, detail: &str| ScimError {
        challenge: Some(challenge(call, parameters)),
        ..ScimError::new(StatusCode::UNAUTHORIZED, detail)
    };
    let token = token.ok_or_else(|| unauthorized("", "An access token is required."))?;
    let invalid = || {
        let detail = "The access token is expired, revoked or not valid.";
        unauthorized(", error=\"invalid_token\"", detail)
    };
    let good = bearer::check(&call.state, token, call.now_ms).await?;
    let good = good.ok_or_else(invalid)?;
    if call.parts.extensions.get::<Proven>().is_some() {
        return Ok(good);
    }
    let bound_to = good.issued.bound_to();
    if bound_to.is_some() || with_proof.is_some() {
        let state = &call.state;
        let client = state
            .clients
            .find(&state.store, &good.realm, good.issued.client_id());
        let client = client.await?.ok_or_else(invalid)?;
        dpop::check(call, &client, token, bound_to).await?;
    }
    Ok(good)
}

/// A challenge of the scheme that the token came by.
fn challenge(call: &Call, parameters: &str) -> Challenge {
    let by_proof = bearer::with_proof(call.headers()).is_some();
    let challenge = Challenge::new("Bearer", format!("realm=\"/\"{parameters}"));
    challenge.of_token(by_proof, &dpop::algorithms(|_| true))
}

/// Which records of the kind a token may read: those of one user only, or all.
pub(super) fn sees_all(token: &ValidToken, kind: Kind) -> bool {
    let settings = &token.realm.settings;
    let scope = match kind {
        Kind::User => &settings.users_scope,
        Kind::Group => &settings.groups_scope,
    };
    scope.is_some() || token.user.is_none()
}

/// Realms that are named when it is told who reads.
const TOLD_MAX: usize = 10;

/// Tells the operator where any client's own token reads the directory.
pub(crate) fn tell_who_reads(live: &Live) {
    let open = live.realms().filter(|realm| {
        let settings = &realm.settings;
        settings.users_scope.is_none() || settings.groups_scope.is_none()
    });
    let paths: Vec<_> = open.map(|realm| realm.path.as_str()).collect();
    if paths.is_empty() {
        return;
    }
    let named = paths.iter().take(TOLD_MAX).copied().collect::<Vec<_>>();
    tracing::info!(
        realms = named.join(" "),
        count = paths.len(),
        "any client's own token reads the directory: users_scope or groups_scope is not set"
    );
}

/// The token of a request that may read records of the kind.
pub(super) async fn reader(call: &Call, kind: Kind) -> Result<ValidToken, ScimError> {
    let good = token(call).await?;
    check_reader(call, &good, kind)?;
    Ok(good)
}

/// Whether a token may read records of the kind.
pub(super) fn check_reader(call: &Call, good: &ValidToken, kind: Kind) -> Result<(), ScimError> {
    let settings = &good.realm.settings;
    let (read, write) = match kind {
        Kind::User => (&settings.users_scope, &settings.users_write_scope),
        Kind::Group => (&settings.groups_scope, &settings.groups_write_scope),
    };
    // Who may write must see what there is.
    let writes = good.user.is_none() && has(good, write);
    match read {
        Some(scope) if !writes && !has(good, scope) => Err(insufficient(call, scope)),
        _ => Ok(()),
    }
}

/// The token of a request that may write records of the kind.
pub(super) async fn writer(call: &Call, kind: Kind) -> Result<ValidToken, ScimError> {
    let good = token(call).await?;
    let settings = &good.realm.settings;
    let scope = match kind {
        Kind::User => &settings.users_write_scope,
        Kind::Group => &settings.groups_write_scope,
    };
    if scope.is_empty() {
        let text = "Records can't be changed here: the realm names no scope for it.";
        return Err(ScimError::new(StatusCode::FORBIDDEN, text));
    }
    if !has(&good, scope) {
        return Err(insufficient(call, scope));
    }
    // Or users could give themselves, by consent, what is the operator's.
    if good.user.is_some() {
        let text = "A client's own token is required: users change what is theirs at Me.";
        return Err(ScimError::new(StatusCode::FORBIDDEN, text));
    }
    Ok(good)
}

/// Whether the token has this scope; none is the empty one.
pub(super) fn has(token: &ValidToken, scope: &str) -> bool {
    !scope.is_empty() && token.issued.scopes().any(|granted| granted == scope)
}

pub(super) fn insufficient(call: &Call, scope: &str) -> ScimError {
    let parameters = format!(", error=\"insufficient_scope\", scope=\"{scope}\"");
    ScimError {
        challenge: Some(challenge(call, &parameters)),
        ..ScimError::new(
            StatusCode::FORBIDDEN,
            format!("The scope {scope} is required."),
        )
    }
}
