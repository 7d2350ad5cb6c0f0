-- Who may log in. Other programs may read and change these tables: every change counts on all brokers.

CREATE TABLE tailrace.users (
    name        text PRIMARY KEY CHECK (name ~ '^[^[:space:][:cntrl:]:]{1,128}$' AND name NOT IN ('ANONYMOUS', 'token')),
    enabled     boolean NOT NULL DEFAULT true,
    revision    bigint NOT NULL DEFAULT 0,              -- of the change that came last; set by a trigger
    changed_at  timestamptz NOT NULL DEFAULT now()      -- the same
);

-- What RFC 5802 says to store of a password. A user without any cannot log in by a password.
CREATE TABLE tailrace.credentials (
    user_name   text NOT NULL REFERENCES tailrace.users (name) ON UPDATE CASCADE ON DELETE CASCADE,
    mechanism   text NOT NULL CHECK (mechanism IN ('SCRAM-SHA-256', 'SCRAM-SHA-512')),
    salt        bytea NOT NULL CHECK (octet_length(salt) BETWEEN 8 AND 64),
    iterations  integer NOT NULL CHECK (iterations BETWEEN 4096 AND 16384),
    stored_key  bytea NOT NULL,
    server_key  bytea NOT NULL,
    PRIMARY KEY (user_name, mechanism),
    CHECK (octet_length(stored_key) = CASE mechanism WHEN 'SCRAM-SHA-256' THEN 32 ELSE 64 END),
    CHECK (octet_length(server_key) = octet_length(stored_key))
);

-- One row. Its lock puts changes in one order, so that a revision is seen only after those before it.
CREATE TABLE tailrace.users_state (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    revision    bigint NOT NULL DEFAULT 0,
    fake_key    bytea                                   -- makes the salts of users that do not exist
);
INSERT INTO tailrace.users_state DEFAULT VALUES;

-- The triggers act with the rights of the owner: who may change users need not have rights on users_state.
CREATE FUNCTION tailrace.note_user_change(changed text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, tailrace, pg_temp AS $$
DECLARE
    made bigint;
BEGIN
    UPDATE tailrace.users_state SET revision = users_state.revision + 1 RETURNING users_state.revision INTO made;
    PERFORM pg_notify('tailrace_users', coalesce(changed, ''));
    RETURN made;
END $$;

CREATE FUNCTION tailrace.user_written() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, tailrace, pg_temp AS $$
BEGIN
    NEW.revision := tailrace.note_user_change(NEW.name);
    NEW.changed_at := now();
    RETURN NEW;
END $$;

CREATE FUNCTION tailrace.users_removed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, tailrace, pg_temp AS $$
BEGIN
    PERFORM tailrace.note_user_change(NULL);
    RETURN NULL;
END $$;

CREATE FUNCTION tailrace.credential_written() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, tailrace, pg_temp AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        UPDATE tailrace.users SET revision = 0 WHERE name = OLD.user_name;
    END IF;
    IF TG_OP = 'INSERT' OR (TG_OP = 'UPDATE' AND NEW.user_name <> OLD.user_name) THEN
        UPDATE tailrace.users SET revision = 0 WHERE name = NEW.user_name;
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION tailrace.credentials_emptied() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, tailrace, pg_temp AS $$
BEGIN
    UPDATE tailrace.users SET revision = 0;
    RETURN NULL;
END $$;

CREATE TRIGGER user_written BEFORE INSERT OR UPDATE ON tailrace.users
    FOR EACH ROW EXECUTE FUNCTION tailrace.user_written();
CREATE TRIGGER users_removed AFTER DELETE OR TRUNCATE ON tailrace.users
    FOR EACH STATEMENT EXECUTE FUNCTION tailrace.users_removed();
CREATE TRIGGER credential_written AFTER INSERT OR UPDATE OR DELETE ON tailrace.credentials
    FOR EACH ROW EXECUTE FUNCTION tailrace.credential_written();
CREATE TRIGGER credentials_emptied AFTER TRUNCATE ON tailrace.credentials
    FOR EACH STATEMENT EXECUTE FUNCTION tailrace.credentials_emptied();

REVOKE ALL ON FUNCTION tailrace.note_user_change(text) FROM PUBLIC;
