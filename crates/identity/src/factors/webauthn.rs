//! Web Authentication (Level 3): the two ceremonies, as a relying party checks
//! them. Pure: what a browser sent goes in, what may be believed comes out.
//!
//! Every step of §7.1 and §7.2 that concerns this provider is here, in the order
//! of the specification. Attestation says nothing that is believed: any
//! statement is taken, and none is trusted.

mod client_data;
mod cose;
mod data;
#[cfg(test)]
pub(crate) mod software_authenticator;
#[cfg(test)]
mod tests;

use aws_lc_rs::digest::{SHA256, digest};
use ciborium::Value as Cbor;

use client_data::Ceremony;
pub(super) use cose::PublicKey;
use data::AuthenticatorData;

/// Longest identifier of a credential, in bytes (§4).
pub(super) const CREDENTIAL_MAX: usize = 1023;

/// Bytes of a challenge: twice what §13.4.3 asks for.
pub(super) const CHALLENGE_BYTES: usize = 32;

/// The algorithms that are taken, the dearest first (RFC 9053, RFC 8812).
pub(super) const ALGORITHMS: [i64; 3] = [cose::EDDSA, cose::ES256, cose::RS256];

/// Why a ceremony fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WebauthnError {
    #[error("{0} can't be read")]
    Malformed(&'static str),
    #[error("the client data is of another ceremony")]
    Type,
    #[error("the challenge is another one")]
    Challenge,
    #[error("the page was of another origin")]
    Origin,
    #[error("the page stood in a frame of another origin")]
    CrossOrigin,
    #[error("the credential is for another relying party")]
    RelyingParty,
    #[error("nobody was present")]
    Presence,
    #[error("the user was not verified")]
    Verification,
    #[error("a credential that can't be backed up says that it is")]
    Backup,
    #[error("there is no credential")]
    NoCredential,
    #[error("the identifier of the credential is too long, or another one")]
    Identifier,
    #[error("the algorithm is not one that was asked for")]
    Algorithm,
    #[error("the public key can't be one")]
    Key,
    #[error("the attestation statement says something where it must not")]
    Statement,
    #[error("the signature is wrong")]
    Signature,
    #[error("the counter went back: there may be a copy of the authenticator")]
    Counter,
}

/// What a ceremony must fit.
#[derive(Clone, Copy, Debug)]
pub(super) struct CeremonyContext<'a> {
    /// The challenge that was given out.
    pub(super) challenge: &'a [u8],
    /// The one origin that pages with ceremonies have.
    pub(super) origin: &'a str,
    /// The relying party: a host name.
    pub(super) rp_id: &'a str,
    /// Whether the authenticator must have verified its user.
    pub(super) verified: bool,
}

/// A credential that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Registration {
    pub(super) credential_id: Vec<u8>,
    pub(super) key: PublicKey,
    pub(super) sign_count: u32,
    pub(super) aaguid: [u8; 16],
    /// Whether it may be copied to other devices, and whether it was.
    pub(super) backup: Backup,
    /// Whether the authenticator verified its user.
    pub(super) verified: bool,
}

/// What a credential says of its copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Backup {
    pub(super) eligible: bool,
    pub(super) done: bool,
}

/// What a signature proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AssertionResult {
    pub(super) sign_count: u32,
    pub(super) backup: Backup,
    pub(super) verified: bool,
}

/// Checks the answer to a request for a new credential (§7.1).
///
/// # Errors
/// The first step that fails.
pub(super) fn verify_registration(
    expected: &CeremonyContext<'_>,
    client_data: &[u8],
    attestation: &[u8],
) -> Result<Registration, WebauthnError> {
    client_data::check(client_data, Ceremony::Create, expected)?;
    let (statement, data) = attestation_object(attestation)?;
    let data = AuthenticatorData::parse(&data)?;
    check_flags(&data, expected)?;
    let credential = data.credential.ok_or(WebauthnError::NoCredential)?;
    // Of the statements only the empty one has rules that need no trust (§8.7).
    if let Statement::None { empty: false } = statement {
        return Err(WebauthnError::Statement);
    }
    Ok(Registration {
        credential_id: credential.id,
        key: credential.key,
        aaguid: credential.aaguid,
        sign_count: data.sign_count,
        backup: data.flags.backup(),
        verified: data.flags.verified(),
    })
}

