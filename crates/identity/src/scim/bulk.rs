//! `/Bulk` (RFC 7644 §3.7): many requests in one.
//!
//! Each operation is a request of its own, with the rights of the token. What
//! refers to a record that another one creates (`bulkId:…`) waits for it; what
//! waits for itself is refused (§3.7.1).

use std::collections::HashMap;

use axum::response::Response;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, IF_MATCH, LOCATION};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Map, Value, json};

use super::access::{self, Kind};
use super::record::RecordBase;
use super::{body, groups, reply, users};
use crate::error::ScimError;
use crate::{Call, RealmSource};

/// Most operations of one request.
pub(super) const OPERATIONS_MAX: usize = 1000;

const REQUEST_URN: &str = "urn:ietf:params:scim:api:messages:2.0:BulkRequest";
const RESPONSE_URN: &str = "urn:ietf:params:scim:api:messages:2.0:BulkResponse";

/// What marks the identifier of a record that is not created yet.
const MARK: &str = "bulkId:";

/// Longest `bulkId`.
const ID_MAX: usize = 256;

/// One operation.
struct Operation {
    method: Method,
    path: String,
    bulk_id: Option<String>,
    version: Option<String>,
    data: Value,
    /// The records that must be there before.
    needs: Vec<String>,
}

/// Answers with what became of each operation.
pub(crate) async fn post(call: &Call) -> Result<Response, ScimError> {
    // Nobody without a token has many answered; scopes are the operations'.
    access::token(call).await?;
    let sent = body::object(call)?;
    let (operations, fail_on) = read(&sent)?;
    let mut run = BulkRun {
        call,
        made: HashMap::new(),
        results: Vec::new(),
        errors: 0,
    };
    let mut waiting: Vec<Operation> = operations;
    while !waiting.is_empty() {
        let mut later = Vec::new();
        let before = waiting.len();
        for operation in waiting {
            if fail_on.is_some_and(|most| run.errors >= most) {
                break;
            }
            if operation.needs.iter().all(|id| run.made.contains_key(id)) {
                run.one(operation).await?
            } else {
                later.push(operation)
            }
        }
        if fail_on.is_some_and(|most| run.errors >= most) {
            break;
        }
        if later.len() == before {
            for operation in later {
                run.unresolved(&operation);
            }
            break;
        }
        waiting = later;
    }
    let body = json!({"schemas": [RESPONSE_URN], "Operations": run.results});
    Ok(reply::record(call, StatusCode::OK, &body))
}

fn syntax(text: impl Into<String>) -> ScimError {
    ScimError::bad("invalidSyntax", text)
}

/// The operations, and after how many errors to stop.
fn read(sent: &Map<String, Value>) -> Result<(Vec<Operation>, Option<u64>), ScimError> {
    body::check_members(sent)?;
    let schemas = body::member(sent, "schemas").and_then(Value::as_array);
    let is_bulk = |urn: &Value| {
        urn.as_str()
            .is_some_and(|urn| urn.eq_ignore_ascii_case(REQUEST_URN))
    };
    if !schemas.is_some_and(|schemas| schemas.iter().any(is_bulk)) {
        return Err(syntax(format!("schemas must hold {REQUEST_URN}")));
    }
    let fail_on = match body::member(sent, "failOnErrors") {
        None | Some(Value::Null) => None,
        Some(most) => match most.as_u64() {
            Some(most @ 1..) => Some(most),
            _ => return Err(syntax("failOnErrors must be an integer of 1 or more")),
        },
    };
    let operations = body::member(sent, "Operations").and_then(Value::as_array);
    let operations = operations.ok_or_else(|| syntax("Operations must be an array"))?;
    if operations.len() > OPERATIONS_MAX {
        let text = format!("There are more than {OPERATIONS_MAX} operations (maxOperations).");
        return Err(ScimError::new(StatusCode::PAYLOAD_TOO_LARGE, text));
    }
    let operations: Result<Vec<_>, _> = operations
        .iter()
        .enumerate()
        .map(|(index, one)| operation(one).map_err(|error| error.at_operation(index)))
        .collect();
    let operations = operations?;
    let mut ids: Vec<_> = operations
        .iter()
        .filter_map(|one| one.bulk_id.as_deref())
        .collect();
    ids.sort_unstable();
    if let Some(twice) = ids.windows(2).find(|two| two[0] == two[1]) {
        return Err(syntax(format!(
            "two operations have the bulkId {}",
            twice[0]
        )));
    }
    Ok((operations, fail_on))
}

