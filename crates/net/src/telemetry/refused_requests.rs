//! Requests that were refused last, for who asks why. What is kept is bounded, and holds
//! neither queries nor headers: those may be secrets.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// Most codes that requests are kept of. Beyond it that of the longest silence goes.
const CODES: usize = 64;
/// Most requests that are kept of a code.
const EACH: usize = 8;
/// Least time between two that are kept of a code, in milliseconds.
const EVERY_MS: i64 = 100;
/// Longest text that is kept, in bytes. A request with a longer one is not kept: a part of
/// it would be another request.
const TEXT_MAX: usize = 1024;

/// A request that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRequest<T> {
    /// When.
    pub time_ms: i64,
    /// Why.
    pub code: T,
    /// What the client got.
    pub status: u16,
    /// Its method.
    pub method: T,
    /// Whether it came by TLS.
    pub https: bool,
    /// The host that it named.
    pub host: T,
    /// Its path, without the query.
    pub path: T,
    /// Where it came from.
    pub client: IpAddr,
}

/// The requests that were refused last, by their codes.
#[derive(Clone, Debug, Default)]
pub struct RefusedRequests(Arc<Mutex<Vec<OfCode>>>);

#[derive(Debug)]
struct OfCode {
    code: Box<str>,
    last_ms: i64,
    requests: VecDeque<RefusedRequest<String>>,
}

impl RefusedRequests {
    /// Notes one. No request waits here: while others note theirs, or where many of its
    /// code come, it is left out.
    pub fn note(&self, refused: &RefusedRequest<&str>) {
        let Some(mut codes) = self.0.try_lock() else {
            return;
        };
        let now_ms = refused.time_ms;
        let place = codes.iter().position(|one| *one.code == *refused.code);
        let is_early = |one: &OfCode| (0..EVERY_MS).contains(&(now_ms - one.last_ms));
        let texts = [refused.code, refused.method, refused.host, refused.path];
        match place {
            Some(place) if is_early(&codes[place]) => return,
            _ if texts.iter().any(|text| text.len() > TEXT_MAX) => return,
            _ => {}
        }
        let place = place.unwrap_or_else(|| {
            if codes.len() >= CODES {
                let oldest = (0..codes.len()).min_by_key(|place| codes[*place].last_ms);
                codes.swap_remove(oldest.unwrap_or_default());
            }
            codes.push(OfCode {
                code: refused.code.into(),
                last_ms: now_ms,
                requests: VecDeque::new(),
            });
            codes.len() - 1
        });
        let of_code = &mut codes[place];
        of_code.last_ms = now_ms;
        if of_code.requests.len() >= EACH {
            of_code.requests.pop_front();
        }
        of_code.requests.push_back(refused.kept());
    }

    /// Those that are kept, the newest first.
    pub fn read(&self) -> Vec<RefusedRequest<String>> {
        let codes = self.0.lock();
        let requests = codes.iter().flat_map(|one| &one.requests);
        let mut all: Vec<_> = requests.cloned().collect();
        all.sort_by_key(|one| std::cmp::Reverse(one.time_ms));
        all
    }
}

impl RefusedRequest<&str> {
    fn kept(&self) -> RefusedRequest<String> {
        RefusedRequest {
            time_ms: self.time_ms,
            code: self.code.to_owned(),
            status: self.status,
            method: self.method.to_owned(),
            https: self.https,
            host: self.host.to_owned(),
            path: self.path.to_owned(),
            client: self.client,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn refused<'a>(code: &'a str, path: &'a str, time_ms: i64) -> RefusedRequest<&'a str> {
        RefusedRequest {
            time_ms,
            code,
            status: 401,
            method: "GET",
            https: true,
            host: "a.example",
            path,
            client: Ipv4Addr::LOCALHOST.into(),
        }
    }

    #[test]
    fn the_last_of_each_code_are_kept_and_a_flood_hides_no_other() {
        let kept = RefusedRequests::default();
        kept.note(&refused("rare", "/rare", 1));
        for n in 0..1000 {
            kept.note(&refused("flood", &format!("/{n}"), 10 + n));
        }
        let all = kept.read();
        assert_eq!(all.len(), 1 + EACH);
        assert_eq!(all[0].path, "/900", "one in a tenth of a second");
        assert_eq!(all.last().map(|one| &*one.path), Some("/rare"));
        assert!(all.is_sorted_by(|a, b| a.time_ms >= b.time_ms));
    }

    #[test]
    fn codes_and_texts_are_bounded() {
        let kept = RefusedRequests::default();
        for n in 0..2 * CODES {
            kept.note(&refused(&n.to_string(), "/", n as i64));
        }
        let all = kept.read();
        assert_eq!(all.len(), CODES);
        let newest = (2 * CODES - 1).to_string();
        assert_eq!(
            all[0].code, newest,
            "a new code takes the place of an old one"
        );
        let long = "/".repeat(TEXT_MAX + 1);
        kept.note(&refused(&newest, &long, 1000));
        assert_eq!(kept.read().len(), CODES);
        // A clock that goes back stops nothing.
        kept.note(&refused(&newest, "/back", -5));
        assert_eq!(kept.read().len(), CODES + 1);
    }
}
