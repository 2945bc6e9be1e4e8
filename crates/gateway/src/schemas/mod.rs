//! The schemas of the gateway's entities (gateway-admin-api §5, interface 2.5
//! to 2.7; where they differ, the interface's defaults stand).

mod address;
mod certificate;
pub mod checks;
mod consumer;
mod credential;
mod der;
mod key;
mod plugin;
mod route;
mod service;
mod upstream;
mod vault;

#[cfg(test)]
mod tests;

pub use address::target as full_target;
pub use certificate::{ca_certificate, certificate, sni};
pub use certificate::{cert_digest, cert_end};
pub use consumer::{consumer, consumer_group, group_membership};
pub use credential::{MAX_TTL, credential};
pub use key::{key, key_set};
pub use plugin::{plugin, plugin_of};
pub use route::route;
pub use service::service;
pub use upstream::{in_full, target, upstream};
pub use vault::vault;

use std::sync::LazyLock;

use doorward_core::model::schema::{Field, Schema, Type};

/// The largest timeout: 2³¹−2 milliseconds, as in the imitated gateway.
const MAX_TIMEOUT: i64 = 2_147_483_646;

/// The rows of `/tags`: which entity carries which tag.
pub fn tag() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        Schema::new(vec![
            Field::new("tag", Type::checked(checks::tag)).required(),
            Field::new("entity_name", Type::text()).required(),
            Field::new("entity_id", Type::formatted("uuid", checks::uuid)).required(),
        ])
    });
    &SCHEMA
}

/// The fields that every entity begins with.
fn common() -> Vec<Field> {
    vec![
        Field::new("id", Type::formatted("uuid", checks::uuid)).auto(),
        Field::new("created_at", Type::Integer(0, i64::MAX)).auto(),
        Field::new("updated_at", Type::Integer(0, i64::MAX)).auto(),
        Field::new("tags", Type::set(Type::checked(checks::tag))),
    ]
}
