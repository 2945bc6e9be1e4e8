-- Certificates from authorities by ACME. Accounts and private keys are sealed where
-- there is a master key.
CREATE TABLE acme_accounts (
    directory   TEXT PRIMARY KEY,
    credentials TEXT NOT NULL,
    created_ms  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE acme_certificates (
    names      TEXT PRIMARY KEY,
    directory  TEXT NOT NULL,
    -- Null: none was issued yet.
    chain      TEXT,
    private    TEXT,
    updated_ms INTEGER NOT NULL,
    doc        TEXT NOT NULL
) STRICT, WITHOUT ROWID;

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
