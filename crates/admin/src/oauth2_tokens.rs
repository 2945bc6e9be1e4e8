//! `/oauth2_tokens`: tokens that plugins have given, looked at, made and ended. Texts
//! of tokens are shown once, to who makes them.

use std::sync::LazyLock;

use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Method, StatusCode};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::call::Call;
use super::draft::{self, Draft, Key};
use super::endpoint::{Endpoint, LIST, READ, endpoint};
use super::entity::Answer;
use super::error::ApiError;
use super::openapi::entities::paging;
use super::reply;
use doorward_core::clock;
use doorward_core::model::credential::{Credential, MASK, OAuth2};
use doorward_core::model::grant::TokenHash;
use doorward_core::model::oauth2::{OAuth2Facts, StoredOAuth2Token};
use doorward_core::model::schema::{Field, Schema, Type, View, Violations};
use doorward_core::openapi::{Operation, list_of};
use doorward_gateway::control::ChangeError;
use doorward_store::StoreError;

/// Its endpoints.
pub(super) static ENDPOINTS: &[Endpoint] = &[
    endpoint("/oauth2_tokens", LIST, all, all_operation),
    endpoint(
        "/oauth2_tokens/{oauth2_tokens}",
        &["DELETE", "GET"],
        one,
        one_operation,
    ),
    endpoint(
        "/oauth2/{oauth2_credentials}/oauth2_tokens",
        READ,
        of_credential,
        of_credential_operation,
    ),
];

const DEFAULT_SIZE: u32 = 100;
const MAX_SIZE: u32 = 1000;
/// Longest time of a token, in seconds.
const MAX_TTL: i64 = 100_000_000;

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        Schema::new(vec![
            Field::new("credential", Type::Foreign("oauth2_credentials")).required(),
            Field::new("service", Type::Foreign("services")),
            Field::new("token_type", Type::word(&["bearer"]))
                .default("bearer")
                .required(),
            Field::new("expires_in", Type::Integer(0, MAX_TTL)).required(),
            Field::new("access_token", Type::text()).auto().unique(),
            Field::new("refresh_token", Type::text()).unique(),
            Field::new("authenticated_userid", Type::text()),
            Field::new("scope", Type::text()),
            Field::new("ttl", Type::Integer(0, MAX_TTL)),
        ])
    });
    &SCHEMA
}

/// `/oauth2_tokens`.
fn all(call: Call) -> Answer {
    Box::pin(async move {
        if call.method == Method::GET {
            return list(&call, None).await;
        }
        create(&call).await
    })
}

/// `/oauth2/{credential}/oauth2_tokens`.
fn of_credential(call: Call) -> Answer {
    Box::pin(async move {
        let entities = call.state.control.entities();
        let credential = draft::find::<Credential<OAuth2>>(&entities, &call.key(0));
        let credential = credential.ok_or(ApiError::NotFound)?.value.id;
        list(&call, Some(credential)).await
    })
}

/// `/oauth2_tokens/{id or access token}`.
fn one(call: Call) -> Answer {
    Box::pin(async move {
        let store = &call.state.store;
        let found = match call.key(0) {
            Key::Id(id) => store.oauth2_token_of(id).await,
            Key::Name(text) => store.oauth2_token(TokenHash::of(&text)).await,
        };
        let now_ms = call.state.clock.now_ms();
        let found = found.map_err(failed)?;
        let found = found.filter(|token| !token.is_over(now_ms));
        if call.method == Method::DELETE {
            if let Some(token) = found {
                let gone = store.delete_oauth2_token(token.id, call.audit()).await;
                gone.map_err(failed)?;
            }
            return Ok(reply::empty(StatusCode::NO_CONTENT));
        }
        let token = found.ok_or(ApiError::NotFound)?;
        let shown = Value::Object(shown(&token, now_ms));
        Ok(reply::json(StatusCode::OK, &shown))
    })
}

fn failed(error: StoreError) -> ApiError {
    ApiError::Change(ChangeError::Store(error))
}

async fn list(call: &Call, credential: Option<Uuid>) -> Result<Response, ApiError> {
    let (size, after) = page(call)?;
    let tokens = call.state.store.oauth2_tokens(credential, after, size + 1);
    let mut tokens = tokens.await.map_err(failed)?;
    let asked = usize::try_from(size).unwrap_or(usize::MAX);
    let more = tokens.len() > asked;
    tokens.truncate(asked);
    let now_ms = call.state.clock.now_ms();
    let last = tokens.last().map(|token| token.id).filter(|_| more);
    let data: Vec<Value> = tokens
        .iter()
        .filter(|token| !token.is_over(now_ms))
        .map(|token| Value::Object(shown(token, now_ms)))
        .collect();
    let mut body = json!({"data": data, "next": null});
    if let Some(last) = last {
        let offset = STANDARD.encode(json!([last]).to_string());
        let mut next = url::form_urlencoded::Serializer::new(String::new());
        next.append_pair("offset", &offset);
        next.extend_pairs(call.query.iter().filter(|(name, _)| name != "offset"));
        body["next"] = format!("{}?{}", call.path, next.finish()).into();
        body["offset"] = offset.into();
    }
    Ok(reply::json(StatusCode::OK, &body))
}

