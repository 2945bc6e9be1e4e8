-- The token broker: products, developers and applications; tokens it gave out.
CREATE TABLE broker_records (
    kind       TEXT NOT NULL,
    id         TEXT NOT NULL,
    key        TEXT UNIQUE,
    parent     TEXT,
    owner      TEXT NOT NULL,
    salt       BLOB,
    digest     BLOB,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    doc        TEXT NOT NULL,
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX broker_parents ON broker_records (parent);

CREATE TABLE broker_tokens (
    access             BLOB PRIMARY KEY,
    access_approved    INTEGER NOT NULL,
    expires_ms         INTEGER NOT NULL,
    refresh            BLOB UNIQUE,
    refresh_approved   INTEGER NOT NULL,
    refresh_expires_ms INTEGER NOT NULL,
    swept_ms           INTEGER NOT NULL,
    client_id          TEXT NOT NULL,
    doc                TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX broker_tokens_swept ON broker_tokens (swept_ms);

-- @postgres
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON broker_records
   FOR EACH STATEMENT EXECUTE FUNCTION doorward_changed('identity');
-- What is given out and refreshed others find when they look.
CREATE TRIGGER changed AFTER UPDATE OF access_approved, refresh_approved ON broker_tokens
   FOR EACH STATEMENT EXECUTE FUNCTION doorward_changed('identity');
-- @both
