//! `POST /json[/realms/…]/authenticate` (interface 4.4): a session for a user.

use axum::response::Response;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, EXPIRES, PRAGMA, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value};

use super::api_version::{self, Version, version};
use super::callback::{self, Credentials};
use super::error::JsonError;
use super::form::Form;
use super::login::{LoginError, is_confined, login};
use super::{Call, cookies, respond, sessions};
use crate::http::encoded_word;
use crate::http::reply::FORBIDDEN_PAGE;
use crate::model::user::User;

/// Versions of the endpoint. 1.x differs in the shape of errors.
const VERSIONS: &[Version] = &[version(1, 2), version(2, 1)];

/// Header names of the credentials: the neutral ones, then the imitated ones.
const PAIRS: [(&str, &str); 2] = [
    ("x-service-username", "x-service-password"),
    ("x-openam-username", "x-openam-password"),
];

/// The response to right credentials (interface 2.4).
#[derive(Serialize)]
struct Success<'a> {
    #[serde(rename = "tokenId", skip_serializing_if = "Option::is_none")]
    token_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'static str>,
    #[serde(rename = "successUrl")]
    success_url: &'a str,
    realm: &'a str,
}

/// Answers an authentication request.
pub(super) async fn post(call: &Call) -> Response {
    let chosen = match api_version::choose(call.headers(), VERSIONS) {
        Ok(chosen) => chosen,
        Err(error) => return error.response(),
    };
    let mut response = match answer(call).await {
        Ok(response) => response,
        Err(error) if chosen.resource.major == 1 => error.response_of_version_1(),
        Err(error) => error.response(),
    };
    let headers = response.headers_mut();
    headers.insert(
        CACHE_CONTROL,
        HeaderValue::from_static("no-cache, no-store, must-revalidate"),
    );
    headers.insert(PRAGMA, HeaderValue::from_static("no-cache"));
    headers.insert(EXPIRES, HeaderValue::from_static("0"));
    chosen.stamp(&mut response, "chf");
    response
}

async fn answer(call: &Call) -> Result<Response, JsonError> {
    let bad = |text: &str| JsonError::new(StatusCode::BAD_REQUEST, text);
    let query = call.parts.uri.query().unwrap_or_default();
    let query = Form::parse(query.as_bytes()).map_err(|error| bad(&error.to_string()))?;
    check_index(&query)?;
    let given = match body(call)? {
        Some(body) => callback::submitted(call, &body)?,
        None => from_headers(call)?,
    };
    if given.names().any(|name| is_confined(call, name)) {
        return Ok(forbidden_page());
    }
    let (Some(name), Some(password)) = (&given.name, &given.password) else {
        return callback::ask(call, &given).await;
    };
    let user = login(&call.state, &call.realm, name, password, call.now_ms)
        .await
        .map_err(refused)?;
    let success_url = goto(query.get("goto"), &call.realm.settings.success_url);
    if query.get("noSession") == Some("true") {
        let body = Success {
            token_id: None,
            message: Some("Authentication Successful"),
            success_url,
            realm: &call.realm.path,
        };
        return Ok(respond::json(StatusCode::OK, &body));
    }
    begin_session(call, &user, success_url).await
}

fn refused(error: LoginError) -> JsonError {
    let message = match error {
        LoginError::Failed => "Authentication Failed",
        LoginError::Locked => "Your account has been locked.",
        LoginError::Deactivated => "User not Active",
        LoginError::Fault(fault) => return fault.into(),
    };
    JsonError::new(StatusCode::UNAUTHORIZED, message)
}

/// Only the built-in chain exists, under its usual names.
fn check_index(query: &Form<'_>) -> Result<(), JsonError> {
    let fail = |status, text: &str| Err(JsonError::new(status, text));
    let value = query.get("authIndexValue");
    match query.get("authIndexType") {
        None => Ok(()),
        Some("service") if matches!(value, Some("ldapService" | "Login")) => Ok(()),
        Some("module") if value == Some("DataStore") => Ok(()),
        Some("module") => fail(StatusCode::NOT_FOUND, "Authentication Module Not Found."),
        Some("service" | "user" | "role" | "level" | "resource" | "composite") => {
            fail(StatusCode::BAD_REQUEST, "No Configuration found")
        }
        Some(_) => fail(StatusCode::BAD_REQUEST, "Unknown Authentication Index Type"),
    }
}

/// The body, if it is an object with members.
fn body(call: &Call) -> Result<Option<Map<String, Value>>, JsonError> {
    if call.body.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let kind = call
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind
        .and_then(|kind| kind.split(';').next())
        .unwrap_or_default();
    if !kind.trim().eq_ignore_ascii_case("application/json") {
        let text = "Unsupported Media Type";
        return Err(JsonError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    match serde_json::from_slice(&call.body) {
        Ok(Value::Object(body)) => Ok(Some(body).filter(|body| !body.is_empty())),
        _ => Err(JsonError::new(
            StatusCode::BAD_REQUEST,
            "The body is no JSON object",
        )),
    }
}

/// The credentials in the headers. All user names that were sent are kept: the
/// rule for the administrator looks at each.
fn from_headers(call: &Call) -> Result<Credentials, JsonError> {
    let mut given = Credentials::default();
    for (name_header, password_header) in PAIRS {
        let read = |header: &str| {
            let values = call.headers().get_all(header).iter();
            values
                .map(|value| encoded_word::text(value.as_bytes()))
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| {
                    let text = format!("{header} is neither UTF-8 nor an encoded word");
                    JsonError::new(StatusCode::BAD_REQUEST, text)
                })
        };
        let (names, passwords) = (read(name_header)?, read(password_header)?);
        if names.len() > 1 || passwords.len() > 1 {
            let text = format!("{name_header} and {password_header} can be sent once");
            return Err(JsonError::new(StatusCode::BAD_REQUEST, text));
        }
        let name = names.into_iter().next().filter(|name| !name.is_empty());
        if given.name.is_none() {
            given.name = name;
            given.password = passwords.into_iter().next();
        } else {
            given.other_name = name;
        }
    }
    Ok(given)
}

pub(super) fn forbidden_page() -> Response {
    let mut response = Response::new(axum::body::Body::from(FORBIDDEN_PAGE));
    *response.status_mut() = StatusCode::FORBIDDEN;
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, html);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    let nothing = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    headers.insert(CONTENT_SECURITY_POLICY, nothing);
    response
}

/// Where the client goes next: a path of this origin, never another origin.
fn goto<'a>(asked: Option<&'a str>, default: &'a str) -> &'a str {
    let local = |path: &&str| {
        path.starts_with('/')
            && !path.starts_with("//")
            && path.len() <= 2000
            && path
                .bytes()
                .all(|byte| matches!(byte, 0x21..=0x7e) && byte != b'\\')
    };
    asked.filter(local).unwrap_or(default)
}

async fn begin_session(call: &Call, user: &User, success_url: &str) -> Result<Response, JsonError> {
    let token = sessions::begin(call, user).await?;
    let body = Success {
        token_id: Some(&token),
        message: None,
        success_url,
        realm: &call.realm.path,
    };
    let mut response = respond::json(StatusCode::OK, &body);
    sessions::hand_over(call, &mut response, &token);
    let live = call.state.live();
    cookies::set(&mut response, &live, "amlbcookie", "01");
    Ok(response)
}
