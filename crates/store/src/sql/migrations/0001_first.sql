-- Times are milliseconds since the epoch; ids are hyphenated UUIDs.

CREATE TABLE entities (
    kind TEXT NOT NULL,
    id   TEXT NOT NULL,
    key  TEXT,
    doc  TEXT NOT NULL,
    PRIMARY KEY (kind, id),
    UNIQUE (kind, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE realms (
    path  TEXT PRIMARY KEY,
    owner TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE users (
    id         TEXT PRIMARY KEY,
    realm      TEXT NOT NULL REFERENCES realms (path),
    user_name  TEXT NOT NULL,
    -- The name without differences of case.
    user_key   TEXT NOT NULL,
    password   TEXT,
    status     TEXT NOT NULL,
    owner      TEXT NOT NULL,
    version    INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    doc        TEXT NOT NULL,
    UNIQUE (realm, user_key)
) STRICT;

-- One row for each value that a filter can ask for.
CREATE TABLE user_attr (
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    path    TEXT NOT NULL,
    idx     INTEGER NOT NULL,
    realm   TEXT NOT NULL,
    text    TEXT NOT NULL,
    PRIMARY KEY (user_id, path, idx)
) STRICT, WITHOUT ROWID;

CREATE INDEX user_attr_value ON user_attr (realm, path, text);

CREATE TABLE clients (
    realm      TEXT NOT NULL REFERENCES realms (path),
    client_id  TEXT NOT NULL,
    owner      TEXT NOT NULL,
    -- Salt and SHA-256 digest, or the secret itself where tokens are signed with it.
    salt       BLOB,
    digest     BLOB,
    secret     TEXT,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    doc        TEXT NOT NULL,
    PRIMARY KEY (realm, client_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE signing_keys (
    kid            TEXT PRIMARY KEY,
    alg            TEXT NOT NULL,
    pkcs8          TEXT NOT NULL,
    created_ms     INTEGER NOT NULL,
    active_from_ms INTEGER NOT NULL,
    expires_ms     INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE refresh_tokens (
    hash       BLOB PRIMARY KEY,
    grant_id   TEXT NOT NULL,
    realm      TEXT NOT NULL,
    client_id  TEXT NOT NULL,
    user_id    TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    used       INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    doc        TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX refresh_tokens_grant ON refresh_tokens (grant_id);
CREATE INDEX refresh_tokens_user ON refresh_tokens (user_id);
CREATE INDEX refresh_tokens_client ON refresh_tokens (realm, client_id);
CREATE INDEX refresh_tokens_expiry ON refresh_tokens (expires_ms);

CREATE TABLE access_tokens (
    hash       BLOB PRIMARY KEY,
    grant_id   TEXT NOT NULL,
    expires_ms INTEGER NOT NULL,
    doc        TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX access_tokens_grant ON access_tokens (grant_id);
CREATE INDEX access_tokens_expiry ON access_tokens (expires_ms);

-- Grants whose JWT tokens must not be believed any more.
CREATE TABLE revoked_grants (
    grant_id   TEXT PRIMARY KEY,
    expires_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX revoked_grants_expiry ON revoked_grants (expires_ms);

CREATE TABLE sessions (
    hash       BLOB PRIMARY KEY,
    realm      TEXT NOT NULL,
    user_id    TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_ms INTEGER NOT NULL,
    used_ms    INTEGER NOT NULL,
    ends_ms    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX sessions_user ON sessions (user_id, created_ms);
CREATE INDEX sessions_ends ON sessions (ends_ms);

INSERT INTO realms (path, owner) VALUES ('/', 'store');
