//! The Admin API (`gateway-admin-api`): every endpoint in one table.
