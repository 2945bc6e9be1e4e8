//! What serves plain requests, lent to connections while they have one.
//!
//! The state of a request that is served is many times that of a connection that waits
//! for one. As a part of the connection's task it would take its room for as long as the
//! connection lasts; made anew for each request it would be moved to the heap each time.
//! An [`Attendant`] is made once, and serves one request after another, of whatever
//! connection.

use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use parking_lot::Mutex;
use pingora::server::ShutdownWatch;

use super::{Forwarder, Idle};

/// Most attendants of a worker that wait for a request.
const WAITING: usize = 64;

/// Attendants that wait for a request.
#[derive(Default)]
pub(super) struct Attendants(Mutex<Vec<Attendant>>);

/// What a connection and its attendant hand to each other.
#[derive(Default)]
struct Errand {
    /// A connection whose request was taken.
    request: Option<Box<Idle>>,
    /// What came of it: the connection, if it may have another one.
    outcome: Option<Option<Box<Idle>>>,
}

/// Serves plain requests one after another.
struct Attendant {
    service: Pin<Box<dyn Future<Output = Infallible> + Send>>,
    errand: Arc<Mutex<Errand>>,
}

impl fmt::Debug for Attendants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Attendants")
            .field(&self.0.lock().len())
            .finish()
    }
}

impl Attendant {
    fn new(forwarder: &Arc<Forwarder>, shutdown: &ShutdownWatch) -> Self {
        let errand = Arc::<Mutex<Errand>>::default();
        let (forwarder, shutdown) = (forwarder.clone(), shutdown.clone());
        let service = serve(forwarder, shutdown, errand.clone());
        Self {
            service: Box::pin(service),
            errand,
        }
    }

    /// Serves the request of `idle`. Whoever drops the future drops the request, and must
    /// not use the attendant again.
    async fn serve(&mut self, idle: Box<Idle>) -> Option<Box<Idle>> {
        self.errand.lock().request = Some(idle);
        poll_fn(|cx| {
            let Poll::Pending = self.service.as_mut().poll(cx);
            let outcome = self.errand.lock().outcome.take();
            outcome.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

impl Attendants {
    /// Serves the plain request that was taken from a connection.
    pub(super) async fn serve(
        &self,
        forwarder: &Arc<Forwarder>,
        idle: Box<Idle>,
        shutdown: &ShutdownWatch,
    ) -> Option<Box<Idle>> {
        let waiting = self.0.lock().pop();
        let mut attendant = waiting.unwrap_or_else(|| Attendant::new(forwarder, shutdown));
        let next = attendant.serve(idle).await;
        let mut all = self.0.lock();
        // Nobody would send it away later.
        let stopping = forwarder.gateway.stopping.has_begun();
        if all.len() < WAITING && !stopping {
            all.push(attendant);
        }
        next
    }

    /// Sends those away that wait: each holds what serves requests.
    pub(super) fn dismiss(&self) {
        self.0.lock().clear();
    }
}

/// What an attendant does.
async fn serve(
    forwarder: Arc<Forwarder>,
    shutdown: ShutdownWatch,
    errand: Arc<Mutex<Errand>>,
) -> Infallible {
    loop {
        // Whoever brings a request polls.
        let idle = poll_fn(|_| {
            let request = errand.lock().request.take();
            request.map_or(Poll::Pending, Poll::Ready)
        });
        let idle = idle.await;
        let outcome = forwarder.serve_plain(idle, &shutdown).await;
        errand.lock().outcome = Some(outcome);
    }
}
