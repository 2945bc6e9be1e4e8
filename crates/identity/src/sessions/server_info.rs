//! `/json[/realms/…]/serverinfo/…`: what login pages and clients ask first.

use axum::response::Response;
use http::StatusCode;
use http::header::ACCEPT_LANGUAGE;
use serde_json::{Value, json};

use super::{find, token_of_caller};
use crate::api_version::{Version, version};
use crate::error::JsonError;
use crate::login::is_admin;
use crate::{Call, cookies, respond, rest};

const VERSIONS: &[Version] = &[version(1, 1)];

/// Answers by the last part of the path.
pub(crate) async fn server_info(call: &Call) -> Response {
    match rest::version(call, VERSIONS) {
        Ok(chosen) => rest::finish(chosen, answer(call).await),
        Err(refused) => refused.response(),
    }
}

async fn answer(call: &Call) -> Result<Response, JsonError> {
    let body = match call.last_segment() {
        "*" | "%2A" | "%2a" => all(call),
        "cookieDomains" => json!({"_id": "cookieDomains", "domains": []}),
        "version" => {
            // Strangers need not know which holes to try.
            let own = token_of_caller(call).ok_or_else(rest::denied)?;
            let (_, user) = find(call, &own).await?.ok_or_else(rest::denied)?;
            if !is_admin(&user) {
                return Err(rest::forbidden());
            }
            json!({
                "_id": "version",
                "version": env!("CARGO_PKG_VERSION"),
                "fullVersion": concat!("Doorward ", env!("CARGO_PKG_VERSION")),
            })
        }
        _ => return Err(JsonError::new(StatusCode::NOT_FOUND, "Not Found")),
    };
    Ok(respond::json(StatusCode::OK, &body))
}

/// What a login page needs to know; public.
fn all(call: &Call) -> Value {
    let live = &call.live;
    let host = url::Url::parse(&live.base_url).ok();
    let host = host.as_ref().and_then(|url| url.host_str());
    json!({
        "_id": "*",
        "domains": [],
        "protectedUserAttributes": [],
        "cookieName": cookies::name(live, &live.config.session.cookie_name),
        "secureCookie": live.base_url.starts_with("https://"),
        "forgotPassword": "false",
        "forgotUsername": "false",
        "kbaEnabled": "false",
        "selfRegistration": "false",
        "referralsEnabled": "false",
        "socialImplementations": [],
        "successfulUserRegistrationDestination": "default",
        "lang": language(call),
        "realm": call.realm.path,
        "FQDN": host,
        "zeroPageLogin": {"enabled": false, "refererWhitelist": [], "allowedWithoutReferer": true},
    })
}

/// The first language that the caller prefers, of those that pages have.
fn language(call: &Call) -> &'static str {
    let accepted = call.headers().get(ACCEPT_LANGUAGE);
    let accepted = accepted.and_then(|value| value.to_str().ok());
    if accepted.is_some_and(|text| text.to_ascii_lowercase().starts_with("de")) {
        "de"
    } else {
        "en"
    }
}
