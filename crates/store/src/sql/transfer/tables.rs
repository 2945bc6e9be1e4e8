//! The tables of the store, in one place: what exports hold and imports fill.
//!
//! A test compares this with the migrations: no table or column is forgotten.

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sql) enum Type {
    Text,
    Int,
    Bytes,
}

use Type::{Bytes, Int, Text};

/// A table that is exported row by row.
#[derive(Debug)]
pub(in crate::sql) struct Table {
    pub(in crate::sql) name: &'static str,
    /// In any order; those of the key first.
    pub(in crate::sql) columns: &'static [(&'static str, Type)],
    /// How many columns are the key: rows are read in its order.
    pub(in crate::sql) key: usize,
    /// Whether the database numbers the rows itself.
    pub(in crate::sql) numbered: bool,
}

impl Table {
    /// The columns of the key.
    pub(in crate::sql) fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.columns[..self.key].iter().map(|(name, _)| *name)
    }
}

const fn table(name: &'static str, key: usize, columns: &'static [(&'static str, Type)]) -> Table {
    Table {
        name,
        columns,
        key,
        numbered: false,
    }
}

/// Tables that follow from others, or are of running processes: an import empties them, and
/// they are made anew.
pub(in crate::sql) const DERIVED: &[&str] =
    &["user_attr", "request_bytes", "entity_revision", "nodes"];

/// The table of the audit log, which an export may leave out.
pub(in crate::sql) const AUDIT: &str = "audit";

/// Every table that is not derived: each behind those that it refers to.
#[rustfmt::skip]
pub(in crate::sql) static TABLES: &[Table] = &[
    table("entities", 2, &[("kind", Text), ("id", Text), ("key", Text), ("doc", Text)]),
    table("realms", 1, &[("path", Text), ("owner", Text), ("settings", Text)]),
    table("retired_names", 2, &[
        ("realm", Text), ("user_key", Text), ("user_name", Text), ("user_id", Text),
        ("retired_ms", Int),
    ]),
    table("users", 1, &[
        ("id", Text), ("realm", Text), ("user_name", Text), ("user_key", Text),
        ("password", Text), ("status", Text), ("owner", Text), ("version", Int),
        ("created_ms", Int), ("updated_ms", Int), ("doc", Text), ("name_reused", Int),
    ]),
    table("federated_identities", 1, &[
        ("id", Text), ("realm", Text), ("user_id", Text), ("issuer", Text), ("subject", Text),
        ("provider", Text), ("email", Text), ("created_ms", Int), ("used_ms", Int),
    ]),
    table("factors", 1, &[
        ("id", Text), ("realm", Text), ("user_id", Text), ("kind", Text), ("name", Text),
        ("credential", Text), ("secret", Text), ("counter", Int), ("created_ms", Int),
        ("used_ms", Int),
    ]),
    table("recovery_codes", 2, &[("user_id", Text), ("hash", Bytes)]),
    table("user_groups", 1, &[
        ("id", Text), ("realm", Text), ("name", Text), ("name_key", Text), ("external_id", Text),
        ("version", Int), ("created_ms", Int), ("updated_ms", Int),
    ]),
    table("group_members", 2, &[("group_id", Text), ("user_id", Text)]),
    table("clients", 2, &[
        ("realm", Text), ("client_id", Text), ("owner", Text), ("salt", Bytes),
        ("digest", Bytes), ("secret", Text), ("created_ms", Int), ("updated_ms", Int),
        ("doc", Text), ("registration", Bytes), ("used_ms", Int),
    ]),
    table("signing_keys", 1, &[
        ("kid", Text), ("alg", Text), ("pkcs8", Text), ("created_ms", Int),
        ("active_from_ms", Int), ("expires_ms", Int),
    ]),
    table("secrets", 1, &[("name", Text), ("value", Text)]),
    table("initial_tokens", 1, &[
        ("hash", Bytes), ("id", Text), ("realm", Text), ("note", Text), ("uses_left", Int),
        ("created_ms", Int), ("expires_ms", Int),
    ]),
    table("sessions", 1, &[
        ("hash", Bytes), ("realm", Text), ("user_id", Text), ("created_ms", Int),
        ("used_ms", Int), ("ends_ms", Int), ("sid", Text), ("auth_ms", Int), ("amr", Text),
        ("agent", Text), ("address", Text),
    ]),
    table("session_clients", 2, &[("sid", Text), ("client_id", Text), ("realm", Text)]),
    table("session_grants", 1, &[
        ("grant_id", Text), ("sid", Text), ("realm", Text), ("client_id", Text),
        ("user_id", Text), ("offline", Int), ("expires_ms", Int),
    ]),
    table("consents", 2, &[
        ("user_id", Text), ("client_id", Text), ("realm", Text), ("scopes", Text),
        ("given_ms", Int),
    ]),
    table("codes", 1, &[
        ("hash", Bytes), ("user_id", Text), ("realm", Text), ("client_id", Text), ("used", Int),
        ("expires_ms", Int), ("doc", Text), ("sid", Text),
    ]),
    table("refresh_tokens", 1, &[
        ("family", Bytes), ("grant_id", Text), ("realm", Text), ("client_id", Text),
        ("user_id", Text), ("current", Bytes), ("previous", Bytes), ("salt", Bytes),
        ("rotated_ms", Int), ("expires_ms", Int), ("doc", Text), ("ends_ms", Int),
    ]),
    table("access_tokens", 1, &[
        ("hash", Bytes), ("grant_id", Text), ("expires_ms", Int), ("doc", Text),
    ]),
    table("revoked_grants", 1, &[("grant_id", Text), ("expires_ms", Int)]),
    table("revoked_tokens", 1, &[("token_id", Text), ("expires_ms", Int)]),
    table("devices", 1, &[
        ("hash", Bytes), ("user_code", Bytes), ("realm", Text), ("client_id", Text),
        ("user_id", Text), ("verdict", Int), ("expires_ms", Int), ("doc", Text), ("given", Text),
        ("polled_ms", Int), ("interval_s", Int),
    ]),
    table("requests", 1, &[
        ("hash", Bytes), ("realm", Text), ("client_id", Text), ("begins_ms", Int),
        ("ends_ms", Int), ("doc", Text),
    ]),
    table("seen", 1, &[("hash", Bytes), ("expires_ms", Int)]),
    table("lockouts", 1, &[
        ("id", Bytes), ("kind", Text), ("realm", Text), ("subject", Text), ("until_ms", Int),
        ("locks", Int), ("set_ms", Int), ("expires_ms", Int),
    ]),
    table("password_resets", 1, &[
        ("hash", Bytes), ("realm", Text), ("user_id", Text), ("bound", Bytes), ("expires_ms", Int),
    ]),
    Table {
        name: "logouts",
        key: 1,
        columns: &[
            ("id", Int), ("realm", Text), ("client_id", Text), ("user_id", Text),
            ("user_name", Text), ("sid", Text), ("tries", Int), ("next_ms", Int),
            ("until_ms", Int),
        ],
        numbered: true,
    },
    table("logins", 1, &[
        ("key", Bytes), ("id", Text), ("issuer", Text), ("client_id", Text), ("subject", Text),
        ("sid", Text), ("started_ms", Int), ("used_ms", Int), ("ends_ms", Int),
        ("locked_ms", Int), ("sealed", Text),
    ]),
    Table {
        name: "login_ends",
        key: 1,
        columns: &[("id", Int), ("what", Bytes), ("before_ms", Int), ("until_ms", Int)],
        numbered: true,
    },
    table(AUDIT, 1, &[
        ("id", Text), ("kind", Text), ("realm", Text), ("user_id", Text), ("user_name", Text),
        ("client_id", Text), ("address", Text), ("failed", Int), ("doc", Text),
    ]),
    table("broker_records", 2, &[
        ("kind", Text), ("id", Text), ("key", Text), ("parent", Text), ("owner", Text),
        ("salt", Bytes), ("digest", Bytes), ("created_ms", Int), ("updated_ms", Int),
        ("doc", Text),
    ]),
    table("broker_tokens", 1, &[
        ("access", Bytes), ("access_approved", Int), ("expires_ms", Int), ("refresh", Bytes),
        ("refresh_approved", Int), ("refresh_expires_ms", Int), ("swept_ms", Int),
        ("client_id", Text), ("doc", Text), ("current", Bytes), ("person", Text),
    ]),
    table("oauth2_tokens", 1, &[
        ("id", Text), ("access", Bytes), ("refresh", Bytes), ("credential", Text),
        ("created_ms", Int), ("ends_ms", Int), ("doc", Text),
    ]),
    table("oauth2_codes", 1, &[
        ("hash", Bytes), ("credential", Text), ("expires_ms", Int), ("doc", Text),
    ]),
    table("acme_accounts", 1, &[
        ("directory", Text), ("credentials", Text), ("contacts", Text), ("created_ms", Int),
    ]),
    table("acme_certificates", 1, &[
        ("hash", Bytes), ("names", Text), ("directory", Text), ("chain", Text),
        ("private", Text), ("updated_ms", Int), ("doc", Text),
    ]),
    table("acme_challenges", 1, &[("key", Text), ("answer", Text), ("expires_ms", Int)]),
    table("acme_leases", 1, &[("name", Text), ("holder", Text), ("until_ms", Int)]),
    table("undos", 1, &[
        ("id", Text), ("role", Text), ("sealed", Text), ("expires_ms", Int),
    ]),
    table("broker_ends", 1, &[("person", Text), ("before_ms", Int), ("until_ms", Int)]),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sqlx::Row;
    use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};

    use super::*;
    use crate::sql::migrate;

    /// Tables and columns as the migrations leave them.
    async fn migrated() -> BTreeMap<String, BTreeMap<String, String>> {
        let options = SqliteConnectOptions::new().in_memory(true);
        let pool = SqlitePoolOptions::new().max_connections(1);
        let pool = pool.connect_with(options).await.expect("a database");
        migrate::sqlite(&pool).await.expect("migrated");
        let rows = sqlx::query(
            "SELECT t.name AS name, c.name AS col, c.type AS type
               FROM sqlite_schema t, pragma_table_info(t.name) c
              WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'",
        );
        let rows = rows.fetch_all(&pool).await.expect("a schema");
        let mut tables: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        for row in rows {
            let table = tables.entry(row.get("name")).or_default();
            table.insert(row.get("col"), row.get("type"));
        }
        tables
    }

    #[tokio::test]
    async fn no_table_and_no_column_of_the_migrations_is_forgotten() {
        let mut tables = migrated().await;
        for derived in DERIVED {
            assert!(tables.remove(*derived).is_some(), "{derived} is no table");
        }
        let listed: BTreeMap<String, BTreeMap<String, String>> = TABLES
            .iter()
            .map(|table| {
                let columns = table.columns.iter().map(|(name, holds)| {
                    let holds = match holds {
                        Text => "TEXT",
                        Int => "INTEGER",
                        Bytes => "BLOB",
                    };
                    ((*name).to_owned(), holds.to_owned())
                });
                (table.name.to_owned(), columns.collect())
            })
            .collect();
        assert_eq!(
            listed, tables,
            "the list in transfer/tables.rs is not what the migrations make"
        );
    }
}
