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
     AND NOT EXISTS
       (SELECT 1
        FROM public.order_outbox_items AS e
        WHERE e.bucket = t.bucket
          AND e.event_key = t.event_key
          AND e.id < t.id
          AND (e.status = 1
               OR (e.status = 0
                   AND (e.errors_count > 0
                        OR e.available_at IS NOT NULL)))
          AND (e.status = 1
               OR NOT ((e.errors_count = 0
                        OR e.processed_at IS NULL
                        OR e.processed_at <= now() - make_interval(secs => least(600.0, 10.0 * power(2.0::float8, least(e.errors_count - 1, 64)))))
                       AND (e.available_at IS NULL
                            OR e.available_at <= now()))))
   ORDER BY t.bucket,
            t.id
   LIMIT %s) AS i;
SELECT held.bucket
FROM public.order_outbox_items_positions AS held,

  (SELECT pg_current_snapshot() AS snapshot) AS now
WHERE held.bucket = ANY(%s::int[])
  AND (held.batch IS NOT NULL
       OR held.server <> coalesce(nullif(current_setting('boxengine.server', true), '')::bigint,
                                    (SELECT set_config('boxengine.server', system_identifier::text, false)::bigint
                                     FROM pg_control_system()))
       OR pg_snapshot_xmax(now.snapshot) < pg_snapshot_xmax(held.passed)
       OR EXISTS
         (SELECT i.*
          FROM
            (SELECT edge.low,
                    CASE
                        WHEN edge.number > 1 + cardinality(seen.running)
                             OR (edge.number = 1
                                 AND pg_visible_in_snapshot(pg_snapshot_xmax(held.passed), now.snapshot)) THEN 0
                        ELSE 9223372036854775807
                    END,
                    edge.high,
                    CASE
                        WHEN edge.number > 1 + cardinality(seen.running) THEN 9223372036854775807
                        ELSE 0
                    END,
                    edge.number > 1 + cardinality(seen.running)
             FROM
               (SELECT ARRAY
                  (SELECT running
                   FROM pg_snapshot_xip(now.snapshot) AS running
                   WHERE running > pg_snapshot_xmax(held.passed)) AS running,
                       ARRAY
                  (SELECT ended
                   FROM pg_snapshot_xip(held.passed) AS ended
                   WHERE pg_visible_in_snapshot(ended, now.snapshot)) AS ended
                OFFSET 0) AS seen
             CROSS JOIN LATERAL unnest(pg_snapshot_xmax(held.passed) || seen.running || seen.ended, seen.running || pg_snapshot_xmax(now.snapshot) || seen.ended) WITH
             ORDINALITY AS edge(low, high, number)
             WHERE edge.low < edge.high
               OR edge.number > 1 + cardinality(seen.running)) AS span(low, after, high,
                                                                       before, late)
          CROSS JOIN LATERAL
            (SELECT 1
             FROM public.order_outbox_items_log AS t
             WHERE (t.bucket,
                    t.xact,
                    t.id) > (held.bucket,
                             span.low,
                             span.after)
               AND (t.bucket,
                    t.xact,
                    t.id) < (held.bucket,
                             span.high,
                             span.before)
               AND NOT (t.id <= held.place)
             ORDER BY t.bucket,
                      t.xact,
                      t.id
             LIMIT 1) AS i))
  AND NOT (false);

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
     AND NOT EXISTS
       (SELECT 1
        FROM public.order_outbox_items AS e
        WHERE e.bucket = t.bucket
          AND e.event_key = t.event_key
          AND e.id < t.id
          AND (e.status = 1
               OR (e.status = 0
                   AND (e.errors_count > 0
                        OR e.available_at IS NOT NULL)))
          AND (e.status = 1
               OR NOT ((e.errors_count = 0
                        OR e.processed_at IS NULL
                        OR e.processed_at <= now() - make_interval(secs => least(600.0, 10.0 * power(2.0::float8, least(e.errors_count - 1, 64)))))
                       AND (e.available_at IS NULL
                            OR e.available_at <= now()))))
     AND t.errors_count = 0
   ORDER BY t.bucket,
            t.id
   LIMIT %s) AS i;
SELECT held.bucket
FROM public.order_outbox_items_positions AS held,

  (SELECT pg_current_snapshot() AS snapshot) AS now
