-- What devices asked for. `verdict` is 0 until the user decides, then 1 for no
-- and 2 for yes; `given` is the grant of a yes, and `user_id` who gave it.
CREATE TABLE devices (
    hash       BLOB PRIMARY KEY,
    user_code  BLOB NOT NULL UNIQUE,
    realm      TEXT NOT NULL,
    client_id  TEXT NOT NULL,
    user_id    TEXT REFERENCES users (id) ON DELETE CASCADE,
    verdict    INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    doc        TEXT NOT NULL,
    given      TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX devices_client ON devices (realm, client_id, expires_ms);
CREATE INDEX devices_user ON devices (user_id);
CREATE INDEX devices_expiry ON devices (expires_ms);
