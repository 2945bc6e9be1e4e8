//! Which of two routes that both match a request gets it.

use std::cmp::Reverse;

use uuid::Uuid;

use doorward_core::model::route::Route;

/// Greater wins. The fields are compared in the order in which they stand
/// (gateway-admin-api §9, `traditional_compatible`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Precedence {
    kinds: u8,
    plain_hosts: bool,
    headers: usize,
    regex: bool,
    regex_priority: i64,
    path_length: usize,
    id: Uuid,
    /// Which of its route's paths it is: of two that match alike, the first.
    position: Reverse<usize>,
}

impl Precedence {
    /// The precedence of `route` with its path at `position`, if it has paths.
    pub(super) fn of(route: &Route, position: usize) -> Self {
        fn has<T>(list: Option<&[T]>) -> u8 {
            u8::from(list.is_some_and(|list| !list.is_empty()))
        }
        let hosts = route.hosts.as_deref().unwrap_or_default();
        let headers = route.headers.as_ref().map_or(0, |headers| headers.len());
        let paths = route.paths.as_deref().unwrap_or_default();
        let path = paths.get(position).map(String::as_str);
        let regex = path.is_some_and(|path| path.starts_with('~'));
        Self {
            kinds: has(route.methods.as_deref())
                + has(route.hosts.as_deref())
                + u8::from(headers > 0)
                + has(route.paths.as_deref())
                + has(route.snis.as_deref()),
            plain_hosts: !hosts.is_empty() && !hosts.iter().any(|host| host.contains('*')),
            headers,
            regex,
            regex_priority: if regex { route.regex_priority } else { 0 },
            path_length: path.filter(|_| !regex).map_or(0, str::len),
            id: route.id,
            position: Reverse(position),
        }
    }

    /// Why `self` goes before `other`, in words; for operators.
    pub(super) fn advantage(&self, other: &Self) -> String {
        if self.kinds != other.kinds {
            return format!(
                "it matches {} kinds of attributes, not {}",
                self.kinds, other.kinds
            );
        }
        if self.plain_hosts != other.plain_hosts {
            return "its hosts have no wildcard".to_owned();
        }
        if self.headers != other.headers {
            return format!("it matches {} headers, not {}", self.headers, other.headers);
        }
        if self.regex != other.regex {
            return "a regex path goes before a prefix".to_owned();
        }
        if self.regex_priority != other.regex_priority {
            return format!(
                "higher regex_priority: {}, not {}",
                self.regex_priority, other.regex_priority
            );
        }
        if self.path_length != other.path_length {
            return format!(
                "longer path: {} bytes, not {}",
                self.path_length, other.path_length
            );
        }
        "greater id".to_owned()
    }
}