WHERE held.bucket = ANY(%s::int[])
  AND (held.batch IS NOT NULL
       OR held.server <> coalesce(nullif(current_setting('boxengine.server', true), '')::bigint,
                                    (SELECT set_config('boxengine.server', system_identifier::text, false)::bigint
                                     FROM pg_control_system()))
       OR pg_snapshot_xmax(now.snapshot) < pg_snapshot_xmax(held.passed)
       OR EXISTS
         (SELECT i.*
          FROM
            (SELECT edge.low,
                    CASE
                        WHEN edge.number > 1 + cardinality(seen.running)
                             OR (edge.number = 1
                                 AND pg_visible_in_snapshot(pg_snapshot_xmax(held.passed), now.snapshot)) THEN 0
                        ELSE 9223372036854775807
                    END,
                    edge.high,
                    CASE
                        WHEN edge.number > 1 + cardinality(seen.running) THEN 9223372036854775807
                        ELSE 0
                    END,
                    edge.number > 1 + cardinality(seen.running)
             FROM
               (SELECT ARRAY
                  (SELECT running
                   FROM pg_snapshot_xip(now.snapshot) AS running
                   WHERE running > pg_snapshot_xmax(held.passed)) AS running,
                       ARRAY
                  (SELECT ended
                   FROM pg_snapshot_xip(held.passed) AS ended
                   WHERE pg_visible_in_snapshot(ended, now.snapshot)) AS ended
                OFFSET 0) AS seen
             CROSS JOIN LATERAL unnest(pg_snapshot_xmax(held.passed) || seen.running || seen.ended, seen.running || pg_snapshot_xmax(now.snapshot) || seen.ended) WITH
             ORDINALITY AS edge(low, high, number)
             WHERE edge.low < edge.high
               OR edge.number > 1 + cardinality(seen.running)) AS span(low, after, high,
                                                                       before, late)
          CROSS JOIN LATERAL
            (SELECT 1
             FROM public.order_outbox_items_log AS t
             WHERE (t.bucket,
                    t.xact,
                    t.id) > (held.bucket,
                             span.low,
                             span.after)
               AND (t.bucket,
                    t.xact,
                    t.id) < (held.bucket,
                             span.high,
                             span.before)
               AND NOT (t.id <= held.place)
             ORDER BY t.bucket,
                      t.xact,
                      t.id
             LIMIT 1) AS i))
  AND NOT (false);

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
     AND NOT EXISTS
       (SELECT 1
        FROM public.order_outbox_items AS e
        WHERE e.bucket = t.bucket
          AND e.event_key = t.event_key
          AND e.id < t.id
          AND (e.status = 1
               OR (e.status = 0
                   AND (e.errors_count > 0
                        OR e.available_at IS NOT NULL)))
          AND (e.status = 1
               OR NOT ((e.errors_count = 0
                        OR e.processed_at IS NULL
                        OR e.processed_at <= now() - make_interval(secs => least(600.0, 10.0 * power(2.0::float8, least(e.errors_count - 1, 64)))))
                       AND (e.available_at IS NULL
                            OR e.available_at <= now()))))
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
SELECT held.bucket
FROM public.order_outbox_items_positions AS held,

  (SELECT pg_current_snapshot() AS snapshot) AS now
WHERE held.bucket = ANY(%s::int[])
  AND (held.batch IS NOT NULL
       OR held.server <> coalesce(nullif(current_setting('boxengine.server', true), '')::bigint,
                                    (SELECT set_config('boxengine.server', system_identifier::text, false)::bigint
                                     FROM pg_control_system()))
       OR pg_snapshot_xmax(now.snapshot) < pg_snapshot_xmax(held.passed)
       OR EXISTS
         (SELECT i.*
          FROM
            (SELECT edge.low,
                    CASE
                        WHEN edge.number > 1 + cardinality(seen.running)
                             OR (edge.number = 1
                                 AND pg_visible_in_snapshot(pg_snapshot_xmax(held.passed), now.snapshot)) THEN 0
                        ELSE 9223372036854775807
                    END,
                    edge.high,
                    CASE
                        WHEN edge.number > 1 + cardinality(seen.running) THEN 9223372036854775807
                        ELSE 0
                    END,
                    edge.number > 1 + cardinality(seen.running)
             FROM
               (SELECT ARRAY
                  (SELECT running
                   FROM pg_snapshot_xip(now.snapshot) AS running
                   WHERE running > pg_snapshot_xmax(held.passed)) AS running,
                       ARRAY
                  (SELECT ended
                   FROM pg_snapshot_xip(held.passed) AS ended
                   WHERE pg_visible_in_snapshot(ended, now.snapshot)) AS ended
                OFFSET 0) AS seen
             CROSS JOIN LATERAL unnest(pg_snapshot_xmax(held.passed) || seen.running || seen.ended, seen.running || pg_snapshot_xmax(now.snapshot) || seen.ended) WITH
             ORDINALITY AS edge(low, high, number)
             WHERE edge.low < edge.high
               OR edge.number > 1 + cardinality(seen.running)) AS span(low, after, high,
                                                                       before, late)
          CROSS JOIN LATERAL
            (SELECT 1
             FROM public.order_outbox_items_log AS t
             WHERE (t.bucket,
                    t.xact,
                    t.id) > (held.bucket,
                             span.low,
                             span.after)
               AND (t.bucket,
                    t.xact,
                    t.id) < (held.bucket,
                             span.high,
                             span.before)
               AND NOT (t.id <= held.place)
             ORDER BY t.bucket,
                      t.xact,
                      t.id
             LIMIT 1) AS i))
  AND NOT (false);

-- deliver: claim
SELECT coalesce(array_agg(wanted.bucket), '{}') AS granted,
       now(),
       set_config('boxengine.held', coalesce(array_agg(wanted.bucket), '{}')::text, true),
       set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('jit', 'off', true),
       set_config('lock_timeout', '500ms', true),
       set_config('idle_in_transaction_session_timeout', %s, true)
FROM unnest(%s::int[]) AS wanted(bucket)
WHERE pg_try_advisory_xact_lock(%s, wanted.bucket);
SELECT now.snapshot,
       now.denied,
       held.bucket,
       held.passed::text,
       held.batch::text,
       held.place,
       held.floor,
       held.ceiling,
       held.high,
       held.turn,
       held.server = coalesce(nullif(current_setting('boxengine.server', true), '')::bigint,
                                (SELECT set_config('boxengine.server', system_identifier::text, false)::bigint
                                 FROM pg_control_system())),
       false
