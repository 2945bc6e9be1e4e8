//! `/json[/realms/…]/serverinfo/*`, which names the cookie that carries
//! sessions.

use axum::response::Response;
use http::StatusCode;
use serde_json::json;

use crate::identity::{Call, cookies, respond};

/// What a login page needs to know; public.
pub(in crate::identity) fn server_info(call: &Call) -> Response {
    let live = call.state.live();
    let host = url::Url::parse(&live.base_url).ok();
    let host = host.as_ref().and_then(|url| url.host_str());
    let body = json!({
        "domains": [],
        "cookieName": cookies::name(&live, &live.config.session.cookie_name),
        "secureCookie": live.base_url.starts_with("https://"),
        "realm": call.realm.path,
        "FQDN": host,
        "zeroPageLogin": {"enabled": false, "refererWhitelist": [], "allowedWithoutReferer": true},
    });
    let mut response = respond::json(StatusCode::OK, &body);
    respond::never_stored(&mut response);
    response
}
