//! Health checks on the proxy's own port, for balancers that reach no other.

use std::fmt;
use std::sync::Arc;

use http::{HeaderValue, Method, StatusCode, header};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tokio::sync::Mutex;

use doorward_core::clock;
use doorward_net::http::reply::Reply;
use doorward_store::Store;

/// How long an answer of the store counts for those who ask after it.
const FRESH_NS: u64 = 1_000_000_000;
/// Where they are unless the file says.
const LIVE: &str = "/livez";
const READY: &str = "/readyz";

/// Paths of health checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbePaths {
    /// Whether the process answers.
    pub live: Option<String>,
    /// Whether it should be given requests.
    pub ready: Option<String>,
}

impl ProbePaths {
    /// The check that is at `path`.
    pub(crate) fn find(&self, path: &str) -> Option<Probe> {
        let is_at = |own: &Option<String>| own.as_deref() == Some(path);
        if is_at(&self.live) {
            return Some(Probe::Live);
        }
        is_at(&self.ready).then_some(Probe::Ready)
    }

    /// Whether each is a path that requests can have.
    ///
    /// # Errors
    /// The key, and what is wrong.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        for (key, path) in [("live", &self.live), ("ready", &self.ready)] {
            let Some(path) = path else { continue };
            let is_plain = path
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte));
            if !is_plain || !path.starts_with('/') || path.len() < 2 {
                let message = "expected a path of letters, digits and -._~, such as /livez";
                return Err((key, message.to_owned()));
            }
        }
        if self.live.is_some() && self.live == self.ready {
            return Err(("ready", "is the path of live as well".to_owned()));
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for ProbePaths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PathsVisitor)
    }
}

struct PathsVisitor;

impl<'de> Visitor<'de> for PathsVisitor {
    type Value = ProbePaths;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false, or paths as {live: /livez, ready: /readyz}")
    }

    fn visit_bool<E: Error>(self, is_on: bool) -> Result<ProbePaths, E> {
        Ok(ProbePaths {
            live: is_on.then(|| LIVE.to_owned()),
            ready: is_on.then(|| READY.to_owned()),
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ProbePaths, A::Error> {
        let mut paths = ProbePaths::default();
        while let Some(key) = map.next_key::<String>()? {
            let place = match key.as_str() {
                "live" => &mut paths.live,
                "ready" => &mut paths.ready,
                other => return Err(A::Error::unknown_field(other, &["live", "ready"])),
            };
            *place = Some(map.next_value()?);
        }
        Ok(paths)
    }
}

/// A health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    Live,
    Ready,
}

/// Health checks that are switched on.
pub struct Probes {
    paths: ProbePaths,
    store: Arc<Store>,
    /// When the store was asked, and whether it answered: strangers cannot make it
    /// work more than once a second.
    last: Mutex<Option<(u64, bool)>>,
}

impl Probes {
    /// The checks at `paths`, if there are any.
    pub fn new(paths: &ProbePaths, store: Arc<Store>) -> Option<Self> {
        let is_on = paths.live.is_some() || paths.ready.is_some();
        is_on.then(|| Self {
            paths: paths.clone(),
            store,
            last: Mutex::default(),
        })
    }

    /// The check that is at `path`.
    pub(crate) fn find(&self, path: &str) -> Option<Probe> {
        self.paths.find(path)
    }

    /// The answer to a check. It says nothing but its status.
    pub(crate) async fn answer(&self, probe: Probe, method: &Method, is_stopping: bool) -> Reply {
        if !matches!(*method, Method::GET | Method::HEAD) {
            let allowed = HeaderValue::from_static("GET, HEAD");
            let refused = Reply::empty(StatusCode::METHOD_NOT_ALLOWED);
            return refused.header(header::ALLOW, allowed);
        }
        let is_well = probe == Probe::Live || (!is_stopping && self.is_ready().await);
        let status = if is_well {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        Reply::empty(status).header(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))
    }

    async fn is_ready(&self) -> bool {
        // Those who come meanwhile wait for the one that asks.
        let mut last = self.last.lock().await;
        let now = clock::monotonic_ns();
        if let Some((asked, answered)) = *last
            && now.saturating_sub(asked) < FRESH_NS
        {
            return answered;
        }
        let answered = self.store.answers().await.is_ok();
        *last = Some((clock::monotonic_ns(), answered));
        answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(live: &str, ready: &str) -> ProbePaths {
        ProbePaths {
            live: Some(live.to_owned()),
            ready: Some(ready.to_owned()),
        }
    }

    #[test]
    fn paths_are_plain_and_differ() {
        paths("/livez", "/ready/z").check().expect("good");
        for bad in ["", "/", "livez", "/a b", "/a?b", "/%6c", "/a\n"] {
            let refused = paths(bad, "/readyz").check().expect_err("refused");
            assert_eq!(refused.0, "live", "{bad}");
        }
        let refused = paths("/z", "/z").check().expect_err("refused");
        assert_eq!(refused.0, "ready");
    }
}
