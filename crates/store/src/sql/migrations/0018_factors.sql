-- What users prove besides, or instead of, the password.

CREATE TABLE factors (
    id         TEXT PRIMARY KEY,
    realm      TEXT NOT NULL,
    user_id    TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    kind       TEXT NOT NULL,
    name       TEXT NOT NULL,
    -- Of a passkey, the identifier of the credential.
    credential TEXT,
    secret     TEXT NOT NULL,
    -- The last step or count that was used: it only grows.
    counter    INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    used_ms    INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX factors_user ON factors (user_id, created_ms);
CREATE UNIQUE INDEX factors_credential ON factors (realm, credential);

CREATE TABLE recovery_codes (
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    hash    BLOB NOT NULL,
    PRIMARY KEY (user_id, hash)
) STRICT, WITHOUT ROWID;
