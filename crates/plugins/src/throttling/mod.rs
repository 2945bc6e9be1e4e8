//! The `throttling` plugin and `ThrottlingFilter` (interface 4.9): so many
//! requests in so long for each partition.
//!
//! An expression puts a request into a partition, a policy chooses its rate,
//! the partition's bucket has a token or not. `bucket` is the algorithm,
//! `slots` and `table` hold words, `partitions` makes buckets of them, `config`
//! reads what was configured, [`filter`] answers, `headers` tells clients their
//! quota, `hot` watches who asks most and `inspect` shows it; [`quota`] lends the
//! counters to other plugins. Buckets live with their
//! filter and survive every change that leaves the plugin's configuration
//! alone: in this process, or (`remote`) in a Redis that nodes share.

pub mod bucket;
mod codes;
mod config;
pub mod filter;
mod grouping;
mod headers;
mod hot;
mod inspect;
pub mod partitions;
mod policy;
pub mod quota;
pub mod rate;
pub mod rates;
mod remote;
mod slots;
mod sweep;
mod table;
#[cfg(test)]
mod tests;

use super::Kind;

/// Throttling, in front of everything but authentication.
pub const KIND: Kind = Kind {
    name: "throttling",
    priority: 910,
    of_consumers: true,
    schema: config::schema,
    codes: || codes::ALL.to_vec(),
    build: filter::build,
};
