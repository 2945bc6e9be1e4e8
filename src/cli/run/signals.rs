//! What signals mean to a process that serves.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::upgrade::Succession;

/// The signals that mean something here.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    user1: Signal,
    user2: Signal,
}

/// Why a process serves no more.
pub(super) enum End {
    /// Somebody asked for it.
    Stop,
    /// The process with this identifier has taken over.
    Successor(i32),
}

impl Signals {
    pub(super) fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
        })
    }

    /// Waits for SIGTERM or SIGINT.
    pub(super) async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Waits for SIGTERM, SIGINT, or a successor. SIGHUP reloads; it and SIGUSR1
    /// `reopen` the log files. SIGUSR2 starts a successor.
    pub(super) async fn until_end(
        &mut self,
        force: &mpsc::Sender<()>,
        reopen: impl Fn(),
        mut succession: Option<&mut Succession>,
    ) -> End {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return End::Stop,
                _ = self.interrupt.recv() => return End::Stop,
                _ = self.hangup.recv() => {
                    reopen();
                    // A full channel already asks for a reload.
                    let _ = force.try_send(());
                }
                _ = self.user1.recv() => reopen(),
                _ = self.user2.recv() => start_successor(succession.as_deref()),
                pid = successor(succession.as_deref_mut()) => return End::Successor(pid),
            }
        }
    }
}

/// Has this program start anew beside this process.
fn start_successor(succession: Option<&Succession>) {
    let started = match succession {
        Some(succession) => succession.start_successor(),
        None => Err(std::io::Error::other("no process can succeed this one")),
    };
    if let Err(error) = started {
        tracing::error!(%error, "no upgrade: this process serves on");
    }
}

/// The successor of this process, if there is ever one.
async fn successor(succession: Option<&mut Succession>) -> i32 {
    match succession {
        Some(succession) => succession.successor().await,
        None => std::future::pending().await,
    }
}
