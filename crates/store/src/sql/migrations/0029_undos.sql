-- How changes of the console are undone, sealed: a deleted record may hold secrets.
CREATE TABLE undos (
    id         TEXT PRIMARY KEY,
    -- Who may undo it.
    role       TEXT NOT NULL,
    sealed     TEXT NOT NULL,
    expires_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX undos_end ON undos (expires_ms);
