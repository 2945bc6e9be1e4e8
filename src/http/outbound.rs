//! The outbound HTTP client: discovery, key sets, token endpoints.

/// Sends requests to providers: over the network, or to the one in this process.
pub struct Outbound {}
