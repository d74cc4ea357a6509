-- deliver: poll
SELECT i.*
FROM unnest(%s::int[], %s::bigint[]) AS held(bucket, after)
CROSS JOIN LATERAL
  (SELECT t.id,
          t.bucket,
          t.errors_count
   FROM public.order_outbox_items AS t
   WHERE t.status = 0
     AND (t.bucket,
          t.id) > (held.bucket,
                   held.after)
     AND t.bucket <= held.bucket
     AND ((t.errors_count = 0
           OR t.processed_at IS NULL
           OR t.processed_at <= now() - make_interval(secs => least(600.0, 10.0 * power(2.0::float8, least(t.errors_count - 1, 64)))))
          AND (t.available_at IS NULL
               OR t.available_at <= now()))
   ORDER BY t.bucket,
            t.id
   LIMIT %s) AS i;

-- deliver: poll, rows that never failed
SELECT i.*
FROM unnest(%s::int[], %s::bigint[]) AS held(bucket, after)
CROSS JOIN LATERAL
  (SELECT t.id,
          t.bucket,
          t.errors_count
   FROM public.order_outbox_items AS t
   WHERE t.status = 0
     AND (t.bucket,
          t.id) > (held.bucket,
                   held.after)
     AND t.bucket <= held.bucket
     AND ((t.errors_count = 0
           OR t.processed_at IS NULL
           OR t.processed_at <= now() - make_interval(secs => least(600.0, 10.0 * power(2.0::float8, least(t.errors_count - 1, 64)))))
          AND (t.available_at IS NULL
               OR t.available_at <= now()))
     AND t.errors_count = 0
   ORDER BY t.bucket,
            t.id
   LIMIT %s) AS i;

-- deliver: outlook
SELECT i.*
FROM unnest(%s::int[], %s::bigint[]) AS held(bucket, after)
CROSS JOIN LATERAL
  (SELECT t.bucket,
          0::float8
   FROM public.order_outbox_items AS t
   WHERE t.status = 0
     AND (t.bucket,
          t.id) > (held.bucket,
                   held.after)
     AND t.bucket <= held.bucket
     AND ((t.errors_count = 0
           OR t.processed_at IS NULL
           OR t.processed_at <= now() - make_interval(secs => least(600.0, 10.0 * power(2.0::float8, least(t.errors_count - 1, 64)))))
          AND (t.available_at IS NULL
               OR t.available_at <= now()))
   ORDER BY t.bucket,
            t.id
   LIMIT %s) AS i
UNION ALL
  (SELECT NULL,
          least(extract(epoch
                        FROM t.available_at) - extract(epoch
                                                       FROM now()), 1000000000)::float8
   FROM public.order_outbox_items AS t
   WHERE t.status = 0
     AND t.available_at > now()
   ORDER BY t.available_at
   LIMIT 1);

-- deliver: claim
SELECT coalesce(array_agg(wanted.bucket), '{}') AS granted,
       now(),
       set_config('boxengine.held', coalesce(array_agg(wanted.bucket), '{}')::text, true),
       set_config('lock_timeout', '500ms', true),
       set_config('idle_in_transaction_session_timeout', %s, true)
FROM unnest(%s::int[]) AS wanted(bucket)
WHERE pg_try_advisory_xact_lock(%s, wanted.bucket);
SELECT i.*
FROM unnest(%s::int[], %s::bigint[]) AS held(bucket, after)
CROSS JOIN LATERAL
  (SELECT t.id,
          t.uuid::text,
          t.event_name,
          t.event_key::text,
          t.bucket,
          t.status,
          t.options::text AS options,
          CASE
              WHEN octet_length(t.payload) <= 1000 THEN t.payload
          END,
          t.errors_count,
          t.created_at AT TIME ZONE INTERVAL '0', t.processed_at,
                                                  t.seq
   FROM public.order_outbox_items AS t
   WHERE t.status = 0
     AND (t.bucket,
          t.id) > (held.bucket,
                   held.after)
     AND t.bucket <= held.bucket
     AND ((t.errors_count = 0
           OR t.processed_at IS NULL
           OR t.processed_at <= now() - make_interval(secs => least(600.0, 10.0 * power(2.0::float8, least(t.errors_count - 1, 64)))))
          AND (t.available_at IS NULL
               OR t.available_at <= now()))
   ORDER BY t.bucket,
            t.id
   LIMIT greatest(1, %s / greatest(1, cardinality(current_setting('boxengine.held')::int[])))
   FOR UPDATE OF t NOWAIT) AS i