/// Checks a signature with a known key (§7.2). What was counted before must be
/// compared, and noted, in one step by whoever keeps it.
///
/// # Errors
/// The first step that fails.
pub(super) fn verify_assertion(
    expected: &CeremonyContext<'_>,
    key: &PublicKey,
    client_data: &[u8],
    authenticator_data: &[u8],
    signature: &[u8],
) -> Result<AssertionResult, WebauthnError> {
    client_data::check(client_data, Ceremony::Get, expected)?;
    let data = AuthenticatorData::parse(authenticator_data)?;
    check_flags(&data, expected)?;
    let mut signed = authenticator_data.to_vec();
    signed.extend_from_slice(digest(&SHA256, client_data).as_ref());
    key.verify(&signed, signature)?;
    Ok(AssertionResult {
        sign_count: data.sign_count,
        backup: data.flags.backup(),
        verified: data.flags.verified(),
    })
}

/// Whether a count of signatures may follow the last one: authenticators that
/// do not count say 0 always (§6.1.1).
pub(super) fn may_follow(last: i64, count: u32) -> bool {
    let count = i64::from(count);
    count > last || (count == 0 && last == 0)
}

fn check_flags(
    data: &AuthenticatorData,
    expected: &CeremonyContext<'_>,
) -> Result<(), WebauthnError> {
    if data.rp_id_hash != digest(&SHA256, expected.rp_id.as_bytes()).as_ref() {
        return Err(WebauthnError::RelyingParty);
    }
    if !data.flags.present() {
        return Err(WebauthnError::Presence);
    }
    if expected.verified && !data.flags.verified() {
        return Err(WebauthnError::Verification);
    }
    let backup = data.flags.backup();
    if backup.done && !backup.eligible {
        return Err(WebauthnError::Backup);
    }
    Ok(())
}

/// What kind of attestation there is.
enum Statement {
    None { empty: bool },
    Some,
}

/// Deepest nesting of CBOR: chains of certificates have four levels.
const CBOR_DEPTH: usize = 8;

/// Longest attestation object, in bytes: with a chain of certificates, some
/// thousand.
const ATTESTATION_MAX: usize = 32 * 1024;

/// One CBOR item from the start of `bytes`, and what follows it. No map in it
/// has a key twice.
fn cbor<'b>(bytes: &'b [u8], what: &'static str) -> Result<(Cbor, &'b [u8]), WebauthnError> {
    let mut rest = bytes;
    let read = ciborium::de::from_reader_with_recursion_limit(&mut rest, CBOR_DEPTH);
    let value: Cbor = read.map_err(|_| WebauthnError::Malformed(what))?;
    if is_unambiguous(&value) {
        Ok((value, rest))
    } else {
        Err(WebauthnError::Malformed(what))
    }
}

fn is_unambiguous(value: &Cbor) -> bool {
    match value {
        Cbor::Array(items) => items.iter().all(is_unambiguous),
        Cbor::Map(entries) => {
            let twice = |at: usize, key: &Cbor| entries[..at].iter().any(|(one, _)| one == key);
            let mut entries = entries.iter().enumerate();
            entries.all(|(at, (key, value))| !twice(at, key) && is_unambiguous(value))
        }
        Cbor::Tag(_, inner) => is_unambiguous(inner),
        _ => true,
    }
}

/// What `key` maps to.
fn member<'m>(map: &'m [(Cbor, Cbor)], key: &Cbor) -> Option<&'m Cbor> {
    map.iter()
        .find(|(known, _)| known == key)
        .map(|(_, value)| value)
}

/// Statement and authenticator data of an attestation object (§6.5).
fn attestation_object(bytes: &[u8]) -> Result<(Statement, Vec<u8>), WebauthnError> {
    const WHAT: &str = "the attestation object";
    let malformed = WebauthnError::Malformed(WHAT);
    if bytes.len() > ATTESTATION_MAX {
        return Err(malformed);
    }
    let (Cbor::Map(map), []) = cbor(bytes, WHAT)? else {
        return Err(malformed);
    };
    let text = |name: &str| Cbor::Text(name.to_owned());
    let format = member(&map, &text("fmt")).and_then(Cbor::as_text);
    let statement = member(&map, &text("attStmt")).and_then(Cbor::as_map);
    let data = member(&map, &text("authData")).and_then(Cbor::as_bytes);
    let (Some(format), Some(statement), Some(data)) = (format, statement, data) else {
        return Err(malformed);
    };
    let statement = match format {
        "none" => Statement::None {
            empty: statement.is_empty(),
        },
        _ => Statement::Some,
    };
    Ok((statement, data.clone()))
}
