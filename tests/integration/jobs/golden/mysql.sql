-- work: looks of an idle worker
SET SESSION idle_transaction_timeout = 10;
SELECT
  (SELECT (timestampdiff(MICROSECOND, utc_timestamp(6), min(report_jobs.available_at)) / 1000000) AS seconds_until_1
   FROM report_jobs
   WHERE report_jobs.status = 'queued'
     AND report_jobs.waits = 1) AS anon_1,
       EXISTS
  (SELECT *
   FROM report_jobs_after
   WHERE report_jobs_after.waiting = %(waiting_1)s) AS anon_2,

  (SELECT report_jobs.id
   FROM report_jobs
   WHERE report_jobs.status = 'queued'
     AND report_jobs.waits = 0
   ORDER BY report_jobs.priority,
            report_jobs.id
   LIMIT 1) AS anon_3;
SET SESSION idle_transaction_timeout = 10;
SELECT
  (SELECT (timestampdiff(MICROSECOND, utc_timestamp(6), min(report_jobs.lease_expires_at)) / 1000000) AS seconds_until_1
   FROM report_jobs
   WHERE report_jobs.status = 'running') AS anon_1,

  (SELECT report_jobs.lock_key
   FROM report_jobs
   WHERE report_jobs.status = 'queued'
     AND report_jobs.waits = 2
   ORDER BY report_jobs.lock_key
   LIMIT 1) AS anon_2;
SET SESSION idle_transaction_timeout = 10;
SELECT
  (SELECT report_jobs.id
   FROM report_jobs
   WHERE report_jobs.finished_at < (utc_timestamp(6) - INTERVAL (%(ago_1)s) SECOND)
   ORDER BY report_jobs.finished_at
   LIMIT 1) AS anon_1;

-- work: create
INSERT INTO report_jobs (task, args, idempotency_key, lock_key, partition_key, priority, available_at, waits, max_attempts, lease_ttl, producer, consumer_group, trace_context)
VALUES (%(task__0)s, %(args__0)s, %(idempotency_key__0)s, %(lock_key__0)s, %(partition_key__0)s, %(priority__0)s, coalesce(%(given_at__0)s, (utc_timestamp(6) + INTERVAL (%(delay_seconds__0)s) SECOND)), %(waits__0)s, %(max_attempts__0)s, %(lease_ttl__0)s, %(producer__0)s, %(consumer_group__0)s, %(trace_context__0)s),
       (%(task__1)s, %(args__1)s, %(idempotency_key__1)s, %(lock_key__1)s, %(partition_key__1)s, %(priority__1)s, coalesce(%(given_at__1)s, (utc_timestamp(6) + INTERVAL (%(delay_seconds__1)s) SECOND)), %(waits__1)s, %(max_attempts__1)s, %(lease_ttl__1)s, %(producer__1)s, %(consumer_group__1)s, %(trace_context__1)s),
       (%(task__2)s, %(args__2)s, %(idempotency_key__2)s, %(lock_key__2)s, %(partition_key__2)s, %(priority__2)s, coalesce(%(given_at__2)s, (utc_timestamp(6) + INTERVAL (%(delay_seconds__2)s) SECOND)), %(waits__2)s, %(max_attempts__2)s, %(lease_ttl__2)s, %(producer__2)s, %(consumer_group__2)s, %(trace_context__2)s) RETURNING report_jobs.id,
                                                                                                                                                                                                                                                                                                                                       report_jobs.id AS id__1;
INSERT INTO report_jobs_events (job_id, kind, payload)
VALUES (%(job_id)s, %(kind)s, %(payload)s);

-- work: create a follower
SELECT report_jobs.id,
       report_jobs.status
FROM report_jobs
WHERE report_jobs.id IN (%(id_1_1)s);
INSERT INTO report_jobs (task, args, idempotency_key, lock_key, partition_key, priority, available_at, waits, max_attempts, lease_ttl, producer, consumer_group, trace_context)
VALUES (%(task)s, %(args)s, %(idempotency_key)s, %(lock_key)s, %(partition_key)s, %(priority)s, coalesce(%(given_at)s, (utc_timestamp(6) + INTERVAL (%(delay_seconds)s) SECOND)), %(waits)s, %(max_attempts)s, %(lease_ttl)s, %(producer)s, %(consumer_group)s, %(trace_context)s);
INSERT INTO report_jobs_after (job_id, after_id, waiting, after_failure)
VALUES (%(job_id)s, %(after_id)s, %(waiting)s, %(after_failure)s);
INSERT INTO report_jobs_events (job_id, kind, payload)
VALUES (%(job_id)s, %(kind)s, %(payload)s);

