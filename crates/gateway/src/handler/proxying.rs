//! How a handler that proxies speaks to its upstream.

/// Settings of a `ReverseProxyHandler` or `ClientHandler`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProxySettings {
    /// Longest wait for a connection, in milliseconds (`connectionTimeout`).
    pub connect_timeout: u64,
    /// Longest wait between two reads or writes, in milliseconds (`soTimeout`).
    pub read_timeout: u64,
    /// Whether the upstream's certificate must be one that is trusted.
    pub verify_certificate: bool,
    /// Whether it must be for the host that was asked for.
    pub verify_host: bool,
    /// Further tries after the first one failed.
    pub retries: u16,
}

impl Default for ProxySettings {
    /// Ten seconds each, everything verified, no further tries.
    fn default() -> Self {
        Self {
            connect_timeout: 10_000,
            read_timeout: 10_000,
            verify_certificate: true,
            verify_host: true,
            retries: 0,
        }
    }
}
