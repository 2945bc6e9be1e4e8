//! The Admin API for other parts of the process: they let operators in by their
//! own means, and every read and write of theirs still passes here.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use http::{HeaderMap, Method, StatusCode, Uri};

use super::{State, answer, audit_events};
use doorward_core::clock::random_uuid;
use doorward_core::model::audit::{Actor, Operator};
use doorward_net::http::ClientInfo;
use doorward_store::StoreError;

/// The Admin API, called without a socket.
#[derive(Clone)]
pub struct AdminService {
    state: Arc<State>,
}

impl AdminService {
    pub(super) fn new(state: Arc<State>) -> Self {
        Self { state }
    }

    /// What the listener serves: who comes there needs the token.
    pub fn router(&self) -> Router {
        let state = self.state.clone();
        Router::new().fallback(move |request: Request| answer(state.clone(), None, request))
    }

    /// Answers a request of `operator`, who has been let in.
    pub async fn call(&self, operator: Operator, request: Request) -> Response {
        answer(self.state.clone(), Some(operator), request).await
    }

    /// Keeps in the store how the change `id` is undone until `until_ms`: who may undo
    /// it, and the rest sealed.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn put_undo(
        &self,
        id: &str,
        kept: (&str, &str),
        until_ms: i64,
    ) -> Result<(), StoreError> {
        self.state.store.put_undo(id, kept, until_ms).await
    }

    /// How the change `id` is undone, sealed, if that is still known.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn undo(&self, id: &str) -> Result<Option<String>, StoreError> {
        self.state.store.undo(id, self.state.clock.now_ms()).await
    }

    /// The changes that can be undone, each with who may undo it.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn undos(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.state.store.undos(self.state.clock.now_ms()).await
    }

    /// Forgets how the change `id` is undone: it was.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn delete_undo(&self, id: &str) -> Result<bool, StoreError> {
        self.state.store.delete_undo(id).await
    }

    /// Whether the listener wants a token.
    pub fn has_token(&self) -> bool {
        self.state.access.token.is_some()
    }

    /// Whether `candidate` is the token, compared in constant time.
    pub fn is_token(&self, candidate: &str) -> bool {
        let token = self.state.access.token.as_ref();
        token.is_some_and(|token| token.matches(candidate))
    }

    /// Whether there is an identity provider below `/identity`.
    pub fn has_identity(&self) -> bool {
        self.state.identity.is_some()
    }

    /// Whether a request for a page of the listener may come under its `Host` and
    /// from where it comes from.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_page(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(), String> {
        let checked = self.state.access.check_page(method, uri, headers);
        checked.map_err(|error| error.to_string())
    }

    /// Tells the audit log of a request of `actor` that may not use the listener, or
    /// may not use it so.
    pub fn note_refusal(&self, client: Option<ClientInfo>, actor: Actor, status: StatusCode) {
        let id = random_uuid().simple().to_string();
        audit_events::refused(&self.state, (client, actor), status, &id);
    }
}
