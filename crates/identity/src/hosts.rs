//! Realms by host name.
//!
//! On a host that belongs to a realm, paths that name no realm mean that one.
//! Nothing else follows from the host: issuers and links are made from the
//! configured base URL.

use std::collections::HashMap;

use http::header::HOST;
use http::{HeaderMap, HeaderName, Uri};
use url::Host;

use doorward_core::model::user::schema::RecordError;

/// Set by the gateway, which believes a client's only where it trusts it.
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Paths of realms by host name.
#[derive(Debug, Default)]
pub(super) struct Hosts(HashMap<String, String>);

impl Hosts {
    /// Gives `hosts` to the realm at `path`; `base` is the provider's own host,
    /// which stays the top-level realm's.
    pub(super) fn add(
        &mut self,
        path: &str,
        hosts: &[String],
        base: Option<&str>,
    ) -> Result<(), RecordError> {
        for (index, host) in hosts.iter().enumerate() {
            let wrong = |text: String| Err(RecordError::new(format!("hosts[{index}]"), text));
            let Some(name) = canonical(host) else {
                return wrong("is no host name".to_owned());
            };
            if path != "/" && base == Some(&name) {
                let text = "is the host of identity.base_url, where such paths mean `/`";
                return wrong(text.to_owned());
            }
            match self.0.get(&name) {
                Some(other) if other == path => return wrong("is given twice".to_owned()),
                Some(other) => return wrong(format!("belongs to the realm {other} already")),
                None => self.0.insert(name, path.to_owned()),
            };
        }
        Ok(())
    }

    /// Whether no realm has a host.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The path of the realm that a host belongs to, as [`of_request`] names it.
    pub(super) fn realm_of(&self, host: &str) -> Option<&str> {
        self.0.get(host).map(String::as_str)
    }
}

/// The name of the host that a request came to, without its port.
pub(super) fn of_request(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let header = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let host = header(&X_FORWARDED_HOST).or_else(|| uri.authority().map(|a| a.as_str()));
    let host = host.or_else(|| header(&HOST))?;
    // The first of several is what the client asked for.
    let host = host.split(',').next().unwrap_or_default().trim();
    canonical(without_port(host))
}

/// Whether a host is this machine: its names count as one.
pub(super) fn is_local(host: &str) -> bool {
    ["localhost", "127.0.0.1", "[::1]"].contains(&host)
}

/// A host name as a key; `None`: it is none.
fn canonical(host: &str) -> Option<String> {
    let host = Host::parse(host.strip_suffix('.').unwrap_or(host)).ok()?;
    Some(host.to_string())
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        // Colons in brackets are part of an address.
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts() -> Hosts {
        let mut hosts = Hosts::default();
        let staff = ["Login.Staff.example".to_owned(), "[::1]".to_owned()];
        let added = hosts.add("/staff", &staff, Some("id.example"));
        added.expect("two good names");
        hosts
    }

    #[test]
    fn a_host_means_its_realm_in_every_spelling() {
        let hosts = hosts();
        let realm = |host: &str| {
            let headers = [(HOST, host.parse().expect("a value"))];
            let headers = headers.into_iter().collect();
            of_request(&Uri::from_static("/"), &headers)
                .is_some_and(|host| hosts.realm_of(&host).is_some())
        };
        for host in [
            "login.staff.example",
            "LOGIN.staff.example:8000",
            "login.staff.example.",
            "[::1]:8000",
            "[::1]",
        ] {
            assert!(realm(host), "{host}");
        }
        for host in [
            "staff.example",
            "login.staff.example.evil",
            "",
            "::1",
            "a b",
        ] {
            assert!(!realm(host), "{host}");
        }
    }

    #[test]
    fn the_gateways_word_counts_for_more_than_the_rest() {
        let headers = |forwarded: &str| {
            HeaderMap::from_iter([
                (HOST, "login.staff.example".parse().expect("a value")),
                (X_FORWARDED_HOST, forwarded.parse().expect("a value")),
            ])
        };
        let hosts = hosts();
        let uri = Uri::from_static("/");
        let realm = |headers: &HeaderMap| {
            let host = of_request(&uri, headers).expect("a host");
            hosts.realm_of(&host).map(str::to_owned)
        };
        assert_eq!(realm(&headers("other.example")), None);
        let several = realm(&headers("login.staff.example, inner"));
        assert_eq!(several.as_deref(), Some("/staff"));
    }

    #[test]
    fn a_host_belongs_to_one_realm() {
        let mut hosts = hosts();
        for (path, host, text) in [
            (
                "/b",
                "login.staff.example.",
                "belongs to the realm /staff already",
            ),
            ("/staff", "LOGIN.staff.example", "is given twice"),
            ("/b", "https://x", "is no host name"),
            ("/b", "x:80", "is no host name"),
            ("/b", "", "is no host name"),
            (
                "/b",
                "ID.example",
                "is the host of identity.base_url, where such paths mean `/`",
            ),
        ] {
            let error = hosts.add(path, &[host.to_owned()], Some("id.example"));
            let error = error.expect_err("refused");
            assert_eq!(
                (error.path.as_str(), error.message.as_str()),
                ("hosts[0]", text)
            );
        }
        let own = hosts.add("/", &["id.example".to_owned()], Some("id.example"));
        assert_eq!(own, Ok(()));
    }
}
