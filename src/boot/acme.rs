//! Certificates of an authority for the listeners of the proxy.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::{BootError, Opened, vault};
use crate::config::Config;
use doorward_acme::{Acme, Parts};
use doorward_core::clock::Clock;
use doorward_gateway::snapshot::Snapshot;

/// How long the hosts of a snapshot are taken for those of its successors: strangers'
/// handshakes do not read all routes again and again.
const FRESH: Duration = Duration::from_secs(1);

/// What orders certificates, with those that the store has; nothing, if `config` asks for
/// none.
///
/// # Errors
/// [`BootError`]: the file of authorities, the store, or the master key.
pub async fn open(
    config: &Config,
    clock: &Clock,
    parts: &Opened,
) -> Result<Option<Arc<Acme>>, BootError> {
    let Some(section) = config.acme.clone() else {
        return Ok(None);
    };
    let hosts = RoutedHosts::new(parts.control.live());
    let parts = Parts {
        store: parts.store.clone(),
        is_shared: !config.store.0.starts_with("sqlite:"),
        vault: vault(config)?,
        clock: clock.clone(),
        metrics: parts.telemetry.acme.clone(),
        audit: parts.audit.clone(),
        routed: Box::new(move |name| hosts.contains(name)),
    };
    Ok(Some(Acme::open(section, parts).await?))
}

/// The hosts and server names of routes that are exact and have no certificate of their
/// own.
struct RoutedHosts {
    live: Arc<ArcSwap<Snapshot>>,
    read: Mutex<Option<(Instant, HashSet<Box<str>>)>>,
}

impl RoutedHosts {
    fn new(live: Arc<ArcSwap<Snapshot>>) -> Self {
        Self {
            live,
            read: Mutex::default(),
        }
    }

    fn contains(&self, name: &str) -> bool {
        let snapshot = self.live.load();
        if snapshot.certificates.find_named(name).is_some() {
            return false;
        }
        let mut read = self.read.lock();
        let is_fresh = read.as_ref().is_some_and(|(at, _)| at.elapsed() < FRESH);
        if !is_fresh {
            *read = Some((Instant::now(), exact_hosts(&snapshot)));
        }
        read.as_ref().is_some_and(|(_, hosts)| hosts.contains(name))
    }
}

fn exact_hosts(snapshot: &Snapshot) -> HashSet<Box<str>> {
    let routes = snapshot.entities().routes.iter();
    let names = routes.flat_map(|record| {
        let route = &record.value;
        route.hosts.iter().chain(&route.snis).flatten()
    });
    let exact = names.filter(|name| !name.contains(['*', ':']));
    exact.map(|name| name.to_ascii_lowercase().into()).collect()
}
