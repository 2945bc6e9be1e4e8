//! The service manager: what it is told of the state of the process, and the sockets
//! that it hands over.
//!
//! Without a service manager (no `NOTIFY_SOCKET`, no `LISTEN_FDS`) nothing happens.

mod inherited;
mod watchdog;

use std::time::Duration;

use sd_notify::NotifyState;

pub use inherited::{InheritedError, InheritedSockets};
pub use watchdog::Watchdog;

/// What the process does after the last request, at most: audit records, queues and
/// logs are written.
const LAST_ACTS: Duration = Duration::from_secs(15);

/// Says that all listeners accept.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Says that the configuration is read again, since the manager asked for it; `ready`
/// follows.
pub fn reloading() {
    // Both in one message: the manager compares the time with that of its request.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "no time for the service manager"),
    }
}

/// Says that the process ends when the requests in flight have, for which they may
/// take `drain`.
pub fn stopping(drain: Duration) {
    let limit = (drain + LAST_ACTS).as_micros();
    tell(&[
        NotifyState::Stopping,
        NotifyState::Status("requests in flight may finish"),
        NotifyState::ExtendTimeoutUsec(u32::try_from(limit).unwrap_or(u32::MAX)),
    ]);
}

/// Says that the process `successor` serves in the place of this one.
pub fn succeeded(successor: i32) {
    if let Ok(pid) = u32::try_from(successor) {
        tell(&[
            NotifyState::MainPid(pid),
            NotifyState::Status("a successor serves"),
        ]);
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager was not told");
    }
}
