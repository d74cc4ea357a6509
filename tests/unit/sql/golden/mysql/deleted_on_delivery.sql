-- deliver: poll
(SELECT t.id AS id,
          t.bucket AS bucket,
          t.errors_count AS errors
   FROM shop.order_outbox_items AS t
   FORCE INDEX (`ix_order_outbox_items_pending`)
   WHERE t.status = 0
     AND t.bucket = %s
     AND ((t.errors_count = 0
           OR t.processed_at IS NULL
           OR t.processed_at <= UTC_TIMESTAMP(6) - INTERVAL ROUND(1000000 * LEAST(600.0, 10.0 * POWER(2.0, LEAST(GREATEST(t.errors_count, 1) - 1, 64)))) MICROSECOND)
          AND (t.available_at IS NULL
               OR t.available_at <= UTC_TIMESTAMP(6)))
   ORDER BY t.id
   LIMIT %s)
UNION ALL
  (SELECT t.id AS id,
          t.bucket AS bucket,
          t.errors_count AS errors
   FROM shop.order_outbox_items AS t
   FORCE INDEX (`ix_order_outbox_items_pending`)
   WHERE t.status = 0
     AND t.bucket = %s
     AND ((t.errors_count = 0
           OR t.processed_at IS NULL
           OR t.processed_at <= UTC_TIMESTAMP(6) - INTERVAL ROUND(1000000 * LEAST(600.0, 10.0 * POWER(2.0, LEAST(GREATEST(t.errors_count, 1) - 1, 64)))) MICROSECOND)
          AND (t.available_at IS NULL
               OR t.available_at <= UTC_TIMESTAMP(6)))
   ORDER BY t.id
   LIMIT %s);

-- deliver: poll, rows that never failed
(SELECT t.id AS id,
          t.bucket AS bucket,
          t.errors_count AS errors
   FROM shop.order_outbox_items AS t
   FORCE INDEX (`ix_order_outbox_items_pending`)
   WHERE t.status = 0
     AND t.bucket = %s
     AND ((t.errors_count = 0
           OR t.processed_at IS NULL
           OR t.processed_at <= UTC_TIMESTAMP(6) - INTERVAL ROUND(1000000 * LEAST(600.0, 10.0 * POWER(2.0, LEAST(GREATEST(t.errors_count, 1) - 1, 64)))) MICROSECOND)
          AND (t.available_at IS NULL
               OR t.available_at <= UTC_TIMESTAMP(6)))
     AND t.errors_count = 0
   ORDER BY t.id
   LIMIT %s)
UNION ALL
  (SELECT t.id AS id,
          t.bucket AS bucket,
          t.errors_count AS errors
   FROM shop.order_outbox_items AS t
   FORCE INDEX (`ix_order_outbox_items_pending`)
   WHERE t.status = 0
     AND t.bucket = %s
     AND ((t.errors_count = 0
           OR t.processed_at IS NULL
           OR t.processed_at <= UTC_TIMESTAMP(6) - INTERVAL ROUND(1000000 * LEAST(600.0, 10.0 * POWER(2.0, LEAST(GREATEST(t.errors_count, 1) - 1, 64)))) MICROSECOND)
          AND (t.available_at IS NULL
               OR t.available_at <= UTC_TIMESTAMP(6)))
     AND t.errors_count = 0
   ORDER BY t.id
   LIMIT %s);

-- deliver: outlook
(
   (SELECT t.bucket AS bucket,
           0 AS seconds
    FROM shop.order_outbox_items AS t
    FORCE INDEX (`ix_order_outbox_items_pending`)
    WHERE t.status = 0
      AND t.bucket = %s
      AND ((t.errors_count = 0
            OR t.processed_at IS NULL
            OR t.processed_at <= UTC_TIMESTAMP(6) - INTERVAL ROUND(1000000 * LEAST(600.0, 10.0 * POWER(2.0, LEAST(GREATEST(t.errors_count, 1) - 1, 64)))) MICROSECOND)
           AND (t.available_at IS NULL
                OR t.available_at <= UTC_TIMESTAMP(6)))
    ORDER BY t.id
    LIMIT %s)
 UNION ALL
   (SELECT t.bucket AS bucket,
           0 AS seconds
    FROM shop.order_outbox_items AS t
    FORCE INDEX (`ix_order_outbox_items_pending`)
    WHERE t.status = 0
      AND t.bucket = %s
      AND ((t.errors_count = 0
            OR t.processed_at IS NULL
            OR t.processed_at <= UTC_TIMESTAMP(6) - INTERVAL ROUND(1000000 * LEAST(600.0, 10.0 * POWER(2.0, LEAST(GREATEST(t.errors_count, 1) - 1, 64)))) MICROSECOND)
           AND (t.available_at IS NULL
                OR t.available_at <= UTC_TIMESTAMP(6)))
    ORDER BY t.id
    LIMIT %s))
