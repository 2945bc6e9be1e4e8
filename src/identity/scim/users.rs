//! `GET /v1/users` (interface 4.1) and `GET /v1/users/{id}`.
//!
//! The access token's realm is the one whose users are seen. Unless the realm
//! names a scope for it (`users_scope`), a token of a client on its own behalf
//! sees all users, and a token of a user that user only.

use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{ACCEPT, CONTENT_TYPE, ETAG};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use super::{filter, record};
use crate::identity::bearer::{self, GoodToken};
use crate::identity::error::ScimError;
use crate::identity::form::Form;
use crate::identity::{Call, respond};
use crate::model::query::{Filter, Op, Operand, UserQuery};
use crate::model::user::{name, schema};
use crate::store::UserPage;

/// Most users of one answer, and how many come when the client does not say.
const PAGE_MAX: u32 = 1000;

/// Answers with the users that satisfy `filter`.
pub(in crate::identity) async fn list(call: &Call) -> Result<Response, ScimError> {
    let token = reader(call).await?;
    let query = call.parts.uri.query().unwrap_or_default();
    let query =
        Form::parse(query.as_bytes()).map_err(|error| bad("invalidValue", error.to_string()))?;
    let asked = match query.get("filter") {
        Some(text) => {
            filter::parse(text).map_err(|error| bad("invalidFilter", error.to_string()))?
        }
        None => Filter::Always,
    };
    let paging = Paging::read(&query)?;
    let wanted = UserQuery {
        filter: within_sight(&token, asked),
        after: paging.after.clone(),
        skip: paging.skip,
        limit: paging.limit,
    };
    let page = call.state.store.users(&token.realm.path, &wanted).await?;
    Ok(respond(call, &list_body(call, &page, &paging)))
}

/// Answers with one user.
pub(in crate::identity) async fn one(call: &Call, id: &str) -> Result<Response, ScimError> {
    let token = reader(call).await?;
    let missing = || ScimError::new(StatusCode::NOT_FOUND, "There is no such user.");
    let id = id.parse().map_err(|_| missing())?;
    let user = call.state.store.user(&token.realm.path, id).await?;
    let sees_all = token.realm.settings.users_scope.is_some();
    let user = user
        .filter(|user| sees_all || token.user.as_ref().is_none_or(|own| own.id == user.id))
        .ok_or_else(missing)?;
    let base_url = &call.state.live().base_url;
    let mut response = respond(call, &record::of(&user, base_url));
    if let Ok(tag) = HeaderValue::from_str(&record::version(&user)) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}

fn bad(scim_type: &'static str, detail: String) -> ScimError {
    ScimError {
        scim_type: Some(scim_type),
        ..ScimError::new(StatusCode::BAD_REQUEST, detail)
    }
}

/// The token of a request that may read users.
async fn reader(call: &Call) -> Result<GoodToken, ScimError> {
    let unauthorized = |challenge: &str, detail: &str| ScimError {
        challenge: Some(challenge.to_owned()),
        ..ScimError::new(StatusCode::UNAUTHORIZED, detail)
    };
    let token = bearer::from_header(call.headers())
        .ok_or_else(|| unauthorized("Bearer realm=\"/\"", "An access token is required."))?;
    let good = bearer::check(&call.state, token, call.now_ms).await?;
    // A bound token is more than its text; here only texts are shown.
    let good = good.filter(|good| good.issued.bound_to().is_none());
    let good = good.ok_or_else(|| {
        let challenge = "Bearer realm=\"/\", error=\"invalid_token\"";
        unauthorized(
            challenge,
            "The access token is expired, revoked or not valid.",
        )
    })?;
    match &good.realm.settings.users_scope {
        Some(scope) if !good.issued.scopes().any(|granted| granted == scope) => Err(ScimError {
            challenge: Some(format!(
                "Bearer realm=\"/\", error=\"insufficient_scope\", scope=\"{scope}\""
            )),
            ..ScimError::new(
                StatusCode::FORBIDDEN,
                format!("The scope {scope} is required."),
            )
        }),
        _ => Ok(good),
    }
}

