-- What statements ask of codes and refresh tokens, beside the record itself.
ALTER TABLE codes ADD COLUMN sid TEXT;
ALTER TABLE refresh_tokens ADD COLUMN ends_ms INTEGER NOT NULL DEFAULT 0;

-- @sqlite
UPDATE codes SET sid = doc ->> '$.grant.sid';
UPDATE refresh_tokens SET ends_ms = coalesce(doc ->> '$.ends_ms', 0);
-- @both