fn operation(one: &Value) -> Result<Operation, ScimError> {
    let one = one.as_object();
    let one = one.ok_or_else(|| syntax("an operation must be an object"))?;
    body::check_members(one)?;
    let text = |name: &str| body::member(one, name).and_then(Value::as_str);
    let method = text("method").unwrap_or_default().to_ascii_uppercase();
    let method = match method.as_str() {
        "POST" => Method::POST,
        "PUT" => Method::PUT,
        "PATCH" => Method::PATCH,
        "DELETE" => Method::DELETE,
        _ => return Err(syntax("method must be POST, PUT, PATCH or DELETE")),
    };
    let path = text("path").ok_or_else(|| syntax("path must be a string"))?;
    let bulk_id = text("bulkId").map(str::to_owned);
    if method == Method::POST && bulk_id.is_none() {
        return Err(syntax("POST needs a bulkId"));
    }
    if bulk_id
        .as_ref()
        .is_some_and(|id| id.is_empty() || id.len() > ID_MAX)
    {
        return Err(syntax(format!("bulkId must have from 1 to {ID_MAX} bytes")));
    }
    let data = body::member(one, "data").cloned().unwrap_or(Value::Null);
    let mut needs = Vec::new();
    needed(&data, &mut needs);
    needed(
        &Value::String(path.rsplit('/').next().unwrap_or_default().to_owned()),
        &mut needs,
    );
    Ok(Operation {
        method,
        path: path.to_owned(),
        bulk_id,
        version: text("version").map(str::to_owned),
        data,
        needs,
    })
}

/// The records that texts of `value` refer to.
fn needed(value: &Value, needs: &mut Vec<String>) {
    match value {
        Value::String(text) => needs.extend(text.strip_prefix(MARK).map(str::to_owned)),
        Value::Array(values) => values.iter().for_each(|value| needed(value, needs)),
        Value::Object(members) => members.values().for_each(|value| needed(value, needs)),
        _ => {}
    }
}

/// Answers an operation: those that create go to the whole, others to one record.
async fn answer(kind: Kind, call: &Call) -> Result<Response, ScimError> {
    let creates = call.parts.method == Method::POST;
    match (kind, creates) {
        (Kind::User, true) => users::collection(call).await,
        (Kind::User, false) => users::one(call, call.last_segment()).await,
        (Kind::Group, true) => groups::collection(call).await,
        (Kind::Group, false) => groups::one(call, call.last_segment()).await,
    }
}

struct BulkRun<'c> {
    call: &'c Call,
    /// Identifiers of the records that were created, by `bulkId`.
    made: HashMap<String, String>,
    results: Vec<Value>,
    errors: u64,
}

