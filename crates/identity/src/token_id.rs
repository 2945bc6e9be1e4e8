//! Identifiers of access tokens (`jti`), which tell a token from that of an
//! earlier user or client of the same name.
//!
//! 27 characters, like every handle: 6 bytes of time, 6 of the user, 8 at
//! random. They need no secret: the signature or the store vouches for them.
//! The user's bytes are other ones in each token: clients that know a user by
//! different names must not find the same mark in what they hold.

use aws_lc_rs::digest::{Context, SHA256};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;

use doorward_core::clock::random_bytes;

const TIME: usize = 6;
const WHO: usize = 6;
const LENGTH: usize = 20;

/// A new identifier for a token that is issued at `now_ms` and stands for
/// `user`, if it does not stand for a client.
pub(super) fn new(now_ms: i64, user: Option<Uuid>) -> String {
    let mut bytes = random_bytes::<LENGTH>();
    bytes[..TIME].copy_from_slice(&now_ms.to_be_bytes()[8 - TIME..]);
    if let Some(user) = user {
        let mark = mark(user, &bytes[TIME + WHO..]);
        bytes[TIME..TIME + WHO].copy_from_slice(&mark);
    }
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Whether a token with this identifier can be one of `user`, if it names a
/// user, and was issued when all that it names, the latest of it made at
/// `made_ms`, was there.
pub(super) fn fits(jti: &str, user: Option<Uuid>, made_ms: i64) -> bool {
    let mut bytes = [0; LENGTH];
    if URL_SAFE_NO_PAD.decode_slice(jti, &mut bytes) != Ok(LENGTH) {
        return false;
    }
    let mut time = [0; 8];
    time[8 - TIME..].copy_from_slice(&bytes[..TIME]);
    let same = |user| bytes[TIME..TIME + WHO] == mark(user, &bytes[TIME + WHO..]);
    i64::from_be_bytes(time) >= made_ms && user.is_none_or(same)
}

/// What stands for `user` beside these random bytes.
fn mark(user: Uuid, random: &[u8]) -> [u8; WHO] {
    let mut context = Context::new(&SHA256);
    context.update(user.as_bytes());
    context.update(random);
    let digest = context.finish();
    let mut mark = [0; WHO];
    mark.copy_from_slice(&digest.as_ref()[..WHO]);
    mark
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_fits_its_user_and_what_was_there() {
        let (anna, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let now = 1_800_000_000_500;
        let jti = new(now, Some(anna));
        assert_eq!(jti.len(), 27);
        assert!(fits(&jti, Some(anna), now));
        assert!(!fits(&jti, Some(other), now));
        assert!(!fits(&jti, Some(anna), now + 1), "made after the token");
        assert!(fits(&new(now, None), None, now));
        assert_ne!(new(now, Some(anna)), jti);
        for other in ["", "x", "AAAA", &"A".repeat(28), &"?".repeat(27)] {
            assert!(!fits(other, None, 0), "{other}");
        }
    }

    #[test]
    fn linking_a_pairwise_user_by_the_identifiers_of_tokens() {
        let user = Some(Uuid::from_u128(1));
        let part = |jti: String| {
            let bytes = URL_SAFE_NO_PAD.decode(jti).expect("Base64");
            bytes[TIME..TIME + WHO].to_vec()
        };
        assert_ne!(part(new(1, user)), part(new(1, user)));
    }
}
