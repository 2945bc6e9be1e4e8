//! What the browser says of a ceremony (§5.8.1).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use subtle::ConstantTimeEq;

use super::{CeremonyContext, WebauthnError};
use doorward_core::jose::json;

/// Longest client data, in bytes: an origin, a challenge and some words.
const CLIENT_DATA_MAX: usize = 4096;

/// Which of the two ceremonies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ceremony {
    Create,
    Get,
}

/// Checks that the client data is of this ceremony and no other.
pub(super) fn check(
    text: &[u8],
    ceremony: Ceremony,
    expected: &CeremonyContext<'_>,
) -> Result<(), WebauthnError> {
    let malformed = WebauthnError::Malformed("the client data");
    if text.len() > CLIENT_DATA_MAX {
        return Err(malformed);
    }
    let members = json::object(text).map_err(|_| malformed)?;
    let member = |name: &str| members.get(name).and_then(Value::as_str);
    let kind = match ceremony {
        Ceremony::Create => "webauthn.create",
        Ceremony::Get => "webauthn.get",
    };
    if member("type") != Some(kind) {
        return Err(WebauthnError::Type);
    }
    let challenge = URL_SAFE_NO_PAD.encode(expected.challenge);
    let given = member("challenge").unwrap_or_default();
    let same: bool = challenge.as_bytes().ct_eq(given.as_bytes()).into();
    if !same {
        return Err(WebauthnError::Challenge);
    }
    if member("origin") != Some(expected.origin) {
        return Err(WebauthnError::Origin);
    }
    // Our pages stand in nobody's frame.
    match (members.get("crossOrigin"), members.get("topOrigin")) {
        (None | Some(Value::Bool(false)), None) => Ok(()),
        _ => Err(WebauthnError::CrossOrigin),
    }
}
