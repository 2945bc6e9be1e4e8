//! `/broker`: the token broker's products, developers and applications.
//!
//! A secret is written and never read: only one that is made here is shown,
//! once, in the answer to the request that made it. What is acknowledged is
//! durable and in force.

use std::sync::Arc;

use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::call::Call;
use super::entity::Answer;
use super::error::ApiError;
use super::list::{DECLARED_IN, Scope};
use super::{body, list, reply, version};
use doorward_core::model::broker::{Kind, Record, Removal};
use doorward_core::model::schema::{Source, Violations};
use doorward_core::model::secret::Secret;
use doorward_core::model::user::Owner;
use doorward_core::model::user::schema::RecordError;
use doorward_core::yaml::{PathSegment, RecordFile};
use doorward_gateway::control::ChangeError;
use doorward_plugins::token_broker::Broker;
use doorward_plugins::token_broker::records::{self, NewRecord};
use doorward_store::StoreError;

/// How often a change is tried again whose record was changed meanwhile.
const TRIES: usize = 5;

/// `/broker/products`, `/broker/developers`, `/broker/applications`.
pub(super) fn collection(call: Call) -> Answer {
    Box::pin(async move {
        let (broker, kind) = (broker(&call)?, kind(&call)?);
        if call.method == Method::GET {
            return page(&call, &broker, kind).await;
        }
        let made = records::made(kind, members(&call)?, None, now(&call)).map_err(wrong)?;
        inserted(&call, &broker, made).await
    })
}

/// One record, by its name, address, identifier or consumer key.
pub(super) fn item(call: Call) -> Answer {
    Box::pin(async move {
        let (broker, kind) = (broker(&call)?, kind(&call)?);
        match call.method {
            Method::GET => {
                let record = known(&call, &broker, kind).await?;
                let mut shown = records::shown(&record);
                if Scope::of(&call.query)? == Scope::Declared {
                    tell_files(&broker, std::iter::once(&mut shown), kind).await;
                }
                Ok(answer(StatusCode::OK, shown))
            }
            Method::DELETE => delete(&call, &broker, kind).await,
            Method::PATCH => {
                let mut change = members(&call)?;
                let seen = take_version(&mut change)?;
                let made = |old: &Record, now_ms| {
                    let mut all = records::shown(old);
                    all.extend(change.clone());
                    records::made(kind, all, Some(old), now_ms)
                };
                changed(&call, &broker, (kind, seen), made).await
            }
            _ => put(&call, &broker, kind).await,
        }
    })
}

/// `POST /broker/applications/{id}/secret`: another secret, the one in the body
/// or a new one.
pub(super) fn secret(call: Call) -> Answer {
    Box::pin(async move {
        let broker = broker(&call)?;
        let mut members = members(&call)?;
        let given = match members.remove("consumer_secret") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(Secret::new(text)),
            Some(_) => {
                return Err(wrong(RecordError::new(
                    "consumer_secret",
                    "expected a string",
                )));
            }
        };
        let seen = take_version(&mut members)?;
        if let Some((name, _)) = members.iter().next() {
            return Err(wrong(RecordError::new(name, "unknown field")));
        }
        let made = |old: &Record, now_ms| records::rotated(old, given.clone(), now_ms);
        changed(&call, &broker, (Kind::Application, seen), made).await
    })
}

/// `DELETE /broker/applications/{id}/tokens`: revokes all tokens that the
/// application has got so far; also of a declared one, which is not changed by it.
pub(super) fn tokens(call: Call) -> Answer {
    Box::pin(async move {
        let broker = broker(&call)?;
        let record = known(&call, &broker, Kind::Application).await?;
        match broker.revoke_all(&record.id, call.audit()).await {
            Ok(true) => Ok(reply::empty(StatusCode::NO_CONTENT)),
            Ok(false) => Err(ApiError::NotFound),
            Err(error) => Err(ApiError::Change(ChangeError::Store(error))),
        }
    })
}

