//! The provider over REST on the admin listener, below `/identity`: every
//! endpoint in one table.
//!
//! Who may come here was decided before (`admin`). Errors, lists and paging
//! are those of the Admin API. What is acknowledged is durable and in force.

mod audit_events;
mod clients;
mod consents;
mod declared_places;
mod error;
mod factors;
mod groups;
mod identities;
mod initial_tokens;
mod keys;
mod lockouts;
mod openapi;
mod page;
mod probes;
mod realms;
mod retired_names;
mod sessions;
mod users;

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use http::header::ALLOW;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde_json::{Map, Value};

pub use factors::factor_record;
pub use identities::identity_record;
pub use lockouts::lock_record;
pub use openapi::client_members;
pub(crate) use openapi::describe;
pub use retired_names::retired_name_record;
pub use sessions::session_record;

use super::State;
use super::form::{self, Form};
use super::realm::Realm;
use super::respond;
use declared_places::{DeclaredPlaces, is_declared};
use doorward_core::jose::json;
use doorward_core::model::audit::{AuditRecord, Kind, Operator, PendingAudit};
use doorward_core::openapi::Operation;
use doorward_net::http::ClientInfo;
use doorward_net::http::form::is_json;
use error::ManageError;

/// Where these endpoints are on the admin listener.
const PREFIX: &str = "/identity";

/// Longest body, in bytes.
const BODY_MAX: usize = 256 * 1024;

type Answer = Pin<Box<dyn Future<Output = Result<Response, ManageError>> + Send>>;

/// A method of a path.
struct Endpoint {
    method: &'static str,
    /// Parts in braces are open; `{*}` at the end stands for all that follow.
    path: &'static str,
    handler: fn(Call) -> Answer,
    /// What the description of the interface says of it.
    describe: fn() -> Operation,
    /// What the audit log is told of a request that changes something.
    tells: Option<Kind>,
}

impl Endpoint {
    const fn tells(self, kind: Kind) -> Self {
        Self {
            tells: Some(kind),
            ..self
        }
    }
}

const fn on(
    method: &'static str,
    path: &'static str,
    handler: fn(Call) -> Answer,
    describe: fn() -> Operation,
) -> Endpoint {
    Endpoint {
        method,
        path,
        handler,
        describe,
        tells: None,
    }
}

