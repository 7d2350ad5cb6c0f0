-- The log of the tiered engine. docs/storage-format.md describes the columns.

CREATE TABLE tailrace.writer (
    one       boolean PRIMARY KEY DEFAULT true CHECK (one),
    epoch     bigint NOT NULL,
    holder    text NOT NULL,
    since     timestamptz NOT NULL DEFAULT now(),
    next_log  bigint NOT NULL DEFAULT 1
);
INSERT INTO tailrace.writer (epoch, holder) VALUES (0, '');

-- A log is one life of one partition; its id is never used again (writer.next_log).
CREATE TABLE tailrace.logs (
    log           bigint PRIMARY KEY,
    topic_id      uuid NOT NULL,
    partition     integer NOT NULL CHECK (partition >= 0),
    topic         text NOT NULL DEFAULT '',
    start_offset  bigint NOT NULL DEFAULT 0 CHECK (start_offset >= 0),
    end_floor     bigint NOT NULL DEFAULT 0,  -- the end is never below: what a truncation or trim left
    deleted       boolean NOT NULL DEFAULT false
);
CREATE UNIQUE INDEX logs_of_partitions ON tailrace.logs (topic_id, partition) WHERE NOT deleted;

-- Consecutive whole batches of one log in one round. Times are milliseconds since 1970, in UTC.
CREATE TABLE tailrace.chunks (
    class          smallint NOT NULL,  -- days of retention, rounded up to 1, 7, 31 or 366; 0: kept
    log            bigint NOT NULL,
    base_offset    bigint NOT NULL,
    next_offset    bigint NOT NULL CHECK (next_offset > base_offset),
    appended_ms    bigint NOT NULL,
    max_timestamp  bigint NOT NULL,
    writer_epoch   bigint NOT NULL,
    round          bigint NOT NULL,
    size           integer NOT NULL,
    crc            bigint NOT NULL,  -- CRC32C of data
    data           bytea COMPRESSION lz4 NOT NULL,
    PRIMARY KEY (log, base_offset, appended_ms, class)
) PARTITION BY LIST (class);

CREATE TABLE tailrace.chunks_1 PARTITION OF tailrace.chunks FOR VALUES IN (1) PARTITION BY RANGE (appended_ms);
CREATE TABLE tailrace.chunks_7 PARTITION OF tailrace.chunks FOR VALUES IN (7) PARTITION BY RANGE (appended_ms);
CREATE TABLE tailrace.chunks_31 PARTITION OF tailrace.chunks FOR VALUES IN (31) PARTITION BY RANGE (appended_ms);
CREATE TABLE tailrace.chunks_366 PARTITION OF tailrace.chunks FOR VALUES IN (366) PARTITION BY RANGE (appended_ms);
CREATE TABLE tailrace.chunks_kept PARTITION OF tailrace.chunks FOR VALUES IN (0);
-- A partition does not take the compression of its parent.
ALTER TABLE tailrace.chunks_kept ALTER COLUMN data SET COMPRESSION lz4;

-- Rounds that did more than append: how a writer finds out whether one was carried out.
CREATE TABLE tailrace.control_rounds (
    writer_epoch  bigint NOT NULL,
    round         bigint NOT NULL,
    PRIMARY KEY (writer_epoch, round)
);

-- What is derived from a log below an offset: leader epochs, producers, aborted transactions.
CREATE TABLE tailrace.snapshots (
    log          bigint NOT NULL,
    next_offset  bigint NOT NULL,
    data         bytea COMPRESSION lz4 NOT NULL,
    PRIMARY KEY (log, next_offset)
);

-- Topics, partitions, settings: the metadata store.
CREATE TABLE tailrace.metadata (
    key      text PRIMARY KEY,
    value    text NOT NULL,
    version  bigint NOT NULL,
    crc      bigint NOT NULL
);
CREATE TABLE tailrace.metadata_head (
    one       boolean PRIMARY KEY DEFAULT true CHECK (one),
    revision  bigint NOT NULL,
    entries   bigint NOT NULL,
    digest    bigint NOT NULL
);
INSERT INTO tailrace.metadata_head (revision, entries, digest) VALUES (0, 0, 0);

