//! One look-up of a name at a time: who starts it, who waits for it, and what
//! becomes of its result.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::lookup::{Failure, ResolvedAddresses};
use super::{Endpoint, Name, ResolveError, Resolver, STALE_WAIT, State};

/// Clears the way for the next look-up, also when this one is cut off.
struct Landing(Arc<Name>);

impl Drop for Landing {
    fn drop(&mut self) {
        self.0.in_flight.store(false, Ordering::Release);
        self.0.landed.send_replace(());
    }
}

impl Name {
    /// Starts a look-up unless one is under way.
    pub(super) fn take_off(self: &Arc<Self>) {
        let Some(resolver) = self.resolver.upgrade() else {
            return;
        };
        if self.in_flight.swap(true, Ordering::AcqRel) {
            return;
        }
        let landing = Landing(self.clone());
        let runtime = resolver.runtime.clone();
        let task = async move {
            let name = &landing.0;
            let had_ports = matches!(name.known(), Some(Ok(all)) if all[0].port.is_some());
            let result = resolver.engine.lookup(&name.host, had_ports).await;
            name.settle(&resolver, result, Instant::now());
        };
        match runtime {
            Some(runtime) => drop(runtime.spawn(task)),
            None => drop(tokio::spawn(task)),
        }
    }

    /// Waits for the look-up that is under way, or starts one.
    pub(super) async fn wait(
        self: &Arc<Self>,
        limit: Duration,
    ) -> Result<Arc<[Endpoint]>, ResolveError> {
        let mut landed = self.landed.subscribe();
        self.take_off();
        let old = self.known().and_then(Result::ok);
        let limit = if old.is_some() {
            limit.min(STALE_WAIT)
        } else {
            limit
        };
        // The sender lives as long as `self`.
        let in_time = tokio::time::timeout(limit, landed.changed()).await.is_ok();
        match self.known() {
            Some(outcome) if in_time => outcome,
            _ => self.make_do(Instant::now()),
        }
    }

    /// What there is, for those who can't wait for the look-up any longer.
    fn make_do(&self, now: Instant) -> Result<Arc<[Endpoint]>, ResolveError> {
        let _changing = self.changing.lock();
        let known = self.state.load_full();
        match known {
            // It has come in the meantime, or somebody made do before.
            Some(state) if now < state.expires => state.outcome.clone(),
            Some(old) if self.keep_old(now) => old.outcome.clone(),
            // A failure from before, whose time was up, says nothing now.
            _ => Err(self.failed("no answer in time")),
        }
    }

    /// Puts the result of a look-up in force.
    pub(super) fn settle(
        &self,
        resolver: &Resolver,
        result: Result<ResolvedAddresses, Failure>,
        now: Instant,
    ) {
        let _changing = self.changing.lock();
        let limits = &resolver.limits;
        match result {
            Ok(found) => {
                resolver.metrics.found.inc();
                self.found(resolver, found, now);
            }
            Err(Failure::NotFound(ttl)) => {
                resolver.metrics.not_found.inc();
                let kept = ttl.clamp(Duration::from_secs(1), limits.not_found);
                let host = self.host.clone();
                self.give_up(resolver, ResolveError::NotFound { host }, now + kept);
            }
            Err(Failure::Failed(reason)) => {
                resolver.metrics.failed.inc();
                if !self.keep_old(now) {
                    self.give_up(resolver, self.failed(&reason), now + limits.error);
                }
            }
        }
    }

    fn found(&self, resolver: &Resolver, found: ResolvedAddresses, now: Instant) {
        let ttl = resolver.limits.valid.unwrap_or(found.ttl);
        let ttl = ttl.max(Duration::from_secs(1));
        let old = self.state.load_full();
        let mut endpoints: Arc<[Endpoint]> = found.endpoints.into();
        if let Some(State {
            outcome: Ok(same), ..
        }) = old.as_deref()
            && *same == endpoints
        {
            endpoints = same.clone();
        }
        if old.is_some_and(|old| old.stale_since.is_some()) {
            resolver.metrics.stale.add(-1);
            tracing::info!(host = %self.host, "resolved again");
        }
        self.state.store(Some(Arc::new(State {
            outcome: Ok(endpoints),
            refresh_at: Some(now + ttl * 4 / 5),
            expires: now + ttl,
            stale_since: None,
        })));
    }

    /// Goes on with the last addresses, if there are any that are not too old.
    fn keep_old(&self, now: Instant) -> bool {
        let Some(resolver) = self.resolver.upgrade() else {
            return false;
        };
        let Some(old) = self.state.load_full() else {
            return false;
        };
        let since = old.stale_since.unwrap_or(old.expires);
        if old.outcome.is_err() || now.saturating_duration_since(since) > resolver.limits.stale {
            return false;
        }
        // Before their time has come they are not yet stale.
        let stale = (now >= since).then_some(since);
        if stale.is_some() && old.stale_since.is_none() {
            resolver.metrics.stale.add(1);
            tracing::warn!(host = %self.host, "no name server answers: keeping the last addresses");
        }
        let again = now + resolver.limits.error;
        self.state.store(Some(Arc::new(State {
            outcome: old.outcome.clone(),
            refresh_at: Some(again),
            expires: if stale.is_some() { again } else { old.expires },
            stale_since: stale,
        })));
        true
    }

    fn give_up(&self, resolver: &Resolver, error: ResolveError, until: Instant) {
        let old = self.state.load_full();
        if old.as_ref().is_some_and(|old| old.stale_since.is_some()) {
            resolver.metrics.stale.add(-1);
        }
        let known =
            matches!(old.as_deref(), Some(State { outcome: Err(known), .. }) if *known == error);
        if !known {
            tracing::warn!(host = %self.host, %error, "a name has no address");
        }
        self.state.store(Some(Arc::new(State {
            outcome: Err(error),
            refresh_at: Some(until),
            expires: until,
            stale_since: None,
        })));
    }

    fn failed(&self, reason: &str) -> ResolveError {
        ResolveError::Failed {
            host: self.host.clone(),
            reason: reason.into(),
        }
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let stale = self
            .state
            .load()
            .as_ref()
            .is_some_and(|s| s.stale_since.is_some());
        if stale && let Some(resolver) = self.resolver.upgrade() {
            resolver.metrics.stale.add(-1);
        }
    }
}