FROM
  (SELECT set_config('boxengine.snapshot', pg_current_snapshot()::text, true) AS snapshot,
          CASE
              WHEN NOT has_any_column_privilege('public.order_outbox_items_positions', 'UPDATE') THEN 'UPDATE'
              WHEN NOT has_any_column_privilege('public.order_outbox_items', 'INSERT') THEN 'INSERT'
          END AS denied) AS now
LEFT JOIN
  (SELECT last.*
   FROM unnest(current_setting('boxengine.held')::int[]) AS asked(bucket)
   CROSS JOIN LATERAL
     (SELECT p.*
      FROM public.order_outbox_items_positions AS p
      WHERE p.bucket = asked.bucket
      ORDER BY p.turn DESC
      LIMIT 1) AS last) AS held ON true;
WITH held AS MATERIALIZED
  (SELECT p.bucket,
          p.passed,
          coalesce(p.batch, current_setting('boxengine.snapshot')::pg_snapshot) AS upto,
          p.place,
          p.floor,
          p.ceiling,
          pg_snapshot_xmax(p.passed) AS began,
          pg_snapshot_xmin(coalesce(p.batch, current_setting('boxengine.snapshot')::pg_snapshot)) AS ended
   FROM
     (SELECT last.*
      FROM unnest(current_setting('boxengine.held')::int[]) AS asked(bucket)
      CROSS JOIN LATERAL
        (SELECT p.*
         FROM public.order_outbox_items_positions AS p
         WHERE p.bucket = asked.bucket
         ORDER BY p.turn DESC
         LIMIT 1) AS last) AS p)
  (SELECT i.*
   FROM held
   CROSS JOIN LATERAL
     (SELECT i.*
      FROM
        (SELECT edge.low,
                CASE
                    WHEN edge.number > 1 + cardinality(seen.running)
                         OR (edge.number = 1
                             AND pg_visible_in_snapshot(pg_snapshot_xmax(held.passed), held.upto)) THEN 0
                    ELSE 9223372036854775807
                END,
                edge.high,
                CASE
                    WHEN edge.number > 1 + cardinality(seen.running) THEN 9223372036854775807
                    ELSE 0
                END,
                edge.number > 1 + cardinality(seen.running)
         FROM
           (SELECT ARRAY
              (SELECT running
               FROM pg_snapshot_xip(held.upto) AS running
               WHERE running > pg_snapshot_xmax(held.passed)) AS running,
                   ARRAY
              (SELECT ended
               FROM pg_snapshot_xip(held.passed) AS ended
               WHERE pg_visible_in_snapshot(ended, held.upto)) AS ended
            OFFSET 0) AS seen
         CROSS JOIN LATERAL unnest(pg_snapshot_xmax(held.passed) || seen.running || seen.ended, seen.running || pg_snapshot_xmax(held.upto) || seen.ended) WITH
         ORDINALITY AS edge(low, high, number)
         WHERE edge.low < edge.high
           OR edge.number > 1 + cardinality(seen.running)) AS span(low, after, high,
                                                                   before, late)
      CROSS JOIN LATERAL
        (SELECT t.id,
                t.uuid::text,
                t.event_name,
                t.event_key::text,
                t.bucket,
                0::smallint AS status,
                t.options::text AS options,
                CASE
                    WHEN octet_length(t.payload) <= 1000 THEN t.payload
                END,
                0 AS errors_count,
                t.created_at AT TIME ZONE INTERVAL '0', NULL::timestamptz AS processed_at,
                                                        EXISTS
           (SELECT 1
            FROM public.order_outbox_items AS e
            WHERE e.bucket = t.bucket
              AND e.event_key = t.event_key
              AND (e.status = 1
                   OR (e.status = 0
                       AND (e.errors_count > 0
                            OR e.available_at IS NOT NULL)))
              AND (e.status = 1
                   OR NOT ((e.errors_count = 0
                            OR e.processed_at IS NULL
                            OR e.processed_at <= now() - make_interval(secs => least(600.0, 10.0 * power(2.0::float8, least(e.errors_count - 1, 64)))))
                           AND (e.available_at IS NULL
                                OR e.available_at <= now()))))
         FROM public.order_outbox_items_log AS t
         WHERE (t.bucket,
                t.xact,
                t.id) > (held.bucket,
                         span.low,
                         span.after)
           AND (t.bucket,
                t.xact,
                t.id) < (held.bucket,
                         span.high,
                         span.before)
           AND NOT (t.id <= held.place)
         ORDER BY t.bucket,
                  t.xact,
                  t.id
         LIMIT greatest(greatest(1, %s / greatest(1, cardinality(current_setting('boxengine.held')::int[]))), %s / 4) + 1) AS i
      LIMIT greatest(greatest(1, %s / greatest(1, cardinality(current_setting('boxengine.held')::int[]))), %s / 4) + 1) AS i
   WHERE held.floor IS NULL
   LIMIT greatest(1, %s - greatest(1, %s / greatest(1, cardinality(current_setting('boxengine.held')::int[]))) *
                    (SELECT count(*)
                     FROM held
                     WHERE held.floor IS NOT NULL)) + 4 + 1)