WHERE held.bucket = ANY(current_setting('boxengine.held')::int[])
  AND
    (SELECT set_config('lock_timeout', NULL, true)) IS NOT NULL;

-- deliver: plain claim
SELECT coalesce(array_agg(wanted.bucket), '{}') AS granted,
       now(),
       set_config('boxengine.held', coalesce(array_agg(wanted.bucket), '{}')::text, true),
       set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('lock_timeout', '500ms', true),
       set_config('idle_in_transaction_session_timeout', %s, true)
FROM unnest(%s::int[]) AS wanted(bucket)
WHERE pg_try_advisory_xact_lock(%s, wanted.bucket);
SELECT i.*
FROM unnest(%s::int[], %s::bigint[]) AS held(bucket, after)
CROSS JOIN LATERAL
  (SELECT t.id,
          t.uuid::text,
          t.event_name,
          t.event_key::text,
          t.bucket,
          t.status,
          t.options::text AS options,
          CASE
              WHEN octet_length(t.payload) <= 1000 THEN t.payload
          END,
          t.errors_count,
          t.created_at AT TIME ZONE INTERVAL '0', t.processed_at,
                                                  t.seq
   FROM public.order_outbox_items AS t
   WHERE t.status = 0
     AND (t.bucket,
          t.id) > (held.bucket,
                   held.after)
     AND t.bucket <= held.bucket
     AND ((t.errors_count = 0
           OR t.processed_at IS NULL
           OR t.processed_at <= now() - make_interval(secs => least(600.0, 10.0 * power(2.0::float8, least(t.errors_count - 1, 64)))))
          AND (t.available_at IS NULL
               OR t.available_at <= now()))
   ORDER BY t.bucket,
            t.id
   LIMIT greatest(1, %s / greatest(1, cardinality(current_setting('boxengine.held')::int[])))
   FOR UPDATE OF t NOWAIT) AS i
WHERE held.bucket = ANY(current_setting('boxengine.held')::int[])
  AND
    (SELECT set_config('lock_timeout', NULL, true)) IS NOT NULL;

-- deliver: poll, behind bounds
SELECT i.*
FROM unnest(%s::int[], %s::bigint[]) AS held(bucket, after)
CROSS JOIN LATERAL
  (SELECT t.id,
          t.bucket,
          t.errors_count
   FROM public.order_outbox_items AS t
   WHERE t.status = 0
     AND (t.bucket,
          t.id) > (held.bucket,
                   held.after)
     AND t.bucket <= held.bucket
     AND ((t.errors_count = 0
           OR t.processed_at IS NULL
           OR t.processed_at <= now() - make_interval(secs => least(600.0, 10.0 * power(2.0::float8, least(t.errors_count - 1, 64)))))
          AND (t.available_at IS NULL
               OR t.available_at <= now()))
   ORDER BY t.bucket,
            t.id
   LIMIT %s) AS i
UNION ALL
SELECT passed.*
FROM
  (SELECT t.id,
          t.bucket,
          t.errors_count
   FROM public.order_outbox_items AS t
   WHERE t.status = 0
     AND t.available_at <= now()
     AND ((t.errors_count = 0
           OR t.processed_at IS NULL
           OR t.processed_at <= now() - make_interval(secs => least(600.0, 10.0 * power(2.0::float8, least(t.errors_count - 1, 64)))))
          AND (t.available_at IS NULL
               OR t.available_at <= now()))
     AND t.id <= (%s::bigint[])[array_position(%s::int[], t.bucket::int)]
   ORDER BY t.available_at
   LIMIT %s) AS passed;

-- deliver: outlook, behind bounds
SELECT i.*
FROM unnest(%s::int[], %s::bigint[]) AS held(bucket, after)
CROSS JOIN LATERAL
  (SELECT t.bucket,
          0::float8
   FROM public.order_outbox_items AS t
   WHERE t.status = 0
     AND (t.bucket,
          t.id) > (held.bucket,
                   held.after)
     AND t.bucket <= held.bucket
     AND ((t.errors_count = 0
           OR t.processed_at IS NULL
           OR t.processed_at <= now() - make_interval(secs => least(600.0, 10.0 * power(2.0::float8, least(t.errors_count - 1, 64)))))
          AND (t.available_at IS NULL
               OR t.available_at <= now()))
   ORDER BY t.bucket,
            t.id
   LIMIT %s) AS i
