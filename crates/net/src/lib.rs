//! What Doorward speaks over the network and says of itself: HTTP below the
//! parts, telemetry, state that nodes share, sealed cookies of login sessions.

pub mod host;
pub mod http;
pub mod session;
pub mod shared;
pub mod telemetry;
