//! `/keys`, `/key-sets` and `/vaults`: what secrets are looked up in.

use super::endpoint::{Endpoint, ITEM, LIST, PARENT, endpoint};
use super::entity::{child, children, collection, item, parent};
use doorward_core::model::key::{Key, KeySet};
use doorward_core::model::vault::Vault;

/// Their endpoints.
pub(super) static ENDPOINTS: &[Endpoint] = &[
    endpoint("/key-sets", LIST, collection::<KeySet>),
    endpoint("/key-sets/{key_sets}", ITEM, item::<KeySet>),
    endpoint("/key-sets/{key_sets}/keys", LIST, children::<KeySet, Key>),
    endpoint(
        "/key-sets/{key_sets}/keys/{keys}",
        ITEM,
        child::<KeySet, Key>,
    ),
    endpoint("/keys", LIST, collection::<Key>),
    endpoint("/keys/{keys}", ITEM, item::<Key>),
    endpoint("/keys/{keys}/set", PARENT, parent::<Key, KeySet>),
    endpoint("/vaults", LIST, collection::<Vault>),
    endpoint("/vaults/{vaults}", ITEM, item::<Vault>),
];
