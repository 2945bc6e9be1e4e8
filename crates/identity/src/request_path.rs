//! The path of a request, as its sender wrote it.

use std::borrow::Cow;

use url::Url;

use super::{Call, RealmSource, hosts};

/// The path without that of the base URL. Metadata addresses that RFC 8414 §3
/// makes, with the well-known part in front, become those of OpenID Connect. So
/// do those of clients that put the name of RFC 8414 behind the issuer.
pub(super) fn below_base<'a>(base: &str, path: &'a str) -> Cow<'a, str> {
    for name in ["oauth-authorization-server", "openid-configuration"] {
        let issuer = path.strip_prefix("/.well-known/");
        let issuer = issuer.and_then(|rest| rest.strip_prefix(name));
        if let Some(issuer) = issuer.and_then(|rest| rest.strip_prefix(base)) {
            return Cow::Owned(format!("{issuer}/.well-known/openid-configuration"));
        }
    }
    let rest = match path.strip_prefix(base) {
        Some(rest) if rest.starts_with('/') => rest,
        _ => path,
    };
    match rest.strip_suffix("/.well-known/oauth-authorization-server") {
        Some(issuer) => Cow::Owned(format!("{issuer}/.well-known/openid-configuration")),
        None => Cow::Borrowed(rest),
    }
}

/// The path that was called, without that of the base URL.
pub(super) fn path_below_base(call: &Call) -> Cow<'_, str> {
    let live = &call.live;
    below_base(&live.base_path, call.parts.uri.path())
}

/// The path of what was called, as a client knows it: with the realm in it.
pub(super) fn path(call: &Call) -> String {
    let live = &call.live;
    if let RealmSource::Query(path) = &call.realm_source {
        return format!("{}{path}", live.base_path);
    }
    let path = below_base(&live.base_path, call.parts.uri.path());
    format!("{}{path}", live.base_path)
}

/// Whether `address` is the one that was called, but for its query, as a client knows
/// it: on the host of the base URL, or on the host of the realm.
pub(super) fn is_called(call: &Call, address: &Url) -> bool {
    let live = &call.live;
    let path = below_base(&live.base_path, call.parts.uri.path());
    let Ok(mut called) = Url::parse(&format!("{}{path}", live.base_url)) else {
        return false;
    };
    // On the host of a realm, the address of the top-level one would mean another.
    let is_named = !matches!(call.realm_source, RealmSource::Host);
    if is_named && *address == called {
        return true;
    }
    let Some(host) = hosts::of_request(&call.parts.uri, &call.parts.headers) else {
        return false;
    };
    let is_own = live.hosts.realm_of(&host) == Some(&*call.realm.path);
    let is_local =
        is_named && hosts::is_local(&host) && called.host_str().is_some_and(hosts::is_local);
    if !(is_own || is_local) || called.set_host(Some(&host)).is_err() {
        return false;
    }
    if is_own {
        // Behind a proxy the port that a client knows is not told for sure.
        let _ = called.set_port(address.port());
    }
    *address == called
}
