-- Of a client that registered itself: the hash of what it shows to change
-- itself, and when it was last used.
ALTER TABLE clients ADD COLUMN registration BLOB;
ALTER TABLE clients ADD COLUMN used_ms INTEGER NOT NULL DEFAULT 0;

CREATE INDEX clients_registered ON clients (realm, used_ms) WHERE owner = 'client';

-- What lets others register clients.
CREATE TABLE initial_tokens (
    hash       BLOB PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    realm      TEXT NOT NULL REFERENCES realms (path) ON DELETE CASCADE,
    note       TEXT NOT NULL,
    uses_left  INTEGER,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER
) STRICT, WITHOUT ROWID;

-- What a realm made in the store sets itself, as JSON.
ALTER TABLE realms ADD COLUMN settings TEXT NOT NULL DEFAULT '{}';
