//! `/.search`: users and groups by one query (RFC 7644 §3.4.3), users first.

use axum::response::Response;
use serde_json::Value;

use super::access::{self, Kind};
use super::list_query::ListQuery;
use super::{body, groups, reply, users};
use crate::Call;
use crate::error::ScimError;
use doorward_core::model::user::schema::{GROUP, USER};

/// Answers with the records that satisfy the query. It is paged by
/// `startIndex` only: there is no order in which a cookie could stand.
pub(crate) async fn post(call: &Call) -> Result<Response, ScimError> {
    let token = access::reader(call, Kind::User).await?;
    access::check_reader(call, &token, Kind::Group)?;
    let sent = body::object(call)?;
    let list_query = ListQuery::of_body(&USER, &sent)?;
    let mut group_query = ListQuery::of_body(&GROUP, &sent)?;
    let (people, page) = users::found(call, &token, &list_query).await?;
    let count = |many: usize| u32::try_from(many).unwrap_or(u32::MAX);
    let before = u32::try_from(page.total).unwrap_or(u32::MAX);
    group_query.skip = list_query.skip.saturating_sub(before);
    group_query.limit = list_query.limit.saturating_sub(count(people.len()));
    let (groups, others) = groups::found(call, &token, &group_query).await?;
    let mut texts: Vec<String> = people.iter().map(Value::to_string).collect();
    texts.extend(groups);
    let total = page.total.saturating_add(others.total);
    Ok(reply::list_of(call, &texts, total, None, list_query.start))
}