UNION ALL
  (SELECT NULL,
          TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), t.available_at) / 1000000
   FROM shop.order_outbox_items AS t
   FORCE INDEX (`ix_order_outbox_items_delayed`)
   WHERE t.available_at > UTC_TIMESTAMP(6)
     AND t.status = 0
   ORDER BY t.available_at
   LIMIT 1);

-- deliver: claim
SELECT UTC_TIMESTAMP(6), @@global.read_only,
                           GET_LOCK(%s, 0),
                           GET_LOCK(%s, 0);
SELECT t.id,
       t.uuid,
       t.event_name,
       t.event_key,
       t.bucket,
       t.status,
       t.options,
       CASE
           WHEN OCTET_LENGTH(t.payload) <= 1000 THEN t.payload
       END,
       t.errors_count,
       t.created_at,
       t.processed_at
FROM (
        (SELECT t.id AS id
         FROM shop.order_outbox_items AS t
         FORCE INDEX (`ix_order_outbox_items_pending`)
         WHERE t.status = 0
           AND t.bucket = %s
           AND ((t.errors_count = 0
                 OR t.processed_at IS NULL
                 OR t.processed_at <= UTC_TIMESTAMP(6) - INTERVAL ROUND(1000000 * LEAST(600.0, 10.0 * POWER(2.0, LEAST(GREATEST(t.errors_count, 1) - 1, 64)))) MICROSECOND)
                AND (t.available_at IS NULL
                     OR t.available_at <= UTC_TIMESTAMP(6)))
         ORDER BY t.id
         LIMIT %s)
      UNION ALL
        (SELECT t.id AS id
         FROM shop.order_outbox_items AS t
         FORCE INDEX (`ix_order_outbox_items_pending`)
         WHERE t.status = 0
           AND t.bucket = %s
           AND t.id > %s
           AND ((t.errors_count = 0
                 OR t.processed_at IS NULL
                 OR t.processed_at <= UTC_TIMESTAMP(6) - INTERVAL ROUND(1000000 * LEAST(600.0, 10.0 * POWER(2.0, LEAST(GREATEST(t.errors_count, 1) - 1, 64)))) MICROSECOND)
                AND (t.available_at IS NULL
                     OR t.available_at <= UTC_TIMESTAMP(6)))
         ORDER BY t.id
         LIMIT %s)) AS found
STRAIGHT_JOIN shop.order_outbox_items AS t
FORCE INDEX (PRIMARY) ON t.id = found.id
WHERE t.status = 0
  FOR
  UPDATE NOWAIT;

-- deliver: plain claim
SELECT UTC_TIMESTAMP(6), @@global.read_only,
                           GET_LOCK(%s, 0),
                           GET_LOCK(%s, 0);
SELECT t.id,
       t.uuid,
       t.event_name,
       t.event_key,
       t.bucket,
       t.status,
       t.options,
       CASE
           WHEN OCTET_LENGTH(t.payload) <= 1000 THEN t.payload
       END,
       t.errors_count,
       t.created_at,
       t.processed_at
FROM (
        (SELECT t.id AS id
         FROM shop.order_outbox_items AS t
         FORCE INDEX (`ix_order_outbox_items_pending`)
         WHERE t.status = 0
           AND t.bucket = %s
           AND ((t.errors_count = 0
                 OR t.processed_at IS NULL
                 OR t.processed_at <= UTC_TIMESTAMP(6) - INTERVAL ROUND(1000000 * LEAST(600.0, 10.0 * POWER(2.0, LEAST(GREATEST(t.errors_count, 1) - 1, 64)))) MICROSECOND)
                AND (t.available_at IS NULL
                     OR t.available_at <= UTC_TIMESTAMP(6)))
         ORDER BY t.id
         LIMIT %s)
      UNION ALL
        (SELECT t.id AS id
         FROM shop.order_outbox_items AS t
         FORCE INDEX (`ix_order_outbox_items_pending`)
         WHERE t.status = 0
           AND t.bucket = %s
           AND t.id > %s
           AND ((t.errors_count = 0
                 OR t.processed_at IS NULL
                 OR t.processed_at <= UTC_TIMESTAMP(6) - INTERVAL ROUND(1000000 * LEAST(600.0, 10.0 * POWER(2.0, LEAST(GREATEST(t.errors_count, 1) - 1, 64)))) MICROSECOND)
                AND (t.available_at IS NULL
                     OR t.available_at <= UTC_TIMESTAMP(6)))
         ORDER BY t.id
         LIMIT %s)) AS found
