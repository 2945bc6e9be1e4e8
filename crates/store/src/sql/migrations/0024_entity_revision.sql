-- How often entities were written: who changes them knows whether what it has
-- looked at is still what there is.
CREATE TABLE entity_revision (
    id       INTEGER PRIMARY KEY,
    revision INTEGER NOT NULL
) STRICT;
