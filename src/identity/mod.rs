//! The identity provider: every endpoint in one table.