UNION ALL
SELECT i.*
FROM held
CROSS JOIN LATERAL (
                      (SELECT late.*
                       FROM pg_snapshot_xip(held.passed) AS ended
                       CROSS JOIN LATERAL
                         (SELECT t.id,
                                 t.uuid::text,
                                 t.event_name,
                                 t.event_key::text,
                                 t.bucket,
                                 0::smallint AS status,
                                 t.options::text AS options,
                                 CASE
                                     WHEN octet_length(t.payload) <= 1000 THEN t.payload
                                 END,
                                 0 AS errors_count,
                                 t.created_at AT TIME ZONE INTERVAL '0', NULL::timestamptz AS processed_at,
                                                                         EXISTS
                            (SELECT 1
                             FROM public.order_outbox_items AS e
                             WHERE e.bucket = t.bucket
                               AND e.event_key = t.event_key
                               AND (e.status = 1
                                    OR (e.status = 0
                                        AND (e.errors_count > 0
                                             OR e.available_at IS NOT NULL)))
                               AND (e.status = 1
                                    OR NOT ((e.errors_count = 0
                                             OR e.processed_at IS NULL
                                             OR e.processed_at <= now() - make_interval(secs => least(600.0, 10.0 * power(2.0::float8, least(e.errors_count - 1, 64)))))
                                            AND (e.available_at IS NULL
                                                 OR e.available_at <= now()))))
                          FROM public.order_outbox_items_log AS t
                          WHERE (t.bucket,
                                 t.xact,
                                 t.id) > (held.bucket,
                                          ended,
                                          held.place)
                            AND (t.bucket,
                                 t.xact,
                                 t.id) <= (held.bucket,
                                           ended,
                                           held.floor)
                          ORDER BY t.bucket,
                                   t.xact,
                                   t.id
                          LIMIT greatest(1, %s / greatest(1, cardinality(current_setting('boxengine.held')::int[])))) AS late
                       WHERE held.place < held.floor
                         AND pg_visible_in_snapshot(ended, held.upto))
                    UNION ALL
                      (SELECT t.id,
                              t.uuid::text,
                              t.event_name,
                              t.event_key::text,
                              t.bucket,
                              0::smallint AS status,
                              t.options::text AS options,
                              CASE
                                  WHEN octet_length(t.payload) <= 1000 THEN t.payload
                              END,
                              0 AS errors_count,
                              t.created_at AT TIME ZONE INTERVAL '0', NULL::timestamptz AS processed_at,
                                                                      EXISTS
                         (SELECT 1
                          FROM public.order_outbox_items AS e
                          WHERE e.bucket = t.bucket
                            AND e.event_key = t.event_key
                            AND (e.status = 1
                                 OR (e.status = 0
                                     AND (e.errors_count > 0
                                          OR e.available_at IS NOT NULL)))
                            AND (e.status = 1
                                 OR NOT ((e.errors_count = 0
                                          OR e.processed_at IS NULL
                                          OR e.processed_at <= now() - make_interval(secs => least(600.0, 10.0 * power(2.0::float8, least(e.errors_count - 1, 64)))))
                                         AND (e.available_at IS NULL
                                              OR e.available_at <= now()))))
                       FROM public.order_outbox_items_log AS t
                       WHERE ((t.bucket + 0), t.id) > (held.bucket,
                                                       greatest(held.place, held.floor))
                         AND ((t.bucket + 0), t.id) <= (held.bucket,
                                                        held.ceiling)
                         AND (t.xact < held.ended
                              OR pg_visible_in_snapshot(t.xact, held.upto))
                         AND (t.xact >= held.began
                              OR NOT pg_visible_in_snapshot(t.xact, held.passed))
                       ORDER BY (t.bucket + 0), t.id
                       LIMIT greatest(1, %s / greatest(1, cardinality(current_setting('boxengine.held')::int[]))))) AS i
WHERE held.floor IS NOT NULL;
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
          t.created_at AT TIME ZONE INTERVAL '0', t.processed_at
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
     AND NOT EXISTS
       (SELECT 1
        FROM public.order_outbox_items AS e
        WHERE e.bucket = t.bucket
          AND e.event_key = t.event_key
          AND e.id < t.id
          AND (e.status = 1
               OR (e.status = 0
                   AND (e.errors_count > 0
                        OR e.available_at IS NOT NULL)))
          AND (e.status = 1
               OR NOT ((e.errors_count = 0
                        OR e.processed_at IS NULL
                        OR e.processed_at <= now() - make_interval(secs => least(600.0, 10.0 * power(2.0::float8, least(e.errors_count - 1, 64)))))
                       AND (e.available_at IS NULL
                            OR e.available_at <= now()))))
   ORDER BY t.bucket,
            t.id
   LIMIT greatest(1, %s / greatest(1, cardinality(current_setting('boxengine.held')::int[])))
   FOR UPDATE OF t NOWAIT) AS i
WHERE held.bucket = ANY(current_setting('boxengine.held')::int[])
  AND
    (SELECT set_config('lock_timeout', NULL, true)) IS NOT NULL;
SELECT held.bucket, (min(i.id) FILTER (
                                       WHERE NOT i.late)), max(i.id),
                                                           count(*) FILTER (
                                                                            WHERE i.id <= held.last)