-- work: claim, with a lock_key
SET SESSION idle_transaction_timeout = 10;
SELECT report_jobs.id,
       report_jobs.lock_key,
       report_jobs.priority
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 0
ORDER BY report_jobs.priority,
         report_jobs.id
LIMIT %(param_1)s
FOR
UPDATE SKIP LOCKED;
SELECT report_jobs.id,
       report_jobs.holds
FROM report_jobs
WHERE report_jobs.holds IN (%(holds_1_1)s);
UPDATE report_jobs
SET status=%(status)s,
    attempt=(report_jobs.attempt + %(attempt_1)s),
    token=greatest(report_jobs.token + %(token_1)s, timestampdiff(MICROSECOND, '1970-01-01', utc_timestamp(6))),
    holds=report_jobs.lock_key,
    worker=%(worker)s,
    lease_expires_at=(utc_timestamp(6) + INTERVAL (report_jobs.lease_ttl) SECOND),
    heartbeat_at=utc_timestamp(6),
    checkpoints=%(checkpoints)s,
    started_at=coalesce(report_jobs.started_at, utc_timestamp(6))
WHERE report_jobs.id IN (%(id_1_1)s,
                         %(id_1_2)s);
UPDATE report_jobs
SET waits=%(waits)s
WHERE report_jobs.id IN (%(id_1_1)s);
SELECT report_jobs.id,
       report_jobs.lock_key,
       report_jobs.priority
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 0
ORDER BY report_jobs.priority,
         report_jobs.id
LIMIT %(param_1)s
FOR
UPDATE SKIP LOCKED;
SELECT report_jobs.id,
       report_jobs.token,
       report_jobs.task,
       report_jobs.args,
       report_jobs.attempt,
       report_jobs.max_attempts,
       report_jobs.lease_ttl,
       report_jobs.priority,
       report_jobs.idempotency_key,
       report_jobs.lock_key,
       report_jobs.partition_key,
       report_jobs.checkpoint,
       report_jobs.created_at,
       report_jobs.trace_context,
       CASE
           WHEN (report_jobs.attempt > %(attempt_1)s) THEN
                  (SELECT report_jobs_events.ts
                   FROM report_jobs_events
                   WHERE report_jobs_events.job_id = report_jobs.id
                     AND report_jobs_events.kind = 'picked'
                     AND CASE JSON_EXTRACT(report_jobs_events.payload, %(payload_1)s)
                             WHEN 'null' THEN NULL
                             ELSE CAST(JSON_EXTRACT(report_jobs_events.payload, %(payload_1)s) AS SIGNED INTEGER)
                         END = report_jobs.attempt - %(attempt_2)s
                   ORDER BY report_jobs_events.id DESC
                   LIMIT %(param_1)s)
       END AS previous_start
FROM report_jobs
WHERE report_jobs.id IN (%(id_1_1)s,
                         %(id_1_2)s);
INSERT INTO report_jobs_events (job_id, kind, payload)
VALUES (%(job_id)s, %(kind)s, %(payload)s);

-- work: claim, with a held lock_key
SET SESSION idle_transaction_timeout = 10;
SELECT report_jobs.id,
       report_jobs.lock_key,
       report_jobs.priority
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 0
ORDER BY report_jobs.priority,
         report_jobs.id
LIMIT %(param_1)s
FOR
UPDATE SKIP LOCKED;
SELECT report_jobs.id,
       report_jobs.holds
FROM report_jobs
WHERE report_jobs.holds IN (%(holds_1_1)s);
SELECT report_jobs.holds
FROM report_jobs
FORCE INDEX (PRIMARY)
WHERE report_jobs.id IN (%(id_1_1)s)
  AND report_jobs.holds IN (%(holds_1_1)s)
ORDER BY report_jobs.id
FOR
UPDATE SKIP LOCKED;
UPDATE report_jobs
SET waits=%(waits)s
WHERE report_jobs.id IN (%(id_1_1)s);
SELECT report_jobs.id,
       report_jobs.lock_key,
       report_jobs.priority
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 0
ORDER BY report_jobs.priority,
         report_jobs.id
