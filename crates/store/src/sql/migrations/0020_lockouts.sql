-- Names and addresses that are locked after wrong passwords, and what was
-- lifted lately: nodes read what was set since they last did.
CREATE TABLE lockouts (
    -- Digest of kind, realm and name or address.
    id         BLOB PRIMARY KEY NOT NULL,
    kind       TEXT NOT NULL,
    realm      TEXT NOT NULL,
    subject    TEXT,
    until_ms   INTEGER NOT NULL,
    locks      INTEGER NOT NULL,
    set_ms     INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX lockouts_set ON lockouts (set_ms);
CREATE INDEX lockouts_expires ON lockouts (expires_ms);

-- @postgres
-- What is swept was over.
CREATE TRIGGER changed AFTER INSERT OR UPDATE ON lockouts
   FOR EACH STATEMENT EXECUTE FUNCTION doorward_changed('identity');
-- @both
