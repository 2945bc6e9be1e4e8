//! The path of a request, as its sender wrote it.

use std::borrow::Cow;

use super::Call;

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

/// The address that was called, as a client knows it.
pub(super) fn url(call: &Call) -> String {
    let live = &call.live;
    let path = below_base(&live.base_path, call.parts.uri.path());
    format!("{}{path}", live.base_url)
}

/// The path of what was called, as a client knows it: with the realm in it.
pub(super) fn path(call: &Call) -> String {
    let live = &call.live;
    if let Some(path) = &call.named_path {
        return format!("{}{path}", live.base_path);
    }
    let path = below_base(&live.base_path, call.parts.uri.path());
    format!("{}{path}", live.base_path)
}
