-- One row for all refresh tokens of a grant: a rotation changes it in place.
-- Tokens name their family, so that one that is neither the current nor the
-- previous one is known to be old. A token from before is its own family.
CREATE TABLE refresh_families (
    -- SHA-256 of the family.
    family     BLOB PRIMARY KEY,
    grant_id   TEXT NOT NULL,
    realm      TEXT NOT NULL,
    client_id  TEXT NOT NULL,
    user_id    TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    -- SHA-256 of the token in force.
    current    BLOB NOT NULL,
    -- SHA-256 of the token before it, what the one in force was derived with
    -- from that one, and when.
    previous   BLOB,
    salt       BLOB,
    rotated_ms INTEGER,
    expires_ms INTEGER NOT NULL,
    doc        TEXT NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO refresh_families
       (family, grant_id, realm, client_id, user_id, current, expires_ms, doc)
SELECT hash, grant_id, realm, client_id, user_id, hash, expires_ms, doc
  FROM refresh_tokens WHERE used = 0;

DROP TABLE refresh_tokens;
ALTER TABLE refresh_families RENAME TO refresh_tokens;

CREATE INDEX refresh_tokens_grant ON refresh_tokens (grant_id);
CREATE INDEX refresh_tokens_user ON refresh_tokens (user_id);
CREATE INDEX refresh_tokens_client ON refresh_tokens (realm, client_id);
CREATE INDEX refresh_tokens_expiry ON refresh_tokens (expires_ms);