LIMIT %(param_1)s
FOR
UPDATE SKIP LOCKED;

-- work: claim by age too
SET SESSION idle_transaction_timeout = 10;
SELECT report_jobs.id,
       report_jobs.lock_key,
       report_jobs.priority
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 0
  AND report_jobs.available_at < (utc_timestamp(6) - INTERVAL (%(ago_1)s) SECOND)
ORDER BY report_jobs.available_at
LIMIT %(param_1)s
FOR
UPDATE SKIP LOCKED;
SELECT report_jobs.id,
       report_jobs.lock_key,
       report_jobs.priority
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 0
ORDER BY report_jobs.priority,
         report_jobs.id
LIMIT %(param_1)s
FOR
UPDATE SKIP LOCKED;

-- work: heartbeat
SET SESSION idle_transaction_timeout = 10;
SELECT report_jobs.id,
       report_jobs.cancel_requested
FROM report_jobs
FORCE INDEX (PRIMARY)
WHERE report_jobs.status = 'running'
  AND (report_jobs.id,
       report_jobs.token) IN ((%(param_1_1_1)s,
                               %(param_1_1_2)s), (%(param_1_2_1)s,
                                                  %(param_1_2_2)s))
ORDER BY report_jobs.id
FOR
UPDATE SKIP LOCKED;
UPDATE report_jobs
SET lease_expires_at=(utc_timestamp(6) + INTERVAL (report_jobs.lease_ttl) SECOND),
    heartbeat_at=utc_timestamp(6),
    progress=CASE report_jobs.id
                 WHEN %(param_1)s THEN %(param_2)s
                 ELSE report_jobs.progress
             END
WHERE report_jobs.id IN (%(id_1_1)s,
                         %(id_1_2)s);

-- work: checkpoint
SET SESSION idle_transaction_timeout = 10;
SELECT report_jobs.id
FROM report_jobs
FORCE INDEX (PRIMARY)
WHERE report_jobs.status = 'running'
  AND (report_jobs.id,
       report_jobs.token) IN ((%(param_1_1_1)s,
                               %(param_1_1_2)s))
ORDER BY report_jobs.id
FOR
UPDATE;
UPDATE report_jobs
SET lease_expires_at=(utc_timestamp(6) + INTERVAL (report_jobs.lease_ttl) SECOND),
    heartbeat_at=utc_timestamp(6),
    checkpoint=%(checkpoint)s,
               checkpoints=%(checkpoints)s
WHERE report_jobs.id = %(id_1)s;

-- work: end with the handler's session
SET SESSION idle_transaction_timeout = 10;
SELECT report_jobs.id,
       report_jobs.cancel_requested
FROM report_jobs
FORCE INDEX (PRIMARY)
WHERE report_jobs.status = 'running'
  AND (report_jobs.id,
       report_jobs.token) IN ((%(param_1_1_1)s,
                               %(param_1_1_2)s))
ORDER BY report_jobs.id
FOR
UPDATE;
UPDATE report_jobs
SET status=%(status)s,
    holds=%(holds)s,
    lease_expires_at=%(lease_expires_at)s,
    result=CASE report_jobs.id
               WHEN %(param_1)s THEN %(param_2)s
               ELSE report_jobs.result
           END,
           error=%(error)s,
           finished_at=utc_timestamp(6)
WHERE report_jobs.id IN (%(id_1_1)s);
INSERT INTO report_jobs_events (job_id, kind, payload)
VALUES (%(job_id)s, %(kind)s, %(payload)s);

-- work: ends of several
SET SESSION idle_transaction_timeout = 10;
SELECT report_jobs.id,
       report_jobs.cancel_requested
FROM report_jobs
FORCE INDEX (PRIMARY)
WHERE report_jobs.status = 'running'
  AND (report_jobs.id,
       report_jobs.token) IN ((%(param_1_1_1)s,
                               %(param_1_1_2)s))
ORDER BY report_jobs.id
FOR
UPDATE SKIP LOCKED;
UPDATE report_jobs
SET available_at=(utc_timestamp(6) + INTERVAL (%(later_1)s) SECOND),
    status=%(status)s,
    waits=%(waits)s,
    attempt=(report_jobs.attempt - %(attempt_1)s),
    holds=%(holds)s,
    lease_expires_at=%(lease_expires_at)s,
    error=CASE report_jobs.id
              WHEN %(param_1)s THEN %(param_2)s
              ELSE report_jobs.error
          END