impl BulkRun<'_> {
    async fn one(&mut self, mut operation: Operation) -> Result<(), ScimError> {
        self.resolve(&mut operation.data);
        let (head, last) = operation.path.rsplit_once('/').unwrap_or_default();
        if let Some(id) = last.strip_prefix(MARK).and_then(|id| self.made.get(id)) {
            operation.path = format!("{head}/{id}");
        }
        let response = match self.request(&operation) {
            Ok((kind, call)) => Box::pin(super::answer(&call, answer(kind, &call))).await,
            Err(error) => error.response(),
        };
        self.note(&operation, response).await
    }

    /// Puts identifiers in the place of `bulkId`s.
    fn resolve(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                let made = text.strip_prefix(MARK).and_then(|id| self.made.get(id));
                if let Some(made) = made {
                    text.clone_from(made);
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.resolve(value)),
            Value::Object(members) => members.values_mut().for_each(|value| self.resolve(value)),
            _ => {}
        }
    }

    /// The operation as a request of its own.
    fn request(&self, operation: &Operation) -> Result<(Kind, Call), ScimError> {
        let missing = || ScimError::new(StatusCode::NOT_FOUND, "There is no such resource.");
        let path = operation.path.trim_start_matches('/');
        let (name, id) = path.split_once('/').unwrap_or((path, ""));
        let kind = match name.to_ascii_lowercase().as_str() {
            "users" => Kind::User,
            "groups" => Kind::Group,
            _ => return Err(missing()),
        };
        let creates = operation.method == Method::POST;
        if creates != id.is_empty() || id.contains('/') {
            let text = "The resource does not have this method.";
            return Err(ScimError::new(StatusCode::METHOD_NOT_ALLOWED, text));
        }
        let base = RecordBase::of(self.call);
        let target = if base.standard {
            format!("{}/{path}", super::STANDARD)
        } else {
            format!("/v1/{path}")
        };
        let mut parts = self.call.parts.clone();
        // The whole was proven, and a proof is good once.
        parts.extensions.insert(access::Proven);
        parts.uri = target.parse().map_err(|_| missing())?;
        parts.method = operation.method.clone();
        parts.headers = self.headers(operation)?;
        let body = match &operation.data {
            Value::Null => Bytes::new(),
            data => Bytes::from(data.to_string()),
        };
        let call = Call {
            state: self.call.state.clone(),
            live: self.call.live.clone(),
            realm: self.call.realm.clone(),
            parts,
            body,
            now_ms: self.call.now_ms,
            realm_source: RealmSource::Path,
        };
        Ok((kind, call))
    }

    fn headers(&self, operation: &Operation) -> Result<HeaderMap, ScimError> {
        let mut headers = HeaderMap::new();
        for name in [AUTHORIZATION, ACCEPT] {
            if let Some(value) = self.call.headers().get(&name) {
                headers.insert(name, value.clone());
            }
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(body::SCIM));
        if let Some(version) = &operation.version {
            let version = HeaderValue::from_str(version);
            let version = version.map_err(|_| syntax("version is no entity tag"))?;
            headers.insert(IF_MATCH, version);
        }
        Ok(headers)
    }

    async fn note(&mut self, operation: &Operation, response: Response) -> Result<(), ScimError> {
        let status = response.status();
        let location = response.headers().get(LOCATION).cloned();
        let version = response.headers().get(http::header::ETAG).cloned();
        let mut result = started(operation, status);
        let text = |value: Option<HeaderValue>| {
            value.and_then(|value| value.to_str().ok().map(str::to_owned))
        };
        let location = text(location);
        if let Some(version) = text(version) {
            result["version"] = json!(version);
        }
        if status.is_success() {
            if let (Some(bulk_id), Some(location)) = (&operation.bulk_id, &location) {
                let id = location.rsplit('/').next().unwrap_or_default();
                self.made.insert(bulk_id.clone(), id.to_owned());
            }
            let known = location.or_else(|| self.address(operation));
            result["location"] = json!(known);
        } else {
            self.errors += 1;
            let body = response.into_body().collect().await;
            let body = body.map(|body| body.to_bytes()).unwrap_or_default();
            result["response"] = serde_json::from_slice(&body).unwrap_or_default();
            if operation.method != Method::POST {
                result["location"] = json!(self.address(operation));
            }
        }
        self.results.push(result);
        Ok(())
    }

    /// The address of the record that the operation is about.
    fn address(&self, operation: &Operation) -> Option<String> {
        let base = RecordBase::of(self.call);
        Some(base.below(operation.path.trim_start_matches('/')))
    }

    /// What an operation waits for never comes.
    fn unresolved(&mut self, operation: &Operation) {
        self.errors += 1;
        let text = format!(
            "bulkId {:.256} is not created by another operation, or only after this one",
            operation
                .needs
                .iter()
                .find(|id| !self.made.contains_key(*id))
                .map_or("", String::as_str)
        );
        let error = ScimError {
            scim_type: Some("invalidValue"),
            ..ScimError::new(StatusCode::CONFLICT, text)
        };
        let mut result = started(operation, StatusCode::CONFLICT);
        result["response"] = error.body();
        self.results.push(result);
    }
}

fn started(operation: &Operation, status: StatusCode) -> Value {
    let mut result = json!({
        "method": operation.method.as_str(),
        "status": status.as_u16().to_string(),
    });
    if let Some(bulk_id) = &operation.bulk_id {
        result["bulkId"] = json!(bulk_id);
    }
    result
}
