-- Tokens that the plugin oauth2 has given, and codes that stand for them. The
-- credential may be one of a file, which no table has.
CREATE TABLE oauth2_tokens (
    id         TEXT PRIMARY KEY,
    access     BLOB NOT NULL UNIQUE,
    refresh    BLOB UNIQUE,
    credential TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    -- Null: never.
    ends_ms    INTEGER,
    doc        TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX oauth2_tokens_ends ON oauth2_tokens (ends_ms);
CREATE INDEX oauth2_tokens_credential ON oauth2_tokens (credential, created_ms);

CREATE TABLE oauth2_codes (
    hash       BLOB PRIMARY KEY,
    credential TEXT NOT NULL,
    expires_ms INTEGER NOT NULL,
    doc        TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX oauth2_codes_expires ON oauth2_codes (expires_ms);