WHERE report_jobs.id IN (%(id_1_1)s);
SELECT report_jobs.id
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 2
  AND report_jobs.lock_key = %(lock_key_1)s
ORDER BY report_jobs.priority,
         report_jobs.id
LIMIT %(param_1)s
FOR
UPDATE SKIP LOCKED;
SELECT report_jobs.id
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 2
  AND report_jobs.lock_key = %(lock_key_1)s
  AND report_jobs.available_at < (utc_timestamp(6) - INTERVAL (%(ago_1)s) SECOND)
ORDER BY report_jobs.available_at,
         report_jobs.id
LIMIT %(param_1)s
FOR
UPDATE SKIP LOCKED;
UPDATE report_jobs
SET waits=%(waits)s
WHERE report_jobs.id IN (%(id_1_1)s);
INSERT INTO report_jobs_events (job_id, kind, payload)
VALUES (%(job_id)s, %(kind)s, %(payload)s);

-- work: jobs whose time has come, and followers
SET SESSION idle_transaction_timeout = 10;
SELECT
  (SELECT (timestampdiff(MICROSECOND, utc_timestamp(6), min(report_jobs.available_at)) / 1000000) AS seconds_until_1
   FROM report_jobs
   WHERE report_jobs.status = 'queued'
     AND report_jobs.waits = 1) AS anon_1,
       EXISTS
  (SELECT *
   FROM report_jobs_after
   WHERE report_jobs_after.waiting = %(waiting_1)s) AS anon_2,

  (SELECT report_jobs.id
   FROM report_jobs
   WHERE report_jobs.status = 'queued'
     AND report_jobs.waits = 0
   ORDER BY report_jobs.priority,
            report_jobs.id
   LIMIT 1) AS anon_3;
SET SESSION idle_transaction_timeout = 10;
SELECT report_jobs_after.job_id,
       report_jobs_after.after_id,
       report_jobs_after.after_failure,
       report_jobs.status
FROM report_jobs_after
LEFT OUTER JOIN report_jobs ON report_jobs.id = report_jobs_after.after_id
WHERE report_jobs_after.waiting = %(waiting_1)s
  AND report_jobs_after.after_id IN
    (SELECT anon_1.id
     FROM
       (SELECT report_jobs.id AS id
        FROM report_jobs
        WHERE report_jobs.finished_at > (utc_timestamp(6) - INTERVAL (%(ago_1)s) SECOND)
        ORDER BY report_jobs.finished_at DESC
        LIMIT %(param_1)s) AS anon_1)
  AND (report_jobs.id IS NULL
       OR report_jobs.status IN ('succeeded',
                                 'failed',
                                 'canceled',
                                 'lost'))
ORDER BY report_jobs_after.job_id
LIMIT %(param_2)s;
SELECT report_jobs_after.job_id
FROM report_jobs_after
WHERE report_jobs_after.waiting = %(waiting_1)s
  AND report_jobs_after.job_id > %(job_id_1)s
ORDER BY report_jobs_after.job_id
LIMIT %(param_1)s;
SELECT report_jobs_after.job_id,
       report_jobs_after.after_id,
       report_jobs_after.after_failure,
       report_jobs.status
FROM report_jobs_after
LEFT OUTER JOIN report_jobs ON report_jobs.id = report_jobs_after.after_id
WHERE report_jobs_after.waiting = %(waiting_1)s
  AND report_jobs_after.job_id IN (%(job_id_1_1)s)
  AND (report_jobs.id IS NULL
       OR report_jobs.status IN ('succeeded',
                                 'failed',
                                 'canceled',
                                 'lost'))
ORDER BY report_jobs_after.job_id
LIMIT %(param_1)s;
SELECT report_jobs.id
FROM report_jobs
WHERE report_jobs.id IN (%(id_1_1)s)
  AND report_jobs.status = 'queued'
  AND report_jobs.waits = 3
ORDER BY report_jobs.id
FOR
UPDATE SKIP LOCKED;
UPDATE report_jobs_after
SET waiting=%(waiting)s
WHERE (report_jobs_after.job_id,
       report_jobs_after.after_id) IN ((%(param_1_1_1)s,
                                        %(param_1_1_2)s), (%(param_1_2_1)s,
                                                           %(param_1_2_2)s));
