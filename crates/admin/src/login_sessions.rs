//! `/openid-connect/sessions`: sessions of users who have signed in through the
//! gateway, looked at and ended.
//!
//! Listed are those of the process's own store and of a Redis. Those in cookies
//! are in browsers alone, those of a memcached can't be listed; both end like the
//! others.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::call::Call;
use super::entity::Answer;
use super::error::ApiError;
use super::openapi::entities::paging;
use super::reply;
use doorward_core::model::login::{LoginQuery, StoredLogin};
use doorward_core::model::schema::nullable;
use doorward_core::openapi::{Operation, Parameter, fields, list_of, text};
use doorward_openid_connect::{end_marks, subjects};
use doorward_plugin_api::filter::{Filter, SessionKeeper, SessionsUnavailable};

const DEFAULT_SIZE: usize = 100;
const MAX_SIZE: usize = 1000;

impl From<SessionsUnavailable> for ApiError {
    fn from(_: SessionsUnavailable) -> Self {
        Self::Sessions
    }
}

/// `GET` and `DELETE /openid-connect/sessions`, of a user, a client, a session of
/// the provider.
pub(super) fn all(call: Call) -> Answer {
    Box::pin(async move {
        let listing = ListRequest::of(&call)?;
        if call.method == Method::DELETE {
            end(&call, &listing.which).await
        } else {
            list(&call, &listing).await
        }
    })
}

/// `GET` and `DELETE /openid-connect/sessions/{id}`.
pub(super) fn one(call: Call) -> Answer {
    Box::pin(async move {
        let which = LoginQuery {
            id: Some(call.param(0).to_owned()),
            ..LoginQuery::default()
        };
        if call.method == Method::DELETE {
            // One in a cookie is known to nobody before it is shown again.
            end_everywhere(&call, &which).await?;
            return Ok(reply::empty(StatusCode::NO_CONTENT));
        }
        let (found, _) = find(&call, &which, None, 1).await?;
        let found = found.first().ok_or(ApiError::NotFound)?;
        Ok(reply::json(StatusCode::OK, &shown(found)))
    })
}

/// The page of a list that a query asks for.
pub(super) struct Page {
    pub(super) size: usize,
    pub(super) after: Option<String>,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            size: DEFAULT_SIZE,
            after: None,
        }
    }
}