/// Every endpoint, below `/identity`.
#[rustfmt::skip]
static ENDPOINTS: &[Endpoint] = &[
    on("GET", "/clients", |call| Box::pin(clients::list(call)), openapi::list_clients),
    on("POST", "/clients", |call| Box::pin(clients::create(call)), openapi::create_client).tells(Kind::ClientCreate),
    on("GET", "/clients/{id}", |call| Box::pin(clients::show(call)), openapi::show_client),
    on("PUT", "/clients/{id}", |call| Box::pin(clients::put(call)), openapi::put_client).tells(Kind::ClientUpdate),
    on("PATCH", "/clients/{id}", |call| Box::pin(clients::patch(call)), openapi::patch_client).tells(Kind::ClientUpdate),
    on("DELETE", "/clients/{id}", |call| Box::pin(clients::delete(call)), openapi::delete_client).tells(Kind::ClientDelete),
    on("POST", "/clients/{id}/secret", |call| Box::pin(clients::rotate(call)), openapi::rotate_secret).tells(Kind::ClientSecret),
    on("GET", "/groups", |call| Box::pin(groups::list(call)), openapi::list_groups),
    on("POST", "/groups", |call| Box::pin(groups::create(call)), openapi::create_group).tells(Kind::GroupCreate),
    on("GET", "/groups/{id}", |call| Box::pin(groups::show(call)), openapi::show_group),
    on("PATCH", "/groups/{id}", |call| Box::pin(groups::patch(call)), openapi::patch_group).tells(Kind::GroupUpdate),
    on("DELETE", "/groups/{id}", |call| Box::pin(groups::delete(call)), openapi::delete_group).tells(Kind::GroupDelete),
    on("GET", "/groups/{id}/members", |call| Box::pin(groups::members(call)), openapi::list_members),
    on("PUT", "/groups/{id}/members/{id}", |call| Box::pin(groups::add(call)), openapi::add_member).tells(Kind::GroupUpdate),
    on("DELETE", "/groups/{id}/members/{id}", |call| Box::pin(groups::remove(call)), openapi::remove_member).tells(Kind::GroupUpdate),
    on("GET", "/initial-tokens", |call| Box::pin(initial_tokens::list(call)), openapi::list_initial_tokens),
    on("POST", "/initial-tokens", |call| Box::pin(initial_tokens::create(call)), openapi::create_initial_token).tells(Kind::InitialTokenCreate),
    on("DELETE", "/initial-tokens/{id}", |call| Box::pin(initial_tokens::delete(call)), openapi::delete_initial_token).tells(Kind::InitialTokenDelete),
    on("GET", "/keys", |call| Box::pin(keys::list(call)), openapi::list_keys),
    on("POST", "/keys/rotate", |call| Box::pin(keys::rotate(call)), openapi::rotate_keys).tells(Kind::KeyRotate),
    on("GET", "/lockouts", |call| Box::pin(lockouts::list(call)), openapi::list_lockouts),
    on("DELETE", "/lockouts", |call| Box::pin(lockouts::lift_named(call)), openapi::lift_named_lockout).tells(Kind::LockoutEnd),
    on("DELETE", "/lockouts/{id}", |call| Box::pin(lockouts::lift(call)), openapi::lift_lockout).tells(Kind::LockoutEnd),
    on("POST", "/probes/federation", |call| Box::pin(probes::provider(call)), openapi::probe_provider).tells(Kind::ConnectionTest),
    on("POST", "/probes/ldap", |call| Box::pin(probes::directory(call)), openapi::probe_directory).tells(Kind::ConnectionTest),
    on("POST", "/probes/mail", |call| Box::pin(probes::letter(call)), openapi::probe_mail).tells(Kind::ConnectionTest),
    on("GET", "/realms", |call| Box::pin(realms::list(call)), openapi::list_realms),
    on("POST", "/realms", |call| Box::pin(realms::create(call)), openapi::create_realm).tells(Kind::RealmCreate),
    on("GET", "/realms/{*}", |call| Box::pin(realms::show(call)), openapi::show_realm),
    on("PUT", "/realms/{*}", |call| Box::pin(realms::put(call)), openapi::put_realm).tells(Kind::RealmUpdate),
    on("PATCH", "/realms/{*}", |call| Box::pin(realms::patch(call)), openapi::patch_realm).tells(Kind::RealmUpdate),
    on("DELETE", "/realms/{*}", |call| Box::pin(realms::delete(call)), openapi::delete_realm).tells(Kind::RealmDelete),
    on("GET", "/retired-names", |call| Box::pin(retired_names::list(call)), openapi::list_retired_names),
    on("DELETE", "/retired-names", |call| Box::pin(retired_names::release(call)), openapi::release_name).tells(Kind::NameRelease),
    on("GET", "/sessions", |call| Box::pin(sessions::list(call)), openapi::list_sessions),
    on("DELETE", "/sessions", |call| Box::pin(sessions::end_all(call)), openapi::end_sessions).tells(Kind::SessionEnd),
    on("GET", "/sessions/{id}", |call| Box::pin(sessions::show(call)), openapi::show_session),
    on("DELETE", "/sessions/{id}", |call| Box::pin(sessions::end(call)), openapi::end_session).tells(Kind::SessionEnd),
    on("GET", "/users", |call| Box::pin(users::list(call)), openapi::list_users),
    on("POST", "/users", |call| Box::pin(users::create(call)), openapi::create_user).tells(Kind::UserCreate),
    on("GET", "/users/{id}", |call| Box::pin(users::show(call)), openapi::show_user),
    on("PATCH", "/users/{id}", |call| Box::pin(users::patch(call)), openapi::patch_user).tells(Kind::UserUpdate),
    on("DELETE", "/users/{id}", |call| Box::pin(users::delete(call)), openapi::delete_user).tells(Kind::UserDelete),
    on("POST", "/users/{id}/reset", |call| Box::pin(users::reset(call)), openapi::reset_password).tells(Kind::PasswordReset),
    on("GET", "/users/{id}/consents", |call| Box::pin(consents::list(call)), openapi::list_consents),
    on("DELETE", "/users/{id}/consents/{id}", |call| Box::pin(consents::withdraw(call)), openapi::withdraw_consent).tells(Kind::ConsentRevoke),
    on("GET", "/users/{id}/factors", |call| Box::pin(factors::list(call)), openapi::list_factors),
    on("DELETE", "/users/{id}/factors", |call| Box::pin(factors::reset(call)), openapi::reset_factors).tells(Kind::FactorDelete),
    on("GET", "/users/{id}/identities", |call| Box::pin(identities::list(call)), openapi::list_identities),
    on("POST", "/users/{id}/identities", |call| Box::pin(identities::create(call)), openapi::create_identity).tells(Kind::LinkCreate),
    on("DELETE", "/users/{id}/identities/{id}", |call| Box::pin(identities::delete(call)), openapi::delete_identity).tells(Kind::LinkDelete),
];

