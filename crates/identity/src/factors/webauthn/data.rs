//! Authenticator data (§6.1): a fixed head, then what its flags announce.

use ciborium::Value as Cbor;

use super::{Backup, CREDENTIAL_MAX, PublicKey, WebauthnError, cbor};

/// What an authenticator says, taken apart.
#[derive(Debug)]
pub(super) struct AuthenticatorData {
    pub(super) rp_id_hash: [u8; 32],
    pub(super) flags: Flags,
    pub(super) sign_count: u32,
    pub(super) credential: Option<Credential>,
}

/// A new credential (§6.5.1).
#[derive(Debug)]
pub(super) struct Credential {
    pub(super) aaguid: [u8; 16],
    pub(super) id: Vec<u8>,
    pub(super) key: PublicKey,
}

/// The flags, by bit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flags(u8);

impl Flags {
    fn bit(self, bit: u8) -> bool {
        self.0 & 1 << bit != 0
    }

    pub(super) fn present(self) -> bool {
        self.bit(0)
    }

    pub(super) fn verified(self) -> bool {
        self.bit(2)
    }

    pub(super) fn backup(self) -> Backup {
        Backup {
            eligible: self.bit(3),
            done: self.bit(4),
        }
    }

    fn has_credential(self) -> bool {
        self.bit(6)
    }

    fn has_extensions(self) -> bool {
        self.bit(7)
    }
}

const MALFORMED: WebauthnError = WebauthnError::Malformed("the authenticator data");

/// The first `N` bytes, and the rest.
fn take<const N: usize>(bytes: &[u8]) -> Result<(&[u8; N], &[u8]), WebauthnError> {
    bytes.split_first_chunk().ok_or(MALFORMED)
}

impl AuthenticatorData {
    /// Reads all of `bytes`: nothing may be left.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, WebauthnError> {
        let (rp_id_hash, rest) = take::<32>(bytes)?;
        let ([flags], rest) = take::<1>(rest)?;
        let (sign_count, mut rest) = take::<4>(rest)?;
        let flags = Flags(*flags);
        let mut credential = None;
        if flags.has_credential() {
            let (read, after) = Credential::parse(rest)?;
            (credential, rest) = (Some(read), after);
        }
        if flags.has_extensions() {
            // Nothing was asked for, so nothing of it counts.
            let (Cbor::Map(_), after) = cbor(rest, "the extensions")? else {
                return Err(MALFORMED);
            };
            rest = after;
        }
        match rest {
            [] => Ok(Self {
                rp_id_hash: *rp_id_hash,
                flags,
                sign_count: u32::from_be_bytes(*sign_count),
                credential,
            }),
            _ => Err(MALFORMED),
        }
    }
}

impl Credential {
    fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WebauthnError> {
        let (aaguid, rest) = take::<16>(bytes)?;
        let (length, rest) = take::<2>(rest)?;
        let length = usize::from(u16::from_be_bytes(*length));
        if length == 0 || length > CREDENTIAL_MAX {
            return Err(WebauthnError::Identifier);
        }
        let (id, rest) = rest.split_at_checked(length).ok_or(MALFORMED)?;
        let (key, rest) = PublicKey::of_cose(rest)?;
        let credential = Self {
            aaguid: *aaguid,
            id: id.to_vec(),
            key,
        };
        Ok((credential, rest))
    }
}
