//! Mixing of bits: stable over processes and versions, and not a secret.

/// A well-mixed value for `x`: every bit of it decides every bit of the result.
pub(super) const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A hash of `bytes` that nodes and restarts agree on.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let mut state = 0xcbf2_9ce4_8422_2325_u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0_u8; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        state = mix(state ^ u64::from_le_bytes(word)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
    mix(state ^ bytes.len() as u64)
}

/// The part of `range` that `draw`, evenly spread over all `u64`, falls on.
pub(super) fn scale(draw: u64, range: u64) -> u64 {
    ((u128::from(draw) * u128::from(range)) >> 64) as u64
}