FROM
  (SELECT p.bucket,
          p.passed,
          coalesce(p.batch, current_setting('boxengine.snapshot')::pg_snapshot) AS upto,
          p.place,
          asked.last
   FROM unnest(%s::int[], %s::bigint[]) AS asked(bucket, last)
   CROSS JOIN LATERAL
     (SELECT last.*
      FROM unnest(ARRAY[asked.bucket]) AS asked(bucket)
      CROSS JOIN LATERAL
        (SELECT p.*
         FROM public.order_outbox_items_positions AS p
         WHERE p.bucket = asked.bucket
         ORDER BY p.turn DESC
         LIMIT 1) AS last) AS p) AS held
CROSS JOIN LATERAL
  (SELECT i.*
   FROM
     (SELECT edge.low,
             CASE
                 WHEN edge.number > 1 + cardinality(seen.running)
                      OR (edge.number = 1
                          AND pg_visible_in_snapshot(pg_snapshot_xmax(held.passed), held.upto)) THEN 0
                 ELSE 9223372036854775807
             END,
             edge.high,
             CASE
                 WHEN edge.number > 1 + cardinality(seen.running) THEN 9223372036854775807
                 ELSE 0
             END,
             edge.number > 1 + cardinality(seen.running)
      FROM
        (SELECT ARRAY
           (SELECT running
            FROM pg_snapshot_xip(held.upto) AS running
            WHERE running > pg_snapshot_xmax(held.passed)) AS running,
                ARRAY
           (SELECT ended
            FROM pg_snapshot_xip(held.passed) AS ended
            WHERE pg_visible_in_snapshot(ended, held.upto)) AS ended
         OFFSET 0) AS seen
      CROSS JOIN LATERAL unnest(pg_snapshot_xmax(held.passed) || seen.running || seen.ended, seen.running || pg_snapshot_xmax(held.upto) || seen.ended) WITH
      ORDINALITY AS edge(low, high, number)
      WHERE edge.low < edge.high
        OR edge.number > 1 + cardinality(seen.running)) AS span(low, after, high,
                                                                before, late)
   CROSS JOIN LATERAL
     (SELECT t.id,
             span.late
      FROM public.order_outbox_items_log AS t
      WHERE (t.bucket,
             t.xact,
             t.id) > (held.bucket,
                      span.low,
                      span.after)
        AND (t.bucket,
             t.xact,
             t.id) < (held.bucket,
                      span.high,
                      span.before)
        AND NOT (t.id <= held.place)
      ORDER BY t.bucket,
               t.xact,
               t.id) AS i) AS i
GROUP BY held.bucket;
WITH held AS MATERIALIZED
  (SELECT p.bucket,
          p.passed,
          coalesce(p.batch, current_setting('boxengine.snapshot')::pg_snapshot) AS upto,
          p.place,
          m.floor,
          m.ceiling,
          pg_snapshot_xmax(p.passed) AS began,
          pg_snapshot_xmin(coalesce(p.batch, current_setting('boxengine.snapshot')::pg_snapshot)) AS ended
   FROM unnest(%s::int[], %s::bigint[], %s::bigint[]) AS m(bucket,
                                                           floor, ceiling)
   CROSS JOIN LATERAL
     (SELECT last.*
      FROM unnest(ARRAY[m.bucket]) AS asked(bucket)
      CROSS JOIN LATERAL
        (SELECT p.*
         FROM public.order_outbox_items_positions AS p
         WHERE p.bucket = asked.bucket
         ORDER BY p.turn DESC
         LIMIT 1) AS last) AS p)
