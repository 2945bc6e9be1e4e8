//! For tests: how a database goes about what the store asks it.

use parking_lot::Mutex;
use sqlx::{AssertSqlSafe, Postgres, Row as _, SqlSafeStr, SqlStr, Sqlite, SqlitePool};

use super::bind::{Value, query};
use crate::testing;

type Statements = Mutex<Vec<(String, Vec<Value>)>>;

tokio::task_local! {
    static SEEN: Statements;
}

/// Notes a statement, if the running test wants to know.
pub(super) fn note(text: &SqlStr, values: &[Value]) {
    let _ = SEEN.try_with(|seen| {
        let statement = (text.as_str().to_owned(), values.to_vec());
        seen.lock().push(statement);
    });
}

/// Does `act`, which asks the database at `url`; the statements that read a table
/// or a realm from its beginning to its end, with what they read so.
pub async fn whole_reads(url: &str, act: impl Future<Output = ()>) -> Vec<String> {
    let done = async {
        act.await;
        SEEN.with(|seen| std::mem::take(&mut *seen.lock()))
    };
    let statements = SEEN.scope(Statements::default(), done).await;
    let planner = Planner::of(url).await;
    let mut found = Vec::new();
    for (text, values) in statements {
        let wholes = planner.wholes(&text, &values).await;
        found.extend(wholes.iter().map(|whole| format!("{whole} OF {text}")));
    }
    found
}

/// A database that can be asked for its plans.
enum Planner {
    Sqlite(SqlitePool),
    Postgres(sqlx::PgPool),
}

impl Planner {
    async fn of(url: &str) -> Self {
        if !testing::is_postgres() {
            return Self::Sqlite(SqlitePool::connect(url).await.expect("a database"));
        }
        let options = sqlx::postgres::PgPoolOptions::new().max_connections(1);
        let pool = options.connect(url).await.expect("a database");
        // Few rows are read fastest as they lie.
        for setting in ["ANALYZE", "SET enable_seqscan = off"] {
            sqlx::raw_sql(setting).execute(&pool).await.expect("set");
        }
        Self::Postgres(pool)
    }

    /// What the database would read whole.
    async fn wholes(&self, text: &str, values: &[Value]) -> Vec<String> {
        match self {
            Self::Sqlite(pool) => {
                let text = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {text}")).into_sql_str();
                let steps = query::<Sqlite>(text, values).fetch_all(pool).await;
                let steps = steps.expect("a plan");
                let steps = steps.iter().map(|step| step.get::<String, _>("detail"));
                steps.filter(|step| is_whole(step)).collect()
            }
            Self::Postgres(pool) => {
                let text = AssertSqlSafe(format!("EXPLAIN {text}")).into_sql_str();
                let lines = query::<Postgres>(text, values).fetch_all(pool).await;
                let lines = lines.expect("a plan");
                let lines = lines.iter().map(|line| line.get::<String, _>(0));
                unbounded(&lines.collect::<Vec<_>>())
            }
        }
    }
}

/// Whether a step of SQLite's reads a table, or all of a realm.
fn is_whole(step: &str) -> bool {
    let scans = step.starts_with("SCAN") && !step.contains("VIRTUAL TABLE");
    let constant = step.contains("CONSTANT ROW") || step.starts_with("SCAN (subquery");
    (scans && !constant) || step.ends_with("(realm=?)")
}

/// Nodes of PostgreSQL's that read a table, or an index from its beginning to its
/// end, or all of a realm.
fn unbounded(lines: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Option<&String> = None;
    for line in lines {
        let is_node = line.contains("->") || std::ptr::eq(line, &lines[0]);
        if is_node {
            found.extend(open.take().cloned());
            if line.contains("Seq Scan on") {
                found.push(line.clone());
            }
            let reads_index = ["Index Scan", "Index Only Scan"];
            open = Some(line).filter(|line| reads_index.iter().any(|kind| line.contains(kind)));
        } else if let Some((_, condition)) = line.split_once("Index Cond: ") {
            let of_realm = condition.starts_with("(realm = ");
            found.extend(open.take().filter(|_| of_realm).cloned());
        }
    }
    found.extend(open.cloned());
    found
}
