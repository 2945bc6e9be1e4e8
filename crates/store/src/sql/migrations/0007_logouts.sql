-- The clients that are signed in through a session, by what ID tokens call it.
CREATE TABLE session_clients (
    sid       TEXT NOT NULL,
    client_id TEXT NOT NULL,
    realm     TEXT NOT NULL,
    PRIMARY KEY (sid, client_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX session_clients_client ON session_clients (realm, client_id);

-- The grants that were given in a session, whether or not they have refresh
-- tokens.
CREATE TABLE session_grants (
    grant_id   TEXT PRIMARY KEY,
    sid        TEXT NOT NULL,
    realm      TEXT NOT NULL,
    client_id  TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    -- Whether it outlives the session.
    offline    INTEGER NOT NULL,
    -- When its last token has died.
    expires_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX session_grants_sid ON session_grants (sid);
CREATE INDEX session_grants_user ON session_grants (user_id);
CREATE INDEX session_grants_client ON session_grants (realm, client_id);
CREATE INDEX session_grants_expiry ON session_grants (expires_ms);

-- @sqlite
INSERT INTO session_grants (grant_id, sid, realm, client_id, user_id, offline, expires_ms)
SELECT grant_id, doc ->> '$.sid', realm, client_id, user_id,
       EXISTS (SELECT 1 FROM json_each(doc, '$.scopes') WHERE value = 'offline_access'),
       max(doc ->> '$.ends_ms')
  FROM refresh_tokens WHERE doc ->> '$.sid' IS NOT NULL
 GROUP BY grant_id;
-- @both

INSERT INTO session_clients (sid, client_id, realm)
SELECT DISTINCT sid, client_id, realm FROM session_grants;

-- Clients that are to be told that a session has ended.
CREATE TABLE logouts (
    id        INTEGER PRIMARY KEY,
    realm     TEXT NOT NULL,
    client_id TEXT NOT NULL,
    user_id   TEXT NOT NULL,
    user_name TEXT NOT NULL,
    sid       TEXT NOT NULL,
    tries     INTEGER NOT NULL,
    -- When it is tried next, and when for the last time.
    next_ms   INTEGER NOT NULL,
    until_ms  INTEGER NOT NULL
) STRICT;

CREATE INDEX logouts_next ON logouts (next_ms);
CREATE INDEX logouts_client ON logouts (realm, client_id);

CREATE INDEX sessions_sid ON sessions (sid);
CREATE INDEX sessions_used ON sessions (used_ms);