/// `POST /broker/tokens/revoke`: revokes the `token` in the body, an access
/// token or a refresh token, with the one that belongs to it unless `cascade`
/// is false; or all that came of sign-ins of an `end_user` so far.
pub(super) fn revoke(call: Call) -> Answer {
    Box::pin(async move {
        let broker = broker(&call)?;
        let members = members(&call)?;
        let known = ["token", "end_user", "cascade"];
        if let Some(name) = members.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(wrong(RecordError::new(name, "unknown field")));
        }
        let text = |name: &str| members.get(name).and_then(Value::as_str);
        let token = match (text("token"), text("end_user")) {
            (Some(token), None) => token,
            (None, Some(end_user)) if !end_user.trim().is_empty() => {
                let ended = broker.end_person(end_user, call.audit()).await;
                ended.map_err(|error| ApiError::Change(ChangeError::Store(error)))?;
                return Ok(reply::empty(StatusCode::NO_CONTENT));
            }
            (Some(_), Some(_)) => {
                let message = "goes without token";
                return Err(wrong(RecordError::new("end_user", message)));
            }
            _ => return Err(wrong(RecordError::new("token", "required field missing"))),
        };
        let cascade = match members.get("cascade") {
            None => true,
            Some(Value::Bool(cascade)) => *cascade,
            Some(_) => return Err(wrong(RecordError::new("cascade", "expected a boolean"))),
        };
        match broker.revoke(token, cascade, call.audit()).await {
            Ok(true) => Ok(reply::empty(StatusCode::NO_CONTENT)),
            Ok(false) => Err(ApiError::Missing("there is no such token".to_owned())),
            Err(error) => Err(ApiError::Change(ChangeError::Store(error))),
        }
    })
}

fn broker(call: &Call) -> Result<Arc<Broker>, ApiError> {
    call.state.broker.clone().ok_or(ApiError::NotFound)
}

fn kind(call: &Call) -> Result<Kind, ApiError> {
    match call.path.split('/').nth(2) {
        Some("products") => Ok(Kind::Product),
        Some("developers") => Ok(Kind::Developer),
        Some("applications") => Ok(Kind::Application),
        _ => Err(ApiError::NotFound),
    }
}

fn now(call: &Call) -> i64 {
    call.state.clock.now_ms()
}

/// The body, a JSON object; none is an empty one.
fn members(call: &Call) -> Result<Map<String, Value>, ApiError> {
    match body::arguments(&call.headers, &call.body)? {
        (members, Source::Json) => Ok(members),
        // Lists can't be told from texts in a form.
        _ => Err(ApiError::MediaType),
    }
}

/// List elements are counted from one there, and from zero in paths.
fn wrong(error: RecordError) -> ApiError {
    let mut path = String::new();
    for (index, part) in error.path.split(['.', '[', ']']).enumerate() {
        if part.is_empty() && index > 0 {
            continue;
        }
        if index > 0 {
            path.push('.');
        }
        match part.parse::<usize>() {
            Ok(position) => path.push_str(&(position + 1).to_string()),
            Err(_) => path.push_str(part),
        }
    }
    ApiError::Schema(Violations::of(&path, error.message))
}

async fn page(call: &Call, broker: &Broker, kind: Kind) -> Result<Response, ApiError> {
    let find = |name: &str| call.query.iter().find(|(key, _)| key == name);
    let size = match find("size") {
        Some((_, text)) => list::size(text)?,
        None => list::DEFAULT_SIZE,
    };
    let after = find("offset").map(|(_, text)| offset(text)).transpose()?;
    let limit = u32::try_from(size).unwrap_or(u32::MAX - 1) + 1;
    let found = broker.page(kind, after.as_deref(), limit).await;
    let mut found = found.map_err(|error| ApiError::Change(ChangeError::Store(error)))?;
    let more = found.len() > size;
    found.truncate(size);
    let last = found.last().map(|record| json!([record.id]).to_string());
    let mut data: Vec<_> = found.iter().map(records::shown).collect();
    if Scope::of(&call.query)? == Scope::Declared {
        tell_files(broker, data.iter_mut(), kind).await;
    }
    let mut body = json!({"data": data, "next": null});
    if let Some(last) = last.filter(|_| more) {
        let offset = STANDARD.encode(last);
        let mut next = url::form_urlencoded::Serializer::new(String::new());
        next.append_pair("offset", &offset);
        for name in ["size", Scope::NAME] {
            if let Some((_, text)) = find(name) {
                next.append_pair(name, text);
            }
        }
        body["next"] = format!("{}?{}", call.path, next.finish()).into();
        body["offset"] = offset.into();
    }
    Ok(reply::json(StatusCode::OK, &body))
}