STRAIGHT_JOIN shop.order_outbox_items AS t
FORCE INDEX (PRIMARY) ON t.id = found.id
WHERE t.status = 0
  FOR
  UPDATE NOWAIT;

-- deliver: claim, behind bounds
SELECT UTC_TIMESTAMP(6), @@global.read_only,
                           GET_LOCK(%s, 0),
                           GET_LOCK(%s, 0);
SELECT MAX(id)
FROM shop.order_outbox_items;
SELECT t.id,
       t.uuid,
       t.event_name,
       t.event_key,
       t.bucket,
       t.status,
       t.options,
       CASE
           WHEN OCTET_LENGTH(t.payload) <= 1000 THEN t.payload
       END,
       t.errors_count,
       t.created_at,
       t.processed_at
FROM (
        (SELECT id
         FROM
           (SELECT t.id AS id,
                   ROW_NUMBER() OVER (PARTITION BY t.bucket
                                      ORDER BY t.id) AS place
            FROM shop.order_outbox_items AS t
            FORCE INDEX (PRIMARY)
            WHERE t.id > 0
              AND t.status = 0
              AND t.bucket IN (0)
              AND ((t.errors_count = 0
                    OR t.processed_at IS NULL
                    OR t.processed_at <= UTC_TIMESTAMP(6) - INTERVAL ROUND(1000000 * LEAST(600.0, 10.0 * POWER(2.0, LEAST(GREATEST(t.errors_count, 1) - 1, 64)))) MICROSECOND)
                   AND (t.available_at IS NULL
                        OR t.available_at <= UTC_TIMESTAMP(6)))) AS near
         WHERE near.place <= 50)
      UNION ALL
        (SELECT id
         FROM
           (SELECT t.id AS id,
                   ROW_NUMBER() OVER (PARTITION BY t.bucket
                                      ORDER BY t.id) AS place
            FROM shop.order_outbox_items AS t
            FORCE INDEX (PRIMARY)
            WHERE t.id > 40
              AND t.status = 0
              AND t.bucket IN (1)
              AND ((t.errors_count = 0
                    OR t.processed_at IS NULL
                    OR t.processed_at <= UTC_TIMESTAMP(6) - INTERVAL ROUND(1000000 * LEAST(600.0, 10.0 * POWER(2.0, LEAST(GREATEST(t.errors_count, 1) - 1, 64)))) MICROSECOND)
                   AND (t.available_at IS NULL
                        OR t.available_at <= UTC_TIMESTAMP(6)))) AS near
         WHERE near.place <= 50)) AS found
STRAIGHT_JOIN shop.order_outbox_items AS t
FORCE INDEX (PRIMARY) ON t.id = found.id
WHERE t.status = 0
  FOR
  UPDATE NOWAIT;

-- deliver: sizes of payloads
SELECT t.id,
       OCTET_LENGTH(t.payload)
FROM shop.order_outbox_items AS t
FORCE INDEX (PRIMARY)
WHERE t.id IN (%s,
               %s)
  AND t.payload IS NOT NULL;

-- deliver: heavy payloads
SELECT t.id,
       t.payload
FROM shop.order_outbox_items AS t
FORCE INDEX (PRIMARY)
WHERE t.id IN (%s,
               %s);

-- deliver: keys of earlier rows that wait
SELECT t.event_key,
       CAST(t.event_key AS BINARY)
FROM shop.order_outbox_items AS t
FORCE INDEX (`ix_order_outbox_items_pending`)
WHERE t.status = 0
  AND t.bucket = %s
  AND t.id <= %s
  AND t.event_key IN (%s)
  AND ((t.errors_count = 0
        OR t.processed_at IS NULL
        OR t.processed_at <= UTC_TIMESTAMP(6) - INTERVAL ROUND(1000000 * LEAST(600.0, 10.0 * POWER(2.0, LEAST(GREATEST(t.errors_count, 1) - 1, 64)))) MICROSECOND)
       AND (t.available_at IS NULL
            OR t.available_at <= UTC_TIMESTAMP(6)))
