//! How requests are grouped into partitions.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::partitions::{Key, Keys};
use doorward_expr::{Expression, Scope, Value};

/// How requests are grouped; the common ways need no text.
pub(super) struct Grouping {
    by: By,
    keys: Keys,
    ipv6_mask: u128,
}

enum By {
    /// All requests are one partition.
    Nothing,
    /// By client address.
    Client,
    /// By the value of an expression.
    Expression(Expression),
}

/// The partition is null or no text.
pub(super) struct NoText;

impl Grouping {
    /// By `expression`, for which clients whose IPv6 addresses begin with the
    /// same `ipv6_prefix` bits have the same address: the first of those.
    pub(super) fn new(expression: Expression, ipv6_prefix: u8) -> Self {
        let by = if expression.is_client_address() {
            By::Client
        } else if matches!(expression.constant(), Some(Value::Text(_))) {
            By::Nothing
        } else {
            By::Expression(expression)
        };
        let low = 128_u32.saturating_sub(ipv6_prefix.into());
        Self {
            by,
            keys: Keys::random(),
            ipv6_mask: u128::MAX.checked_shl(low).unwrap_or(0),
        }
    }

    /// The request's partition; `Ok(None)`: the one of all requests.
    pub(super) fn key(&self, scope: &Scope<'_>) -> Result<Option<Key>, NoText> {
        match &self.by {
            By::Nothing => Ok(None),
            By::Client => Ok(Some(self.keys.key(&self.network(scope.client.ip())))),
            By::Expression(expression) => match expression.text(&self.masked(scope)) {
                Some(text) => Ok(Some(self.keys.key(&*text))),
                None => Err(NoText),
            },
        }
    }

    /// What the request's partition is called; empty: the one of all requests.
    pub(super) fn text<'a>(&'a self, scope: &Scope<'a>) -> Cow<'a, str> {
        match &self.by {
            By::Nothing => Cow::Borrowed(""),
            By::Client => self.network(scope.client.ip()).to_string().into(),
            By::Expression(expression) => expression.text(&self.masked(scope)).unwrap_or_default(),
        }
    }

    /// The partition of this text, as [`Self::text`] shows it.
    pub(super) fn key_of(&self, text: &str) -> Option<Key> {
        match &self.by {
            By::Nothing => None,
            By::Client => {
                let address = text.parse().ok();
                address.map(|ip| self.keys.key(&self.network(ip)))
            }
            By::Expression(_) => Some(self.keys.key(text)),
        }
    }

    /// Whether all requests are one partition.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.by, By::Nothing)
    }

    /// Whether the partition can't ever be a text.
    pub(super) fn is_broken(&self) -> bool {
        matches!(&self.by, By::Expression(expression) if expression.constant().is_some())
    }

    fn masked<'a>(&self, scope: &Scope<'a>) -> Scope<'a> {
        let ip = self.network(scope.client.ip());
        Scope {
            client: SocketAddr::new(ip, scope.client.port()),
            ..*scope
        }
    }

    /// The first address of the network that counts as one client.
    fn network(&self, ip: IpAddr) -> IpAddr {
        match ip.to_canonical() {
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & self.ipv6_mask).into(),
            ip => ip,
        }
    }
}
