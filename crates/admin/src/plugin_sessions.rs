//! `/sessions`: sessions of the `session` plugin that the store keeps, looked at and
//! ended, as the imitated gateway shows them. What is in a session is never shown.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::call::Call;
use super::endpoint::{Endpoint, endpoint};
use super::entity::Answer;
use super::error::ApiError;
use super::login_sessions::{self, Page};
use super::openapi::entities::paging;
use super::reply;
use doorward_core::model::login::{LoginQuery, StoredLogin};
use doorward_core::model::schema::nullable;
use doorward_core::openapi::{Operation, fields, list_of, text};
use doorward_plugins::session::ISSUER;

/// Its endpoints.
pub(super) static ENDPOINTS: &[Endpoint] = &[
    endpoint("/sessions", &["GET"], all, all_operation),
    endpoint("/sessions/{id}", &["DELETE", "GET"], one, one_operation),
];

/// `GET /sessions`.
fn all(call: Call) -> Answer {
    Box::pin(async move {
        let mut page = Page::default();
        for (name, value) in &call.query {
            if !page.takes(name, value)? {
                return Err(ApiError::Option {
                    option: name.clone().into(),
                    message: "expected size or offset".into(),
                });
            }
        }
        let found = find(&call, None, page.after.as_deref(), page.size + 1).await?;
        let now_ms = call.state.clock.now_ms();
        let body = page.body(&call, found, |login| shown(login, now_ms));
        Ok(reply::json(StatusCode::OK, &body))
    })
}

/// `/sessions/{id}`: by its `id` or its `session_id`, which are one.
fn one(call: Call) -> Answer {
    Box::pin(async move {
        let id = call.param(0);
        if call.method == Method::DELETE {
            login_sessions::end_everywhere(&call, &which(Some(id))).await?;
            return Ok(reply::empty(StatusCode::NO_CONTENT));
        }
        let now_ms = call.state.clock.now_ms();
        let found = find(&call, Some(id), None, 1).await?;
        let session = found.first().filter(|login| now_ms < login.ends_ms);
        let session = session.ok_or(ApiError::NotFound)?;
        Ok(reply::json(StatusCode::OK, &shown(session, now_ms)))
    })
}

fn which(id: Option<&str>) -> LoginQuery {
    LoginQuery {
        id: id.map(str::to_owned),
        issuer: Some(ISSUER.to_owned()),
        ..LoginQuery::default()
    }
}

async fn find(
    call: &Call,
    id: Option<&str>,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<StoredLogin>, ApiError> {
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    let page = call.state.store.logins(&which(id), after, limit).await;
    Ok(page.map_err(|_| ApiError::Sessions)?.logins)
}

fn shown(login: &StoredLogin, now_ms: i64) -> Value {
    let seconds = |ms: i64| ms.div_euclid(1000);
    json!({
        "id": login.id,
        "session_id": login.id,
        "expires": seconds(login.ends_ms),
        "data": null,
        "created_at": seconds(login.started_ms),
        "ttl": seconds(login.ends_ms - now_ms).max(0),
    })
}

fn schema() -> Value {
    let time = |about: &str| json!({"type": "integer", "description": about});
    let data = nullable(json!({"type": "string", "description": "Never shown."}));
    let members = [
        ("id", text()),
        ("session_id", text()),
        ("expires", time("When it ends, in seconds since the epoch.")),
        ("data", data),
        (
            "created_at",
            time("When it began, in seconds since the epoch."),
        ),
        ("ttl", time("Seconds until it ends.")),
    ];
    let names = members.each_ref().map(|(name, _)| *name);
    fields(members, &names)
}

/// What the description says of all of them.
fn all_operation(_: &str) -> Operation {
    Operation::new("Lists sessions of the `session` plugin that the store keeps.")
        .takes(paging())
        .answers(200, "A page of them.", &list_of(&schema()))
        .refuses(&["503"])
}

/// What the description says of one.
fn one_operation(method: &str) -> Operation {
    match method {
        "DELETE" => Operation::new("Ends a session of the `session` plugin.")
            .ends(204, "There is no such session."),
        _ => Operation::new("Shows a session of the `session` plugin.")
            .answers(200, "The session.", &schema())
            .refuses(&["503"]),
    }
}
