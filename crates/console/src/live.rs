//! Live numbers: one task samples the counters once a second while anybody
//! listens, and every listener is sent the same bytes. The path of requests does
//! nothing for it.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, header};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};

use doorward_core::clock::Clock;
use doorward_net::telemetry::Telemetry;
use doorward_net::telemetry::traffic::{BOUNDS_US, HistogramSum};

use super::error::PageError;
use super::visit::Visit;

/// Time between two samples.
const TICK: Duration = Duration::from_secs(1);
/// Samples that a new listener is told.
const HISTORY: usize = 300;
/// Samples without a listener after which sampling ends: a page that is loaded
/// anew finds its history.
const LINGER: usize = 30;
/// Services that are told by name: those with the most requests.
const SERVICES: usize = 8;
/// How often a stream asks whether its session still stands, in samples.
const RECHECK: usize = 30;

/// What is counted now, as it is compared with what was counted a moment ago.
#[derive(Clone, Default)]
struct Totals {
    services: HashMap<String, [u64; 6]>,
    latency: HistogramSum,
}

/// The sampler and its listeners.
pub(crate) struct Live(Arc<Shared>);

struct Shared {
    telemetry: Telemetry,
    clock: Clock,
    stopping: watch::Receiver<bool>,
    latest: watch::Sender<Bytes>,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    is_sampling: bool,
    history: VecDeque<Value>,
}

impl Live {
    pub(crate) fn new(telemetry: Telemetry, clock: Clock, stopping: watch::Receiver<bool>) -> Self {
        Self(Arc::new(Shared {
            telemetry,
            clock,
            stopping,
            latest: watch::Sender::new(Bytes::new()),
            running: Mutex::default(),
        }))
    }

    /// What was sampled so far, and what will be.
    fn listen(&self) -> (Bytes, watch::Receiver<Bytes>) {
        let mut receiver = self.0.latest.subscribe();
        receiver.mark_unchanged();
        let mut running = self.0.running.lock();
        let history: Vec<_> = running.history.iter().cloned().collect();
        if !running.is_sampling {
            running.is_sampling = true;
            tokio::spawn(sample(self.0.clone()));
        }
        drop(running);
        (event("history", &Value::Array(history)), receiver)
    }
}

/// An event of a stream.
fn event(name: &str, data: &Value) -> Bytes {
    // JSON has no line ends.
    format!("event: {name}\ndata: {data}\n\n").into()
}

async fn sample(shared: Arc<Shared>) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let mut before = totals(&shared.telemetry);
    let mut at = Instant::now();
    let mut alone = 0;
    loop {
        ticks.tick().await;
        let (now, seconds) = (totals(&shared.telemetry), at.elapsed().as_secs_f64());
        at = Instant::now();
        let point = point(&shared, &before, &now, seconds);
        before = now;
        alone = if shared.latest.receiver_count() == 0 {
            alone + 1
        } else {
            0
        };
        let mut running = shared.running.lock();
        if alone > LINGER {
            *running = Running::default();
            return;
        }
        if running.history.len() >= HISTORY {
            running.history.pop_front();
        }
        let bytes = event("sample", &point);
        running.history.push_back(point);
        // Under the lock: who begins to listen gets each sample once.
        shared.latest.send_replace(bytes);
    }
}

fn totals(telemetry: &Telemetry) -> Totals {
    let mut totals = Totals::default();
    for (route, sum) in telemetry.traffic.sums() {
        let service = totals
            .services
            .entry(route.service.to_string())
            .or_default();
        for (to, from) in service.iter_mut().zip(sum.classes) {
            *to += from;
        }
        for (to, from) in totals.latency.buckets.iter_mut().zip(sum.total.buckets) {
            *to += from;
        }
    }
    totals
}

