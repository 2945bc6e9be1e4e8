-- Login sessions of the gateway as a relying party. The key is a hash of the
-- handle that the browser has; what is in a session is sealed.
CREATE TABLE logins (
    key        BLOB PRIMARY KEY,
    id         TEXT NOT NULL,
    issuer     TEXT NOT NULL,
    client_id  TEXT NOT NULL,
    subject    TEXT,
    sid        TEXT,
    started_ms INTEGER NOT NULL,
    used_ms    INTEGER NOT NULL,
    ends_ms    INTEGER NOT NULL,
    -- Until when one node alone may ask for the next tokens.
    locked_ms  INTEGER NOT NULL,
    sealed     TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX logins_id ON logins (id);
CREATE INDEX logins_subject ON logins (subject, issuer);
CREATE INDEX logins_sid ON logins (sid, issuer);
CREATE INDEX logins_client ON logins (client_id, issuer);
CREATE INDEX logins_end ON logins (ends_ms);

-- Sessions that are over although a browser may still show them. Nodes read what
-- was added since they read last.
CREATE TABLE login_ends (
    id        INTEGER PRIMARY KEY,
    what      BLOB NOT NULL,
    before_ms INTEGER NOT NULL,
    until_ms  INTEGER NOT NULL
) STRICT;

CREATE INDEX login_ends_until ON login_ends (until_ms);

-- @postgres
CREATE TRIGGER changed AFTER INSERT ON login_ends
   FOR EACH STATEMENT EXECUTE FUNCTION doorward_changed('logins');
-- @both
