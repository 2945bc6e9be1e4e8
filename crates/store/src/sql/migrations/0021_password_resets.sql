-- Links by which people choose new passwords; of the token, the digest.
CREATE TABLE password_resets (
    hash       BLOB PRIMARY KEY NOT NULL,
    realm      TEXT NOT NULL,
    user_id    TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    bound      BLOB NOT NULL,
    expires_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX password_resets_user ON password_resets (user_id, expires_ms);
CREATE INDEX password_resets_expires ON password_resets (expires_ms);
