-- The processes that serve the store, each with its last heartbeat.
CREATE TABLE nodes (
    id         TEXT PRIMARY KEY,
    hostname   TEXT NOT NULL,
    version    TEXT NOT NULL,
    started_ms INTEGER NOT NULL,
    seen_ms    INTEGER NOT NULL,
    -- Which write of entities it has in force.
    revision   INTEGER NOT NULL,
    -- Whether its own files are in force.
    current    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX nodes_seen ON nodes (seen_ms);
