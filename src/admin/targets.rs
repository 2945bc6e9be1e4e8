//! The targets of an upstream, by id or by `host:port`.

use http::{Method, StatusCode};

use super::call::Call;
use super::draft::{self, Key};
use super::entity::{self, Answer, Owner};
use super::error::ApiError;
use super::reply;
use crate::gateway::schemas;
use crate::model::target::Target;
use crate::model::upstream::Upstream;

/// `/upstreams/{upstream}/targets/{target}`. What is not there can't be made
/// here: a PUT or PATCH of it is refused.
pub(super) fn item(call: Call) -> Answer {
    Box::pin(async move {
        let (upstream, key) = (call.key(0), call.key(1));
        let entities = call.state.control.entities();
        let owner = draft::find::<Upstream>(&entities, &upstream).ok_or(ApiError::NotFound)?;
        let owner = owner.value.id;
        let found = match &key {
            Key::Id(id) => entities.targets.get(*id),
            Key::Name(name) => schemas::full_target(name)
                .ok()
                .and_then(|full| entities.targets.find(&Target::place(&full, owner))),
        };
        match found.filter(|target| target.value.upstream.id == owner) {
            Some(target) => {
                let owner = Owner::of::<Upstream, Target>(Key::Id(owner));
                entity::item_of::<Target>(call, Some(owner), Key::Id(target.value.id)).await
            }
            None if call.method == Method::DELETE => Ok(reply::empty(StatusCode::NO_CONTENT)),
            None => Err(ApiError::NotFound),
        }
    })
}
