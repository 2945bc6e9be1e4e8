-- How much is kept for each client, so that to keep more costs no counting.
CREATE TABLE request_bytes (
    realm     TEXT NOT NULL,
    client_id TEXT NOT NULL,
    bytes     INTEGER NOT NULL,
    PRIMARY KEY (realm, client_id)
) STRICT, WITHOUT ROWID;

INSERT INTO request_bytes (realm, client_id, bytes)
SELECT realm, client_id, sum(length(doc)) FROM requests GROUP BY realm, client_id;

-- @sqlite
CREATE TRIGGER request_kept AFTER INSERT ON requests BEGIN
    INSERT INTO request_bytes (realm, client_id, bytes)
    VALUES (NEW.realm, NEW.client_id, length(NEW.doc))
    ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER request_gone AFTER DELETE ON requests BEGIN
    UPDATE request_bytes SET bytes = bytes - length(OLD.doc)
     WHERE realm = OLD.realm AND client_id = OLD.client_id;
    DELETE FROM request_bytes
     WHERE realm = OLD.realm AND client_id = OLD.client_id AND bytes <= 0;
END;

-- @postgres
CREATE FUNCTION request_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO request_bytes (realm, client_id, bytes)
    VALUES (NEW.realm, NEW.client_id, length(NEW.doc))
    ON CONFLICT (realm, client_id)
    DO UPDATE SET bytes = request_bytes.bytes + excluded.bytes;
    RETURN NULL;
END $$;

CREATE FUNCTION request_gone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE request_bytes SET bytes = bytes - length(OLD.doc)
     WHERE realm = OLD.realm AND client_id = OLD.client_id;
    DELETE FROM request_bytes
     WHERE realm = OLD.realm AND client_id = OLD.client_id AND bytes <= 0;
    RETURN NULL;
END $$;

CREATE TRIGGER request_kept AFTER INSERT ON requests
   FOR EACH ROW EXECUTE FUNCTION request_kept();
CREATE TRIGGER request_gone AFTER DELETE ON requests
   FOR EACH ROW EXECUTE FUNCTION request_gone();
-- @both