SELECT i.*
FROM held
CROSS JOIN LATERAL (
                      (SELECT late.*
                       FROM pg_snapshot_xip(held.passed) AS ended
                       CROSS JOIN LATERAL
                         (SELECT t.id,
                                 t.uuid::text,
                                 t.event_name,
                                 t.event_key::text,
                                 t.bucket,
                                 0::smallint AS status,
                                 t.options::text AS options,
                                 CASE
                                     WHEN octet_length(t.payload) <= 1000 THEN t.payload
                                 END,
                                 0 AS errors_count,
                                 t.created_at AT TIME ZONE INTERVAL '0', NULL::timestamptz AS processed_at,
                                                                         EXISTS
                            (SELECT 1
                             FROM public.order_outbox_items AS e
                             WHERE e.bucket = t.bucket
                               AND e.event_key = t.event_key
                               AND (e.status = 1
                                    OR (e.status = 0
                                        AND (e.errors_count > 0
                                             OR e.available_at IS NOT NULL)))
                               AND (e.status = 1
                                    OR NOT ((e.errors_count = 0
                                             OR e.processed_at IS NULL
                                             OR e.processed_at <= now() - make_interval(secs => least(600.0, 10.0 * power(2.0::float8, least(e.errors_count - 1, 64)))))
                                            AND (e.available_at IS NULL
                                                 OR e.available_at <= now()))))
                          FROM public.order_outbox_items_log AS t
                          WHERE (t.bucket,
                                 t.xact,
                                 t.id) > (held.bucket,
                                          ended,
                                          held.place)
                            AND (t.bucket,
                                 t.xact,
                                 t.id) <= (held.bucket,
                                           ended,
                                           held.floor)
                          ORDER BY t.bucket,
                                   t.xact,
                                   t.id
                          LIMIT %s) AS late
                       WHERE held.place < held.floor
                         AND pg_visible_in_snapshot(ended, held.upto))
                    UNION ALL
                      (SELECT t.id,
                              t.uuid::text,
                              t.event_name,
                              t.event_key::text,
                              t.bucket,
                              0::smallint AS status,
                              t.options::text AS options,
                              CASE
                                  WHEN octet_length(t.payload) <= 1000 THEN t.payload
                              END,
                              0 AS errors_count,
                              t.created_at AT TIME ZONE INTERVAL '0', NULL::timestamptz AS processed_at,
                                                                      EXISTS
                         (SELECT 1
                          FROM public.order_outbox_items AS e
                          WHERE e.bucket = t.bucket
                            AND e.event_key = t.event_key
                            AND (e.status = 1
                                 OR (e.status = 0
                                     AND (e.errors_count > 0
                                          OR e.available_at IS NOT NULL)))
                            AND (e.status = 1
                                 OR NOT ((e.errors_count = 0
                                          OR e.processed_at IS NULL
                                          OR e.processed_at <= now() - make_interval(secs => least(600.0, 10.0 * power(2.0::float8, least(e.errors_count - 1, 64)))))
                                         AND (e.available_at IS NULL
                                              OR e.available_at <= now()))))
                       FROM public.order_outbox_items_log AS t
                       WHERE ((t.bucket + 0), t.id) > (held.bucket,
                                                       greatest(held.place, held.floor))
                         AND ((t.bucket + 0), t.id) <= (held.bucket,
                                                        held.ceiling)
                         AND (t.xact < held.ended
                              OR pg_visible_in_snapshot(t.xact, held.upto))
                         AND (t.xact >= held.began
                              OR NOT pg_visible_in_snapshot(t.xact, held.passed))
                       ORDER BY (t.bucket + 0), t.id
                       LIMIT %s)) AS i;

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
WHERE t.event_key::text = ANY(%s::text[]);

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
SELECT p.bucket
FROM public.order_outbox_items_positions AS p
JOIN unnest(%s::int[], %s::bigint[]) AS f(bucket, turn) ON f.bucket = p.bucket
AND f.turn = p.turn;

-- deliver: failed attempts of a row
SELECT errors_count
FROM public.order_outbox_items
WHERE id = %s;

-- deliver: before a handler's session
RESET plan_cache_mode;
RESET enable_seqscan;
RESET enable_bitmapscan;
RESET jit;

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
SELECT min(waiting.created_at) FILTER (
                                       WHERE waiting.created_at >= TIMESTAMP '0001-01-02 00:00:00'
                                         AND waiting.created_at <= TIMESTAMP '9999-12-30 00:00:00')
FROM
  (SELECT i.*
   FROM
     (SELECT p.bucket,
             p.passed,
             now.snapshot AS upto,
             p.place,
             p.batch
      FROM public.order_outbox_items_positions AS p,

        (SELECT pg_current_snapshot() AS snapshot) AS now
      WHERE p.bucket = ANY(%s::int[])) AS held
   CROSS JOIN LATERAL
     (SELECT i.*
      FROM
        (SELECT edge.low,
                CASE
                    WHEN edge.number > 1 + cardinality(seen.running)
                         OR (edge.number = 1
                             AND pg_visible_in_snapshot(pg_snapshot_xmax(held.passed), held.upto)) THEN 0
                    ELSE 9223372036854775807
                END,
                edge.high,
                CASE
                    WHEN edge.number > 1 + cardinality(seen.running) THEN 9223372036854775807
                    ELSE 0
                END,
                edge.number > 1 + cardinality(seen.running)
         FROM
           (SELECT ARRAY
              (SELECT running
               FROM pg_snapshot_xip(held.upto) AS running
               WHERE running > pg_snapshot_xmax(held.passed)) AS running,
                   ARRAY
              (SELECT ended
               FROM pg_snapshot_xip(held.passed) AS ended
               WHERE pg_visible_in_snapshot(ended, held.upto)) AS ended
            OFFSET 0) AS seen
         CROSS JOIN LATERAL unnest(pg_snapshot_xmax(held.passed) || seen.running || seen.ended, seen.running || pg_snapshot_xmax(held.upto) || seen.ended) WITH
         ORDINALITY AS edge(low, high, number)
         WHERE edge.low < edge.high
           OR edge.number > 1 + cardinality(seen.running)) AS span(low, after, high,
                                                                   before, late)
      CROSS JOIN LATERAL
        (SELECT t.created_at
         FROM public.order_outbox_items_log AS t
         WHERE (t.bucket,
                t.xact,
                t.id) > (held.bucket,
                         span.low,
                         span.after)
           AND (t.bucket,
                t.xact,
                t.id) < (held.bucket,
                         span.high,
                         span.before)
           AND NOT (t.id <= held.place
                    AND held.batch IS NOT NULL
                    AND pg_visible_in_snapshot(t.xact, held.batch))
         ORDER BY t.bucket,
                  t.xact,
                  t.id
         LIMIT %s) AS i
      LIMIT %s) AS i) AS waiting;

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
SELECT to_regclass(%s) IS NOT NULL,
                          to_regclass(%s) IS NOT NULL;
SELECT min(i.created_at) FILTER (
                                 WHERE i.created_at >= TIMESTAMP '0001-01-02 00:00:00'
                                   AND i.created_at <= TIMESTAMP '9999-12-30 00:00:00')
