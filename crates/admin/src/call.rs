//! A request on its way to its handler.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};

use super::State;
use super::draft::Key;
use super::version::{self, Expected};
use doorward_core::model::audit::{Operator, PendingAudit};
use doorward_gateway::records::Disclosure;
use doorward_net::http::ClientInfo;

/// What a handler knows of a request. `HEAD` arrives as `GET`.
pub(super) struct Call {
    pub(super) state: Arc<State>,
    pub(super) method: Method,
    /// The path of the endpoint, without workspace and trailing slash.
    pub(super) path: String,
    /// The parts of the path that the endpoint leaves open, decoded.
    pub(super) params: Vec<String>,
    pub(super) query: Vec<(String, String)>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Who sent it.
    pub(super) client: Option<ClientInfo>,
    /// On whose behalf another part of the process sent it.
    pub(super) operator: Option<Operator>,
    /// The record of what the request changes: for the write that changes it.
    pub(super) pending: Option<PendingAudit>,
}

impl Call {
    /// The record that the write of the request takes with it.
    pub(super) fn audit(&self) -> Option<&PendingAudit> {
        self.pending.as_ref()
    }

    /// The record that a part of the path names.
    pub(super) fn key(&self, index: usize) -> Key {
        Key::of(self.param(index))
    }

    /// How much of records is shown in the answer.
    pub(super) fn disclosure(&self) -> Disclosure {
        Disclosure {
            now_ms: self.state.clock.now_ms(),
            secrets: self.state.show_credentials,
        }
    }

    /// The versions of a record that a change names, in its query and in its body, and
    /// what tells that of a record.
    pub(super) fn expected<'a>(&'a self, body: Option<&'a str>) -> Expected<'a> {
        Expected {
            versions: &self.state.versions,
            named: version::in_query(&self.query).chain(body).collect(),
        }
    }

    /// A part of the path that the endpoint leaves open.
    pub(super) fn param(&self, index: usize) -> &str {
        self.params.get(index).map_or("", String::as_str)
    }
}