fn page(call: &Call) -> Result<(u32, Option<Uuid>), ApiError> {
    let (mut size, mut after) = (DEFAULT_SIZE, None);
    for (name, value) in &call.query {
        match name.as_str() {
            "size" => {
                let asked = value.parse().ok();
                let asked = asked.filter(|size| (1..=MAX_SIZE).contains(size));
                size = asked.ok_or(ApiError::Size("size must be an integer between 1 and 1000"))?;
            }
            "offset" => {
                let bytes = STANDARD.decode(value).ok();
                let id = bytes.and_then(|bytes| serde_json::from_slice::<[Uuid; 1]>(&bytes).ok());
                let [id] = id.ok_or_else(|| ApiError::Offset(value.clone()))?;
                after = Some(id);
            }
            _ => {}
        }
    }
    Ok((size, after))
}

/// A token without its texts, which nobody knows here.
fn shown(token: &StoredOAuth2Token, now_ms: i64) -> Map<String, Value> {
    let facts = &token.facts;
    let service = facts.service.map(|id| json!({ "id": id }));
    let left = token.ends_ms.map(|end| (end - now_ms).div_euclid(1000));
    let shown = json!({
        "id": token.id,
        "created_at": token.created_ms.div_euclid(1000),
        "credential": {"id": token.credential},
        "service": service,
        "token_type": "bearer",
        "expires_in": facts.expires_in,
        "access_token": MASK,
        "refresh_token": token.refresh.map(|_| MASK),
        "authenticated_userid": facts.authenticated_userid,
        "scope": facts.scope,
        "ttl": left,
    });
    match shown {
        Value::Object(shown) => shown,
        _ => Map::new(),
    }
}

async fn create(call: &Call) -> Result<Response, ApiError> {
    let new = Draft::of(call)?;
    let now_ms = new.now_ms;
    let record = schema().read(new.input, new.source)?;
    let record = schema().complete(record)?;
    let text = |field: &str| record.get(field).and_then(Value::as_str);
    let id = |field: &str| {
        let reference = record.get(field)?.get("id")?;
        Uuid::try_parse(reference.as_str()?).ok()
    };
    let entities = call.state.control.entities();
    let missing =
        |field, entity, id| ApiError::Change(ChangeError::ForeignKey { field, entity, id });
    let credential = id("credential").unwrap_or_default();
    let client = entities.credentials.clients.get(credential);
    let client = client.ok_or_else(|| missing("credential", "oauth2_credentials", credential))?;
    let client_id = client
        .value
        .scheme
        .client_id
        .clone()
        .ok_or_else(|| ApiError::Schema(Violations::of("credential", "it has no client_id")))?;
    let service = id("service");
    if let Some(id) = service.filter(|id| entities.services.get(*id).is_none()) {
        return Err(missing("service", "services", id));
    }
    let access = text("access_token").map_or_else(random_text, str::to_owned);
    let refresh = text("refresh_token");
    let ttl = record.get("ttl").and_then(Value::as_i64);
    let ttl = ttl.filter(|ttl| *ttl > 0);
    let token = StoredOAuth2Token {
        id: clock::random_uuid(),
        access: TokenHash::of(&access),
        refresh: refresh.map(TokenHash::of),
        credential,
        created_ms: now_ms,
        ends_ms: ttl.map(|ttl| now_ms + ttl * 1000),
        facts: OAuth2Facts {
            client_id,
            service,
            authenticated_userid: text("authenticated_userid").map(str::to_owned),
            scope: text("scope").map(str::to_owned),
            expires_in: record["expires_in"].as_i64().unwrap_or_default(),
            plugin: None,
            challenge: None,
        },
    };
    let kept = call
        .state
        .store
        .insert_oauth2_token(&token, call.audit())
        .await;
    if !kept.map_err(failed)? {
        return Err(ApiError::Change(ChangeError::Unique {
            kind: "oauth2_tokens",
            fields: format!("access_token=\"{MASK}\""),
            detail: Map::from_iter([("access_token".to_owned(), MASK.into())]),
        }));
    }
    let mut shown = shown(&token, now_ms);
    shown.insert("access_token".to_owned(), access.into());
    shown.insert("refresh_token".to_owned(), refresh.into());
    Ok(reply::json(StatusCode::CREATED, &Value::Object(shown)))
}

fn random_text() -> String {
    let bytes = clock::random_bytes::<24>();
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

/// A token in an answer: the fields of its schema, and what is shown besides.
fn answer() -> Value {
    let mut shown = schema().to_json_schema(View::Answer);
    shown["properties"]["id"] = json!({"type": "string", "format": "uuid"});
    shown["properties"]["created_at"] = json!({"type": "integer"});
    // One that lies in the store may be over.
    shown["properties"]["ttl"] = json!({"type": ["integer", "null"]});
    shown
}

/// What the description says of all of them.
fn all_operation(method: &str) -> Operation {
    match method {
        "GET" => Operation::new("Lists tokens that plugins have given, without their texts.")
            .takes(paging())
            .answers(200, "A page of them.", &list_of(&answer())),
        _ => Operation::new("Makes a token. Its texts are shown once, here.")
            .body(&schema().to_json_schema(View::Create))
            .answers(201, "The token.", &answer()),
    }
}

/// What the description says of one.
fn one_operation(method: &str) -> Operation {
    let operation = match method {
        "DELETE" => Operation::new("Ends a token.").ends(204, "There is no such token any more."),
        _ => Operation::new("Shows a token, without its texts.").answers(
            200,
            "The token.",
            &answer(),
        ),
    };
    operation.names(
        "oauth2_tokens",
        "Its `id`, or the text of the access token.",
    )
}

/// What the description says of those of an application.
fn of_credential_operation(_: &str) -> Operation {
    Operation::new("Lists the tokens of an application.")
        .names(
            "oauth2_credentials",
            "The `id` or `client_id` of the application.",
        )
        .takes(paging())
        .answers(200, "A page of them.", &list_of(&answer()))
}
