//! `/keys`, `/key-sets` and `/vaults`: what secrets are looked up in.

use super::endpoint::{Endpoint, child, children, collection, item, parent};
use doorward_core::model::key::{Key, KeySet};
use doorward_core::model::vault::Vault;

/// Their endpoints.
pub(super) static ENDPOINTS: &[Endpoint] = &[
    collection::<KeySet>("/key-sets"),
    item::<KeySet>("/key-sets/{key_sets}"),
    children::<KeySet, Key>("/key-sets/{key_sets}/keys"),
    child::<KeySet, Key>("/key-sets/{key_sets}/keys/{keys}"),
    collection::<Key>("/keys"),
    item::<Key>("/keys/{keys}"),
    parent::<Key, KeySet>("/keys/{keys}/set"),
    collection::<Vault>("/vaults"),
    item::<Vault>("/vaults/{vaults}"),
];
