-- Groups of users.
CREATE TABLE user_groups (
    id          TEXT PRIMARY KEY,
    realm       TEXT NOT NULL REFERENCES realms (path),
    name        TEXT NOT NULL,
    -- The name without differences of case.
    name_key    TEXT NOT NULL,
    external_id TEXT,
    version     INTEGER NOT NULL,
    created_ms  INTEGER NOT NULL,
    updated_ms  INTEGER NOT NULL,
    UNIQUE (realm, name_key)
) STRICT;

CREATE INDEX user_groups_external ON user_groups (realm, external_id);

CREATE TABLE group_members (
    group_id TEXT NOT NULL REFERENCES user_groups (id) ON DELETE CASCADE,
    user_id  TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    PRIMARY KEY (group_id, user_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX group_members_user ON group_members (user_id, group_id);
