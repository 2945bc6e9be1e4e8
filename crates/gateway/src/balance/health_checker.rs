//! The health checker of one upstream: when its endpoints are probed and its
//! targets' names looked up.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::balancer::Balancer;
use super::endpoint::Endpoint;
use super::member::{Answer, Names, Question, Resolution};
use super::probe::{Plan, Prober};
use super::random::{mix, scale};
use crate::entities::Record;
use doorward_core::clock::{self, monotonic_ns};
use doorward_core::model::certificate::Certificate;

/// Longest time without a look at healths, which requests change too.
const LOOK: Duration = Duration::from_millis(500);
/// Bounds on the time between look-ups of a name.
const TTL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));
/// The part of that time that may be added, so that names that were looked up
/// at one time are not for ever.
const SPREAD: u64 = 16;
/// Time until a name that was not found is looked up again, doubled each time.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// Longest look-up.
const LOOKUP: Duration = Duration::from_secs(10);

/// An upstream that is checked.
#[derive(Clone)]
pub(super) struct CheckedUpstream {
    pub(super) balancer: Arc<Balancer>,
    /// What its probes over TLS show.
    pub(super) certificate: Option<Arc<Record<Certificate>>>,
}

/// What the health checkers of all upstreams share.
#[derive(Clone)]
pub(super) struct Resources {
    pub(super) names: Arc<dyn Names>,
    pub(super) prober: Arc<Prober>,
    /// Room for look-ups.
    pub(super) lookups: Arc<Semaphore>,
}

/// Probes the endpoints of one upstream and looks up its targets' names.
pub(super) struct HealthChecker {
    pub(super) checked: watch::Receiver<CheckedUpstream>,
    resources: Resources,
    plan: Arc<Plan>,
    /// By the number of the endpoint's state.
    pub(super) probes: HashMap<u32, Probe>,
    lookups: HashMap<Uuid, Lookup>,
    pub(super) running: JoinSet<Done>,
    pub(super) probing: u32,
}

/// When an endpoint is probed next.
pub(super) struct Probe {
    /// The health for which that was decided.
    healthy: bool,
    pub(super) due_ns: u64,
    running: bool,
}

/// When a name is looked up next.
struct Lookup {
    text: Arc<str>,
    /// Whether the names in SRV records are wanted.
    srv_name: bool,
    due_ns: u64,
    running: bool,
    failures: u32,
}

/// What a task came to.
pub(super) enum Done {
    Probed(u32),
    Found(Uuid, Result<Resolution, Box<str>>),
}

impl CheckedUpstream {
    /// Whether nothing has changed.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let same_certificate = match (&self.certificate, &other.certificate) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        same_certificate && Arc::ptr_eq(&self.balancer, &other.balancer)
    }

    fn plan(&self) -> Arc<Plan> {
        let certificate = self.certificate.as_ref().map(|record| &record.value);
        Arc::new(Plan::of(&self.balancer.upstream, certificate))
    }
}

impl HealthChecker {
    /// A checker of what `checked` holds.
    pub(super) fn new(checked: watch::Receiver<CheckedUpstream>, resources: Resources) -> Self {
        let plan = checked.borrow().plan();
        Self {
            checked,
            resources,
            plan,
            probes: HashMap::new(),
            lookups: HashMap::new(),
            running: JoinSet::new(),
            probing: 0,
        }
    }