-- The fence: fails unless the caller is the writer, and holds off the next one until this transaction ends.
CREATE FUNCTION tailrace.fence(caller bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM tailrace.writer WHERE epoch = caller FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'epoch % is not that of the writer any more', caller USING ERRCODE = 'TR001';
    END IF;
END $$;

-- A round of appends in one call: fence, rows, and with loose appends alone no wait for the disk.
CREATE FUNCTION tailrace.append_round(
    caller bigint, number bigint, time_ms bigint, synced boolean,
    classes smallint[], logs bigint[], bases bigint[], nexts bigint[], timestamps bigint[],
    sizes integer[], crcs bigint[], contents bytea[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM tailrace.fence(caller);
    IF NOT synced THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    INSERT INTO tailrace.chunks (class, log, base_offset, next_offset, appended_ms, max_timestamp,
                                 writer_epoch, round, size, crc, data)
    SELECT class, log, base_offset, next_offset, time_ms, max_timestamp, caller, number, size, crc, data
    FROM unnest(classes, logs, bases, nexts, timestamps, sizes, crcs, contents)
        AS given (class, log, base_offset, next_offset, max_timestamp, size, crc, data);
END $$;

-- The functions below run with the rights of the owner, for those alone who may append.
CREATE FUNCTION tailrace.check_writer() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT has_table_privilege(session_user, 'tailrace.chunks', 'INSERT') THEN
        RAISE EXCEPTION 'permission denied for user %', session_user USING ERRCODE = '42501';
    END IF;
END $$;

-- The tables of a day, made without a lock that appends would wait for. The writer need not own any table.
CREATE FUNCTION tailrace.add_day(class integer, day integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = tailrace, pg_temp AS $$
DECLARE
    parent text := format('chunks_%s', class);
    name text := format('chunks_%s_%s', class, to_char(to_timestamp(day * 86400::bigint) AT TIME ZONE 'UTC', 'YYYYMMDD'));
    first bigint := day * 86400000::bigint;
BEGIN
    PERFORM tailrace.check_writer();
    IF class NOT IN (1, 7, 31, 366) OR day < 0 OR day > 3000000 THEN
        RAISE EXCEPTION 'class % and day % are out of range', class, day;
    END IF;
    IF to_regclass(format('tailrace.%I', name)) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE tailrace.%I (LIKE tailrace.chunks INCLUDING DEFAULTS INCLUDING CONSTRAINTS,'
        ' CHECK (appended_ms >= %s AND appended_ms < %s))', name, first, first + 86400000);
    EXECUTE format('ALTER TABLE tailrace.%I ALTER COLUMN data SET COMPRESSION lz4', name);
    EXECUTE format('ALTER TABLE tailrace.%I ATTACH PARTITION tailrace.%I FOR VALUES FROM (%s) TO (%s)',
        parent, name, first, first + 86400000);
    RETURN true;
END $$;

-- Days whose every chunk lies below the start of its log, or in a deleted log, leave whole. Whoever reads the
-- tables holds this up for as long as the caller's lock_timeout, and appends with it: the caller keeps it short.
CREATE FUNCTION tailrace.drop_day(class integer, day integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = tailrace, pg_temp AS $$
DECLARE
    name text := format('chunks_%s_%s', class, to_char(to_timestamp(day * 86400::bigint) AT TIME ZONE 'UTC', 'YYYYMMDD'));
    is_needed boolean;
BEGIN
    PERFORM tailrace.check_writer();
    IF class NOT IN (1, 7, 31, 366) OR to_regclass(format('tailrace.%I', name)) IS NULL THEN
        RETURN false;
    END IF;
    -- First the lock, then the look: an append in between would be lost.
    EXECUTE format('LOCK TABLE tailrace.%I IN ACCESS EXCLUSIVE MODE', name);
    EXECUTE format('SELECT EXISTS (SELECT 1 FROM tailrace.%I JOIN tailrace.logs USING (log)'
        ' WHERE NOT deleted AND next_offset > start_offset)', name) INTO is_needed;
    IF is_needed THEN
        RETURN false;
    END IF;
    EXECUTE format('ALTER TABLE tailrace.%I DETACH PARTITION tailrace.%I', format('chunks_%s', class), name);
    EXECUTE format('DROP TABLE tailrace.%I', name);
    RETURN true;
END $$;
