//! What a sign-in form leads to, whatever page it stood on.

use super::error::Fault;
use super::login::{LoginError, is_confined, login};
use super::pages::Failed;
use super::{Call, sessions};

/// What came of it.
#[derive(Debug)]
pub(super) enum SignIn {
    /// The user has a session; this is its token.
    Done(String),
    /// The form is to be shown again.
    Again(Failed),
    /// The address may not sign this user in.
    Forbidden,
}

/// Signs in with the name and password of a form that this browser was shown.
pub(super) async fn sign_in(call: &Call, name: &str, password: &str) -> Result<SignIn, Fault> {
    if is_confined(call, name) {
        return Ok(SignIn::Forbidden);
    }
    match login(&call.state, &call.realm, name, password, call.now_ms).await {
        Ok(user) => Ok(match sessions::begin(call, &user).await? {
            Some(token) => SignIn::Done(token),
            None => SignIn::Again(Failed::Credentials),
        }),
        // One answer for all of them: nobody learns who exists.
        Err(LoginError::Failed | LoginError::Locked | LoginError::Deactivated) => {
            Ok(SignIn::Again(Failed::Credentials))
        }
        Err(LoginError::Fault(Fault::Busy(_))) => Ok(SignIn::Again(Failed::Busy)),
        Err(LoginError::Fault(fault)) => Err(fault),
    }
}
