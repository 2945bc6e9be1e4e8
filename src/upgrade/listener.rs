//! The side of the process that serves.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;

use super::{Handed, LEAVING, READY, UpgradeError, WORD, address, own_peer, transfer};

/// Longest wait until a successor is ready: its store may have much to migrate.
const START: Duration = Duration::from_secs(600);
/// How long after a failure nobody is accepted.
const PAUSE: Duration = Duration::from_secs(1);
/// What tells a program to succeed another.
const UPGRADE: &str = "--upgrade";
/// What of this process's environment is not its successor's: sockets and beats of a
/// service manager that are meant for this one.
const OWN: [&str; 5] = [
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "WATCHDOG_PID",
    "MAINPID",
];

/// Waits for the successor of this process.
pub struct UpgradeListener {
    listener: UnixListener,
    handed: Arc<Mutex<Handed>>,
}

/// What becomes of an [`UpgradeListener`].
pub struct Succession {
    handed: Arc<Mutex<Handed>>,
    /// Nothing once nobody can come any more.
    successor: Option<oneshot::Receiver<i32>>,
    /// The program that runs, as it was called.
    program: io::Result<PathBuf>,
    /// The successor that this process has started, while it runs.
    started: Arc<Mutex<Option<Pid>>>,
}

impl Succession {
    /// The process identifier of the successor, once it serves.
    pub async fn successor(&mut self) -> i32 {
        if let Some(successor) = &mut self.successor {
            let pid = successor.await;
            // It yields once.
            self.successor = None;
            if let Ok(pid) = pid {
                return pid;
            }
        }
        std::future::pending().await
    }

    /// Starts the program that lies where this one was started from, with the same
    /// arguments, as the successor of this process.
    ///
    /// # Errors
    /// One starts already, or the system's word: the program can't be started.
    pub fn start_successor(&self) -> io::Result<()> {
        let program = self.program.as_ref();
        let program = program.map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
        let mut started = self.started.lock();
        if started.is_some() {
            return Err(io::Error::other("a successor starts already"));
        }
        let mut child = successor(program).spawn()?;
        *started = Some(Pid::from_child(&child));
        drop(started);
        let started = self.started.clone();
        // One that ends while this process serves is nobody else's to bury.
        let thread = std::thread::Builder::new().name("successor".to_owned());
        let waits = thread.spawn(move || {
            match child.wait() {
                Ok(status) => tracing::error!(%status, "the successor has ended"),
                Err(error) => tracing::error!(%error, "the successor can't be waited for"),
            }
            *started.lock() = None;
        });
        waits.map(drop)
    }

    /// Ends the successor that this process has started and that does not serve yet:
    /// who stops the one means both.
    pub fn stop_successor(&self) {
        let started = self.started.lock();
        if let Some(pid) = *started
            && let Err(error) = kill_process(pid, Signal::TERM)
        {
            tracing::warn!(%error, "the successor can't be stopped");
        }
    }

    /// Lets go of the sockets: what nobody accepts from is to be refused.
    pub fn end(&self) {
        *self.handed.lock() = Handed::default();
    }
}

impl UpgradeListener {
    /// Waits at the name of `file`, with `handed` for whoever comes.
    ///
    /// # Errors
    /// The system's word: another process may have the name.
    pub fn bind(file: &Path, handed: Handed) -> io::Result<Self> {
        Ok(Self {
            listener: UnixListener::bind_addr(&address(file)?)?,
            handed: Arc::new(Mutex::new(handed)),
        })
    }

    /// Serves successors from a thread of its own, until one of them has taken over.
    ///
    /// # Errors
    /// There can be no further thread.
    pub fn start(self) -> io::Result<Succession> {
        let (serves, successor) = oneshot::channel();
        let handed = self.handed.clone();
        let thread = std::thread::Builder::new().name("upgrade".to_owned());
        thread.spawn(move || {
            // Nobody hears it where the process ends anyway.
            let _ = serves.send(self.hand_over());
        })?;
        Ok(Succession {
            handed,
            successor: Some(successor),
            // Before another program lies there.
            program: std::env::current_exe(),
            started: Arc::default(),
        })
    }

    /// Answers whoever comes, until one has taken over.
    fn hand_over(self) -> i32 {
        loop {
            let (mut stream, _) = match self.listener.accept() {
                Ok(accepted) => accepted,
                // A moment without a free descriptor, most likely.
                Err(error) => {
                    tracing::error!(%error, "no other process can succeed this one now");
                    std::thread::sleep(PAUSE);
                    continue;
                }
            };
            match self.offer(&stream) {
                Ok(pid) => {
                    drop(self.listener);
                    *self.handed.lock() = Handed::default();
                    // It serves, whether it hears this or not.
                    let _ = stream.write_all(&[LEAVING]);
                    return pid;
                }
                Err(error) => tracing::error!(%error, "no upgrade: this process serves on"),
            }
        }
    }

    /// Offers the sockets to whoever connected, and waits until it serves.
    fn offer(&self, mut stream: &UnixStream) -> Result<i32, UpgradeError> {
        stream.set_write_timeout(Some(WORD))?;
        stream.set_read_timeout(Some(START))?;
        let peer = own_peer(stream)?;
        let handed = self.handed.lock().try_clone()?;
        if handed.sockets.is_empty() {
            return Err(UpgradeError::Stopping);
        }
        let sockets = handed.sockets.len();
        transfer::send(stream, &handed)?;
        // Nothing of it stays open here once this process stops.
        drop(handed);
        let pid = peer.pid.as_raw_nonzero().get();
        tracing::info!(pid, sockets, "a successor starts on the same sockets");
        let mut word = [0];
        match stream.read_exact(&mut word) {
            Ok(()) if word == [READY] => Ok(pid),
            _ => Err(UpgradeError::Io(io::Error::other(
                "the successor ended before it was ready",
            ))),
        }
    }
}

/// The command that starts `program` as this one was, to succeed it.
fn successor(program: &Path) -> Command {
    let mut command = Command::new(program);
    let again = std::env::args_os()
        .skip(1)
        .filter(|argument| argument != UPGRADE);
    command.args(again).arg(UPGRADE).stdin(Stdio::null());
    for name in OWN {
        command.env_remove(name);
    }
    command
}
