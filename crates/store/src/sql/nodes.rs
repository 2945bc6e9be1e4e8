//! The processes that serve the store, each with its last heartbeat.

use super::dialect::Dialect;
use super::{Row, Tx, sql};
use crate::{Node, Store, StoreError};

/// Most nodes that are listed: those that were seen last.
const NODES_MAX: u32 = 1000;

/// What the server says of the time.
const SERVER_TIME: &str =
    "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) AS now_ms";

impl Store {
    /// Keeps the heartbeat of a node, and removes nodes whose last one is not later than
    /// `before_ms`.
    pub async fn put_node(&self, node: Node, before_ms: i64) -> Result<(), StoreError> {
        let write = self
            .batch
            .write((node, before_ms), |tx, (node, before_ms)| {
                Box::pin(put(tx, node, *before_ms))
            });
        write.await
    }

    /// The time by which the heartbeats of all nodes are kept and compared, in milliseconds
    /// since the epoch: that of the database server, whose clock is one for all of them.
    /// Nodes that share a file are on one machine, and `own_ms` is the same for all.
    pub async fn shared_time_ms(&self, own_ms: i64) -> Result<i64, StoreError> {
        if self.database.dialect() == Dialect::Sqlite {
            return Ok(own_ms);
        }
        let row = sql(SERVER_TIME).one(&self.database).await?;
        row.map_or(Ok(own_ms), |row| row.int("now_ms"))
    }

    /// The nodes whose last heartbeat is later than `after_ms`, by their start.
    pub async fn nodes(&self, after_ms: i64) -> Result<Vec<Node>, StoreError> {
        let rows = sql("SELECT * FROM nodes WHERE seen_ms > $1 ORDER BY seen_ms DESC LIMIT $2")
            .bind(after_ms)
            .bind(NODES_MAX)
            .all(&self.database)
            .await?;
        let nodes: Result<Vec<_>, _> = rows.iter().map(read).collect();
        let mut nodes = nodes?;
        nodes.sort_by(|a, b| (a.started_ms, &a.id).cmp(&(b.started_ms, &b.id)));
        Ok(nodes)
    }

    /// Removes a node that ends.
    pub async fn delete_node(&self, id: String) -> Result<(), StoreError> {
        let write = self.batch.write(id, |tx, id| Box::pin(delete(tx, id)));
        write.await
    }
}

async fn put(tx: &mut Tx, node: &Node, before_ms: i64) -> Result<(), StoreError> {
    sql(
        "INSERT INTO nodes (id, hostname, version, started_ms, seen_ms, revision, current)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (id) DO UPDATE SET
            seen_ms = excluded.seen_ms, revision = excluded.revision, current = excluded.current",
    )
    .bind(&node.id)
    .bind(&node.hostname)
    .bind(&node.version)
    .bind(node.started_ms)
    .bind(node.seen_ms)
    .bind(node.revision)
    .bind(i64::from(node.is_current))
    .run(&mut *tx)
    .await?;
    sql("DELETE FROM nodes WHERE seen_ms <= $1")
        .bind(before_ms)
        .run(tx)
        .await
        .map(drop)
}

async fn delete(tx: &mut Tx, id: &String) -> Result<(), StoreError> {
    sql("DELETE FROM nodes WHERE id = $1")
        .bind(id)
        .run(tx)
        .await
        .map(drop)
}

fn read(row: &Row) -> Result<Node, StoreError> {
    Ok(Node {
        id: row.text("id")?,
        hostname: row.text("hostname")?,
        version: row.text("version")?,
        started_ms: row.int("started_ms")?,
        seen_ms: row.int("seen_ms")?,
        revision: row.int("revision")?,
        is_current: row.int("current")? != 0,
    })
}