UNION ALL
SELECT passed.*
FROM
  (SELECT t.bucket,
          0::float8
   FROM public.order_outbox_items AS t
   WHERE t.status = 0
     AND t.available_at <= now()
     AND ((t.errors_count = 0
           OR t.processed_at IS NULL
           OR t.processed_at <= now() - make_interval(secs => least(600.0, 10.0 * power(2.0::float8, least(t.errors_count - 1, 64)))))
          AND (t.available_at IS NULL
               OR t.available_at <= now()))
     AND t.id <= (%s::bigint[])[array_position(%s::int[], t.bucket::int)]
   ORDER BY t.available_at
   LIMIT %s) AS passed
UNION ALL
  (SELECT NULL,
          least(extract(epoch
                        FROM t.available_at) - extract(epoch
                                                       FROM now()), 1000000000)::float8
   FROM public.order_outbox_items AS t
   WHERE t.status = 0
     AND t.available_at > now()
   ORDER BY t.available_at
   LIMIT 1);

-- deliver: claim, behind bounds
SELECT coalesce(array_agg(wanted.bucket), '{}') AS granted,
       now(),
       set_config('boxengine.held', coalesce(array_agg(wanted.bucket), '{}')::text, true),
       set_config('lock_timeout', '500ms', true),
       set_config('idle_in_transaction_session_timeout', %s, true)
FROM unnest(%s::int[]) AS wanted(bucket)
WHERE pg_try_advisory_xact_lock(%s, wanted.bucket);
SELECT i.*
FROM unnest(%s::int[], %s::bigint[]) AS held(bucket, after)
CROSS JOIN LATERAL
  (SELECT t.id,
          t.uuid::text,
          t.event_name,
          t.event_key::text,
          t.bucket,
          t.status,
          t.options::text AS options,
          CASE
              WHEN octet_length(t.payload) <= 1000 THEN t.payload
          END,
          t.errors_count,
          t.created_at AT TIME ZONE INTERVAL '0', t.processed_at,
                                                  t.seq
   FROM public.order_outbox_items AS t
   WHERE t.status = 0
     AND (t.bucket,
          t.id) > (held.bucket,
                   held.after)
     AND t.bucket <= held.bucket
     AND ((t.errors_count = 0
           OR t.processed_at IS NULL
           OR t.processed_at <= now() - make_interval(secs => least(600.0, 10.0 * power(2.0::float8, least(t.errors_count - 1, 64)))))
          AND (t.available_at IS NULL
               OR t.available_at <= now()))
   ORDER BY t.bucket,
            t.id
   LIMIT greatest(1, %s / greatest(1, cardinality(current_setting('boxengine.held')::int[])))
   FOR UPDATE OF t NOWAIT) AS i
WHERE held.bucket = ANY(current_setting('boxengine.held')::int[])
  AND
    (SELECT set_config('lock_timeout', NULL, true)) IS NOT NULL
UNION ALL
SELECT passed.*
FROM
  (SELECT t.id,
          t.uuid::text,
          t.event_name,
          t.event_key::text,
          t.bucket,
          t.status,
          t.options::text AS options,
          CASE
              WHEN octet_length(t.payload) <= 1000 THEN t.payload
          END,
          t.errors_count,
          t.created_at AT TIME ZONE INTERVAL '0', t.processed_at,
                                                  t.seq
   FROM public.order_outbox_items AS t
   WHERE t.status = 0
     AND t.available_at <= now()
     AND ((t.errors_count = 0
           OR t.processed_at IS NULL
           OR t.processed_at <= now() - make_interval(secs => least(600.0, 10.0 * power(2.0::float8, least(t.errors_count - 1, 64)))))
          AND (t.available_at IS NULL
               OR t.available_at <= now()))
     AND t.bucket = ANY(current_setting('boxengine.held')::int[])
     AND t.id <= (%s::bigint[])[array_position(%s::int[], t.bucket::int)]
   ORDER BY t.available_at
   LIMIT %s
   FOR UPDATE OF t NOWAIT) AS passed;

