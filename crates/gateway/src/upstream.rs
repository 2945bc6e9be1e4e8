//! The addresses of a service that names a host: which one is next, and which
//! ones were not reachable.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use smallvec::SmallVec;

use super::resolve::{Endpoint, Name, ResolveError};

/// How long an address that could not be connected to is left out while there
/// are others: at first, and at most.
const SHUNNED: Duration = Duration::from_secs(10);
const SHUNNED_MAX: Duration = Duration::from_secs(300);
/// Most addresses that are remembered as unreachable.
const DOWN_MAX: usize = 256;

/// The addresses that a request has tried.
pub type TriedAddresses = SmallVec<[SocketAddr; 2]>;

/// The addresses of one service.
#[derive(Debug)]
pub struct Peers {
    name: Arc<Name>,
    port: u16,
    /// The address of a host that is one.
    fixed: Option<SocketAddr>,
    next: AtomicUsize,
    /// `None` as long as all is well.
    down: ArcSwapOption<Vec<Down>>,
}

/// An address that can't be connected to.
#[derive(Debug, Clone, Copy)]
struct Down {
    address: SocketAddr,
    until: Instant,
    wait: Duration,
}

impl Peers {
    /// The addresses of `name`; `port` is for those that name none.
    pub fn new(name: Arc<Name>, port: u16) -> Self {
        let fixed = name.host().parse().ok();
        Self {
            fixed: fixed.map(|ip| SocketAddr::new(ip, port)),
            name,
            port,
            next: AtomicUsize::new(0),
            down: ArcSwapOption::empty(),
        }
    }

    /// The same without an address: connections go to a Unix socket, and no name server is
    /// asked.
    pub fn behind_socket(self) -> Self {
        let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        Self {
            fixed: Some(nowhere),
            ..self
        }
    }

    /// The host whose addresses these are.
    pub fn host(&self) -> &str {
        self.name.host()
    }

    /// The addresses as far as they are known now.
    pub fn known(&self) -> Vec<SocketAddr> {
        let known = self.name.known().and_then(Result::ok);
        let known = known.iter().flat_map(|all| all.iter());
        known.map(|endpoint| endpoint.address(self.port)).collect()
    }

    /// The address for the next try: in turn, by weight, those of the best
    /// priority first, and neither one of `tried` nor one that could not be
    /// reached a moment ago unless there are no others.
    ///
    /// # Errors
    /// [`ResolveError`] if the host has no address.
    pub async fn pick(
        &self,
        tried: &[SocketAddr],
        patience: Duration,
    ) -> Result<SocketAddr, ResolveError> {
        if let Some(address) = self.fixed {
            return Ok(address);
        }
        let all = self.name.answer(patience).await?;
        if let [only] = &*all {
            return Ok(only.address(self.port));
        }
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let down = self.down.load();
        let now = Instant::now();
        let down = down.as_ref().map_or(&[][..], |down| down);
        let shunned = |address| down.iter().any(|d| d.address == address && d.until > now);
        let port = self.port;
        let choose = |wanted: &dyn Fn(SocketAddr) -> bool| {
            in_turn(&all, turn, |endpoint| wanted(endpoint.address(port)))
        };
        let chosen = choose(&|a| !tried.contains(&a) && !shunned(a))
            .or_else(|| choose(&|a| !tried.contains(&a)))
            .or_else(|| choose(&|_| true));
        // An answer is never empty.
        Ok(chosen.unwrap_or(&all[0]).address(port))
    }

    /// Whether there is an address that is not one of `tried`.
    pub fn has_others(&self, tried: &[SocketAddr]) -> bool {
        if self.fixed.is_some() {
            return false;
        }
        let known = self.name.known().and_then(Result::ok);
        known.is_some_and(|all| all.iter().any(|e| !tried.contains(&e.address(self.port))))
    }

    /// Remembers that `address` could not be connected to.
    pub fn unreachable(&self, address: SocketAddr) {
        if self.fixed.is_some() {
            return; // there is no other
        }
        let now = Instant::now();
        self.down.rcu(|down| {
            let mut down: Vec<Down> = down.as_ref().map_or_else(Vec::new, |d| d.to_vec());
            let wait = match down.iter().find(|d| d.address == address) {
                // A second request found the same out.
                Some(known) if known.until > now => known.wait,
                Some(known) => (known.wait * 2).min(SHUNNED_MAX),
                None => SHUNNED,
            };
            down.retain(|d| d.address != address && d.until + SHUNNED_MAX > now);
            down.truncate(DOWN_MAX - 1);
            let until = now + wait;
            down.push(Down {
                address,
                until,
                wait,
            });
            Some(Arc::new(down))
        });
    }

    /// Remembers that `address` answered.
    pub fn reachable(&self, address: SocketAddr) {
        let known = |down: &Option<Arc<Vec<Down>>>| {
            let mut all = down.iter().flat_map(|down| down.iter());
            all.any(|d| d.address == address)
        };
        if !known(&self.down.load()) {
            return;
        }
        self.down.rcu(|down| {
            let others = down.iter().flat_map(|down| down.iter());
            let others: Vec<Down> = others.filter(|d| d.address != address).copied().collect();
            (!others.is_empty()).then(|| Arc::new(others))
        });
    }
}

/// Of the endpoints that are `wanted`, of the best priority, the one whose
/// turn it is.
fn in_turn(all: &[Endpoint], turn: usize, wanted: impl Fn(&Endpoint) -> bool) -> Option<&Endpoint> {
    let priority = all.iter().find(|e| wanted(e))?.priority;
    let group = || all.iter().filter(|e| e.priority == priority && wanted(e));
    let total: u64 = group().map(|e| u64::from(e.weight)).sum();
    let equal = group().all(|e| e.weight == all[0].weight);
    let mut point = if equal {
        let count = group().count();
        return group().nth(turn % count);
    } else {
        // Multiples of the golden ratio fall evenly into any shares.
        let spread = (turn as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((u128::from(spread) * u128::from(total)) >> 64) as u64
    };
    group().find(|endpoint| {
        let weight = u64::from(endpoint.weight);
        let here = point < weight;
        point = point.saturating_sub(weight);
        here
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(last: u8, priority: u16, weight: u16) -> Endpoint {
        Endpoint {
            priority,
            ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)),
            port: None,
            weight,
            name: None,
        }
    }

    fn shares(all: &[Endpoint], wanted: impl Fn(&Endpoint) -> bool) -> Vec<usize> {
        let mut counts = vec![0; all.len()];
        for turn in 0..1000 {
            let chosen = in_turn(all, turn, &wanted).expect("one");
            let at = all.iter().position(|e| e == chosen).expect("of them");
            counts[at] += 1;
        }
        counts
    }

    #[test]
    fn equal_addresses_take_turns() {
        let all = [endpoint(1, 0, 1), endpoint(2, 0, 1)];
        assert_eq!(shares(&all, |_| true), [500, 500]);
    }

    #[test]
    fn shares_follow_weights() {
        let all = [endpoint(1, 0, 1), endpoint(2, 0, 3)];
        let counts = shares(&all, |_| true);
        assert!((240..=260).contains(&counts[0]), "{counts:?}");
    }

    #[test]
    fn a_worse_priority_is_for_when_the_better_ones_are_out() {
        let all = [endpoint(1, 1, 1), endpoint(2, 2, 9)];
        assert_eq!(shares(&all, |_| true), [1000, 0]);
        assert_eq!(shares(&all, |e| e.priority == 2), [0, 1000]);
    }
}
