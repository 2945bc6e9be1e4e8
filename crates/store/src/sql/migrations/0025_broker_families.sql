-- Refresh tokens of the broker are found by their family, which their successors
-- keep: `refresh` is its digest then, and `current` that of the token in force.
-- One without a family is found by its own digest, as before.
ALTER TABLE broker_tokens ADD COLUMN current BLOB;
-- Who signed in: a user's identifier, or `name:` and a name elsewhere.
ALTER TABLE broker_tokens ADD COLUMN person TEXT;

-- Whose tokens are good no more, if they began up to then. A token is never
-- looked for by its person: there may be very many, and others come meanwhile.
CREATE TABLE broker_ends (
    person    TEXT PRIMARY KEY,
    before_ms INTEGER NOT NULL,
    until_ms  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX broker_ends_until ON broker_ends (until_ms);

-- @postgres
CREATE TRIGGER changed AFTER INSERT OR UPDATE ON broker_ends
   FOR EACH STATEMENT EXECUTE FUNCTION doorward_changed('identity');
-- @both
