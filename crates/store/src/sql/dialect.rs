//! Where the words of SQLite and PostgreSQL differ: one function a difference.

use super::statement::Builder;

/// Whose words a statement is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Sqlite,
    Postgres,
}

use Dialect::{Postgres, Sqlite};

/// Characters of a value that are in PostgreSQL's index. They, a realm and a path
/// are shorter than the 2,704 bytes that its indexes take.
pub(super) const CUT: i64 = 400;

impl Dialect {
    /// The database, as OpenTelemetry names it (`db.system`).
    pub(super) fn system(self) -> &'static str {
        match self {
            Sqlite => "sqlite",
            Postgres => "postgresql",
        }
    }

    /// `INSERT`, the way of many rows. Whoever sees it fail gives the transaction
    /// up, so SQLite need not be able to take back this statement alone.
    pub(super) fn insert(self) -> &'static str {
        match self {
            Sqlite => "INSERT OR FAIL",
            Postgres => "INSERT",
        }
    }

    /// The name of a client, in small letters (of ASCII).
    pub(super) fn client_name(self) -> &'static str {
        match self {
            Sqlite => "lower(coalesce(doc ->> 'client_name', ''))",
            Postgres => "lower(coalesce(doc::jsonb ->> 'client_name', '') COLLATE \"C\")",
        }
    }

    /// A condition on `clients c`: it wants to be told of ended sessions.
    pub(super) fn push_is_notified(self, sql: &mut Builder) {
        sql.push(match self {
            Sqlite => "c.doc ->> 'backchannel_logout_uri' IS NOT NULL",
            Postgres => "c.doc::jsonb ->> 'backchannel_logout_uri' IS NOT NULL",
        });
    }

    /// The texts `value` of the JSON list that is bound next.
    pub(super) fn push_each_text(self, sql: &mut Builder, list: String) {
        match self {
            Sqlite => sql
                .push("SELECT value FROM json_each(")
                .push_bind(list)
                .push(")"),
            Postgres => sql
                .push("SELECT value COLLATE \"C\" AS value FROM jsonb_array_elements_text(")
                .push_bind(list)
                .push("::jsonb) AS each(value)"),
        };
    }

    /// The addresses `value` at which the clients of the realm `$1` live.
    pub(super) fn client_addresses(self) -> &'static str {
        match self {
            Sqlite => {
                "SELECT value FROM clients, json_each(doc, '$.redirect_uris') WHERE realm = $1
                 UNION
                 SELECT value FROM clients, json_each(doc, '$.allowed_origins') WHERE realm = $1"
            }
            Postgres => {
                "SELECT value #>> '{}' AS value FROM clients,
                        jsonb_path_query(doc::jsonb, '$.redirect_uris[*]') AS each(value)
                  WHERE realm = $1
                 UNION
                 SELECT value #>> '{}' FROM clients,
                        jsonb_path_query(doc::jsonb, '$.allowed_origins[*]') AS each(value)
                  WHERE realm = $1"
            }
        }
    }

    /// A condition on `column`: the text that is bound next is part of it.
    pub(super) fn push_contains(self, sql: &mut Builder, column: &'static str, part: &str) {
        sql.push(match self {
            Sqlite => "instr(",
            Postgres => "strpos(",
        });
        sql.push(column).push(", ").push_bind(part).push(") > 0");
    }

    /// A condition on `users u`: the object of this name in `doc` has members.
    pub(super) fn push_has_members(self, sql: &mut Builder, name: &'static str) {
        match self {
            Sqlite => sql
                .push("EXISTS (SELECT 1 FROM json_each(u.doc, '$.")
                .push(name)
                .push("'))"),
            Postgres => sql
                .push("jsonb_path_exists(u.doc::jsonb, '$.")
                .push(name)
                .push(".*')"),
        };
    }

    /// `u.realm = `, which keeps the realm's index out of the plan. SQLite would
    /// take it where another leads to fewer rows (`+`: SQLite, query planner).
    pub(super) fn unindexed_realm_is(self) -> &'static str {
        match self {
            Sqlite => "+u.realm = ",
            Postgres => "u.realm = ",
        }
    }

    /// A value as `user_attr` keeps it: what its index holds, and the rest of a
    /// value that is too long for that (of one of [`CUT`] characters nothing).
    pub(super) fn cut(self, text: &str) -> (&str, Option<&str>) {
        let last = usize::try_from(CUT - 1).unwrap_or_default();
        match (self, text.char_indices().nth(last)) {
            (Postgres, Some((at, last))) => {
                let (begin, rest) = text.split_at(at + last.len_utf8());
                (begin, Some(rest))
            }
            _ => (text, None),
        }
    }

    /// The whole value of a row of `user_attr a`.
    pub(super) fn whole_value(self) -> &'static str {
        match self {
            Sqlite => "a.text",
            Postgres => "a.text || coalesce(a.tail, '')",
        }
    }
}
