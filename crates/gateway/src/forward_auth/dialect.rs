//! The ways in which proxies of other makers ask.

/// How the proxy in front asks: what follows the route's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `/forward-auth` (Traefik, Caddy): `X-Forwarded-Method`, `-Proto`, `-Host` and
    /// `-Uri` speak of the request. Any answer goes on to the client.
    ForwardAuth,
    /// `/auth-request` (nginx, haproxy): `X-Original-URL` and `X-Original-Method`. The
    /// proxy knows 2xx, 401 and 403.
    AuthRequest,
    /// `/ext-authz/…` (Envoy): the rest of the path, and its own method and host.
    ExtAuthz,
}

impl Dialect {
    /// The dialect of a path behind the route's own, and what follows its name.
    pub(super) fn of(path: &str) -> Option<(Self, &str)> {
        let path = path.trim_start_matches('/');
        let (name, _) = path.split_once('/').unwrap_or((path, ""));
        let rest = path.get(name.len()..).unwrap_or_default();
        Some(match name {
            "forward-auth" => (Self::ForwardAuth, rest),
            "auth-request" => (Self::AuthRequest, rest),
            "ext-authz" => (Self::ExtAuthz, rest),
            _ => return None,
        })
    }
}
