-- How nodes that share a PostgreSQL database learn what others changed: each has
-- a row for the gateway's entities, and one for what the provider holds in
-- memory. SQLite counts the changes of other processes itself.
-- @postgres
CREATE SEQUENCE doorward_change;

CREATE TABLE doorward_changes (
    node    TEXT NOT NULL,
    subject TEXT NOT NULL,
    change  BIGINT NOT NULL,
    at      TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (node, subject)
);

-- Whoever changes something by other means than a node is the node ''.
CREATE FUNCTION doorward_changed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changer TEXT := coalesce(current_setting('doorward.node', true), '');
BEGIN
    INSERT INTO doorward_changes (node, subject, change)
    VALUES (changer, TG_ARGV[0], nextval('doorward_change'))
    ON CONFLICT (node, subject)
    DO UPDATE SET change = excluded.change, at = excluded.at;
    PERFORM pg_notify('doorward', changer);
    RETURN NULL;
END $$;

CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON entities
   FOR EACH STATEMENT EXECUTE FUNCTION doorward_changed('entities');
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON realms
   FOR EACH STATEMENT EXECUTE FUNCTION doorward_changed('identity');
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON users
   FOR EACH STATEMENT EXECUTE FUNCTION doorward_changed('identity');
-- That a client was used changes nothing that others hold.
CREATE TRIGGER changed
   AFTER INSERT OR DELETE OR UPDATE OF salt, digest, secret, updated_ms, doc ON clients
   FOR EACH STATEMENT EXECUTE FUNCTION doorward_changed('identity');
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON signing_keys
   FOR EACH STATEMENT EXECUTE FUNCTION doorward_changed('identity');
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON secrets
   FOR EACH STATEMENT EXECUTE FUNCTION doorward_changed('identity');
-- What is swept was over.
CREATE TRIGGER changed AFTER INSERT OR UPDATE ON revoked_grants
   FOR EACH STATEMENT EXECUTE FUNCTION doorward_changed('identity');
CREATE TRIGGER changed AFTER INSERT OR UPDATE ON revoked_tokens
   FOR EACH STATEMENT EXECUTE FUNCTION doorward_changed('identity');
CREATE TRIGGER changed AFTER INSERT ON logouts
   FOR EACH STATEMENT EXECUTE FUNCTION doorward_changed('identity');
-- @both

-- What is swept is found along an index.
CREATE INDEX signing_keys_expiry ON signing_keys (expires_ms);
CREATE INDEX initial_tokens_expiry ON initial_tokens (expires_ms);
CREATE INDEX initial_tokens_used ON initial_tokens (created_ms) WHERE uses_left = 0;