/// `asked`, and no more than the token may see.
fn within_sight(token: &GoodToken, asked: Filter) -> Filter {
    match (&token.user, schema::find("id")) {
        (Some(user), Some(id)) if token.realm.settings.users_scope.is_none() => {
            let own = Operand::Text(user.id.to_string());
            Filter::And(vec![Filter::Compare(id, Op::Equal, own), asked])
        }
        _ => asked,
    }
}

/// Which part of the result is wanted.
struct Paging {
    limit: u32,
    skip: u32,
    after: Option<String>,
    /// `startIndex` as it counts, if the client speaks of it.
    start: Option<u32>,
}

impl Paging {
    /// Reads `startIndex` and `count`, or `_pageSize` with
    /// `_pagedResultsCookie` or `_pagedResultsOffset`.
    fn read(query: &Form<'_>) -> Result<Self, ScimError> {
        let number = |name: &str| match query.get(name) {
            None => Ok(None),
            Some(text) => match text.parse::<i64>() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(bad("invalidValue", format!("{name} must be an integer"))),
            },
        };
        let clamp = |value: i64| u32::try_from(value.max(0)).unwrap_or(u32::MAX);
        let (count, size) = (number("count")?, number("_pageSize")?);
        let (start, offset) = (number("startIndex")?, number("_pagedResultsOffset")?);
        let cookie = query.get("_pagedResultsCookie");
        if cookie.is_some() && offset.is_some() {
            let text =
                "The parameters _pagedResultsOffset and _pagedResultsCookie are mutually exclusive";
            return Err(bad("invalidValue", text.to_owned()));
        }
        if cookie.is_some() && size.is_none_or(|size| size <= 0) {
            let text = "_pagedResultsCookie needs a _pageSize greater than 0";
            return Err(bad("invalidValue", text.to_owned()));
        }
        // A page of the imitated kind without a size, or of size 0, has no bound.
        let size = size.filter(|size| *size > 0);
        let start = start.map(|start| clamp(start).max(1));
        Ok(Self {
            limit: count.or(size).map_or(PAGE_MAX, clamp).min(PAGE_MAX),
            skip: start
                .map(|start| start - 1)
                .or(offset.map(clamp))
                .unwrap_or(0),
            after: cookie.map(decode_cookie).transpose()?,
            start,
        })
    }
}

/// The cookie is the folded name of the last user sent, and tells no secret.
fn encode_cookie(page: &UserPage) -> Option<String> {
    let last = page.users.last().filter(|_| page.more)?;
    Some(URL_SAFE_NO_PAD.encode(name::key(&last.user_name)))
}

fn decode_cookie(cookie: &str) -> Result<String, ScimError> {
    let bytes = URL_SAFE_NO_PAD.decode(cookie).ok();
    bytes
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or_else(|| {
            bad(
                "invalidValue",
                "_pagedResultsCookie is not one of ours".to_owned(),
            )
        })
}

/// The list response (interface 2.2).
fn list_body(call: &Call, page: &UserPage, paging: &Paging) -> Value {
    let base_url = &call.state.live().base_url;
    let records: Vec<_> = page
        .users
        .iter()
        .map(|user| record::of(user, base_url))
        .collect();
    let mut body = json!({
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:ListResponse"],
        "totalResults": page.total,
        "itemsPerPage": records.len(),
        "pagedResultsCookie": encode_cookie(page),
        "Resources": records,
    });
    if let Some(start) = paging.start {
        body["startIndex"] = json!(start);
    }
    body
}

/// JSON, or SCIM's media type for clients that ask for it.
fn respond(call: &Call, body: &Value) -> Response {
    let mut response = respond::json(StatusCode::OK, body);
    respond::never_stored(&mut response);
    let accepts = call.headers().get_all(ACCEPT).iter();
    let scim = accepts
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.to_ascii_lowercase().contains("application/scim+json"));
    if scim {
        let kind = HeaderValue::from_static("application/scim+json");
        response.headers_mut().insert(CONTENT_TYPE, kind);
    }
    response
}
