-- Whom users are at other providers. A provider's name for a user is never given
-- to another one, so it finds the account whatever else changes.
CREATE TABLE federated_identities (
    id         TEXT PRIMARY KEY NOT NULL,
    realm      TEXT NOT NULL,
    user_id    TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    issuer     TEXT NOT NULL,
    subject    TEXT NOT NULL,
    -- The provider's name in the settings, when it was used last.
    provider   TEXT NOT NULL,
    -- The address that the provider said last.
    email      TEXT,
    created_ms INTEGER NOT NULL,
    used_ms    INTEGER NOT NULL,
    UNIQUE (realm, issuer, subject)
) STRICT;

CREATE INDEX federated_identities_user ON federated_identities (user_id);
