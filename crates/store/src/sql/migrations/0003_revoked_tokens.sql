-- Access tokens that must not be believed any more.
CREATE TABLE revoked_tokens (
    token_id   TEXT PRIMARY KEY,
    expires_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX revoked_tokens_expiry ON revoked_tokens (expires_ms);
