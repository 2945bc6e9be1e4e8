//! Login sessions of the gateway as a relying party: what browsers keep of
//! them, sealed.
//!
//! Pure parts, without I/O and without knowledge of any provider: [`seal`]
//! makes texts that only the gateway can read and nobody can change or move,
//! [`cookie`] brings them to browsers and back, [`own_name`] names those of which a
//! browser keeps several, [`timers`] says when a session is over, [`headers`] what is told
//! of one. Time is an argument.

pub mod cookie;
pub mod headers;
pub mod own_name;
pub mod seal;
pub mod timers;
