//! Signing in on a page, whatever page that is: the form, what it leads to, and
//! the steps that may follow.

mod login_page;
mod step_up;
mod trusted_browser;

use super::context::Methods;
use super::error::Fault;
use super::login::{LoginError, login};
use super::pages::FormError;
use super::{Call, sessions};
use doorward_core::model::grant::StoredSession;
use doorward_core::model::user::User;
use doorward_core::model::user::name_place::SignInName;
pub(super) use login_page::{
    CODE, Fields, LoginPage, PASSKEY, RESUME, STEP, enrol_passkey, resume_parameter,
};
pub(super) use step_up::{
    MissingFactor, NextStep, complete, missing_factor, requires_second_factor,
};
pub(super) use trusted_browser::COOKIE as TRUSTED_COOKIE;

/// What a user has shown, and when.
#[derive(Clone, Debug)]
pub(super) struct Proof {
    /// By which methods.
    pub(super) methods: Methods,
    /// When the user last signed in anew, in milliseconds since the epoch.
    pub(super) auth_ms: i64,
}

impl Proof {
    /// These methods, just now.
    pub(super) fn now(call: &Call, methods: Methods) -> Self {
        Self {
            methods,
            auth_ms: call.now_ms,
        }
    }

    /// What the user of this session has shown.
    pub(super) fn of(session: &StoredSession) -> Self {
        Self {
            methods: Methods::from(session.amr.as_slice()),
            auth_ms: session.auth_ms,
        }
    }
}

/// What came of it.
#[derive(Debug)]
pub(super) enum SignIn {
    /// The user has a session; this is its token.
    Done(String),
    /// Something is missing yet, and there is no session.
    Next(Box<NextStep>),
    /// The form is to be shown again.
    Again(FormError),
    /// The address may not sign this user in.
    Forbidden,
}

/// Signs in with the name and password of a form that this browser was shown.
async fn by_password(
    call: &Call,
    (name, password): (&SignInName, &str),
    shown_ms: Option<i64>,
) -> Result<SignIn, Fault> {
    match login(call, name, password).await {
        Ok(user) => complete(call, &user, Methods::password(), shown_ms).await,
        Err(LoginError::Confined) => Ok(SignIn::Forbidden),
        // One answer for all of them: nobody learns who exists.
        Err(LoginError::Failed | LoginError::Locked | LoginError::Deactivated) => {
            Ok(SignIn::Again(FormError::Credentials))
        }
        Err(LoginError::Fault(Fault::Busy(_) | Fault::Directory)) => {
            Ok(SignIn::Again(FormError::Busy))
        }
        Err(LoginError::Fault(fault)) => Err(fault),
    }
}

/// The session of `user`, who has shown `proof` on a page that was first shown
/// at `shown_ms`, if that is known.
async fn begin(
    call: &Call,
    user: &User,
    proof: &Proof,
    shown_ms: Option<i64>,
) -> Result<SignIn, Fault> {
    if let Some(shown_ms) = shown_ms
        && let Some(token) = sessions::concurrent_session(call, user, proof, shown_ms).await?
    {
        return Ok(SignIn::Done(token));
    }
    Ok(match sessions::begin(call, user, proof).await? {
        Some(token) => SignIn::Done(token),
        None => SignIn::Again(FormError::Credentials),
    })
}
