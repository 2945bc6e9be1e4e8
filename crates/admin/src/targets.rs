//! The targets of an upstream, by id or by `host:port`.

use std::sync::Arc;

use http::Method;

use super::call::Call;
use super::draft::{self, Key};
use super::entity::{self, Answer, Owner};
use super::error::ApiError;
use super::health;
use super::openapi::entities::child;
use doorward_core::model::target::Target;
use doorward_core::model::upstream::Upstream;
use doorward_core::openapi::Operation;
use doorward_gateway::entities::Record;

/// `/upstreams/{upstream}/targets/{target}`. What is not there can't be made
/// here, and its deletion is no success, unlike that of other entities.
pub(super) fn item(mut call: Call) -> Answer {
    Box::pin(async move {
        let (upstream, key) = (call.key(0), call.key(1));
        let entities = call.state.control.entities();
        let owner = draft::find::<Upstream>(&entities, &upstream).ok_or(ApiError::NotFound)?;
        let owner = owner.value.id;
        let target = health::target(&entities, owner, &key);
        // One that is switched off is not shown by itself, as in the imitated gateway.
        let is_off = |target: &Arc<Record<Target>>| target.value.weight == 0;
        match target.filter(|target| call.method != Method::GET || !is_off(target)) {
            Some(target) => {
                // A PUT keeps what its body leaves out, as PATCH does.
                if call.method == Method::PUT {
                    call.method = Method::PATCH;
                }
                let owner = Owner::of::<Upstream, Target>(Key::Id(owner));
                entity::item_of::<Target>(call, Some(owner), Key::Id(target.value.id)).await
            }
            None => Err(ApiError::NotFound),
        }
    })
}

/// What the description says of one: a PUT is a PATCH.
pub(super) fn item_operation(method: &str) -> Operation {
    match method {
        "PUT" => child::<Upstream, Target>("PATCH"),
        method => child::<Upstream, Target>(method),
    }
}
