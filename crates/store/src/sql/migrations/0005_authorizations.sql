-- Authorization codes. One that was used stays for a while: its second use
-- revokes what the first one gave.
CREATE TABLE codes (
    hash       BLOB PRIMARY KEY,
    user_id    TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    realm      TEXT NOT NULL,
    client_id  TEXT NOT NULL,
    used       INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    doc        TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX codes_user ON codes (user_id);
CREATE INDEX codes_expiry ON codes (expires_ms);

-- The scopes that a user let a client have, separated by blanks.
CREATE TABLE consents (
    user_id   TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    realm     TEXT NOT NULL,
    client_id TEXT NOT NULL,
    scopes    TEXT NOT NULL,
    given_ms  INTEGER NOT NULL,
    PRIMARY KEY (user_id, client_id)
) STRICT, WITHOUT ROWID;

-- What ID tokens call a session, and when its user last showed the password.
ALTER TABLE sessions ADD COLUMN sid TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN auth_ms INTEGER NOT NULL DEFAULT 0;
-- @sqlite
UPDATE sessions SET sid = lower(hex(randomblob(16))), auth_ms = created_ms;
-- @both
