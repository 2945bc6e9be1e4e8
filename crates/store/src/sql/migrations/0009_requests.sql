-- Authorization requests that are kept for clients until their users are done
-- with them. After `begins_ms` no browser may begin with one.
CREATE TABLE requests (
    hash      BLOB PRIMARY KEY,
    realm     TEXT NOT NULL,
    client_id TEXT NOT NULL,
    begins_ms INTEGER NOT NULL,
    ends_ms   INTEGER NOT NULL,
    doc       TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX requests_client ON requests (realm, client_id, ends_ms);
CREATE INDEX requests_end ON requests (ends_ms);
