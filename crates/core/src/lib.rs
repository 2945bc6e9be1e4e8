//! What every part of Doorward builds on: records and their schemas, time and
//! randomness, keys and signatures, certificates, YAML. Nothing here does I/O
//! beyond reading the clock.

pub mod calls;
pub mod clock;
pub mod hex;
pub mod jose;
pub mod model;
pub mod openapi;
pub mod x509;
pub mod yaml;