-- deliver: plain claim, behind bounds
SELECT coalesce(array_agg(wanted.bucket), '{}') AS granted,
       now(),
       set_config('boxengine.held', coalesce(array_agg(wanted.bucket), '{}')::text, true),
       set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('lock_timeout', '500ms', true),
       set_config('idle_in_transaction_session_timeout', %s, true)
FROM unnest(%s::int[]) AS wanted(bucket)
WHERE pg_try_advisory_xact_lock(%s, wanted.bucket);
SELECT i.*
FROM unnest(%s::int[], %s::bigint[]) AS held(bucket, after)
CROSS JOIN LATERAL
  (SELECT t.id,
          t.uuid::text,
          t.event_name,
          t.event_key::text,
          t.bucket,
          t.status,
          t.options::text AS options,
          CASE
              WHEN octet_length(t.payload) <= 1000 THEN t.payload
          END,
          t.errors_count,
          t.created_at AT TIME ZONE INTERVAL '0', t.processed_at,
                                                  t.seq
   FROM public.order_outbox_items AS t
   WHERE t.status = 0
     AND (t.bucket,
          t.id) > (held.bucket,
                   held.after)
     AND t.bucket <= held.bucket
     AND ((t.errors_count = 0
           OR t.processed_at IS NULL
           OR t.processed_at <= now() - make_interval(secs => least(600.0, 10.0 * power(2.0::float8, least(t.errors_count - 1, 64)))))
          AND (t.available_at IS NULL
               OR t.available_at <= now()))
   ORDER BY t.bucket,
            t.id
   LIMIT greatest(1, %s / greatest(1, cardinality(current_setting('boxengine.held')::int[])))
   FOR UPDATE OF t NOWAIT) AS i
WHERE held.bucket = ANY(current_setting('boxengine.held')::int[])
  AND
    (SELECT set_config('lock_timeout', NULL, true)) IS NOT NULL
UNION ALL
SELECT passed.*
FROM
  (SELECT t.id,
          t.uuid::text,
          t.event_name,
          t.event_key::text,
          t.bucket,
          t.status,
          t.options::text AS options,
          CASE
              WHEN octet_length(t.payload) <= 1000 THEN t.payload
          END,
          t.errors_count,
          t.created_at AT TIME ZONE INTERVAL '0', t.processed_at,
                                                  t.seq
   FROM public.order_outbox_items AS t
   WHERE t.status = 0
     AND t.available_at <= now()
     AND ((t.errors_count = 0
           OR t.processed_at IS NULL
           OR t.processed_at <= now() - make_interval(secs => least(600.0, 10.0 * power(2.0::float8, least(t.errors_count - 1, 64)))))
          AND (t.available_at IS NULL
               OR t.available_at <= now()))
     AND t.bucket = ANY(current_setting('boxengine.held')::int[])
     AND t.id <= (%s::bigint[])[array_position(%s::int[], t.bucket::int)]
   ORDER BY t.available_at
   LIMIT %s
   FOR UPDATE OF t NOWAIT) AS passed;

-- deliver: oldest pending row, behind bounds
SELECT min(i.since) FILTER (
                            WHERE i.since >= TIMESTAMP '0001-01-02 00:00:00'
                              AND i.since <= TIMESTAMP '9999-12-30 00:00:00')
FROM
  (SELECT i.since
   FROM unnest(%s::int[], %s::bigint[]) AS held(bucket, after)
   CROSS JOIN LATERAL
     (SELECT greatest(t.created_at, t.available_at) AS since
      FROM public.order_outbox_items AS t
      WHERE t.status = 0
        AND (t.bucket,
             t.id) > (held.bucket,
                      held.after)
        AND t.bucket <= held.bucket
        AND (t.available_at IS NULL
             OR t.available_at <= now())
      ORDER BY t.bucket,
               t.id
      LIMIT %s) AS i
   UNION ALL SELECT passed.*
   FROM
     (SELECT greatest(t.created_at, t.available_at) AS since
      FROM public.order_outbox_items AS t
      WHERE t.status = 0
        AND t.available_at <= now()
        AND ((t.errors_count = 0
              OR t.processed_at IS NULL
              OR t.processed_at <= now() - make_interval(secs => least(600.0, 10.0 * power(2.0::float8, least(t.errors_count - 1, 64)))))
             AND (t.available_at IS NULL
                  OR t.available_at <= now()))
        AND t.id <= (%s::bigint[])[array_position(%s::int[], t.bucket::int)]
      ORDER BY t.available_at
      LIMIT %s) AS passed) AS i;