FROM
  (SELECT p.bucket
   FROM
     (SELECT bucket,
             passed
      FROM public.order_outbox_items_positions
      WHERE server =
          (SELECT system_identifier
           FROM pg_control_system())
        AND pg_snapshot_xmax(coalesce(batch, passed)) <= pg_snapshot_xmax(pg_current_snapshot())) AS p
   GROUP BY p.bucket
   HAVING count(*) = 1) AS held
CROSS JOIN LATERAL
  (SELECT t.ctid,
          t.created_at,
          t.bucket,
          t.xact
   FROM public.order_outbox_items_log AS t
   WHERE ((t.bucket + 0), t.id) > (held.bucket,
                                   0)
     AND (t.bucket + 0) <= held.bucket
   ORDER BY (t.bucket + 0), t.id
   LIMIT %s) AS i
WHERE (NOT EXISTS
         (SELECT 1
          FROM
            (SELECT bucket,
                    passed
             FROM public.order_outbox_items_positions
             WHERE server =
                 (SELECT system_identifier
                  FROM pg_control_system())
               AND pg_snapshot_xmax(coalesce(batch, passed)) <= pg_snapshot_xmax(pg_current_snapshot())) AS p
          WHERE p.bucket = i.bucket
            AND NOT pg_visible_in_snapshot(i.xact, p.passed)));

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
SELECT pg_try_advisory_xact_lock_shared(8734050999846567936 + CAST(CAST(to_regclass(%s) AS oid) AS bigint));
SELECT to_regclass(%s) IS NOT NULL,
                          to_regclass(%s) IS NOT NULL;
DELETE
FROM ONLY public.order_outbox_items_log
WHERE ctid = ANY(ARRAY
                   (SELECT i.ctid
                    FROM
                      (SELECT p.bucket
                       FROM
                         (SELECT bucket, passed
                          FROM public.order_outbox_items_positions
                          WHERE server =
                              (SELECT system_identifier
                               FROM pg_control_system())
                            AND pg_snapshot_xmax(coalesce(batch, passed)) <= pg_snapshot_xmax(pg_current_snapshot())) AS p
                       GROUP BY p.bucket
                       HAVING count(*) = 1) AS held
                    CROSS JOIN LATERAL
                      (SELECT t.ctid, t.created_at, t.bucket, t.xact
                       FROM public.order_outbox_items_log AS t
                       WHERE ((t.bucket + 0), t.id) > (held.bucket, 0)
                         AND (t.bucket + 0) <= held.bucket
                       ORDER BY (t.bucket + 0), t.id
                       LIMIT %s) AS i
                    WHERE (NOT EXISTS
                             (SELECT 1
                              FROM
                                (SELECT bucket, passed
                                 FROM public.order_outbox_items_positions
                                 WHERE server =
                                     (SELECT system_identifier
                                      FROM pg_control_system())
                                   AND pg_snapshot_xmax(coalesce(batch, passed)) <= pg_snapshot_xmax(pg_current_snapshot())) AS p
                              WHERE p.bucket = i.bucket
                                AND NOT pg_visible_in_snapshot(i.xact, p.passed)))
                      AND i.created_at < %s
                    LIMIT %s));

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

-- deliver: outcomes of its items and commit, after a claim
INSERT INTO public.order_outbox_items (id, uuid, event_key, bucket, created_at, event_name, options, payload, status, errors_count, processed_at, updated_at, error_log) OVERRIDING SYSTEM VALUE
SELECT t.id,
       t.uuid,
       t.event_key,
       t.bucket,
       t.created_at,
       t.event_name,
       t.options,
       t.payload,
       coalesce(f.status, 0),
       coalesce(f.errors_count, 0),
       CASE
           WHEN f.status IS NOT NULL THEN statement_timestamp()
       END,
       statement_timestamp(),
       f.error_log