SELECT report_jobs_after.job_id
FROM report_jobs_after
WHERE report_jobs_after.waiting = %(waiting_1)s
  AND report_jobs_after.job_id IN (%(job_id_1_1)s);
UPDATE report_jobs
SET available_at=CASE
                     WHEN (report_jobs.available_at > (utc_timestamp(6))) THEN report_jobs.available_at
                     ELSE (utc_timestamp(6))
                 END,
                 waits=CASE
                           WHEN (report_jobs.available_at > (utc_timestamp(6))) THEN %(param_1)s
                           ELSE %(param_2)s
                       END
WHERE report_jobs.id IN (%(id_1_1)s);
INSERT INTO report_jobs_events (job_id, kind, payload)
VALUES (%(job_id)s, %(kind)s, %(payload)s);
SET SESSION idle_transaction_timeout = 10;
SELECT report_jobs_after.job_id,
       report_jobs_after.after_id,
       report_jobs_after.after_failure,
       report_jobs.status
FROM report_jobs_after
LEFT OUTER JOIN report_jobs ON report_jobs.id = report_jobs_after.after_id
WHERE report_jobs_after.waiting = %(waiting_1)s
  AND report_jobs_after.after_id IN
    (SELECT anon_1.id
     FROM
       (SELECT report_jobs.id AS id
        FROM report_jobs
        WHERE report_jobs.finished_at > (utc_timestamp(6) - INTERVAL (%(ago_1)s) SECOND)
        ORDER BY report_jobs.finished_at DESC
        LIMIT %(param_1)s) AS anon_1)
  AND (report_jobs.id IS NULL
       OR report_jobs.status IN ('succeeded',
                                 'failed',
                                 'canceled',
                                 'lost'))
ORDER BY report_jobs_after.job_id
LIMIT %(param_2)s;
SELECT report_jobs_after.job_id
FROM report_jobs_after
WHERE report_jobs_after.waiting = %(waiting_1)s
  AND report_jobs_after.job_id > %(job_id_1)s
ORDER BY report_jobs_after.job_id
LIMIT %(param_1)s;

-- work: lag
SET SESSION idle_transaction_timeout = 10;
SELECT (timestampdiff(MICROSECOND, utc_timestamp(6),
                        (SELECT min(report_jobs.available_at) AS min_1
                         FROM report_jobs
                         WHERE report_jobs.status = 'queued'
                           AND report_jobs.waits = 0)) / 1000000) AS seconds_until_1;

-- work: backlog
SET SESSION idle_transaction_timeout = 10;
SELECT
  (SELECT count(*) AS count_1
   FROM
     (SELECT report_jobs.id AS id
      FROM report_jobs
      WHERE report_jobs.status = 'queued'
        AND report_jobs.waits = 0
      ORDER BY report_jobs.priority,
               report_jobs.id
      LIMIT %(param_1)s) AS anon_2) AS anon_1,

  (SELECT count(*) AS count_2
   FROM
     (SELECT report_jobs.id AS id
      FROM report_jobs
      WHERE report_jobs.status = 'queued'
        AND report_jobs.waits = 1
        AND report_jobs.available_at <= (utc_timestamp(6))
      ORDER BY report_jobs.available_at
      LIMIT %(param_2)s) AS anon_4) AS anon_3,

  (SELECT count(*) AS count_3
   FROM
     (SELECT report_jobs.id AS id
      FROM report_jobs
      WHERE report_jobs.status = 'queued'
        AND report_jobs.waits = 1
        AND report_jobs.available_at > (utc_timestamp(6))
      ORDER BY report_jobs.available_at
      LIMIT %(param_3)s) AS anon_6) AS anon_5,

  (SELECT count(*) AS count_4
   FROM
     (SELECT report_jobs.id AS id
      FROM report_jobs
      WHERE report_jobs.status = 'queued'
        AND report_jobs.waits = 2
      LIMIT %(param_4)s) AS anon_8) AS anon_7,

  (SELECT count(*) AS count_5
   FROM
     (SELECT DISTINCT report_jobs_after.job_id AS job_id
      FROM report_jobs_after
      WHERE report_jobs_after.waiting = %(waiting_1)s
      LIMIT %(param_5)s) AS anon_10) AS anon_9,
       (timestampdiff(MICROSECOND, utc_timestamp(6),
                        (SELECT min(report_jobs.available_at) AS min_1
                         FROM report_jobs
                         WHERE report_jobs.status = 'queued'
                           AND report_jobs.waits = 0)) / 1000000) AS seconds_until_1,
       (timestampdiff(MICROSECOND, utc_timestamp(6),
                        (SELECT min(report_jobs.available_at) AS min_2
                         FROM report_jobs
                         WHERE report_jobs.status = 'queued'
                           AND report_jobs.waits = 1)) / 1000000) AS seconds_until_2;