-- deliver: sizes of payloads
SELECT id,
       octet_length(payload)
FROM public.order_outbox_items
WHERE id = ANY(%s::bigint[])
  AND payload IS NOT NULL;

-- deliver: heavy payloads
SELECT id,
       payload
FROM public.order_outbox_items
WHERE id = ANY(%s::bigint[]);

-- deliver: keys of earlier rows that wait
SELECT DISTINCT t.event_key::text
FROM unnest(%s::int[], %s::bigint[]) AS held(bucket, upto)
JOIN public.order_outbox_items AS t ON t.status = 0
AND t.bucket = held.bucket
AND t.id <= held.upto
WHERE t.event_key::text = ANY(%s::text[])
  AND ((t.errors_count = 0
        OR t.processed_at IS NULL
        OR t.processed_at <= now() - make_interval(secs => least(600.0, 10.0 * power(2.0::float8, least(t.errors_count - 1, 64)))))
       AND (t.available_at IS NULL
            OR t.available_at <= now()));

-- deliver: later delivered rows of a key
SELECT i.id,
       later.id
FROM public.order_outbox_items AS i
CROSS JOIN LATERAL
  (SELECT t.id
   FROM public.order_outbox_items AS t
   WHERE t.event_key = i.event_key
     AND t.id > i.id
     AND t.status = 2
     AND t.event_name IS NOT DISTINCT
     FROM i.event_name
     AND NOT (coalesce(t.options::text LIKE '%"Replay-Of"%', false)
              AND NOT strpos(t.options::text, t.uuid::text) > 0)
   LIMIT 1) AS later
WHERE i.id = ANY(%s::bigint[]);

-- deliver: outcomes and commit
UPDATE public.order_outbox_items
SET status = 2,
    processed_at = statement_timestamp(),
    updated_at = statement_timestamp()
WHERE id = ANY(%s::bigint[]);
UPDATE public.order_outbox_items AS t
SET status = f.status,
    errors_count = f.errors_count,
    error_log = CASE f.status
                    WHEN 3 THEN concat_ws(E'\n', f.error_log, t.error_log)
                    ELSE f.error_log
                END,
                processed_at = statement_timestamp(),
                updated_at = statement_timestamp()
FROM unnest(%s::bigint[], %s::int[], %s::int[], %s::text[]) AS f(id, status, errors_count, error_log)
WHERE t.id = f.id
  AND t.status + 0 = 0;
COMMIT;

-- deliver: locks once more
SELECT coalesce(array_agg(wanted.bucket), '{}') AS granted,
       now(),
       set_config('boxengine.held', coalesce(array_agg(wanted.bucket), '{}')::text, true),
       set_config('idle_in_transaction_session_timeout', %s, true)
FROM unnest(%s::int[]) AS wanted(bucket)
WHERE pg_try_advisory_xact_lock(%s, wanted.bucket);

-- deliver: rows that are still pending
SELECT id
FROM public.order_outbox_items
WHERE id = ANY(%s::bigint[])
  AND status + 0 = 0
ORDER BY id
FOR
UPDATE;

-- deliver: failed attempts of a row
SELECT errors_count
FROM public.order_outbox_items
WHERE id = %s;

-- deliver: after a handler's session
SELECT current_setting('boxengine.held', true);
RESET SESSION AUTHORIZATION;
RESET ROLE;
RESET ALL;
SELECT set_config('array_nulls', 'on', false)
WHERE current_setting('array_nulls') <> 'on'
UNION ALL
SELECT set_config('quote_all_identifiers', 'off', false)
WHERE current_setting('quote_all_identifiers') <> 'off';

-- deliver: after such a transaction
RESET SESSION AUTHORIZATION;
RESET ROLE;
RESET ALL;
CLOSE ALL;
UNLISTEN *;
DISCARD TEMP;
SELECT pg_advisory_unlock_all();
SELECT set_config('datestyle', 'ISO', false)
WHERE current_setting('datestyle') NOT LIKE 'ISO%';
SELECT set_config('idle_session_timeout', '0', false)
WHERE current_setting('idle_session_timeout', true) <> '0'
UNION ALL
SELECT set_config('transaction_timeout', '0', false)
WHERE current_setting('transaction_timeout', true) <> '0';
SELECT set_config('tcp_keepalives_idle', '15', false),
       set_config('tcp_keepalives_interval', '5', false),
       set_config('tcp_keepalives_count', '3', false);
