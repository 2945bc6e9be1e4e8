//! Numbers as clients of the Admin API write and read them.

use serde::{Deserialize as _, Deserializer, Serializer};

/// The largest magnitude below which every whole number is exact.
const EXACT: f64 = 9.0e15;

/// A number that is whole is written as an integer: clients with types of
/// their own read `1`, not `1.0`.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "called by serde")]
pub(super) fn plain<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if number.fract() == 0.0 && number.abs() < EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "whole and bounded")]
        return serializer.serialize_i64(*number as i64);
    }
    serializer.serialize_f64(*number)
}

/// A whole number; null is 0.
pub(super) fn zero_if_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