/// A request that found its endpoint.
struct Call {
    state: Arc<State>,
    /// The open parts of the path, decoded.
    params: Vec<String>,
    /// The query as sent.
    query: String,
    headers: HeaderMap,
    body: Bytes,
    now_ms: i64,
    /// Who asks, by the address that the request came from.
    address: Option<IpAddr>,
    /// Who asks, if another part of the process has let them in.
    operator: Option<Operator>,
    /// The record of what the request changes: for the write that changes it.
    pending: Option<PendingAudit>,
}

impl Call {
    /// The record that the write of the request takes with it.
    fn audit(&self) -> Option<&PendingAudit> {
        self.pending.as_ref()
    }

    /// Completes the record of the request by what turns out only now: before its
    /// write.
    fn complete(&self, change: impl FnOnce(&mut AuditRecord)) {
        if let Some(pending) = self.audit() {
            pending.complete(change);
        }
    }

    /// An open part of the path.
    fn param(&self, index: usize) -> &str {
        self.params.get(index).map_or("", String::as_str)
    }

    /// The query's parameters, none of them twice.
    fn query(&self) -> Result<Form<'_>, ManageError> {
        let form = Form::parse(self.query.as_bytes());
        form.map_err(|error| ManageError::Query(error.to_string()))
    }

    /// The realm that the query names; none: `/`.
    fn realm(&self) -> Result<Arc<Realm>, ManageError> {
        let path = self.query()?.get("realm").unwrap_or("/").to_owned();
        let path = format!("/{}", path.trim_matches('/'));
        let realm = self.state.live().realm(&path).cloned();
        realm.ok_or(ManageError::Realm(path))
    }

    /// The configuration file.
    fn file(&self) -> String {
        let live = self.state.live();
        let file = live.config.file.as_ref();
        file.map_or_else(
            || "the configuration file".to_owned(),
            |file| file.display().to_string(),
        )
    }

    /// The refusal of a change to what the configuration file declares.
    fn file_owned(&self, what: impl Into<String>) -> ManageError {
        ManageError::FileOwned {
            what: what.into(),
            file: self.file(),
        }
    }

    /// Tells the file and the line that declare records, if the query asks for it with
    /// `declared=true`.
    async fn tell_files<'r>(
        &self,
        records: impl Iterator<Item = &'r mut Map<String, Value>> + Send,
    ) -> Result<(), ManageError> {
        if self.query()?.get("declared") != Some("true") {
            return Ok(());
        }
        let mut declared: Vec<_> = records.filter(|record| is_declared(record)).collect();
        if declared.is_empty() {
            return Ok(());
        }
        let live = self.state.live();
        let places = DeclaredPlaces::of(self.file(), live.config.file.as_deref()).await;
        declared.iter_mut().for_each(|record| places.tell(record));
        Ok(())
    }

    /// The body, a JSON object; none is an empty one.
    fn object(&self) -> Result<Map<String, Value>, ManageError> {
        if self.body.is_empty() {
            return Ok(Map::new());
        }
        if !is_json(&self.headers) {
            return Err(ManageError::MediaType);
        }
        json::object(&self.body).map_err(|error| ManageError::Json(error.to_string()))
    }
}

/// Answers any request; its path is below `/identity`.
pub(super) async fn serve(state: Arc<State>, request: Request) -> Response {
    let head = request.method() == Method::HEAD;
    let mut response = answer(state, request)
        .await
        .unwrap_or_else(ManageError::response);
    respond::never_stored(&mut response);
    if head {
        *response.body_mut() = Body::empty();
    }
    response
}

