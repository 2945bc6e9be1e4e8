-- Names of users that were deleted or got another name: no token calls another
-- user so (OpenID Connect Core section 2), until an operator releases the name.
-- They outlive their realm, whose issuer may come back.
CREATE TABLE retired_names (
    realm      TEXT NOT NULL,
    user_key   TEXT NOT NULL,
    user_name  TEXT NOT NULL,
    -- Whose it was.
    user_id    TEXT NOT NULL,
    retired_ms INTEGER NOT NULL,
    PRIMARY KEY (realm, user_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX retired_names_user ON retired_names (user_id);

-- 1: the name was another user's before, so tokens call this one by identifier.
ALTER TABLE users ADD COLUMN name_reused INTEGER NOT NULL DEFAULT 0;

-- When a device asked last, and the seconds between two polls from then on.
ALTER TABLE devices ADD COLUMN polled_ms INTEGER;
ALTER TABLE devices ADD COLUMN interval_s INTEGER;
