//! The Route record (interface 2.6): which requests belong to a service.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A route, as stored and as shown by the Admin API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Route {
    /// Assigned identifier.
    pub id: Uuid,
    /// Unique name, if any.
    #[serde(default)]
    pub name: Option<String>,
    /// `http`, `https` or both; or `grpc`, `grpcs` or both.
    pub protocols: Vec<String>,
    /// Host names, with at most one `*` as the whole leftmost or rightmost label.
    #[serde(default)]
    pub hosts: Option<Vec<String>>,
    /// Path prefixes (`/…`) and anchored regular expressions (`~/…`).
    #[serde(default)]
    pub paths: Option<Vec<String>>,
    /// Upper-case method names.
    #[serde(default)]
    pub methods: Option<Vec<String>>,
    /// Header names and the values of which one must be present.
    #[serde(default)]
    pub headers: Option<BTreeMap<String, Vec<String>>>,
    /// Server names of the TLS handshake.
    #[serde(default)]
    pub snis: Option<Vec<String>>,
    /// Order among regular-expression paths: higher first.
    #[serde(default, deserialize_with = "super::number::zero_if_null")]
    pub regex_priority: i64,
    /// Whether the matched prefix is removed before forwarding.
    pub strip_path: bool,
    /// Whether the client's Host header goes to the upstream.
    pub preserve_host: bool,
    /// How service path and request path are joined.
    #[serde(default)]
    pub path_handling: PathHandling,
    /// Answer to plain HTTP on a route that is for https only.
    #[serde(default = "upgrade_required")]
    pub https_redirect_status_code: u16,
    /// Whether a request's body is read whole before it is forwarded.
    #[serde(default = "yes")]
    pub request_buffering: bool,
    /// Whether a response's body is read whole before it is forwarded.
    #[serde(default = "yes")]
    pub response_buffering: bool,
    /// What routes of TCP streams match; such routes can't be served, so this
    /// is always unset.
    #[serde(default)]
    pub sources: Option<Box<[Address]>>,
    /// As `sources`.
    #[serde(default)]
    pub destinations: Option<Box<[Address]>>,
    /// The owning service; none answers 503.
    #[serde(default)]
    pub service: Option<Reference>,
    /// Labels for filtering lists.
    #[serde(default)]
    pub tags: Option<Vec<String>>,
    /// Creation time, in seconds since the epoch.
    pub created_at: i64,
    /// Last change, in seconds since the epoch.
    pub updated_at: i64,
}

/// One end of TCP streams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// An address or a range of them.
    #[serde(default)]
    pub ip: Option<String>,
    /// A port.
    #[serde(default)]
    pub port: Option<u16>,
}

/// A foreign key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reference {
    /// The referenced record's identifier.
    pub id: Uuid,
}

/// How the service's path and the request's path are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathHandling {
    /// Joined with exactly one slash.
    #[default]
    V0,
    /// Concatenated, one of two slashes dropped, none inserted.
    V1,
}

fn yes() -> bool {
    true
}

fn upgrade_required() -> u16 {
    426
}
