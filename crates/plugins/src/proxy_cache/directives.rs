//! `Cache-Control` (RFC 9111 §5.2).

use http::{HeaderMap, header};

/// Directives of a request or an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Directives {
    pub(super) no_store: bool,
    pub(super) no_cache: bool,
    pub(super) private: bool,
    pub(super) public: bool,
    pub(super) only_if_cached: bool,
    /// `must-revalidate`, `proxy-revalidate`, or what implies it for shared caches.
    pub(super) must_revalidate: bool,
    pub(super) max_age: Option<i64>,
    pub(super) s_maxage: Option<i64>,
    pub(super) max_stale: Option<i64>,
    pub(super) min_fresh: Option<i64>,
}

impl Directives {
    /// Reads all `Cache-Control` headers. A number that can't be read is 0, which
    /// lets less be stored.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut all = Self::default();
        for value in headers.get_all(header::CACHE_CONTROL) {
            let text = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
            for part in text.split(',') {
                let (name, value) = part.split_once('=').unwrap_or((part, ""));
                all.take(name.trim(), value.trim().trim_matches('"'));
            }
        }
        all
    }

    fn take(&mut self, name: &str, value: &str) {
        let seconds = || Some(value.parse::<u32>().map_or(0, i64::from));
        match name {
            "no-store" => self.no_store = true,
            "no-cache" => self.no_cache = true,
            "private" => self.private = true,
            "public" => self.public = true,
            "only-if-cached" => self.only_if_cached = true,
            "must-revalidate" | "proxy-revalidate" => self.must_revalidate = true,
            "max-age" => self.max_age = self.max_age.or_else(seconds),
            "s-maxage" => {
                self.s_maxage = self.s_maxage.or_else(seconds);
                self.must_revalidate = true;
            }
            "min-fresh" => self.min_fresh = seconds(),
            // Without a number any age will do.
            "max-stale" if value.is_empty() => self.max_stale = Some(i64::MAX),
            "max-stale" => self.max_stale = seconds(),
            _ => {}
        }
    }

    /// Whether an answer says that everybody may have it.
    pub(super) fn is_for_all(&self) -> bool {
        self.public || self.s_maxage.is_some()
    }
}