UNION
SELECT t.event_key,
       CAST(t.event_key AS BINARY)
FROM shop.order_outbox_items AS t
FORCE INDEX (`ix_order_outbox_items_pending`)
WHERE t.status = 0
  AND t.bucket = %s
  AND t.id <= %s
  AND t.event_key IN (%s)
  AND ((t.errors_count = 0
        OR t.processed_at IS NULL
        OR t.processed_at <= UTC_TIMESTAMP(6) - INTERVAL ROUND(1000000 * LEAST(600.0, 10.0 * POWER(2.0, LEAST(GREATEST(t.errors_count, 1) - 1, 64)))) MICROSECOND)
       AND (t.available_at IS NULL
            OR t.available_at <= UTC_TIMESTAMP(6)));

-- deliver: later delivered rows of a key
SELECT i.id,

  (SELECT t.id
   FROM shop.order_outbox_items AS t
   WHERE t.event_key = i.event_key
     AND CAST(t.event_key AS BINARY) = CAST(i.event_key AS BINARY)
     AND t.id > i.id
     AND t.status = 2
     AND t.event_name <=> i.event_name
     AND NOT (coalesce(t.options LIKE '%"Replay-Of"%', false)
              AND NOT instr(t.options, t.uuid) > 0)
   LIMIT 1) AS later
FROM shop.order_outbox_items AS i
WHERE i.id IN ()
HAVING later IS NOT NULL;

-- deliver: outcomes and commit
DELETE t
FROM JSON_TABLE(%s, '$[*]' COLUMNS (id BIGINT PATH '$')) AS wanted
STRAIGHT_JOIN shop.order_outbox_items AS t
FORCE INDEX (PRIMARY) ON t.id = wanted.id;
UPDATE
  (SELECT %s AS id,
          %s AS status,
          %s AS errors_count,
          %s AS error_log) AS f
STRAIGHT_JOIN shop.order_outbox_items AS t ON t.id = f.id
SET t.error_log = IF(f.status = 3, CONCAT_WS('\n', f.error_log, CONVERT(t.error_log USING utf8mb4)), f.error_log),
    t.status = f.status,
    t.errors_count = f.errors_count,
    t.processed_at = UTC_TIMESTAMP(6),
    t.updated_at = UTC_TIMESTAMP(6);
ROLLBACK;

-- deliver: rows that are still pending
SELECT t.id
FROM shop.order_outbox_items AS t
FORCE INDEX (PRIMARY)
WHERE t.id IN (%s,
               %s)
  AND t.status = 0
ORDER BY t.id
FOR
UPDATE;

-- deliver: failed attempts of a row
SELECT errors_count
FROM shop.order_outbox_items
WHERE id = %s;

-- deliver: before a handler's session
SAVEPOINT boxengine_claim;

-- deliver: after a handler's session
RELEASE SAVEPOINT boxengine_claim;

-- deliver: locks set free
DO RELEASE_LOCK(%s), RELEASE_LOCK(%s);

-- deliver: oldest pending row
SELECT MIN(found.since)
FROM (
        (SELECT GREATEST(t.created_at, COALESCE(t.available_at, t.created_at)) AS since
         FROM shop.order_outbox_items AS t
         FORCE INDEX (`ix_order_outbox_items_pending`)
         WHERE t.status = 0
           AND t.bucket = %s
           AND (t.available_at IS NULL
                OR t.available_at <= UTC_TIMESTAMP(6))
           AND t.created_at >= TIMESTAMP '0001-01-02 00:00:00'
           AND t.created_at <= TIMESTAMP '9999-12-30 00:00:00'
         ORDER BY t.id
         LIMIT %s)
      UNION ALL
        (SELECT GREATEST(t.created_at, COALESCE(t.available_at, t.created_at)) AS since
         FROM shop.order_outbox_items AS t
         FORCE INDEX (`ix_order_outbox_items_pending`)
         WHERE t.status = 0
           AND t.bucket = %s
           AND (t.available_at IS NULL
                OR t.available_at <= UTC_TIMESTAMP(6))
           AND t.created_at >= TIMESTAMP '0001-01-02 00:00:00'
           AND t.created_at <= TIMESTAMP '9999-12-30 00:00:00'
         ORDER BY t.id
         LIMIT %s)) AS found;

