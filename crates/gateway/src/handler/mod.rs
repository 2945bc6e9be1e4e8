//! What route files declare, compiled: handlers, the steps of their chains,
//! and the set of routes that is asked when no entity route matches.
//!
//! A tree is made once, when files are read; requests only walk it. Whoever
//! makes one has checked its depth ([`MAX_DEPTH`]) and that whatever stands in
//! a response answers by itself ([`Handler::answers`]).

mod analysis;
mod base;
mod counting;
mod destination;
mod dispatch;
mod dry_run;
mod execute;
mod handler_context;
mod proxying;
mod routes;
mod static_response;
pub(super) mod unwind;

use std::sync::Arc;

use doorward_expr::Expression;
use doorward_plugin_api::filter::Filter;

pub(super) use base::INTERNALS;
pub use base::{Base, BaseUri, Origin, Scheme};
pub use counting::Counting;
pub use destination::Destinations;
pub(super) use dispatch::{ask, is_open};
pub(super) use dry_run::{DryRun, dry_run};
pub(super) use handler_context::HandlerContext;
pub use proxying::ProxySettings;
pub use routes::{Declared, FileRoute, Routes};
pub use static_response::StaticResponse;

/// Deepest nesting of handlers and steps.
pub const MAX_DEPTH: usize = 32;

/// Why an object of a route file can't be a part of a tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct HandlerError {
    /// Dotted path of the field at fault, below the object's `config`.
    pub field: String,
    /// What is wrong and what is allowed.
    pub message: String,
}

impl HandlerError {
    fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
        }
    }
}

/// What answers a request, or says where it goes.
pub enum Handler {
    /// Sends the request to where its base URI says (`ReverseProxyHandler`,
    /// `ClientHandler`).
    Proxy(Arc<ProxySettings>),
    /// Answers by itself (`StaticResponseHandler`).
    Static(StaticResponse),
    /// Steps in order, then a handler (`Chain`).
    Chain {
        /// The steps.
        steps: Arc<[Step]>,
        /// What follows them.
        handler: Arc<Handler>,
    },
    /// The first binding whose condition is true; none: 404 without a body
    /// (`DispatchHandler`).
    Dispatch(Box<[Binding]>),
    /// Routes of its own, and what answers when none of them matches
    /// (`Router`).
    Router(Arc<Routes>),
    /// A handler that sees another base URI (the decorator `baseURI`).
    Rebased {
        /// What takes the place of scheme, host and port.
        base: BaseUri,
        /// What sees it.
        handler: Arc<Handler>,
    },
}

/// A part of a chain.
pub enum Step {
    /// A filter.
    Filter {
        /// Its type, and its name if it has one: for operators.
        label: Box<str>,
        /// What runs.
        filter: Arc<dyn Filter>,
    },
    /// Goes on if the condition is true, else answers with the handler
    /// (`ConditionEnforcementFilter`).
    Enforce {
        /// What has to be true.
        condition: Expression,
        /// What answers otherwise.
        failure: Arc<Handler>,
    },
    /// Diverts requests and answers (`SwitchFilter`).
    Switch {
        /// For requests.
        on_request: Box<[Case]>,
        /// For answers; each handler answers by itself.
        on_response: Box<[Case]>,
    },
    /// Steps that are taken if the condition is true (`ConditionalFilter`).
    Conditional {
        /// Whether they are.
        condition: Expression,
        /// Usually one.
        steps: Arc<[Step]>,
    },
    /// Steps as one (`ChainOfFilters`).
    Group(Arc<[Step]>),
}

/// A way out of a [`Step::Switch`].
pub struct Case {
    /// Whether it is taken; `None`: it is.
    pub condition: Option<Expression>,
    /// Where it leads.
    pub handler: Arc<Handler>,
}

/// A part of a [`Handler::Dispatch`].
pub struct Binding {
    /// Whether it is taken; `None`: it is.
    pub condition: Option<Expression>,
    /// Where it leads, rebased if the binding has a `baseURI`.
    pub handler: Arc<Handler>,
}

impl Handler {
    /// Whether it answers without asking an upstream, whatever the request:
    /// only such handlers may stand in the response phase of a switch.
    pub fn answers(&self) -> bool {
        match self {
            Handler::Static(_) => true,
            Handler::Chain { handler, .. } | Handler::Rebased { handler, .. } => handler.answers(),
            Handler::Dispatch(bindings) => bindings.iter().all(|b| b.handler.answers()),
            Handler::Proxy(_) | Handler::Router(_) => false,
        }
    }
}