SELECT set_config('default_transaction_isolation', 'read committed', false)
WHERE current_setting('default_transaction_isolation') <> 'read committed';
SELECT set_config('array_nulls', 'on', false)
WHERE current_setting('array_nulls') <> 'on'
UNION ALL
SELECT set_config('quote_all_identifiers', 'off', false)
WHERE current_setting('quote_all_identifiers') <> 'off';

-- deliver: oldest pending row
SELECT min(i.since) FILTER (
                            WHERE i.since >= TIMESTAMP '0001-01-02 00:00:00'
                              AND i.since <= TIMESTAMP '9999-12-30 00:00:00')
FROM
  (SELECT i.since
   FROM unnest(%s::int[], %s::bigint[]) AS held(bucket, after)
   CROSS JOIN LATERAL
     (SELECT greatest(t.created_at, t.available_at) AS since
      FROM public.order_outbox_items AS t
      WHERE t.status = 0
        AND (t.bucket,
             t.id) > (held.bucket,
                      held.after)
        AND t.bucket <= held.bucket
        AND (t.available_at IS NULL
             OR t.available_at <= now())
      ORDER BY t.bucket,
               t.id
      LIMIT %s) AS i) AS i;

-- deliver: oldest delivered row
SELECT min(first.since) FILTER (
                                WHERE first.since >= TIMESTAMP '0001-01-02 00:00:00'
                                  AND first.since <= TIMESTAMP '9999-12-30 00:00:00')
FROM
  (SELECT created_at AS since
   FROM public.order_outbox_items
   WHERE status IN (2)
     AND created_at >= TIMESTAMP '0001-01-02 00:00:00'
     AND created_at <= TIMESTAMP '9999-12-30 00:00:00'
   ORDER BY id
   LIMIT 1) AS first;

-- deliver: oldest failed or discarded row
SELECT min(first.since) FILTER (
                                WHERE first.since >= TIMESTAMP '0001-01-02 00:00:00'
                                  AND first.since <= TIMESTAMP '9999-12-30 00:00:00')
FROM
  (SELECT greatest(created_at, processed_at) AS since
   FROM public.order_outbox_items
   WHERE status IN (1,
                    3)
     AND created_at >= TIMESTAMP '0001-01-02 00:00:00'
     AND created_at <= TIMESTAMP '9999-12-30 00:00:00'
   ORDER BY id
   LIMIT 1000) AS first;

-- deliver: deletion of old rows
DELETE
FROM public.order_outbox_items
WHERE id = ANY(ARRAY
                 (SELECT id
                  FROM public.order_outbox_items
                  WHERE id = ANY(ARRAY
                                   (SELECT first.id
                                    FROM
                                      (SELECT id, created_at AS since
                                       FROM public.order_outbox_items
                                       WHERE status IN (2)
                                       ORDER BY id
                                       LIMIT %s) AS first
                                    WHERE first.since >= %s::timestamptz
                                      AND first.since < %s::timestamptz
                                    ORDER BY first.id
                                    LIMIT %s))
                    AND status IN (2)
                    FOR
                    UPDATE SKIP LOCKED));

-- deliver: deletion of old rows behind younger ones
WITH looked AS MATERIALIZED
  (SELECT id,
          status,
          created_at,
          processed_at
   FROM public.order_outbox_items
   WHERE id > %s
   ORDER BY id
   LIMIT %s), gone AS
  (DELETE
   FROM public.order_outbox_items
   WHERE id = ANY(ARRAY
                    (SELECT id
                     FROM public.order_outbox_items
                     WHERE id = ANY(ARRAY
                                      (SELECT id
                                       FROM looked
                                       WHERE ((status = 2
                                               AND created_at < %s::timestamptz
                                               AND created_at >= TIMESTAMP '0001-01-02 00:00:00'))
                                       ORDER BY id
                                       LIMIT %s))
                       AND ((status = 2
                             AND created_at < %s::timestamptz
                             AND created_at >= TIMESTAMP '0001-01-02 00:00:00'))
                       FOR
                       UPDATE SKIP LOCKED)) RETURNING 1)
SELECT
  (SELECT count(*)
   FROM gone),
  (SELECT max(id)
   FROM looked);

