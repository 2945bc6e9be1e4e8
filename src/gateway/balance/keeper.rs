//! What goes on for the balancers besides requests: probes of their endpoints
//! and look-ups of their targets' names.
//!
//! One task for each upstream that needs any. A change of the configuration
//! gives the task the new balancer; its schedule goes on. Away from the proxy
//! workers, and bounded: a name at a time, probes as many as the upstream's
//! `concurrency` and the prober allow.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use uuid::Uuid;

use super::balancer::Balancer;
use super::endpoint::Endpoint;
use super::member::{Answer, Names, Resolution};
use super::probe::{Plan, Prober};
use super::random::{mix, scale};
use crate::clock::{self, monotonic_ns};
use crate::gateway::snapshot::Snapshot;

/// Longest time without a look at what changed by itself.
const LOOK: Duration = Duration::from_millis(500);
/// Bounds on the time between look-ups of a name.
const TTL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));
/// Time until a name that was not found is looked up again, doubled each time.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// Longest look-up.
const LOOKUP: Duration = Duration::from_secs(10);

/// Cares for the balancers of the snapshot in force, until it is dropped.
pub struct Keeper {
    live: Arc<ArcSwap<Snapshot>>,
    names: Arc<dyn Names>,
    prober: Arc<Prober>,
    tended: HashMap<Uuid, Tended>,
}

/// A running task for an upstream, and how it is told of a new balancer.
struct Tended {
    balancer: watch::Sender<Arc<Balancer>>,
    task: AbortHandle,
}

impl Drop for Tended {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Keeper {
    /// A keeper for the snapshots in `live`.
    pub fn new(live: Arc<ArcSwap<Snapshot>>, names: Arc<dyn Names>) -> Self {
        Self {
            live,
            names,
            prober: Prober::new(),
            tended: HashMap::new(),
        }
    }

    /// Works until `changes`, which tells of each new snapshot, is closed.
    pub async fn run(mut self, mut changes: watch::Receiver<()>) {
        loop {
            self.look();
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    fn look(&mut self) {
        let snapshot = self.live.load_full();
        self.tended.retain(|id, _| {
            let balancer = snapshot.balancers.get(*id);
            balancer.is_some_and(|balancer| balancer.needs_care())
        });
        for balancer in snapshot.balancers.iter().filter(|b| b.needs_care()) {
            match self.tended.get(&balancer.upstream.id) {
                Some(tended) => {
                    tended.balancer.send_if_modified(|current| {
                        let news = !Arc::ptr_eq(current, balancer);
                        *current = balancer.clone();
                        news
                    });
                }
                None => self.begin(balancer),
            }
        }
    }

    fn begin(&mut self, balancer: &Arc<Balancer>) {
        let (sender, receiver) = watch::channel(balancer.clone());
        let tender = Tender {
            balancer: receiver,
            names: self.names.clone(),
            prober: self.prober.clone(),
            plan: Arc::new(Plan::of(&balancer.upstream.healthchecks.active)),
            probes: HashMap::new(),
            lookups: HashMap::new(),
            running: JoinSet::new(),
            probing: 0,
        };
        let tended = Tended {
            balancer: sender,
            task: tokio::spawn(tender.run()).abort_handle(),
        };
        self.tended.insert(balancer.upstream.id, tended);
    }
}

impl Balancer {
    fn needs_care(&self) -> bool {
        let active = &self.upstream.healthchecks.active;
        let probed = active.healthy.interval > 0.0 || active.unhealthy.interval > 0.0;
        probed || self.members.iter().any(|member| member.is_name())
    }
}

/// The care for one upstream.
struct Tender {
    balancer: watch::Receiver<Arc<Balancer>>,
    names: Arc<dyn Names>,
    prober: Arc<Prober>,
    plan: Arc<Plan>,
    /// By the number of the endpoint's state.
    probes: HashMap<u32, Probe>,
    lookups: HashMap<Uuid, Lookup>,
    running: JoinSet<Done>,
    probing: u32,
}

/// When an endpoint is probed next.
struct Probe {
    /// The health for which that was decided.
    healthy: bool,
    due_ns: u64,
    running: bool,
}

/// When a name is looked up next.
struct Lookup {
    text: Arc<str>,
    due_ns: u64,
    running: bool,
    failures: u32,
}

enum Done {
    Probed(u32),
    Found(Uuid, Result<Resolution, Box<str>>),
}

impl Tender {
    async fn run(mut self) {
        loop {
            let balancer = self.balancer.borrow_and_update().clone();
            let now_ns = monotonic_ns();
            let next = self
                .probe_due(&balancer, now_ns)
                .min(self.look_up_due(&balancer, now_ns));
            let wait = Duration::from_nanos(next.saturating_sub(now_ns)).min(LOOK);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                changed = self.balancer.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.renew();
                }
                Some(done) = self.running.join_next() => {
                    if let Ok(done) = done {
                        self.finish(done);
                    }
                }
            }
        }
    }

    /// Takes over a new balancer.
    fn renew(&mut self) {
        let balancer = self.balancer.borrow_and_update().clone();
        self.plan = Arc::new(Plan::of(&balancer.upstream.healthchecks.active));
        // What was found while it was being compiled is not in its lineup yet.
        if balancer.members.iter().any(|member| member.is_name()) {
            balancer.rearrange(monotonic_ns());
        }
        let lineup = balancer.lineup();
        let lives = |number: &u32| lineup.endpoints.iter().any(|e| e.state.number == *number);
        self.probes
            .retain(|number, probe| probe.running || lives(number));
        self.lookups
            .retain(|id, _| balancer.members.iter().any(|member| member.id == *id));
    }