-- work: give back
SET SESSION idle_transaction_timeout = 10;
SELECT report_jobs.id,
       report_jobs.lock_key,
       report_jobs.cancel_requested
FROM report_jobs
FORCE INDEX (PRIMARY)
WHERE report_jobs.status = 'running'
  AND (report_jobs.id,
       report_jobs.token) IN ((%(param_1_1_1)s,
                               %(param_1_1_2)s))
ORDER BY report_jobs.id
FOR
UPDATE;
UPDATE report_jobs
SET status=%(status)s,
    attempt=(report_jobs.attempt - %(attempt_1)s),
    holds=%(holds)s,
    lease_expires_at=%(lease_expires_at)s
WHERE report_jobs.id IN (%(id_1_1)s);
SELECT report_jobs.id
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 2
  AND report_jobs.lock_key = %(lock_key_1)s
ORDER BY report_jobs.priority,
         report_jobs.id
LIMIT %(param_1)s
FOR
UPDATE SKIP LOCKED;
SELECT report_jobs.id
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 2
  AND report_jobs.lock_key = %(lock_key_1)s
  AND report_jobs.available_at < (utc_timestamp(6) - INTERVAL (%(ago_1)s) SECOND)
ORDER BY report_jobs.available_at,
         report_jobs.id
LIMIT %(param_1)s
FOR
UPDATE SKIP LOCKED;
UPDATE report_jobs
SET waits=%(waits)s
WHERE report_jobs.id IN (%(id_1_1)s);
INSERT INTO report_jobs_events (job_id, kind, payload)
VALUES (%(job_id)s, %(kind)s, %(payload)s);

-- work: reap
SET SESSION idle_transaction_timeout = 10;
SELECT
  (SELECT (timestampdiff(MICROSECOND, utc_timestamp(6), min(report_jobs.lease_expires_at)) / 1000000) AS seconds_until_1
   FROM report_jobs
   WHERE report_jobs.status = 'running') AS anon_1,

  (SELECT report_jobs.lock_key
   FROM report_jobs
   WHERE report_jobs.status = 'queued'
     AND report_jobs.waits = 2
   ORDER BY report_jobs.lock_key
   LIMIT 1) AS anon_2;
SET SESSION idle_transaction_timeout = 10;
SELECT report_jobs.id,
       report_jobs.attempt,
       report_jobs.max_attempts,
       report_jobs.lock_key,
       report_jobs.cancel_requested,
       report_jobs.worker
FROM report_jobs
WHERE report_jobs.status = 'running'
  AND report_jobs.lease_expires_at < utc_timestamp(6)
ORDER BY report_jobs.id
LIMIT %(param_1)s
FOR
UPDATE SKIP LOCKED;
UPDATE report_jobs
SET available_at=utc_timestamp(6),
    status=%(status)s,
    waits=%(waits)s,
    holds=%(holds)s,
    lease_expires_at=%(lease_expires_at)s,
    error=%(error)s
WHERE report_jobs.id IN (%(id_1_1)s);
INSERT INTO report_jobs_events (job_id, kind, payload)
VALUES (%(job_id)s, %(kind)s, %(payload)s);
SELECT (timestampdiff(MICROSECOND, utc_timestamp(6), min(report_jobs.lease_expires_at)) / 1000000) AS seconds_until_1
FROM report_jobs
WHERE report_jobs.status = 'running';
SET SESSION idle_transaction_timeout = 10;
SELECT report_jobs.id
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 0
LIMIT %(param_1)s;

-- work: cancel
SET SESSION idle_transaction_timeout = 10;
SELECT report_jobs.id,
       report_jobs.lock_key,
       report_jobs.waits
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.id > %(id_1)s
  AND report_jobs.id IN (%(id_2_1)s)
ORDER BY report_jobs.id
LIMIT %(param_1)s
FOR
UPDATE;
UPDATE report_jobs
SET status=%(status)s,
    cancel_requested=%(cancel_requested)s,
    finished_at=utc_timestamp(6)
