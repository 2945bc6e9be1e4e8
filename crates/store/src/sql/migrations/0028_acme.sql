-- Certificates from authorities by ACME. Accounts and private keys are sealed where
-- there is a master key.
CREATE TABLE acme_accounts (
    directory   TEXT PRIMARY KEY,
    credentials TEXT NOT NULL,
    -- The mailboxes that the authority was told, with a blank in between.
    contacts    TEXT NOT NULL,
    created_ms  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE acme_certificates (
    -- Of the names, of which there may be more than fit into an index.
    hash       BLOB PRIMARY KEY,
    names      TEXT NOT NULL,
    directory  TEXT NOT NULL,
    -- Null: none was issued yet.
    chain      TEXT,
    private    TEXT,
    updated_ms INTEGER NOT NULL,
    doc        TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- @postgres
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON acme_certificates
   FOR EACH STATEMENT EXECUTE FUNCTION doorward_changed('acme');
-- @both

-- Answers that an authority may ask any node for.
CREATE TABLE acme_challenges (
    key        TEXT PRIMARY KEY,
    answer     TEXT NOT NULL,
    expires_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX acme_challenges_expires ON acme_challenges (expires_ms);

-- Which node may order, and until when.
CREATE TABLE acme_leases (
    name     TEXT PRIMARY KEY,
    holder   TEXT NOT NULL,
    until_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