    /// Starts the probes that are due; the time of the next one.
    fn probe_due(&mut self, balancer: &Arc<Balancer>, now_ns: u64) -> u64 {
        let lineup = balancer.lineup();
        let room = balancer.upstream.healthchecks.active.concurrency.max(1);
        let mut next = u64::MAX;
        for endpoint in lineup.endpoints.iter().filter(|e| e.weight > 0) {
            let number = endpoint.state.number;
            let healthy = endpoint.is_healthy();
            let Some(interval) = interval(balancer, healthy) else {
                self.probes.remove(&number);
                continue;
            };
            let Some(address) = endpoint.address else {
                continue;
            };
            let probe = self.probes.entry(number).or_insert_with(|| Probe {
                healthy,
                due_ns: now_ns + jitter(interval),
                running: false,
            });
            if probe.healthy != healthy {
                probe.healthy = healthy;
                probe.due_ns = now_ns + interval;
            }
            if probe.running {
                continue;
            }
            if probe.due_ns <= now_ns {
                if self.probing >= room {
                    // One that ends makes room and wakes us.
                    continue;
                }
                probe.running = true;
                probe.due_ns = now_ns + interval;
                self.probing += 1;
                self.start_probe(endpoint.clone(), address);
            } else {
                next = next.min(probe.due_ns);
            }
        }
        next
    }

    fn start_probe(&mut self, endpoint: Arc<Endpoint>, address: std::net::SocketAddr) {
        let (prober, plan) = (self.prober.clone(), self.plan.clone());
        self.running.spawn(async move {
            let outcome = prober.probe(&plan, &endpoint, address).await;
            endpoint.count(&endpoint.group.active, outcome, monotonic_ns());
            Done::Probed(endpoint.state.number)
        });
    }

    /// Starts the look-ups that are due; the time of the next one.
    fn look_up_due(&mut self, balancer: &Arc<Balancer>, now_ns: u64) -> u64 {
        let mut next = u64::MAX;
        for member in balancer.members.iter().filter(|member| member.is_name()) {
            let fresh = || Lookup {
                text: member.text.clone(),
                due_ns: now_ns,
                running: false,
                failures: 0,
            };
            let lookup = self.lookups.entry(member.id).or_insert_with(fresh);
            if lookup.text != member.text && !lookup.running {
                *lookup = fresh();
            }
            if lookup.running {
                continue;
            }
            if lookup.due_ns > now_ns {
                next = next.min(lookup.due_ns);
                continue;
            }
            lookup.running = true;
            let (names, id) = (self.names.clone(), member.id);
            let (host, port) = (member.host.clone(), member.port);
            let srv_name = balancer.upstream.use_srv_name;
            self.running.spawn(async move {
                let found = tokio::time::timeout(LOOKUP, names.find(&host, port, srv_name)).await;
                let found = match found {
                    Ok(found) => found.map_err(|error| error.0),
                    Err(_) => Err("no answer in time".into()),
                };
                Done::Found(id, found)
            });
        }
        next
    }

    fn finish(&mut self, done: Done) {
        match done {
            Done::Probed(number) => {
                self.probing -= 1;
                if let Some(probe) = self.probes.get_mut(&number) {
                    probe.running = false;
                }
            }
            Done::Found(id, found) => self.learn(id, found),
        }
    }

    fn learn(&mut self, id: Uuid, found: Result<Resolution, Box<str>>) {
        let balancer = self.balancer.borrow().clone();
        let member = balancer.members.iter().find(|member| member.id == id);
        let Some((member, lookup)) = member.zip(self.lookups.get_mut(&id)) else {
            return;
        };
        lookup.running = false;
        if lookup.text != member.text {
            return;
        }
        let now_ns = monotonic_ns();
        let (upstream, target) = (&balancer.group.name, &member.text);
        let (wait, answer) = match found {
            Ok(mut found) if !found.records.is_empty() => {
                lookup.failures = 0;
                found.records.sort_by_key(|record| record.address);
                found.records.dedup_by_key(|record| record.address);
                let answer = Answer::Found {
                    records: found.records.into(),
                    kind: found.kind,
                };
                (found.ttl.clamp(TTL.0, TTL.1), Some(answer))
            }
            other => {
                let why = other.err().unwrap_or_else(|| "no address".into());
                if lookup.failures == 0 {
                    tracing::warn!(%upstream, %target, %why, "name can't be resolved");
                }
                let wait = RETRY.0 * 2_u32.saturating_pow(lookup.failures.min(6));
                lookup.failures = lookup.failures.saturating_add(1);
                // Addresses that worked are better than none.
                let lost = !matches!(&*member.answer(), Answer::Found { .. });
                (wait.min(RETRY.1), lost.then_some(Answer::Failed(why)))
            }
        };
        lookup.due_ns = now_ns + nanos(wait);
        if answer.is_some_and(|answer| member.learn(answer)) {
            balancer.rearrange(now_ns);
            tracing::info!(%upstream, %target, "addresses changed");
        }
    }
}

/// Nanoseconds between probes of a target of this health; `None`: none.
fn interval(balancer: &Balancer, healthy: bool) -> Option<u64> {
    let active = &balancer.upstream.healthchecks.active;
    let seconds = if healthy {
        active.healthy.interval
    } else {
        active.unhealthy.interval
    };
    // Schemas allow fractions of seconds, but nobody means a storm.
    (seconds > 0.0).then(|| (seconds.max(0.01) * 1e9) as u64)
}

/// A part of `interval`, so that not all targets are probed at one time.
fn jitter(interval: u64) -> u64 {
    scale(mix(u64::from_le_bytes(clock::random_bytes())), interval)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