    /// Works until nobody can change the charge any more.
    pub(super) async fn run(mut self) {
        loop {
            let wait = self.start_due(monotonic_ns());
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                changed = self.checked.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.renew(monotonic_ns());
                }
                Some(done) = self.running.join_next() => {
                    if let Ok(done) = done {
                        self.finish(done, monotonic_ns());
                    }
                }
            }
        }
    }

    /// Starts what is due; how long nothing else will be.
    pub(super) fn start_due(&mut self, now_ns: u64) -> Duration {
        // A change is not marked as seen: `renew` has yet to see it.
        let balancer = self.checked.borrow().balancer.clone();
        let probe = self.probe_due(&balancer, now_ns);
        let next = probe.min(self.look_up_due(&balancer, now_ns));
        let limit = if balancer.is_probed() { LOOK } else { TTL.1 };
        Duration::from_nanos(next.saturating_sub(now_ns)).min(limit)
    }

    /// Takes over a new charge.
    pub(super) fn renew(&mut self, now_ns: u64) {
        let checked = self.checked.borrow_and_update().clone();
        self.plan = checked.plan();
        let members = &checked.balancer.members;
        // What was found while it was being compiled is not in its endpoint set yet.
        if members.iter().any(|member| member.is_name()) {
            checked.balancer.rearrange(now_ns);
        }
        self.forget_probes(&checked.balancer);
        self.lookups
            .retain(|id, _| members.iter().any(|member| member.id == *id));
    }

    /// Forgets the probes of endpoints that are gone.
    fn forget_probes(&mut self, balancer: &Balancer) {
        let endpoint_set = balancer.endpoint_set();
        let numbers = endpoint_set.endpoints.iter().map(|e| e.state.number);
        let alive: std::collections::HashSet<u32> = numbers.collect();
        self.probes
            .retain(|number, probe| probe.running || alive.contains(number));
    }

    /// Starts the probes that are due; the time of the next one.
    fn probe_due(&mut self, balancer: &Balancer, now_ns: u64) -> u64 {
        let endpoint_set = balancer.endpoint_set();
        let room = balancer.upstream.healthchecks.active.concurrency.max(1);
        let mut next = u64::MAX;
        let mut due = Vec::new();
        for endpoint in endpoint_set.endpoints.iter().filter(|e| e.weight > 0) {
            let Some((address, due_ns)) = self.schedule(balancer, endpoint, now_ns) else {
                continue;
            };
            if due_ns <= now_ns {
                due.push((due_ns, endpoint, address));
            } else {
                next = next.min(due_ns);
            }
        }
        // Who has waited longest is first: targets that take long to fail
        // would else be due again before the others' turn. For those that find
        // no room now, one that ends makes it and wakes us.
        due.sort_by_key(|(due_ns, ..)| *due_ns);
        let free = room.saturating_sub(self.probing) as usize;
        for (_, endpoint, address) in due.into_iter().take(free) {
            next = next.min(self.start_probe(balancer, endpoint, address, now_ns));
        }
        next
    }

    /// Where and when an endpoint is probed next; `None` if it isn't, or is
    /// just being probed.
    fn schedule(
        &mut self,
        balancer: &Balancer,
        endpoint: &Endpoint,
        now_ns: u64,
    ) -> Option<(SocketAddr, u64)> {
        let number = endpoint.state.number;
        let healthy = endpoint.is_healthy();
        let Some(interval) = interval(balancer, healthy) else {
            if self.probes.get(&number).is_some_and(|probe| !probe.running) {
                self.probes.remove(&number);
            }
            return None;
        };
        let address = endpoint.address?;
        let probe = self.probes.entry(number).or_insert_with(|| Probe {
            healthy,
            due_ns: now_ns + jitter(interval),
            running: false,
        });
        if probe.healthy != healthy {
            probe.healthy = healthy;
            probe.due_ns = now_ns + interval;
        }
        (!probe.running).then_some((address, probe.due_ns))
    }

    /// Probes an endpoint; the time of its next probe.
    fn start_probe(
        &mut self,
        balancer: &Balancer,
        endpoint: &Arc<Endpoint>,
        address: SocketAddr,
        now_ns: u64,
    ) -> u64 {
        let number = endpoint.state.number;
        let interval = interval(balancer, endpoint.is_healthy());
        let due_ns = now_ns + interval.unwrap_or(0);
        if let Some(probe) = self.probes.get_mut(&number) {
            probe.running = true;
            probe.due_ns = due_ns;
        }
        self.probing += 1;
        let (prober, plan) = (self.resources.prober.clone(), self.plan.clone());
        let endpoint = endpoint.clone();
        let probe = async move {
            if let Some(outcome) = prober.probe(&plan, &endpoint, address).await {
                endpoint.count(&endpoint.group.active, outcome, monotonic_ns());
            }
        };
        self.running.spawn(async move {
            let _ = unbroken(probe).await;
            Done::Probed(number)
        });
        due_ns
    }

    /// Starts the look-ups that are due; the time of the next one.
    fn look_up_due(&mut self, balancer: &Balancer, now_ns: u64) -> u64 {
        let srv_name = balancer.upstream.use_srv_name;
        let mut next = u64::MAX;
        for member in balancer.members.iter().filter(|member| member.is_name()) {
            let fresh = || Lookup {
                text: member.text.clone(),
                srv_name,
                due_ns: now_ns,
                running: false,
                failures: 0,
            };
            let lookup = self.lookups.entry(member.id).or_insert_with(fresh);
            if lookup.running {
                continue;
            }
            if lookup.text != member.text || lookup.srv_name != srv_name {
                *lookup = fresh();
            }
            if lookup.due_ns > now_ns {
                next = next.min(lookup.due_ns);
                continue;
            }
            lookup.running = true;
            let (resources, id) = (self.resources.clone(), member.id);
            let question = member.question(srv_name);
            self.running.spawn(async move {
                let found = unbroken(resources.find(&question)).await;
                Done::Found(id, found.unwrap_or_else(|| Err("the look-up broke".into())))
            });
        }
        next
    }

    /// Takes in what a task came to.
    pub(super) fn finish(&mut self, done: Done, now_ns: u64) {
        match done {
            Done::Probed(number) => {
                self.probing -= 1;
                if let Some(probe) = self.probes.get_mut(&number) {
                    probe.running = false;
                }
            }
            Done::Found(id, found) => self.learn(id, found, now_ns),
        }
    }

    fn learn(&mut self, id: Uuid, found: Result<Resolution, Box<str>>, now_ns: u64) {
        let balancer = self.checked.borrow().balancer.clone();
        let Some(lookup) = self.lookups.get_mut(&id) else {
            return;
        };
        lookup.running = false;
        let member = balancer.members.iter().find(|member| member.id == id);
        let Some(member) = member.filter(|member| member.text == lookup.text) else {
            return;
        };
        if lookup.srv_name != balancer.upstream.use_srv_name {
            return;
        }
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
                let ttl = nanos(found.ttl.clamp(TTL.0, TTL.1));
                (ttl + jitter(ttl / SPREAD), Some(answer))
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
                let answer = lost.then_some(Answer::Failed(why));
                (nanos(wait.min(RETRY.1)), answer)
            }
        };
        lookup.due_ns = now_ns + wait;
        if answer.is_some_and(|answer| member.learn(answer)) {
            balancer.rearrange(now_ns);
            self.forget_probes(&balancer);
            tracing::info!(%upstream, %target, "addresses changed");
        }
    }
}

impl Resources {
    /// Asks when there is room; its time begins then.
    async fn find(&self, question: &Question) -> Result<Resolution, Box<str>> {
        let _room = self.lookups.acquire().await;
        match tokio::time::timeout(LOOKUP, self.names.find(question)).await {
            Ok(found) => found.map_err(|error| error.0),
            Err(_) => Err("no answer in time".into()),
        }
    }
}

/// What `work` comes to; `None` if it panics, which the panic itself tells of.
async fn unbroken<T>(work: impl Future<Output = T>) -> Option<T> {
    AssertUnwindSafe(work).catch_unwind().await.ok()
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

/// A part of `interval`, so that not everything is done at one time.
fn jitter(interval: u64) -> u64 {
    scale(mix(u64::from_le_bytes(clock::random_bytes())), interval)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