fn offset(text: &str) -> Result<String, ApiError> {
    let bytes = STANDARD.decode(text).ok();
    let key = bytes.and_then(|bytes| serde_json::from_slice::<[String; 1]>(&bytes).ok());
    key.map(|[key]| key)
        .ok_or_else(|| ApiError::Offset(text.to_owned()))
}

async fn known(call: &Call, broker: &Broker, kind: Kind) -> Result<Record, ApiError> {
    find(call, broker, kind).await?.ok_or(ApiError::NotFound)
}

async fn find(call: &Call, broker: &Broker, kind: Kind) -> Result<Option<Record>, ApiError> {
    let found = broker.record(kind, call.param(0)).await;
    found.map_err(|error| ApiError::Change(ChangeError::Store(error)))
}

async fn inserted(call: &Call, broker: &Broker, made: NewRecord) -> Result<Response, ApiError> {
    let outcome = broker.insert(&made.record, call.audit()).await;
    outcome.map_err(|error| refused(broker, &made.record, error))?;
    Ok(shown(StatusCode::CREATED, &made.record, made.secret))
}

/// All of a record; makes it if there is none.
async fn put(call: &Call, broker: &Broker, kind: Kind) -> Result<Response, ApiError> {
    let mut all = members(call)?;
    let seen = take_version(&mut all)?;
    if find(call, broker, kind).await?.is_some() {
        let name = records::known_by(kind);
        if kind != Kind::Application && !all.contains_key(name) {
            all.insert(name.to_owned(), call.param(0).into());
        }
        let made = |old: &Record, now_ms| records::made(kind, all.clone(), Some(old), now_ms);
        return changed(call, broker, (kind, seen), made).await;
    }
    if seen.is_some() {
        return Err(ApiError::Changed);
    }
    let name = match kind {
        Kind::Application if call.param(0).parse::<uuid::Uuid>().is_err() => "consumer_key",
        kind => records::known_by(kind),
    };
    let named = all.entry(name).or_insert_with(|| call.param(0).into());
    if named.as_str() != Some(call.param(0)) {
        return Err(wrong(RecordError::new(
            name,
            "is another one than in the path",
        )));
    }
    let made = records::made(kind, all, None, now(call)).map_err(wrong)?;
    inserted(call, broker, made).await
}

/// Takes out the version that a change is of: when the record was last changed.
fn take_version(members: &mut Map<String, Value>) -> Result<Option<i64>, ApiError> {
    match members.remove("version") {
        None | Some(Value::Null) => Ok(None),
        Some(version) => match version.as_i64() {
            Some(version) => Ok(Some(version)),
            None => Err(wrong(RecordError::new("version", "expected an integer"))),
        },
    }
}

/// Replaces the record by what `made` makes of it, if it is of the version that was
/// `seen` where one is named.
async fn changed(
    call: &Call,
    broker: &Broker,
    (kind, seen): (Kind, Option<i64>),
    made: impl Fn(&Record, i64) -> Result<NewRecord, RecordError>,
) -> Result<Response, ApiError> {
    for _ in 0..TRIES {
        let old = known(call, broker, kind).await?;
        if old.owner == Owner::File {
            return Err(ApiError::Change(file_owned(broker)));
        }
        if seen.is_some_and(|seen| seen != old.updated_ms) {
            return Err(ApiError::Changed);
        }
        let made = made(&old, now(call)).map_err(wrong)?;
        match broker
            .update(&made.record, old.updated_ms, call.audit())
            .await
        {
            Err(StoreError::Conflict(_)) => {}
            Err(error) => return Err(refused(broker, &made.record, error)),
            Ok(()) => return Ok(shown(StatusCode::OK, &made.record, made.secret)),
        }
    }
    let busy = StoreError::Conflict(call.param(0).to_owned());
    Err(ApiError::Change(ChangeError::Store(busy)))
}

