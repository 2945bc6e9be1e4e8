//! Listeners that one process takes over from another.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use super::{Start, admin_addresses};
use crate::config::Config;
use crate::server::ServerError;
use crate::server::places::{ProxyPlaces, RouterPlace};
use crate::systemd::InheritedSockets;
use crate::upgrade::{Handed, Predecessor, Succession, UpgradeError, UpgradeListener};
use doorward_store::Store;

/// How often a process is looked for that serves, and how long to wait in between.
const LOOKS: usize = 10;
const LOOK: Duration = Duration::from_millis(200);

/// The process that serves `file` and is to be relieved, if there is one, and what it
/// hands over.
pub(super) fn find(file: &Path) -> Result<Option<(Predecessor, Handed)>, UpgradeError> {
    for _ in 0..LOOKS {
        if let Some(predecessor) = Predecessor::connect(file)? {
            let handed = predecessor.receive()?;
            return Ok(Some((predecessor, handed)));
        }
        // It may have just taken over from another one.
        std::thread::sleep(LOOK);
    }
    tracing::warn!("no process serves this file: there is none to relieve");
    Ok(None)
}

/// The places of all listeners.
pub(super) struct Places {
    pub(super) proxy: ProxyPlaces,
    pub(super) admin: RouterPlace,
}

impl Places {
    /// Further handles of all sockets.
    pub(super) fn take_sockets(&mut self) -> Vec<OwnedFd> {
        let mut sockets = self.proxy.take_sockets();
        sockets.extend(self.admin.take_sockets());
        sockets
    }
}

/// Binds all listeners, but for those that another process hands over.
pub(super) fn bind(config: &Config, start: &mut Start<'_>) -> Result<Places, ServerError> {
    let mut inherited = match &mut start.predecessor {
        Some((_, handed)) => InheritedSockets::of_predecessor(std::mem::take(&mut handed.sockets))?,
        None => InheritedSockets::from_environment()?,
    };
    let proxy = ProxyPlaces::bind(&config.proxy, &mut inherited)?;
    let mode = config.admin.socket_mode.0;
    let admin = RouterPlace::bind(&admin_addresses(config), mode, &mut inherited)?;
    inherited.all_claimed()?;
    Ok(Places { proxy, admin })
}

/// Relieves the predecessor, which leaves its name to this process.
pub(super) async fn relieve(start: &mut Start<'_>, store: &Store) {
    if let Some((predecessor, _)) = start.predecessor.take() {
        let relieved = tokio::task::spawn_blocking(|| predecessor.relieve()).await;
        if let Ok(Err(error)) = relieved {
            tracing::warn!(%error, "the process before this one did not say that it leaves");
        }
        if let Err(error) = store.note_server() {
            tracing::warn!(%error, "the lock of the store names the process before this one");
        }
    }
}

/// Waits for a successor from now on, for whom the sockets are, and the lock of the
/// store.
pub(super) fn offer(start: &Start<'_>, store: &Store, sockets: Vec<OwnedFd>) -> Option<Succession> {
    if !start.may_be_succeeded {
        return None;
    }
    let listener = store.server_lock().and_then(|lock| {
        let handed = Handed { sockets, lock };
        UpgradeListener::bind(start.file, handed)?.start()
    });
    listener
        .inspect_err(|error| tracing::warn!(%error, "no other process can succeed this one"))
        .ok()
}
