-- The audit log: what a record is looked for by, and the record itself. The
-- identifiers are in the order of time.
CREATE TABLE audit (
    id        TEXT PRIMARY KEY,
    kind      TEXT NOT NULL,
    realm     TEXT,
    user_id   TEXT,
    user_name TEXT,
    client_id TEXT,
    address   TEXT,
    failed    INTEGER NOT NULL,
    doc       TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX audit_kind ON audit (kind, id);
CREATE INDEX audit_realm ON audit (realm, id) WHERE realm IS NOT NULL;
CREATE INDEX audit_user ON audit (user_id, id) WHERE user_id IS NOT NULL;
CREATE INDEX audit_user_name ON audit (user_name, id) WHERE user_name IS NOT NULL;
CREATE INDEX audit_client ON audit (client_id, id) WHERE client_id IS NOT NULL;
CREATE INDEX audit_address ON audit (address, id) WHERE address IS NOT NULL;
CREATE INDEX audit_failed ON audit (id) WHERE failed = 1;