async fn delete(call: &Call, broker: &Broker, kind: Kind) -> Result<Response, ApiError> {
    let seen = seen_version(call)?;
    let record = known(call, broker, kind).await?;
    let removal = broker.delete((kind, &record.id), seen, call.audit()).await;
    match removal.map_err(|error| refused(broker, &record, error))? {
        Removal::Done => Ok(reply::empty(StatusCode::NO_CONTENT)),
        Removal::Missing => Err(ApiError::NotFound),
        Removal::Stale => Err(ApiError::Changed),
        Removal::InUse => Err(ApiError::Change(ChangeError::Referenced {
            entity: "developers",
            by: "applications",
        })),
    }
}

/// The version that a deletion is of. Two different ones are of no record.
fn seen_version(call: &Call) -> Result<Option<i64>, ApiError> {
    let mut seen = None;
    for text in version::in_query(&call.query) {
        let version = text.parse::<i64>().map_err(|_| ApiError::Option {
            option: version::VERSION.into(),
            message: "expected an integer".into(),
        })?;
        if seen.replace(version).is_some_and(|other| other != version) {
            return Err(ApiError::Changed);
        }
    }
    Ok(seen)
}

fn file_owned(broker: &Broker) -> ChangeError {
    ChangeError::FileOwned {
        file: broker.file(),
    }
}

fn refused(broker: &Broker, record: &Record, error: StoreError) -> ApiError {
    ApiError::Change(match error {
        StoreError::Taken(value) => {
            let member = match &record.key {
                Some(key) if *key == value => "consumer_key",
                _ => records::known_by(record.kind),
            };
            ChangeError::Unique {
                kind: record.kind.as_str(),
                fields: format!("{member}=\"{value}\""),
                detail: Map::from_iter([(member.to_owned(), value.into())]),
            }
        }
        StoreError::FileOwned(_) => file_owned(broker),
        StoreError::Absent(kind, id) => {
            let member = match kind {
                "product" => "products",
                kind => kind,
            };
            let message = format!("there is no {kind} {id}");
            return wrong(RecordError::new(member, message));
        }
        error => ChangeError::Store(error),
    })
}

/// The record, with the secret that was made for it.
fn shown(status: StatusCode, record: &Record, made: Option<Secret>) -> Response {
    let mut shown = records::shown(record);
    if let Some(secret) = made {
        let name = "consumer_secret".to_owned();
        shown.insert(name, secret.expose().into());
    }
    answer(status, shown)
}

/// Tells the file that declares records, and the line if it is found there.
async fn tell_files<'a>(
    broker: &Broker,
    records: impl Iterator<Item = &'a mut Map<String, Value>> + Send,
    kind: Kind,
) {
    let declared = records.filter(|shown| shown.get("owner") == Some(&json!("file")));
    let declared: Vec<_> = declared.collect();
    if declared.is_empty() {
        return;
    }
    let file = broker.file();
    let name = match kind {
        Kind::Application => "consumer_key",
        kind => records::known_by(kind),
    };
    let list = ["broker", list_of(kind)].map(PathSegment::from);
    let called = file.display().to_string();
    // It is read where nobody else waits.
    let read = tokio::task::spawn_blocking(move || RecordFile::of(&file));
    let content = read.await.ok().flatten();
    for shown in declared {
        let wanted = shown.get(name).and_then(Value::as_str);
        let line = content
            .as_ref()
            .zip(wanted)
            .and_then(|(file, wanted)| file.line_of(&list, name, wanted));
        shown.insert(DECLARED_IN.to_owned(), called.as_str().into());
        shown.extend(line.map(|line| ("declared_line".to_owned(), line.into())));
    }
}

fn list_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Product => "products",
        Kind::Developer => "developers",
        Kind::Application => "applications",
    }
}

fn answer(status: StatusCode, shown: Map<String, Value>) -> Response {
    let mut response = reply::json(status, &Value::Object(shown));
    let never = http::HeaderValue::from_static("no-store");
    response
        .headers_mut()
        .insert(http::header::CACHE_CONTROL, never);
    response
}