async fn answer(state: Arc<State>, request: Request) -> Result<Response, ManageError> {
    let (head, body) = request.into_parts();
    let segments = segments(head.uri.path()).ok_or(ManageError::NotFound)?;
    let fitting: Vec<_> = ENDPOINTS
        .iter()
        .filter_map(|endpoint| Some((endpoint, endpoint.matches(&segments)?)))
        .collect();
    if fitting.is_empty() {
        return Err(ManageError::NotFound);
    }
    if head.method == Method::OPTIONS {
        return Ok(with_allow(&fitting, respond::empty(StatusCode::NO_CONTENT)));
    }
    let method = match head.method {
        Method::HEAD => Method::GET,
        method => method,
    };
    let found = fitting
        .iter()
        .find(|(endpoint, _)| endpoint.method == method.as_str());
    let Some((endpoint, params)) = found else {
        return Ok(with_allow(&fitting, ManageError::Method.response()));
    };
    let address = head.extensions.get::<ClientInfo>();
    let address = address.map(|info| info.addr.ip());
    let operator = head.extensions.get::<Operator>().cloned();
    let body = Limited::new(body, BODY_MAX).collect().await;
    let body = body.map_err(|_| ManageError::TooLarge)?.to_bytes();
    let call = Call {
        now_ms: state.clock.now_ms(),
        state,
        params: params.clone(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: head.headers,
        body,
        address,
        operator,
        pending: None,
    };
    let Some(kind) = endpoint.tells else {
        return (endpoint.handler)(call).await;
    };
    audit_events::record_change(kind, call, endpoint.handler).await
}

/// The parts of a path, decoded.
fn segments(path: &str) -> Option<Vec<String>> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    // A plus means itself in a path.
    let decoded = |part: &str| form::decode(part.replace('+', "%2B").as_bytes()).map(String::from);
    parts.map(decoded).collect()
}

fn with_allow(fitting: &[(&Endpoint, Vec<String>)], mut response: Response) -> Response {
    let mut methods: Vec<_> = fitting
        .iter()
        .map(|(endpoint, _)| endpoint.method)
        .collect();
    methods.push("OPTIONS");
    if methods.contains(&"GET") {
        methods.push("HEAD");
    }
    methods.sort_unstable();
    if let Ok(value) = HeaderValue::from_str(&methods.join(", ")) {
        response.headers_mut().insert(ALLOW, value);
    }
    response
}

impl Endpoint {
    /// The open parts of `segments`, if they are of this endpoint.
    fn matches(&self, segments: &[String]) -> Option<Vec<String>> {
        let mut own = self.path.split('/').filter(|part| !part.is_empty());
        let mut params = Vec::new();
        for (index, segment) in segments.iter().enumerate() {
            match own.next()? {
                "{*}" => {
                    params.push(segments[index..].join("/"));
                    return Some(params);
                }
                part if part.starts_with('{') => params.push(segment.clone()),
                part if part == segment => {}
                _ => return None,
            }
        }
        own.next().is_none().then_some(params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(path: &'static str, called: &str) -> Option<Vec<String>> {
        let endpoint = on(
            "GET",
            path,
            |_| unreachable!("is not called"),
            Operation::default,
        );
        endpoint.matches(&segments(called)?)
    }

    #[test]
    fn whatever_changes_something_is_told() {
        for endpoint in ENDPOINTS {
            let changes = endpoint.method != "GET";
            assert_eq!(endpoint.tells.is_some(), changes, "{}", endpoint.path);
        }
    }

    #[test]
    fn open_parts_are_decoded_and_the_last_may_take_the_rest() {
        let one = |text: &str| Some(vec![text.to_owned()]);
        assert_eq!(params("/clients/{id}", "/clients/a%2Fb+c"), one("a/b+c"));
        assert_eq!(params("/clients/{id}", "/clients/a/"), one("a"));
        assert_eq!(params("/clients/{id}", "/clients"), None);
        assert_eq!(params("/clients/{id}", "/clients/a/b"), None);
        assert_eq!(params("/clients", "/clients"), Some(vec![]));
        assert_eq!(params("/realms/{*}", "/realms/a/b"), one("a/b"));
        assert_eq!(params("/realms/{*}", "/realms"), None);
        assert_eq!(params("/clients/{id}", "/clients/%zz"), None);
    }
}