WHERE report_jobs.id IN (%(id_1_1)s);
SELECT report_jobs.id
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 2
  AND report_jobs.lock_key = %(lock_key_1)s
ORDER BY report_jobs.priority,
         report_jobs.id
LIMIT %(param_1)s
FOR
UPDATE SKIP LOCKED;
SELECT report_jobs.id
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 2
  AND report_jobs.lock_key = %(lock_key_1)s
  AND report_jobs.available_at < (utc_timestamp(6) - INTERVAL (%(ago_1)s) SECOND)
ORDER BY report_jobs.available_at,
         report_jobs.id
LIMIT %(param_1)s
FOR
UPDATE SKIP LOCKED;
UPDATE report_jobs
SET waits=%(waits)s
WHERE report_jobs.id IN (%(id_1_1)s);
INSERT INTO report_jobs_events (job_id, kind, payload)
VALUES (%(job_id)s, %(kind)s, %(payload)s);
SET SESSION idle_transaction_timeout = 10;
SELECT report_jobs.id
FROM report_jobs
WHERE report_jobs.status = 'running'
  AND report_jobs.cancel_requested IS false
  AND report_jobs.id IN (%(id_1_1)s)
ORDER BY report_jobs.id
FOR
UPDATE;

-- work: retry
SET SESSION idle_transaction_timeout = 10;
SELECT report_jobs.id,
       report_jobs.lock_key,
       report_jobs.waits
FROM report_jobs
WHERE report_jobs.status IN ('succeeded',
                             'failed',
                             'canceled',
                             'lost')
  AND report_jobs.id > %(id_1)s
  AND report_jobs.status = 'canceled'
ORDER BY report_jobs.id
LIMIT %(param_1)s
FOR
UPDATE;
UPDATE report_jobs
SET available_at=utc_timestamp(6),
    status=%(status)s,
    waits=%(waits)s,
    attempt=%(attempt)s,
    cancel_requested=%(cancel_requested)s,
    finished_at=%(finished_at)s
WHERE report_jobs.id IN (%(id_1_1)s);
SELECT report_jobs_after.job_id,
       report_jobs_after.after_id
FROM report_jobs_after
INNER JOIN report_jobs ON report_jobs.id = report_jobs_after.after_id
WHERE report_jobs_after.job_id IN (%(job_id_1_1)s)
  AND report_jobs.status IN ('queued',
                             'running');
INSERT INTO report_jobs_events (job_id, kind, payload)
VALUES (%(job_id)s, %(kind)s, %(payload)s);

-- work: statistics
SET SESSION idle_transaction_timeout = 10;
SELECT count(*) AS count_1
FROM
  (SELECT DISTINCT report_jobs_after.job_id AS job_id
   FROM report_jobs_after
   WHERE report_jobs_after.waiting = %(waiting_1)s) AS anon_1;
SELECT count(*) AS count_1
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 0;
SELECT count(*) AS count_1
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 1
  AND report_jobs.available_at <= (utc_timestamp(6));
SELECT count(*) AS count_1
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 1
  AND report_jobs.available_at > (utc_timestamp(6));
SELECT count(*) AS count_1
FROM report_jobs
WHERE report_jobs.status = 'running';
SELECT count(*) AS count_1
FROM report_jobs
WHERE report_jobs.status = 'queued'
  AND report_jobs.waits = 2;
SELECT anon_1.status,
       count(*) AS count_1
FROM
  (SELECT report_jobs.status AS status
   FROM report_jobs
   WHERE report_jobs.finished_at IS NOT NULL
   ORDER BY report_jobs.finished_at DESC
   LIMIT %(param_1)s) AS anon_1
GROUP BY anon_1.status;

-- work: deletion of old jobs
SET SESSION idle_transaction_timeout = 10;
SELECT
  (SELECT report_jobs.id
   FROM report_jobs
   WHERE report_jobs.finished_at < (utc_timestamp(6) - INTERVAL (%(ago_1)s) SECOND)
   ORDER BY report_jobs.finished_at
   LIMIT 1) AS anon_1;
SET SESSION idle_transaction_timeout = 10;
SELECT report_jobs.id
FROM report_jobs
WHERE report_jobs.finished_at < (utc_timestamp(6) - INTERVAL (%(ago_1)s) SECOND)
ORDER BY report_jobs.finished_at
LIMIT %(param_1)s
FOR
UPDATE SKIP LOCKED;
SELECT report_jobs_after.job_id,
       report_jobs_after.after_id,
       report_jobs_after.after_failure,
       report_jobs.status