impl Page {
    /// Takes a parameter of the query; whether it is about the page.
    pub(super) fn takes(&mut self, name: &str, value: &str) -> Result<bool, ApiError> {
        match name {
            "size" => {
                let size = value.parse().ok();
                let size = size.filter(|size| (1..=MAX_SIZE).contains(size));
                self.size =
                    size.ok_or(ApiError::Size("size must be an integer between 1 and 1000"))?;
            }
            "offset" => self.after = Some(after(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The body of the answer with these sessions. One more than there is room for says
    /// that there is a next page.
    pub(super) fn body(
        &self,
        call: &Call,
        mut found: Vec<StoredLogin>,
        shown: impl Fn(&StoredLogin) -> Value,
    ) -> Value {
        let more = found.len() > self.size;
        found.truncate(self.size);
        let data: Vec<_> = found.iter().map(shown).collect();
        let mut body = json!({"data": data, "next": null});
        if let Some(last) = found.last().filter(|_| more) {
            let offset = STANDARD.encode(json!([last.id]).to_string());
            let mut next = url::form_urlencoded::Serializer::new(String::new());
            next.append_pair("offset", &offset);
            let others = call.query.iter().filter(|(name, _)| name != "offset");
            next.extend_pairs(others);
            body["next"] = format!("{}?{}", call.path, next.finish()).into();
            body["offset"] = offset.into();
        }
        body
    }
}

/// What a query asks for.
#[derive(Default)]
struct ListRequest {
    which: LoginQuery,
    page: Page,
}

impl ListRequest {
    fn of(call: &Call) -> Result<Self, ApiError> {
        let mut listing = Self::default();
        for (name, value) in &call.query {
            let text = Some(value.clone());
            match name.as_str() {
                "user" => listing.which.subjects = subjects(value),
                "client_id" => listing.which.client_id = text,
                "sid" => listing.which.sid = text,
                "issuer" => listing.which.issuer = text,
                name if listing.page.takes(name, value)? => {}
                _ => {
                    return Err(ApiError::Option {
                        option: name.clone().into(),
                        message: "expected user, client_id, sid, issuer, size or offset".into(),
                    });
                }
            }
        }
        Ok(listing)
    }
}

fn after(offset: &str) -> Result<String, ApiError> {
    let bytes = STANDARD.decode(offset).ok();
    let key = bytes.and_then(|bytes| serde_json::from_slice::<[String; 1]>(&bytes).ok());
    key.map(|[key]| key)
        .ok_or_else(|| ApiError::Offset(offset.to_owned()))
}

async fn list(call: &Call, listing: &ListRequest) -> Result<axum::response::Response, ApiError> {
    let page = &listing.page;
    let after = page.after.as_deref();
    let (found, whole) = find(call, &listing.which, after, page.size + 1).await?;
    let mut body = page.body(call, found, shown);
    if !whole {
        body["partial"] = true.into();
    }
    Ok(reply::json(StatusCode::OK, &body))
}

/// Sessions that fit, in the order of their names, and whether those of storages
/// of their own are all there.
async fn find(
    call: &Call,
    which: &LoginQuery,
    after: Option<&str>,
    limit: usize,
) -> Result<(Vec<StoredLogin>, bool), ApiError> {
    let most = u32::try_from(limit).unwrap_or(u32::MAX);
    let page = call.state.store.logins(which, after, most).await;
    let mut found = page.map_err(|_| ApiError::Sessions)?.logins;
    let mut whole = true;
    for filter in keepers(call) {
        let Some(keeper) = filter.session_keeper() else {
            continue;
        };
        if let Some((others, all)) = keeper.list().await? {
            whole &= all;
            let behind = |login: &StoredLogin| after.is_none_or(|after| *login.id > *after);
            found.extend(
                others
                    .into_iter()
                    .filter(|login| which.fits(login) && behind(login)),
            );
        }
    }
    found.sort_by(|one, other| one.id.cmp(&other.id));
    found.dedup_by(|one, other| one.id == other.id);
    found.truncate(limit);
    Ok((found, whole))
}

async fn end(call: &Call, which: &LoginQuery) -> Result<axum::response::Response, ApiError> {
    if which.subjects.is_empty() && which.client_id.is_none() && which.sid.is_none() {
        return Err(ApiError::Option {
            option: "user".into(),
            message: "or client_id or sid is required to end several sessions".into(),
        });
    }
    let ended = end_everywhere(call, which).await?;
    Ok(reply::json(StatusCode::OK, &json!({"ended": ended})))
}

/// Ends sessions wherever they are kept; how many have ended.
pub(super) async fn end_everywhere(call: &Call, which: &LoginQuery) -> Result<usize, ApiError> {
    let now_ms = call.state.clock.now_ms();
    let mut ended = 0;
    let keepers = keepers(call);
    for filter in &keepers {
        if let Some(keeper) = filter.session_keeper() {
            ended += SessionKeeper::end(keeper, which, now_ms, call.audit()).await?;
        }
    }
    // What keepers of other issuers left, and what nobody keeps here any more.
    let marks = if keepers.is_empty() {
        end_marks(which, now_ms)
    } else {
        Vec::new()
    };
    let left = call
        .state
        .store
        .end_logins(which, &marks, now_ms, call.audit())
        .await;
    Ok(ended + left.map_err(|_| ApiError::Sessions)?.len())
}

/// The running filters that keep sessions.
fn keepers(call: &Call) -> Vec<Arc<dyn Filter>> {
    let snapshot = call.state.control.live().load_full();
    let entities = call.state.control.entities();
    let plugins = entities.plugins.iter();
    let filters = plugins.filter_map(|record| snapshot.filter(record.value.id).cloned());
    filters
        .filter(|filter| filter.session_keeper().is_some())
        .collect()
}

fn shown(login: &StoredLogin) -> Value {
    let seconds = |ms: i64| ms.div_euclid(1000);
    json!({
        "id": login.id,
        "issuer": login.issuer,
        "user": login.subject,
        "client_id": login.client_id,
        "sid": login.sid,
        "created_at": seconds(login.started_ms),
        "used_at": seconds(login.used_ms),
        "expires_at": seconds(login.ends_ms),
    })
}

fn schema() -> Value {
    let time = || json!({"type": "integer"});
    let mut schema = fields(
        [
            ("id", text()),
            ("issuer", nullable(text())),
            ("user", nullable(text())),
            ("client_id", nullable(text())),
            ("sid", nullable(text())),
            ("created_at", time()),
            ("used_at", time()),
            ("expires_at", time()),
        ],
        &[],
    );
    schema["required"] = json!(["id", "created_at", "used_at", "expires_at"]);
    schema
}

fn which() -> [Parameter; 4] {
    let query = Parameter::query;
    [
        query(
            "user",
            text(),
            "Only of this user, as the provider names it.",
        ),
        query("client_id", text(), "Only of this client."),
        query("sid", text(), "Only of this session of the provider."),
        query("issuer", text(), "Only of this provider."),
    ]
}

/// What the description says of all of them.
pub(super) fn all_operation(method: &str) -> Operation {
    if method == "DELETE" {
        let ended = fields([("ended", json!({"type": "integer"}))], &["ended"]);
        return Operation::new("Ends sessions of users who signed in through the gateway.")
            .description("One of `user`, `client_id` and `sid` has to be there.")
            .takes(which())
            .answers(200, "How many have ended.", &ended);
    }
    let mut page = list_of(&schema());
    page["properties"]["partial"] = json!({
        "type": "boolean",
        "description": "Whether a storage did not tell all of its own.",
    });
    Operation::new("Lists sessions of users who signed in through the gateway.")
        .takes(which())
        .takes(paging())
        .answers(200, "A page of them.", &page)
        .refuses(&["503"])
}

/// What the description says of one.
pub(super) fn one_operation(method: &str) -> Operation {
    match method {
        "DELETE" => Operation::new("Ends a session.").ends(204, "There is no such session."),
        _ => Operation::new("Shows a session.")
            .answers(200, "The session.", &schema())
            .refuses(&["503"]),
    }
}
