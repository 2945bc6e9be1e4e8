//! How the files that the process may open are shared out: a listener that
//! takes connections until none is left would stop all others.

use rustix::process::{Resource, getrlimit, setrlimit};

use super::workers;
use crate::config::Config;

/// Most client connections where the system does not say how many files may
/// be open.
const DEFAULT_CLIENTS: usize = 1 << 16;
/// Idle upstream connections of one worker. Fewer than busy ones would make
/// requests open new ones again and again.
const POOL: usize = 1024;
/// Fewest of them.
const LEAST_POOL: usize = 8;
/// Files for what is no connection: the store, logs, listeners, watches.
const OWN: usize = 64;
/// The same for each worker.
const OWN_OF_WORKER: usize = 8;

/// Bounds on the connections of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Most connections to the proxy.
    pub clients: usize,
    /// Most connections to the admin listener.
    pub operators: usize,
    /// Most idle upstream connections of a worker.
    pub pool: usize,
}

impl Shares {
    /// The bounds of `config`, as far as the system lets the process open
    /// files. The process may open as many as it is allowed to after that.
    pub fn of(config: &Config) -> Self {
        let clients = config.proxy.max_connections;
        let operators = config.admin.max_connections;
        let files = raise_open_files();
        let shares = Self::divide(files, workers(&config.proxy), clients, operators);
        if let Some(files) = files {
            for (key, asked, bound) in [
                ("proxy.max_connections", clients, shares.clients),
                ("admin.max_connections", operators, shares.operators),
            ] {
                if asked > bound {
                    tracing::warn!(
                        key,
                        asked,
                        bound,
                        files,
                        "too few open files are allowed for so many connections"
                    );
                }
            }
        }
        shares
    }

    /// An eighth of the files at most is the operators'. Half of the rest is
    /// the clients' unless `clients` says otherwise; what is left is for
    /// upstreams. At least `OWN` files, or a quarter, are nobody's.
    fn divide(files: Option<usize>, workers: usize, clients: usize, operators: usize) -> Self {
        let Some(files) = files else {
            return Self {
                clients: if clients == 0 {
                    DEFAULT_CLIENTS
                } else {
                    clients
                },
                operators,
                pool: POOL,
            };
        };
        let own = (OWN + OWN_OF_WORKER * workers).min(files / 4);
        let operators = operators.min(files / 8).max(1);
        let rest = files - own - operators;
        let clients = match clients {
            0 => rest / 2,
            clients => clients.min(rest),
        };
        Self {
            clients: clients.max(1),
            operators,
            pool: (rest.saturating_sub(clients) / workers.max(1)).clamp(LEAST_POOL, POOL),
        }
    }
}

/// Lets the process open as many files as it is allowed to, which is often far
/// more than it starts with: each connection is one.
///
/// Returns how many, or nothing if there is no bound.
fn raise_open_files() -> Option<usize> {
    let mut limit = getrlimit(Resource::Nofile);
    let before = limit.current;
    limit.current = limit.maximum;
    let raised = before != limit.maximum && setrlimit(Resource::Nofile, limit).is_ok();
    let files = if raised { limit.maximum } else { before };
    files.map(|files| usize::try_from(files).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_connections_together_leave_files_for_the_process_itself() {
        for files in [64, 256, 1_024, 65_536, 1 << 20] {
            for workers in [1, 2, 64] {
                for clients in [0, 100, usize::MAX] {
                    let shares = Shares::divide(Some(files), workers, clients, 256);
                    let own = files - shares.clients - shares.operators;
                    assert!(own >= (files / 4).min(OWN), "{files} {workers} {shares:?}");
                    assert!(shares.clients > 0 && shares.operators > 0);
                }
            }
        }
    }

    #[test]
    fn upstreams_get_as_many_files_as_clients() {
        let shares = Shares::divide(Some(256), 2, 0, 256);
        assert_eq!((shares.clients, shares.operators), (80, 32));
        assert!(2 * shares.pool <= 80);
        let shares = Shares::divide(Some(1 << 20), 2, 0, 256);
        assert_eq!((shares.operators, shares.pool), (256, POOL));
        assert!(shares.clients > 500_000);
    }

    #[test]
    fn bounds_that_were_chosen_hold_where_there_is_room() {
        let shares = Shares::divide(Some(10_000), 2, 3_000, 10);
        assert_eq!((shares.clients, shares.operators), (3_000, 10));
        let shares = Shares::divide(None, 2, 0, 10);
        assert_eq!((shares.clients, shares.operators), (DEFAULT_CLIENTS, 10));
    }
}
