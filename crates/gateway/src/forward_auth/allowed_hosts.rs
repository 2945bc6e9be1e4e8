//! The hosts that sub-requests may speak of.

/// Hosts that sub-requests may speak of, besides their own: browsers are led back to
/// them. `*.` in front stands for any labels.
#[derive(Debug, Default, Clone)]
pub struct AllowedHosts(Box<[Box<str>]>);

impl AllowedHosts {
    /// Those of a configuration.
    pub fn new(hosts: &[String]) -> Self {
        Self(
            hosts
                .iter()
                .map(|host| host.to_ascii_lowercase().into())
                .collect(),
        )
    }

    pub(super) fn has(&self, host: &str) -> bool {
        let host = bare(host).to_ascii_lowercase();
        self.0
            .iter()
            .any(|allowed| match allowed.strip_prefix('*') {
                Some(rest) => host.len() > rest.len() && host.ends_with(rest),
                None => **allowed == *host,
            })
    }
}

/// A host without its port.
pub(super) fn bare(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}
