-- What must be accepted once only, by hash, such as assertions of clients.
CREATE TABLE seen (
    hash       BLOB PRIMARY KEY,
    expires_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX seen_expiry ON seen (expires_ms);