-- deliver: rows that no bound may pass
SELECT held.bucket,
       extract(epoch
               FROM clock_timestamp() - statement_timestamp())::float8,
       i.id
FROM unnest(%s::int[], %s::bigint[], %s::bigint[]) AS held(bucket, after, up_to)
LEFT JOIN LATERAL
  (SELECT t.id
   FROM public.order_outbox_items AS t
   WHERE t.status = 0
     AND (t.bucket,
          t.id) > (held.bucket,
                   held.after)
     AND (t.bucket,
          t.id) <= (held.bucket,
                    held.up_to)
     AND t.available_at IS NULL
   ORDER BY t.bucket,
            t.id
   LIMIT 1) AS i ON true;

-- create: rows that may be there already
INSERT INTO order_outbox_items (seq, uuid, event_key, bucket, status, payload, errors_count, dedup_key)
VALUES (%(seq)s::BIGINT, %(uuid)s::UUID, %(event_key)s::VARCHAR, %(bucket)s::INTEGER, %(status)s::SMALLINT, %(payload)s, %(errors_count)s::INTEGER, %(dedup_key)s::VARCHAR) ON CONFLICT (dedup_key)
WHERE dedup_key IS NOT NULL DO NOTHING RETURNING order_outbox_items.id,
                                                 order_outbox_items.dedup_key;

-- create: a row
INSERT INTO order_outbox_items (seq, uuid, event_key, bucket, status, payload, errors_count)
VALUES (%(seq)s::BIGINT, %(uuid)s::UUID, %(event_key)s::VARCHAR, %(bucket)s::INTEGER, %(status)s::SMALLINT, %(payload)s, %(errors_count)s::INTEGER) RETURNING order_outbox_items.id;

-- create: a row and its wake-up
INSERT INTO order_outbox_items (seq, uuid, event_key, bucket, status, payload, errors_count)
VALUES (%(seq)s::BIGINT, %(uuid)s::UUID, %(event_key)s::VARCHAR, %(bucket)s::INTEGER, %(status)s::SMALLINT, %(payload)s, %(errors_count)s::INTEGER) RETURNING order_outbox_items.id,
                                                                                                                                                              CASE
                                                                                                                                                                  WHEN pg_try_advisory_xact_lock(465185529, -2) THEN pg_notify('boxengine', %(boxengine_told)s::VARCHAR)
                                                                                                                                                              END IS NOT NULL AS anon_1;

-- create: numbers
INSERT INTO order_outbox_items_seqs (event_key, last)
VALUES (%(event_key_m0)s::VARCHAR, %(last_m0)s::BIGINT) ON CONFLICT (event_key) DO UPDATE SET last = (order_outbox_items_seqs.last + excluded.last) RETURNING order_outbox_items_seqs.event_key,
                                                                                                                                                              order_outbox_items_seqs.last;

-- make: table
CREATE TABLE order_outbox_items (
    seq BIGINT,
    id BIGSERIAL NOT NULL,
    uuid UUID NOT NULL,
    event_name VARCHAR(255),
    event_key VARCHAR(255) NOT NULL,
    bucket INTEGER NOT NULL,
    status SMALLINT DEFAULT 0 NOT NULL,
    options JSONB,
    payload BYTEA NOT NULL,
    errors_count INTEGER DEFAULT 0 NOT NULL,
    error_log TEXT,
    processed_at TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    available_at TIMESTAMP WITH TIME ZONE,
    dedup_key VARCHAR(255),
    PRIMARY KEY (id)
);
ALTER INDEX IF EXISTS order_outbox_items_pkey SET (fillfactor = 50);
ALTER TABLE order_outbox_items SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX ix_order_outbox_items_delayed ON order_outbox_items (available_at) WHERE status = 0 AND available_at IS NOT NULL;
CREATE INDEX ix_order_outbox_items_failed ON order_outbox_items (status, id) WHERE status IN (1, 3);
CREATE INDEX ix_order_outbox_items_pending ON order_outbox_items (bucket, id) WHERE status = 0;
CREATE UNIQUE INDEX ux_order_outbox_items_dedup ON order_outbox_items (dedup_key) WHERE dedup_key IS NOT NULL;
CREATE TABLE order_outbox_items_seqs (
    event_key VARCHAR(255) NOT NULL,
    last BIGINT NOT NULL,
    PRIMARY KEY (event_key)
);