/// What happened between two samples, by second.
fn point(shared: &Shared, before: &Totals, now: &Totals, seconds: f64) -> Value {
    let by_second = |count: u64| (count as f64 / seconds.max(0.001) * 10.0).round() / 10.0;
    let mut classes = [0; 6];
    let mut services: Vec<(&str, u64)> = Vec::new();
    for (name, counts) in &now.services {
        let earlier = before.services.get(name).copied().unwrap_or_default();
        let mut sum = 0;
        for (class, (count, earlier)) in counts.iter().zip(earlier).enumerate() {
            // A route that is gone takes its counts along.
            let new = count.saturating_sub(earlier);
            classes[class] += new;
            sum += new;
        }
        services.push((name, sum));
    }
    services.sort_by(|(a, left), (b, right)| right.cmp(left).then(a.cmp(b)));
    services.truncate(SERVICES);
    let services: Vec<_> = services
        .into_iter()
        .map(|(name, count)| json!([name, by_second(count)]))
        .collect();
    let mut latency = now.latency.buckets;
    for (bucket, earlier) in latency.iter_mut().zip(before.latency.buckets) {
        *bucket = bucket.saturating_sub(earlier);
    }
    json!({
        "t": shared.clock.now_ms(),
        "rate": by_second(classes.iter().sum()),
        "classes": classes.map(by_second),
        "services": services,
        "p50": quantile(&latency, 0.5),
        "p95": quantile(&latency, 0.95),
        "open": shared.telemetry.connections.open(),
        "refusals": refusals(&shared.telemetry),
    })
}

/// The upper bound of the bucket that the quantile lies in, in milliseconds; null
/// without a request.
fn quantile(buckets: &[u64], share: f64) -> Value {
    let all: u64 = buckets.iter().sum();
    if all == 0 {
        return Value::Null;
    }
    let rank = (all as f64 * share).ceil() as u64;
    let mut sum = 0;
    for (bucket, count) in buckets.iter().enumerate() {
        sum += count;
        if sum >= rank {
            let last = BOUNDS_US.len() - 1;
            return (BOUNDS_US[bucket.min(last)] as f64 / 1000.0).into();
        }
    }
    Value::Null
}

/// Decisions of plugins since the start: plugin, decision, count.
pub(crate) fn refusals(telemetry: &Telemetry) -> Vec<(&'static str, &'static str, u64)> {
    let mut all = telemetry.metrics.decisions();
    all.retain(|(_, _, count)| *count > 0);
    all
}

/// A stream of events: who listens, and until when.
struct Stream {
    visit: Visit,
    first: Option<Bytes>,
    receiver: watch::Receiver<Bytes>,
    stopping: watch::Receiver<bool>,
    sent: usize,
}

impl Stream {
    /// The next event; `None` at the end of the session or of the process.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        self.sent += 1;
        if self.sent.is_multiple_of(RECHECK) && !self.may_go_on().await {
            return None;
        }
        tokio::select! {
            changed = self.receiver.changed() => changed.ok()?,
            _ = self.stopping.wait_for(|stopping| *stopping) => return None,
        }
        Some(self.receiver.borrow_and_update().clone())
    }

    async fn may_go_on(&mut self) -> bool {
        // A stream is no use of the session: a forgotten page does not keep it.
        if self.visit.look_up(false).await.is_err() {
            return false;
        }
        let sessions = &self.visit.parts().sessions;
        let session = self.visit.session();
        session.is_some_and(|session| sessions.is_active(session, self.visit.now_ms()))
    }
}

/// `GET /events`: the samples as server-sent events.
pub(crate) async fn events(visit: Visit) -> Result<Response, PageError> {
    let (first, receiver) = visit.parts().live.listen();
    let stopping = visit.parts().live.0.stopping.clone();
    let begin = Stream {
        visit,
        first: Some(first),
        receiver,
        stopping,
        sent: 0,
    };
    let pieces = stream::unfold(begin, |mut stream| async {
        let piece = stream.next().await?;
        Some((Ok::<_, Infallible>(piece), stream))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_bound_of_its_bucket() {
        let mut buckets = [0; BOUNDS_US.len() + 1];
        assert_eq!(quantile(&buckets, 0.5), Value::Null);
        buckets[0] = 50;
        buckets[3] = 49;
        buckets[BOUNDS_US.len()] = 1;
        assert_eq!(quantile(&buckets, 0.5), json!(0.1));
        assert_eq!(quantile(&buckets, 0.95), json!(1.0));
        assert_eq!(quantile(&buckets, 1.0), json!(60_000.0));
    }

    #[test]
    fn an_event_is_two_lines_and_a_blank_one() {
        let bytes = event("sample", &json!({"a": "x\ny"}));
        assert_eq!(bytes, "event: sample\ndata: {\"a\":\"x\\ny\"}\n\n");
    }
}
