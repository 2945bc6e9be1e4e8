//! Signing, verifying, and JSON Web Key sets.

pub mod algorithm;
pub mod claims;
pub mod dpop;
pub mod json;
pub mod jwks;
pub mod keys;
pub mod pem;
pub mod sign;
pub mod vault;
pub mod verify;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
