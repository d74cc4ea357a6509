-- deliver: poll
SELECT i.*
FROM unnest(%s::int[], %s::bigint[]) AS held(bucket, after)
CROSS JOIN LATERAL
  (SELECT t.id,
          t.bucket,
          coalesce(t.errors_count, 0)
   FROM public.order_outbox_items AS t
   WHERE t.status = 0
     AND (t.bucket,
          t.id) > (held.bucket,
                   held.after)
     AND t.bucket <= held.bucket
     AND (true)
   ORDER BY t.bucket,
            t.id
   LIMIT %s) AS i;

-- deliver: poll, rows that never failed
SELECT i.*
FROM unnest(%s::int[], %s::bigint[]) AS held(bucket, after)
CROSS JOIN LATERAL
  (SELECT t.id,
          t.bucket,
          coalesce(t.errors_count, 0)
   FROM public.order_outbox_items AS t
   WHERE t.status = 0
     AND (t.bucket,
          t.id) > (held.bucket,
                   held.after)
     AND t.bucket <= held.bucket
     AND (true)
     AND coalesce(t.errors_count, 0) = 0
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
     AND (true)
   ORDER BY t.bucket,
            t.id
   LIMIT %s) AS i;

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
          NULL::text AS event_name,
          t.event_key::text,
          t.bucket,
          t.status,
          NULL::text AS options,
          CASE
              WHEN octet_length(t.proto_payload) <= 1000 THEN t.proto_payload
          END,
          coalesce(t.errors_count, 0),
          t.created_at,
          t.processed_at AT TIME ZONE 'UTC' AS processed_at
   FROM public.order_outbox_items AS t
   WHERE t.status = 0
     AND (t.bucket,
          t.id) > (held.bucket,
                   held.after)
     AND t.bucket <= held.bucket
     AND (true)
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
          NULL::text AS event_name,
          t.event_key::text,
          t.bucket,
          t.status,
          NULL::text AS options,
          CASE
              WHEN octet_length(t.proto_payload) <= 1000 THEN t.proto_payload
          END,
          coalesce(t.errors_count, 0),
          t.created_at,
          t.processed_at AT TIME ZONE 'UTC' AS processed_at
   FROM public.order_outbox_items AS t
   WHERE t.status = 0
     AND (t.bucket,
          t.id) > (held.bucket,
                   held.after)
     AND t.bucket <= held.bucket
     AND (true)
   ORDER BY t.bucket,
            t.id
   LIMIT greatest(1, %s / greatest(1, cardinality(current_setting('boxengine.held')::int[])))
   FOR UPDATE OF t NOWAIT) AS i
WHERE held.bucket = ANY(current_setting('boxengine.held')::int[])
  AND
    (SELECT set_config('lock_timeout', NULL, true)) IS NOT NULL;

-- deliver: sizes of payloads
SELECT id,
       octet_length(proto_payload)
FROM public.order_outbox_items
WHERE id = ANY(%s::bigint[])
  AND proto_payload IS NOT NULL;

-- deliver: heavy payloads
SELECT id,
       proto_payload
FROM public.order_outbox_items
WHERE id = ANY(%s::bigint[]);

-- deliver: keys of earlier rows that wait
SELECT DISTINCT t.event_key::text
FROM unnest(%s::int[], %s::bigint[]) AS held(bucket, upto)
JOIN public.order_outbox_items AS t ON t.status = 0
AND t.bucket = held.bucket
AND t.id <= held.upto
WHERE t.event_key::text = ANY(%s::text[])
  AND (true);

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
   LIMIT 1) AS later
WHERE i.id = ANY(%s::bigint[]);

-- deliver: outcomes and commit
UPDATE public.order_outbox_items
SET status = 2,
    processed_at = (statement_timestamp() AT TIME ZONE 'UTC'),
    updated_at = (statement_timestamp() AT TIME ZONE 'UTC')
WHERE id = ANY(%s::bigint[]);
UPDATE public.order_outbox_items AS t
SET status = f.status,
    errors_count = f.errors_count,
    processed_at = (statement_timestamp() AT TIME ZONE 'UTC'),
    updated_at = (statement_timestamp() AT TIME ZONE 'UTC')
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
     (SELECT t.created_at AS since
      FROM public.order_outbox_items AS t
      WHERE t.status = 0
        AND (t.bucket,
             t.id) > (held.bucket,
                      held.after)
        AND t.bucket <= held.bucket
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
                                    WHERE first.since >= (%s::timestamptz AT TIME ZONE 'UTC')
                                      AND first.since < (%s::timestamptz AT TIME ZONE 'UTC')
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
                                               AND created_at < (%s::timestamptz AT TIME ZONE 'UTC')
                                               AND created_at >= TIMESTAMP '0001-01-02 00:00:00'))
                                       ORDER BY id
                                       LIMIT %s))
                       AND ((status = 2
                             AND created_at < (%s::timestamptz AT TIME ZONE 'UTC')
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
   ORDER BY t.bucket,
            t.id
   LIMIT 1) AS i ON true;