FROM unnest(%s::int[], %s::bigint[], %s::int[], %s::int[], %s::text[]) AS f(bucket, id, status, errors_count, error_log)
JOIN public.order_outbox_items_log AS t ON (t.bucket + 0) = f.bucket
AND t.id = f.id;
WITH moved AS
  (UPDATE public.order_outbox_items_positions AS p
   SET passed = f.passed::pg_snapshot,
       batch = f.batch::pg_snapshot,
       place = f.place,
   floor = f.floor,
           ceiling = f.ceiling,
           high = f.high,
           turn = p.turn + 1
   FROM unnest(%s::int[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[]) AS f(bucket, passed, batch, place,
                                                                                                                             floor, ceiling, high, turn)
   WHERE p.bucket = f.bucket
     AND p.turn = f.turn RETURNING 1)
SELECT 1 / (count(*) = %s)::int
FROM moved;
COMMIT;

-- deliver: pending rows of the log
SELECT
  (SELECT count(*)
   FROM
     (SELECT i.*
      FROM
        (SELECT p.bucket,
                p.passed,
                now.snapshot AS upto,
                p.place,
                p.batch
         FROM public.order_outbox_items_positions AS p,

           (SELECT pg_current_snapshot() AS snapshot) AS now
         WHERE p.bucket = ANY(%s::int[])) AS held
      CROSS JOIN LATERAL
        (SELECT i.*
         FROM
           (SELECT edge.low,
                   CASE
                       WHEN edge.number > 1 + cardinality(seen.running)
                            OR (edge.number = 1
                                AND pg_visible_in_snapshot(pg_snapshot_xmax(held.passed), held.upto)) THEN 0
                       ELSE 9223372036854775807
                   END,
                   edge.high,
                   CASE
                       WHEN edge.number > 1 + cardinality(seen.running) THEN 9223372036854775807
                       ELSE 0
                   END,
                   edge.number > 1 + cardinality(seen.running)
            FROM
              (SELECT ARRAY
                 (SELECT running
                  FROM pg_snapshot_xip(held.upto) AS running
                  WHERE running > pg_snapshot_xmax(held.passed)) AS running,
                      ARRAY
                 (SELECT ended
                  FROM pg_snapshot_xip(held.passed) AS ended
                  WHERE pg_visible_in_snapshot(ended, held.upto)) AS ended
               OFFSET 0) AS seen
            CROSS JOIN LATERAL unnest(pg_snapshot_xmax(held.passed) || seen.running || seen.ended, seen.running || pg_snapshot_xmax(held.upto) || seen.ended) WITH
            ORDINALITY AS edge(low, high, number)
            WHERE edge.low < edge.high
              OR edge.number > 1 + cardinality(seen.running)) AS span(low, after, high,
                                                                      before, late)
         CROSS JOIN LATERAL
           (SELECT t.created_at
            FROM public.order_outbox_items_log AS t
            WHERE (t.bucket,
                   t.xact,
                   t.id) > (held.bucket,
                            span.low,
                            span.after)
              AND (t.bucket,
                   t.xact,
                   t.id) < (held.bucket,
                            span.high,
                            span.before)
              AND NOT (t.id <= held.place
                       AND held.batch IS NOT NULL
                       AND pg_visible_in_snapshot(t.xact, held.batch))
            ORDER BY t.bucket,
                     t.xact,
                     t.id
            LIMIT %s) AS i
         LIMIT %s) AS i
      LIMIT %s) AS waiting), EXISTS
  (SELECT
   FROM public.order_outbox_items_positions
   WHERE server <>
       (SELECT system_identifier
        FROM pg_control_system())
     OR pg_snapshot_xmax(coalesce(batch, passed)) > pg_snapshot_xmax(pg_current_snapshot()))
OR EXISTS
  (SELECT
   FROM public.order_outbox_items_positions AS p
   CROSS JOIN LATERAL
     (SELECT
      FROM public.order_outbox_items_log AS t
      WHERE t.bucket = p.bucket
        AND t.xact >= pg_snapshot_xmax(pg_current_snapshot())
      LIMIT 1) AS ahead);

-- create: a row
INSERT INTO order_outbox_items_log (uuid, event_key, bucket, payload)
VALUES (%(uuid)s::UUID, %(event_key)s::VARCHAR, %(bucket)s::INTEGER, %(payload)s) RETURNING order_outbox_items_log.id;

-- create: a row and its wake-up
INSERT INTO order_outbox_items_log (uuid, event_key, bucket, payload)
VALUES (%(uuid)s::UUID, %(event_key)s::VARCHAR, %(bucket)s::INTEGER, %(payload)s) RETURNING order_outbox_items_log.id,
                                                                                            CASE
                                                                                                WHEN pg_try_advisory_xact_lock(465185529, -2) THEN pg_notify('boxengine', %(boxengine_told)s::VARCHAR)
                                                                                            END IS NOT NULL AS anon_1;

-- make: table
CREATE TABLE order_outbox_items (
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
CREATE INDEX IF NOT EXISTS ix_order_outbox_items_troubled ON order_outbox_items (bucket, event_key, id) WHERE status = 1 OR (status = 0 AND (errors_count > 0 OR available_at IS NOT NULL));
CREATE TABLE IF NOT EXISTS order_outbox_items_log (id bigint NOT NULL DEFAULT nextval('order_outbox_items_id_seq'), uuid UUID NOT NULL, event_name VARCHAR(255), event_key VARCHAR(255) NOT NULL, bucket INTEGER NOT NULL, options JSONB, payload BYTEA NOT NULL, created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL, xact xid8 NOT NULL DEFAULT pg_current_xact_id());
ALTER TABLE order_outbox_items_log SET (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX IF NOT EXISTS ix_order_outbox_items_log_xact ON order_outbox_items_log (bucket, xact, id);
CREATE INDEX IF NOT EXISTS ix_order_outbox_items_log_id ON order_outbox_items_log ((bucket + 0), id);
CREATE TABLE IF NOT EXISTS order_outbox_items_positions (bucket int NOT NULL, passed pg_snapshot NOT NULL, batch pg_snapshot, place bigint NOT NULL DEFAULT 0, floor bigint, ceiling bigint, high bigint NOT NULL DEFAULT 0, turn bigint NOT NULL DEFAULT 0, server bigint NOT NULL, PRIMARY KEY (bucket, turn)) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
INSERT INTO order_outbox_items_positions (bucket, passed, server)
SELECT bucket,
       '3:3:'::pg_snapshot,
       system_identifier
FROM generate_series(0, 3) AS bucket,
     pg_control_system()
WHERE NOT EXISTS
    (SELECT
     FROM order_outbox_items_positions AS p
     WHERE p.bucket = bucket.bucket) ON CONFLICT DO NOTHING;