FROM report_jobs_after
LEFT OUTER JOIN report_jobs ON report_jobs.id = report_jobs_after.after_id
WHERE report_jobs_after.waiting = %(waiting_1)s
  AND report_jobs_after.after_id IN (%(after_id_1_1)s)
  AND (report_jobs.id IS NULL
       OR report_jobs.status IN ('succeeded',
                                 'failed',
                                 'canceled',
                                 'lost'))
ORDER BY report_jobs_after.job_id
LIMIT %(param_1)s;
SELECT report_jobs_after.after_id
FROM report_jobs_after
WHERE report_jobs_after.waiting = %(waiting_1)s
  AND report_jobs_after.after_id IN (%(after_id_1_1)s);
DELETE
FROM report_jobs_after
WHERE report_jobs_after.job_id IN (%(job_id_1_1)s);
DELETE
FROM report_jobs_events
WHERE report_jobs_events.job_id IN (%(job_id_1_1)s);
DELETE
FROM report_jobs
WHERE report_jobs.id IN (%(id_1_1)s);

-- make: tables
CREATE TABLE report_jobs (
    id BIGINT NOT NULL AUTO_INCREMENT,
    task VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    args JSON,
    idempotency_key VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    lock_key VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    partition_key VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
    priority INTEGER NOT NULL DEFAULT 100,
    available_at DATETIME(6) NOT NULL DEFAULT (utc_timestamp(6)),
    status VARCHAR(16) NOT NULL DEFAULT 'queued',
    waits SMALLINT NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL DEFAULT 5,
    lease_ttl INTEGER NOT NULL DEFAULT 60,
    token BIGINT NOT NULL DEFAULT 0,
    holds VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    worker VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    lease_expires_at DATETIME(6),
    heartbeat_at DATETIME(6),
    cancel_requested BOOL NOT NULL DEFAULT false,
    progress JSON,
    checkpoint JSON,
    checkpoints INTEGER NOT NULL DEFAULT 0,
    result JSON,
    error TEXT CHARACTER SET utf8mb4,
    producer VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    consumer_group VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    trace_context JSON,
    created_at DATETIME(6) NOT NULL DEFAULT (utc_timestamp(6)),
    started_at DATETIME(6),
    finished_at DATETIME(6),
    PRIMARY KEY (id)
);
CREATE INDEX ix_report_jobs_blocked ON report_jobs (lock_key, status, waits, priority, id);
CREATE INDEX ix_report_jobs_due ON report_jobs (status, waits, available_at);
CREATE INDEX ix_report_jobs_finished ON report_jobs (finished_at, id);
CREATE INDEX ix_report_jobs_patient ON report_jobs (lock_key, status, waits, available_at);
CREATE INDEX ix_report_jobs_ready ON report_jobs (status, waits, priority, id);
CREATE INDEX ix_report_jobs_running ON report_jobs (status, id);
CREATE UNIQUE INDEX ux_report_jobs_holds ON report_jobs (holds);
CREATE UNIQUE INDEX ux_report_jobs_idempotency ON report_jobs (idempotency_key);
CREATE TABLE report_jobs_events (
    id BIGINT NOT NULL AUTO_INCREMENT,
    job_id BIGINT NOT NULL,
    ts DATETIME(6) NOT NULL DEFAULT (utc_timestamp(6)),
    kind VARCHAR(16) NOT NULL,
    payload JSON,
    PRIMARY KEY (id)
);
CREATE INDEX ix_report_jobs_events_job ON report_jobs_events (job_id, id);
CREATE TABLE report_jobs_schedules (
    name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    rule VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    handled_until DATETIME(6) NOT NULL,
    PRIMARY KEY (name)
);
CREATE TABLE report_jobs_after (
    job_id BIGINT NOT NULL,
    after_id BIGINT NOT NULL,
    waiting SMALLINT NOT NULL,
    after_failure VARCHAR(16) NOT NULL,
    PRIMARY KEY (job_id, after_id)
);
CREATE INDEX ix_report_jobs_after_after ON report_jobs_after (after_id, waiting);
CREATE INDEX ix_report_jobs_after_waiting ON report_jobs_after (waiting, job_id);
