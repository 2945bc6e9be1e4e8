-- An index of PostgreSQL takes texts of 2,704 bytes at most: it gets the first
-- 400 characters of a value, and `tail` the rest of those that have as many. The
-- identifiers are in it so that what is counted or paged need not be fetched.
-- @postgres
ALTER TABLE user_attr ADD COLUMN tail TEXT;
UPDATE user_attr SET tail = substr(text, 401), text = left(text, 400)
 WHERE length(text) >= 400;
DROP INDEX user_attr_value;
CREATE INDEX user_attr_value ON user_attr (realm, path, text) INCLUDE (user_id, idx);
-- @both

-- Who provisions asks for what has changed since.
CREATE INDEX users_updated ON users (realm, updated_ms);
