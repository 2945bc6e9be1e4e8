//! `/vaults`: what secrets are looked up in.

use super::entity::{collection, item};
use super::{Endpoint, ITEM, LIST, endpoint};
use doorward_core::model::vault::Vault;

/// Their endpoints.
pub(super) static ENDPOINTS: &[Endpoint] = &[
    endpoint("/vaults", LIST, collection::<Vault>),
    endpoint("/vaults/{vaults}", ITEM, item::<Vault>),
];
