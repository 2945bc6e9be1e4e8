//! Providers: their metadata and keys, fetched when needed, kept up to date.

/// Every provider in use, shared by the plugins that name it.
#[derive(Debug, Default)]
pub struct Providers {}
