//! Signing, verifying, and JSON Web Key sets.