-- deliver: oldest delivered row
SELECT MIN(first.since)
FROM
  (SELECT created_at AS since
   FROM shop.order_outbox_items
   FORCE INDEX (PRIMARY)
   WHERE status IN (%s)
     AND created_at >= TIMESTAMP '0001-01-02 00:00:00'
     AND created_at <= TIMESTAMP '9999-12-30 00:00:00'
   ORDER BY id
   LIMIT 1) AS first
WHERE first.since >= TIMESTAMP '0001-01-02 00:00:00'
  AND first.since <= TIMESTAMP '9999-12-30 00:00:00';

-- deliver: oldest failed or discarded row
SELECT MIN(first.since)
FROM
  (SELECT GREATEST(created_at, COALESCE(processed_at, created_at)) AS since
   FROM shop.order_outbox_items
   FORCE INDEX (`ix_order_outbox_items_pending`)
   WHERE status IN (%s,
                    %s)
     AND created_at >= TIMESTAMP '0001-01-02 00:00:00'
     AND created_at <= TIMESTAMP '9999-12-30 00:00:00'
   ORDER BY id
   LIMIT 1000) AS first
WHERE first.since >= TIMESTAMP '0001-01-02 00:00:00'
  AND first.since <= TIMESTAMP '9999-12-30 00:00:00';

-- deliver: deletion of old rows
SELECT first.id
FROM
  (SELECT id,
          created_at AS since
   FROM shop.order_outbox_items
   FORCE INDEX (PRIMARY)
   WHERE status IN (%s)
   ORDER BY id
   LIMIT %s) AS first
WHERE first.since >= %s
  AND first.since < %s
ORDER BY first.id
LIMIT %s;

-- deliver: deletion of old rows behind younger ones
SELECT MAX(t.id)
FROM
  (SELECT id,
          status,
          created_at,
          processed_at
   FROM shop.order_outbox_items
   FORCE INDEX (PRIMARY)
   WHERE id > %s
   ORDER BY id
   LIMIT %s) AS t;
SELECT t.id
FROM
  (SELECT id,
          status,
          created_at,
          processed_at
   FROM shop.order_outbox_items
   FORCE INDEX (PRIMARY)
   WHERE id > %s
   ORDER BY id
   LIMIT %s) AS t
WHERE (t.status = 2
       AND t.created_at < %s
       AND t.created_at >= TIMESTAMP '0001-01-02 00:00:00')
ORDER BY t.id
LIMIT %s;

-- deliver: rows that no bound may pass
(SELECT NULL AS bucket,
          NULL AS id,
          SYSDATE(6) AS moment)
UNION ALL
  (SELECT t.bucket,
          MIN(t.id),
          NULL
   FROM shop.order_outbox_items AS t
   FORCE INDEX (PRIMARY)
   WHERE t.id > 40
     AND t.id <= 90
     AND t.status IN (0)
     AND t.bucket IN (0)
   GROUP BY t.bucket)
UNION ALL
  (SELECT NULL AS bucket,
          NULL AS id,
          SYSDATE(6) AS moment);

-- create: rows that may be there already
INSERT INTO order_outbox_items (uuid, event_key, bucket, status, payload, errors_count, dedup_key)
VALUES (%s, %s, %s, %s, %s, %s, %s) ON DUPLICATE KEY
UPDATE id = order_outbox_items.id;

-- create: a row
INSERT INTO order_outbox_items (uuid, event_key, bucket, status, payload, errors_count)
VALUES (%s, %s, %s, %s, %s, %s);

-- make: table
CREATE TABLE order_outbox_items (
    id BIGINT NOT NULL AUTO_INCREMENT,
    uuid CHAR(36) NOT NULL,
    event_name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    event_key VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    bucket INTEGER NOT NULL,
    status SMALLINT NOT NULL DEFAULT 0,
    options JSON,
    payload MEDIUMBLOB NOT NULL,
    errors_count INTEGER NOT NULL DEFAULT 0,
    error_log TEXT CHARACTER SET utf8mb4,
    processed_at DATETIME(6),
    created_at DATETIME(6) NOT NULL DEFAULT (utc_timestamp(6)),
    updated_at DATETIME(6) NOT NULL DEFAULT (utc_timestamp(6)),
    available_at DATETIME(6),
    dedup_key VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    PRIMARY KEY (id)
);
CREATE INDEX ix_order_outbox_items_delayed ON order_outbox_items (available_at);
CREATE INDEX ix_order_outbox_items_status ON order_outbox_items (status, bucket, id);
CREATE UNIQUE INDEX ux_order_outbox_items_dedup ON order_outbox_items (dedup_key);
